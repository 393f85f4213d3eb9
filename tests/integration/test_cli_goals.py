"""`boyd agent`, `goals`, `graph` and `questions` over the API, before an agent with goals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_kit import InlineDispatcher
from boyd import Agent
from boyd.store import Store
from boyd.testing import Lab
from boyd_goals.plugin import Goals
from cli_kit import Cli, announce, new_key, serving

pytestmark = pytest.mark.real

TURTLE = """
@prefix : <http://example.org/> .
:Whale :is-a :Mammal . :Cat :is-a :Mammal . :Mammal :is-a :Animal .
"""
BREAKDOWN = re.compile(
    r"\[score=\d\.\d\d: base=\d\.\d\d recency=-\d\.\d\d novelty=\+\d\.\d\d episodic=\+\d\.\d\d"
    r" pressure=\+\d\.\d\d archetype=[+-]\d\.\d{3}\]"
)


@pytest.fixture
def cli(redis_url: str, store: Store, tmp_path: Path) -> Iterator[Cli]:
    """The commands, before an agent with goals and an imaginary worker."""
    agent = Agent("test", plugins=[Goals()], mode="manual")
    announce(store, agent)
    dispatcher = InlineDispatcher(Lab(agent, client=store.client))
    with serving(redis_url, dispatcher=dispatcher) as api:
        key = new_key(redis_url, "ann", "admin", person=True)
        yield Cli(tmp_path, BOYD_API_KEY=key, BOYD_URL=api.url)


@pytest.mark.long
def test_the_examples_of_the_seed_run_as_they_stand(cli: Cli, tmp_path: Path) -> None:
    facts = tmp_path / "facts.ttl"
    facts.write_text(TURTLE)
    assert cli("graph", "import", str(facts)) == "3 facts added\n"

    output = cli("agent", "cycle", "--goal", "Find mammals")
    for phase in ("Observe", "Orient", "Decide", "Act", "Result"):
        assert re.search(rf"^  {phase} +\S", output, re.MULTILINE), output
    assert BREAKDOWN.search(output)

    options = ["--max-cycles", "20"]
    output = cli.result("agent", "run", "--goals", "Discover planet properties", *options).output
    assert BREAKDOWN.search(output)
    assert re.search(r"No active goals left|Stopped after 20 cycles|Nothing can be", output)
    assert "cycle 1: b (" in cli("agent", "run", "--goals", "b", "--max-cycles", "1", "--fresh")
    assert "cycle 2: " in cli("agent", "resume", "--max-cycles", "1")
    assert "kept as memories" in cli("agent", "consolidate")
    cli("agent", "recall", "--query", "mammals", "--top-k", "5")
    assert cli.result("agent", "repl", stdin="s\ngoals\n\nq\n").exit_code == 0


def test_there_is_nothing_to_resume_at_first(cli: Cli) -> None:
    assert "there is no session to resume" in cli("agent", "resume", status=1)


def test_goals_are_changed_and_explained(cli: Cli) -> None:
    id = cli("goals", "add", "Find mammals", "--criteria", "whale, cat", "--priority", "9").strip()
    assert cli("goals", "suspend", id) == f"goal {id} is Suspended: Find mammals\n"
    assert cli("goals", "resume", id) == f"goal {id} is Active: Find mammals\n"
    cli("agent", "run", "--max-cycles", "2")
    output = cli("goals", "why", id)
    assert re.search(r"cycle 1, .*, \w+: \w+", output)
    assert BREAKDOWN.search(output)
    assert cli.json("goals", "show", id)["cyclesWorked"] == 2
    assert "no goal" in cli("goals", "show", "none", status=4)


def test_a_frozen_agent_is_named_and_so_is_what_lets_it_go_on(cli: Cli) -> None:
    cli("freeze", "--reason", "maintenance")
    output = cli("agent", "run", "--goals", "Find mammals", "--max-cycles", "2", status=1)
    assert re.match(
        r"Actions are frozen: maintenance \(by .*\); `boyd unfreeze` lifts the freeze\."
        r" Stopped after 0 cycles; goals: 1 active; `boyd agent resume` continues\.$",
        output.strip().splitlines()[0],
    )
    cli("unfreeze")
    cli("freeze", "--all", "--reason", "all of it")
    output = cli("agent", "cycle", "--goal", "Find mammals", status=1)
    assert "`boyd unfreeze --all` lifts the freeze" in output
    cli("unfreeze", "--all")
    assert "Stopped after 1 cycle;" in cli("agent", "run", "--max-cycles", "1")


def test_an_approval_that_waits_is_shown_by_every_command_until_it_is_answered(cli: Cli) -> None:
    goal = "run the shell command `uptime` in a terminal"
    criteria = ["--criteria", "unicorn habitat, dragon nests"]
    cli("goals", "add", goal, *criteria)
    output = cli("agent", "run", "--max-cycles", "4")
    [command] = set(re.findall(r"shell_exec waits for an approval: `boyd (.*)`", output))
    assert f"`boyd {command}`" in cli("agent", "run", "--max-cycles", "2")
    cli("approvals", "deny", "--yes", command.split()[-1], "--reason", "no")
    assert "waits for an approval" not in cli("agent", "run", "--max-cycles", "1")


def test_imported_facts_are_exported_and_shown(cli: Cli) -> None:
    cli.result("graph", "import", "-", stdin=TURTLE)
    symbol = next(name for name in re.findall(r"\S+", cli("graph", "export")) if "Mammal" in name)
    assert symbol
    body = cli.json("graph", "show", "Mammal")
    assert body["symbol"] == "Mammal"


def test_goal_commands_fail_with_advice_for_an_agent_without_the_plugin(
    cli: Cli, redis_url: str, store: Store
) -> None:
    announce(store, Agent("plain", mode="manual"))
    for command in (["goals", "list"], ["agent", "run", "--goals", "a"]):
        assert '`use = "goals"`' in cli(*command, "--agent", "plain", status=4)
