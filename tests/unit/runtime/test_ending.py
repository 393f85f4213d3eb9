"""The end of an iteration: of its runs, in its history, and for its hooks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from boyd import Agent, LoopResult, Veto
from boyd.models import Autonomy, Run
from boyd.phases import act, decide, observe, orient
from boyd.runtime import ending
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, fails, person, plugin, reads, seen, sees


def investigate(lab: Lab) -> Run:
    """A run, after the iteration that it started."""
    run_id = lab.submit("look").run.id
    lab.deliver()
    run = lab.store.runs.get(run_id)
    assert run is not None
    return run


def broken(*_: Any) -> Any:
    """Raise, as a bug would."""
    raise RuntimeError("a bug")


def test_a_run_is_completed_with_what_its_iteration_found_and_did() -> None:
    orienter = reads("o", "the disk is full", contributing_factor="logs")
    run = investigate(Lab(agent(orienter, chooses(choice()), Recorder("freed").action())))

    assert run.status == "completed"
    assert run.result is not None
    assert (
        run.result.summary,
        run.result.findings,
        run.result.recommendations,
    ) == ("the disk is full", ["the disk is full"], ["logs"])
    assert [(a.action, a.success, a.description) for a in run.result.actions_performed] == [
        ("p:do", True, "freed")
    ]
    assert run.completed_at is not None


def test_a_run_fails_with_its_action() -> None:
    recorder = Recorder(error=OSError("no route"))
    run = investigate(Lab(agent(chooses(choice()), recorder.action())))

    assert run.status == "failed"


def test_a_run_fails_when_its_action_is_vetoed() -> None:
    def veto() -> None:
        raise Veto("no")

    own = plugin(chooses(choice()), Recorder().action(), on_decide=veto)

    assert investigate(Lab(Agent("test", plugins=[own]))).status == "failed"


def test_a_run_fails_with_its_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "decide", broken)

    assert investigate(Lab(agent())).status == "failed"


def test_a_run_waits_with_its_approval_and_ends_with_it() -> None:
    action = Recorder().action(autonomy=Autonomy(mode="human-only"))
    lab = Lab(agent(chooses(choice()), action, approvals={"ttl": 60}))
    run = investigate(lab)
    item = lab.store.approvals.page(50).pending[0]

    assert ("investigating", item.id, [run.id]) == (run.status, run.approval_id, item.run_ids)

    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})
    lab.store.approvals.expire(lab.engine.retention)
    run_after = lab.store.runs.get(run.id)

    assert run_after is not None
    assert run_after.status == "failed"
    assert lab.store.approvals.page(50).history[0].status == "expired"


def test_every_run_that_waits_for_one_approval_ends_with_it() -> None:
    action = Recorder().action(autonomy=Autonomy(mode="human-only"))
    lab = Lab(agent(chooses(choice()), action))
    runs = [investigate(lab) for _ in range(2)]
    item = lab.store.approvals.page(50).pending[0]
    resolved = lab.resolver.answer(item.id, "denied", person("ann"), "no").item
    runs_after = [lab.store.runs.get(run.id) for run in runs]

    assert resolved is not None
    assert (resolved.status, resolved.note, len(resolved.run_ids)) == ("denied", "no", 2)
    assert [run.status for run in runs_after if run] == ["failed"] * 2
    assert [run.reason for run in runs_after if run] == ["the approval was denied"] * 2


def test_loop_complete_gets_the_complete_result() -> None:
    results: list[LoopResult] = []
    own = plugin(sees("o", seen()), on_loop_complete=lambda result: results.append(result))
    returned = Lab(Agent("test", plugins=[own])).run()

    assert [returned.id] == [result.id for result in results]
    assert len(results[0].observations) == 1


def test_loop_complete_runs_also_for_a_failed_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decide, "decide", broken)
    results: list[LoopResult] = []
    own = plugin(on_loop_complete=lambda result: results.append(result))
    Lab(Agent("test", plugins=[own])).run()

    assert [result.success for result in results] == [False]


def test_history_holds_every_iteration_also_failed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.run()
    with monkeypatch.context() as patch:
        patch.setattr(decide, "decide", broken)
        lab.run()
    results = lab.store.history.results()

    assert [(r.iteration, r.success) for r in results] == [(2, False), (1, True)]
    assert results[1].ended_at >= results[1].started_at
    assert {"start", "observe", "orient", "decide", "complete"} <= set(results[1].phases)


def test_history_is_capped_by_count() -> None:
    lab = Lab(agent(history={"max_count": 3}))
    for _ in range(6):
        lab.run()

    assert [r.iteration for r in lab.store.history.results()] == [6, 5, 4]
    assert len(lab.client.keys("boyd:{test}:iteration:*")) == 3


def test_history_is_capped_by_age() -> None:
    lab = Lab(agent(history={"max_age": 3600}))
    lab.run()

    assert 3590 < lab.client.ttl("boyd:{test}:iteration:1") <= 3600


def test_history_is_read_page_by_page() -> None:
    lab = Lab(agent())
    for _ in range(5):
        lab.run()
    pages = [lab.store.history.results(limit=2, before=before) for before in (None, 4, 2)]

    assert [[r.iteration for r in page] for page in pages] == [[5, 4], [3, 2], [1]]


def test_the_iteration_in_flight_takes_no_place_on_a_page_of_the_history() -> None:
    lab = Lab(agent())
    for _ in range(3):
        lab.run()
    lab.launcher.trigger("test")

    assert [r.iteration for r in lab.store.history.results(limit=2)] == [3, 2]


@pytest.mark.parametrize(
    ("module", "name", "phase"),
    [
        (observe, "plan", "start"),
        (orient, "orient", "orient"),
        (decide, "decide", "decide"),
        (act, "act", "act"),
        (ending, "run_outcome", "complete"),
    ],
)
def test_a_phase_that_raises_fails_the_iteration_and_keeps_what_was_there(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, phase: str
) -> None:
    lab = Lab(agent(sees("o", seen()), fails(), chooses(choice()), Recorder().action()))
    lab.submit("look")
    lab.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, broken)
        lab.submit("again")
        with pytest.raises(RuntimeError) if phase == "complete" else nullcontext():
            lab.deliver()
    result = lab.store.history.get(2)
    if phase == "complete":
        assert result is None, "only a bug in ending itself leaves it to the sweeper"
        return

    assert result is not None
    assert (False, f"{phase} failed: RuntimeError: a bug") == (result.success, result.error)
    assert (phase in ("decide", "act")) == bool(result.situation)
    assert (phase == "act") == bool(result.decision)
    assert lab.store.loop_control.status().phase == "idle"


def test_a_failed_iteration_holds_nothing_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    lab.run()
    monkeypatch.setattr(observe, "plan", broken)
    result = lab.run()

    assert result.observations == []
    assert (result.situation, result.decision, result.action_results) == (None, None, [])


def test_a_run_whose_iterations_cannot_even_start_fails_after_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(agent())
    monkeypatch.setattr(observe, "plan", broken)
    run = investigate(lab)

    assert run.status == "failed"
    assert run.result is not None
    assert run.result.summary == "start failed: RuntimeError: a bug"
    assert len(lab.store.history.results()) == 2
