"""Criteria that are conditions over facts and outputs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from boyd.agent import agent_from_file
from boyd.errors import PluginError, StoreUnavailable
from boyd.models import Triple
from boyd.plugin import Plugin, action
from boyd.testing import Lab
from boyd.testing.lab import MemoryGraph
from boyd_cli.commands.check_commands import check
from boyd_goals.goal_conditions import evaluate_condition, is_condition
from boyd_goals.plugin import Goals
from goals_kit import Mind, Steer

DOCS = Path(__file__).parents[3] / "docs" / "goals.md"


class Cluster(Plugin):
    """Shows a deployment."""

    id = "cluster"

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    @action()
    def show(self) -> Any:
        return self.output


def showing(output: Any) -> Mind:
    """A mind that looks at a deployment."""
    tools = {"cluster:show": {"keywords": ["show"]}}
    return Mind(Cluster(output), Steer("cluster:show"), tools=tools)


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ('facts("web-3", "runs-on").size() > 0', True),
        ("output.replicas >= 3", True),
        ("output.ready", True),
        ("!output.paused", True),
        ('"web-3" in output.names', True),
        ('fact("web-3")', True),
        ("replicas == 3", True),
        ("output > 3", True),
        ("3 replicas", False),
        ("the output of the pump, and its size", False),
        ("facts about whales (in the sea)", False),
        ("TCP/IP <-> UDP", False),
        ("report.txt is complete", False),
    ],
)
def test_criteria_with_operators_or_calls_are_conditions(criteria: str, expected: bool) -> None:
    assert is_condition(criteria) is expected


@pytest.mark.parametrize(
    ("criteria", "is_completed"),
    [
        ('facts("web-3", "runs-on").size() > 0', True),
        ('facts("web-3", "runs-on").exists(f, f.object == "rack-7")', True),
        ('facts("web-3").exists(f, f.predicate == "runs-on" && f.confidence > 0.5)', True),
        ('facts("web-3", "alert").size() == 0', True),
        ('facts("web-3", "runs-on").exists(f, f.object == "rack-8")', False),
        ('facts("web-4", "runs-on").size() > 0', False),
        ('facts("goal:1", "agent:has_status").size() > 0', False),
    ],
)
def test_a_condition_over_facts_completes_a_goal(criteria: str, is_completed: bool) -> None:
    mind = Mind()
    mind.know("web-3 runs-on rack-7", "web-4 has-owner ann")
    id = mind.goal("Find out where web-3 runs", criteria=criteria)
    mind.cycle()
    goal = mind.session.goals[id]

    assert (goal.status == "Completed") is is_completed
    assert [item.criterion for item in goal.evidence] == [criteria] * is_completed


@pytest.mark.parametrize(
    ("criteria", "output", "is_completed"),
    [
        ("output.replicas >= 3", {"replicas": 3}, True),
        ("output.replicas >= 3", {"replicas": 1}, False),
        ("output.replicas >= 3", '{"replicas": 4}', True),
        ('output.names.exists(n, n == "web-3")', {"names": ["web-3"]}, True),
        ('tool == "cluster:show" && output.contains("3 ready")', "3 ready", True),
        ('tool == "cluster:hide" && output.contains("3 ready")', "3 ready", False),
    ],
)
def test_a_condition_over_the_output_completes_a_goal(
    criteria: str, output: Any, is_completed: bool
) -> None:
    mind = showing(output)
    id = mind.goal("Show the deployment", criteria=criteria)
    mind.cycle()

    assert (mind.session.goals[id].status == "Completed") is is_completed


@pytest.mark.parametrize(("depth", "opening", "closing"), [(850, '{"a":', "}"), (50_000, "[", "]")])
@pytest.mark.parametrize("criteria", ["output.replicas >= 3", "three replicas"])
def test_an_output_that_nests_too_deep_is_a_text(
    criteria: str, depth: int, opening: str, closing: str
) -> None:
    mind = showing(opening * depth + "1" + closing * depth)
    mind.goal("Show the deployment", criteria=criteria)
    mind.cycle()

    assert [step.progress for step in mind.session.decisions] == ["NoChange"]


def test_the_evidence_is_what_the_condition_has_read() -> None:
    mind = showing({"replicas": 3})
    mind.know("web runs-on rack-7")
    id = mind.goal("Show it", criteria='output.replicas == 3 && facts("web", "alert").size() == 0')
    mind.cycle()
    [evidence] = mind.session.goals[id].evidence

    assert (evidence.tool, evidence.cycle) == ("cluster:show", 1)
    assert evidence.text.splitlines() == ["web alert: no facts", '{"replicas": 3}']


@pytest.mark.parametrize(
    ("criteria", "output", "reason"),
    [
        ("output.replicas >= 3", {"pods": 3}, 'Key not found in map : "replicas"'),
        ("output.replicas >= 3", "3 replicas", "Applying SELECT to non-message type"),
        ("output.replicas >= 3", {"replicas": None}, "No matching overloads"),
        ("output.replicas", {"replicas": 3}, "3"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_says_why_and_is_not_met(
    criteria: str, output: Any, reason: str
) -> None:
    mind = showing(output)
    id = mind.goal("Show the deployment", criteria=criteria)
    mind.cycle()
    [decision] = mind.session.decisions

    assert mind.session.goals[id].status == "Active"
    assert decision.progress == "NoChange"
    assert reason in str(decision.problem)


def test_a_condition_reads_no_more_facts_than_it_may() -> None:
    mind = Mind()
    mind.know(*(f"web has-part p{number}" for number in range(300)))
    mind.know(*(f"list has-part p{number}" for number in range(25)))
    for criteria, reason in [
        ('facts("web", "has-part").size() > 0', "web has more than 256 such facts"),
        (
            'facts("list").all(f, facts(f.object).size() == 0)',
            "it reads the facts of more than 20 symbols",
        ),
    ]:
        result = evaluate_condition(criteria, "kg_query", "", mind.facts)
        assert (result.holds, result.problem) == (False, reason)


def test_a_store_that_is_down_is_no_reason_for_a_verdict() -> None:
    class Broken(MemoryGraph):
        def out(self, subject: str, predicate: str | None = None) -> Any:
            raise StoreUnavailable("no connection")

    with pytest.raises(StoreUnavailable):
        evaluate_condition('facts("a").size() > 0', "kg_query", "", Broken())


@pytest.mark.parametrize(
    ("criteria", "reason"),
    [
        ('fact("web-3").size() > 0', "column 5: fact is not known; did you mean 'facts'?"),
        ("outputs.replicas >= 3", "column 8: outputs.replicas is not known"),
        ("output.replicas >=", "Syntax error"),
        ('facts("a", "b", "c").size() > 0', "facts takes (string) or (string, string)"),
        ('facts("a", "b").size()', "it gives int, not true or false"),
        ('facts("a", "b").size() > 0.5', "write whole numbers with a point"),
    ],
)
def test_a_mistake_in_a_condition_is_reported_when_the_goal_is_made(
    criteria: str, reason: str
) -> None:
    mind = Mind()
    status, body = mind.ask("make_goal", {"description": "Look at web-3", "criteria": criteria})

    assert status == 422
    assert body["error"].startswith("criteria: ")
    assert reason in body["error"]
    assert mind.session.goals == {}


def test_a_condition_needs_a_package_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    mind = Mind()
    status, body = mind.ask("make_goal", {"description": "Look", "criteria": "output.a == 1"})

    assert status == 422
    assert "pip install 'boyd[conditions]'" in body["error"]
    assert mind.ask("make_goal", {"description": "Look", "criteria": "3 replicas"})[0] == 201


def test_a_goal_with_a_condition_is_split_by_its_description_and_keeps_its_condition() -> None:
    criteria = 'facts("web-3", "runs-on").size() > 0 && output != "a, b and c"'
    mind = Mind(stall_threshold=1)
    id = mind.goal("Look at web-3 and web-4", criteria=criteria)
    mind.cycle()
    goals = mind.session.goals

    assert [goals[child].description for child in goals[id].children] == ["Look at web-3", "web-4"]
    assert goals[id].criteria == criteria


# --- Goals in agent files ------------------------------------------------------------------------

FILE = """id = "office"

[[plugins]]
use = "goals"

[[plugins.options.goals]]
description = "Find out where web-3 runs"
criteria = {criteria}
"""


def test_the_check_of_an_agent_file_names_a_mistake_in_a_condition(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(FILE.format(criteria="""'facts("web-3").siz() > 0'"""))
    done = CliRunner().invoke(check, [str(file)])
    file.write_text(FILE.format(criteria="""'facts("web-3").size() > 0'"""))

    assert done.exit_code == 1
    assert "plugin goals: goals.0: criteria: column " in done.stderr
    assert CliRunner().invoke(check, [str(file)]).exit_code == 0


def test_an_agent_with_a_mistake_in_a_goal_does_not_start() -> None:
    with pytest.raises(PluginError, match=r"goals\.0: criteria: .*outputs"):
        Mind(goals=[{"description": "Look", "criteria": "outputs.a == 1"}])


def test_a_session_is_given_the_goals_of_the_agent_file_once() -> None:
    mind = Mind(goals=[{"description": "Find mammals", "priority": 200}])
    mind.cycle()
    mind.cycle()
    [goal] = mind.session.goals.values()
    assert (goal.description, goal.priority) == ("Find mammals", 200)

    mind.ask("fail_goal", {"reason": "enough"}, id=goal.id)
    mind.cycle()
    assert len(mind.session.goals) == 1
    mind.ask("begin_session", {"fresh": True})
    mind.cycle()
    assert [item.status for item in mind.session.goals.values()] == ["Active"]


def test_the_example_of_the_docs_is_completed_by_the_fact_it_waits_for(tmp_path: Path) -> None:
    text = next(
        block
        for block in re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
        if "[[plugins.options.goals]]" in block
    )
    file = tmp_path / "agent.toml"
    file.write_text(text)
    lab = Lab(agent_from_file(file))
    lab.run()
    plugin = lab.engine.agent.host.plugins["goals"]
    assert isinstance(plugin, Goals)
    ctx = lab.engine.context("goals", None)
    [goal] = plugin.sessions(ctx).read().goals.values()
    assert goal.status == "Active"

    ctx.graph("facts").add([Triple(subject="web-3", predicate="runs-on", object="rack-7")])
    lab.run()
    [goal] = plugin.sessions(ctx).read().goals.values()
    assert (goal.status, goal.result) == ("Completed", "web-3 runs-on rack-7")
