"""The approvals as plugins see them."""

from __future__ import annotations

from typing import Any

import pytest

from boyd import Agent, Plugin, action
from boyd.errors import ConfigError
from boyd.models import Decision
from boyd.plugin import strategy
from boyd.testing import TESTER, Lab
from plugin_kit import context


class Asker(Plugin):
    """Always asks."""

    id = "asker"

    @strategy()
    def propose(self) -> Decision:
        return Decision(
            action="asker:paint", params={}, rationale="it fades", confidence=1.0, risk="low"
        )

    @action(autonomy="approval-required")
    def paint(self) -> str:
        return "painted"


def ask_for_approval() -> tuple[Lab, Any, str]:
    """A lab in which something was asked for, a plugin's `ctx`, and the approval's id."""
    lab = Lab(Agent("a", plugins=[Asker()]))
    id = lab.run().action_results[0].waits_for
    assert id is not None
    return lab, lab.engine.context("asker"), id


def test_a_plugin_sees_what_waits_and_what_has_come_of_it() -> None:
    lab, ctx, id = ask_for_approval()
    assert ctx.approvals.waiting([id, "unknown"]) == {id}
    assert ctx.approvals.get(id).status == "pending"

    lab.resolver.answer(id, "approved", TESTER)
    lab.deliver()

    assert ctx.approvals.waiting([id]) == set()
    assert ctx.approvals.get(id).result.output == "painted"
    assert ctx.approvals.get("unknown") is None


def test_an_approval_past_its_deadline_does_not_wait_although_nobody_purged() -> None:
    lab, ctx, id = ask_for_approval()
    lab.client.zadd("boyd:{a}:approvals:pending", {id: 1})

    assert ctx.approvals.get(id).status == "expired"
    assert ctx.approvals.waiting([id]) == set()


def test_nothing_is_waiting_of_nothing() -> None:
    _, ctx, _ = ask_for_approval()

    assert ctx.approvals.waiting([]) == set()


def test_a_plugin_answers_no_approval() -> None:
    _, ctx, _ = ask_for_approval()

    assert {name for name in dir(ctx.approvals) if not name.startswith("_")} == {"get", "waiting"}


def test_an_isolated_observer_sees_no_approvals() -> None:
    with pytest.raises(ConfigError, match="isolated observer"):
        context().approvals  # noqa: B018 - that it raises is the point
