"""Policies for approvals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boyd import Agent
from boyd.agent.agent_rules import Circumstances
from boyd.models import (
    NO_SITUATION,
    Actor,
    ApprovalItem,
    ApprovalPolicy,
    Autonomy,
    CallRequest,
    Decision,
    Proposal,
    RunRequest,
    utc_now,
)
from boyd.store import Verdict
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, machine, pending_item, person

GATED = Autonomy(mode="approval-required")


def lab_with(recorder: Recorder | None = None, mode: Any = GATED, **required: Any) -> Lab:
    """A lab whose agent has proposed its action under that policy."""
    action = (recorder or Recorder()).action(autonomy=mode)
    lab = Lab(agent(chooses(choice()), action, approvals={"required": required}))
    lab.run()
    return lab


def now(lab: Lab, item: ApprovalItem) -> ApprovalItem:
    """The item as it is now."""
    approval = lab.store.approvals.get(item.id)
    assert approval is not None
    return approval


def approves(lab: Lab, *actors: Actor, note: str | None = None) -> list[str]:
    """The outcomes when they approve the pending item, one after the other."""
    item = pending_item(lab)
    outcomes = [lab.resolver.answer(item.id, "approved", actor, note).outcome for actor in actors]
    lab.deliver()
    return list(outcomes)


def call(lab: Lab, who: str, **fields: Any) -> str:
    """Have an action executed on behalf of *who*; the call's id."""
    request = CallRequest(kind="execute", action="p:do", actor=person(who), **fields)
    call_id = lab.launcher.call(request, None)
    lab.deliver()
    return call_id


def test_as_many_principals_as_the_policy_asks_for_have_to_approve() -> None:
    recorder = Recorder()
    lab = lab_with(recorder, min_approvals=3)
    item = pending_item(lab)
    answers = []
    for name in ("ann", "bob", "eve", "joe"):
        answers.append(lab.resolver.answer(item.id, "approved", person(name), f"{name} agrees"))
        lab.deliver()
    done = now(lab, item)

    assert [f.outcome for f in answers] == ["counted", "counted", "approved", "not-pending"]
    assert [f.item.status for f in answers if f.item] == ["pending", "pending", *["approved"] * 2]
    assert [(vote.by, vote.note) for vote in done.approvals] == [
        ("ann", "ann agrees"),
        ("bob", "bob agrees"),
        ("eve", "eve agrees"),
    ]
    assert done.acted_by == "eve"
    assert len(recorder.calls) == 1


def test_two_approvals_by_one_principal_count_once() -> None:
    recorder = Recorder()
    lab = lab_with(recorder, min_approvals=2)
    twice = [person("ann"), Actor(principal="ann", key="another", claims="bob")]

    assert approves(lab, *twice) == ["counted", "already-approved"]
    assert (len(pending_item(lab).approvals), recorder.calls) == (1, [])


def test_an_approver_may_still_deny() -> None:
    recorder = Recorder()
    lab = lab_with(recorder, min_approvals=2)
    approves(lab, person("ann"))
    item = pending_item(lab)

    assert (
        lab.resolver.answer(item.id, "denied", person("ann"), "on second thought").outcome
        == "denied"
    )
    assert lab.resolver.answer(item.id, "approved", person("bob")).outcome == "not-pending"
    lab.deliver()
    assert recorder.calls == []


def test_the_caller_of_an_action_may_not_approve_it() -> None:
    recorder = Recorder()
    lab = Lab(agent(recorder.action(autonomy=GATED)))
    call(lab, "ann")

    assert pending_item(lab).requested_by == ["ann"]
    assert approves(lab, person("ann"), person("bob")) == ["requester", "approved"]
    assert len(recorder.calls) == 1


def test_the_submitter_of_a_run_may_not_approve_its_actions() -> None:
    lab = Lab(agent(chooses(choice()), Recorder().action(autonomy=GATED)))
    lab.launcher.submit_run(RunRequest(title="look", description="x"), person("ann"))
    lab.deliver()

    assert approves(lab, person("ann"), person("bob")) == ["requester", "approved"]


def test_a_caller_who_joins_a_pending_item_may_not_approve_it() -> None:
    lab = lab_with()
    call(lab, "ann")
    item = pending_item(lab)

    assert (item.seen, item.requested_by) == (2, ["agent:test", "ann"])
    assert approves(lab, person("ann"), person("bob")) == ["requester", "approved"]


def test_a_run_that_meets_a_pending_item_does_not_make_its_submitter_a_requester() -> None:
    lab = lab_with()
    submitted = lab.launcher.submit_run(
        RunRequest(title="Is all well?", description="x"), person("carol")
    )
    lab.deliver()
    item = pending_item(lab)

    assert (item.seen, item.requested_by, item.run_ids) == (2, [], [submitted.run.id])
    assert approves(lab, person("carol")) == ["approved"]
    run = lab.store.runs.get(submitted.run.id)
    assert run is not None
    assert run.status == "completed", "it gets the outcome all the same"


def test_a_question_leaves_those_who_asked_before_as_they_were() -> None:
    lab = Lab(agent(chooses(choice()), Recorder().action(autonomy=GATED)))
    for name in ("ann", "bob"):
        lab.launcher.submit_run(RunRequest(title="look", description="x"), person(name))
        lab.deliver()

    assert pending_item(lab).requested_by == ["ann"]
    assert approves(lab, person("ann"), person("bob")) == ["requester", "approved"]


def test_a_repeated_request_keeps_its_reason_on_the_item() -> None:
    lab = Lab(agent(Recorder().action(autonomy=GATED)))
    call(lab, "ann")
    call(lab, "ann", rationale="disk alarm 42")
    call(lab, "bob", rationale="the same on host b")
    item = pending_item(lab)

    assert item.requested_by == ["ann", "bob"]
    assert [(request.by, request.rationale) for request in item.asked] == [
        ("ann", "disk alarm 42"),
        ("bob", "the same on host b"),
    ]
    assert all(request.at >= item.created_at for request in item.asked)


def test_the_requester_may_approve_where_the_policy_says_so() -> None:
    settings = {"required": {"allow_requester": True}}
    lab = Lab(agent(Recorder().action(autonomy=GATED), approvals=settings))
    call(lab, "ann")

    assert approves(lab, person("ann")) == ["approved"]


def test_a_requester_may_deny_and_withdraw() -> None:
    lab = Lab(agent(Recorder().action(autonomy=GATED)))
    verdicts: list[Verdict] = ["denied", "withdrawn"]
    outcomes = []
    for verdict in verdicts:
        call(lab, "ann")
        outcomes.append(
            lab.resolver.answer(pending_item(lab).id, verdict, person("ann"), "no").outcome
        )

    assert outcomes == verdicts


@pytest.mark.parametrize(
    ("required", "actor", "outcome"),
    [
        ({"groups": ["ops"]}, person("ann", "dev", "ops"), "approved"),
        ({"groups": ["ops"]}, person("ann", "dev"), "not-an-approver"),
        ({"groups": ["ops"]}, person("ops"), "not-an-approver"),
        ({"principals": ["ann"]}, person("ann"), "approved"),
        ({"principals": ["ann"]}, person("bob"), "not-an-approver"),
        ({"principals": ["ann"], "groups": ["ops"]}, person("bob", "ops"), "approved"),
        ({"principals": ["ann"], "groups": ["ops"]}, person("bob"), "not-an-approver"),
        ({"person": True}, machine("ann"), "not-an-approver"),
        ({"person": True, "groups": ["ops"]}, machine("ann"), "not-an-approver"),
        ({}, machine("ci"), "approved"),
    ],
)
def test_the_policy_says_who_may_approve(
    required: dict[str, Any], actor: Actor, outcome: str
) -> None:
    assert approves(lab_with(**required), actor) == [outcome]


def test_human_only_takes_a_person_whatever_the_policy_says() -> None:
    lab = lab_with(mode=Autonomy(mode="human-only"), groups=["ops"])
    robot = Actor(principal="bot", groups=["ops"], claims="ann")

    assert approves(lab, robot, person("ann", "ops")) == ["not-an-approver", "approved"]


@pytest.mark.parametrize("note", [None, "", "  \n"])
def test_where_a_note_is_required_there_is_no_answer_without_one(note: str | None) -> None:
    lab = lab_with(require_note=True)
    item = pending_item(lab)

    assert lab.resolver.answer(item.id, "approved", person("ann"), note).outcome == "note-required"
    assert lab.resolver.answer(item.id, "denied", person("ann"), note).outcome == "note-required"
    assert pending_item(lab) == item
    assert lab.resolver.answer(item.id, "approved", person("ann"), "CHG-1").outcome == "approved"


def policy_of(policed: Agent, decision: Decision) -> ApprovalPolicy:
    """The policy for a decision of that agent, in no particular situation."""
    action = policed.host.actions[decision.action]
    return policed.policy(Circumstances(action, decision, NO_SITUATION, utc_now))


def test_the_first_policy_that_fits_applies() -> None:
    policies = [
        {"actions": ["q:*"], "required": {"min_approvals": 9}},
        {"actions": ["p:*"], "risk": ["critical"], "required": {"min_approvals": 3}},
        {"actions": ["p:d?"], "required": {"min_approvals": 2}},
        {"required": {"min_approvals": 8}},
    ]
    other = Recorder().action("other")
    policed = agent(Recorder().action(), other, approvals={"policies": policies})

    assert policy_of(policed, choice()).min_approvals == 2
    assert policy_of(policed, choice(risk="critical")).min_approvals == 3
    assert policy_of(policed, choice("p:other")).min_approvals == 8


@pytest.mark.parametrize(("action", "decision"), [("critical", "low"), ("low", "critical")])
def test_of_two_risks_the_higher_one_finds_the_policy(action: Any, decision: Any) -> None:
    """A strategy that says nothing about the risk means low: that must not weaken the policy."""
    policies = [
        {"risk": ["low", "medium"], "required": {"min_approvals": 1}},
        {"risk": ["high", "critical"], "required": {"min_approvals": 2}},
    ]
    policed = agent(Recorder().action(risk=action), approvals={"policies": policies})

    assert policy_of(policed, choice(risk=decision)).min_approvals == 2


def test_without_a_fitting_policy_the_agents_own_applies() -> None:
    policed = agent(
        Recorder().action(),
        approvals={
            "required": {"min_approvals": 4},
            "policies": [{"actions": ["x:*"], "required": {}}],
        },
    )

    assert policy_of(policed, choice()).min_approvals == 4


def test_the_policy_is_frozen_on_the_item_when_it_is_proposed() -> None:
    lab = lab_with(min_approvals=2)
    lax = Lab(agent(Recorder().action(autonomy=GATED)), client=lab.client)
    item = pending_item(lax)

    assert item.required.min_approvals == 2
    assert lax.resolver.answer(item.id, "approved", person("ann")).outcome == "counted"


def test_an_answer_to_another_version_of_the_item_is_refused() -> None:
    lab = lab_with(min_approvals=3)
    item = pending_item(lab)
    resolver, eve = lab.resolver, person("eve")
    resolver.answer(item.id, "approved", person("ann"))
    late = [
        resolver.answer(item.id, "approved", eve, version=item.version),
        resolver.answer(item.id, "denied", eve, version=item.version),
        resolver.answer(item.id, "withdrawn", eve, version=item.version),
    ]
    current = now(lab, item).version
    counted = resolver.answer(item.id, "approved", eve, version=current)

    assert [answer.outcome for answer in late] == ["changed"] * 3
    assert counted.outcome == "counted"
    assert counted.item is not None
    assert counted.item.version == current + 1
    assert resolver.answer(item.id, "approved", person("bob"), version=current).outcome == "changed"


def test_a_proposal_that_comes_again_does_not_change_the_version() -> None:
    """Or nobody could answer what was shown to him while the fault lasts."""
    lab = lab_with()
    item = pending_item(lab)
    lab.run()

    assert pending_item(lab).seen == 2
    assert lab.resolver.answer(item.id, "approved", person("ann"), version=item.version).counts


def test_a_refused_answer_leaves_the_item_as_it_is() -> None:
    lab = lab_with(groups=["ops"], min_approvals=2)
    approves(lab, person("ann", "ops"))
    item = pending_item(lab)

    assert approves(lab, person("ann", "ops"), person("bob")) == [
        "already-approved",
        "not-an-approver",
    ]
    assert pending_item(lab) == item


@pytest.mark.parametrize("verdict", ["approved", "denied", "withdrawn"])
def test_the_claimed_name_is_recorded_beside_the_principal(verdict: Verdict) -> None:
    lab = lab_with()
    item = pending_item(lab)
    gateway = Actor(principal="gateway", claims="ann")
    lab.resolver.answer(item.id, verdict, gateway, "why")
    done = now(lab, item)

    assert (done.acted_by, done.claimed_by, done.note) == ("gateway", "ann", "why")


def test_every_vote_keeps_its_claim_and_key() -> None:
    lab = lab_with(min_approvals=2)
    approves(lab, Actor(principal="gateway", key="k1", claims="ann"))
    [vote] = pending_item(lab).approvals

    assert (vote.by, vote.key, vote.claims) == ("gateway", "k1", "ann")


def test_a_claim_to_be_the_requester_or_somebody_else_changes_nothing() -> None:
    lab = Lab(agent(Recorder().action(autonomy=GATED)))
    call(lab, "ann")

    assert approves(lab, Actor(principal="ann", claims="bob")) == ["requester"]


def test_a_late_answer_returns_the_resolved_item() -> None:
    lab = lab_with()
    item = pending_item(lab)
    lab.resolver.answer(item.id, "denied", person("ann"), "no")
    late = lab.resolver.answer(item.id, "approved", person("bob"))

    assert late.outcome == "not-pending"
    assert late.item is not None
    assert (late.item.status, late.item.acted_by, late.item.note) == ("denied", "ann", "no")


def test_an_expired_item_takes_no_vote() -> None:
    lab = lab_with(min_approvals=2)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})
    late = lab.resolver.answer(item.id, "approved", person("bob"))

    assert late.outcome == "not-pending"
    assert late.item is not None
    assert (late.item.status, [vote.by for vote in late.item.approvals]) == ("expired", ["ann"])


def test_items_put_in_from_outside_have_their_own_policy() -> None:
    lab = Lab(agent(Recorder().action()))
    decision = Decision(action="p:do", rationale="x", confidence=1.0)
    proposal = Proposal(
        decision=decision,
        action_id="p:do",
        params={},
        loop_iteration=0,
        required=ApprovalPolicy(principals=["ann"]),
    )
    lab.store.approvals.enqueue(proposal, lab.engine.retention)

    assert approves(lab, person("bob"), person("ann")) == ["not-an-approver", "approved"]


@pytest.mark.parametrize(
    ("now_asked", "reason"),
    [
        ({"approvals": {"required": {"min_approvals": 2}}}, "policy has been tightened"),
        ({"approvals": {"required": {"groups": ["ops"]}}}, "policy has been tightened"),
    ],
)
def test_a_policy_that_asks_for_more_by_the_time_of_the_execution_refuses(
    now_asked: Any, reason: str
) -> None:
    recorder = Recorder()
    action = recorder.action(autonomy=GATED)
    before = Lab(agent(chooses(choice()), action))
    before.run()
    item = pending_item(before)
    before.resolver.answer(item.id, "approved", person("ann"))
    after = Lab(
        agent(chooses(choice()), recorder.action(autonomy=GATED), **now_asked), client=before.client
    )
    after.jobs.execute(f"approval:{item.id}", 1)
    result = now(after, item).result

    assert result is not None
    assert reason in (result.error or "")
    assert recorder.calls == []


def test_an_action_now_human_only_is_not_executed_on_the_approval_of_a_program() -> None:
    recorder = Recorder()
    before = Lab(agent(chooses(choice()), recorder.action(autonomy=GATED)))
    before.run()
    item = pending_item(before)
    before.resolver.answer(item.id, "approved", machine("robot"))
    human = recorder.action(autonomy=Autonomy(mode="human-only"))
    after = Lab(agent(chooses(choice()), human), client=before.client)
    after.jobs.execute(f"approval:{item.id}", 1)
    result = now(after, item).result

    assert result is not None
    assert not result.success
    assert recorder.calls == []


def test_an_approval_that_counts_and_does_not_suffice_is_on_the_record_with_its_note() -> None:
    lab = lab_with(min_approvals=2)
    lab.resolver.answer(pending_item(lab).id, "approved", person("ann"), "looks right")
    lab.store.audit_trail.seal()
    entry = lab.store.audit_trail.page(1).entries[0]

    assert (entry.kind, entry.who, entry.note) == ("approval.vote", "ann", "looks right")
    assert entry.what["action"] == "p:do"


# The code behind an approval


def test_an_approval_names_the_code_it_was_proposed_with() -> None:
    lab = lab_with()
    code = lab.agent.code_of("p:do")

    assert code is not None
    assert code.startswith("p ")
    assert pending_item(lab).code == code
    assert [action.code for action in lab.agent.catalog.actions] == [code]


@pytest.mark.parametrize("code", ["any", "same"])
def test_other_code_than_was_proposed_runs_unless_the_policy_refuses_it(code: str) -> None:
    recorder = Recorder()
    lab = lab_with(recorder, code=code)
    item = pending_item(lab)
    lab.client.hset(f"boyd:{{test}}:approval:{item.id}", "code", json.dumps("p 0.9"))
    assert approves(lab, person("ann")) == ["approved"]

    result = now(lab, item).result
    assert result is not None
    if code == "any":
        assert result.success
        return
    assert recorder.calls == []
    assert result.error is not None
    assert "its code has changed since it was proposed: p 0.9 then, p " in result.error


def test_code_that_has_not_changed_runs_under_a_strict_policy() -> None:
    recorder = Recorder()
    lab = lab_with(recorder, code="same")

    assert approves(lab, person("ann")) == ["approved"]
    assert len(recorder.calls) == 1


def test_only_what_may_still_run_is_compared_with_the_code_of_now() -> None:
    lab = lab_with()
    item = pending_item(lab)
    lab.resolver.answer(item.id, "denied", person("ann"))

    assert item.compare_code("p 2").change_of_code == (
        f"changed since it was proposed: {item.code} then, p 2 now"
    )
    assert item.compare_code(item.code).change_of_code is None
    assert item.compare_code(None).change_of_code is None
    assert now(lab, item).compare_code("p 2").change_of_code is None


def test_an_approval_says_that_its_action_is_gone() -> None:
    item = pending_item(lab_with())
    later = Lab(Agent("test")).engine.entry().compare_code(item)

    assert later.change_of_code == (
        f"changed since it was proposed: {item.code} then, no such action now"
    )
