"""Answers of plugins whose own methods do harm when somebody reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from boyd import Agent, Context, Observation, Plugin
from boyd.models import ActionResult, Decision, LoopResult
from boyd.plugin import Action, Observer, Strategy, orienter
from boyd.plugin.plugin_boundary import MAX_VALUES, plain_copy
from boyd.testing import Lab
from kit import choice, chooses, plugin, seen
from odd_values import (
    Elusive,
    EndlessDict,
    EndlessList,
    EndlessMapping,
    RaisingDict,
    RaisingNumber,
    RaisingText,
)


class RaisingResult(ActionResult):
    """Raises when its error is read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "error":
            raise SystemExit(4)
        return super().__getattribute__(name)


class RaisingDecision(Decision):
    """Raises when its params are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("params", "__dict__"):
            raise SystemExit(4)
        return super().__getattribute__(name)


class Slow(BaseModel):
    """Takes long to be written as JSON."""

    @model_serializer
    def dump(self) -> dict[str, Any]:
        """Take a minute."""
        time.sleep(60)
        return {}


class Color(StrEnum):
    """A text with a name."""

    RED = "red"


class Vienna(tzinfo):
    """Knows its offset only once."""

    calls = 0

    def utcoffset(self, at: datetime | None) -> timedelta:
        """Raise the second time."""
        self.calls += 1
        if self.calls > 1:
            raise SystemExit(4)
        return timedelta(hours=2)

    def dst(self, at: datetime | None) -> timedelta:
        """Raise."""
        raise SystemExit(4)

    def tzname(self, at: datetime | None) -> str:
        """Raise."""
        raise SystemExit(4)


def run(*parts: Any, **hooks: Any) -> LoopResult:
    """The result of an iteration."""
    return Lab(Agent("test", plugins=[plugin(*parts, **hooks)])).run()


OUTPUTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "endless items": (lambda: EndlessDict(a=1), {"a": 1}),
    "endless items inside": (lambda: [EndlessDict(a=1)], [{"a": 1}]),
    "endless list": (lambda: EndlessList([1]), [1]),
    "items that raise": (lambda: RaisingDict(a=1), {"a": 1}),
    "texts that raise": (lambda: {RaisingText("a"): RaisingText("b")}, {"a": "b"}),
    "number that raises": (lambda: RaisingNumber(4), 4),
    "enumeration": (lambda: Color.RED, "red"),
    "result": (lambda: RaisingResult(action="p:do", success=True, output=1, duration=0.0), 1),
}
ELUSIVE: list[Callable[[], Any]] = [Elusive, lambda: [Elusive()]]


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_is_what_it_holds_whatever_its_methods_say(name: str) -> None:
    make, output = OUTPUTS[name]
    result = run(chooses(choice()), Action(name="do", execute=make))

    assert result.success
    assert [(each.success, each.output) for each in result.action_results] == [(True, output)]


@pytest.mark.parametrize("make", ELUSIVE)
def test_an_output_that_raises_when_it_is_read_fails_only_its_action(
    make: Callable[[], Any],
) -> None:
    result = run(chooses(choice()), Action(name="do", execute=make))

    assert result.success
    assert [each.error for each in result.action_results] == ["SystemExit: 4"]


def test_a_mapping_without_an_end_is_no_output() -> None:
    result = run(chooses(choice()), Action(name="do", execute=EndlessMapping))

    assert [each.error for each in result.action_results] == [
        f"ValueError: gave more than {MAX_VALUES} values"
    ]


class EndlessPlaybooks(Plugin):
    """Reads playbooks, and makes some without an end."""

    id = "endless"

    def playbooks(self, ctx: Context) -> Iterator[str]:
        return (str(number) for number in range(2 * MAX_VALUES))

    @orienter()
    def read(self, observations: list[Observation], ctx: Context) -> None:
        ctx.playbooks()


def test_playbooks_without_an_end_are_not_read() -> None:
    result = Lab(Agent("test", plugins=[EndlessPlaybooks()])).run()

    assert [problem.error for problem in result.problems] == [
        f"ValueError: gave more than {MAX_VALUES} values"
    ]


def test_writing_an_output_counts_to_the_time_of_its_action() -> None:
    result = run(chooses(choice()), Action(name="do", execute=Slow, timeout=0.2))

    assert [each.error for each in result.action_results] == [
        "took longer than 0.2 s; it may have taken effect"
    ]


@pytest.mark.parametrize("kind", [EndlessDict, RaisingDict])
def test_a_decision_has_the_params_that_it_holds(kind: type[dict[str, Any]]) -> None:
    decision = RaisingDecision.model_construct(
        action="p:do", params=kind(a=1), rationale="test", confidence=1.0, risk="low"
    )
    strategy = Strategy(name="s", decide=lambda: decision)
    result = run(strategy, Action(name="do", execute=lambda params: params))

    assert [each.output for each in result.action_results] == [{"a": 1}]


def test_a_strategy_whose_condition_raises_when_it_is_read_is_passed_over() -> None:
    odd = Strategy(name="odd", applicable_when=Elusive, decide=lambda: choice("p:other"))
    result = run(odd, chooses(choice()), Action(name="do", execute=lambda: "done"))

    assert [each.output for each in result.action_results] == ["done"]
    assert [problem.error for problem in result.problems] == ["SystemExit: 4"]


@pytest.mark.parametrize("make", ELUSIVE)
def test_a_hook_whose_answer_raises_when_it_is_read_fails_alone(make: Callable[[], Any]) -> None:
    result = run(on_observe=make, on_orient=make)

    assert result.success
    assert [problem.id for problem in result.problems] == ["p.on_observe", "p.on_orient"]


def test_a_shard_list_without_an_end_has_the_shards_that_it_holds() -> None:
    observer = Observer(
        name="o",
        partition=lambda: EndlessList([EndlessDict(a=1)]),
        observe=lambda shard: [seen(data=shard)],
    )

    assert [each.data for each in run(observer).observations] == [{"a": 1}]


def test_a_time_keeps_the_offset_that_it_had() -> None:
    at, at_ten = datetime(2026, 1, 1, 12, tzinfo=Vienna()), datetime(2026, 1, 1, 10, tzinfo=UTC)
    observer = Observer(name="o", observe=lambda: [{**seen().to_wire(), "timestamp": at}])
    result = run(observer)

    assert not result.observer_errors
    assert [each.timestamp for each in result.observations] == [at_ten]


def test_a_list_that_contains_itself_stays_as_it_is() -> None:
    value: list[Any] = []
    value.append(value)

    assert plain_copy(value) is value
