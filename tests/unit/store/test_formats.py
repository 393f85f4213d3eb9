"""Records of a newer release are reported and left alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from boyd.errors import NewerFormat
from boyd.models import CallRequest
from boyd.store.keys import Keys
from boyd.testing import TESTER, Lab
from kit import agent, overdue, seen, sees

KEYS = Keys("test")


def read_hash(lab: Lab, key: str) -> Any:
    """A hash without what sweepers note of themselves."""
    return lab.client.hgetall(key)


def test_new_records_carry_the_format_version() -> None:
    lab = Lab(agent(sees("o", seen())))
    run = lab.submit("look").run.id
    lab.launcher.trigger("test")
    call, _ = lab.store.calls.submit(CallRequest(kind="execute", action="p:do", actor=TESTER), None)
    keys = [KEYS.loop, KEYS.iteration, KEYS.run(run), KEYS.job(f"call:{call}")]

    assert [lab.client.hget(key, "formatVersion") for key in keys] == ["1"] * 4
    lab.deliver()
    assert lab.client.hget(KEYS.past_iteration(1), "formatVersion") == "1"


@pytest.mark.parametrize("phase", ["start", "observe", "orient", "decide", "complete"])
def test_an_iteration_of_a_newer_release_is_left_alone(
    phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == phase)
    lab.client.hset(KEYS.iteration, "formatVersion", 2)
    before = read_hash(lab, KEYS.iteration)
    with pytest.raises(NewerFormat, match="iteration has format version 2"):
        lab.deliver()
    overdue(lab, "phase")
    with caplog.at_level(logging.WARNING):
        lab.sweeper.sweep()

    assert read_hash(lab, KEYS.iteration) == before
    assert "was left alone" in caplog.text
    lab.client.hdel(KEYS.iteration, "formatVersion")
    overdue(lab, "phase")
    lab.sweeper.sweep()
    lab.deliver()
    assert lab.store.loop_control.status().phase in ("idle", "observe")


def test_a_job_of_a_newer_release_is_left_alone() -> None:
    lab = Lab(agent())
    call, _ = lab.store.calls.submit(CallRequest(kind="execute", action="p:do", actor=TESTER), None)
    name = f"call:{call}"
    lab.client.hset(KEYS.job(name), "formatVersion", 2)
    before = read_hash(lab, KEYS.job(name))
    with pytest.raises(NewerFormat):
        lab.jobs.execute(name, 1)
    overdue(lab, name)
    lab.sweeper.sweep()

    assert read_hash(lab, KEYS.job(name)) == before


def test_an_agent_that_a_newer_release_keeps_begins_nothing_here() -> None:
    lab = Lab(agent())
    lab.client.hset(KEYS.loop, "formatVersion", 2)

    with pytest.raises(NewerFormat):
        lab.launcher.trigger("test")
    assert not lab.client.exists(KEYS.iteration)
