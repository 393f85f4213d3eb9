"""Actions earn to run alone by outcomes and a person's approval, and lose it by failures."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boyd import Agent, naming
from boyd.errors import ConfigError
from boyd.models import (
    Actor,
    Anomaly,
    ApprovalItem,
    Autonomy,
    CallRequest,
    Decision,
    EarnedAutonomy,
    EffectVerdict,
    ExecutionEntry,
    Fence,
    Gate,
    JsonObject,
    LoopResult,
    TrackRecord,
)
from boyd.plugin import Strategy
from boyd.replay.differences import judge
from boyd.replay.shadow import Shadow
from boyd.runtime import revoke
from boyd.runtime.autonomy import offers
from boyd.settings.permissions import AutonomyRule
from boyd.testing import Lab
from boyd.text.sequential_bounds import DropTest
from kit import Recorder, choice, overdue, person, plugin

ACTION = "p:do"
#: No case waits, and none needs to have waited.
NO_TRIAL: JsonObject = {"holdout": 0, "require_uplift": False}
#: Earned after six effective executions without a failure.
RULE: JsonObject = {"mode": "earned", "at_least": 0.5, "after": 5, **NO_TRIAL}
STRAIGHT = 6
TRACKS = "boyd:{test}:track:p:do"


class Office:
    """An agent that always decides on one action, and people who approve it."""

    def __init__(
        self,
        rule: JsonObject | None = None,
        before_act: bool = False,
        approvals: JsonObject | None = None,
        **settings: Any,
    ) -> None:
        self.verdict: Any = True
        self.requires_approval = False
        self.on_before_act: Callable[[], object] = lambda: None
        self.on_suspend: Callable[[], object] = lambda: None
        self.on_verdict: Callable[[], object] = lambda: None
        self.confidence = 0.9
        self.anomalies = [Anomaly(type="slow", description="", severity="high")]
        self.withdrawn: list[tuple[TrackRecord, ExecutionEntry]] = []
        self.recorder = Recorder()
        # The verdict is on what was done.
        action = self.recorder.action(verify=lambda result: self.verdict, **settings)
        hooks: dict[str, Any] = {"on_before_act": lambda: self._before()} if before_act else {}
        own = plugin(
            Strategy(name="s", decide=self._decision),
            action,
            on_orient=lambda: {"anomalies": [anomaly.to_wire() for anomaly in self.anomalies]},
            on_withdraw=lambda record, execution: self.withdrawn.append((record, execution)),
            on_suspend=lambda: self.on_suspend(),
            on_verdict=lambda: self.on_verdict(),
            **hooks,
        )
        rules = {ACTION: rule or RULE}
        of_agent: dict[str, Any] = {
            "autonomy": rules,
            "verification": HOLDS_NOT,
            "approvals": approvals or {},
        }
        self.lab = Lab(Agent("test", plugins=[own], **of_agent))

    def _decision(self) -> Decision:
        return choice(confidence=self.confidence, requires_approval=self.requires_approval)

    def _before(self) -> None:
        self.on_before_act()

    def decide(self, approve: bool = True, verify: bool = True) -> LoopResult:
        """Run an iteration; approve its action if it waits, and let it be verified."""
        result = self.lab.run()
        item = self.waiting(ACTION)
        if item and approve:
            self.answer(item)
        if verify:
            self.verify()
        return result

    def earn(self) -> ApprovalItem:
        """Let the action be effective often enough; the offer that follows."""
        self.decide()
        self.change({"effective": STRAIGHT - 1})
        self.decide()
        offer = self.waiting(naming.GRANT)
        assert offer is not None
        return offer

    def change(self, changes: JsonObject) -> None:
        """Change the only track record in Redis."""
        [(classed, text)] = [
            row for row in self.lab.client.hgetall(TRACKS).items() if row[0] != "*"
        ]
        self.lab.client.hset(TRACKS, classed, json.dumps(json.loads(text) | changes))

    def let_run_alone(self) -> None:
        """Have a person let the action run alone."""
        self.answer(self.earn())

    def waiting(self, action: str) -> ApprovalItem | None:
        """The pending approval of an action."""
        pending = self.lab.store.approvals.page(20, history=False).pending
        return next((item for item in pending if item.action_id == action), None)

    def answer(self, item: ApprovalItem, verdict: Any = "approved") -> ApprovalItem:
        """Answer as a person, and let workers do what follows."""
        self.lab.resolver.answer(item.id, verdict, person("ann"))
        self.lab.deliver()
        approval = self.lab.store.approvals.get(item.id)
        assert approval is not None
        return approval

    def verify(self) -> None:
        """Let the time pass until the next check."""
        for name in self.lab.client.zrange("boyd:{test}:due", 0, -1):
            if name.startswith("verify:"):
                overdue(self.lab, name)

    @property
    def record(self) -> TrackRecord:
        """The only track record."""
        [track] = self.lab.store.track_records.all([ACTION])
        return track


#: What did not help may be repeated at once.
HOLDS_NOT = {ACTION: {"hold": False}}


def gate_of(result: LoopResult) -> Gate:
    """The gate's answer."""
    assert result.gate is not None
    return result.gate


def deny(office: Office, offer: ApprovalItem) -> None:
    """Have a person deny an offer."""
    office.answer(offer, "denied")


def events(office: Office) -> list[str]:
    """The kinds of events about autonomy."""
    entries = office.lab.client.xrange("boyd:{test}:events")
    return [fields["kind"] for _, fields in entries if fields["kind"].startswith("autonomy.")]


def audit_kinds(office: Office) -> list[str]:
    """The kinds of entries in the audit about autonomy."""
    office.lab.whole.seal(["test"])
    entries = office.lab.store.audit_trail.entries()
    return [entry.kind for entry in entries if entry.kind.startswith("autonomy.")]


def test_a_person_is_asked_until_the_action_has_earned_to_run_alone() -> None:
    office = Office()
    gate = gate_of(office.decide())
    assert gate.outcome == "asked"
    assert "nobody lets it run alone in such situations yet" in gate.reason
    office.change({"effective": STRAIGHT - 2})
    office.decide()
    assert office.waiting(naming.GRANT) is None
    office.decide()

    offer = office.waiting(naming.GRANT)
    assert offer is not None
    assert offer.title == "let p:do run alone: slow"
    assert offer.required.person
    # Still asked: an offer is no grant.
    assert gate_of(office.decide()).outcome == "asked"

    done = office.answer(offer)
    assert done.result is not None
    assert done.result.success
    gate = gate_of(office.decide())
    assert gate.outcome == "automatic"
    assert f"grant {naming.short(offer.id)} by ann: worked 7 of 7 times" in gate.reason
    assert (gate.grant, gate.at_least) == (offer.id, 0.5)
    assert events(office) == ["autonomy.granted"] == audit_kinds(office)


def test_an_offer_has_the_record_and_a_replay_as_its_evidence() -> None:
    office = Office()
    offer = office.earn()

    assert offer.preview is not None
    evidence = offer.preview.output
    assert isinstance(evidence, dict)
    assert evidence["wouldHaveRunAlone"] == evidence["decidedInSuchSituations"] == 2
    assert evidence["iterations"] == ["2: effective", "1: effective"]
    assert "worked 6 of 6 times" in str(evidence["trackRecord"])


@pytest.mark.parametrize("page", [1, 2])
def test_the_evidence_is_whole_while_an_iteration_is_in_flight(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "_PAGE", page)
    office = Office()
    office.decide()
    office.change({"effective": STRAIGHT - 1})
    office.lab.run()
    item = office.waiting(ACTION)
    assert item is not None
    office.answer(item)
    office.lab.launcher.trigger("test")
    office.lab.dispatcher.hints.clear()  # no worker takes it up
    office.verify()

    offer = office.waiting(naming.GRANT)
    assert offer is not None
    assert offer.preview is not None
    assert isinstance(offer.preview.output, dict)
    assert offer.preview.output["decidedInSuchSituations"] == 2


def test_the_replay_of_an_offer_respects_the_other_rules() -> None:
    office = Office({**RULE, "when": 'situation.priority == "critical"'})
    offer = office.earn()

    assert offer.preview is not None
    assert isinstance(offer.preview.output, dict)
    assert offer.preview.output["decidedInSuchSituations"] == 2
    assert offer.preview.output["wouldHaveRunAlone"] == 0


def test_only_a_person_grants() -> None:
    office = Office()
    offer = office.earn()
    machine = Actor(principal="bot")
    refused = office.lab.resolver.answer(offer.id, "approved", machine)

    assert refused.outcome == "not-an-approver"
    assert office.record.grant is None


def test_a_grant_needs_what_the_strictest_policy_for_the_action_needs() -> None:
    sre: JsonObject = {
        "actions": [ACTION],
        "when": 'situation.priority == "critical"',
        "required": {"groups": ["sre"], "min_approvals": 2},
    }
    office = Office(approvals={"policies": [sre]})
    offer = office.earn()
    assert (offer.required.groups, offer.required.min_approvals) == (["sre"], 2)
    assert office.answer(offer).status == "pending"

    assert office.record.grant is None


def test_a_call_of_a_client_does_not_use_the_earned_autonomy() -> None:
    office = Office()
    office.let_run_alone()
    request = CallRequest(kind="execute", action=ACTION, actor=person("ann"))
    call_id = office.lab.launcher.call(request, None)
    office.lab.deliver()

    call = office.lab.store.calls.get(call_id)
    assert call is not None
    assert call.result is not None
    assert call.result.waits_for


def test_a_proposal_seen_in_two_classes_counts_in_neither() -> None:
    office = Office()
    office.decide(approve=False)
    office.anomalies = [Anomaly(type="down", description="", severity="high")]
    office.decide()

    assert office.lab.store.track_records.all([ACTION]) == []


def test_a_grant_is_only_for_its_class_of_situation() -> None:
    office = Office()
    office.let_run_alone()
    office.anomalies = [Anomaly(type="down", description="", severity="high")]

    assert gate_of(office.decide(approve=False)).outcome == "asked"


def test_nothing_is_granted_by_a_decision_that_requires_an_approval_or_a_closed_window() -> None:
    office = Office()
    office.let_run_alone()
    office.requires_approval = True

    assert gate_of(office.decide(approve=False)).reason == "the decision asked for an approval"


def test_a_freeze_stops_what_runs_alone() -> None:
    office = Office()
    office.let_run_alone()
    office.lab.whole.freezes.freeze("stop", "test", person("ann"))

    [result] = office.decide().action_results
    assert result.prevented == "frozen"


@pytest.mark.parametrize("mode", ["auto", "approval-required"])
def test_a_gated_action_can_earn_to_run_alone(mode: Any) -> None:
    office = Office(autonomy=Autonomy(mode=mode))
    office.let_run_alone()

    assert gate_of(office.decide()).outcome == "automatic"


@pytest.mark.parametrize(
    ("rule", "settings", "reason"),
    [
        (RULE, {"autonomy": Autonomy(mode="human-only")}, "human-only actions cannot earn"),
        (RULE, {"verify": None}, "needs a `verify`"),
        ({"confidence": "calibrated"}, {}, "the action has no min_confidence"),
        ({"at_least": 0.9}, {}, "only with mode"),
        ({}, {}, "it changes nothing"),
        ({"mode": "earned", "at_least": 1.0}, {}, "less than 1"),
    ],
)
def test_autonomy_that_can_never_be_earned_is_refused(
    rule: JsonObject, settings: dict[str, Any], reason: str
) -> None:
    options = {"verify": lambda: True, **settings}
    own = plugin(Recorder().action(**{k: v for k, v in options.items() if v is not None}))
    with pytest.raises(ConfigError, match=reason):
        Agent("test", plugins=[own], autonomy={ACTION: rule})


def test_after_failures_it_falls_back_by_itself_and_tells_people() -> None:
    office = Office()
    office.let_run_alone()
    office.verdict = "no effect"
    for _ in range(math.ceil(DropTest(0.5).limit / DropTest(0.5).failure)):
        assert gate_of(office.decide()).outcome == "automatic"
    assert gate_of(office.decide(approve=False)).outcome == "asked"

    [(record, execution)] = office.withdrawn
    assert record.grant is None
    assert record.withdrawn == 1
    assert "too many failures lately" in (record.ended or "")
    assert record.ended_by == execution.id
    assert events(office) == ["autonomy.granted", "autonomy.withdrawn"] == audit_kinds(office)
    # Counting begins anew, and needs more than at first.
    assert office.record.effective == 0


def test_harm_ends_a_grant_at_once() -> None:
    office = Office()
    office.let_run_alone()
    office.verdict = "worse"
    office.decide()

    [(record, _)] = office.withdrawn
    assert "made it worse" in (record.ended or "")


def test_a_notice_that_fails_repeats_no_other() -> None:
    office = Office()
    office.let_run_alone()
    notices: list[str] = []

    def fail(record: TrackRecord, execution: ExecutionEntry) -> None:
        notices.append("withdrawn")
        raise OSError("mail is down")

    office.lab.agent.host.hooks("on_withdraw")[0].taker.function = fail
    office.on_suspend = lambda: notices.append("suspended")
    office.verdict = "worse"
    office.decide()
    office.verify()

    assert notices == ["suspended", "withdrawn", "withdrawn"]


def test_the_verdict_on_a_revoked_agent_is_learned_and_earns_no_offer_until_it_is_restored() -> (
    None
):
    verdicts: list[str] = []
    office = Office()
    office.on_verdict = lambda: verdicts.append("learned")
    office.decide()
    office.change({"effective": STRAIGHT - 1})
    office.decide(verify=False)
    revoke(office.lab.whole, "test", person("ann"))
    office.verify()
    assert verdicts == ["learned"] * 2
    assert office.lab.client.keys("boyd:{test}:verify:*") == []
    assert office.waiting(naming.GRANT) is None

    office.lab.whole.freezes.restore("test", person("ann"))
    office.decide()
    assert office.waiting(naming.GRANT) is not None


def test_failed_executions_end_a_grant_as_well() -> None:
    office = Office()
    office.let_run_alone()
    office.recorder._error = OSError("down")
    office.change({"drop": 2.9})
    office.decide()
    office.verify()

    [(record, execution)] = office.withdrawn
    assert execution.state == "failed"
    assert record.ended_by == execution.id


def test_unclear_outcomes_count_as_failures_for_a_grant() -> None:
    strict = Office({**RULE, "at_least": 0.9})
    strict.decide()
    strict.change({"effective": 33, "unclear": 21})
    strict.decide()

    assert strict.waiting(naming.GRANT) is None
    assert "worked 34 of 34 times, 21 could not be told; at least 4" in strict.record.words


@given(share=st.floats(0.3, 0.85), seed=st.integers(0, 10_000))
@settings(max_examples=60)
def test_unclear_failures_earn_nothing(share: float, seed: int) -> None:
    chance = random.Random(seed)
    rule = EarnedAutonomy(at_least=0.9, after=20, lasts=60, false_grants=0.001)
    record = TrackRecord(action=ACTION, situation="", label="")
    for _ in range(500):
        field = "effective" if chance.random() < share else "unclear"
        record = record.patched({field: getattr(record, field) + 1})
        assert not record.has_earned(rule)


def test_a_grant_ends_after_unclear_outcomes() -> None:
    office = Office()
    office.let_run_alone()
    office.verdict = EffectVerdict(verdict="cannot tell", final=True)
    for _ in range(8):
        office.decide(approve=False)

    [(record, _)] = office.withdrawn
    assert record.ended is not None
    assert record.ended.startswith("too many failures lately: 0 of 6, ")
    assert record.ended.endswith(" could not be told; all grants of p:do end")


def test_an_offer_says_how_many_people_denied() -> None:
    office = Office()
    office.lab.run()
    item = office.waiting(ACTION)
    assert item is not None
    office.answer(item, "denied")
    lifted = office.lab.store.holds.lift(item.action_id, item.target, person("ann"))
    assert lifted == "lifted"
    offer = office.earn()

    assert offer.preview is not None
    assert isinstance(offer.preview.output, dict)
    assert offer.preview.output["denied"] == 1
    assert offer.preview.output["decidedInSuchSituations"] == 3


def test_an_unclear_verdict_is_no_outcome() -> None:
    office = Office()
    office.verdict = EffectVerdict(verdict="cannot tell", final=True)
    office.decide()

    assert (office.record.outcomes, office.record.unclear) == (0, 1)
    assert office.record.words == "no verified outcome yet, 1 could not be told"


def test_an_effect_of_an_action_that_was_lost_proves_nothing() -> None:
    office = Office()
    office.decide(verify=False)
    [execution] = office.lab.client.keys("boyd:{test}:execution:*")
    office.lab.client.hset(execution, "state", "unknown")
    office.verify()

    assert office.lab.client.hget(execution, "verdict") == "effective"
    assert (office.record.effective, office.record.unclear) == (0, 1)


def test_an_action_called_by_a_person_does_not_count() -> None:
    office = Office()
    call = CallRequest(kind="execute", action=ACTION, actor=person("bob"))
    office.lab.launcher.call(call, None)
    office.lab.deliver()
    item = office.waiting(ACTION)
    assert item is not None
    office.answer(item)
    office.verify()

    assert len(office.recorder.calls) == 1
    assert office.lab.store.track_records.all([ACTION]) == []


def test_a_denied_offer_is_not_repeated_until_there_is_more_to_show() -> None:
    office = Office()
    deny(office, office.earn())
    office.decide()
    assert office.waiting(naming.GRANT) is None

    office.change({"effective": STRAIGHT + 4})
    office.decide()
    assert office.waiting(naming.GRANT) is not None


def test_a_revoked_grant_is_not_used_and_not_offered_at_once() -> None:
    office = Office()
    office.let_run_alone()
    assert office.lab.store.track_records.revoke(ACTION, "", person("bob"), "too early") == 1

    assert gate_of(office.decide()).outcome == "asked"
    assert office.waiting(naming.GRANT) is None
    assert office.record.ended == "revoked: too early"
    assert office.withdrawn == []
    assert audit_kinds(office) == ["autonomy.granted", "autonomy.revoked"]
    assert office.lab.store.track_records.revoke(ACTION, "", person("bob")) == 0


def test_a_grant_that_is_revoked_between_decide_and_act_is_not_used() -> None:
    office = Office(before_act=True)
    office.let_run_alone()
    before = len(office.recorder.calls)
    office.on_before_act = lambda: office.lab.store.track_records.revoke(ACTION, "", person("bob"))
    result = office.decide(approve=False)

    gate = gate_of(result)
    assert (gate.outcome, gate.grant) == ("asked", None)
    assert gate.reason == "the grant to run alone in such situations has ended"
    assert office.waiting(ACTION) is not None
    assert len(office.recorder.calls) == before


def test_a_grant_ends_by_itself_and_is_offered_again() -> None:
    office = Office({**RULE, "lasts": 3600})
    office.let_run_alone()
    grant = office.record.grant
    assert grant is not None
    office.change(
        {"grant": {"id": grant.id, "atLeast": 0.5, "since": 0, "until": 1, "by": ["ann"]}}
    )

    assert gate_of(office.decide()).outcome == "asked"
    office.change({"effective": STRAIGHT + 5})
    office.decide()
    assert office.waiting(naming.GRANT) is not None


def test_a_stricter_rule_does_not_accept_an_old_grant() -> None:
    office = Office()
    office.let_run_alone()
    stricter = AutonomyRule(mode="earned", at_least=0.6).earning_rule
    assert stricter is not None

    assert office.record.valid_grant(stricter, office.lab.store.clock.now()) is None


def test_an_approved_offer_is_refused_if_the_record_has_become_worse() -> None:
    office = Office()
    offer = office.earn()
    office.verdict = "no effect"
    office.decide()
    done = office.answer(offer)

    assert done.result is not None
    assert "does not justify it any more" in (done.result.error or "")
    assert office.record.grant is None


def test_a_grant_job_that_runs_again_does_not_renew_a_revoked_grant() -> None:
    office = Office()
    offer = office.earn()
    office.answer(offer)
    office.lab.store.track_records.revoke(ACTION, "", person("bob"))
    record = office.record
    office.lab.client.hset(
        f"boyd:{{test}}:approval:{offer.id}",
        mapping={"executionState": "running", "executionAttempt": 9, "executionBy": "w/9"},
    )
    fence = Fence(naming.approval(offer.id), 9, "w/9")

    rule = AutonomyRule(**RULE).earning_rule
    assert rule is not None
    tracks = office.lab.store.track_records
    assert not tracks.grant(record, offer.id, ["ann"], rule, record.covers, fence)
    assert office.record.grant is None


def test_the_oldest_class_is_forgotten_when_there_are_too_many() -> None:
    office = Office()
    for number in range(50):
        record = {"label": str(number), "updated": number, "effective": 1}
        office.lab.client.hset(TRACKS, f"c{number}", json.dumps(record))
    granted = {"label": "0", "updated": 0, "grant": {"id": "x"}}
    office.lab.client.hset(TRACKS, "c0", json.dumps(granted))
    office.decide()

    classes = office.lab.client.hkeys(TRACKS)
    assert len(classes) == 50
    assert "c0" in classes
    assert "c1" not in classes


def test_a_replay_judges_with_the_record_of_then() -> None:
    office = Office()
    office.let_run_alone()
    alone = office.decide()
    iteration = office.lab.store.history.get(1)
    assert iteration is not None
    office.lab.store.track_records.revoke(ACTION, "", person("bob"))
    shadow = Shadow(office.lab.agent)

    assert judge(shadow, alone).differences == []
    assert judge(shadow, iteration).differences == []


def test_confidence_is_shown_with_its_record() -> None:
    office = Office()
    office.decide()
    office.decide(approve=False)
    item = office.waiting(ACTION)
    assert item is not None
    assert item.record is not None

    assert item.record.about(0.9) == "worked 1 of 1 time; at least 3 % (95 % confidence)"
    assert "(Brier score) 0.010" in item.record.arithmetic


def test_a_calibrated_confidence_decides_once_it_is_known() -> None:
    office = Office({"confidence": "calibrated"}, autonomy=Autonomy(min_confidence=0.8))
    assert gate_of(office.decide()).reason == "no calibration yet for confidence 0.9"
    office.change({"effective": 10, "scored": 10})

    gate = gate_of(office.decide())
    assert gate.outcome == "automatic"
    assert gate.reason == "the action is auto, and calibrated confidence 0.967 reaches 0.8"


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.floats(0, 1))
def test_calibration_is_never_worse_than_the_base_rate_or_there_is_none(
    history: list[tuple[float, bool]], stated: float
) -> None:
    record = TrackRecord(action=ACTION, situation="s", label="")
    for confidence, effective in history:
        record = count_outcome(record, confidence, effective)
    calibrated = record.calibrate(stated)

    if calibrated is None:
        assert record.scored < 10 or record.calibrated_error > record.base_error
    else:
        assert record.calibrated_error <= record.base_error
        assert 0 <= calibrated <= 1


def count_outcome(record: TrackRecord, confidence: float, effective: bool) -> TrackRecord:
    """The record with one more outcome, as the script counts it."""
    good, number = record.effective, record.outcomes
    calibrated, base = (good + 5 * confidence) / (number + 5), (good + 1) / (number + 2)
    return record.patched(
        {
            "effective": good + effective,
            "failed": record.failed + (not effective),
            "scored": record.scored + 1,
            "stated_error": record.stated_error + (confidence - effective) ** 2,
            "calibrated_error": record.calibrated_error + (calibrated - effective) ** 2,
            "base_error": record.base_error + (base - effective) ** 2,
        }
    )


def test_the_script_counts_as_documented() -> None:
    office = Office()
    expected = TrackRecord(action=ACTION, situation="s", label="")
    for number, effective in enumerate([True, False, True, False]):
        office.confidence = number / 10
        office.verdict = True if effective else "no effect"
        office.decide()
        expected = count_outcome(expected, office.confidence, effective)
    track = office.record

    for name in ("effective", "failed", "scored"):
        assert getattr(track, name) == getattr(expected, name)
    for name in ("stated_error", "calibrated_error", "base_error"):
        assert getattr(track, name) == pytest.approx(getattr(expected, name))
    assert track.rate == pytest.approx(0.5)


def test_without_a_burst_a_record_has_the_fields_that_it_always_had() -> None:
    office = Office({**RULE, "burst": 0})
    office.decide()
    [text] = office.lab.client.hvals(TRACKS)

    assert not {"burst", "bursts"} & json.loads(text).keys()
    assert "bursts" not in office.record.to_wire()


@pytest.mark.parametrize("burst", [-1, 7 * 86400 + 1])
def test_a_burst_is_neither_negative_nor_longer_than_a_week(burst: float) -> None:
    with pytest.raises(ConfigError, match="burst"):
        Office({**RULE, "burst": burst})


def test_an_open_burst_does_not_count_until_an_outcome_comes_after_it() -> None:
    office = Office({**RULE, "burst": 3600})
    for verdict in (True, "no effect", True):
        office.verdict = verdict
        office.decide()
    assert office.record.bursts is None
    burst = json.loads(office.lab.client.hvals(TRACKS)[0])["burst"]
    office.change({"burst": {**burst, "since": burst["since"] - 3_600_000}})
    office.decide()

    assert office.record.bursts == {"66": 1}


def test_an_action_is_not_offered_for_the_outcomes_of_one_burst() -> None:
    office = Office({**RULE, "burst": 3600})
    for _ in range(STRAIGHT + 2):
        office.decide()
    assert office.waiting(naming.GRANT) is None
    office.change({"bursts": {"100": STRAIGHT}})
    office.decide()

    assert office.waiting(naming.GRANT) is not None


def test_an_outcome_is_counted_once_however_often_it_is_recorded() -> None:
    office = Office()
    result = office.decide()
    item = result.action_results[0].waits_for
    name = naming.approval(item or "")
    office.lab.client.hset(
        f"boyd:{{test}}:verify:{name}",
        mapping={"executionState": "running", "executionAttempt": 9, "executionBy": "w/9"},
    )
    fence = Fence(naming.verification(name), 9, "w/9")
    for _ in range(3):
        assert office.lab.store.holds.judge(name, fence, "effective", "", 1, None)

    assert office.record.outcomes == 1


def test_rolling_harm_back_need_not_be_earned() -> None:
    undone: list[Any] = []
    office = Office(rollback=lambda: undone.append(1))
    office.let_run_alone()
    office.verdict = "worse"
    office.decide()

    assert undone == [1]
