"""With a model, the model judges whether a goal is reached, by steps that exist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from boyd.models import Model
from boyd.plugin import Plugin, action
from boyd.testing.model_server import ScriptedModel, call, say, status
from boyd_goals.state import Goal
from goals_kit import Mind, Steer

#: What the agent works towards; by its words alone it is met.
DESCRIPTION, CRITERIA = "Find whales", "whale is a mammal"

Judging = Callable[..., tuple[Mind, ScriptedModel]]


@pytest.fixture
def judging() -> Iterator[Judging]:
    """A mind with a model that gives those replies, the last one for ever."""
    models: list[ScriptedModel] = []

    def make_mind(*replies: Any, **options: Any) -> tuple[Mind, ScriptedModel]:
        model = ScriptedModel(list(replies), forever=True)
        models.append(model.__enter__())
        llm = {"base_url": f"{model.url}/v1", "model": "x"}
        steer = Steer("goals:kg_query", symbol="whale")
        mind = Mind(steer, llm=llm, stall_threshold=50, **options)
        mind.know("whale is-a mammal")
        return mind, model

    yield make_mind
    for model in models:
        model.__exit__(None, None, None)


def verdict(is_met: bool, cycle: int = 1, criterion: str = CRITERIA) -> Any:
    """A reply of the model."""
    arguments: dict[str, Any] = {"is_met": is_met, "answer": "Whales are mammals."}
    arguments["evidence"] = [{"criterion": criterion, "cycle": cycle}] if is_met else []
    return call("answer", arguments)


def work_cycles(mind: Mind, cycles: int = 1) -> Goal:
    """A goal after so many cycles."""
    id = mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(cycles):
        mind.cycle()
    return mind.session.goals[id]


def test_the_model_says_that_a_goal_is_reached_answers_it_and_cites_the_step(
    judging: Judging,
) -> None:
    mind, model = judging(verdict(is_met=True), completion_ratio=1.0)
    goal = work_cycles(mind)

    assert (goal.status, goal.result) == ("Completed", "Whales are mammals.")
    assert [evidence.to_wire() for evidence in goal.evidence] == [
        {"criterion": CRITERIA, "cycle": 1, "tool": "kg_query", "text": "whale is-a mammal"}
    ]
    assert goal.reason == f"the criteria are met: {CRITERIA} by kg_query in cycle 1"
    data = json.loads(model.requests[0].body["messages"][-1]["content"])
    assert (data["goal"], data["criteria"]) == (DESCRIPTION, [CRITERIA])
    assert data["latestStep"]["facts"] == "whale is-a mammal"


def test_a_goal_whose_words_are_found_goes_on_if_the_model_says_that_it_is_not_reached(
    judging: Judging,
) -> None:
    mind, model = judging(verdict(is_met=False), verdict(is_met=True, cycle=1))
    goal = work_cycles(mind)

    assert (goal.status, goal.result) == ("Active", None)
    assert len(goal.evidence) == 1
    mind.cycle()
    goal = mind.session.goals[goal.id]
    assert (goal.status, [evidence.cycle for evidence in goal.evidence]) == ("Completed", [1])
    earlier = json.loads(model.requests[1].body["messages"][-1]["content"])["earlierSteps"]
    assert [(execution_entry["cycle"], execution_entry["tool"]) for execution_entry in earlier] == [
        (1, "kg_query")
    ]


@pytest.mark.parametrize(
    "reply",
    [
        verdict(is_met=True, cycle=7),
        verdict(is_met=True, criterion="something else"),
        say("I think so."),
        status(500),
        status(400),
    ],
    ids=["no such step", "no such criterion", "prose", "unavailable", "refused"],
)
def test_without_a_usable_answer_the_words_decide(
    judging: Judging, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd.llm.gateway.WAITS", (0.0, 0.0, 0.0))
    mind, model = judging(reply)
    goal = work_cycles(mind)

    assert model.requests
    assert (goal.status, goal.result) == ("Completed", "whale is-a mammal")


def test_a_model_that_takes_too_long_holds_up_no_cycle(
    judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd_goals.outcome.VERDICT_SECONDS", 0.2)
    mind, _ = judging(verdict(is_met=False).patched({"wait": 30.0}))
    goal = work_cycles(mind)

    assert (goal.status, goal.result) == ("Completed", "whale is-a mammal")


def test_a_step_that_finds_nothing_is_not_judged_by_the_model(judging: Judging) -> None:
    mind, model = judging(verdict(is_met=True))
    mind.facts.remove("whale", "is-a", "mammal")
    goal = work_cycles(mind, cycles=2)

    assert goal.status == "Active"
    assert model.requests == []


def test_the_model_is_not_asked_if_the_option_says_so(judging: Judging) -> None:
    mind, model = judging(verdict(is_met=False), judge_with_model=False)

    assert work_cycles(mind).status == "Completed"
    assert model.requests == []


class Wanted(Model):
    """Params of `desk:shut`."""

    door: str


class Desk(Plugin):
    """Another plugin."""

    id = "desk"

    @action()
    def shut(self, params: Wanted) -> str:
        """Shut a door."""
        return f"{params.door} is shut"


def test_an_act_of_another_plugin_is_cited_too(judging: Judging) -> None:
    wish = "Shut the door"
    with ScriptedModel([verdict(is_met=True, criterion=wish)], forever=True) as model:
        profile = {"keywords": ["shut", "door"], "params": {"door": "gate"}}
        llm = {"base_url": f"{model.url}/v1", "model": "x"}
        steer = Steer("desk:shut", door="gate")
        mind = Mind(Desk(), steer, llm=llm, tools={"desk:shut": profile})
        id = mind.goal(wish)
        mind.cycle()
        goal = mind.session.goals[id]

    assert [(evidence.tool, evidence.text) for evidence in goal.evidence] == [
        ("desk:shut", "gate is shut")
    ]
