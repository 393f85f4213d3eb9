"""Trials of a host's means: a success is remembered, a problem only for a while."""

from __future__ import annotations

import pytest

from boyd.models import Sandbox
from boyd.sandbox import host_means


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The problems that the next trials have, on a host with bubblewrap; none when all are used."""
    problems: list[str] = []
    monkeypatch.setattr(host_means, "isolation", lambda: "bubblewrap")
    monkeypatch.setattr(host_means, "_try_limits", lambda *_: problems.pop(0) if problems else None)
    return problems


def test_a_limit_that_could_not_be_tried_out_is_tried_again_later(
    trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = Sandbox(memory=77 * 2**20)
    trials += ["its trial took longer than 30 s", "never tried"]
    first, second = (host_means.find_limit_problem(sandbox) for _ in range(2))
    trials.clear()
    monkeypatch.setattr(host_means, "_AGAIN", 0)
    later = host_means.find_limit_problem(sandbox)
    trials.append("never tried")

    assert first == second == "its trial took longer than 30 s"
    assert later is None
    assert host_means.find_limit_problem(sandbox) is None
