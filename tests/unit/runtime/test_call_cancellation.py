"""A call that has not started can be cancelled; then it never starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import Agent, naming
from boyd.models import Autonomy, Call, CallRequest, EndpointRequest
from boyd.plugin import Action, Endpoint
from boyd.store.calls import CallCancellation
from boyd.testing import Lab
from kit import person, plugin

ANN, JANE = person("ann"), person("jane")
ASKS = Autonomy(mode="approval-required")
CANCELLED = CallCancellation("cancelled")


class Where(BaseModel):
    """The params of the action of these tests."""

    host: str = "web1"


class Bench:
    """A lab with an action and an endpoint, and moments at which a test can do something else."""

    def __init__(self, **settings: Any) -> None:
        self.done: list[str] = []
        self.before: Callable[[], object] = lambda: None
        self.meanwhile: Callable[[], object] = lambda: None
        action = Action(name="do", params=Where, target="host", execute=self._execute, **settings)
        endpoint = Endpoint(name="web", handle=self._answer, method="POST", path="/web")
        own = plugin(action, endpoint, on_before_act=lambda: self._once("before"))
        self.lab = Lab(Agent("test", plugins=[own]))

    def _execute(self, params: Where) -> None:
        self._once("meanwhile")
        self.done.append(params.host)

    def _answer(self) -> None:
        self._once("meanwhile")
        self.done.append("answer")

    def _once(self, moment: str) -> None:
        """Call the function for a *moment*, the first time only."""
        function = getattr(self, moment)
        setattr(self, moment, lambda: None)
        function()

    def order(self, **fields: Any) -> str:
        """Order something of a worker, without delivering it; the id of the call."""
        request = CallRequest(**{"kind": "execute", "action": "p:do", "actor": ANN, **fields})
        return self.lab.launcher.call(request, None)

    def call(self, id: str) -> Call:
        """The call as it is now."""
        record = self.lab.store.calls.get(id)
        assert record is not None
        return record

    def state(self, id: str) -> str:
        """The state of a call."""
        execution = self.call(id).execution
        assert execution is not None
        return execution.state

    def cancel(self, id: str, note: str = "") -> CallCancellation:
        """Cancel a call on Jane's behalf."""
        approval = self.lab.store.approvals.id_for(naming.call(id))
        return self.lab.store.calls.cancel(self.call(id), approval, JANE, note)

    def go_on(self) -> None:
        """Deliver the messages, and recover what is overdue."""
        self.lab.deliver()
        self.lab.sweeper.sweep()
        self.lab.deliver()


def test_a_queued_call_that_is_cancelled_never_starts() -> None:
    bench = Bench()
    id = bench.order()
    assert bench.cancel(id, "wrong host") == CANCELLED
    bench.go_on()

    assert bench.done == []
    assert bench.state(id) == "failed"
    result = bench.call(id).result
    assert result is not None
    assert result.prevented == "cancelled"
    assert result.error == "Not executed: cancelled by jane: wrong host"
    bench.lab.store.audit_trail.seal()
    [entry] = [
        e for e in bench.lab.store.audit_trail.page(50).entries if e.kind == "call.cancelled"
    ]
    assert (entry.who, entry.note) == ("jane", "wrong host")


def test_a_call_that_is_cancelled_again_keeps_its_first_reason() -> None:
    bench = Bench()
    id = bench.order()
    assert [bench.cancel(id, "first"), bench.cancel(id, "second")] == [CANCELLED, CANCELLED]

    result = bench.call(id).result
    assert result is not None
    assert result.error == "Not executed: cancelled by jane: first"


def test_a_call_that_has_started_or_ended_goes_on_to_its_end() -> None:
    bench = Bench()
    id = bench.order()
    replies: list[CallCancellation] = []
    bench.meanwhile = lambda: replies.append(bench.cancel(id))
    bench.lab.deliver()

    assert replies == [CallCancellation("started")]
    assert bench.done == ["web1"]
    assert bench.cancel(id) == CallCancellation("over", "succeeded")


def test_a_call_that_a_worker_has_not_claimed_yet_is_cancelled() -> None:
    bench = Bench()
    id = bench.order()
    replies: list[CallCancellation] = []
    bench.before = lambda: replies.append(bench.cancel(id))
    with pytest.raises(Exception, match="belongs to another worker now"):
        bench.lab.deliver()
    bench.go_on()

    assert replies == [CANCELLED]
    assert bench.done == []
    assert bench.state(id) == "failed"


def test_a_cancelled_call_asks_nobody_for_an_approval() -> None:
    between: list[Callable[[], object]] = []
    bench = Bench(autonomy=ASKS, dry_run=lambda: between.pop()())
    id = bench.order()
    between.append(lambda: bench.cancel(id))
    bench.go_on()
    assert between == []

    assert bench.state(id) == "failed"
    assert bench.lab.store.approvals.page(5).pending == []


def test_a_call_that_waits_for_an_approval_names_it() -> None:
    bench = Bench(autonomy=ASKS)
    id = bench.order()
    bench.lab.deliver()

    [item] = bench.lab.store.approvals.page(5).pending
    assert bench.cancel(id) == CallCancellation("waits", item.id)
    second = bench.order()
    bench.lab.deliver()
    assert bench.cancel(second) == CallCancellation("waits", item.id)


def test_a_call_behind_a_cancelled_one_runs_next() -> None:
    bench = Bench()
    ids: list[str] = []

    def order_two() -> None:
        ids.extend([bench.order(), bench.order(params={"host": "web1"})])
        bench.lab.deliver()
        assert [bench.state(id) for id in ids] == ["queued", "queued"]
        assert bench.cancel(ids[0]) == CANCELLED
        [ahead] = bench.lab.store.in_flight.ahead_of(naming.call(ids[1]))
        assert ahead.execution == naming.call(first)

    bench.meanwhile = order_two
    first = bench.order()
    bench.lab.deliver()
    assert bench.done == ["web1", "web1"]
    assert [bench.state(id) for id in ids] == ["failed", "succeeded"]


def test_a_cancelled_rollback_can_be_requested_again() -> None:
    undone: list[bool] = []
    bench = Bench(rollback=lambda: undone.append(True))
    first = bench.order()
    bench.lab.deliver()
    undoes = naming.call(first)
    assert bench.cancel(bench.order(kind="rollback", undoes=undoes)) == CANCELLED
    bench.go_on()
    assert undone == []

    bench.order(kind="rollback", undoes=undoes)
    bench.lab.deliver()
    assert undone == [True]


def test_a_call_whose_worker_was_lost_after_its_claim_has_started() -> None:
    bench = Bench()
    id = bench.order()
    bench.meanwhile = lambda: bench.lab.client.hset(
        f"boyd:{{test}}:call:{id}", mapping={"executionState": "queued", "executionAttempt": 2}
    )
    bench.lab.deliver()

    assert bench.cancel(id) == CallCancellation("started")


def test_a_call_of_an_endpoint_has_started_once_a_worker_has_it() -> None:
    bench = Bench()
    request = EndpointRequest(method="POST", path={}, query={}, body=None, actor=ANN)
    fields = {"kind": "endpoint", "action": "p:web", "endpoint": request}
    replies: list[CallCancellation] = []
    first, second = bench.order(**fields), bench.order(**fields)
    assert bench.cancel(first) == CANCELLED
    bench.meanwhile = lambda: replies.append(bench.cancel(second))
    bench.lab.deliver()

    assert replies == [CallCancellation("started")]
    assert bench.done == ["answer"]


def test_a_call_that_was_lost_with_its_data_is_unknown() -> None:
    bench = Bench()
    id = bench.order()
    call = bench.call(id)
    bench.lab.client.delete(f"boyd:{{test}}:call:{id}")

    assert bench.lab.store.calls.cancel(call, "none", JANE).outcome == "unknown"
