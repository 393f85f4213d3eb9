"""Somebody takes care of an approval or an anomaly, until it is released, lapses or is over."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from boyd import Agent, Context, Plugin
from boyd.models import (
    Anomaly,
    ApprovalItem,
    Autonomy,
    NotificationRecipient,
    OpenAnomaly,
    start_of_wait,
    to_ms,
)
from boyd.testing import Lab
from kit import Recorder, choice, chooses, overdue, person, plugin

EVE, ANN = person("eve"), person("ann")
GATED = Autonomy(mode="approval-required")


class World:
    """An agent that sees anomalies and asks for an action because of them."""

    def __init__(self) -> None:
        self.types = ["down"]
        self.messages: list[str] = []
        own = plugin(
            chooses(choice()),
            Recorder().action(autonomy=GATED),
            on_orient=lambda: {"anomalies": [self._anomaly(name) for name in self.types]},
            on_approval=lambda stage: self.messages.append(stage),
        )
        self.lab = Lab(Agent("test", plugins=[own], approvals={"ttl": 3600}))
        self.lab.run()
        self.acknowledgements = self.lab.store.acknowledgements

    def _anomaly(self, name: str) -> object:
        return Anomaly(type=name, description=f"it is {name}", severity="high").to_wire()

    @property
    def item(self) -> ApprovalItem:
        """The only approval that waits."""
        [item] = self.lab.store.approvals.page(5).pending
        return item

    @property
    def anomaly(self) -> OpenAnomaly:
        """The only open anomaly."""
        [anomaly] = self.acknowledgements.anomalies()
        return anomaly

    def pass_time(self, seconds: float) -> None:
        """Let time pass for the approval and its acknowledgement."""
        item = self.item
        assert item.expires_at is not None
        key = f"boyd:{{test}}:approval:{item.id}"
        times = {"createdAt": item.created_at, "expiresAt": item.expires_at}
        fields: dict[str, object] = {n: to_ms(t) - seconds * 1000 for n, t in times.items()}
        latest = item.acknowledgement
        if latest is not None and latest.until is not None:
            wire = latest.to_wire() | {"until": to_ms(latest.until) - seconds * 1000}
            fields["acknowledgement"] = json.dumps(wire)
        self.lab.client.hset(key, mapping=fields)
        self.work()

    def work(self) -> None:
        """Let the job that follows the approval find out what is so now."""
        overdue(self.lab, f"notice:{self.item.id}")

    def audit(self) -> list[tuple[str, str | None]]:
        """The kinds of the acknowledgements in the audit trail, and who made them."""
        entries = self.lab.client.xrange("boyd:{test}:audit:open")
        kinds = [(fields["kind"], fields.get("who")) for _, fields in entries]
        return [pair for pair in kinds if pair[0].endswith(("acknowledged", "released"))]


def test_an_acknowledgement_names_who_has_it_and_a_second_one_changes_nothing() -> None:
    world = World()
    assert world.acknowledgements.acknowledge_approval(world.item.id, EVE, note="I look") == "done"
    assert world.acknowledgements.acknowledge_approval(world.item.id, EVE) == "unchanged"

    latest = world.item.keeper(world.lab.store.clock.now())
    assert latest is not None
    assert (latest.by, latest.note, latest.number, latest.until) == ("eve", "I look", 1, None)
    assert world.audit() == [("approval.acknowledged", "eve")]


def test_an_acknowledgement_leaves_votes_and_links_valid() -> None:
    world = World()
    version = world.item.version
    world.acknowledgements.acknowledge_approval(world.item.id, EVE)

    assert world.item.version == version


def test_taking_over_replaces_the_acknowledgement_before() -> None:
    world = World()
    world.acknowledgements.acknowledge_approval(world.item.id, EVE)
    assert world.acknowledgements.acknowledge_approval(world.item.id, ANN) == "done"

    latest = world.item.acknowledgement
    assert latest is not None
    assert (latest.by, latest.number) == ("ann", 2)


def test_a_release_ends_it_and_names_who_did_so() -> None:
    world = World()
    assert world.acknowledgements.release_approval(world.item.id, ANN) == "unchanged"
    world.acknowledgements.acknowledge_approval(world.item.id, EVE)
    assert world.acknowledgements.release_approval(world.item.id, ANN) == "done"

    latest = world.item.acknowledgement
    assert latest is not None
    assert latest.released_by == "ann"
    assert world.item.keeper(world.lab.store.clock.now()) is None
    assert world.audit() == [("approval.acknowledged", "eve"), ("approval.released", "ann")]


def test_an_answered_or_expired_approval_cannot_be_acknowledged() -> None:
    world = World()
    item = world.item
    world.lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})
    assert world.acknowledgements.acknowledge_approval(item.id, EVE) == "not-pending"
    world.lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 4e12})
    world.lab.resolver.answer(item.id, "denied", ANN)
    assert world.acknowledgements.acknowledge_approval(item.id, EVE) == "not-pending"
    assert world.acknowledgements.acknowledge_approval("unknown", EVE) == "not-pending"
    assert world.audit() == []


def test_those_who_were_asked_learn_who_has_it_and_are_reminded_when_that_ends() -> None:
    world = World()
    world.work()
    for _ in range(2):
        world.acknowledgements.acknowledge_approval(world.item.id, EVE, seconds=600)
        world.work()
        world.work()
        world.pass_time(601)
        world.work()

    expected = ["acknowledged", "reminder"]
    assert world.messages == ["waiting", *expected, *expected]


def test_half_time_wakes_nobody_while_somebody_has_it() -> None:
    world = World()
    world.work()
    world.acknowledgements.acknowledge_approval(world.item.id, EVE)
    world.work()
    world.pass_time(1801)
    assert world.messages == ["waiting", "acknowledged"]

    world.acknowledgements.release_approval(world.item.id, EVE)
    world.work()
    assert world.messages == ["waiting", "acknowledged", "reminder"]


def test_an_acknowledged_anomaly_keeps_its_acknowledgement_while_it_lasts() -> None:
    world = World()
    anomaly = world.anomaly
    assert world.acknowledgements.acknowledge_anomaly(anomaly, EVE, note="mine") == "done"
    world.lab.run()

    latest = world.anomaly.acknowledgement
    assert latest is not None
    assert (latest.by, latest.note) == ("eve", "mine")
    assert world.anomaly.id == anomaly.id
    assert world.audit() == [("anomaly.acknowledged", "eve")]

    world.types = []
    world.lab.run()
    assert world.acknowledgements.anomalies() == ()
    assert world.acknowledgements.acknowledge_anomaly(anomaly, EVE) == "not-open"

    world.types = ["down"]
    world.lab.run()
    assert world.anomaly.acknowledgement is None, "it is another one"


def test_an_anomaly_is_released() -> None:
    world = World()
    world.acknowledgements.acknowledge_anomaly(world.anomaly, EVE, seconds=60)
    assert world.acknowledgements.release_anomaly(world.anomaly, ANN) == "done"
    assert world.acknowledgements.release_anomaly(world.anomaly, ANN) == "unchanged"
    assert world.anomaly.keeper(world.lab.store.clock.now()) is None
    assert world.audit() == [("anomaly.acknowledged", "eve"), ("anomaly.released", "ann")]


class Chain(Plugin):
    """Asks the desk, and then one after the other."""

    id = "chain"

    def __init__(self, *waits: float) -> None:
        super().__init__()
        self.waits = waits
        self.messages: list[tuple[str, str]] = []

    def escalation_recipients(
        self, approval: ApprovalItem, ctx: Context
    ) -> list[NotificationRecipient]:
        start = start_of_wait(approval, ctx.now())
        return [
            NotificationRecipient(
                id=f"after-{wait:g}",
                group="g",
                kind="k",
                not_before=start + timedelta(seconds=wait),
            )
            for wait in self.waits
        ]

    def on_approval(self, stage: str, recipient: str) -> None:
        self.messages.append((stage, recipient))


@pytest.mark.parametrize("ending", ["acknowledged", "answered"])
def test_an_acknowledgement_or_an_answer_ends_the_escalation(ending: str) -> None:
    chain = Chain(600, 1200)
    first = plugin(chooses(choice()), Recorder().action(autonomy=GATED))
    lab = Lab(Agent("test", plugins=[first, chain], approvals={"ttl": 3600}))
    lab.run()
    [item] = lab.store.approvals.page(5).pending
    overdue(lab, f"notice:{item.id}")
    jobs = [f"delivery:{item.id}:escalated:chain:after-{wait}" for wait in (600, 1200)]
    for job in jobs:
        overdue(lab, job)
    assert chain.messages == [("waiting", "")], "it is too early"

    shift(lab, item, 601)
    for job in jobs:
        overdue(lab, job)
    assert chain.messages == [("waiting", ""), ("escalated", "after-600")]
    if ending == "acknowledged":
        lab.store.acknowledgements.acknowledge_approval(item.id, EVE)
    else:
        lab.resolver.answer(item.id, "denied", ANN)
    overdue(lab, f"notice:{item.id}")
    shift(lab, item, 1201)
    for job in jobs * 2:
        overdue(lab, job)

    assert ("escalated", "after-1200") not in chain.messages
    assert chain.messages.count(("escalated", "after-600")) == 1


def shift(lab: Lab, item: ApprovalItem, seconds: float) -> None:
    """Let the approval be older."""
    created = to_ms(item.created_at) - seconds * 1000
    lab.client.hset(f"boyd:{{test}}:approval:{item.id}", "createdAt", created)
