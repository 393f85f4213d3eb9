"""The approval queue as a library: the functions of the seed's approval page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boyd import ActionResult, Decision
from boyd.models import Proposal
from boyd.runtime.approvals import (
    ApprovalSigner,
    enqueue_approval,
    get_approval_queue,
    purge_expired_approvals,
    resolve_approval,
)
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, overdue, person


def proposal(**params: Any) -> Proposal:
    """A proposal of the action `p:do`."""
    decision = Decision(action="p:do", params=params, rationale="because", confidence=0.9)
    return Proposal(decision=decision, action_id="p:do", params=params, loop_iteration=1)


def lab(recorder: Recorder | None = None, **settings: Any) -> Lab:
    """An agent that can do one thing and does it when asked."""
    action = (recorder or Recorder()).action()
    return Lab(agent(chooses(choice("no-op")), action, **settings))


def test_a_queue_that_nobody_used_is_empty() -> None:
    queue = get_approval_queue(lab().store)

    assert (queue.pending, queue.history) == ([], [])


def test_an_equal_proposal_joins_the_pending_item() -> None:
    store = lab().store
    first = enqueue_approval(store, proposal(size=1), ttl=60)
    again = enqueue_approval(store, proposal(size=1), ttl=60)
    other = enqueue_approval(store, proposal(size=2), ttl=None)

    assert first.id == again.id
    assert again.seen == 2
    assert first.expires_at is not None
    assert other.expires_at is None
    assert [item.id for item in get_approval_queue(store).pending] == [first.id, other.id]


def test_the_usual_time_to_live_is_that_of_the_agent() -> None:
    here = lab(approvals={"ttl": 7})
    item = enqueue_approval(here.store, proposal())

    assert item.expires_at is not None
    assert (item.expires_at - item.created_at).total_seconds() == 7


def test_a_signed_approval_of_a_program_is_executed_where_signatures_are_needed() -> None:
    recorder = Recorder()
    here = lab(recorder)
    signer = ApprovalSigner("a secret of at least 32 characters")
    here.engine.settings = replace(here.engine.settings, signer=signer)
    unsigned = enqueue_approval(here.store, proposal(size=1), ttl=60)
    signed = enqueue_approval(here.store, proposal(size=2), ttl=60)
    for item, key in ((unsigned, None), (signed, signer)):
        resolve_approval(here.store, item.id, "approved", signer=key)
        overdue(here, f"approval:{item.id}")

    items = [here.store.approvals.get(item.id) for item in (unsigned, signed)]
    results = [item.result for item in items if item is not None and item.result is not None]
    assert [result.success for result in results] == [False, True]


def test_an_action_approved_through_the_library_is_executed_by_a_worker() -> None:
    recorder = Recorder()
    here = lab(recorder)
    item = enqueue_approval(here.store, proposal(size=3))
    resolved = resolve_approval(here.store, item.id, "approved", note="go", acted_by=person("ann"))
    here.client.zadd("boyd:{test}:due", {f"approval:{item.id}": 1})
    here.sweeper.sweep()
    here.deliver()

    assert resolved is not None
    assert (resolved.status, resolved.note, resolved.acted_by) == ("approved", "go", "ann")
    assert recorder.calls == [{"size": 3}]


def test_an_approval_resolved_with_a_result_is_not_executed() -> None:
    recorder = Recorder()
    here = lab(recorder)
    item = enqueue_approval(here.store, proposal())
    result = ActionResult(action="p:do", success=True, duration=1, output="by hand")
    resolved = resolve_approval(here.store, item.id, "approved", result=result)
    here.sweeper.sweep()
    here.deliver()

    assert resolved is not None
    assert resolved.result == result
    assert resolved.execution is not None
    assert resolved.execution.state == "succeeded"
    assert recorder.calls == []
    assert here.client.zcard("boyd:{test}:due") == 0


def test_an_item_that_is_not_pending_cannot_be_resolved() -> None:
    store = lab().store
    item = enqueue_approval(store, proposal())

    assert resolve_approval(store, item.id, "denied") is not None
    assert resolve_approval(store, item.id, "approved") is None
    assert resolve_approval(store, "unknown", "denied") is None


def test_purging_tells_what_expired() -> None:
    here = lab()
    item = enqueue_approval(here.store, proposal(), ttl=60)
    here.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})
    expired = purge_expired_approvals(here.store)

    assert [(purged.id, purged.status) for purged in expired] == [(item.id, "expired")]
    assert purge_expired_approvals(here.store) == []
    assert get_approval_queue(here.store).pending == []
