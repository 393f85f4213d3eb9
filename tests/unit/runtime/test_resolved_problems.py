"""Approvals whose problem ends while they wait, or lasts when they are denied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from boyd import Agent
from boyd.models import Actor, Anomaly, ApprovalItem, Autonomy
from boyd.plugin import Action, Observer, Orienter, Strategy
from boyd.store import ItemAnswer, Retention
from boyd.testing import Lab
from kit import LAX, assessed, call_action, choice, person, plugin, seen

DOWN = Anomaly(
    type="endpoint-down", description="web is down", severity="high", affected_resources=["web"]
)
OTHER = DOWN.patched({"type": "disk-full", "affected_resources": ["db"]})


class World:
    """An agent that asks for a restart while an anomaly is open, and what it sees."""

    def __init__(self, concurrency: int | None = None, **required: Any) -> None:
        self.anomalies = [DOWN]
        self.is_blind = False
        self.once_decided: Callable[[], None] = lambda: None
        parts = plugin(
            Observer(name="probe", observe=self._observe),
            Orienter(name="sense", orient=self._assess),
            Strategy(name="fix", decide=self._decide),
            Action(
                name="restart",
                execute=lambda: "done",
                target="host",
                concurrency=concurrency,
                autonomy=Autonomy(mode="approval-required"),
            ),
            on_decide=lambda: self.once_decided(),
        )
        self.lab = Lab(Agent("test", plugins=[parts], approvals={"required": required}))
        self.lab.run()
        [self.id] = [item.id for item in self.lab.store.approvals.page(9).pending]

    def item(self) -> ApprovalItem:
        """The approval now."""
        item = self.lab.store.approvals.get(self.id)
        assert item is not None
        return item

    def look(self, *anomalies: Anomaly) -> ApprovalItem:
        """The approval after an iteration that finds *anomalies*."""
        self.anomalies = list(anomalies)
        self.lab.run()
        return self.item()

    def _observe(self) -> Any:
        if self.is_blind:
            raise ConnectionError("refused")
        return [seen("probe")]

    def _assess(self) -> Any:
        return assessed("looked", source="p:sense", anomalies=self.anomalies or None)

    def _decide(self) -> Any:
        return choice("p:restart", params={"host": "web"}) if self.anomalies else None


def test_an_approval_is_marked_when_its_problem_ends() -> None:
    world = World()
    assert world.item().symptoms == ["endpoint on web"]
    assert not world.item().problem_ended
    item = world.look(OTHER)

    assert item.status == "pending"
    assert item.end_of_problem == "The problem is over: endpoint on web"
    [listed] = world.lab.store.approvals.page(9).pending
    assert listed.problem_ended


def test_the_mark_goes_when_the_problem_comes_back() -> None:
    world = World()
    world.look()

    assert not world.look(DOWN).problem_ended


def test_a_milder_form_of_the_problem_is_no_end_of_it() -> None:
    mild = DOWN.patched({"type": "endpoint-slow", "severity": "low"})

    assert not World().look(mild).problem_ended


def test_a_problem_that_cannot_be_seen_has_not_ended() -> None:
    world = World()
    world.is_blind = True

    assert not world.look().problem_ended


@pytest.mark.parametrize("spoil", ["delete", "replace"])
def test_a_problem_has_not_ended_because_its_record_is_lost(spoil: str) -> None:
    world = World()
    world.lab.client.delete("boyd:{test}:symptoms")
    if spoil == "replace":
        world.lab.client.hset("boyd:{test}:symptoms", "not", "ours")

    assert not world.item().problem_ended
    [listed] = world.lab.store.approvals.page(9).pending
    assert not listed.problem_ended


def test_a_policy_withdraws_an_approval_whose_problem_ended() -> None:
    item = World(on_resolved="withdraw").look()

    assert (item.status, item.acted_by) == ("withdrawn", "agent:test")
    assert (item.note or "").startswith("The situation has cleared")


def test_an_approval_that_a_person_asked_for_too_is_not_withdrawn() -> None:
    world = World(on_resolved="withdraw")
    proposal = world.item().patched({"requested_by": ["ann"], "bound_to": None})
    world.lab.store.approvals.enqueue(proposal, world.lab.engine.retention)
    item = world.look()

    assert (item.status, item.problem_ended) == ("pending", True)


def test_an_approval_can_be_given_after_the_end_of_its_problem() -> None:
    world = World()
    world.look()
    resolution = world.lab.resolver.answer(world.id, "approved", person("ann"))

    assert resolution.item is not None
    assert resolution.item.status == "approved"
    assert not world.item().problem_ended


def _deny(world: World) -> None:
    answer = ItemAnswer("denied", Actor(principal="eve"), "not at night")
    world.lab.store.approvals.resolve(world.id, answer, LAX, Retention(ttl=600))


@pytest.mark.parametrize("concurrency", [1, 0], ids=["one at a time", "any number"])
def test_a_denied_action_is_not_asked_for_again_while_its_problem_lasts(concurrency: int) -> None:
    world = World(concurrency=concurrency)
    _deny(world)
    world.look(DOWN.patched({"severity": "critical"}))
    [hold] = world.lab.store.holds.all()
    [result] = world.lab.store.history.results(1)

    assert world.lab.store.approvals.page(9).pending == []
    assert (hold.kind, hold.by, hold.evidence) == ("denied", "eve", "not at night")
    assert hold.until is not None
    assert (hold.until - hold.since).total_seconds() == 600
    assert result.trace is not None
    [passed_over] = result.trace.held
    assert "eve denied it at" in passed_over.reason
    assert passed_over.reason.endswith(": not at night")


@pytest.mark.parametrize("concurrency", [1, 0], ids=["one at a time", "any number"])
def test_a_denial_while_an_iteration_decides_keeps_it_from_asking_again(concurrency: int) -> None:
    world = World(concurrency=concurrency)
    world.once_decided = lambda: _deny(world)
    world.look(DOWN)
    [result] = world.lab.store.history.results(1)
    [refused] = result.action_results

    assert world.lab.store.approvals.page(9).pending == []
    assert refused.prevented == "held"
    assert refused.error is not None
    assert "p:restart on web is not asked for again: eve denied it" in refused.error


def test_a_denied_action_is_asked_for_again_when_its_problem_comes_back() -> None:
    world = World()
    _deny(world)
    world.look(OTHER)
    assert world.lab.store.holds.all() == []
    world.look(DOWN)

    [item] = world.lab.store.approvals.page(9).pending
    assert item.id != world.id


def test_a_denied_action_is_asked_for_again_when_its_hold_is_lifted() -> None:
    world = World()
    _deny(world)
    assert world.lab.store.holds.lift("p:restart", "web", Actor(principal="ann")) == "lifted"
    world.look(DOWN)

    assert len(world.lab.store.approvals.page(9).pending) == 1


def test_a_person_may_ask_for_what_was_denied() -> None:
    world = World()
    _deny(world)
    call_action(world.lab, action="p:restart", params={"host": "web"})

    [item] = world.lab.store.approvals.page(9).pending
    assert item.requested_by == ["ann"]


def test_a_denial_leaves_a_suspension_as_it_is() -> None:
    world = World()
    world.lab.client.hset(
        "boyd:{test}:hold:p:restart:web",
        mapping={
            "action": "p:restart",
            "target": "web",
            "kind": "suspended",
            "execution": "loop:1",
            "since": 1,
        },
    )
    _deny(world)

    hold = world.lab.store.holds.lasting("p:restart", "web")
    assert hold is not None
    assert hold.kind == "suspended"
