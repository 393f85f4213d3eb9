"""Conditions in CEL: what is refused when an agent is loaded, and what they say when it runs."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from boyd.agent import agent_from_file
from boyd.agent.conditions import MAX_ITEMS, MAX_STRING, ConditionError, Language, names_of
from boyd.errors import ConfigError
from boyd.models import Budget
from kit import Recorder, agent

NAMES = {
    "params.count": "int",
    "params.name": "string",
    "params.hosts": "list(string)",
    "params.any": "dyn",
    "situation.priority": "string",
    "situation.confidence": "double",
    "now": "timestamp",
}
VALUES: dict[str, Any] = {
    "params.count": 4,
    "params.name": "web-1",
    "params.hosts": ["a", "b"],
    "params.any": None,
    "situation.priority": "critical",
    "situation.confidence": 0.5,
    "now": datetime(2026, 7, 1, 22, 30, tzinfo=UTC),
}
LANGUAGE = Language(NAMES)


def is_true(text: str, **changes: Any) -> bool:
    """The answer of a condition about `VALUES` with those changes to params."""
    values = VALUES | {f"params.{name}": value for name, value in changes.items()}
    return LANGUAGE.compile(text).is_true(values)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('params.count > 3 && situation.priority == "critical"', True),
        ("params.count > 4 || situation.confidence > 0.9", False),
        ('params.name.matches("^web-[0-9]+$")', True),
        ('"b" in params.hosts', True),
        ('params.hosts.exists(one, one.startsWith("c"))', False),
        ('params.hosts.filter(one, one != "a").size() == 1', True),
        ("params.any == null", True),
        ('now.getHours("Europe/Vienna") == 0', True),
        ('now > timestamp("2026-01-01T00:00:00Z") + duration("24h")', True),
    ],
)
def test_a_condition_is_true_or_false(text: str, answer: bool) -> None:
    assert is_true(text) is answer


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("params.cuont > 3", "column 7: params.cuont is not known; did you mean 'params.count'?"),
        ("foo == 1", "column 1: foo is not known; known: now, params.any"),
        ("situation.priority > 3", "column 20: `>` does not work on string and int"),
        (
            "situation.confidence > 1",
            "column 22: `>` does not work on double and int; write whole numbers with a point",
        ),
        ("1 in params.hosts", "column 3: `in` does not work on int and list(string)"),
        ("params.count > ", "column 16: Syntax error: mismatched input the end"),
        ('params.name == "x', "Syntax error: token recognition error"),
        ('params.count > 3 and params.name == "x"', "column 18: Syntax error"),
        ("params.count == 4\n  && foo", "line 2, column 6: foo is not known"),
        ("params.count", "it gives int, not true or false"),
        ("", "Syntax error: mismatched input the end"),
        ("(" * 100 + "true" + ")" * 100, "recursion limit"),
        ("params.hosts.map(one, one + one).size() > 1", "one is not known"),
        (" || ".join(["true"] * 200), "longer than 1000 characters"),
    ],
)
def test_a_mistake_is_found_with_its_position(text: str, reason: str) -> None:
    with pytest.raises(ConditionError) as error:
        LANGUAGE.compile(text)

    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ("params.any > 3", {}, "No matching overloads"),
        ("params.any.size == 1", {"any": {"other": 1}}, 'Key not found in map : "size"'),
        ("1 / params.count == 1", {"count": 0}, "divide by zero"),
        ("params.count > 3", {"count": 2**70}, "int too big"),
        ("params.any", {"any": "true"}, "true"),
        ('params.name.matches("(")', {}, "invalid regular expression"),
        ('params.name == "x"', {"name": "x" * (MAX_STRING + 1)}, "more than 10000 characters"),
        ('"x" in params.hosts', {"hosts": ["a"] * (MAX_ITEMS + 1)}, "more than 256 items"),
        ("params.any == 1", {"any": {"in": [{"a": ["x"] * 300}]}}, "more than 256 items"),
        (
            "params.hosts.all(one, params.hosts.all(two, one == two))",
            {"hosts": ["a"] * MAX_ITEMS},
            "Iteration budget exceeded",
        ),
    ],
)
def test_a_condition_that_cannot_be_evaluated_says_why(
    text: str, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConditionError) as error:
        is_true(text, **changes)

    assert reason in str(error.value)


def test_values_that_a_condition_does_not_name_cannot_make_it_fail() -> None:
    assert is_true("params.count > 3", any=2**70, hosts=["a"] * 1000)


class Size(StrEnum):
    SMALL = "small"


class Inner(BaseModel):
    size: Size


class Params(BaseModel):
    name: str
    count: int = 1
    share: float = 0.0
    force: bool = False
    size: Size = Size.SMALL
    hosts: list[str] = []
    inner: Inner | None = None
    nested: Inner
    at: datetime | None = None
    free: dict[str, int] = {}


def test_the_types_of_params_are_those_of_their_schema() -> None:
    types = names_of(Params.model_json_schema(mode="serialization"))

    assert types == {
        "params.name": "string",
        "params.count": "int",
        "params.share": "double",
        "params.force": "bool",
        "params.size": "string",
        "params.hosts": "list(string)",
        "params.inner": "dyn",
        "params.nested": "map",
        "params.at": "dyn",
        "params.free": "map",
    }


def test_params_without_a_schema_may_have_any_names() -> None:
    assert names_of(None) == {"params": "map"}


# In an agent


class Restart(BaseModel):
    count: int = 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"approvals": {"policies": [{"when": "params.cuont > 1", "required": {}}]}},
            "approvals.policies.0.when: column 7: params.cuont is not known",
        ),
        (
            {"windows": [{"when": 'params.count == "x"', "open": ["* * * * *"]}]},
            "windows.0.when: column 14: `==` does not work on int and string (for p:do)",
        ),
        (
            {"budgets": {"p:do": {"limit": 1, "window": 60.0, "when": "action.rsk == 1"}}},
            "budgets.p:do.when: column 7: action.rsk is not known; did you mean 'action.risk'?",
        ),
        ({"autonomy": {"p:do": {"when": "true &&"}}}, "autonomy.p:do.when: column 8"),
        ({"autonomy": {"p:none": {"when": "foo"}}}, "autonomy.p:none.when: column 1: foo"),
        (
            {"windows": [{"actions": ["x:*"], "when": "foo", "open": ["* * * * *"]}]},
            "windows.0.when: column 1: foo is not known",
        ),
    ],
)
def test_an_agent_with_a_mistake_in_a_condition_is_refused(
    settings: dict[str, Any], reason: str
) -> None:
    action = Recorder().action(params=Restart)
    with pytest.raises(ConfigError) as error:
        agent(action, **settings)

    assert reason in str(error.value)


def test_a_mistake_in_the_budget_of_an_action_is_refused() -> None:
    budget = Budget(limit=1, window=60, when="params.nope")
    with pytest.raises(ConfigError, match=r"action p:do: budget.when: .*params.nope is not known"):
        agent(Recorder().action(params=Restart, budget=budget))


def test_a_mistake_in_an_agent_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('id = "a"\n[[windows]]\nopen = ["* * * * *"]\nwhen = "agent.name == 1"\n')
    with pytest.raises(ConfigError) as error:
        agent_from_file(file)

    assert str(error.value).startswith(f"{file}: windows.0.when: column 6: agent.name is not")


def test_without_conditions_and_calendars_their_libraries_are_not_imported() -> None:
    code = (
        "import sys, boyd, boyd.agent; boyd.Agent('a');"
        "print([name for name in ('cel_expr_python', 'icalendar') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"
