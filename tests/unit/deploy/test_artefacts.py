"""The artefacts of a release: reproducible archives, licences, a bill of materials."""

from __future__ import annotations

import json
import os
from email.message import Message
from hashlib import sha256
from importlib.metadata import PackageMetadata
from pathlib import Path
from typing import cast

import pytest

import artefacts
from artefacts import ROOT, Pin, Policy, Refusal
from deploy_kit import DEPLOY

REQUIREMENTS = (DEPLOY / "requirements.txt", DEPLOY / "embedded-requirements.txt")
POLICY = artefacts.read_policy(DEPLOY / "release" / "licences.toml")


def package(**fields: str) -> PackageMetadata:
    """Metadata of a package; `_` stands for `-`."""
    message = Message()
    message["Name"] = "other"
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return cast("PackageMetadata", message)


def test_every_dependency_has_a_licence_that_is_allowed() -> None:
    pins = artefacts.read_pins(*REQUIREMENTS)

    assert artefacts.licences(pins, POLICY).keys() == {pin.name for pin in pins}


def test_no_entry_of_the_policy_is_about_a_package_that_is_not_installed() -> None:
    names = {pin.name for pin in artefacts.read_pins(*REQUIREMENTS)}

    assert names >= POLICY.read.keys() | POLICY.exceptions.keys()


@pytest.mark.parametrize(
    ("stated", "licence"),
    [
        ({"License_Expression": "MIT OR Apache-2.0"}, "MIT OR Apache-2.0"),
        ({"License": "BSD-3-Clause"}, "BSD-3-Clause"),
        ({"License": "see file", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
    ],
)
def test_a_licence_is_read_from_the_metadata(stated: dict[str, str], licence: str) -> None:
    assert artefacts.find_licence(package(**stated), POLICY) == licence


@pytest.mark.parametrize("stated", ["", "BSD", "Proprietary", "Dual License"])
def test_an_unknown_licence_is_refused(stated: str) -> None:
    with pytest.raises(Refusal, match="other: its licence is unknown"):
        artefacts.find_licence(package(License=stated), POLICY)


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "LGPL-3.0-only"])
def test_a_licence_that_is_not_allowed_is_refused(licence: str) -> None:
    with pytest.raises(Refusal, match=f"other is under {licence}"):
        artefacts.check_licence("other", licence, POLICY)


def test_of_alternatives_one_has_to_be_allowed() -> None:
    artefacts.check_licence("other", "GPL-2.0-only OR MIT", POLICY)


def test_an_exception_is_for_one_package_and_one_licence() -> None:
    policy = Policy(frozenset({"MIT"}), {}, {"driver": "LGPL-3.0-only: an extra"})

    artefacts.check_licence("driver", "LGPL-3.0-only", policy)
    with pytest.raises(Refusal):
        artefacts.check_licence("driver", "GPL-3.0-only", policy)


def test_an_archive_depends_on_nothing_but_names_and_contents(tmp_path: Path) -> None:
    archives = []
    for folder, mode, names in ("one", 0o600, "ab"), ("two", 0o666, "ba"):
        (tmp_path / folder).mkdir()
        for name in names:
            path = tmp_path / folder / name
            path.write_text(f"the file {name}")
            path.chmod(mode)
            os.utime(path, (mode, mode))
        archives.append(artefacts.pack(tmp_path / folder, "boyd", 1_700_000_000))

    assert archives[0] == archives[1]


def test_the_bill_of_materials_has_hashes_and_licences_of_all_packages() -> None:
    pins = artefacts.read_pins(*REQUIREMENTS)
    vendored, licences = artefacts.read_vendored(ROOT)
    licences |= artefacts.licences(pins, POLICY)
    bom = json.loads(artefacts.make_bom("1.2", [*pins, *vendored], licences, 1_700_000_000))

    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    components = {each["name"]: each for each in bom["components"]}
    assert components.keys() == licences.keys()
    assert all(each["hashes"] and each["licenses"] for each in components.values())
    assert components["celery"]["purl"].startswith("pkg:pypi/celery@")
    assert bom == json.loads(artefacts.make_bom("1.2", [*vendored, *pins], licences, 1_700_000_000))


def test_vendored_files_have_the_version_that_the_bill_of_materials_names() -> None:
    [htmx], _ = artefacts.read_vendored(ROOT)
    script = ROOT / "api/boyd_api/console/static/htmx.min.js"

    assert f'version="{htmx.version}"' in script.read_text("utf-8")
    assert sha256(script.read_bytes()).hexdigest() in htmx.hashes


def test_a_version_that_is_not_installed_is_refused() -> None:
    with pytest.raises(Refusal, match=r"celery: .+ is installed, not 1\.0"):
        artefacts.licences([Pin("celery", "1.0", ())], POLICY)


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(Refusal, match="files that were not built here"):
        artefacts.main(tmp_path)

    assert (tmp_path / "thesis.txt").exists()
