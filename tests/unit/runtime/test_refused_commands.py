"""A command inside a script is refused for a moment, in the middle of acting."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from boyd.errors import StoreError
from boyd.models import ActionResult, Autonomy, Phase, RunRequest
from boyd.plugin import Action
from boyd.runtime import leases
from boyd.store import ActionLedger, PhaseEnd, PhaseEntry
from boyd.store.keys import Keys
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, execution_request, person

KEYS = Keys("test")
GATED = Autonomy(mode="approval-required")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for pauses in ("PAUSES", "KEEPING"):
        monkeypatch.setattr(leases, pauses, (0.0, 0.0))


def foreign(lab: Lab, key: str) -> None:
    """Put a key of another type in the place of *key*."""
    lab.client.delete(key)
    lab.client.set(key, "foreign")


def kinds(lab: Lab) -> list[str]:
    """The kinds of the audit entries, in order."""
    audit = lab.store.audit_trail
    audit.seal()
    return [entry.kind for entry in audit.entries()]


def claim_execution(lab: Lab, token: str = "t") -> ActionLedger:
    """The ledger with one execution that is claimed."""
    own = lab.store.executions
    assert own.claim(execution_request("loop:1"), token).outcome == "claimed"
    return own


def test_an_outcome_is_in_the_ledger_and_the_audit_or_in_neither() -> None:
    lab = Lab(agent(Recorder().action()))
    own = claim_execution(lab)
    result = ActionResult(action="p:do", success=True, duration=1)
    lab.store.audit_trail.seal()
    foreign(lab, KEYS.audit_open)
    with pytest.raises(StoreError):
        own.finish("loop:1", "t", result)
    entry = own.get("loop:1")
    assert entry is not None
    assert entry.state == "running"
    lab.client.delete(KEYS.audit_open)

    assert own.finish("loop:1", "t", result)
    assert kinds(lab) == ["action.started", "action.succeeded"]


def test_a_claim_that_fails_halfway_has_not_begun() -> None:
    lab = Lab(agent(Recorder().action()))
    foreign(lab, KEYS.audit_open)
    own = lab.store.executions
    with pytest.raises(StoreError):
        own.claim(execution_request("loop:1"), "t")

    assert own.get("loop:1") is None
    lab.client.delete(KEYS.audit_open)
    foreign(lab, KEYS.executions)
    claim_execution(lab)  # a list to look things up in holds up no action


def test_an_outcome_that_is_refused_for_a_moment_is_recorded_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def execute() -> str:
        foreign(lab, KEYS.audit_open)
        return "done"

    lab = Lab(agent(chooses(choice()), Action(name="do", execute=execute)))

    def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            lab.client.delete(KEYS.audit_open)
        else:
            time.sleep(seconds)  # the thread that renews leases

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(leases, "time", clock)
    result = lab.run()

    assert [action_result.success for action_result in result.action_results] == [True]
    assert "action.succeeded" in kinds(lab)


def test_a_failure_after_an_action_keeps_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(agent(chooses(choice()), Recorder().action()))
    leave = lab.store.iterations.leave
    failed: list[PhaseEntry] = []

    def refuse(entry: PhaseEntry, following: Phase, fields: Any, *places: str) -> PhaseEnd | None:
        if entry.phase == "act" and not failed:
            failed.append(entry)
            raise StoreError("refused")
        return leave(entry, following, fields, *places)

    monkeypatch.setattr(type(lab.store.iterations), "leave", lambda _, *args: refuse(*args))
    result = lab.run()

    assert not result.success
    assert [action_result.success for action_result in result.action_results] == [True]


def test_an_item_proposed_halfway_is_proposed_again() -> None:
    recorder = Recorder()
    lab = Lab(agent(chooses(choice()), recorder.action(autonomy=GATED)))
    client = lab.client
    foreign(lab, KEYS.audit_open)
    first = lab.run()
    client.delete(KEYS.audit_open)
    run = lab.launcher.submit_run(RunRequest(title="t", description="d"), person("ann")).run
    lab.deliver()
    lab.run()
    [item] = lab.store.approvals.page(50).pending

    assert not first.success
    assert lab.resolver.answer(item.id, "approved", person("bob")).outcome == "approved"
    lab.deliver()
    assert len(recorder.calls) == 1
    run_after = lab.store.runs.get(run.id)
    assert run_after is not None
    assert run_after.status == "completed"


def test_an_item_that_is_not_whole_is_joined_by_nobody() -> None:
    recorder = Recorder()
    lab = Lab(agent(chooses(choice()), recorder.action(autonomy=GATED)))
    lab.run()
    [half] = lab.store.approvals.page(50).pending
    lab.client.hdel(KEYS.approval(half.id), "status")
    lab.run()
    [item] = lab.store.approvals.page(50).pending

    assert item.id != half.id
    assert lab.resolver.answer(item.id, "approved", person("bob")).outcome == "approved"
    lab.deliver()
    assert len(recorder.calls) == 1


def test_a_foreign_list_of_jobs_stops_no_sweep() -> None:
    lab = Lab(agent(chooses(choice()), Recorder().action()))
    foreign(lab, KEYS.jobs)
    jobs = lab.store.due.take()
    assert "repair" in jobs
    lab.sweeper.recover(jobs)

    assert lab.client.smembers(KEYS.jobs) == set()
    assert "repair" not in lab.store.due.take()
