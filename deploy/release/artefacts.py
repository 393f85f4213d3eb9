"""Build all that a release has, from the last commit: the same bytes wherever and whenever.

    python deploy/release/artefacts.py dist

Wheel, sdist, Helm chart and documentation, a software bill of materials (CycloneDX), the licences
of what is installed with Boyd, requirements with hashes, and the hashes of all files. Times are
those of the commit. What is not committed is not built.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageMetadata, metadata
from io import BytesIO
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from license_expression import ExpressionError, get_spdx_licensing
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
#: Folders of the packages that the documentation describes.
PACKAGES = ("shared", "worker", "api")
#: The classifiers that name one licence.
CLASSIFIERS = {
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: GNU Lesser General Public License v3 or later (LGPLv3+)": (
        "LGPL-3.0-or-later"
    ),
}
SPDX = get_spdx_licensing()


class Refusal(Exception):
    """A reason not to build."""


@dataclass(frozen=True)
class Pin:
    """A package that is installed with Boyd, or vendored.

    Attributes:
        name: its name.
        version: its version.
        hashes: SHA-256 of each of its files, of which one is installed.
        registry: where it is from.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    registry: str = "pypi"


@dataclass(frozen=True)
class Policy:
    """`licences.toml`."""

    allowed: frozenset[str]
    read: dict[str, str]
    exceptions: dict[str, str]


def read_pins(*files: Path) -> list[Pin]:
    """The packages that files of requirements pin for this kind of system, by name."""
    pins = {}
    for file in files:
        for line in file.read_text("utf-8").replace("\\\n", "").splitlines():
            text, *hashes = line.split("--hash=sha256:")
            if text.strip() and not text.startswith("#"):
                need = Requirement(text.strip())
                (version,) = need.specifier
                if need.marker is None or need.marker.evaluate():
                    words = tuple(word.strip() for word in hashes)
                    pins[need.name] = Pin(need.name, version.version, words)
    return [pins[name] for name in sorted(pins)]


def read_policy(file: Path) -> Policy:
    """Read the policy about licences."""
    texts = tomllib.loads(file.read_text("utf-8"))
    return Policy(frozenset(texts["allowed"]), texts["read"], texts["exceptions"])


def find_licence(package: PackageMetadata, policy: Policy) -> str:
    """The SPDX expression for the licence of a package.

    Raises:
        Refusal: it is unknown.
    """
    name = package["Name"].lower().replace("_", "-")
    classifiers = [CLASSIFIERS.get(text) for text in package.get_all("Classifier") or ()]
    stated = (policy.read.get(name), package["License-Expression"], package["License"])
    for text in (*stated, *classifiers):
        if text and len(text) < 200:
            try:
                return str(SPDX.parse(text, validate=True))
            except ExpressionError:
                continue
    raise Refusal(f"{name}: its licence is unknown; read it, and add it to [read]")


def check_licence(name: str, licence: str, policy: Policy) -> None:
    """Refuse a licence that is neither allowed nor an exception of that package.

    Raises:
        Refusal: it is neither.
    """
    if policy.exceptions.get(name, "").partition(":")[0] == licence:
        return
    choices = [choice.split(" AND ") for choice in licence.split(" OR ")]
    if not any(policy.allowed.issuperset(choice) for choice in choices):
        raise Refusal(f"{name} is under {licence}, which is not allowed")


def licences(pins: Iterable[Pin], policy: Policy) -> dict[str, str]:
    """The licence of each package.

    Raises:
        Refusal: one is unknown or not allowed, or the version that is pinned is not installed.
    """
    result, problems = {}, []
    for pin in pins:
        try:
            package = metadata(pin.name)
            if package["Version"] != pin.version:
                raise Refusal(f"{pin.name}: {package['Version']} is installed, not {pin.version}")
            result[pin.name] = find_licence(package, policy)
            check_licence(pin.name, result[pin.name], policy)
        except Refusal as refusal:
            problems.append(str(refusal))
    if problems:
        raise Refusal("\n".join(problems))
    return result


def read_vendored(source: Path) -> tuple[list[Pin], dict[str, str]]:
    """The packages of which the wheel has files, and their licences."""
    tables = tomllib.loads((source / "deploy/release/licences.toml").read_text("utf-8"))["vendored"]
    pins = []
    for name, table in tables.items():
        lines = (source / table["folder"] / "vendored.sha256").read_text("utf-8").splitlines()
        pins.append(Pin(name, table["version"], tuple(line.split()[0] for line in lines), "npm"))
    return pins, {name: table["licence"] for name, table in tables.items()}


def make_bom(version: str, pins: list[Pin], named: dict[str, str], epoch: int) -> str:
    """The software bill of materials, as CycloneDX in JSON."""
    components = [
        Component(
            name=pin.name,
            version=pin.version,
            type=ComponentType.LIBRARY,
            bom_ref=f"{pin.name}=={pin.version}",
            purl=PackageURL(pin.registry, name=pin.name, version=pin.version),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=word) for word in pin.hashes],
            licenses=[_as_component_licence(named[pin.name])],
        )
        for pin in pins
    ]
    boyd = Component(
        name="boyd",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"boyd=={version}",
        purl=PackageURL("pypi", name="boyd", version=version),
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
    )
    content = sorted(f"{pin.name} {pin.version} {sorted(pin.hashes)}" for pin in pins)
    serial = uuid5(NAMESPACE_URL, json.dumps([version, epoch, content]))
    bom = Bom(components=components, serial_number=serial)
    bom.metadata.component = boyd
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.register_dependency(boyd, components)
    outputter = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return json.dumps(json.loads(outputter.output_as_string()), indent=2, sort_keys=True) + "\n"


def _as_component_licence(expression: str) -> DisjunctiveLicense | LicenseExpression:
    is_id = " " not in expression
    return DisjunctiveLicense(id=expression) if is_id else LicenseExpression(expression)


def pack(folder: Path, prefix: str, epoch: int) -> bytes:
    """The files of a folder as `.tar.gz`, with nothing in it of this machine or moment."""
    content = BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(f"{prefix}/{path.relative_to(folder).as_posix()}")
            member.size, member.mtime, member.mode = path.stat().st_size, epoch, 0o644
            with path.open("rb") as file:
                archive.addfile(member, file)
    return content.getvalue()


def build(source: Path, folder: Path, epoch: int) -> None:
    """Build everything from the files in *source* into an empty *folder*."""
    pins = read_pins(
        source / "deploy/requirements.txt", source / "deploy/embedded-requirements.txt"
    )
    policy = read_policy(source / "deploy/release/licences.toml")
    vendored, named = read_vendored(source)
    named |= licences(pins, policy)
    pins += vendored
    version = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONPATH": os.pathsep.join(str(source / package) for package in PACKAGES),
        "PYTHONHASHSEED": "0",
        "TZ": "UTC",
    }
    python = [sys.executable, "-m"]
    _run([*python, "build", "--no-isolation", "--outdir", str(folder), "."], source, environment)
    with tempfile.TemporaryDirectory() as site:
        docs = [
            "properdocs",
            "build",
            "--strict",
            "--config-file",
            "mkdocs.yml",
            "--site-dir",
            site,
        ]
        _run([*python, *docs], source, environment)
        _renew_times(Path(site), epoch)
        documentation = pack(Path(site), f"boyd-docs-{version}", epoch)
    write = {
        f"boyd-docs-{version}.tar.gz": documentation,
        f"boyd-chart-{version}.tgz": pack(source / "deploy/helm/boyd", "boyd", epoch),
        f"boyd-{version}.cdx.json": make_bom(version, pins, named, epoch).encode(),
        f"boyd-licences-{version}.txt": _table(pins, named, policy).encode(),
    }
    for name, content in write.items():
        (folder / name).write_bytes(content)
    for requirements in ("requirements.txt", "embedded-requirements.txt"):
        _lock(source / "deploy" / requirements, folder)
    sums = [f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums), "utf-8")


def _run(command: list[str], source: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(  # noqa: S603 - no shell, and nothing from outside
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refusal(f"{' '.join(command[1:4])} failed:\n{done.stdout}{done.stderr}")


def _renew_times(site: Path, epoch: int) -> None:
    """Compress again what the site builder compressed with the time of day."""
    for path in site.rglob("*.gz"):
        content = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress(content, mtime=epoch))


def _table(pins: Iterable[Pin], named: dict[str, str], policy: Policy) -> str:
    """A line for each package: its version, its licence, and why that is an exception."""
    reasons = {name: text.partition(": ")[2] for name, text in policy.exceptions.items()}
    rows = [[pin.name, pin.version, named[pin.name], reasons.get(pin.name, "")] for pin in pins]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join("  ".join(map(str.ljust, row, [*widths, 0])).rstrip() + "\n" for row in rows)


def _lock(requirements: Path, folder: Path) -> None:
    """Write requirements that have the wheel, too, with its hash."""
    (wheel,) = folder.glob("*.whl")
    text = requirements.read_text("utf-8")
    line = f"./{wheel.name} --hash=sha256:{sha256(wheel)}\n"
    (folder / f"boyd-{requirements.name}").write_text(text + line, "utf-8")


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> bytes:
    return subprocess.check_output(["git", "-C", str(ROOT), *arguments])  # noqa: S603, S607 - PATH has git


def main(folder: Path) -> None:
    """Build the last commit into *folder*, in place of what was built there before.

    Raises:
        Refusal: the folder has other files, or the build failed.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "SHA256SUMS").exists():
        raise Refusal(f"{folder} has files that were not built here")
    epoch = int(_git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as temporary:
        source, built = Path(temporary) / "boyd", Path(temporary) / "dist"
        with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", "HEAD"))) as files:
            files.extractall(source, filter="data")
        built.mkdir()
        build(source, built, epoch)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(built, folder)
    print((folder / "SHA256SUMS").read_text("utf-8"), end="")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Refusal as refusal:
        sys.exit(f"nothing was built: {refusal}")
