"""A step is judged by what it has found or done, and the verdict names its evidence."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd_goals.judgement import StepFinding, ToolStep, findings_in, is_met, judge, judge_by_parts
from boyd_goals.progress import criteria_of, own_acts, subject_of, verb_of
from boyd_goals.state import Config, Goal, GoalEvidence
from goals_kit import CONFIG, a_goal

FOUR = "alpha beta gamma delta"
DAY = date(2026, 1, 5)


def step(*findings: str, is_asked: bool = True, **fields: object) -> ToolStep:
    """A step that has found those texts."""
    step_findings = [StepFinding(lines=[finding], is_asked=is_asked) for finding in findings]
    defaults = {"cycle": 7, "tool": "look", "output": "", "findings": step_findings, "day": DAY}
    return ToolStep(**{**defaults, **fields})  # type: ignore[arg-type]


def verdict(goal: Goal, *findings: str, config: Config = CONFIG) -> bool:
    """True if the goal is met by a step with those findings."""
    return is_met(goal, judge(goal, step(*findings), config).evidence)


@pytest.mark.parametrize(
    ("matched", "findings", "is_reached", "after"),
    [
        ([], [], False, []),
        ([], ["alpha"], False, ["alpha"]),
        ([], ["betas of alpha"], True, ["alpha", "beta"]),
        ([], ["alpha", "beta"], False, ["alpha"]),
        ([], ["gamma", "delta and more gamma"], True, ["gamma", "delta"]),
        (["alpha"], ["alpha"], False, ["alpha"]),
        (["alpha"], ["beta"], False, ["alpha", "beta"]),
        (["alpha"], ["alphabet"], False, ["alpha"]),
    ],
)
def test_the_words_of_a_criterion_must_meet_in_one_finding(
    matched: list[str], findings: list[str], is_reached: bool, after: list[str]
) -> None:
    goal = a_goal(FOUR, matched=matched)
    judged = judge(goal, step(*findings), CONFIG)

    assert (is_met(goal, judged.evidence), judged.matched) == (is_reached, after)


@pytest.mark.parametrize(
    ("completion", "count", "is_reached"),
    [
        (0.5, 1, False),
        (0.5, 2, True),
        (0.75, 2, False),
        (0.75, 3, True),
        (1.0, 3, False),
        (1.0, 4, True),
        (0.51, 2, False),
        (0.0, 1, False),
        (0.0, 2, True),
        (0.0, 0, False),
    ],
)
def test_the_ratio_that_must_meet_is_configured_and_two_words_are_the_least(
    completion: float, count: int, is_reached: bool
) -> None:
    config = Config(completion_ratio=completion)

    assert verdict(a_goal(FOUR), " ".join(FOUR.split()[:count]), config=config) is is_reached


@pytest.mark.parametrize(("count", "is_reached"), [(6, False), (7, True)])
def test_a_share_of_words_is_counted_without_errors_of_rounding(
    count: int, is_reached: bool
) -> None:
    ten = [f"word{letter}" for letter in "abcdefghij"]
    goal = a_goal(" ".join(ten))

    assert verdict(goal, " ".join(ten[:count]), config=Config(completion_ratio=0.7)) is is_reached


def test_a_criterion_of_one_word_is_met_by_it() -> None:
    assert verdict(a_goal("Find mammals"), "whale is-a mammal")


def test_criteria_without_keywords_are_never_met() -> None:
    for text in ("...", "Find out about it"):
        assert criteria_of(a_goal(text)) == []
        assert not verdict(a_goal(text), "find alpha")


def test_the_criteria_count_and_not_the_description() -> None:
    goal = a_goal("find alpha", criteria="beta")

    assert not verdict(goal, "alpha")
    assert verdict(goal, "beta")


def test_a_finding_that_nobody_asked_for_must_be_about_what_the_goal_speaks_of() -> None:
    goal = a_goal("find alpha", criteria="beta")

    for text, expected in [("beta", False), ("gamma has beta", False), ("alpha has beta", True)]:
        evidence = judge(goal, step(text, is_asked=False), CONFIG).evidence
        assert is_met(goal, evidence) is expected


def test_a_finding_is_about_the_whole_symbol_that_the_goal_speaks_of() -> None:
    goal = a_goal("Find out where hardware watchdogs belong", criteria="system")
    findings = [StepFinding(lines=["hardware driver subclass-of system"])]
    about = [["hardware", "watchdog"]]
    right = [StepFinding(lines=["hardware watchdog subclass-of system"])]

    assert judge(goal, step(findings=findings, about=about), CONFIG).evidence == []
    assert judge(goal, step(findings=right, about=about), CONFIG).evidence
    assert judge(goal, step(findings=findings), CONFIG).evidence


def test_all_criteria_must_be_fulfilled_and_each_names_its_step() -> None:
    goal = a_goal("alpha, beta")
    [first] = judge(goal, step("alpha"), CONFIG).evidence
    both = judge(goal.patched({"evidence": [first]}), step("beta", cycle=8), CONFIG).evidence

    assert not is_met(goal, [first])
    assert is_met(goal, both)
    assert [(evidence.criterion, evidence.cycle, evidence.text) for evidence in both] == [
        ("alpha", 7, "alpha"),
        ("beta", 8, "beta"),
    ]


def test_words_may_meet_in_the_facts_around_one_symbol_and_those_facts_are_the_evidence() -> None:
    goal = a_goal("kinds and parts of a recipe", criteria="food with an ingredient list")
    lines = ["recipe is-a food", "recipe has-a ingredient list", "recipe similar-to plan"]
    findings = [StepFinding(lines=lines)]
    [evidence] = judge(goal, step(findings=findings), CONFIG).evidence

    assert evidence.text == "recipe is-a food\nrecipe has-a ingredient list"


@given(st.lists(st.sampled_from([*FOUR.split(), "other"]), max_size=8))
def test_judging_the_same_result_again_adds_nothing(words: list[str]) -> None:
    goal = a_goal(FOUR)
    first = judge(goal, step(" ".join(words)), CONFIG)
    judged_goal = goal.patched({"matched": first.matched, "evidence": first.evidence})

    assert judge(judged_goal, step(" ".join(words)), CONFIG) == first


# --- Findings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "output", "texts"),
    [
        ("kg_query", '"whale" -> is-a -> "mammal"  [1.00]', ["whale is-a mammal"]),
        ("kg_query", "No triples found", []),
        ("kg_mutate", '"goal:1-ab" -> related-to -> "whale"  [0.70]', []),
        ("reason", '(triple a b c)\n"a" -> b -> "c" is not known', []),
        (
            "reason",
            '(triple a b c)\n"a" -> b -> "c" is known, and nothing new follows',
            ["a b c"],
        ),
        ("infer_rules", '"a" -> b -> "d"  [0.95]  by is-a-transitive', ["a b d"]),
        ("similarity_search", "Benchmark  [0.734]", []),
        ("gap_analysis", "200 symbols, 98% of them well connected\n0.9 dead-end: about 'ada'", []),
        ("content_ingest", "3 passages, about gravity, mass", []),
        ("user_interact", "Asked as question 1: what is gravity?", []),
        ("library_search", "Gravity (1): It bends light.\nGravity (2): So it does.", None),
        ("http_fetch", "200 OK\n\nIt bends light.", ["It bends light."]),
        ("shell_exec", "Status:active secret\nplanets\n x desc:secret", ["planets"]),
        ("others:look", '"goal:1" -> agent:has_description -> "desc:beta"', []),
    ],
)
def test_findings_are_facts_and_passages_and_no_words_around_them(
    tool: str, output: str, texts: list[str] | None
) -> None:
    texts_found = [finding.text for finding in findings_in(tool, output)]

    assert texts_found == (["It bends light.", "So it does."] if texts is None else texts)


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ('reason: (triple a b c); "a" -> b -> "c" is known, and nothing new follows', ["a b c"]),
        ("library_search: Gravity (1): It bends light.", ["It bends light."]),
        ("Answer of ann: krill", ["krill"]),
        ("kg_query failed: krill", []),
        ("came to mind: krill", []),
        ("gap_analysis: 1 fact about krill", []),
        ("Advice after cycle 5: krill", []),
        ("Tool result (content_ingest): 3 passages, about krill", []),
        ('Decide: tool=reason, goal="krill"', []),
        ("Cycle 3: 1 active goals", []),
    ],
)
def test_the_envelope_of_a_recalled_memory_is_no_finding(line: str, texts: list[str]) -> None:
    findings = findings_in("memory_recall", f"2026-01-02 03:04 {line}")

    assert [finding.text for finding in findings] == texts
    assert not any(finding.is_asked for finding in findings)


# --- Acts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("description", "verb", "acts"),
    [
        ("Ingest the document /srv/gravity.txt", "ingest", ["content_ingest"]),
        ("Please ask the user which colour it should have", "ask", ["user_interact"]),
        ("Read /srv/a.txt", "read", ["file_io", "http_fetch"]),
        ("Fetch https://example.org/x", "fetch", ["http_fetch"]),
        ("See how long it runs: `uptime`", "run", ["shell_exec"]),
        ("Restart nginx", "restart", []),
        ("List the files and delete all of them", "delete", []),
        ("Clean the disk", "clean", []),
        ("Read about whales", None, []),
        ("Find clean energy", None, []),
        ("Find start and stop words", None, []),
        ("Find mammals", None, []),
    ],
)
def test_a_goal_that_wants_something_done_is_known_by_its_verb(
    description: str, verb: str | None, acts: list[str]
) -> None:
    goal = a_goal(description)

    assert (verb_of(goal), sorted(own_acts(goal))) == (verb, acts)
    assert verb_of(a_goal(description, criteria="green")) is None


def test_a_goal_to_do_something_is_met_by_the_act_alone() -> None:
    goal = a_goal("Ingest the document /srv/gravity.txt")
    judgement = judge(goal, step("ingest the document gravity txt"), CONFIG)
    done = judge(goal, step(output="3 passages", is_act=True), CONFIG)

    assert judgement == ([], [])
    assert is_met(goal, done.evidence)
    assert [(evidence.criterion, evidence.tool, evidence.text) for evidence in done.evidence] == [
        (goal.criteria, "look", "3 passages")
    ]


def test_a_certificate_is_valid_on_its_last_day_and_no_longer() -> None:
    goal = a_goal("see what there is", criteria="certificate valid")
    finding = "The certificate is valid until 2031-05-01."

    def is_met_on(day: date) -> bool:
        return is_met(goal, judge(goal, step(finding, day=day), CONFIG).evidence)

    assert is_met_on(date(2031, 5, 1))
    assert not is_met_on(date(2031, 5, 2))


def test_a_goal_in_parts_is_met_when_every_part_is() -> None:
    goal = a_goal("Read a.txt and read b.txt")
    evidence = [GoalEvidence(criterion="Read a.txt", cycle=1, tool="file_io", text="aa")]
    done = a_goal("Read a.txt", id="2", status="Completed", evidence=evidence)
    other = a_goal("Read b.txt", id="3", status="Failed")

    assert not is_met(goal, judge_by_parts(goal, [done, other], DAY, CONFIG).evidence)
    assert is_met(goal, judge_by_parts(goal, [done, done], DAY, CONFIG).evidence)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Explore Action", "Action"),
        ("Please find out which properties a Recipe has", "properties a Recipe has"),
        ("Get to know zorbs", "zorbs"),
        ("run `uptime` in a terminal", "run   in a terminal"),
        ("Find out", ""),
    ],
)
def test_a_goal_speaks_of_what_follows_its_verb(text: str, subject: str) -> None:
    assert subject_of(text) == subject
