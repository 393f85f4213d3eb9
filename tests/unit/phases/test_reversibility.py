"""Reversibility of actions: declared, derived, shown to approvers, and used in policies."""

from __future__ import annotations

from typing import Any

import pytest

from boyd import Agent
from boyd.errors import ConfigError, PluginError
from boyd.models import ApprovalPolicy, Autonomy, CallRequest, Reversibility
from boyd.plugins.approval_policy import ApprovalRules
from boyd.security.links import login_reason
from boyd.settings.permissions import PolicyRule
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, pending_item, person, plugin

ASKS = Autonomy(mode="approval-required")


def undo() -> None:
    """A rollback."""


def lab_with(*plugins: Any, approvals: dict[str, Any] | None = None, **action: Any) -> Lab:
    """An agent with one action."""
    parts = [chooses(choice(risk="low")), Recorder().action(**action)]
    settings: dict[str, Any] = {"approvals": approvals} if approvals else {}
    return Lab(Agent("test", plugins=[plugin(*parts), *plugins], **settings))


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({}, "unknown"),
        ({"rollback": undo}, "reversible"),
        ({"reversibility": "reversible", "rollback": undo}, "reversible"),
        ({"reversibility": "read-only"}, "read-only"),
        ({"reversibility": "externally-reversible"}, "externally-reversible"),
        ({"reversibility": "irreversible"}, "irreversible"),
    ],
)
def test_the_catalog_has_the_class_that_is_declared_or_follows_from_the_rollback(
    declared: dict[str, Any], expected: str
) -> None:
    lab = lab_with(**declared)

    assert lab.agent.catalog.actions[0].reversibility == expected


@pytest.mark.parametrize(
    "declared",
    [
        {"reversibility": "reversible"},
        {"reversibility": "irreversible", "rollback": undo},
        {"reversibility": "read-only", "rollback": undo},
    ],
)
def test_a_class_that_contradicts_the_rollback_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match=r"it is declared .* rollback"):
        lab_with(**declared)


def test_approvals_and_records_contain_the_reversibility() -> None:
    lab = lab_with(autonomy=ASKS, reversibility="irreversible")
    result = lab.run()

    assert pending_item(lab).reversibility == "irreversible"
    assert result.gate is not None
    assert (result.gate.reversibility, result.gate.risk) == ("irreversible", "low")


def test_nobody_has_declared_whether_a_rollback_can_be_undone() -> None:
    lab = lab_with(rollback=undo)
    lab.run()
    call = CallRequest(
        kind="rollback",
        action="p:do",
        undoes=lab.store.executions.of_iteration(1),
        actor=person("ann"),
        requires_approval=True,
    )
    lab.launcher.call(call, None)
    lab.deliver()

    assert pending_item(lab).reversibility == "unknown"


@pytest.mark.parametrize(
    ("declared", "needed"),
    [("irreversible", 2), ("externally-reversible", 1), ("unknown", 1)],
)
def test_a_policy_applies_to_classes(declared: Reversibility, needed: int) -> None:
    rule = {"reversibility": ["irreversible"], "required": {"min_approvals": 2}}
    lab = lab_with(approvals={"policies": [rule]}, autonomy=ASKS, reversibility=declared)
    lab.run()

    assert pending_item(lab).required.min_approvals == needed


def test_a_policy_names_only_classes_that_exist() -> None:
    with pytest.raises(ConfigError, match="reversibility"):
        agent(approvals={"policies": [{"reversibility": ["maybe"], "required": {}}]})
    assert PolicyRule(required=ApprovalPolicy()).reversibility == []


@pytest.mark.parametrize(
    ("options", "declared", "asks"),
    [
        ({}, "irreversible", True),
        ({}, "unknown", False),
        ({"reversibility": ["unknown"]}, "unknown", True),
        ({"reversibility": []}, "irreversible", False),
    ],
)
def test_the_plugin_asks_a_person_for_the_classes_that_it_names(
    options: dict[str, Any], declared: Reversibility, asks: bool
) -> None:
    lab = lab_with(ApprovalRules(**options), reversibility=declared)
    [result] = lab.run().action_results

    assert bool(result.waits_for) == asks


def test_an_irreversible_action_is_not_approved_by_a_signed_link() -> None:
    bearer = {"required": {"links": "bearer"}}
    lab = lab_with(approvals=bearer, autonomy=ASKS, reversibility="irreversible")
    lab.run()

    assert login_reason(pending_item(lab)) == "it cannot be undone"
