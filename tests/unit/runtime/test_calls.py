"""Calls of clients go through the same gate and ledger as the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import ActionResult, Agent, Budget, Plugin, Veto
from boyd.errors import RollbackRefused
from boyd.models import (
    Actor,
    ApprovalItem,
    Autonomy,
    Call,
    CallKind,
    CallRequest,
    EndpointReply,
    EndpointRequest,
)
from boyd.plugin import Endpoint, Perform, hook
from boyd.plugins.approval_policy import ApprovalRules
from boyd.testing import Lab
from kit import Recorder, choice, chooses, execution_request, overdue, person, plugin

GATED = Autonomy(mode="approval-required")
ANN = person("ann")


def lab_of(*components: Any, others: tuple[Plugin, ...] = (), **hooks: Any) -> Lab:
    """A lab with one plugin of *components* and *hooks*, and perhaps others."""
    return Lab(Agent("test", plugins=[plugin(*components, **hooks), *others]))


def job(lab: Lab, kind: CallKind = "execute", **fields: Any) -> str:
    """Call for something on Ann's behalf; the call's id."""
    call_id = fields.pop("call_id", None)
    request = CallRequest(**{"kind": kind, "action": "p:do", "actor": ANN, **fields})
    return lab.launcher.call(request, None, call_id)


def call(lab: Lab, kind: CallKind = "execute", **fields: Any) -> Call:
    """Call for something, and let a worker do it."""
    call_id = job(lab, kind, **fields)
    lab.deliver()
    return answer(lab, call_id)


def answer(lab: Lab, call_id: str) -> Call:
    """The call as it is now."""
    record = lab.store.calls.get(call_id)
    assert record is not None
    return record


def error(record: Call) -> str:
    """The error of a call."""
    assert record.result is not None
    assert not record.result.success
    return record.result.error or ""


def state(record: Call) -> str:
    """The state of a call's execution."""
    assert record.execution is not None
    return record.execution.state


def pending(lab: Lab) -> list[ApprovalItem]:
    """The pending items."""
    return lab.store.approvals.page(50).pending


def test_an_action_that_is_called_for_is_executed_and_the_call_has_the_result() -> None:
    recorder = Recorder("freed 3 GB")
    lab = lab_of(recorder.action())
    answered = call(lab, params={"size": 1}, rationale="disk full")

    assert answered.result is not None
    assert (answered.result.success, answered.result.output) == (True, "freed 3 GB")
    assert (state(answered), answered.action, answered.rationale) == (
        "succeeded",
        "p:do",
        "disk full",
    )
    assert answered.actor == ANN
    assert recorder.calls == [{"size": 1}]


def test_a_call_is_in_the_ledger_with_who_asked_for_it() -> None:
    lab = lab_of(Recorder().action())
    answered = call(lab, params={"size": 1})
    entry = lab.store.executions.get(f"call:{answered.id}")

    assert entry is not None
    assert (entry.state, entry.action, entry.by, entry.params) == (
        "succeeded",
        "p:do",
        "ann",
        {"size": 1},
    )


def test_a_hook_of_decide_may_veto_a_call() -> None:
    recorder = Recorder()

    def veto() -> None:
        raise Veto("not on fridays")

    answered = call(lab_of(recorder.action(), on_decide=veto))

    assert error(answered) == "Vetoed by p: not on fridays"
    assert (state(answered), recorder.calls) == ("failed", [])


def test_a_hook_of_decide_sees_what_is_asked_for_and_may_change_it() -> None:
    decisions: list[Any] = []

    def on_decide(decision: Any, situation: Any, action: Any) -> dict[str, Any]:
        decisions.append(
            (decision.action, decision.params, decision.risk, situation.summary, action.id)
        )
        return {"params": {"size": 2}}

    recorder = Recorder()
    call(lab_of(recorder.action(risk="high"), on_decide=on_decide), params={"size": 1})

    assert decisions == [("p:do", {"size": 1}, "high", "No situation yet", "p:do")]
    assert recorder.calls == [{"size": 2}]


def test_a_hook_that_makes_the_decision_invalid_stops_the_call() -> None:
    recorder = Recorder()
    answered = call(lab_of(recorder.action(), on_decide=lambda: {"confidence": 7}))

    assert "confidence" in error(answered)
    assert recorder.calls == []


@pytest.mark.parametrize("name", ["on_decide", "on_before_act"])
def test_a_guard_that_fails_stops_the_call(name: str) -> None:
    class Guard(Plugin):
        id = "guard"

    def check(self: Any) -> None:
        raise OSError("no route")

    kind = type("Guarding", (Guard,), {name: hook(fail_closed=True)(_rename(check, name))})
    recorder = Recorder()
    answered = call(lab_of(recorder.action(), others=(kind(),)))

    assert "OSError: no route" in error(answered)
    assert recorder.calls == []


def _rename(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = name
    return function


def test_a_policy_plugin_may_require_an_approval() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action(risk="critical"), others=(ApprovalRules(),))
    answered = call(lab)
    [item] = pending(lab)

    assert error(answered) == "Approval required"
    assert answered.result is not None
    assert answered.result.waits_for == item.id
    assert (item.requested_by, item.reason) == (["ann"], "approval-policy asked for an approval")
    assert recorder.calls == []


def test_a_call_for_a_gated_action_waits_for_somebody_else() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action(autonomy=GATED))
    answered = call(lab, rationale="disk full")
    [item] = pending(lab)

    assert error(answered) == "Approval required"
    assert (item.requested_by, item.decision.rationale, item.loop_iteration) == (
        ["ann"],
        "disk full",
        0,
    )
    assert lab.resolver.answer(item.id, "approved", ANN).outcome == "requester"
    assert lab.resolver.answer(item.id, "approved", person("bob")).outcome == "approved"
    lab.deliver()
    assert len(recorder.calls) == 1


def test_the_caller_may_ask_for_an_approval() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    call(lab, requires_approval=True)
    [item] = pending(lab)

    assert (item.reason, recorder.calls) == ("ann asked for an approval", [])


def test_on_before_act_may_veto_a_call_and_on_after_act_gets_the_result() -> None:
    after: list[ActionResult] = []
    stops = {"now": True}

    def before(action: Any, params: Any) -> None:
        if stops["now"]:
            raise Veto(f"{action.id} {params}")

    recorder = Recorder()
    lab = lab_of(
        recorder.action(), on_before_act=before, on_after_act=lambda result: after.append(result)
    )
    answered = call(lab, params={"size": 1})
    stops["now"] = False
    call(lab)

    assert error(answered) == "Vetoed by p: p:do {'size': 1}"
    assert (len(recorder.calls), [result.success for result in after]) == (1, [False, True])
    assert after[0].error == "Vetoed by p: p:do {'size': 1}"


def test_params_that_do_not_fit_are_refused() -> None:
    class Params(BaseModel):
        size: int

    recorder = Recorder()
    lab = lab_of(recorder.action(params=Params))

    assert "Invalid params: size" in error(call(lab, params={"size": "big"}))
    assert recorder.calls == []


def test_an_unknown_action_is_a_failed_result() -> None:
    lab = lab_of(Recorder().action())

    assert error(call(lab, action="p:missing")) == "Unknown action 'p:missing'"
    assert error(call(lab, "dry-run", action="p:missing")) == "Unknown action 'p:missing'"


def test_a_freeze_and_a_budget_hold_for_calls_too() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action(budget=Budget(limit=1, window=60)))
    lab.whole.freezes.freeze("incident")
    frozen = call(lab)
    lab.whole.freezes.lift()
    call(lab)
    over = call(lab)

    assert error(frozen) == "Actions are frozen: incident"
    assert error(over) == "Approval required"
    assert len(recorder.calls) == 1


def test_a_dry_run_does_nothing_and_leaves_no_trace_in_the_ledger() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action(dry_run=lambda params: f"would do {params['size']}"))
    answered = call(lab, "dry-run", params={"size": 2})

    assert answered.result is not None
    assert (answered.result.success, answered.result.output) == (True, "would do 2")
    assert recorder.calls == []
    assert list(lab.client.scan_iter("boyd:{test}:execution:*")) == []


def test_a_dry_run_that_is_missing_or_raises_says_so() -> None:
    def broken() -> None:
        raise OSError("no route")

    lab = lab_of(Recorder().action(), Recorder().action("other", dry_run=broken))

    assert error(call(lab, "dry-run")) == "The action has no dry run"
    assert error(call(lab, "dry-run", action="p:other")) == "OSError: no route"


class Undoing:
    """A lab whose action can be rolled back, and what has been undone."""

    def __init__(self, **settings: Any) -> None:
        self.undone: list[Any] = []
        self.recorder = Recorder("freed 3 GB")
        action = self.recorder.action(rollback=self.rollback, **settings)
        self.lab = lab_of(chooses(choice(params={"size": 1})), action)

    def rollback(self, params: Any, result: Any) -> str:
        """Undo."""
        self.undone.append((params, result.output))
        return "undone"

    def back(self, execution: str) -> Call:
        """Have an execution rolled back."""
        return call(self.lab, "rollback", undoes=execution)


def test_an_action_of_the_loop_can_be_rolled_back_once() -> None:
    undoing = Undoing()
    undoing.lab.run()
    undoing.back("loop:1")
    for _ in range(2):
        with pytest.raises(RollbackRefused, match="has been rolled back already"):
            undoing.back("loop:1")

    assert undoing.undone == [({"size": 1}, "freed 3 GB")]


def test_an_action_of_a_call_can_be_rolled_back_once() -> None:
    undoing = Undoing()
    done = call(undoing.lab, params={"size": 2})
    undoing.back(f"call:{done.id}")
    with pytest.raises(RollbackRefused):
        undoing.back(f"call:{done.id}")

    assert undoing.undone == [({"size": 2}, "freed 3 GB")]


def test_a_roll_back_cannot_be_rolled_back() -> None:
    """Or rolling back the roll-back would run the same rollback a second time."""
    undoing = Undoing()
    undoing.lab.run()
    undoing.back("loop:1")

    with pytest.raises(RollbackRefused, match="a rollback cannot be rolled back"):
        undoing.back("rollback:loop:1")
    assert len(undoing.undone) == 1


def test_while_a_roll_back_is_queued_another_one_is_refused() -> None:
    undoing = Undoing()
    undoing.lab.run()
    first = job(undoing.lab, "rollback", undoes="loop:1")

    with pytest.raises(RollbackRefused, match=f"is being rolled back already, by call:{first[:8]}"):
        job(undoing.lab, "rollback", undoes="loop:1")
    undoing.lab.deliver()
    assert len(undoing.undone) == 1


def test_a_roll_back_that_failed_is_not_repeated() -> None:
    lab = lab_of(chooses(choice()), Recorder().action(rollback=lambda result: 1 / 0))
    lab.run()
    call(lab, "rollback", undoes="loop:1")

    with pytest.raises(RollbackRefused, match="has been rolled back before, which failed"):
        call(lab, "rollback", undoes="loop:1")


def test_an_unknown_or_failed_execution_cannot_be_rolled_back() -> None:
    undoing = Undoing()
    undoing.recorder._error = OSError("no route")
    undoing.lab.run()

    with pytest.raises(RollbackRefused, match="loop:9 was never executed"):
        undoing.back("loop:9")
    with pytest.raises(RollbackRefused, match="is failed; only a successful execution"):
        undoing.back("loop:1")
    assert undoing.undone == []


def test_an_action_without_a_rollback_says_so() -> None:
    lab = lab_of(chooses(choice()), Recorder().action())
    lab.run()

    assert error(call(lab, "rollback", undoes="loop:1")) == "The action has no rollback"


def test_a_hook_cannot_turn_a_roll_back_on_another_action() -> None:
    undone: list[Any] = []
    other = Recorder().action("other", rollback=lambda result: undone.append(result))
    action = Recorder().action(rollback=lambda result: undone.append(result))
    lab = lab_of(action, other, on_decide=lambda: {"action": "p:other"})
    entry = lab.store.executions
    entry.claim(execution_request("loop:1"), "t")
    entry.finish("loop:1", "t", ActionResult(action="p:do", success=True, duration=1))

    assert "loop:1 executed p:do, not this action" in error(call(lab, "rollback", undoes="loop:1"))
    assert undone == []


def test_a_gated_roll_back_goes_through_an_approval_and_happens_once() -> None:
    undoing = Undoing(autonomy=GATED)
    lab = undoing.lab
    lab.run()
    [request_item] = pending(lab)
    lab.resolver.answer(request_item.id, "approved", person("bob"))
    lab.deliver()
    execution = f"approval:{request_item.id}"
    first = undoing.back(execution)
    [item] = pending(lab)
    with pytest.raises(RollbackRefused, match=f"waits for approval {item.id[:8]} already"):
        undoing.back(execution)

    assert error(first) == "Approval required"
    assert (item.undoes, item.seen, item.requested_by) == (execution, 1, ["ann"])
    assert lab.resolver.answer(item.id, "approved", ANN).outcome == "requester"
    lab.resolver.answer(item.id, "approved", person("bob"))
    lab.deliver()
    assert undoing.undone == [({"size": 1}, "freed 3 GB")]
    done = lab.store.approvals.get(item.id)
    assert done is not None
    assert done.result is not None
    assert done.result.output == "undone"


def test_a_roll_back_that_was_denied_can_be_asked_for_again() -> None:
    undoing = Undoing()
    lab = undoing.lab
    lab.run()
    for _ in range(2):
        call(lab, "rollback", undoes="loop:1", requires_approval=True)
        [item] = pending(lab)
        lab.resolver.answer(item.id, "denied", person("bob"))
    undoing.back("loop:1")

    assert len(lab.store.approvals.page(50).history) == 2
    assert len(undoing.undone) == 1


def test_a_roll_back_is_another_item_than_the_action_itself() -> None:
    undoing = Undoing(autonomy=GATED)
    lab = undoing.lab
    lab.run()
    lab.resolver.answer(pending(lab)[0].id, "approved", person("bob"))
    lab.deliver()
    undoing.back(f"approval:{lab.store.approvals.page(5).history[0].id}")
    lab.run()

    assert len(pending(lab)) == 2


def endpoint(handle: Callable[..., Any], method: str = "GET", **settings: Any) -> Endpoint:
    """An endpoint of the plugin `p`."""
    return Endpoint(name="web", handle=handle, method=method, path="/things/{id}", **settings)


def ask(lab: Lab, method: str = "GET", who: Actor = ANN, **fields: Any) -> EndpointReply:
    """Ask the endpoint; its reply."""
    return reply_of(lab, request(lab, method, who, **fields))


def request(lab: Lab, method: str = "GET", who: Actor = ANN, **fields: Any) -> str:
    """Ask the endpoint; the call's id."""
    endpoint_request = EndpointRequest(method=method, actor=who, **fields)
    return job(lab, "endpoint", action="p:web", endpoint=endpoint_request, actor=who)


def reply_of(lab: Lab, call_id: str) -> EndpointReply:
    """Let a worker answer; its reply."""
    lab.deliver()
    reply = answer(lab, call_id).reply
    assert reply is not None
    return reply


def test_an_endpoint_is_given_the_request_and_its_answer_comes_back() -> None:
    def handle(request: EndpointRequest, ctx: Any) -> Any:
        return {"id": request.path["id"], "who": request.actor.principal, "plugin": ctx.plugin_id}

    reply = ask(lab_of(endpoint(handle)), path={"id": "7"}, query={"a": "b"})

    assert (reply.status, reply.body) == (200, {"id": "7", "who": "ann", "plugin": "p"})


@pytest.mark.parametrize("body", [None, [1, 2], "text", 3, {"deep": [{"x": None}]}])
def test_an_endpoint_may_answer_with_whatever_json_can_hold(body: Any) -> None:
    assert ask(lab_of(endpoint(lambda: body))) == EndpointReply(body=body)


def test_an_endpoint_may_choose_its_status() -> None:
    reply = EndpointReply(status=418, body={"short": "stout"})

    assert ask(lab_of(endpoint(lambda: reply))) == reply


def raw_reply(**fields: Any) -> EndpointReply:
    """A reply that nobody has validated."""
    return EndpointReply.model_construct(**fields)


class Thing:
    """Nothing that JSON knows; the names of tests do not depend on where it is in memory."""

    def __repr__(self) -> str:
        return "Thing()"


def recursive() -> Any:
    """A value that contains itself."""
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "garbage",
    [
        *(Thing(), {1, 2}, b"bytes", {"a": Thing()}, {1: "x"}, float("nan"), {"a": float("inf")}),
        *(recursive(), "\ud800", raw_reply(status=7, body=Thing())),
        raw_reply(status="x", body="\ud800"),
    ],
    ids=repr,
)
def test_an_endpoint_that_answers_with_garbage_is_a_502(garbage: Any) -> None:
    reply = ask(lab_of(endpoint(lambda: garbage)))

    assert (reply.status, reply.body) == (
        502,
        {"error": "endpoint p:web returned a value that is not JSON"},
    )


@pytest.mark.parametrize("kind", [OSError, SystemExit, KeyError])
def test_an_endpoint_that_raises_is_a_502_that_keeps_what_was_raised_to_the_log(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def handle() -> None:
        raise kind("no route")

    reply = ask(lab_of(endpoint(handle)))

    assert reply.status == 502
    assert isinstance(reply.body, dict)
    assert reply.failed == "endpoint p:web failed; see the log of the worker"
    assert "no route" not in reply.to_json()
    assert f"{kind.__name__}: " in caplog.text


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Something to wait for that comes only after the test."""
    event = threading.Event()
    yield event
    event.set()


def test_an_endpoint_that_hangs_is_a_502_after_its_timeout(hanging: threading.Event) -> None:
    reply = ask(lab_of(endpoint(lambda: hanging.wait(20), timeout=0.1)))

    assert reply.status == 502
    assert reply.body == {"error": "endpoint p:web failed: took longer than 0.1 s"}


def test_an_endpoint_that_is_gone_is_a_404() -> None:
    assert ask(lab_of(Recorder().action())).status == 404


def test_an_endpoint_may_have_an_action_taken_on_behalf_of_who_asked() -> None:
    recorder = Recorder("freed 3 GB")
    handle = lambda request: Perform("p:do", {"size": request.body["size"]}, "by web")  # noqa: E731
    lab = lab_of(endpoint(handle, "POST"), recorder.action())
    call_id = request(lab, "POST", body={"size": 3})
    reply = reply_of(lab, call_id)
    entry = lab.store.executions.get(f"call:{call_id}")

    assert reply.status == 200
    assert isinstance(reply.body, dict)
    assert reply.body["success"] is True
    assert recorder.calls == [{"size": 3}]
    assert entry is not None
    assert (entry.by, entry.action) == ("ann", "p:do")


def test_an_action_that_an_endpoint_asks_for_is_gated_like_any_other() -> None:
    recorder = Recorder()
    lab = lab_of(endpoint(lambda: Perform("p:do"), "POST"), recorder.action(autonomy=GATED))
    reply = ask(lab, "POST")
    [item] = pending(lab)

    assert isinstance(reply.body, dict)
    assert str(reply.body.pop("executionId")).startswith("call:")
    assert (reply.status, reply.body) == (
        202,
        {"success": False, "queued": True, "approvalId": item.id},
    )
    assert (item.requested_by, recorder.calls) == (["ann"], [])


def test_an_endpoint_for_readers_cannot_perform_an_action() -> None:
    recorder = Recorder()
    reply = ask(lab_of(endpoint(lambda: Perform("p:do")), recorder.action()))

    assert (reply.status, recorder.calls) == (502, [])


@pytest.mark.parametrize(
    "expected",
    [
        Perform("p:do", {"a": Thing()}),
        Perform("p:do", None),  # type: ignore[arg-type]
        Perform("p:do", [1]),  # type: ignore[arg-type]
        Perform(None),  # type: ignore[arg-type]
        Perform("p:do", rationale=7),  # type: ignore[arg-type]
        Perform("p:do", {"a": float("nan")}),
    ],
    ids=repr,
)
def test_an_endpoint_that_asks_for_nonsense_is_a_502(expected: Perform) -> None:
    recorder = Recorder()
    reply = ask(lab_of(endpoint(lambda: expected, "POST"), recorder.action()), "POST")

    assert (reply.status, recorder.calls) == (502, [])


def test_an_endpoint_that_asks_for_an_unknown_action_says_so() -> None:
    reply = ask(lab_of(endpoint(lambda: Perform("p:missing"), "POST")), "POST")

    assert isinstance(reply.body, dict)
    assert reply.body["success"] is False


def lose(lab: Lab, call_id: str, worker: str = "lost/1") -> None:
    """A worker takes the call and is never heard of again."""
    lab.dispatcher.hints.clear()
    assert lab.store.jobs.enter(f"call:{call_id}", 1, worker)


def test_a_worker_lost_before_it_claimed_costs_only_time() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    call_id = job(lab)
    lose(lab, call_id)
    overdue(lab, f"call:{call_id}")

    assert (state(answer(lab, call_id)), len(recorder.calls)) == ("succeeded", 1)


def test_a_worker_lost_while_executing_leaves_the_outcome_unknown() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    call_id = job(lab)
    lose(lab, call_id)
    lab.store.executions.claim(execution_request(f"call:{call_id}"), "t")
    lab.client.hset(f"boyd:{{test}}:execution:call:{call_id}", "leaseUntil", 1)
    overdue(lab, f"call:{call_id}")
    answered = answer(lab, call_id)

    assert (state(answered), recorder.calls) == ("unknown", [])
    assert "Outcome unknown" in error(answered)


def test_an_idempotent_action_that_a_freeze_keeps_from_running_again_is_unknown() -> None:
    """It was started: that it is frozen now does not make it one that never ran."""
    recorder = Recorder()
    lab = lab_of(recorder.action(idempotent=True))
    call_id = job(lab)
    lose(lab, call_id)
    lab.store.executions.claim(execution_request(f"call:{call_id}", idempotent=True), "t")
    lab.client.hset(f"boyd:{{test}}:execution:call:{call_id}", "leaseUntil", 1)
    lab.whole.freezes.freeze("incident")
    overdue(lab, f"call:{call_id}")

    assert (state(answer(lab, call_id)), recorder.calls) == ("unknown", [])


def test_a_worker_lost_after_it_executed_is_not_repeated() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    call_id = job(lab)
    lose(lab, call_id)
    ledger = lab.store.executions
    ledger.claim(execution_request(f"call:{call_id}"), "t")
    done = ActionResult(action="p:do", success=True, output="freed", duration=1)
    ledger.finish(f"call:{call_id}", "t", done)
    overdue(lab, f"call:{call_id}")

    assert answer(lab, call_id).result == done
    assert recorder.calls == []


def test_a_worker_lost_after_it_proposed_finds_its_proposal_again() -> None:
    lab = lab_of(Recorder().action(autonomy=GATED))
    call_id = job(lab)
    lab.deliver()
    [item] = pending(lab)
    lab.resolver.answer(item.id, "denied", person("bob"))
    key = f"boyd:{{test}}:call:{call_id}"
    lab.client.hset(key, mapping={"executionState": "queued", "executionAttempt": 2})
    lab.dispatcher.hints.append(("job", f"call:{call_id}", 2))
    lab.deliver()

    assert pending(lab) == []
    result = answer(lab, call_id).result
    assert result is not None
    assert result.waits_for == item.id


@pytest.mark.parametrize(("method", "status", "times_asked"), [("GET", 200, 1), ("POST", 503, 0)])
def test_a_request_whose_worker_was_lost_is_asked_again_if_that_is_safe(
    method: str, status: int, times_asked: int
) -> None:
    times: list[int] = []
    lab = lab_of(endpoint(lambda: times.append(1), method))
    call_id = request(lab, method)
    lose(lab, call_id)
    overdue(lab, f"call:{call_id}")

    assert (reply_of(lab, call_id).status, len(times)) == (status, times_asked)


def test_the_same_id_is_the_same_call() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    first = call(lab, call_id="one", params={"size": 1})
    second = call(lab, call_id="one", params={"size": 2})

    assert first == second
    assert recorder.calls == [{"size": 1}]


def test_a_message_that_comes_twice_executes_once() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    job(lab)
    lab.dispatcher.hints.extend(list(lab.dispatcher.hints) * 3)
    lab.deliver()

    assert len(recorder.calls) == 1


def test_a_call_whose_message_was_lost_is_sent_again() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    call_id = job(lab)
    lab.dispatcher.hints.clear()
    overdue(lab, f"call:{call_id}")

    assert (state(answer(lab, call_id)), len(recorder.calls)) == ("succeeded", 1)


def test_a_call_that_no_worker_takes_is_given_up() -> None:
    recorder = Recorder()
    lab = lab_of(recorder.action())
    call_id = job(lab)
    lab.dispatcher.hints.clear()
    lab.client.hset(f"boyd:{{test}}:call:{call_id}", "queuedAt", 1)
    overdue(lab, f"call:{call_id}")
    answered = answer(lab, call_id)

    assert error(answered) == "Not executed: no worker took it from queue 'act'"
    lab.dispatcher.hints.append(("job", f"call:{call_id}", 1))
    lab.deliver()
    assert recorder.calls == []
    assert lab.client.zcard("boyd:{test}:due") == 0


def test_a_call_that_loses_every_worker_ends() -> None:
    lab = lab_of(Recorder().action())
    call_id = job(lab)
    lab.dispatcher.hints.clear()
    for attempt in (1, 2, 3):
        assert lab.store.jobs.enter(f"call:{call_id}", attempt, f"lost/{attempt}")
        lab.client.zadd("boyd:{test}:due", {f"call:{call_id}": 1})
        lab.sweeper.sweep()
        lab.dispatcher.hints.clear()

    assert "its workers were lost before it started, the last one was lost" in error(
        answer(lab, call_id)
    )


def test_a_call_is_kept_for_a_day() -> None:
    lab = lab_of(Recorder().action())
    call_id = job(lab)
    key = f"boyd:{{test}}:call:{call_id}"
    assert 0 < lab.client.ttl(key) <= 86400
    lab.deliver()

    assert 0 < lab.client.ttl(key) <= 86400


def test_calls_that_execute_are_audited_with_their_caller() -> None:
    lab = lab_of(Recorder().action(dry_run=lambda: "x"), endpoint(lambda: None))
    call(lab)
    call(lab, "dry-run")
    ask(lab)
    entries = lab.client.xrange("boyd:{test}:audit:open")

    assert [(e["kind"], e["who"]) for _, e in entries] == [
        ("call.execute", "ann"),
        ("action.started", "ann"),
        ("action.succeeded", "ann"),
    ]


def test_a_message_that_comes_twice_has_an_endpoint_asked_once() -> None:
    """An endpoint has no ledger entry: its job is taken once."""
    methods: list[str] = []
    lab = lab_of(endpoint(lambda request: methods.append(request.method), "POST"))
    call_id = request(lab, "POST")
    lab.dispatcher.hints.extend(list(lab.dispatcher.hints) * 3)
    reply_of(lab, call_id)

    assert methods == ["POST"]
