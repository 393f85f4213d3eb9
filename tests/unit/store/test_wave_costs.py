"""The cost of a wave in Redis: as many commands per move for ten targets as for a thousand."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from boyd import naming
from boyd.models import (
    ActionResult,
    Actor,
    CallRequest,
    Fence,
    ProcedureRecord,
    ProcedureStep,
    StepProgress,
    utc_now,
)
from boyd.store import AgentEntry, AgentStore, Store
from kit import execution_request

pytestmark = pytest.mark.real

ANN = Actor(principal="ann", person=True)
STEP = "patch"


def begin(a: AgentStore, call: str, targets: int) -> str:
    """Begin a procedure over so many targets; return the name of its wave."""
    id, now = f"call:{call}", utc_now()
    a.calls.submit(CallRequest(kind="execute", action="p:do", params={}, actor=ANN), None, call)
    assert a.jobs.enter(id, 1, "w/1")
    a.executions.claim(execution_request(id, fence=Fence(id, 1, "w/1")), "token")
    items: list[Any] = [f"host-{number}" for number in range(targets)]
    record = ProcedureRecord(
        id=id,
        action="p:do",
        params={},
        state="running",
        steps=[ProcedureStep(id=STEP, action="p:do", for_each=items)],
        progress=[StepProgress()],
        started_at=now,
        until=now + timedelta(seconds=60),
    )
    done = ActionResult(action="p:do", success=True, duration=0.0)
    assert a.procedures.begin("token", record, done)
    assert a.jobs.enter(naming.procedure(id), 1, "w/2")
    return naming.wave(id, STEP)


def costs_of_moves(store: Store, call: str, targets: int) -> list[int]:
    """The commands to open a wave over so many targets, to end one of them, and to read all."""
    a = store.agent("a")
    wave = begin(a, call, targets)
    fence = Fence(naming.procedure(f"call:{call}"), 1, "w/2")
    limits = {"mode": "forth", "limit": targets, "atOnce": 2, "stopAt": 1, "queue": "act"}
    counts = [_commands(store)]
    a.waves.open(wave, fence, {**limits, "idempotent": 0})
    counts.append(_commands(store))
    name = naming.target(wave, 0)
    assert a.jobs.enter(name, 1, "w/3")
    target = a.waves.get(wave, 0)
    assert target is not None
    assert a.waves.move(wave, Fence(name, 1, "w/3"), target.patched({"state": "done"}))
    counts.append(_commands(store))
    a.waves.progress(wave)
    counts.append(_commands(store))
    return [after - before for before, after in itertools.pairwise(counts)]


def test_a_move_takes_as_many_commands_for_ten_targets_as_for_a_thousand(store: Store) -> None:
    entry = AgentEntry(
        id="a", name="A", mode="manual", loop_interval=1.0, plugins=[], fingerprint="f"
    )
    store.fleet.register(entry)
    costs_of_moves(store, "warm", 3)
    assert costs_of_moves(store, "few", 10) == costs_of_moves(store, "many", 1000)

    key = "boyd:{a}:procedure:call:"
    few, many = (store.client.memory_usage(key + call, samples=0) for call in ("few", "many"))
    assert few
    assert many
    assert many < 2 * few


def _commands(store: Store) -> int:
    """The commands that Redis has executed, those of scripts included."""
    stats = store.client.info("commandstats")
    return sum(entry["calls"] for name, entry in stats.items() if name != "cmdstat_info")
