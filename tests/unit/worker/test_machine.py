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
    ids = set()
    for text in ("one", "two", "two"):
        boot.write_text(f"{text}\n")
        ids.add(machine())
    assert len(ids) == 2
    assert len({machine_id and machine_id.partition(".")[2] for machine_id in ids}) == 1
    assert not any("0123" in str(machine_id) for machine_id in ids)


def test_an_unknown_part_of_a_machine_is_empty(files: tuple[Path, Path]) -> None:
    boot, system = files
    assert machine() is None
    system.write_text("")
    boot.write_text("one\n")
    machine_id = machine()
    assert machine_id
    assert machine_id.endswith(".")
    boot.write_bytes(b"\xff")
    assert machine() is None
