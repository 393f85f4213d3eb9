"""The example `causes`: a database fails, and what needs it follows."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from boyd.agent import load_agent
from boyd.testing import Lab

EXAMPLE = Path(__file__).parents[3] / "examples" / "causes"


def break_service(folder: Path, name: str, seconds_ago: float) -> None:
    """Break a service some seconds ago."""
    file = folder / "boyd-causes" / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    at = time.time() - seconds_ago
    os.utime(file, (at, at))


def test_it_asks_to_restart_the_cause_and_not_what_suffers_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lab = Lab(load_agent(str(EXAMPLE / "agent.toml")))
    decisions = []
    # The services that need the database fail 12 and 24 seconds after it.
    for seconds_ago in (1, 13, 25):
        break_service(tmp_path, "db", seconds_ago)
        decision = lab.run().decision
        decisions.append(decision.params.get("name") if decision else None)

    assert decisions == [None, "db", "db"]
    [approval] = lab.store.approvals.page(50).pending
    assert approval.params == {"name": "db"}


def test_everything_at_once_has_no_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("db", "cache", "mail", "shop", "cart", "pay"):
        break_service(tmp_path, name, 1)
    result = Lab(load_agent(str(EXAMPLE / "agent.toml"))).run()

    assert result.situation is not None
    assert result.situation.summary.startswith("no likely cause: all 6 began at once")
    assert result.decision is not None
    assert result.decision.is_no_op
