"""Runs: submitted once, cancelled, listed and pruned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from boyd.errors import BadCursor, StoreError
from boyd.models import ApprovalItem, Autonomy, CallRequest, Run, RunPage, RunRequest
from boyd.plugin import Action, Orienter
from boyd.store import Verdict
from boyd.store.hashes import SCANNED
from boyd.testing import TESTER, Lab
from kit import (
    Recorder,
    agent,
    assessed,
    choice,
    chooses,
    overdue,
    person,
    reads,
    seen,
    sees,
)

GATED = Autonomy(mode="approval-required")


def acting(recorder: Recorder, **settings: Any) -> Lab:
    """A lab whose agent always decides for its action."""
    return Lab(agent(reads("o", "a fault"), chooses(choice()), recorder.action(**settings)))


def now(lab: Lab, run_id: str) -> Run:
    """The run as it is now."""
    run = lab.store.runs.get(run_id)
    assert run is not None
    return run


def cancel(lab: Lab, run_id: str) -> str | None:
    """Cancel a run; the status of one that cannot be cancelled."""
    return lab.store.runs.cancel(run_id, TESTER, lab.engine.retention, "changed my mind")


def waiting(lab: Lab, *titles: str) -> list[str]:
    """Runs that wait for the same approval."""
    ids = []
    for title in titles:
        ids.append(lab.submit(title).run.id)
        lab.deliver()
    return ids


def pending(lab: Lab) -> list[ApprovalItem]:
    """The pending items."""
    return lab.store.approvals.page(50).pending


def pages(lab: Lab, limit: int, **filters: Any) -> Iterator[RunPage]:
    """Page after page."""
    cursor = None
    while True:
        page = lab.store.runs.page(limit, cursor, **filters)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


def titles(run_pages: Iterator[RunPage]) -> list[str]:
    """The titles on those pages."""
    return [run.title for page in run_pages for run in page.runs]


def run_to_end(lab: Lab, *names: str, **fields: Any) -> list[str]:
    """Runs that were looked into and have ended."""
    ids = [lab.submit(name, **fields).run.id for name in names]
    lab.deliver()
    return ids


def test_a_run_that_is_submitted_again_under_its_id_is_the_same_run() -> None:
    lab = Lab(agent())
    request = RunRequest(title="look", description="x")
    first = lab.launcher.submit_run(request, TESTER, "one")
    other = RunRequest(title="another", description="y")
    second = lab.launcher.submit_run(other, person("ann"), "one")
    lab.deliver()
    third = lab.launcher.submit_run(request, TESTER, "one")

    assert [s.new for s in (first, second, third)] == [True, False, False]
    assert [s.iteration for s in (first, second, third)] == [1, 0, 0]
    assert (second.run, third.run.status) == (first.run, "completed")
    assert titles(pages(lab, 10)) == ["look"]
    assert lab.store.loop_control.status().iteration == 1


def test_a_run_names_who_submitted_it() -> None:
    lab = Lab(agent())
    run = lab.launcher.submit_run(RunRequest(title="look", description="x"), person("ann")).run

    assert run.requested_by == ["ann"]


def test_a_pending_run_that_is_cancelled_is_never_looked_into() -> None:
    lab = Lab(agent(mode="continuous"))
    run_id = lab.submit("look").run.id
    assert cancel(lab, run_id) is None
    result = lab.run()
    run = now(lab, run_id)

    assert (run.status, run.reason, run.result) == ("cancelled", "changed my mind", None)
    assert run.completed_at is not None
    assert (result.runs, result.observations) == ([], [])


def test_a_finished_or_unknown_run_cannot_be_cancelled() -> None:
    lab = Lab(agent())
    run_id = lab.submit("look").run.id
    lab.deliver()
    before = now(lab, run_id)

    assert cancel(lab, run_id) == "completed"
    assert now(lab, run_id) == before
    assert cancel(lab, "never") == "unknown"
    assert lab.store.runs.get("never") is None


def test_a_run_is_cancelled_once() -> None:
    lab = Lab(agent(mode="continuous"))
    run_id = lab.submit("look").run.id

    assert [cancel(lab, run_id) for _ in range(2)] == [None, "cancelled"]


@pytest.mark.parametrize("phase", ["start", "orient", "act", "complete"])
def test_a_run_cancelled_in_any_phase_stays_cancelled(phase: str) -> None:
    recorder = Recorder()
    lab = acting(recorder)
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == phase)
    assert cancel(lab, run_id) is None
    lab.deliver()
    run = now(lab, run_id)

    assert (run.status, run.reason) == ("cancelled", "changed my mind")
    assert lab.store.loop_control.status().phase == "idle"


def test_cancelling_stops_an_action_that_was_decided_and_not_claimed() -> None:
    recorder = Recorder()
    lab = acting(recorder)
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    cancel(lab, run_id)
    lab.deliver()
    past = lab.store.history.get(1)

    assert recorder.calls == []
    assert past is not None
    assert [r.error for r in past.action_results] == ["Cancelled: its runs were cancelled"]


def test_an_action_that_another_run_wants_too_is_executed() -> None:
    recorder = Recorder()
    lab = acting(recorder)
    first, two = (lab.submit(title).run.id for title in ("one", "two"))
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    cancel(lab, first)
    lab.deliver()

    assert len(recorder.calls) == 1
    assert [now(lab, run_id).status for run_id in (first, two)] == ["cancelled", "completed"]


def test_cancelling_while_the_action_runs_does_not_interrupt_it() -> None:
    lab: Lab
    run_id = ""
    done = []

    def execute() -> str:
        done.append(cancel(lab, run_id))
        return "done"

    lab = Lab(agent(chooses(choice()), Action(name="do", execute=execute)))
    run_id = lab.submit("look").run.id
    lab.deliver()
    past = lab.store.history.get(1)

    assert done == [None]
    assert past is not None
    assert [r.success for r in past.action_results] == [True]
    assert now(lab, run_id).status == "cancelled"


def test_a_later_iteration_acts_again() -> None:
    recorder = Recorder()
    lab = acting(recorder)
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    cancel(lab, run_id)
    lab.deliver()
    lab.run()

    assert len(recorder.calls) == 1


def test_nothing_is_proposed_for_runs_that_were_cancelled() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    cancel(lab, run_id)
    lab.deliver()

    assert pending(lab) == []


def test_the_approval_that_only_the_run_waits_for_is_withdrawn() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    [run_id] = waiting(lab, "look")
    [item] = pending(lab)
    assert cancel(lab, run_id) is None
    approval = lab.store.approvals.get(item.id)

    assert approval is not None
    assert (approval.status, approval.note, approval.acted_by) == (
        "withdrawn",
        "changed my mind",
        "tester",
    )
    assert now(lab, run_id).status == "cancelled"
    assert lab.resolver.answer(item.id, "approved", person("ann")).outcome == "not-pending"


def test_the_approval_goes_with_the_last_of_the_runs_that_wait_for_it() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    first, two = waiting(lab, "one", "two")
    cancel(lab, first)
    assert len(pending(lab)) == 1
    assert now(lab, two).status == "investigating"
    cancel(lab, two)

    assert pending(lab) == []


def test_the_approval_goes_with_its_last_run_although_the_others_are_forgotten() -> None:
    forgetful = agent(
        chooses(choice()), Recorder().action(autonomy=GATED), runs={"max_finished": 1}
    )
    lab = Lab(forgetful)
    first, two, other = waiting(lab, "one", "two", "other")
    lab.client.hset(f"boyd:{{test}}:run:{first}", "createdAt", 1)
    cancel(lab, first)
    lab.client.zadd("boyd:{test}:runs:finished", {first: 1})
    cancel(lab, other)
    assert lab.store.runs.get(first) is None
    cancel(lab, two)

    assert pending(lab) == []


@pytest.mark.parametrize("other", ["iteration", "call"])
@pytest.mark.parametrize("first", [True, False])
def test_an_approval_that_was_asked_for_otherwise_too_stays(other: str, first: bool) -> None:
    lab = acting(Recorder(), autonomy=GATED)

    def ask() -> None:
        if other == "iteration":
            lab.run()
        else:
            request = CallRequest(kind="execute", action="p:do", actor=person("ann"))
            lab.launcher.call(request, None)
            lab.deliver()

    if first:
        ask()
    [run_id] = waiting(lab, "look")
    if not first:
        ask()
    cancel(lab, run_id)

    assert len(pending(lab)) == 1


def test_cancelling_the_run_prevents_an_approved_action() -> None:
    recorder = Recorder()
    lab = acting(recorder, autonomy=GATED)
    [run_id] = waiting(lab, "look")
    [item] = pending(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    cancel(lab, run_id)
    lab.deliver()
    done = lab.store.approvals.get(item.id)

    assert recorder.calls == []
    assert done is not None
    assert done.result is not None
    assert (done.status, done.result.error) == (
        "approved",
        "Cancelled: its runs were cancelled",
    )
    assert now(lab, run_id).status == "cancelled"


def test_an_action_approved_for_another_run_too_is_executed() -> None:
    recorder = Recorder()
    lab = acting(recorder, autonomy=GATED)
    first, two = waiting(lab, "one", "two")
    lab.resolver.answer(pending(lab)[0].id, "approved", person("ann"))
    cancel(lab, first)
    lab.deliver()

    assert len(recorder.calls) == 1
    assert [now(lab, run_id).status for run_id in (first, two)] == ["cancelled", "completed"]


def test_an_item_past_its_deadline_has_expired_and_is_not_withdrawn() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    [run_id] = waiting(lab, "look")
    [item] = pending(lab)
    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})
    cancel(lab, run_id)
    approval = lab.store.approvals.get(item.id)

    assert approval is not None
    assert (approval.status, approval.acted_by) == ("expired", None)


@pytest.mark.parametrize("verdict", ["denied", "withdrawn"])
def test_a_run_fails_with_the_approval_that_it_waits_for(verdict: Verdict) -> None:
    lab = acting(Recorder(), autonomy=GATED)
    [run_id] = waiting(lab, "look")
    lab.resolver.answer(pending(lab)[0].id, verdict, person("ann"), "no")
    run = now(lab, run_id)

    assert (run.status, run.reason) == ("failed", f"the approval was {verdict}")
    assert run.result is not None
    assert run.result.findings == ["a fault"]


def test_findings_are_kept_when_a_denial_precedes_the_end_of_the_iteration() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "complete")
    lab.resolver.answer(pending(lab)[0].id, "denied", person("ann"))
    lab.deliver()
    run = now(lab, run_id)

    assert (run.status, run.reason) == ("failed", "the approval was denied")
    assert run.result is not None
    assert run.result.findings == ["a fault"]


def test_a_run_fails_with_an_approval_that_expires() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    [run_id] = waiting(lab, "look")
    lab.client.zadd("boyd:{test}:approvals:pending", {pending(lab)[0].id: 1})
    expired = lab.store.approvals.expire(lab.engine.retention)
    run = now(lab, run_id)

    assert [item.status for item in expired] == ["expired"]
    assert (run.status, run.reason) == ("failed", "the approval has expired")


def test_an_approval_that_somebody_has_overwritten_keeps_no_other_from_expiring() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    [run_id] = waiting(lab, "look")
    lab.client.set("boyd:{test}:approval:overwritten", "not a hash")
    deadlines = {"overwritten": 1, pending(lab)[0].id: 2}
    lab.client.zadd("boyd:{test}:approvals:pending", deadlines)
    expired = lab.store.approvals.expire(lab.engine.retention)

    assert [item.status for item in expired] == ["expired"]
    assert now(lab, run_id).status == "failed"
    # Where nothing can expire, the sweeper reports the key.
    with pytest.raises(StoreError, match="approval:overwritten"):
        lab.store.approvals.expire(lab.engine.retention)


def test_each_run_gets_only_what_its_own_iteration_found() -> None:
    words = {"now": "the first fault"}
    orienter = Orienter(name="o", orient=lambda: assessed(words["now"]))
    lab = Lab(agent(orienter))
    [first] = run_to_end(lab, "one")
    words["now"] = "the second fault"
    [two] = run_to_end(lab, "two")
    results = [now(lab, run_id).result for run_id in (first, two)]

    assert [r.findings for r in results if r] == [["the first fault"], ["the second fault"]]
    assert [now(lab, run_id).iteration for run_id in (first, two)] == [1, 2]


def test_pages_hold_every_run_once_newest_first() -> None:
    lab = Lab(agent(mode="continuous"))
    for number in range(7):
        lab.submit(f"run {number}")
    ids = lab.client.zrange("boyd:{test}:runs", 0, -1)
    by_id = {run_id: now(lab, run_id).title for run_id in ids}
    for place, run_id in enumerate(ids):
        lab.client.zadd("boyd:{test}:runs", {run_id: place})
    names = titles(pages(lab, 3))

    assert names == [by_id[run_id] for run_id in reversed(ids)]
    assert [len(page.runs) for page in pages(lab, 3)] == [3, 3, 1]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_runs_of_the_same_millisecond_are_listed_once(limit: int) -> None:
    lab = Lab(agent(mode="continuous"))
    for number in range(7):
        lab.submit(f"run {number}")
    for run_id in lab.client.zrange("boyd:{test}:runs", 0, -1):
        lab.client.zadd("boyd:{test}:runs", {run_id: 1})

    assert sorted(titles(pages(lab, limit))) == [f"run {number}" for number in range(7)]


def test_a_run_that_is_forgotten_between_two_pages_hides_no_other() -> None:
    lab = Lab(agent(mode="continuous"))
    for number in range(9):
        lab.submit(f"run {number}")
    for run_id in lab.client.zrange("boyd:{test}:runs", 0, -1):
        lab.client.zadd("boyd:{test}:runs", {run_id: 1})
    first = lab.store.runs.page(3)
    for run in first.runs:
        lab.client.zrem("boyd:{test}:runs", run.id)
        lab.client.delete(f"boyd:{{test}}:run:{run.id}")
    rest = lab.store.runs.page(50, first.next_cursor)

    assert len({run.id for run in [*first.runs, *rest.runs]}) == 9


def test_runs_are_filtered_by_status_priority_and_source() -> None:
    lab = Lab(agent(mode="continuous"))
    for number in range(12):
        priority = ("low", "high")[number % 2]
        lab.submit(f"run {number}", priority=priority, source=("api", "cron")[number % 3 == 0])
    cancel(lab, lab.store.runs.page(1).runs[0].id)

    assert len(titles(pages(lab, 2, priority="high"))) == 6
    assert len(titles(pages(lab, 5, source="cron"))) == 4
    assert sorted(titles(pages(lab, 1, source="cron", priority="low"))) == ["run 0", "run 6"]
    assert len(titles(pages(lab, 4, status="cancelled"))) == 1
    assert len(titles(pages(lab, 4, status="pending"))) == 11
    assert titles(pages(lab, 4, status="failed")) == []


def test_a_page_looks_at_a_bounded_number_of_runs() -> None:
    lab = Lab(agent(mode="continuous"))
    run_id = lab.submit("wanted", source="rare").run.id
    lab.client.zadd("boyd:{test}:runs", {run_id: 1})
    lab.client.zadd("boyd:{test}:runs", {f"gone-{n:04}": 10 + n for n in range(SCANNED + 10)})
    run_pages = list(pages(lab, 5, source="rare"))

    assert [page.total for page in run_pages] == [0, 1]
    assert [run.id for run in run_pages[1].runs] == [run_id]


@pytest.mark.parametrize("cursor", ["x", "W10", "!!!", "bnVsbA", "W1siYSIsTmFOXV0", "e30"])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        Lab(agent()).store.runs.page(5, cursor)


def test_finished_runs_are_pruned_by_count_and_live_ones_never() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    held = waiting(lab, "held")
    small = agent(sees("o", seen()), runs={"max_finished": 3}, mode="manual")
    other = Lab(small, client=lab.client)
    for number in range(10):
        run_to_end(other, f"run {number}")
    last = other.launcher.submit_run(RunRequest(title="last", description="x"), TESTER)

    left = {run.title: run.status for run in other.store.runs.page(50).runs}
    assert left == {
        "held": "investigating",
        "run 7": "completed",
        "run 8": "completed",
        "run 9": "completed",
        "last": "pending",
    }
    assert now(other, held[0]).status == "investigating"
    assert lab.client.ttl(f"boyd:{{test}}:run:{held[0]}") == -1
    assert lab.client.ttl(f"boyd:{{test}}:run:{last.run.id}") == -1


def test_finished_runs_are_pruned_by_age() -> None:
    lab = Lab(agent(runs={"retention": 60.0}))
    [old] = run_to_end(lab, "old")
    assert 0 < lab.client.ttl(f"boyd:{{test}}:run:{old}") <= 60
    lab.client.zadd("boyd:{test}:runs:finished", {old: 1})
    [new] = run_to_end(lab, "new")

    assert [run.id for run in lab.store.runs.page(50).runs] == [new]
    assert lab.client.zrange("boyd:{test}:runs:finished", 0, -1) == [new]


def test_proposing_for_a_run_that_was_forgotten_leaves_no_trace_of_it() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    lab.client.delete(f"boyd:{{test}}:run:{run_id}")
    lab.deliver()

    assert not lab.client.exists(f"boyd:{{test}}:run:{run_id}")


def test_a_cancelled_run_that_was_forgotten_does_not_break_its_iteration() -> None:
    lab = Lab(agent(reads("o", "a fault")))
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "orient")
    [hint] = lab.dispatcher.hints
    assert lab.store.iterations.enter_orient(hint[1], hint[2], "lost/1")
    cancel(lab, run_id)
    lab.client.delete(f"boyd:{{test}}:run:{run_id}")
    lab.dispatcher.hints.clear()
    overdue(lab, "phase")
    past = lab.store.history.get(1)

    assert past is not None
    assert (past.success, past.error) == (True, None)


def test_unknown_fields_of_a_later_release_in_a_run_are_ignored() -> None:
    lab = Lab(agent(reads("o", "a fault")))
    run_id = lab.submit("look").run.id
    lab.deliver()
    before, key = now(lab, run_id), f"boyd:{{test}}:run:{run_id}"
    result = {**json.loads(lab.client.hget(key, "result")), "mood": "good"}
    lab.client.hset(key, mapping={"result": json.dumps(result), "zone": "b"})

    assert before.result is not None
    assert now(lab, run_id) == before
