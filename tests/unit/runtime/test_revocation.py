"""One step revokes an agent's right to act."""

from __future__ import annotations

from typing import Any

import pytest

from boyd.errors import AgentRevoked
from boyd.models import Autonomy, CallRequest, Proposal
from boyd.models.investigation import Discarded, InvestigationRequest
from boyd.runtime import revoke
from boyd.runtime.approvals import enqueue_approval
from boyd.testing import TESTER, Lab
from boyd.testing.model_server import call, hang, say
from kit import LAX, Recorder, agent, choice, chooses, person
from model_kit import Scene, scene

ANN = person("ann")
GATED = Autonomy(mode="approval-required")


def revoke_agent(lab: Lab) -> Any:
    """Revoke the lab's agent."""
    return revoke(lab.whole, lab.agent.id, ANN, "stolen key")


def acting(recorder: Recorder, **settings: Any) -> Lab:
    """A lab whose agent does the same in each iteration."""
    return Lab(agent(chooses(choice()), recorder.action(**settings)))


def test_no_action_of_a_revoked_agent_starts_until_it_is_restored() -> None:
    recorder = Recorder()
    lab = acting(recorder)
    revoke_agent(lab)
    [result] = lab.run().action_results

    assert result.error == "The agent's right to act is revoked: stolen key (by ann)"
    assert result.prevented == "revoked"
    assert recorder.calls == []
    lab.whole.freezes.restore(lab.agent.id, ANN)
    assert lab.run().action_results[0].success


def test_other_agents_keep_the_right_to_act() -> None:
    recorder = Recorder()
    lab = acting(recorder)
    revoke(lab.whole, "another", ANN)

    assert lab.run().action_results[0].success


def test_a_revocation_withdraws_pending_approvals_and_prevents_new_ones() -> None:
    lab = acting(Recorder(), autonomy=GATED)
    lab.run()
    [item] = lab.store.approvals.page(50).pending
    done = revoke_agent(lab)
    approval = lab.store.approvals.get(item.id)

    assert done.approvals == 1
    assert approval is not None
    assert (approval.status, approval.acted_by) == ("withdrawn", "ann")
    assert approval.note == "the agent's right to act is revoked"
    [result] = lab.run().action_results
    assert result.prevented == "revoked"
    assert lab.store.approvals.page(50).pending == []


def test_an_action_approved_before_the_revocation_is_not_executed() -> None:
    recorder = Recorder()
    lab = acting(recorder, autonomy=GATED)
    lab.run()
    [item] = lab.store.approvals.page(50).pending
    lab.resolver.answer(item.id, "approved", ANN)
    revoke_agent(lab)
    lab.deliver()
    approval = lab.store.approvals.get(item.id)

    assert approval is not None
    assert approval.result is not None
    assert approval.result.prevented == "revoked"
    assert recorder.calls == []


@pytest.mark.parametrize("ordered", ["call", "approval"])
def test_an_order_from_before_a_revocation_is_refused_also_after_the_right_was_given_back(
    ordered: str,
) -> None:
    recorder = Recorder()
    lab = acting(recorder, autonomy=GATED if ordered == "approval" else Autonomy())
    if ordered == "approval":
        lab.run()
        [item] = lab.store.approvals.page(50).pending
        lab.resolver.answer(item.id, "approved", ANN)
        lab.client.hset(f"boyd:{{test}}:approval:{item.id}", "resolvedAt", 1)
    else:
        request = CallRequest(kind="execute", action="p:do", params={}, actor=ANN)
        lab.client.hset(f"boyd:{{test}}:call:{lab.launcher.call(request, None)}", "createdAt", 1)
    revoke_agent(lab)
    lab.whole.freezes.restore(lab.agent.id, ANN)
    lab.deliver()

    assert recorder.calls == []
    assert lab.run().action_results[0].prevented != "revoked"


def test_a_program_cannot_queue_an_approval_for_a_revoked_agent() -> None:
    lab = acting(Recorder())
    revoke_agent(lab)
    proposal = Proposal(
        decision=choice(),
        action_id="p:do",
        action_name="do",
        params={},
        risk="low",
        autonomy=GATED,
        loop_iteration=0,
        run_ids=[],
        required=LAX,
    )

    with pytest.raises(AgentRevoked, match="stolen key"):
        enqueue_approval(lab.store, proposal)


def test_lifting_a_revocation_keeps_an_earlier_freeze() -> None:
    lab = acting(Recorder())
    lab.whole.freezes.freeze("moving", lab.agent.id)
    revoke_agent(lab)
    status = lab.store.loop_control.status()

    assert (status.frozen, status.revoked) == ("moving", "stolen key (by ann)")
    assert set(lab.whole.freezes.all()) == set(lab.whole.freezes.revocations()) == {lab.agent.id}
    lab.whole.freezes.restore(lab.agent.id)
    assert lab.run().action_results[0].prevented == "frozen"


def test_revoking_and_restoring_are_in_the_audit_and_the_events() -> None:
    lab = acting(Recorder())
    first = lab.store.events.newest()
    revoke_agent(lab)
    lab.whole.freezes.restore(lab.agent.id, ANN)
    lab.store.audit_trail.seal()
    entries = [entry for entry in lab.store.audit_trail.page(50).entries if "scope" in entry.what]

    assert [(e.kind, e.before, e.after, e.who) for e in reversed(entries)] == [
        ("agent.revoked", "acting", "revoked", "ann"),
        ("agent.restored", "revoked", "acting", "ann"),
    ]
    kinds = [event.kind for event in lab.store.events.after(first)]
    assert kinds == ["agent.revoked", "agent.restored"]


def test_a_revocation_that_redis_has_lost_is_written_back_by_the_next_heartbeat() -> None:
    recorder = Recorder()
    lab = acting(recorder)
    revoke_agent(lab)
    [info] = lab.whole.fleet.workers()
    lab.whole.fleet.beat(info)
    lab.client.delete("boyd:{*}:frozen")
    lab.whole.fleet.beat(info)

    assert lab.run().action_results[0].prevented == "revoked"
    assert recorder.calls == []


def begin_question(here: Scene) -> None:
    """Ask, without letting a worker take it up."""
    request = InvestigationRequest(question="Why?")
    here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention)


def test_the_investigations_of_a_revoked_agent_end_with_what_they_have_asked_for() -> None:
    with scene(call("restart", {"word": "web"}), say("done")) as here:
        waiting = here.ask()
        done = revoke_agent(here.lab)
        investigation = here.settle()

        assert (done.approvals, done.investigations) == (1, 1)
        assert investigation.ending == "cancelled"
        item = here.lab.store.approvals.get(waiting.approval_id or "")
        assert item is not None
        assert item.status == "withdrawn"
        assert len(here.model.requests) == 1


def test_an_investigation_that_is_asked_for_later_ends_at_once() -> None:
    with scene(say("done")) as here:
        revoke_agent(here.lab)
        investigation = here.ask()

        assert investigation.ending == "cancelled"
        assert "The agent's right to act is revoked: stolen key" in (investigation.detail or "")
        assert here.model.requests == []


def test_a_freeze_of_all_agents_halts_models_until_it_is_lifted() -> None:
    with scene(say("It was the disk.")) as here:
        here.lab.whole.freezes.freeze("incident")
        begin_question(here)
        waits = here.settle()
        assert (waits.status, here.model.requests) == ("running", [])

        here.lab.whole.freezes.lift()
        here.lab.client.hset(f"boyd:{{detective}}:investigation:{here.id}", "executionNotBefore", 1)
        here.lab.client.zadd("boyd:{detective}:due", {f"investigation:{here.id}": 1})
        assert here.settle().text == "It was the disk."


def test_a_freeze_of_one_agent_leaves_its_model_alone() -> None:
    with scene(say("It was the disk.")) as here:
        here.lab.whole.freezes.freeze("incident", "detective")

        assert here.ask().text == "It was the disk."


class Stopping:
    """A reply during which somebody stops the agent."""

    stop: Any

    def __call__(self, _: Any) -> Any:
        self.stop()
        return hang(30, say("late"))


def test_a_request_to_the_model_that_runs_is_cut_off() -> None:
    stopping = Stopping()
    with scene(stopping) as here:
        stopping.stop = lambda: revoke_agent(here.lab)
        investigation = here.ask()

        assert investigation.ending == "cancelled"
        counted = here.lab.client.hgetall("boyd:{detective}:usage")
        assert counted["requests abandoned scripted"] == "1"


def test_a_request_that_a_freeze_of_all_agents_has_cut_off_is_made_again_afterwards() -> None:
    stopping = Stopping()
    with scene(stopping, say("It was the disk.")) as here:
        freezes = here.lab.whole.freezes
        stopping.stop = lambda: freezes.freeze("incident")
        assert here.ask().status == "running"

        freezes.lift()
        here.lab.client.hset(f"boyd:{{detective}}:investigation:{here.id}", "executionNotBefore", 1)
        here.lab.client.zadd("boyd:{detective}:due", {f"investigation:{here.id}": 1})
        assert here.settle().text == "It was the disk."
        assert [entry.why for entry in here.entries(Discarded)] == ["Actions are frozen: incident"]


def test_a_model_request_during_a_freeze_fails_with_the_reason() -> None:
    from boyd.llm.model_errors import ModelError

    with scene(say("never")) as here:
        here.lab.whole.freezes.freeze("incident")
        ctx = here.lab.engine.context("tools")

        with pytest.raises(ModelError, match="Actions are frozen: incident"):
            ctx.llm.ask("Why?")
        assert here.model.requests == []
