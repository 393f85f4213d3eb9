"""`boyd agent`, `goals`, `graph` and `questions`, before an imaginary agent with goals."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boyd_goals.api_models import GoalList
from boyd_goals.state import GoalEvidence
from cli_kit import AGO, Cli, Terminal
from goal_api_kit import APPROVAL, NOTHING, SCORES, Act, ImaginaryMind, thinking

#: What a terminal is told when a prompt begins.
PROMPT = ("\x1b[?2004h", "<prompt>")
MOVING = r"\x1b\[[0-9;?]*[A-Za-z]"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Cli, ImaginaryMind]]:
    """The commands, and the mind that they ask."""
    with thinking() as (mind, url):
        cli = Cli(tmp_path, BOYD_URL=url, BOYD_API_KEY="boyd_key", PROMPT_TOOLKIT_NO_CPR="1")
        yield cli, mind


@pytest.fixture
def cli(place: tuple[Cli, ImaginaryMind]) -> Cli:
    """The commands."""
    return place[0]


@pytest.fixture
def mind(place: tuple[Cli, ImaginaryMind]) -> ImaginaryMind:
    """The mind."""
    return place[1]


# One cycle


def test_a_cycle_shows_every_phase_with_its_scores(cli: Cli, mind: ImaginaryMind) -> None:
    mind.acts = [Act("Advanced", "cat -> is-a -> mammal\nand more")]
    output = cli("agent", "cycle", "--goal", "Find mammals")

    assert output.splitlines() == [
        "cycle 1: Find mammals (g1)",
        "  Observe  1 active goal, 3 entries in working memory, 0 recalled memories, load",
        "  Orient   1 active goal",
        f"  Decide   kg_query {SCORES}",
        "  Act      goals:kg_query ok",
        "  Result   Advanced: cat -> is-a -> mammal",
        "           and more",
    ]


def test_a_goal_is_added_once_while_it_is_active(cli: Cli, mind: ImaginaryMind) -> None:
    for _ in range(2):
        cli("agent", "cycle", "--goal", "Find mammals", "--priority", "200")
    assert [(goal.description, goal.priority) for goal in mind.goals.values()] == [
        ("Find mammals", 200)
    ]
    mind.goals["g1"] = mind.goals["g1"].model_copy(update={"status": "Completed"})
    cli("agent", "cycle", "--goal", "Find mammals")
    assert mind.goals["g2"].status == "Active"


def test_a_cycle_is_for_the_goal_that_is_named_whatever_the_priority_of_others(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.add("Find planets", priority=250)
    assert "cycle 1: Find mammals (g2)" in cli("agent", "cycle", "--goal", "Find mammals")


def test_a_cycle_that_is_for_another_goal_says_so(
    cli: Cli, mind: ImaginaryMind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker works on the goal that was named."""
    mind.add("Find planets", priority=250)
    monkeypatch.setattr(mind, "_focus", lambda arguments: (200, GoalList(goals=[])))
    result = cli.result("agent", "cycle", "--goal", "Find mammals")
    assert "cycle 1: Find planets (g1)" in result.stdout
    assert "g2 waits" in result.stderr


def test_an_iteration_that_began_without_the_goal_is_followed_by_one_with_it(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.acts = [NOTHING, Act()]
    assert "cycle 1: Find" in cli("agent", "cycle", "--goal", "Find mammals")


@pytest.mark.parametrize("act", [Act("Failed", status="Failed"), Act(None, error="no memory")])
def test_a_cycle_that_fails_ends_with_1(cli: Cli, mind: ImaginaryMind, act: Act) -> None:
    mind.acts = [act]
    output = cli("agent", "cycle", "--goal", "Find mammals", status=1)
    assert "Failed" in output or "failed: no memory" in output


def test_a_cycle_is_data_too(cli: Cli, mind: ImaginaryMind) -> None:
    body = cli.json("agent", "cycle", "--goal", "Find mammals")
    assert (body["iteration"], body["goal"]["id"]) == (1, "g1")
    assert body["decision"]["breakdown"] == SCORES
    again = json.loads(cli("agent", "cycle", "--goal", "Find mammals", "--json"))
    assert again["decision"]["cycle"] == 2


# Many cycles


def test_a_run_shows_each_cycle_and_stops_when_no_goal_is_active(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.acts = [
        Act("Advanced", "found one\nand another"),
        Act("Completed", "all", status="Completed"),
    ]
    output = cli("agent", "run", "--goals", "Discover planet properties", "--max-cycles", "20")

    assert output.splitlines() == [
        "cycle 1: Discover planet properties (g1)",
        f"  kg_query {SCORES}",
        "  Advanced: found one",
        "cycle 2: Discover planet properties (g1)",
        f"  kg_query {SCORES}",
        "  Completed: all",
        "No active goals left after 2 cycles; goals: 1 completed.",
    ]


def test_a_run_that_has_done_its_cycles_says_what_is_left_and_how_to_go_on(
    cli: Cli, mind: ImaginaryMind
) -> None:
    output = cli("agent", "run", "--goals", "a, b,,a", "--max-cycles", "3", "--agent", "test")
    assert (
        "Stopped after 3 cycles; goals: 2 active; `boyd agent resume --agent test` continues"
        in output
    )
    assert re.search(r"^  g1 a\n  g2 b$", output, re.MULTILINE)
    assert output.count("cycle ") == 3
    assert "cycle 4: a (g1)" in cli("agent", "resume", "--max-cycles", "1")


def test_agent_run_does_ten_cycles_by_default(cli: Cli, mind: ImaginaryMind) -> None:
    cli("agent", "run", "--goals", "a")
    assert mind.cycle == 10
    cli("agent", "resume")
    assert mind.cycle == 20


def test_a_fresh_run_begins_another_session(cli: Cli, mind: ImaginaryMind) -> None:
    cli("agent", "run", "--goals", "a", "--max-cycles", "2")
    output = cli("agent", "run", "--goals", "b", "--max-cycles", "1", "--fresh")
    assert (mind.sessions, output.splitlines()[0]) == (2, "cycle 1: b (g1)")


def test_a_goal_that_fails_makes_the_run_fail(cli: Cli, mind: ImaginaryMind) -> None:
    mind.add("long ago", "Failed")
    mind.acts = [Act("Completed", status="Completed")]
    cli("agent", "run", "--goals", "a")
    mind.acts = [Act("Failed", "no tool works", status="Failed")]
    result = cli.result("agent", "run", "--goals", "b")
    assert (result.exit_code, result.stderr) == (1, "boyd: goal g3 has failed\n")


def test_a_run_is_for_the_goals_that_are_named_and_so_is_its_exit_status(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.add("older", priority=250)
    mind.acts = [Act("Completed", status="Completed"), Act("Failed", status="Failed")]
    result = cli.result("agent", "run", "--goals", "new", "--max-cycles", "5")
    assert [line for line in result.stdout.splitlines() if line.startswith("cycle")] == [
        "cycle 1: new (g2)",
        "cycle 2: older (g1)",
    ]
    assert (result.exit_code, result.stderr) == (0, "boyd: goal g1 has failed\n")
    mind.add("oldest", priority=250)
    mind.acts = [Act("Failed", status="Failed")]
    assert "cycle 3: newest (g4)" in cli("agent", "run", "--goals", "newest", status=1)
    assert mind.focus == ["g4"]
    cli("agent", "run", "--max-cycles", "1")
    assert mind.focus == []


def test_an_iteration_that_fails_ends_the_run(cli: Cli, mind: ImaginaryMind) -> None:
    mind.acts = [Act(), Act("NoChange", error="the worker ran out of memory")]
    output = cli("agent", "run", "--goals", "a", status=1)
    assert "failed: the worker ran out of memory" in output
    assert "`boyd agent resume` continues" in output
    assert len(mind.results) == 2


ALLOW = f"kg_query waits for an approval: `boyd approvals approve {APPROVAL[:8]}`"


def test_questions_and_approvals_are_shown_when_they_arise_and_at_the_end(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.acts = [Act("Pending", approval=True, question="Which\x1b[2J one?"), Act()]
    output = cli("agent", "run", "--goals", "a", "--max-cycles", "3")
    cycles, _, end = output.partition("Stopped after 3 cycles")
    for line in (ALLOW, "asks: Which [2J one?  `boyd questions answer q1 TEXT`"):
        assert (cycles.count(line), end.count(line)) == (1, 1)
        assert cycles.index(line) < cycles.index("cycle 2: ")
    assert "\x1b" not in output


def test_an_approval_of_an_earlier_run_is_shown_until_somebody_has_answered_it(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.acts = [Act("Pending", approval=True)]
    cli("agent", "run", "--goals", "a", "--max-cycles", "1")
    output = cli("agent", "run", "--max-cycles", "2")
    assert output.startswith(f"  {ALLOW}\ncycle 2: ")
    assert output.endswith(f"{ALLOW}\n")
    assert f"  {ALLOW}\n" in cli("agent", "cycle", "--goal", "a")
    assert cli.json("agent", "cycle", "--goal", "a")["approvals"] == [APPROVAL]
    piped = cli.result("agent", "repl", stdin="s\n\n").stdout
    assert piped.count(ALLOW) == 2
    mind.approved = True
    assert "waits for an approval" not in cli("agent", "run", "--max-cycles", "1")


FROZEN = Act(None, undone="Actions are frozen: maintenance (by root)")


def test_a_run_of_a_frozen_agent_says_so_at_once_and_what_lifts_it(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.frozen = "maintenance (by root)"
    mind.acts = [FROZEN, FROZEN]
    output = cli("agent", "run", "--goals", "a", "--max-cycles", "2", status=1)
    assert output.startswith(
        "Actions are frozen: maintenance (by root); `boyd unfreeze` lifts the freeze."
        " Stopped after 0 cycles; goals: 1 active; `boyd agent resume` continues.\n"
    )
    assert len(mind.results) == 1
    mind.acts = [Act(), FROZEN]
    lines = cli.result("agent", "run", "-o", "json").stdout.splitlines()
    end = json.loads(lines[-1])
    assert (end["ending"], end["why"]) == ("frozen", "Actions are frozen: maintenance (by root)")


def test_a_freeze_of_everywhere_is_lifted_everywhere(cli: Cli, mind: ImaginaryMind) -> None:
    mind.frozen_everywhere = "maintenance (by root)"
    mind.acts = [FROZEN]
    output = cli("agent", "run", "--goals", "a", "--agent", "test", status=1)
    assert "`boyd unfreeze --all` lifts the freeze" in output


def test_a_cycle_of_a_frozen_agent_fails_and_says_what_lifts_it(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.acts = [FROZEN]
    result = cli.result("agent", "cycle", "--goal", "a", "--agent", "test")
    assert result.exit_code == 1
    assert "Actions are frozen: maintenance (by root)" in result.stdout
    assert "`boyd unfreeze --agent test` lifts the freeze" in result.stderr
    assert len(mind.results) == 1
    mind.acts = [FROZEN]
    piped = cli.result("agent", "repl", stdin="\n")
    assert piped.exit_code == 1
    assert "boyd: Actions are frozen: maintenance (by root); `boyd unfreeze`" in piped.stderr


def test_an_action_that_was_not_done_fails_the_command_that_wanted_a_cycle(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.acts = [NOTHING, Act(None, undone="Not executed: no worker")]
    assert "Not executed: no worker" in cli("agent", "cycle", "--goal", "a", status=1)


def test_a_run_in_which_nothing_is_chosen_says_why(cli: Cli, mind: ImaginaryMind) -> None:
    mind.acts = [Act(None, idle="all waits\x1b[2J")] * 2
    output = cli("agent", "run", "--goals", "a")
    assert "Nothing to do now, after 0 cycles: all waits [2J; goals: 1 active" in output


def test_resume_announces_the_cycle_or_fails_when_the_agent_is_paused(
    cli: Cli, mind: ImaginaryMind
) -> None:
    cli("agent", "run", "--goals", "a", "--max-cycles", "2")
    assert "resuming after cycle 2" in cli.result("agent", "resume").stderr
    mind.paused = "lunch"
    held = cli.process("agent", "resume")
    assert (held.returncode, held.stderr) == (5, "boyd: agent 'test' is paused: lunch\n")


def test_a_run_in_which_nothing_can_be_done_stops_and_says_what_waits(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.asks("Which one?")
    mind.acts = [Act(), NOTHING, Act(), NOTHING, NOTHING]
    output = cli("agent", "run", "--goals", "a")
    assert "Nothing to do now, after 2 cycles; goals: 1 active" in output
    assert output.rstrip().endswith("`boyd questions answer q1 TEXT`")


def test_a_session_that_has_had_all_its_cycles_says_so(cli: Cli, mind: ImaginaryMind) -> None:
    mind.max_cycles = 2
    output = cli("agent", "run", "--goals", "a")
    assert output.count("cycle 2: a") == 1
    assert (
        "The session has used all its 2 cycles; `boyd agent run --fresh --goals …` starts" in output
    )
    mind.acts = [NOTHING, NOTHING]
    output = cli("agent", "cycle", "--goal", "a")
    assert "  Result   nothing was done: the session has used all its 2 cycles" in output


def test_a_run_without_goals_takes_those_that_are_there(cli: Cli, mind: ImaginaryMind) -> None:
    assert "No goal is active (none): `boyd goals add …` adds one" in cli("agent", "run")
    assert json.loads(cli.result("agent", "run", "--json").stdout)["ending"] == "done"
    mind.add("a", "Suspended")
    assert "`boyd goals resume ID` resumes one" in cli("agent", "run")
    mind.add("b")
    assert "cycle 1: b (g2)" in cli("agent", "run", "--max-cycles", "1")


@pytest.mark.parametrize("goals", ["", " , "])
def test_a_run_for_no_goal_is_wrong_usage(cli: Cli, mind: ImaginaryMind, goals: str) -> None:
    assert "name at least one goal" in cli("agent", "run", "--goals", goals, status=2)
    assert mind.requests == []


def test_a_run_is_a_line_of_json_for_each_cycle_and_one_for_the_end(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.acts = [Act("Advanced"), Act("Completed", status="Completed")]
    result = cli.result("agent", "run", "--goals", "a", "--json")
    *cycles, end = map(json.loads, result.stdout.splitlines())
    assert [cycle["decision"]["progress"] for cycle in cycles] == ["Advanced", "Completed"]
    assert (end["ending"], end["session"]["goals"]) == ("done", {"Completed": 1})
    assert "No active goals left" in result.stderr


def test_there_must_be_something_to_resume(cli: Cli, mind: ImaginaryMind) -> None:
    output = cli("agent", "resume", "--max-cycles", "50", status=1)
    assert "`boyd agent run --goals …` or `boyd agent repl` starts one" in output


def test_ctrl_c_ends_the_run_and_says_how_to_go_on(cli: Cli, mind: ImaginaryMind) -> None:
    mind.going.clear()
    with cli.running("agent", "run", "--goals", "a") as process:
        assert mind.begun.wait(120)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.wait() == 130
    assert "`boyd agent resume` starts the next" in errors


def test_a_worker_that_is_away_for_a_moment_does_not_end_the_run(
    cli: Cli, mind: ImaginaryMind, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [mind._problem("no-worker", 503, "no worker is there")] * 2
    for name in ("_trigger", "_cycles"):
        usual = getattr(mind, name)
        monkeypatch.setattr(
            mind, name, lambda arguments, use=usual: refusals.pop() if refusals else use(arguments)
        )
    result = cli.result("agent", "run", "--goals", "a", "--max-cycles", "1")
    assert result.exit_code == 0
    assert result.stderr == "no worker is there; retrying until it is back\n"


# Memory


def test_memories_are_recalled(cli: Cli) -> None:
    output = cli("agent", "recall", "--query", "mammals", "--top-k", "5")
    assert "about mammals [2J\n" in output
    assert re.search(r"learned +whale", output)
    assert len(cli.json("agent", "recall", "--query", "x", "--top-k", "1")) == 1


def test_memories_are_made(cli: Cli) -> None:
    assert "3 kept as memories, 2 forgotten; working memory is 45% full" in cli(
        "agent", "consolidate"
    )
    assert cli.json("agent", "consolidate")["forgotten"] == 2


def test_memory_and_episodes_are_shown(cli: Cli) -> None:
    assert cli("agent", "memory", "--limit", "3") == (
        "1  cycle 1, Inference, relevance 0.70, consulted 0 times\n  a whale is large\n"
    )
    assert "about all [2J\n" in cli("agent", "episodes")
    assert len(cli.json("agent", "episodes", "--limit", "1")) == 1
    assert cli.json("agent", "memory")[0]["symbols"][0] == "whale"


def test_archetype_weights_and_shadow_rules_are_shown(cli: Cli, mind: ImaginaryMind) -> None:
    output = cli("agent", "psyche")
    assert re.search(r"sage +0\.70 +\+0\.030 +kg_query, reason, infer_rules", output)
    assert "the shadow forbids 'delete all', 'drop table', 'rm -rf': it destroys" in output
    assert "the shadow discourages (1.0) 'shut down[2J': mine" in output.replace("\\x1b", "")
    assert cli.json("agent", "psyche")["psyche"]["weights"]["healer"] == 0.5
    mind.psyche = None
    assert "has no psyche" in cli("agent", "psyche")


def test_sessions_are_listed_and_an_old_one_is_gone_on_with(cli: Cli, mind: ImaginaryMind) -> None:
    mind.sessions = 2
    output = cli("agent", "sessions")
    assert re.search(rf"^2 \(now\) +{AGO} .*\n1 ", output, re.MULTILINE)
    assert output.endswith("`boyd agent reopen SESSION` reopens an older one.\n")
    assert cli("agent", "reopen", "1") == (
        "session 1 is the current session now; `boyd agent resume` continues\n"
    )
    assert "there is no session" in cli("agent", "reopen", "7", status=4)
    assert cli.json("agent", "sessions")[0]["current"] is True


# Goals


def test_goals_are_added_listed_and_shown(cli: Cli, mind: ImaginaryMind) -> None:
    options = ["--criteria", "cat, dog", "--priority", "7", "--stall-threshold", "3"]
    assert cli("goals", "add", "Find mammals", *options) == "g1\n"
    [sent] = mind.posted("/plugins/goals/goals")
    assert sent == {
        "description": "Find mammals",
        "criteria": "cat, dog",
        "priority": 7,
        "stallThreshold": 3,
    }
    assert re.search(r"g1 +Active +7 +0 +Find mammals", cli("goals", "list"))
    assert re.search(r"criteria +cat, dog", cli("goals", "show", "g1"))
    assert cli("goals", "list", "--status", "failed") == "No goals found.\n"
    assert cli.json("goals", "list")[0]["stallThreshold"] == 3


def test_a_goal_rests_and_is_taken_up_again(cli: Cli, mind: ImaginaryMind) -> None:
    mind.add("a")
    assert cli("goals", "suspend", "g1", "--reason", "later") == "goal g1 is Suspended: a\n"
    assert re.search(r"reason +later", cli("goals", "show", "g1"))
    assert "is Suspended already" in cli("goals", "suspend", "g1", status=5)
    assert cli("goals", "resume", "g1") == "goal g1 is Active: a\n"


def test_a_goal_is_given_up_and_made_more_important(cli: Cli, mind: ImaginaryMind) -> None:
    mind.add("a")
    assert cli("goals", "priority", "g1", "200") == "goal g1 has priority 200\n"
    assert "256" in cli("goals", "priority", "g1", "256", status=2)
    assert cli("goals", "fail", "g1", "--reason", "too late") == "goal g1 is Failed: a\n"
    assert re.search(r"reason +too late", cli("goals", "show", "g1"))
    assert cli.json("goals", "priority", "g1", "7")["priority"] == 7


def test_the_result_of_a_goal_is_shown_with_what_fulfilled_it(
    cli: Cli, mind: ImaginaryMind
) -> None:
    evidence = GoalEvidence(
        criterion="cat", cycle=1, tool="kg_query", text="cat is-a\x1b[2J mammal"
    )
    mind.add("Find mammals", result="cats\nand so on", evidence=[evidence])
    for command in ("show", "why"):
        output = cli("goals", command, "g1")
        assert re.search(r"result +cats; and so on", output)
        assert re.search(r"fulfilled +cat, by kg_query in cycle 1: cat is-a.* mammal", output)
        assert "\x1b" not in output
    mind.acts = [Act("Completed", status="Completed")]
    assert "\n  Answer   cats; and so on\n" in cli("agent", "cycle", "--goal", "Find mammals")
    mind.add("Find birds", result="none")
    mind.acts = [Act("Advanced"), Act("Completed", status="Completed")]
    output = cli("agent", "run", "--goals", "Find birds", "--max-cycles", "2")
    assert output.count("  Answer: none\n") == 1


@pytest.mark.parametrize("id", ["g7", "..", "a/b"])
def test_an_unknown_goal_is_not_found(cli: Cli, id: str) -> None:
    assert "no goal" in cli("goals", "show", id, status=4)


def test_goals_why_shows_plan_children_and_scored_decisions(cli: Cli, mind: ImaginaryMind) -> None:
    mind.add("a")
    mind.add("b", parent="g1", priority=1)
    mind.acts = [Act("Advanced", "found\x1b[2J one")]
    cli("agent", "run", "--max-cycles", "2")
    output = cli("goals", "why", "g1")
    assert re.search(r"plan +kg_query \(Pending\) → reason \(Pending\), Active", output)
    assert re.search(r"children +g2 b \(Active\)", output)
    assert re.search(r"cycle 1, \d{4}-\d\d-\d\d [\d:+]+, kg_query: Advanced", output)
    assert output.count(SCORES) == 2
    assert "found [2J one" in output
    assert len(cli.json("goals", "why", "g1")["decisions"]) == 2


def test_an_error_of_the_agent_is_printed_as_the_agent_worded_it(cli: Cli) -> None:
    process = cli.process("goals", "add", "nonsense")
    assert (process.returncode, process.stderr) == (1, "boyd: that is [31mno goal\n")


def test_goal_commands_fail_with_advice_for_an_agent_without_the_plugin(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.has_goals = False
    for command in (["goals", "list"], ["agent", "cycle", "--goal", "a"], ["agent", "resume"]):
        assert 'add `use = "goals"` below `[[plugins]]`' in cli(*command, status=4)
    assert "agent 'office' does not use the goals plugin" in cli(
        "goals", "list", "--agent", "office", status=4
    )


# Facts and questions


def test_graph_import_adds_facts_and_counts_skipped_statements(
    cli: Cli, mind: ImaginaryMind, tmp_path: Path
) -> None:
    turtle = tmp_path / "facts.ttl"
    turtle.write_text('<a> <b> <c> . [] <b> <c> . <d> <b> "rot"@de, "red"@en .')
    assert cli("graph", "import", str(turtle)).splitlines() == [
        "2 facts added",
        "2 statements left out:",
        "  1  about blank nodes",
        "  1  texts in other languages",
    ]
    piped = cli.result("graph", "import", "-", "--source", "me", stdin="<ü> <b> <c> . <d> <e> <f>.")
    assert piped.stdout == "2 facts added\n"
    sent = mind.posted("/plugins/goals/graph/facts")
    assert [request["facts"][0].get("source") for request in sent] == ["facts.ttl", "me"]
    assert sent[1]["facts"][1]["subject"] == "ü"
    assert cli.json("graph", "import", str(turtle))["skipped"] == {"blank-node": 1, "language": 1}
    turtle.write_text("no turtle (")
    assert "boyd: turtle: line 1" in cli("graph", "import", str(turtle), status=1)
    assert "cannot read" in cli("graph", "import", str(tmp_path / "none"), status=1)


def test_a_file_of_any_size_is_sent_in_requests_that_the_api_takes(
    cli: Cli, mind: ImaginaryMind, tmp_path: Path
) -> None:
    large = tmp_path / "large.ttl"
    large.write_text("".join(f"<s{n}> <b> <c> .\n" for n in range(2500)))
    assert cli("graph", "import", str(large)) == "2500 facts added\n"
    sent = [len(request["facts"]) for request in mind.posted("/plugins/goals/graph/facts")]
    assert sent == [1000, 500, 500, 1000, 500, 500, 500]


def test_graph_export_writes_all_pages_and_warns_of_changes_meanwhile(
    cli: Cli, mind: ImaginaryMind, tmp_path: Path
) -> None:
    file = tmp_path / "out.ttl"
    result = cli.result("graph", "export", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the graph changed during the export" in result.stderr
    both = "<a:cat> <a:is> <a:mammal> .\n<a:dog> <a:is> <a:mammal> .\n"
    assert file.read_text() == cli.result("graph", "export").stdout == both
    assert "already exists" in cli("graph", "export", str(file), status=1)


def test_an_export_that_breaks_off_leaves_no_file(
    cli: Cli, mind: ImaginaryMind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = mind._export
    refusal = mind._problem("forbidden", 403, "no longer")
    monkeypatch.setattr(
        mind, "_export", lambda arguments: refusal if "after" in arguments else usual(arguments)
    )
    cli("graph", "export", str(tmp_path / "out.ttl"), status=3)
    assert not (tmp_path / "out.ttl").exists()


def test_graph_show_lists_facts_or_symbols_with_similar_names(
    cli: Cli,
) -> None:
    assert re.search(r"cat +is-a +mammal +0.90", cli("graph", "show", "mammal"))
    assert cli("graph", "show", "dog") == (
        "Nothing is known about dog.\nSimilar symbols:\n  cat (foaf) [2J\n"
    )
    assert cli.json("graph", "show", "cat")["out"][0]["object"] == "mammal"
    assert cli("graph", "search", "cats") == "cat\n"
    assert cli("graph", "search", "dogs") == "No symbol matches 'dogs'.\n"
    assert cli.json("graph", "search", "cats") == ["cat"]


def test_questions_are_answered(cli: Cli, mind: ImaginaryMind) -> None:
    mind.asks("Which one?")
    assert re.search(rf"q1 +{AGO} +g1 +Which one\?", cli("questions", "list"))
    assert cli("questions", "answer", "q1", "the blue one") == "question q1 is answered\n"
    assert mind.posted("/plugins/goals/questions/q1/answer") == [{"text": "the blue one"}]
    assert cli("questions", "list") == "No questions found.\n"
    assert re.search(r"Which one\? +the blue one \(ann\)", cli("questions", "list", "--all"))
    assert "ann has answered it" in cli("questions", "answer", "q1", "x", status=5)
    assert "no question 'q7'" in cli("questions", "answer", "q7", "x", status=4)


# Completion and help


@pytest.mark.long
def test_looking_at_the_help_loads_nothing_that_only_goals_need(cli: Cli) -> None:
    code = "import sys, boyd_cli.group as g; g.boyd(['--help'], standalone_mode=False);"
    code += "names = 'boyd_goals.state', 'numpy', 'rdflib', 'requests', 'prompt_toolkit';"
    code += "print([n for n in names if n in sys.modules])"
    output = subprocess.run(
        [cli.argv([])[0], "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "  agent  " in output
    assert output.endswith("[]\n")


def complete_line(cli: Cli, line: str, **more: str) -> list[str]:
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    process = cli.process(_BOYD_COMPLETE="bash_complete", **variables, **more)
    assert process.stderr == ""
    return process.stdout.split()


def test_a_shell_completes_ids_of_goals_and_questions(cli: Cli, mind: ImaginaryMind) -> None:
    mind.add("a")
    mind.add("b", "Suspended")
    mind.asks("Which?")
    assert complete_line(cli, "boyd goals why ") == ["plain,g1", "plain,g2"]
    assert complete_line(cli, "boyd goals suspend --agent test g") == ["plain,g1"]
    assert complete_line(cli, "boyd goals resume g") == ["plain,g2"]
    assert complete_line(cli, "boyd questions answer ") == ["plain,q1"]
    assert complete_line(cli, "boyd goals why ", BOYD_URL="http://127.0.0.1:1") == []


# The REPL


def test_a_pipe_is_read_line_by_line_as_commands(cli: Cli, mind: ImaginaryMind) -> None:
    mind.acts = [Act("Advanced", question="Which one?")]
    lines = ["add Find mammals", "", "s", "goals", "answer q1 the blue one", "suspend g1", ""]
    lines += ["resume g1", "priority g1 7", "memory", "why g1", "graph cat", "recall cats"]
    lines += ["consolidate", "questions"]
    result = cli.result("agent", "repl", stdin="\n".join([*lines, "help", "q", "add never"]) + "\n")

    assert result.exit_code == 0, result.output
    for expected in (
        "goal g1 is Active: Find mammals",
        "cycle 1: Find mammals (g1)",
        "asks: Which one?  answer q1 TEXT",
        "  cycle     1 of at most 1000",
        "question q1 is answered",
        "goal g1 is Suspended",
        "goal g1 has priority 7",
        "a whale is large",
        "No goal is active",
        SCORES,
        "3 kept as memories",
        "No questions found",
        "  Enter               one cycle",
    ):
        assert expected in result.stdout, expected
    assert re.search(r"cat +is-a +mammal", result.stdout)
    assert len(mind.goals) == 1
    assert "\x1b" not in result.output


def test_a_mistake_in_piped_repl_input_sets_the_exit_status_and_goes_on(
    cli: Cli, mind: ImaginaryMind
) -> None:
    result = cli.result("agent", "repl", "--goals", "a", stdin="fly\nwhy g9\nanswer\nanswer q1\n\n")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "boyd: no command 'fly'; `help` lists them",
        "boyd: no goal 'g9'",
        "boyd: write `answer ID TEXT`",
        "boyd: write `answer ID TEXT`",
    ]
    assert "cycle 1: a (g1)" in result.stdout


def hears(terminal: Terminal, text: str, since: int = 0) -> int:
    """Read until *text* comes after *since*; where it ends, not counting what moves the cursor."""
    while text not in (screen := re.sub(MOVING, "", terminal.text.replace(*PROMPT)))[since:]:
        chunk = terminal._read()
        assert chunk, f"ended before {text!r}: {terminal.text}"
        terminal.text += chunk
    return screen.index(text, since) + len(text)


def test_on_a_terminal_enter_is_a_cycle_and_tab_completes(
    cli: Cli, mind: ImaginaryMind, tmp_path: Path
) -> None:
    mind.acts = [Act("Advanced", "found one")]
    with cli.terminal("agent", "repl", NO_COLOR="1") as terminal:
        at, is_done = hears(terminal, "Enter runs a cycle"), True
        for typed, answer in [
            ("add Find mammals\r", "goal g1 is Active"),
            ("\r", "Result   Advanced: found one"),
            ("wh\t", "why"),
            ("g\t", "1"),
            ("\r", "cycle 1, "),
            ("graph whal\t", "e"),
            ("\r", "Nothing is known about whale"),
            ("\x03", "`q` or Ctrl-D quits."),
            ("nonsense\r", "no command 'nonsense'"),
        ]:
            if is_done:
                at = hears(terminal, PROMPT[1], at)
            terminal.type(typed)
            at = hears(terminal, answer, at)
            is_done = not typed.endswith("\t")
        hears(terminal, PROMPT[1], at)
        terminal.type("q\r")
        assert "`boyd agent repl` continues from here" in terminal.rest().replace("\r\n", " ")
        assert terminal.process.wait(120) == 0

    history = tmp_path / "state" / "repl-history"
    assert "+why g1" in history.read_text().splitlines()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_ctrl_c_while_a_cycle_goes_on_comes_back_to_the_prompt(
    cli: Cli, mind: ImaginaryMind
) -> None:
    mind.add("a")
    mind.going.clear()
    with cli.terminal("agent", "repl", NO_COLOR="1") as terminal:
        at = hears(terminal, PROMPT[1])
        terminal.type("\r")
        assert mind.begun.wait(120)
        os.kill(terminal.process.pid, signal.SIGINT)
        at = hears(terminal, "continues without this command", at)
        hears(terminal, PROMPT[1], at)
        terminal.type("\x04")
        terminal.rest()
        assert terminal.process.wait(120) == 0


def test_an_api_that_is_gone_ends_a_pipe(cli: Cli) -> None:
    result: Any = cli.result("agent", "repl", stdin="s\ns\n", BOYD_URL="http://127.0.0.1:1")
    assert "does not answer" in str(result.exception)
