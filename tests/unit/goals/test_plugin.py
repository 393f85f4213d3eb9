"""One iteration is one cycle, taken in once."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from boyd import Agent
from boyd.errors import PluginError, Veto
from boyd.models import Decision, LoopResult, Model, Triple
from boyd.plugin import Action, Plugin, action, hook, observer, orienter
from boyd.replay.differences import judge
from boyd.replay.shadow import Shadow
from boyd.testing import Lab
from boyd_goals import scoring
from boyd_goals.plugin import Goals
from boyd_goals.scoring import Outlook
from boyd_goals.sessions import Sessions
from boyd_goals.state import Episode, GoalEvidence
from boyd_goals.tool_profiles import PROFILES, ToolProfile
from goals_kit import CONFIG, Mind, Steer, check, patch_goals
from kit import seen

DESCRIPTION = "Find mammals"
CRITERIA = "unicorn habitat, dragon nests and whale songs"


class Start(Model):
    """Params of `others:start`."""

    folder: str
    deep: bool = False


class Others(Plugin):
    """A plugin that has nothing to do with goals."""

    id = "others"

    @action(risk="critical")
    def kg_query(self) -> str:
        """Named like one of the tools."""
        return "done"

    @action()
    def clean(self, params: dict[str, Any]) -> str:
        """Take anything."""
        return "cleaned"

    @action()
    def start(self, params: Start) -> str:
        """Take what it needs."""
        return f"started {params.folder}"


def states(mind: Mind) -> dict[str, str]:
    client = mind.lab.client
    keys = [key for key in client.keys("*") if ":goals:" in key or "graph" in key]
    return {key: client.dump(key) for key in keys}


def test_a_cycle_leaves_one_record_and_what_it_was_about_in_memory() -> None:
    mind = Mind()
    mind.know("whale is-a mammal")
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    result = mind.cycle()
    session = mind.session

    assert [
        (decision.cycle, decision.iteration, decision.goal) for decision in session.decisions
    ] == [(1, result.iteration, goal)]
    kinds = [entry.kind for entry in session.memory]
    assert kinds == ["Observation", "Inference", "Decision", "Action"]
    assert result.decision
    assert "[score=" in result.decision.rationale
    assert result.decision.alternatives
    assert session.goals[goal].owner is None
    check(session, CONFIG)


def test_without_a_goal_nothing_is_written() -> None:
    mind = Mind()
    mind.cycle()

    assert states(mind) == {}


def test_without_an_active_goal_what_is_stored_stays_as_it_is() -> None:
    mind = Mind()
    goal = mind.goal(DESCRIPTION)
    mind.ask("suspend_goal", {}, id=goal)
    before = states(mind)
    mind.cycle()

    assert states(mind) == before


class Watcher(Plugin):
    """Tells how an iteration looks to others."""

    id = "watcher"
    summary = ""

    @observer()
    def sky(self) -> list[Any]:
        return []

    @orienter()
    def sight(self, observations: list[Any]) -> dict[str, Any]:
        return {"source": "sight", "findings": ["the sky is blue"], "confidence": 0.5}

    @hook()
    def on_loop_complete(self, result: LoopResult) -> None:
        assert result.situation is not None
        self.summary = result.situation.summary


def test_without_a_goal_other_plugins_notice_nothing() -> None:
    watcher = Watcher()
    result = Mind(watcher).cycle()

    assert result.situation is not None
    assert [assessment.source for assessment in result.situation.assessments] == ["sight"]
    assert (result.situation.confidence, watcher.summary) == (0.5, "the sky is blue")
    assert result.observations == []
    assert result.decision is not None
    assert result.decision.is_no_op


def test_a_cycle_may_have_another_worker_for_each_of_its_steps() -> None:
    mind = Mind()
    mind.know("whale is-a mammal")
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(3):
        mind.lab.launcher.trigger("test")
        while mind.lab.dispatcher.hints:
            mind.forget()
            mind.lab.step()
    session = mind.session

    assert [decision.cycle for decision in session.decisions] == [1, 2, 3]
    assert session.goals[goal].cycles_worked == 3
    assert (session.applied, session.goals[goal].owner) == (3, None)
    check(session, CONFIG)


def test_a_worker_that_has_looked_too_early_still_takes_the_cycle_in() -> None:
    mind = Mind()
    mind.lab.launcher.trigger("test")
    mind.lab.step()
    early = mind.plugin.cache
    mind.forget()
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    iteration = mind.lab.store.loop_control.status().iteration
    mind.plugin.on_loop_start(mind.within(iteration))
    while mind.lab.dispatcher.hints:
        if mind.lab.dispatcher.hints[0][0] == "complete":
            mind.plugin.cache = early
        mind.lab.step()

    assert mind.session.applied == 1


def test_a_start_that_is_repeated_begins_no_other_cycle() -> None:
    mind = Mind()
    mind.goal(DESCRIPTION)
    for _ in range(2):
        mind.plugin.on_loop_start(mind.within(7))
        mind.forget()

    assert (mind.session.cycle, mind.session.iteration) == (1, 7)


def test_a_goal_that_has_ended_is_an_event_with_its_result_or_reason_once() -> None:
    mind = Mind(Steer("goals:kg_query", symbol="whale"))
    mind.know("whale is-a mammal")
    goal, other = mind.goal("Explore the whale"), mind.goal("zorb", priority=1)
    result = mind.cycle()
    mind.plugin.on_loop_complete(result, mind.within(result.iteration))
    mind.ask("fail_goal", {"reason": "too late"}, id=other)
    news = [
        event.data for event in mind.lab.store.events.after("0-0") if event.kind == "plugin.news"
    ]

    assert news == [
        {"plugin": "goals", "name": name, "about": about, "text": text}
        for name, about, text in (
            ("goal.completed", goal, "whale is-a mammal"),
            ("goal.failed", other, "too late"),
        )
    ]


def test_a_decision_that_is_repeated_is_the_same_and_remembered_once() -> None:
    mind = Mind()
    mind.know("whale is-a mammal")
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    result = mind.cycle()
    situation = result.situation
    assert situation is not None
    mind.plugin.on_loop_start(mind.within(9))
    choices = [mind.plugin.choose(situation, mind.within(9)) for _ in range(2)]
    entries = [entry for entry in mind.session.memory if entry.source_cycle == 2]

    assert choices[0] == choices[1]
    assert [entry.kind for entry in entries].count("Decision") == 1


def test_an_end_that_is_repeated_is_taken_in_once() -> None:
    mind = Mind()
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    result = mind.cycle()
    before = mind.session
    for _ in range(2):
        mind.forget()
        mind.plugin.on_loop_complete(result, mind.within(result.iteration))

    assert mind.session == before
    assert before.goals[goal].cycles_worked == 1


def test_a_repeated_end_of_the_loop_repairs_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mind = Mind(Steer("goals:kg_query", symbol="whale"))
    mind.know("whale is-a mammal")
    goal = mind.goal("whale", criteria="whale")
    with monkeypatch.context() as died:
        died.setattr(Sessions, "_note", lambda *_: None)
        result = mind.cycle()
    mind.plugin.on_loop_complete(result, mind.within(result.iteration))

    assert mind.session.goals[goal].status == "Completed"
    assert said(mind, goal, "agent:has_status") == ["status:completed"]


def said(mind: Mind, goal: str, predicate: str) -> list[str]:
    return [
        triple.object for triple in mind.facts.out(f"goal:{goal}") if triple.predicate == predicate
    ]


def test_the_graph_follows_what_becomes_of_goals_and_links_them_both_ways() -> None:
    mind = Mind(stall_threshold=1)
    parent = mind.goal("xyzzy", criteria="unicorn habitat and dragon nests")
    for _ in range(4):
        mind.cycle()
    session = mind.session
    children = session.goals[parent].children

    assert len(children) == 2
    assert sorted(said(mind, parent, "agent:child_goal")) == sorted(f"goal:{i}" for i in children)
    for goal in session.goals.values():
        assert said(mind, goal.id, "agent:has_status") == [f"status:{goal.status.lower()}"]
        assert said(mind, goal.id, "agent:has_priority") == [f"priority:{goal.priority}"]
    assert said(mind, children[0], "agent:parent_goal") == [f"goal:{parent}"]


def test_the_newest_memories_count_as_consulted() -> None:
    mind = Mind()
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.cycle()
    mind.cycle()

    first = [entry for entry in mind.session.memory if entry.source_cycle == 1]
    assert [entry.reference_count for entry in first] == [1] * len(first)


def test_after_the_last_cycle_there_is_no_other() -> None:
    mind = Mind(max_cycles=2)
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    decisions = [mind.cycle().decision for _ in range(4)]

    assert [decision is not None and decision.is_no_op for decision in decisions] == [
        False,
        False,
        True,
        True,
    ]
    assert (mind.session.cycle, len(mind.session.decisions)) == (2, 2)


def test_an_iteration_that_never_ended_holds_no_goal_back() -> None:
    mind = Mind()
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.plugin.on_loop_start(mind.within(1000))
    assert mind.session.goals[goal].owner == "iteration:1000"
    result = mind.cycle()

    assert result.decision is not None
    assert not result.decision.is_no_op


def test_a_goal_that_is_put_off_meanwhile_is_not_worked_on() -> None:
    mind = Mind()
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.lab.launcher.trigger("test")
    mind.lab.deliver(until=lambda: mind.session.at_work is not None)
    mind.ask("suspend_goal", {}, id=goal)
    mind.lab.deliver()
    session = mind.session

    assert (session.decisions, session.goals[goal].owner) == ([], None)


def test_the_shadow_stops_any_plugin_and_it_is_neither_progress_nor_failure() -> None:
    mind = Mind(Others(), Steer("goals:kg_query", symbol="rm -rf /"))
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    result = mind.cycle()
    session = mind.session

    assert (result.action_results[0].error or "").startswith("Vetoed by goals: shadow pattern")
    assert session.psyche is not None
    assert session.psyche.shadow_encounters == 1
    assert (session.goals[goal].cycles_worked, session.goals[goal].failed_plans) == (0, 0)
    assert session.goals[goal].used == {"kg_query": 1}
    assert session.decisions[0].progress is None
    assert "vetoed" in session.decisions[0].detail


def test_the_shadow_stops_actions_that_no_goal_has_asked_for() -> None:
    mind = Mind(Others())
    clean = mind.lab.agent.host.actions["others:clean"]

    with pytest.raises(Veto, match="destructive_action"):
        mind.plugin.on_before_act(clean, {"sql": "DROP  TABLE users"}, mind.ctx)
    mind.plugin.on_before_act(clean, {"sql": "SELECT 1"}, mind.ctx)


def test_an_action_the_shadow_discourages_runs_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mind = Mind()
    shell = mind.lab.agent.host.actions["goals:shell_exec"]
    query = mind.lab.agent.host.actions["goals:kg_query"]
    with caplog.at_level(logging.INFO, "boyd.plugin.goals"):
        mind.plugin.on_before_act(query, {"symbol": "mammal"}, mind.ctx)
        mind.plugin.on_before_act(shell, {"command": "uptime"}, mind.ctx)

    assert [record.getMessage() for record in caplog.records] == [
        "the shadow advises against shell_exec (0.3): filesystem_write: it changes the host"
    ]


def test_an_action_of_another_plugin_is_as_dangerous_as_it_says() -> None:
    mind = Mind(Others(), tools={"others:kg_query": {"keywords": ["mammal"], "danger": "Safe"}})
    danger: Callable[..., str] = mind.plugin.toolbox.danger_of

    assert danger("others:kg_query", "critical", {}) == "Danger"
    assert danger("others:reason", "medium", {}) == "Cautious"
    assert danger("goals:file_io", "medium", {"action": "write"}) == "Danger"
    assert danger("goals:file_io", "medium", {"action": "read"}) == "Cautious"


def test_the_options_say_what_the_psyche_begins_with_and_what_the_shadow_forbids_besides() -> None:
    mine = {"name": "mine", "triggers": ["shut down"], "explanation": "people work here"}
    mind = Mind(Others(), archetypes={"explorer": 0.9}, shadow=[mine])
    clean = mind.lab.agent.host.actions["others:clean"]
    mind.goal(DESCRIPTION)
    mind.cycle()

    for forbidden in ("shut down now", "rm -rf /"):
        with pytest.raises(Veto, match=r"people work here|irreversibly"):
            mind.plugin.on_before_act(clean, {"line": forbidden}, mind.ctx)
    psyche = mind.ask("show_psyche")[1]["psyche"]
    assert (psyche["weights"]["explorer"], psyche["weights"]["sage"]) == (0.9, 0.7)
    assert [pattern["name"] for pattern in psyche["shadow"]][-1] == "mine"
    assert mind.session.psyche is not None
    assert mind.session.psyche.weights["explorer"] == 0.9


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shadow": [{"name": "x"}]}, "needs triggers or a danger"),
        ({"archetypes": {"jester": 0.5}}, "archetypes"),
        ({"archetypes": {"sage": 2}}, "archetypes.sage"),
        ({"consolidate_above": 0.4}, "consolidate_down_to is greater"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        Goals(**options)


def test_consolidation_and_reflection_are_configurable() -> None:
    options = {"min_relevance": 0.9, "stagnation_threshold": 3, "consolidate_above": 0.6}
    config = Goals(**options).config

    assert {name: getattr(config, name) for name in options} == options


def test_without_a_psyche_nothing_is_forbidden() -> None:
    mind = Mind(Others(), with_psyche=False)
    clean = mind.lab.agent.host.actions["others:clean"]
    mind.plugin.on_before_act(clean, {"line": "rm -rf /"}, mind.ctx)
    mind.goal(DESCRIPTION)
    mind.cycle()

    assert mind.session.psyche is None


class Refuser(Plugin):
    """Stops everything, or fails to judge."""

    id = "refuser"

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage

    @hook(fail_closed=True)
    def on_decide(self) -> None:
        if self.stage == "decide":
            raise Veto("not today")

    @hook(fail_closed=True)
    def on_before_act(self, action: Action) -> None:
        if self.stage == "act":
            raise Veto("not today")
        if self.stage == "broken":
            raise RuntimeError("cannot tell")


@pytest.mark.parametrize("stage", ["decide", "act", "broken"])
def test_an_action_stopped_by_a_guard_fails_no_plan(stage: str) -> None:
    mind = Mind(Refuser(stage))
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(4):
        mind.lab.run()
    session = mind.session

    assert [decision.progress for decision in session.decisions] == [None] * 4
    assert (session.goals[goal].status, session.goals[goal].failed_plans) == ("Active", 0)


def test_while_acting_is_frozen_no_plan_fails() -> None:
    mind = Mind()
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.lab.whole.freezes.freeze("for now")
    for _ in range(4):
        mind.cycle()

    assert (mind.session.goals[goal].status, mind.session.decisions) == ("Active", [])


def test_tools_that_fail_fail_the_goal_in_the_end() -> None:
    mind = Mind(Steer("goals:kg_mutate", subject="a", predicate="agent:x", object="b"))
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(3):
        mind.cycle()
    failed_goal = mind.session.goals[goal]

    assert (failed_goal.status, failed_goal.failed_plans) == ("Failed", 3)
    assert failed_goal.reason
    assert "backtracking exhausted" in failed_goal.reason


def test_a_decision_of_another_strategy_is_not_applied() -> None:
    mind = Mind()
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.plugin.on_loop_start(mind.within(50))
    mind.know("whale is-a mammal")
    other = Mind()
    other.goal(DESCRIPTION)
    result = other.cycle().patched({"iteration": 50})
    trace = result.trace
    assert trace is not None
    foreign = result.patched({"trace": trace.patched({"chosen": "others:rule"})})
    mind.plugin.on_loop_complete(foreign, mind.within(50))
    session = mind.session

    assert (session.decisions, session.applied) == ([], 1)
    assert session.goals[goal].owner is None


def test_an_action_of_another_plugin_is_chosen_by_its_profile() -> None:
    words = ["clean", "tidy", "wipe", "sweep", "mop"]
    mind = Mind(Others(), tools={"others:clean": {"keywords": words, "multiplier": 1.0}})
    mind.goal("clean tidy wipe sweep mop", criteria=CRITERIA)
    result = mind.cycle()
    assert result.decision is not None
    options = [result.decision, *(result.decision.alternatives or [])]

    assert "others:clean" in [option.action for option in options]


def test_an_action_of_another_plugin_is_given_what_its_profile_says() -> None:
    words = ["save", "copy", "backup"]
    profile = {"keywords": words, "multiplier": 1.0, "params": {"folder": "/srv"}}
    mind = Mind(Others(), Steer("others:start", folder="/srv"), tools={"others:start": profile})
    goal = mind.goal("save copy backup", criteria="started")
    result = mind.cycle()

    assert result.trace is not None
    params = [
        candidate.params
        for candidate in candidates(mind, goal)
        if candidate.action == "others:start"
    ]
    assert params == [{"folder": "/srv"}]
    assert result.action_results[0].output == "started /srv"
    assert mind.session.goals[goal].status == "Completed"


def candidates(mind: Mind, goal: str) -> list[Decision]:
    """The candidate decisions for a goal about which nothing else is known."""
    outlook = Outlook(mind.session.goals[goal])
    toolbox, catalog = mind.plugin.toolbox, mind.ctx.catalog
    best = scoring.decide(
        scoring.list_options(mind.session, outlook, toolbox, catalog),
        outlook.goal,
        toolbox,
        catalog,
    )
    return [best, *(best.alternatives or [])]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "'folder' is a required property"),
        ({"folder": 4711}, 'folder: expected type "string"'),
        ({"folder": "/srv", "what": 4711}, "'what' was unexpected"),
        ({"folder": "/srv", "deep": "hunter2"}, 'deep: expected type "boolean"'),
    ],
)
def test_params_that_do_not_fit_the_action_keep_the_agent_from_starting(
    params: dict[str, Any], reason: str
) -> None:
    place = 'goals.*tools."others:start".params: '
    with pytest.raises(PluginError, match=f"{place}.*{reason}") as refused:
        Mind(Others(), tools={"others:start": {"keywords": ["save"], "params": params}})
    assert "4711" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_profile_may_be_written_in_python() -> None:
    profile = ToolProfile(name="clean", keywords=("tidy",))
    mind = Mind(Others(), tools={"others:clean": profile})

    assert mind.plugin.toolbox.profiles["others:clean"].name == "others:clean"


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("others:clear", "no action 'others:clear'; the nearest ones are others:clean, "),
        ("kg_mutat", "no action 'goals:kg_mutat'; the nearest ones are goals:kg_mutate, "),
    ],
)
def test_a_profile_of_an_action_that_is_not_there_keeps_the_agent_from_starting(
    tool: str, reason: str
) -> None:
    with pytest.raises(PluginError, match=f'tools."{tool}": the agent has {reason}'):
        Mind(Others(), tools={tool: {"keywords": ["clean"], "params": {"folder": 1}}})


def test_a_tool_without_an_action_is_reported_before_the_agent_starts() -> None:
    plugin = Goals(tools={"goals:nope": {"keywords": ["clean"]}})
    agent = Agent("a", plugins=[plugin])

    [misfit] = plugin.misfits(agent.host.catalog)
    assert misfit.startswith('tools."goals:nope": the agent has no action')


def test_a_profile_of_its_own_tools_is_given_no_params() -> None:
    mind = Mind(tools={"kg_query": {"keywords": ["ask"]}})

    assert mind.plugin.toolbox.profiles["kg_query"].keywords == ("ask",)


def test_recalled_episodes_are_summarised_briefly() -> None:
    mind = Mind()
    mind.facts.add([Triple(subject="x" * 150, predicate="is-a", object="mammal")])
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(4):
        mind.cycle()
    mind.ask("consolidate_now", {})
    situation = mind.cycle().situation
    assert situation is not None
    [recalled] = [
        assessment for assessment in situation.assessments if assessment.source == "goals:episodic"
    ]

    assert any("xxx" in finding for finding in recalled.findings)
    assert max(map(len, recalled.findings)) <= 100


def learn(mind: Mind) -> list[Episode]:
    """The episodes after a while of work on a goal about which something is known."""
    mind.know("whale is-a mammal", "mammal is-a animal", "whale eats krill", "dolphin is-a mammal")
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(9):
        mind.cycle()
    mind.ask("consolidate_now", {})
    return mind.session.episodes


def test_episodes_say_what_tools_have_found_and_name_symbols_that_facts_are_about() -> None:
    mind = Mind(stall_threshold=50)
    episodes = learn(mind)
    symbols = {symbol for episode in episodes for symbol in episode.learnings}
    summaries = [episode.summary for episode in episodes]

    assert {"whale", "mammal", "animal", "krill"} <= symbols
    assert all(mind.facts.degrees([*symbols]).values())
    assert any(summary.startswith("came to mind: ") for summary in summaries)
    assert any(summary.startswith("reason: (triple ") for summary in summaries), summaries
    assert len(set(summaries)) == len(summaries)
    assert not [
        summary for summary in summaries if re.match(r"Cycle|Decide|Orient|Tool result", summary)
    ]


def test_later_cycles_use_facts_learned_earlier() -> None:
    mind = Mind(stall_threshold=50)
    learn(mind)
    mind.goal("xyzzy and Find", criteria=CRITERIA, priority=255)
    situation = mind.cycle().situation
    assert situation is not None
    [knowledge] = [
        assessment for assessment in situation.assessments if assessment.source == "goals:knowledge"
    ]

    assert "whale is-a mammal" in knowledge.findings


def test_the_wording_of_a_memory_does_not_match_criteria() -> None:
    mind = Mind(Steer("goals:memory_recall", query_symbols=["whale"]), stall_threshold=50)
    goal = mind.goal("whale", criteria="reason, query, result, mind, failed, tool")
    now = mind.ctx.now()
    texts = [
        "reason: krill",
        "kg_query failed: krill",
        "came to mind: krill",
        "Answer of ann: krill",
    ]
    texts += ["Advice after cycle 5: query tool", "Tool result (reason): krill"]
    episodes = [
        Episode(id=f"wm-{n}", timestamp=now, summary=f"{text} whale", relevance=0.6)
        for n, text in enumerate(texts)
    ]
    mind.plugin.sessions(mind.ctx).change(lambda session: session.patched({"episodes": episodes}))
    mind.cycle()
    output = mind.session.decisions[-1].detail

    assert "krill" in output
    assert mind.session.goals[goal].matched == []


def test_the_same_call_is_not_made_three_times_in_a_row() -> None:
    mind = Mind(stall_threshold=90)
    mind.goal("zorb", criteria=CRITERIA)
    for _ in range(30):
        mind.cycle()
    calls = [(decision.tool, decision.params_digest) for decision in mind.session.decisions]

    assert len({tool for tool, _ in calls}) > 1
    assert not [n for n in range(len(calls) - 2) if calls[n] == calls[n + 1] == calls[n + 2]]


def test_there_are_fourteen_tools_and_each_is_an_action_with_a_profile() -> None:
    mind = Mind()
    actions = {id.removeprefix("goals:") for id in mind.lab.agent.host.actions}

    assert actions == set(PROFILES)
    assert len(actions) == 14
    assert [name for name, profile in PROFILES.items() if profile.consolidation] == [
        "memory_recall",
        "consolidate",
    ]


def test_memory_that_is_nearly_full_consolidates_by_itself() -> None:
    mind = Mind(working_memory_capacity=10, stall_threshold=50)
    mind.know("whale is-a mammal")
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(6):
        mind.cycle()

    assert mind.session.episodes
    assert len(mind.session.memory) <= 9


def test_remembering_its_own_words_does_not_fulfil_a_goal() -> None:
    mind = Mind(Steer("goals:memory_recall", query_symbols=["mammals"]))
    goal = mind.goal(DESCRIPTION)
    mind.cycle()
    mind.ask("consolidate_now", {})
    mind.cycle()
    mind.cycle()

    assert mind.session.goals[goal].matched == []


def test_every_fifth_cycle_is_looked_back_at() -> None:
    mind = Mind(stall_threshold=50)
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(5):
        mind.cycle()

    assert mind.session.reflected == 5
    assert [entry.kind for entry in mind.session.memory].count("Reflection") == 1


def test_a_session_too_large_for_one_value_forgets_its_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mind = Mind(stall_threshold=90, working_memory_capacity=40)
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(8):
        mind.cycle()
    monkeypatch.setattr("boyd.store.plugin_state.MAX_BYTES", 9_000)
    for _ in range(3):
        mind.cycle()
    session = mind.session

    assert session.cycle == 11
    assert session.decisions[-1].cycle == 11
    check(session, CONFIG)


def test_a_session_too_large_for_one_value_shortens_the_results_of_ended_goals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mind = Mind()
    ended_goal, going_on = mind.goal("whale"), mind.goal("zorb")
    evidence = GoalEvidence(criterion="whale", cycle=1, tool="reason", text="x" * 800)
    result = {"result": "y" * 2000, "evidence": [evidence]}
    sessions = mind.plugin.sessions(mind.ctx)
    sessions.change(lambda session: patch_goals(session, ended_goal, status="Completed", **result))
    sessions.change(lambda session: patch_goals(session, going_on, evidence=[evidence]))
    monkeypatch.setattr("boyd.store.plugin_state.MAX_BYTES", 4_000)
    sessions.change(lambda session: session.patched({"cycle": 7}))
    goals = mind.session.goals

    assert mind.session.cycle == 7
    assert goals[ended_goal].result == "y" * 97 + "..."
    assert goals[ended_goal].evidence[0].text == "x" * 97 + "..."
    assert goals[going_on].evidence == [evidence]


def test_a_graph_that_is_full_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    mind = Mind()
    monkeypatch.setattr("boyd.store.plugin_state.MOST", 0)
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.cycle()

    assert mind.session.goals[goal].used


def test_a_fresh_session_leaves_the_old_one_as_it_is() -> None:
    mind = Mind()
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.cycle()
    old = mind.session
    mind.ask("begin_session", {"fresh": True})

    assert (mind.session.id, mind.session.goals) == ("2", {})
    old_state = mind.ctx.state.get(f"session:{old.id}")
    assert old_state["cycle"] == old.cycle == 1


@pytest.mark.long
def test_episodes_are_remembered_in_every_later_session() -> None:
    mind = Mind(stall_threshold=50)
    first = learn(mind)
    mind.ask("begin_session", {"fresh": True})
    assert mind.ask("recall", query={"query": "whale"})[1]["episodes"]
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    for _ in range(9):
        mind.cycle()
    mind.know("unicorn is-a mammal")
    for _ in range(9):
        mind.cycle()
    mind.ask("consolidate_now", {})
    both = mind.session.episodes

    assert first
    assert both[: len(first)] == first
    assert len({episode.id for episode in both}) == len(both) > len(first)
    check(mind.session, CONFIG)


def test_an_old_session_is_gone_on_with_and_keeps_what_was_learned_since() -> None:
    mind = Mind(stall_threshold=50)
    goal = mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.cycle()
    for _ in range(2):
        mind.ask("begin_session", {"fresh": True})
    since = learn(mind)
    sessions = mind.ask("list_sessions")[1]["sessions"]
    assert [(session["id"], session["current"], session["cycle"]) for session in sessions] == [
        ("3", True, 9),
        ("2", False, 0),
        ("1", False, 1),
    ]

    assert mind.ask("begin_session", {"id": "1"}) == (201, {"id": "1"})
    assert list(mind.session.goals) == [goal]
    assert mind.session.episodes == since
    mind.forget()
    assert mind.cycle().decision is not None
    assert mind.session.cycle == 2
    assert mind.ask("begin_session", {"id": "1"}) == (201, {"id": "1"})
    assert mind.ask("begin_session", {}) == (201, {"id": "4"})
    assert [session["id"] for session in mind.ask("list_sessions")[1]["sessions"]] == [
        "4",
        "1",
        "3",
        "2",
    ]


@pytest.mark.parametrize(("id", "status"), [("7", 404), ("x", 422), ("", 422)])
def test_a_session_that_is_not_there_is_not_gone_on_with(id: str, status: int) -> None:
    mind = Mind()

    assert mind.ask("begin_session", {"id": id})[0] == status
    assert mind.session.id == "1"


def test_goals_in_focus_and_their_subgoals_come_before_those_of_higher_priority() -> None:
    mind = Mind(stall_threshold=1)
    high = mind.goal("unicorn", criteria=CRITERIA, priority=255)
    low = mind.goal("xyzzy", criteria="dragon nests and whale songs", priority=1)
    assert mind.ask("set_focus", {"goals": ["2"]})[1]["goals"][0]["id"] == low
    for _ in range(3):
        mind.cycle()
    session = mind.session

    assert [session.goals[decision.goal].depth for decision in session.decisions] == [0, 1, 1]
    assert high not in [decision.goal for decision in session.decisions]
    goals = mind.ask("list_goals", query={"status": "Active"})[1]["goals"]
    assert goals[-1]["id"] == high
    mind.ask("set_focus", {"goals": []})
    mind.cycle()
    assert mind.session.decisions[-1].goal == high
    assert mind.ask("set_focus", {"goals": ["nope"]})[0] == 404


def trips(mind: Mind, monkeypatch: pytest.MonkeyPatch) -> int:
    count = [0]
    client = type(mind.lab.client)
    pipeline = type(mind.lab.client.pipeline())
    for owner, name in ((client, "execute_command"), (pipeline, "execute")):
        real = getattr(owner, name)

        def count_call(*args: Any, _real: Any = real, **more: Any) -> Any:
            # Leases may be renewed meanwhile, those of other tests too.
            ours = args[0].connection_pool is mind.lab.client.connection_pool
            ours &= threading.current_thread().name != "leases"
            count[0] += ours and (not isinstance(args[0], pipeline) or _real.__name__ == "execute")
            return _real(*args, **more)

        monkeypatch.setattr(owner, name, count_call)
    mind.cycle()
    monkeypatch.undo()
    return count[0]


def test_a_cycle_costs_as_many_round_trips_however_much_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mind = Mind(stall_threshold=99)
    mind.goal(DESCRIPTION, criteria=CRITERIA)
    mind.cycle()
    few = trips(mind, monkeypatch)
    mind.facts.add(
        [Triple(subject=f"whale {n}", predicate="is-a", object="mammal") for n in range(300)]
    )
    mind.cycle()
    many = trips(mind, monkeypatch)

    assert few <= 45
    assert many <= few + 15


def test_a_replay_can_tell_what_an_idle_iteration_comes_to() -> None:
    record = Lab(Agent("test", plugins=[Goals()])).run()
    judgement = judge(Shadow(Agent("test", plugins=[Goals()])), record)

    assert (judgement.why, judgement.differences) == (None, [])


@pytest.mark.parametrize("source", ["goals", "episodes", "working-memory"])
def test_nobody_who_sends_observations_speaks_for_the_goals(source: str) -> None:
    mind = Mind()
    sent = seen(source, type="state", data={"odd": 1}, metadata={"intake": "json"})
    mind.lab.intake(sent)
    result = mind.lab.run()
    assert [item.data for item in result.observations] == [{"odd": 1}]
    assert not result.problems
