"""A machine is known by digests of its boot and its system."""

from __future__ import annotations

from pathlib import Path

import pytest

from boyd_worker import agent_host as machines
from boyd_worker.agent_host import machine


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The files of boot and system, which are not there yet."""
    boot, system = tmp_path / "boot_id", tmp_path / "machine-id"
    monkeypatch.setattr(machines, "BOOT", boot)
    monkeypatch.setattr(machines, "SYSTEM", system)
    return boot, system


def test_a_copy_of_a_machine_is_another_one(files: tuple[Path, Path]) -> None:
    boot, system = files
    system.write_text("0123456789abcdef\n")
    known = set()
    for text in ("one", "two", "two"):
        boot.write_text(f"{text}\n")
        known.add(machine())
    assert len(known) == 2
    assert len({one and one.partition(".")[2] for one in known}) == 1
    assert not any("0123" in str(one) for one in known)


def test_an_unknown_part_of_a_machine_is_empty(files: tuple[Path, Path]) -> None:
    boot, system = files
    assert machine() is None
    system.write_text("")
    boot.write_text("one\n")
    found = machine()
    assert found
    assert found.endswith(".")
    boot.write_bytes(b"\xff")
    assert machine() is None
