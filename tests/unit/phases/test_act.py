"""The act phase: executing decisions, gating them, and recording what came of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from boyd import ActionResult, Agent, Budget, Context, LoopResult, PluginError, Veto
from boyd.models import Autonomy
from boyd.phases import act, action_call
from boyd.phases.act_request import ActRequest
from boyd.phases.phase_context import PhaseContext
from boyd.plugin import Action
from boyd.store import Stale, StillRunning, reason_text
from boyd.store.keys import AGENTS, FREEZES, REGISTERED
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, execution_request, person, plugin


class Params(BaseModel):
    """Parameters of a test's action."""

    model_config = ConfigDict(extra="forbid")
    size: int = 1


def result_of(result: LoopResult) -> ActionResult:
    """The only action result of an iteration."""
    assert len(result.action_results) == 1
    return result.action_results[0]


def lab_for(action: Action, **decision: Any) -> Lab:
    """A lab whose agent always decides for *action*."""
    return Lab(agent(chooses(choice(**decision)), action))


def test_a_no_op_runs_no_hooks_and_gives_no_results() -> None:
    called: list[str] = []
    hooks = plugin(
        chooses(choice("no-op")),
        on_before_act=lambda: called.append("before"),
        on_after_act=lambda: called.append("after"),
    )
    result = Lab(Agent("test", plugins=[hooks])).run()

    assert (result.action_results, called) == ([], [])


def test_an_unknown_action_is_a_failed_result_and_the_iteration_succeeds() -> None:
    result = Lab(agent(chooses(choice("p:missing")))).run()

    assert result_of(result).error == "Unknown action 'p:missing'"
    assert result.success


@pytest.mark.parametrize(
    ("autonomy", "decision", "waits"),
    [
        (Autonomy(), {}, False),
        (Autonomy(), {"requires_approval": True}, True),
        (Autonomy(mode="approval-required"), {}, True),
        (Autonomy(mode="human-only"), {}, True),
        (Autonomy(min_confidence=0.8), {"confidence": 0.8}, False),
        (Autonomy(min_confidence=0.8), {"confidence": 0.79}, True),
        (Autonomy(), {"risk": "critical"}, False),
    ],
)
def test_the_gate(autonomy: Autonomy, decision: Any, waits: bool) -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action(autonomy=autonomy, risk="critical"), **decision)
    result = result_of(lab.run())

    assert waits == (result.error == "Approval required")
    assert waits == (recorder.calls == [])


def test_a_gated_action_is_queued_with_all_that_a_person_needs() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action(autonomy=Autonomy(mode="human-only")), params={"size": 3})
    result = result_of(lab.run())
    item = lab.store.approvals.page(50).pending[0]

    assert (False, 0, item.id) == (result.success, result.duration, result.waits_for)
    assert (
        item.action_id,
        item.params,
        item.status,
        item.loop_iteration,
    ) == ("p:do", {"size": 3}, "pending", 1)
    assert item.decision.rationale == "test"
    assert item.expires_at is not None
    assert (item.expires_at - item.created_at).total_seconds() == 3600


def test_the_same_proposal_finds_the_pending_item_and_counts() -> None:
    lab = lab_for(Recorder().action(autonomy=Autonomy(mode="human-only")))
    for _ in range(5):
        lab.run()
    pending = lab.store.approvals.page(50).pending

    assert [item.seen for item in pending] == [5]


def test_hooks_params_and_execution_come_in_order() -> None:
    order: list[Any] = []

    def execute(params: Params) -> str:
        order.append(("execute", params))
        return "done"

    own = plugin(
        chooses(choice(params={"size": 7})),
        Action(name="do", execute=execute),
        on_before_act=lambda action, params: order.append(("before", action.id, dict(params))),
        on_after_act=lambda result: order.append(("after", result.success, result.output)),
    )
    Lab(Agent("test", plugins=[own])).run()

    assert [
        ("before", "p:do", {"size": 7}),
        ("execute", Params(size=7)),
        ("after", True, "done"),
    ] == order


@pytest.mark.parametrize("params", [{"size": "x"}, {"colour": "red"}])
def test_invalid_params_are_not_executed(params: Any) -> None:
    recorder = Recorder()
    result = result_of(lab_for(recorder.action(params=Params), params=params).run())

    assert recorder.calls == []
    assert (result.error or "").startswith(f"Invalid params: {next(iter(params))}")


def test_after_act_runs_also_when_the_action_raised() -> None:
    after: list[ActionResult] = []
    recorder = Recorder(error=RuntimeError("broken"))
    own = plugin(
        chooses(choice()), recorder.action(), on_after_act=lambda result: after.append(result)
    )
    Lab(Agent("test", plugins=[own])).run()

    assert [result.error for result in after] == ["RuntimeError: broken"]


def test_on_after_act_gets_the_error_of_invalid_params() -> None:
    after: list[ActionResult] = []
    own = plugin(
        chooses(choice(params={"size": "x"})),
        Recorder().action(params=Params),
        on_after_act=lambda result: after.append(result),
    )
    result = result_of(Lab(Agent("test", plugins=[own])).run())

    assert after == [result]
    assert (result.error or "").startswith("Invalid params: size")


def test_after_act_hears_that_acting_is_frozen_and_not_of_what_waits() -> None:
    after: list[str | None] = []
    own = plugin(
        chooses(choice()),
        Recorder().action(),
        on_after_act=lambda result: after.append(result.error),
    )
    lab = Lab(Agent("test", plugins=[own], budgets={"p:do": {"limit": 1, "window": 60}}))
    lab.whole.freezes.freeze(reason_text("ann", "incident"))
    lab.run()
    lab.whole.freezes.lift()
    lab.run()
    waits = result_of(lab.run())

    assert waits.waits_for
    assert after == ["Actions are frozen: incident (by ann)", None]


def test_an_action_may_say_itself_how_it_went() -> None:
    own = ActionResult(action="x", success=False, error="half done", duration=0, side_effects=["a"])
    result = result_of(lab_for(Recorder(output=own).action()).run())

    assert (
        result.action,
        result.success,
        result.error,
        result.side_effects,
    ) == ("p:do", False, "half done", ["a"])


@pytest.mark.parametrize("output", [object(), {"no file \udcff": 1}, ["no file \udcff"]])
def test_output_that_is_not_json_is_reported_as_an_error(output: Any) -> None:
    result = result_of(lab_for(Recorder(output=output).action()).run())

    assert "it ran, but its output is not JSON" in (result.error or "")


def test_a_veto_before_acting_stops_the_action_wherever_it_comes_from() -> None:
    def veto() -> None:
        raise Veto("frozen zone")

    recorder = Recorder()
    own = plugin(chooses(choice()), recorder.action(), on_before_act=veto)
    lab = Lab(Agent("test", plugins=[own]))
    from_loop = result_of(lab.run())
    by_hand = perform(lab, "manual:1", approved=True)

    assert "Vetoed by p: frozen zone" == from_loop.error == by_hand.error
    assert recorder.calls == []


def test_an_execution_happens_once_however_often_it_is_asked_for() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action())
    results = [perform(lab, "same"), perform(lab, "same", retry=True), perform(lab, "same")]

    assert len(recorder.calls) == 1
    assert [result.output for result in results] == ["done"] * 3


def test_an_execution_whose_worker_was_lost_is_unknown_and_not_repeated() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action())
    lose(lab, "lost", idempotent=False)
    result = perform(lab, "lost", retry=True)

    assert (result.success, result.unknown) == (False, True)
    assert "Outcome unknown: worker lab" in (result.error or "")
    assert recorder.calls == []


def test_an_idempotent_action_runs_again_when_its_outcome_was_lost() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action(idempotent=True))
    lose(lab, "lost", idempotent=True)
    result = perform(lab, "lost", retry=True)

    assert result.success
    assert len(recorder.calls) == 1


def test_an_action_that_overruns_is_reported_as_unknown() -> None:
    slow = Action(name="do", execute=lambda: time.sleep(5), timeout=0.05)
    result = result_of(lab_for(slow).run())

    assert result.error == "took longer than 0.05 s; it may have taken effect"
    assert result.unknown


def test_a_dry_run_tells_what_would_be_done_and_does_nothing() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action(dry_run=lambda params: f"would do {params.size}", params=Params))
    result = action_call.dry_run(context(lab), "p:do", {"size": 2})

    assert (result.success, result.output, recorder.calls) == (True, "would do 2", [])


def test_an_action_without_a_dry_run_says_so() -> None:
    lab = lab_for(Recorder().action())

    assert action_call.dry_run(context(lab), "p:do", {}).error == "The action has no dry run"


def test_a_success_can_be_rolled_back_once() -> None:
    undone: list[Any] = []
    action = Recorder().action(rollback=lambda result: undone.append(result.output))
    lab = lab_for(action)
    perform(lab, "one")
    results = [perform(lab, f"rollback:{name}", undoes=name) for name in ("one", "one", "never")]

    assert [result.success for result in results] == [True, True, False]
    assert "no such execution" in (results[2].error or "")
    assert undone == ["done"]


def test_an_action_whose_queue_has_no_worker_fails_at_once() -> None:
    lab = lab_for(Recorder().action(queue="eu1"))

    assert "No live worker consumes queue 'eu1'" in (result_of(lab.run()).error or "")


def test_a_freeze_stops_acting_while_the_loop_goes_on() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action())
    lab.whole.freezes.freeze(reason_text("ann", "incident"))
    frozen = lab.run()
    lab.whole.freezes.lift()
    thawed = lab.run()

    assert result_of(frozen).error == "Actions are frozen: incident (by ann)"
    assert frozen.situation is not None
    assert result_of(thawed).success
    assert len(recorder.calls) == 1


def test_one_agent_can_be_frozen_alone() -> None:
    lab = lab_for(Recorder().action())
    lab.whole.freezes.freeze("incident", "other")
    assert result_of(lab.run()).success

    lab.whole.freezes.freeze("incident", "test")
    assert result_of(lab.run()).error == "Actions are frozen: incident"


def test_over_its_budget_an_action_waits_for_approval() -> None:
    recorder = Recorder()
    budget = Budget(limit=2, window=3600)
    lab = lab_for(recorder.action(budget=budget, target="size"), params={"size": 1})
    results = [result_of(lab.run()) for _ in range(3)]

    assert [result.error for result in results] == [None, None, "Approval required"]
    assert len(recorder.calls) == 2
    assert lab.store.approvals.page(50).pending[0].reason == "budget for 1 is used up"


def test_each_target_has_a_budget_of_its_own() -> None:
    recorder = Recorder()
    size = {"now": 0}

    def decide() -> Any:
        size["now"] += 1
        return choice(params={"size": size["now"]})

    action = recorder.action(budget=Budget(limit=1, window=3600), target="size")
    from boyd.plugin import Strategy

    lab = Lab(agent(Strategy(name="s", decide=decide), action))
    results = [result_of(lab.run()) for _ in range(3)]

    assert all(result.success for result in results)


def test_the_agents_budget_replaces_the_actions_own() -> None:
    recorder = Recorder()
    budgets = {"p:do": Budget(limit=1, window=3600)}
    lab = Lab(agent(chooses(choice()), recorder.action(), budgets=budgets))
    results = [result_of(lab.run()) for _ in range(2)]

    assert [result.error for result in results] == [None, "Approval required"]


def test_a_freeze_needs_no_reason() -> None:
    lab = lab_for(Recorder().action())
    lab.whole.freezes.freeze("")

    assert result_of(lab.run()).error == "Actions are frozen: "


def test_an_agent_that_starts_during_a_freeze_is_frozen_too() -> None:
    lab = lab_for(Recorder().action())
    lab.whole.freezes.freeze("incident")
    recorder = Recorder()
    own = plugin(chooses(choice()), recorder.action())
    two = Lab(Agent("late", plugins=[own]), client=lab.client)

    assert result_of(two.run()).error == "Actions are frozen: incident"


def test_a_worker_that_lost_its_phase_cannot_claim() -> None:
    """It was frozen between entering act and claiming; meanwhile another epoch began."""
    recorder = Recorder()
    lab: Lab

    def overtake() -> None:
        lab.client.hset("boyd:{test}:iteration", "epoch", 2)

    own = plugin(chooses(choice()), recorder.action(), on_before_act=overtake)
    lab = Lab(Agent("test", plugins=[own]))
    with pytest.raises(Stale):
        lab.run()

    assert recorder.calls == []


def test_while_the_first_worker_still_executes_its_phase_is_put_back() -> None:
    """No attempt is lost, and the result is that of the one that executes."""
    lab: Lab
    states: list[Any] = []

    def execute() -> str:
        # The sweeper has taken the phase for lost and sent it again while this still runs.
        lab.client.hset("boyd:{test}:iteration", "epoch", 2)
        lab.client.hdel("boyd:{test}:iteration", "entered")
        states.append(lab.steps.run("act", 1, 2))
        states.append(lab.store.iterations.current())
        return "done"

    lab = lab_for(Action(name="do", execute=execute))
    lab.launcher.trigger("test")
    lab.deliver()
    record = states[1]

    assert states[0] is False
    assert "entered" not in record.fields
    assert record.fields["attempts"] == "0"
    assert lab.steps.run("act", 1, 2), "now the outcome is known"
    lab.dispatcher.send("test", 1, 2, "complete")
    lab.deliver()
    assert [r.output for r in lab.store.history.results()[0].action_results] == ["done"]


def test_a_restart_of_redis_leaves_no_doubt_unsaid() -> None:
    """The claim may be among the writes that a restart loses."""
    recorder = Recorder()
    lab = lab_for(recorder.action())
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    lab.client.hset("boyd:{test}:iteration", "server", "the one before")
    lab.deliver()
    result = result_of(lab.store.history.results()[0])

    assert recorder.calls == []
    assert result.unknown
    assert "Redis restarted and may have forgotten" in (result.error or "")


@pytest.mark.parametrize("refusal", ["veto", "freeze"])
def test_a_refusal_after_a_restart_of_redis_hides_no_earlier_execution(refusal: str) -> None:
    recorder = Recorder()

    def veto() -> None:
        if refusal == "veto":
            raise Veto("not now")

    own = plugin(chooses(choice()), recorder.action(), on_before_act=veto)
    lab = Lab(Agent("test", plugins=[own]))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    lab.client.hset("boyd:{test}:iteration", "server", "the one before")
    if refusal == "freeze":
        lab.whole.freezes.freeze("incident")
    lab.deliver()
    result = result_of(lab.store.history.results()[0])

    assert recorder.calls == []
    assert result.unknown
    assert "Redis restarted and may have forgotten" in (result.error or "")


def test_one_decision_is_proposed_once_whatever_became_of_the_approval() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action(autonomy=Autonomy(mode="human-only")))
    first = perform(lab, "loop:1")
    assert first.waits_for
    lab.resolver.answer(first.waits_for, "denied", person("ann"))
    again = perform(lab, "loop:1", retry=True)

    assert first.waits_for == again.waits_for
    assert lab.store.approvals.page(50).pending == []


def test_an_action_that_doubts_asks_a_person_and_is_executed_once_approved() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action(doubt=lambda: "its server has changed"))
    waits = result_of(lab.run())
    assert waits.waits_for
    item = lab.store.approvals.get(waits.waits_for)
    assert item is not None
    assert (item.reason, item.risk, recorder.calls) == ("its server has changed", "high", [])
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()

    assert len(recorder.calls) == 1


def test_an_action_that_fails_to_doubt_asks_a_person_and_one_without_doubt_runs() -> None:
    def fail() -> None:
        raise OSError("no answer")

    failing, sure = Recorder(), Recorder()

    assert result_of(lab_for(failing.action(doubt=fail)).run()).waits_for
    assert result_of(lab_for(sure.action(doubt=lambda: None)).run()).success
    assert (failing.calls, len(sure.calls)) == ([], 1)


def test_a_gated_action_is_queued_although_its_own_queue_has_no_worker() -> None:
    action = Recorder().action(queue="eu1", autonomy=Autonomy(mode="approval-required"))

    assert result_of(lab_for(action).run()).error == "Approval required"


def test_a_hook_that_changes_params_in_place_changes_nothing() -> None:
    recorder = Recorder()
    own = plugin(
        chooses(choice(params={"size": [1]})),
        recorder.action(),
        on_before_act=lambda params: params["size"].append(2),
        on_decide=lambda decision: decision.params["size"].append(3),
    )
    Lab(Agent("test", plugins=[own])).run()

    assert recorder.calls == [{"size": [1]}]


def test_an_error_that_is_not_utf8_is_escaped_and_truncated() -> None:
    lab = lab_for(Recorder(error=OSError("no file \udcff" + "x" * 9000)).action())
    error = result_of(lab.run()).error or ""

    assert "no file \\udcff" in error
    assert len(error) < 2100


def test_a_target_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(PluginError, match=r"target 'colour' is not a parameter; known: size"):
        agent(Recorder().action(params=Params, target="colour"))


def context(lab: Lab) -> PhaseContext:
    """A phase context outside of an iteration."""
    return PhaseContext(lab.agent, "act", lab.engine.context)


def perform(lab: Lab, execution_id: str, **fields: Any) -> ActionResult:
    """Take the one path that executes actions, as an approval or the API does."""
    request = ActRequest(execution_id=execution_id, decision=choice(), **fields)
    result, _ = act.act(context(lab), request, lab.engine.ledger(), lab.engine.approvals)
    return result


def lose(lab: Lab, execution_id: str, idempotent: bool) -> None:
    """Claim an execution and let the lease lapse, as a killed worker does."""
    reply = lab.store.executions.claim(
        execution_request(execution_id, idempotent=idempotent), "token"
    )
    assert reply.outcome == "claimed"
    lab.client.hset(f"boyd:{{test}}:execution:{execution_id}", "leaseUntil", 1)


def test_an_output_too_large_to_keep_is_left_out_and_the_action_has_succeeded() -> None:
    result = result_of(lab_for(Recorder(output="x" * 2_000_000).action()).run())

    assert result.success
    assert "omitted: 2000" in str(result.output)


@pytest.mark.parametrize("levels", [150, 250, 3000])
def test_output_nested_too_deeply_to_be_read_back_is_reported_as_an_error(levels: int) -> None:
    def nest() -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    lab = Lab(agent(chooses(choice()), Action(name="do", execute=nest)))
    result = result_of(lab.run())

    assert "it ran, but its output is not JSON" in (result.error or "")
    assert len(lab.store.history.results(10)) == 1


def test_a_late_result_does_not_change_the_recorded_one() -> None:
    lab = lab_for(Recorder().action())
    ledger = lab.store.executions

    def claim(token: str) -> str:
        return ledger.claim(execution_request("x"), token).outcome

    assert claim("first") == "claimed"
    lab.client.hset("boyd:{test}:execution:x", "leaseUntil", 1)
    assert claim("second") == "unknown"

    assert not ledger.finish("x", "first", ActionResult(action="p:do", success=True, duration=1))
    entry = ledger.get("x")
    assert entry is not None
    assert (entry.state, entry.result) == ("unknown", ledger.result("x"))
    assert entry.result is not None
    assert entry.result.unknown


def test_an_action_knows_the_name_of_its_execution() -> None:
    names: list[str | None] = []

    def execute(ctx: Context) -> None:
        names.append(ctx.execution_id)

    lab = Lab(agent(chooses(choice()), Action(name="do", execute=execute)))
    result = lab.run()

    assert names == [f"loop:{result.id.removeprefix('test:')}"]


def test_a_freeze_of_all_holds_for_an_agent_that_nobody_has_registered() -> None:
    recorder = Recorder()
    lab = lab_for(recorder.action())
    lab.client.delete(AGENTS, REGISTERED)
    lab.whole.freezes.freeze("incident")
    result = result_of(lab.run())

    assert result.error == "Actions are frozen: incident"
    assert recorder.calls == []


def test_an_agent_whose_registration_was_lost_does_not_act_until_it_is_known_again() -> None:
    lab = lab_for(Recorder().action())

    def claim(token: str) -> str:
        return lab.store.executions.claim(
            execution_request("loop:1", idempotent=True), token
        ).outcome

    for lost in (REGISTERED, FREEZES):
        lab.client.delete(lost)
        with pytest.raises(StillRunning, match="Redis has lost data"):
            claim("t")
        lab.whole.fleet.register(lab.engine.entry())
    assert claim("t") == "claimed"
