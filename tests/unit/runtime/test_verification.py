"""Actions are verified after they were executed, held meanwhile, and compensated after harm."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from boyd import Agent, Budget
from boyd.errors import RollbackRefused
from boyd.models import (
    ActionResult,
    Actor,
    Anomaly,
    Autonomy,
    CallRequest,
    CallScope,
    EffectName,
    EffectVerdict,
    ExecutionEntry,
    Hold,
    JsonObject,
    LoopResult,
    Proposal,
    Situation,
    SituationAssessment,
    SituationClass,
)
from boyd.models.base import Level
from boyd.models.effect import EffectChecks
from boyd.plugin import Action, Observer, Orienter
from boyd.store import Retention
from boyd.testing import Lab
from kit import Recorder, call_result, choice, chooses, overdue, person, plugin

JOB = "boyd:{test}:verify:"
HOLDS = "boyd:{test}:holds"
ACTION = "p:do"


class Patient:
    """An action whose effect is what the test says."""

    def __init__(
        self, *verdicts: Any, decisions: Sequence[JsonObject] = ({},), **settings: Any
    ) -> None:
        self.verdicts = list(verdicts)
        self.looks: list[Any] = []
        self.suspended: list[Hold] = []
        self.recorder = Recorder()
        self.undone: list[Any] = []
        self.decisions = [choice(params=params) for params in decisions]
        self.settings = settings
        self.anomalies: list[Anomaly] = []
        self.idle = False

    def lab(self, *more: Any, rollback: bool = False, **agent: Any) -> Lab:
        """A lab with this action, which a strategy always decides on."""
        extra: dict[str, Any] = {"rollback": self._undo} if rollback else {}
        action = self.recorder.action(verify=self._verify, **extra, **self.settings)
        strategies = [
            chooses(decision, name=f"s{n}", applicable_when=lambda: not self.idle)
            for n, decision in enumerate(self.decisions)
        ]
        parts = [*strategies, *more, action]

        def on_orient() -> dict[str, Any]:
            return {"anomalies": [anomaly.to_wire() for anomaly in self.anomalies]}

        own = plugin(*parts, on_suspend=self._suspend, on_orient=on_orient)
        return Lab(Agent("test", plugins=[own], **agent))

    def _verify(self, params: Any, result: Any) -> Any:
        self.looks.append((params, result))
        verdict = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    def _undo(self, params: Any, result: Any) -> str:
        self.undone.append(params)
        return "undone"

    def _suspend(self, hold: Hold) -> None:
        self.suspended.append(hold)


def check(lab: Lab, times: int = 1) -> None:
    """Let the time pass until the next check, that many times."""
    for _ in range(times):
        for name in lab.client.zrange("boyd:{test}:due", 0, -1):
            if name.startswith("verify:"):
                overdue(lab, name)


def run_out(lab: Lab, execution: str) -> None:
    """Let the time end in which the effect has to show."""
    lab.client.hset(f"boyd:{{test}}:execution:{execution}", "verifyUntil", 1)
    check(lab)


def execution_of(lab: Lab, result: LoopResult) -> ExecutionEntry:
    """The execution of an iteration."""
    entry = lab.store.executions.get(f"loop:{result.iteration}")
    assert entry is not None
    return entry


def roll_back(lab: Lab, execution: str) -> None:
    """Request the rollback of an execution."""
    request = CallRequest(kind="rollback", action=ACTION, undoes=execution, actor=person("ann"))
    lab.launcher.call(request, None)


def call_action(lab: Lab, **fields: Any) -> ActionResult:
    """The result of the action when a client asks for it."""
    return call_result(lab, **{"action": ACTION, **fields})


def verdict_of(lab: Lab, result: LoopResult) -> EffectName | None:
    """The verdict on the execution of an iteration, if there is one yet."""
    verification = execution_of(lab, result).verification
    assert verification is not None
    return verification.verdict


def rationale(lab: Lab) -> str:
    """The rationale of the decision of a new iteration."""
    decision = lab.run().decision
    assert decision is not None
    assert decision.is_no_op
    return decision.rationale


def test_an_action_is_verified_after_the_iteration_which_does_not_wait() -> None:
    action = Patient(True)
    lab = action.lab()
    result = lab.run()
    entry = execution_of(lab, result)

    assert entry.state == "succeeded"
    assert entry.verification is not None
    assert (entry.verification.verdict, action.looks) == (None, [])

    check(lab)
    entry = execution_of(lab, result)
    assert entry.verification is not None
    assert entry.verification.verdict == "effective"
    assert entry.verification.checks == 1
    assert [result.output for _, result in action.looks] == ["done"]
    assert lab.client.zrange("boyd:{test}:due", 0, -1) == []


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ({"target": "host"}, "cannot tell"),
        ({"target": "host", "reversibility": "read-only"}, "effective"),
        ({}, "effective"),
    ],
)
def test_an_effect_that_another_action_may_have_had_is_not_credited(
    other: JsonObject, verdict: EffectName
) -> None:
    action = Patient(False, True, decisions=({"host": "a"},), target="host")
    lab = action.lab(Recorder().action("other", **other))
    result = lab.run()
    check(lab)
    assert call_action(lab, action="p:other", params={"host": "a"}).success
    check(lab)

    assert verdict_of(lab, result) == verdict
    if verdict == "cannot tell":
        verification = execution_of(lab, result).verification
        assert verification is not None
        assert verification.evidence is not None
        assert verification.evidence.startswith("it is well, but call:")


def test_an_earlier_action_on_the_target_does_not_blur_the_verdict() -> None:
    action = Patient(True, decisions=({"host": "a"},), target="host")
    lab = action.lab(Recorder().action("other", target="host"))
    assert call_action(lab, action="p:other", params={"host": "a"}).success
    lab.client.zincrby(
        "boyd:{test}:touched:a", -1, lab.client.zrange("boyd:{test}:touched:a", 0, 0)[0]
    )
    result = lab.run()
    check(lab)

    assert verdict_of(lab, result) == "effective"


def test_an_action_without_verification_has_none() -> None:
    lab = Lab(Agent("test", plugins=[plugin(chooses(choice()), Recorder().action())]))
    result = lab.run()

    assert execution_of(lab, result).verification is None
    assert lab.client.keys("*verify*") == []


def test_checks_go_on_until_one_is_final() -> None:
    action = Patient(False, None, OSError("down"), "effective")
    lab = action.lab()
    result = lab.run()
    check(lab, 3)
    assert verdict_of(lab, result) is None

    check(lab)
    verification = execution_of(lab, result).verification
    assert verification is not None
    assert (verification.verdict, verification.checks) == ("effective", 4)


@pytest.mark.parametrize(
    ("last", "verdict", "evidence"),
    [
        (False, "no effect", None),
        (None, "cannot tell", None),
        (OSError("no route"), "cannot tell", "OSError: no route"),
        (7, "cannot tell", "TypeError: verify returned 7; expected"),
        ("better", "cannot tell", "TypeError: verify returned 'better'; expected"),
        (EffectVerdict(verdict="no effect", evidence="still 503", final=False), "no effect", "503"),
    ],
)
def test_the_last_check_within_the_time_decides(
    last: Any, verdict: EffectName, evidence: str | None
) -> None:
    lab = Patient(last).lab()
    result = lab.run()
    check(lab)
    run_out(lab, execution_of(lab, result).id)

    verification = execution_of(lab, result).verification
    assert verification is not None
    assert verification.verdict == verdict
    assert (evidence or "") in (verification.evidence or "")


def test_the_same_action_is_not_repeated_while_its_verdict_is_open() -> None:
    action = Patient(None)
    lab = action.lab(chooses(choice("p:other"), name="second"), Recorder("else").action("other"))
    lab.run()
    second = lab.run()

    assert len(action.recorder.calls) == 1
    assert [action_result.action for action_result in second.action_results] == ["p:other"]
    assert second.trace is not None
    [held, chosen] = second.trace.verdicts
    assert (held.verdict, chosen.verdict) == ("held", "chosen")
    assert held.why == "p:do is not repeated yet: loop:1 is being verified"
    assert chosen.why == "it is the first that applies and whose action is not held"


def test_an_iteration_whose_only_action_is_held_does_nothing_and_says_why() -> None:
    lab = Patient(None).lab()
    lab.run()
    second = lab.run()

    assert second.decision is not None
    assert second.decision.is_no_op
    assert second.decision.rationale == "p:do is not repeated yet: loop:1 is being verified"
    assert second.action_results == []
    assert second.success


HOT = Anomaly(type="engine-hot", description="90 degrees", severity="high")
LOUD = Anomaly(type="noise", description="", severity="low", affected_resources=["fan"])


@pytest.mark.parametrize(
    "others",
    [
        [HOT.patched({"severity": "critical"})],
        [HOT.patched({"description": "91 degrees"})],
        [HOT.patched({"type": "engine-burning"})],
        [HOT, LOUD],
    ],
    ids=["severity", "description", "degree", "neighbour"],
)
def test_an_action_without_effect_is_not_repeated_while_its_symptom_flickers(
    others: list[Anomaly],
) -> None:
    action = Patient("no effect")
    lab = action.lab()
    for number in range(8):
        action.anomalies = others if number % 2 else [HOT]
        lab.run()
        check(lab)

    assert len(action.recorder.calls) == 1
    [hold] = lab.store.holds.all()
    assert (hold.kind, hold.symptoms) == ("no effect", ["engine"])


def on_a(type: str) -> Anomaly:
    """An anomaly of the target a."""
    return Anomaly(type=type, description="", severity="high", affected_resources=["a"])


@pytest.mark.parametrize("types", [("disk-full", "load-high"), ("disk-full", "load-high", "heat")])
def test_a_hold_lasts_though_unrelated_symptoms_of_its_target_take_turns(
    types: Sequence[str],
) -> None:
    action = Patient("no effect", target="name", decisions=[{"name": "a"}])
    lab = action.lab()
    for number in range(12):
        action.anomalies = [on_a(types[number % len(types)])]
        lab.run()
        check(lab)

    # Once for each: a new symptom may be one that the action can end.
    assert len(action.recorder.calls) == len(types)


def test_a_denial_lasts_though_unrelated_symptoms_of_its_target_take_turns() -> None:
    asks = Autonomy(mode="approval-required")
    action = Patient("no effect", target="name", decisions=[{"name": "a"}], autonomy=asks)
    lab = action.lab()
    for number in range(12):
        action.anomalies = [on_a(("disk-full", "load-high")[number % 2])]
        lab.run()
        for item in lab.store.approvals.page(20, history=False).pending:
            lab.resolver.answer(item.id, "denied", person("ann"))

    assert len(lab.store.approvals.page(20).history) == 2


def test_a_hold_remembers_a_bounded_number_of_earlier_symptoms() -> None:
    action = Patient("no effect", target="name", decisions=[{"name": "a"}])
    lab = action.lab()
    for number in range(53):
        action.anomalies = [on_a(f"pod{number}-down")]
        lab.run()
        check(lab)

    [hold] = lab.store.holds.all()
    assert len(action.recorder.calls) == 53
    assert len(hold.symptoms) == 50
    assert (hold.symptoms[0], hold.symptoms[-1]) == ("pod52 on a", "pod3 on a")


@pytest.mark.parametrize("end", ["well", "effective", "lifted"])
def test_symptoms_of_earlier_holds_are_forgotten_once_the_target_was_well(end: str) -> None:
    action = Patient("no effect", target="name", decisions=[{"name": "a"}])
    lab = action.lab()
    for type in ("disk-full", "load-high"):
        action.anomalies = [on_a(type)]
        if end == "effective" and type == "load-high":
            action.verdicts = ["effective"]
        lab.run()
        check(lab)
    if end == "lifted":
        lab.store.holds.lift(ACTION, "a", person("ann"))
    if end == "well":
        action.idle, action.anomalies = True, []
        lab.run()
    action.idle, action.verdicts = False, ["no effect"]
    action.anomalies = [on_a("disk-full")]
    lab.run()
    check(lab)

    [hold] = lab.store.holds.all()
    assert hold.symptoms == ["disk on a"]


def test_a_hold_without_symptoms_lasts_for_its_time() -> None:
    action = Patient("no effect")
    lab = action.lab()
    lab.run()
    check(lab)
    action.anomalies = [HOT]

    assert rationale(lab) == "p:do is not repeated: loop:1 had no effect"


def test_a_symptom_of_the_target_counts_before_those_of_others() -> None:
    on_a = Anomaly(type="disk-full", description="", severity="high", affected_resources=["a"])
    on_b = on_a.patched({"affected_resources": ["b"]})
    action = Patient("no effect", target="name", decisions=[{"name": "a"}])
    lab = action.lab()
    action.anomalies = [on_a, on_b]
    lab.run()
    check(lab)
    [hold] = lab.store.holds.all()
    assert hold.symptoms == ["disk on a"]

    action.anomalies = [on_b]
    lab.run()
    assert len(action.recorder.calls) == 2


def test_nothing_is_gone_that_an_observer_could_not_see() -> None:
    state = {"fails": False}

    def look() -> list[Any]:
        if state["fails"]:
            raise OSError("no route to the host")
        return []

    def judge() -> SituationAssessment:
        anomalies = [] if state["fails"] else [HOT]
        return SituationAssessment(source="p:judge", findings=[], anomalies=anomalies)

    action = Patient("no effect")
    lab = action.lab(Observer(name="look", observe=look), Orienter(name="judge", orient=judge))
    lab.run()
    check(lab)
    for fails in (True, False):
        state["fails"] = fails
        lab.run()

    assert len(action.recorder.calls) == 1
    assert [hold.kind for hold in lab.store.holds.all()] == ["no effect"]


def test_an_action_without_effect_may_be_repeated_when_its_symptom_comes_back() -> None:
    hot = [Anomaly(type="hot", description="90 degrees", severity="high")]
    action = Patient("no effect")
    action.anomalies = hot
    lab = action.lab(verification={ACTION: {"within": 5}})
    lab.run()
    check(lab)
    lab.run()
    assert len(action.recorder.calls) == 1

    action.idle = True
    action.anomalies = []
    lab.run()
    assert lab.store.holds.all() == []
    action.idle = False
    action.anomalies = hot
    lab.run()
    assert len(action.recorder.calls) == 2


@pytest.mark.parametrize(("others", "end"), [(2500, 1), (200, 2**42), (2500, 2**42)])
def test_a_hold_ends_with_its_symptom_however_many_others_there_are(
    others: int, end: float
) -> None:
    action = Patient("no effect")
    action.anomalies = [Anomaly(type="hot", description="90 degrees", severity="high")]
    lab = action.lab(verification={ACTION: {"within": 5}})
    lab.run()
    check(lab)
    [hold] = lab.store.holds.all()
    lab.client.zadd(HOLDS, {f"p:do:web-{n}": end for n in range(others)})
    lab.client.zadd(HOLDS, {f"{hold.action}:{hold.target}": 2**43})
    action.idle = True
    action.anomalies = []
    for _ in range(others // 1000 + 1 if end > 1 else 1):
        lab.run()

    assert lab.client.zscore(HOLDS, "p:do:") is None
    assert lab.store.holds.all() == []


def test_anomalies_of_others_do_not_change_the_situation_of_a_plugin() -> None:
    def assess_types(*types: str) -> SituationAssessment:
        return SituationAssessment(
            source="p:o",
            findings=[],
            anomalies=[
                Anomaly(type=kind_of_anomaly, description="", severity="low")
                for kind_of_anomaly in types
            ],
        )

    noise = assess_types("load").patched({"source": "host:o"})
    quiet = Situation(assessments=[assess_types("down")])
    loud = Situation(assessments=[assess_types("down"), noise])

    def class_of(situation: Situation) -> str:
        return SituationClass.of(situation, "p", CallScope.of(None, {}, [])).key

    assert class_of(quiet) == class_of(loud)
    assert class_of(quiet) != class_of(Situation(assessments=[assess_types()]))


def test_an_action_without_effect_may_be_repeated_when_its_budget_has_a_new_window() -> None:
    action = Patient("no effect", budget=Budget(limit=5, window=100))
    lab = action.lab()
    lab.run()
    check(lab)

    assert 0 < lab.client.pttl("boyd:{test}:hold:p:do:") <= 100_000
    lab.client.delete("boyd:{test}:hold:p:do:")
    lab.run()
    assert len(action.recorder.calls) == 2


def test_other_targets_are_not_held() -> None:
    action = Patient(None, target="name", decisions=[{"name": "a"}, {"name": "b"}])
    lab = action.lab()
    lab.run()
    lab.run()

    assert [params["name"] for params in action.recorder.calls] == ["a", "b"]


def test_the_agent_file_can_let_an_action_repeat() -> None:
    action = Patient("no effect")
    lab = action.lab(verification={ACTION: {"hold": False}})
    lab.run()
    lab.run()
    check(lab)
    lab.run()

    assert len(action.recorder.calls) == 3
    assert lab.store.holds.all() == []


def test_the_agent_file_says_how_long_and_how_often_it_is_checked() -> None:
    plan = Patient(None).lab(verification={ACTION: {"within": 7, "every": 2, "repeat_after": 9}})
    verification = plan.agent.verification(ACTION)

    assert verification is not None
    assert (verification.within, verification.every, verification.repeat_after) == (7, 2, 9)


def test_a_person_may_repeat_what_is_held() -> None:
    action = Patient("no effect")
    lab = action.lab()
    lab.run()
    check(lab)
    refused = call_action(lab)
    assert refused.prevented == "held"
    assert refused.error == "p:do is not repeated: loop:1 had no effect"

    waits = call_action(lab, requires_approval=True)
    assert waits.waits_for is not None
    lab.resolver.answer(waits.waits_for, "approved", person("jane"))
    lab.deliver()
    assert len(action.recorder.calls) == 2


def test_harm_is_rolled_back_once_and_the_action_not_repeated() -> None:
    action = Patient(EffectVerdict(verdict="worse", evidence="errors doubled"))
    lab = action.lab(rollback=True)
    first = lab.run()
    check(lab)

    verification = execution_of(lab, first).verification
    assert verification is not None
    assert verification.compensation is not None
    assert (verification.verdict, verification.compensation.state) == ("worse", "rolled back")
    undo = lab.store.executions.get(f"rollback:{execution_of(lab, first).id}")
    assert undo is not None
    assert (undo.state, undo.by) == ("succeeded", "agent:test")
    assert len(action.undone) == 1
    assert action.suspended == []
    assert rationale(lab) == (
        "p:do is not repeated: loop:1 made it worse and was rolled back: errors doubled"
    )


@pytest.mark.parametrize(
    ("rollback", "settings", "reason"),
    [
        (False, {}, "the action has no rollback"),
        (True, {"roll_back": False}, "the agent's settings forbid a rollback"),
    ],
)
def test_harm_that_cannot_be_rolled_back_suspends_the_action(
    rollback: bool, settings: dict[str, Any], reason: str
) -> None:
    action = Patient("worse")
    lab = action.lab(rollback=rollback, verification={ACTION: settings})
    first = lab.run()
    check(lab)

    verification = execution_of(lab, first).verification
    assert verification is not None
    assert verification.compensation is not None
    assert (verification.compensation.state, verification.compensation.detail) == ("none", reason)
    assert [(hold.kind, hold.because) for hold in action.suspended] == [("suspended", "harm")]
    action.anomalies = [Anomaly(type="hot", description="", severity="high")]
    assert rationale(lab) == "p:do is suspended: loop:1 made it worse"


@pytest.mark.parametrize("rollback", [False, True])
def test_an_action_that_may_be_repeated_is_suspended_all_the_same_unless_it_was_rolled_back(
    rollback: bool,
) -> None:
    action = Patient("worse")
    lab = action.lab(rollback=rollback, verification={ACTION: {"hold": False}})
    lab.run()
    check(lab)
    lab.run()

    assert len(action.recorder.calls) == (2 if rollback else 1)


def test_a_rollback_that_needs_a_person_is_asked_for() -> None:
    action = Patient("worse", autonomy=Autonomy(mode="approval-required"))
    lab = action.lab(rollback=True)
    proposed = lab.run().action_results[0].waits_for
    assert proposed is not None
    lab.resolver.answer(proposed, "approved", person("jane"))
    lab.deliver()
    check(lab)

    [item] = lab.store.approvals.page(5).pending
    assert item.undoes == f"approval:{proposed}"
    assert item.decision.rationale == f"approval:{proposed} made it worse"
    assert [hold.kind for hold in action.suspended] == ["suspended"]
    with pytest.raises(RollbackRefused, match=f"waits for approval {item.id[:8]} already"):
        roll_back(lab, f"approval:{proposed}")
    lab.resolver.answer(item.id, "approved", person("jane"))
    lab.deliver()
    assert len(action.undone) == 1


def test_a_compensated_execution_cannot_be_rolled_back() -> None:
    action = Patient("worse")
    lab = action.lab(rollback=True)
    execution = execution_of(lab, lab.run()).id
    # As while the worker that compensates it has judged but not acted yet.
    lab.client.hset(f"boyd:{{test}}:execution:{execution}", "verdict", "worse")
    with pytest.raises(RollbackRefused, match="Boyd is compensating it already"):
        roll_back(lab, execution)
    lab.client.hset(f"boyd:{{test}}:execution:{execution}", "verdict", "open")
    check(lab)

    with pytest.raises(RollbackRefused, match="has been rolled back already"):
        roll_back(lab, execution)
    assert len(action.undone) == 1


def test_a_person_lifts_a_suspension() -> None:
    action = Patient("worse")
    lab = action.lab()
    lab.run()
    check(lab)
    jane = Actor(principal="user:jane")

    assert lab.store.holds.lift(ACTION, "elsewhere", jane) == "not held"
    assert lab.store.holds.lift(ACTION, "", jane, "it was the network") == "lifted"
    assert lab.store.holds.all() == []
    lab.run()
    assert len(action.recorder.calls) == 2
    lab.whole.seal(["test"])
    kinds = [entry.kind for entry in lab.store.audit_trail.page(20).entries]
    assert {"action.verified", "action.compensated", "hold.lifted"} <= set(kinds)


def test_the_suspend_hook_is_retried_until_it_succeeds() -> None:
    action = Patient("worse")
    lab = action.lab()
    failures = [OSError("mail is down"), None]
    holds: list[Hold] = []

    def on_suspend(hold: Hold) -> None:
        error = failures.pop(0)
        if error:
            raise error
        holds.append(hold)

    hook = lab.agent.host.hooks("on_suspend")[0]
    hook.taker.function = on_suspend
    lab.run()
    check(lab)
    assert holds == []
    check(lab)
    assert len(holds) == 1
    assert lab.client.keys(f"{JOB}*") == []


def test_a_plugin_that_cannot_tell_of_a_suspension_does_not_make_others_repeat_it() -> None:
    notices: list[str] = []

    def fail(hold: Hold) -> None:
        notices.append("broken")
        raise OSError("mail is down")

    broken = plugin(id="broken", on_suspend=fail)
    fine = plugin(id="fine", on_suspend=lambda hold: notices.append("fine"))
    own = Recorder().action(verify=lambda params, result: "worse")
    lab = Lab(Agent("test", plugins=[plugin(chooses(choice()), own), broken, fine]))
    lab.run()
    check(lab, 40)

    assert notices == ["broken", "fine"] + 30 * ["broken"]
    assert lab.client.keys(f"{JOB}*") == []


def test_a_verification_that_always_fails_ends_as_one_that_cannot_tell() -> None:
    lab = Patient("effective").lab(verification={ACTION: {"sustained": 60}})
    result = lab.run()
    job = f"{JOB}{execution_of(lab, result).id}"
    for _ in range(31):
        assert verdict_of(lab, result) is None
        lab.client.hset(job, "wellSince", "no number")
        check(lab)

    assert verdict_of(lab, result) == "cannot tell"
    verification = execution_of(lab, result).verification
    assert verification is not None
    assert "could not convert string to float" in (verification.evidence or "")
    assert not lab.client.exists(job)


def test_an_outcome_that_was_lost_is_verified_too() -> None:
    action = Patient("effective", timeout=0.05)
    over = threading.Event()
    action.recorder.action = lambda **settings: Action(  # type: ignore[method-assign]
        name="do", execute=lambda: over.wait(10), **settings
    )
    lab = action.lab()
    result = lab.run()
    over.set()
    assert execution_of(lab, result).state == "unknown"

    check(lab)
    assert verdict_of(lab, result) == "effective"


def failing(*verdicts: Any) -> Patient:
    """An action whose call fails, whatever its effect."""
    action = Patient(*verdicts)
    action.recorder = Recorder(error=OSError("status 1"))
    return action


def test_the_effect_of_a_call_that_failed_is_verified() -> None:
    lab = failing("effective").lab()
    result = lab.run()
    check(lab)

    assert execution_of(lab, result).state == "failed"
    assert verdict_of(lab, result) == "effective"
    assert lab.store.holds.all() == []


def test_a_call_that_failed_and_did_harm_suspends_its_action_and_is_not_undone() -> None:
    action = failing("worse")
    lab = action.lab(rollback=True)
    for _ in range(5):
        lab.run()
        check(lab)

    assert len(action.recorder.calls) == 1
    assert action.undone == []
    assert [hold.kind for hold in action.suspended] == ["suspended"]
    [hold] = lab.store.holds.all()
    assert (hold.kind, hold.until) == ("suspended", None)


@pytest.mark.parametrize("verdict", ["no effect", "cannot tell", OSError("the service is gone")])
def test_a_call_that_failed_is_not_repeated_for_the_same_symptom(verdict: Any) -> None:
    action = failing(verdict)
    lab = action.lab()
    for _ in range(5):
        result = lab.run()
        if not result.decision.is_no_op:  # type: ignore[union-attr]
            run_out(lab, execution_of(lab, result).id)
        check(lab)

    assert len(action.recorder.calls) == 1
    kinds = [hold.kind for hold in lab.store.holds.all()]
    assert kinds == ["no effect" if verdict == "no effect" else "cannot tell"]


def test_a_harmful_action_is_not_repeated_while_the_situation_flickers() -> None:
    action = Patient("worse")
    lab = action.lab(rollback=True)
    levels: tuple[Level, ...] = ("high", "critical")
    for number in range(8):
        severity = levels[number % 2]
        action.anomalies = [Anomaly(type="hot", description="", severity=severity)]
        lab.run()
        check(lab)

    assert len(action.recorder.calls) == len(action.undone) == 1
    assert [hold.kind for hold in lab.store.holds.all()] == ["rolled back"]


def test_an_action_that_does_harm_for_the_second_time_is_suspended() -> None:
    action = Patient("worse")
    lab = action.lab(rollback=True)
    for _ in range(2):
        lab.run()
        check(lab)
        assert len(lab.store.holds.all()) == 1
        lab.client.delete("boyd:{test}:hold:p:do:")  # its time has passed
    assert len(action.undone) == 2
    assert [hold.kind for hold in action.suspended] == ["suspended"]


def test_lifting_the_hold_resets_the_count_of_harm() -> None:
    action = Patient("worse")
    lab = action.lab(rollback=True)
    for _ in range(3):
        lab.run()
        check(lab)
        assert lab.store.holds.lift(ACTION, "", person("jane")) == "lifted"

    assert len(action.undone) == 3
    assert action.suspended == []


def test_a_hold_ends_by_itself() -> None:
    lab = Patient("no effect", budget=Budget(limit=5, window=60)).lab()
    lab.run()
    check(lab)
    [hold] = lab.store.holds.all()

    assert hold.until is not None
    assert timedelta(0) < hold.until - hold.since <= timedelta(seconds=60)
    assert hold.kind == "no effect"


def test_an_approval_says_what_it_is_asked_for_instead_of() -> None:
    action = Patient("no effect")
    gated = Recorder().action("clean", autonomy=Autonomy(mode="approval-required"))
    lab = action.lab(chooses(choice("p:clean"), name="second"), gated)
    lab.store.approvals.enqueue(
        Proposal(decision=choice("p:clean"), action_id="p:clean", params={}, loop_iteration=0),
        Retention(),
    )
    lab.run()
    check(lab)
    lab.run()

    [item] = lab.store.approvals.page(5).pending
    assert item.instead_of == ["p:do is not repeated: loop:1 had no effect"]
    assert item.seen == 2


def test_an_approval_says_what_was_done_to_its_target_before() -> None:
    action = Patient("worse", decisions=({"host": "a"},), target="host")
    lab = action.lab(rollback=True)
    lab.run()
    check(lab)
    texts = []
    for host in "ab":
        result = call_action(lab, params={"host": host}, requires_approval=True)
        item = lab.store.approvals.get(result.waits_for or "")
        assert item is not None
        texts.append(item.done_before)

    undo, done = "undo of p:do (1 min earlier): call succeeded", "p:do (1 min earlier): worse"
    assert texts == [f"{undo}; {done}", ""]


def approve_held(lab: Lab, **fields: Any) -> str:
    """The execution after a person has approved the action although it is held."""
    waits = call_action(lab, requires_approval=True, **fields).waits_for
    assert waits is not None
    lab.resolver.answer(waits, "approved", person("jane"))
    lab.deliver()
    return f"approval:{waits}"


def test_a_suspension_stays_when_an_approved_repetition_helps() -> None:
    action = Patient("worse", "effective")
    lab = action.lab()
    lab.run()
    check(lab)
    approve_held(lab)
    check(lab)

    assert len(action.recorder.calls) == 2
    assert [hold.kind for hold in lab.store.holds.all()] == ["suspended"]


def test_an_effect_ends_the_hold_of_an_earlier_execution_that_had_none() -> None:
    action = Patient("no effect", "effective")
    lab = action.lab()
    lab.run()
    check(lab)
    assert [hold.kind for hold in lab.store.holds.all()] == ["no effect"]

    approve_held(lab)
    check(lab)
    assert lab.store.holds.all() == []


@pytest.mark.parametrize("later", [None, "no effect"])
def test_only_an_effect_ends_a_hold_after_harm(later: Any) -> None:
    action = Patient("worse", False)
    lab = action.lab(rollback=True)
    lab.run()
    check(lab, 2)
    [harm] = lab.store.holds.all()
    action.verdicts[:] = [later]
    run_out(lab, approve_held(lab))

    assert len(action.recorder.calls) == 2
    assert lab.store.holds.all() == [harm]

    action.verdicts[:] = ["effective"]
    approve_held(lab)
    check(lab)
    assert lab.store.holds.all() == []


@pytest.mark.parametrize("state", ["unknown", "failed"])
def test_a_target_that_is_well_after_a_call_that_did_not_succeed_stays_held(state: str) -> None:
    action = Patient("worse", False)
    lab = action.lab(rollback=True)
    lab.run()
    check(lab, 2)
    [harm] = lab.store.holds.all()
    action.verdicts[:] = ["effective"]
    execution = approve_held(lab)
    lab.client.hset(f"boyd:{{test}}:execution:{execution}", "state", state)
    check(lab)

    assert lab.store.holds.all() == [harm]


def test_an_effect_that_cannot_be_credited_does_not_end_a_hold_after_harm() -> None:
    action = Patient("worse", False, decisions=({"host": "a"},), target="host")
    lab = action.lab(Recorder().action("other", target="host"), rollback=True)
    lab.run()
    check(lab, 2)
    action.verdicts[:] = ["effective"]
    approve_held(lab, params={"host": "a"})
    assert call_action(lab, action="p:other", params={"host": "a"}).success
    check(lab)

    assert {hold.kind for hold in lab.store.holds.all()} == {"rolled back", "stopped"}


def test_an_unclear_verdict_does_not_end_the_hold_of_an_execution_without_effect() -> None:
    action = Patient("no effect", None)
    action.anomalies = [HOT]
    lab = action.lab()
    lab.run()
    check(lab)
    [hold] = lab.store.holds.all()
    run_out(lab, approve_held(lab))

    assert lab.store.holds.all() == [hold]


def test_an_action_whose_effect_is_unclear_twice_in_a_row_is_held() -> None:
    action = Patient(None)
    action.anomalies = [HOT]
    lab = action.lab()
    for _ in range(4):
        result = lab.run()
        if result.action_results:
            run_out(lab, execution_of(lab, result).id)

    assert len(action.recorder.calls) == 2
    [hold] = lab.store.holds.all()
    assert (hold.kind, hold.symptoms) == ("cannot tell", ["engine"])
    assert hold.reason == "p:do is not repeated: nobody can tell what loop:2 did"


def test_a_verdict_between_two_unclear_ones_resets_their_count() -> None:
    action = Patient(None, True, None)
    lab = action.lab()
    for _ in range(3):
        result = lab.run()
        run_out(lab, execution_of(lab, result).id)

    assert len(action.recorder.calls) == 3
    assert lab.store.holds.all() == []


@pytest.mark.parametrize("raises", ["no effect", "cannot tell"])
def test_the_plugin_says_the_verdict_if_every_check_raised(raises: Any) -> None:
    action = Patient(OSError("connection refused"), checks=EffectChecks(raises=raises))
    lab = action.lab()
    entry = execution_of(lab, lab.run())
    check(lab)
    run_out(lab, entry.id)

    verification = lab.store.executions.get(entry.id).verification  # type: ignore[union-attr]
    assert verification is not None
    assert (verification.verdict, verification.checks) == (raises, 2)
    assert verification.evidence == "OSError: connection refused"


def test_a_check_that_answered_once_cannot_tell_after_later_ones_raised() -> None:
    action = Patient(False, OSError("connection refused"), checks=EffectChecks(raises="no effect"))
    lab = action.lab()
    entry = execution_of(lab, lab.run())
    check(lab)
    run_out(lab, entry.id)

    assert verdict_on(lab, entry) == "cannot tell"


@pytest.mark.parametrize(
    ("evidence", "words"),
    [("5 of \udcff", "5 of \ufffd"), (b"5 of 9", "b'5 of 9'"), (None, ""), (OSError("5"), "5")],
)
def test_harm_counts_whatever_its_evidence_is(evidence: Any, words: str) -> None:
    lab = Patient(EffectVerdict(verdict="worse", evidence=evidence)).lab()
    result = lab.run()
    check(lab)

    verification = execution_of(lab, result).verification
    assert verification is not None
    assert (verification.verdict, verification.evidence or "") == ("worse", words)


@pytest.mark.parametrize(
    ("later", "verdict"),
    [((OSError("no route"), None), "worse"), ((False, OSError("no route")), "cannot tell")],
)
def test_harm_stands_if_no_later_check_can_tell(later: tuple[Any, ...], verdict: str) -> None:
    harm = EffectVerdict(verdict="worse", evidence="5 of 9 requests fail", final=False)
    action = Patient(harm, *later)
    lab = action.lab(rollback=True)
    entry = execution_of(lab, lab.run())
    check(lab, 2)
    run_out(lab, entry.id)

    assert verdict_on(lab, entry) == verdict
    assert len(action.undone) == (verdict == "worse")


def verdict_on(lab: Lab, entry: ExecutionEntry) -> EffectName | None:
    verification = lab.store.executions.get(entry.id).verification  # type: ignore[union-attr]
    return verification.verdict if verification else None


def test_an_effect_has_to_be_sustained() -> None:
    action = Patient(True, False, True, checks=EffectChecks(sustained=30))
    lab = action.lab()
    entry = execution_of(lab, lab.run())
    check(lab)
    assert verdict_on(lab, entry) is None  # well for the first time
    check(lab)  # it is not well
    check(lab)
    since = f"boyd:{{test}}:verify:{entry.id}"
    assert verdict_on(lab, entry) is None
    lab.client.hset(since, "wellSince", float(lab.client.hget(since, "wellSince") or 0) - 30)
    check(lab)

    assert verdict_on(lab, entry) == "effective"


def test_it_may_be_well_for_long_enough_after_its_time() -> None:
    action = Patient(True, checks=EffectChecks(sustained=30))
    lab = action.lab()
    entry = execution_of(lab, lab.run())
    run_out(lab, entry.id)
    assert verdict_on(lab, entry) is None

    job = f"boyd:{{test}}:verify:{entry.id}"
    lab.client.hset(job, "wellSince", 1)
    check(lab)
    assert verdict_on(lab, entry) == "effective"


def compensation(lab: Lab, entry: ExecutionEntry) -> tuple[str, bool | None]:
    verification = lab.store.executions.get(entry.id).verification  # type: ignore[union-attr]
    assert verification is not None
    assert verification.compensation is not None
    return verification.compensation.state, verification.compensation.restored


def test_a_rollback_is_checked_like_an_action() -> None:
    action = Patient("worse", "worse", False)
    lab = action.lab(rollback=True)
    entry = execution_of(lab, lab.run())
    check(lab)
    assert compensation(lab, entry) == ("rolled back", None)
    check(lab)

    assert compensation(lab, entry) == ("rolled back", True)
    assert [hold.kind for hold in lab.store.holds.all()] == ["rolled back"]
    assert action.suspended == []


@pytest.mark.parametrize(
    ("later", "outcome", "notices"),
    [(False, ("rolled back", True), 1), ("worse", ("not restored", None), 2)],
)
def test_a_rollback_after_a_second_harm_is_checked_too(
    later: Any, outcome: tuple[str, bool | None], notices: int
) -> None:
    action = Patient("worse", "worse", False)
    lab = action.lab(rollback=True)
    lab.run()
    check(lab, 2)
    lab.client.delete("boyd:{test}:hold:p:do:")  # its time has passed
    action.verdicts[:] = ["worse", "worse", later]
    entry = execution_of(lab, lab.run())
    check(lab)
    assert [hold.kind for hold in action.suspended] == ["suspended"]
    assert compensation(lab, entry) == ("rolled back", None)

    lab.client.hset(f"boyd:{{test}}:verify:{entry.id}", "restoredBy", 1)
    check(lab)
    assert compensation(lab, entry) == outcome
    assert len(action.suspended) == notices
    assert lab.client.keys(f"{JOB}*") == []


def test_a_rollback_that_restored_nothing_suspends_the_action() -> None:
    verdict = EffectVerdict(verdict="worse", evidence="9 of 10 requests fail")
    action = Patient(verdict)
    lab = action.lab(rollback=True)
    entry = execution_of(lab, lab.run())
    check(lab)
    lab.client.hset(f"boyd:{{test}}:verify:{entry.id}", "restoredBy", 1)
    check(lab)

    assert compensation(lab, entry) == ("not restored", None)
    [hold] = lab.store.holds.all()
    assert (hold.kind, hold.until, hold.evidence) == ("suspended", None, "9 of 10 requests fail")
    assert [hold.kind for hold in action.suspended] == ["suspended"]
    assert len(action.undone) == 1


def test_plugins_learn_each_verdict_once_it_is_decided() -> None:
    verdicts: list[tuple[str, str | None]] = []

    def learn(execution: ExecutionEntry) -> None:
        verification = execution.verification
        verdicts.append((execution.id, verification.verdict if verification else None))

    recorder = Recorder()
    own = recorder.action(verify=lambda params, result: "effective")
    lab = Lab(Agent("test", plugins=[plugin(chooses(choice()), own, on_verdict=learn)]))
    entry = execution_of(lab, lab.run())
    assert verdicts == []
    check(lab)

    assert verdicts == [(entry.id, "effective")]


def test_a_hook_that_fails_to_learn_a_verdict_delays_nothing() -> None:
    def learn(execution: ExecutionEntry) -> None:
        raise OSError("no disk")

    own = Recorder().action(verify=lambda params, result: "effective")
    lab = Lab(Agent("test", plugins=[plugin(chooses(choice()), own, on_verdict=learn)]))
    entry = execution_of(lab, lab.run())
    check(lab)

    after = lab.store.executions.get(entry.id)
    assert after is not None
    assert after.verification is not None
    assert after.verification.verdict == "effective"
    assert lab.client.keys(f"{JOB}*") == []
