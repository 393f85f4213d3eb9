"""Which tool is chosen, and why."""

from __future__ import annotations

from typing import Any

import pytest

from boyd.models import Triple, utc_now
from boyd.testing.lab import MemoryGraph
from boyd_goals import scoring
from boyd_goals.knowledge.reasoning import infer
from boyd_goals.scoring import Candidate, Outlook, affinity, rank
from boyd_goals.state import Archetype, Episode, Goal, Psyche, Score
from boyd_goals.tool_profiles import PROFILES, ToolProfile

NOW = utc_now()
MARS = Triple(subject="Mars", predicate="orbits", object="Sun")
STATUS = Triple(subject="goal:1", predicate="agent:has_status", object="Active")


def goal(description: str = "alpha beta", **fields: Any) -> Goal:
    return Goal(
        id="1",
        description=description,
        criteria=description,
        created_at=NOW,
        updated_at=NOW,
        **fields,
    )


def episode(summary: str = "nothing much", **fields: Any) -> Episode:
    return Episode(id="e1", timestamp=NOW, summary=summary, relevance=0.5, **fields)


def rank_by_tool(outlook: Outlook, *extra: ToolProfile) -> dict[str, Candidate]:
    return {candidate.tool: candidate for candidate in rank(outlook, [*PROFILES.values(), *extra])}


def score(outlook: Outlook, tool: str) -> Score:
    return rank_by_tool(outlook)[tool].score


def leaning(archetype: Archetype, weight: float) -> Psyche:
    return Psyche(weights={archetype: weight})


def test_the_breakdown_is_exactly_as_the_specification_has_it() -> None:
    best = rank(Outlook(goal(), psyche=Psyche()), PROFILES.values())[0]

    assert best.tool == "kg_query"
    assert best.score.breakdown == (
        "[score=0.98: base=0.80 recency=-0.00 novelty=+0.15 episodic=+0.00 "
        "pressure=+0.00 archetype=+0.030]"
    )
    assert best.rationale == f"{best.reason} {best.score.breakdown}"


def test_a_negative_leaning_has_its_sign_and_zero_is_positive() -> None:
    assert "archetype=-0.015]" in Score(base=0.5, archetype=-0.015).breakdown
    assert "archetype=+0.000]" in Score(base=0.5, archetype=-0.0001).breakdown
    assert "recency=-0.40 " in Score(base=0.5, recency=0.4).breakdown


def test_the_total_is_the_sum_of_the_terms() -> None:
    every = Score(base=0.5, recency=0.4, novelty=0.15, episodic=0.2, pressure=0.2, archetype=0.03)

    assert every.total == 0.68


def test_the_total_is_never_negative_and_may_exceed_1() -> None:
    assert Score(base=0.3, recency=0.4).total == 0.0
    assert Score(base=0.8, novelty=0.15, episodic=0.2, archetype=0.03).total == 1.18


@pytest.mark.parametrize(
    ("recent", "expected"),
    [
        ([], 0.0),
        (["kg_query"], 0.4),
        (["kg_query", "reason"], 0.2),
        (["kg_query", "reason", "kg_mutate"], 0.1),
        (["kg_query", "reason", "kg_mutate", "reason"], 0.0),
        (["kg_query", "reason", "kg_query"], 0.4),
        (["kg_query", "kg_query", "reason"], 0.2),
    ],
)
def test_recency_goes_by_the_goals_own_last_three_uses(recent: list[str], expected: float) -> None:
    assert score(Outlook(goal(recent=recent)), "kg_query").recency == expected


def test_a_tool_is_new_until_it_was_used_on_this_goal() -> None:
    assert score(Outlook(goal()), "kg_query").novelty == 0.15
    assert score(Outlook(goal(used={"reason": 1})), "kg_query").novelty == 0.15
    assert score(Outlook(goal(used={"kg_query": 9})), "kg_query").novelty == 0.0


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (episode(tools=["kg_query"]), 0.2),
        (episode(tools=["kg_mutate"]), 0.0),
        (episode("Then kg_query found it."), 0.2),
        (episode("KG_QUERY"), 0.2),
        (episode("my_kg_query, kg_query2 and kg_query-er"), 0.0),
    ],
)
def test_a_tool_that_a_recalled_episode_names_is_preferred(
    memory: Episode, expected: float
) -> None:
    assert score(Outlook(goal(), episodes=[memory]), "kg_query").episodic == expected


@pytest.mark.parametrize(("pressure", "expected"), [(0.7, 0.0), (0.7001, 0.2), (1.0, 0.2)])
def test_pressure_prefers_what_tidies_memory_only_above_seven_tenths(
    pressure: float, expected: float
) -> None:
    outlook = Outlook(goal("consolidate memory"), episodes=[episode()], pressure=pressure)

    assert score(outlook, "memory_recall").pressure == expected
    assert score(outlook, "consolidate").pressure == expected
    assert score(outlook, "kg_query").pressure == 0.0


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(0.7, 0.03), (0.5, 0.0), (0.4, -0.015), (0.95, 0.0675), (1.0, 0.0675), (0.0, -0.06)],
)
def test_an_archetype_leans_by_its_weight_within_bounds(weight: float, expected: float) -> None:
    outlook = Outlook(goal(), psyche=leaning("sage", weight))

    assert score(outlook, "kg_query").archetype == pytest.approx(expected)
    assert -0.07 <= score(outlook, "kg_query").archetype <= 0.07


def test_without_a_psyche_or_an_archetype_nothing_leans() -> None:
    assert score(Outlook(goal()), "kg_query").archetype == 0.0
    outlook = Outlook(goal("import this book"), psyche=leaning("sage", 0.9))
    assert score(outlook, "content_ingest").archetype == 0.0


def test_without_knowledge_only_the_graph_is_asked_and_gaps_are_looked_for() -> None:
    ranking = rank_by_tool(Outlook(goal(), knowledge=[STATUS]))

    assert list(ranking) == ["kg_query", "gap_analysis"]
    assert ranking["kg_query"].score.base == 0.80
    assert ranking["kg_query"].params == {"symbol": "goal:1", "direction": "both"}


def test_the_base_scores_of_core_tools_depend_on_what_is_known() -> None:
    outlook = Outlook(goal(), knowledge=[MARS], inferred=["Phobos"], episodes=[episode()])
    ranking = rank_by_tool(outlook)

    assert {tool: ranking[tool].score.base for tool in list(PROFILES)[:5]} == {
        "kg_query": 0.40,
        "kg_mutate": 0.70,
        "memory_recall": 0.55,
        "reason": 0.50,
        "similarity_search": 0.55,
    }


def test_the_core_tools_get_their_parameters_from_what_is_known() -> None:
    odd = Triple(subject="Mars (planet)", predicate="part-of", object="Solar System")
    learned = episode(learnings=["Phobos", "Deimos"]), episode(learnings=["Mars", "Sun"])
    outlook = Outlook(
        goal(),
        knowledge=[STATUS, odd, MARS],
        inferred=["goal:1", "Sun", "Jupiter"],
        episodes=learned,
        outgoing={"Sun": 3, "Jupiter": 2},
    )
    ranking = rank_by_tool(outlook)

    assert ranking["kg_query"].params["symbol"] == "Jupiter"
    assert ranking["kg_mutate"].params == {
        "subject": "goal:1",
        "predicate": "related-to",
        "object": "Jupiter",
        "confidence": 0.7,
    }
    assert ranking["memory_recall"].params == {
        "query_symbols": ["Phobos", "Deimos", "Mars"],
        "top_k": 3,
    }
    assert ranking["reason"].params == {
        "expression": '(triple "Mars (planet)" part-of "Solar System")'
    }
    assert ranking["similarity_search"].params == {"symbol": "goal:1", "top_k": 5}


def test_facts_added_by_kg_mutate_lead_to_no_inferences() -> None:
    mars = Triple(subject="Mars", predicate="subclass-of", object="Planet")
    up = Triple(subject="Jupiter", predicate="subclass-of", object="Giant")
    params = rank_by_tool(Outlook(goal(), knowledge=[mars], inferred=["Jupiter"]))[
        "kg_mutate"
    ].params

    assert infer(MemoryGraph([mars, up, Triple.model_validate(params)])) == []


def test_notes_about_goals_do_not_count_as_knowledge() -> None:
    note = Triple(subject="goal:7", predicate="related-to", object="Jupiter")
    alone = rank_by_tool(Outlook(goal(), knowledge=[note], inferred=["Jupiter"]))
    beside = rank_by_tool(Outlook(goal(), knowledge=[note, MARS], inferred=["Jupiter"]))

    assert "reason" not in alone
    assert alone["kg_query"].score.base == 0.80
    assert "Jupiter" not in str(beside["reason"].params)
    assert "kg_mutate" not in beside


def test_each_time_that_it_reasons_it_takes_the_next_fact() -> None:
    up = Triple(subject="Jupiter", predicate="is-a", object="Planet")
    outlooks = [Outlook(goal(used={"reason": n}), knowledge=[MARS, up]) for n in range(3)]
    first, second, third = (rank_by_tool(outlook)["reason"].params for outlook in outlooks)

    assert (first, second) == (third, {"expression": "(triple Jupiter is-a Planet)"})


def test_nothing_is_to_be_added_to_the_graph_when_all_is_connected() -> None:
    assert "kg_mutate" not in rank_by_tool(
        Outlook(goal(), knowledge=[MARS], inferred=["Sun", "goal:1"])
    )


def test_an_episode_without_learnings_is_recalled_by_the_goal() -> None:
    ranking = rank_by_tool(Outlook(goal(), episodes=[episode()]))

    assert ranking["memory_recall"].params["query_symbols"] == ["goal:1"]


def near(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    monkeypatch.setattr(scoring, "affinity", lambda goal, tool: value)


@pytest.mark.parametrize(
    ("value", "tools"),
    [
        (0.515, set()),
        (0.5151, {"library_search", "content_ingest"}),
        (0.55, {"library_search", "content_ingest"}),
        (
            0.5501,
            {
                *("library_search", "content_ingest", "file_io", "http_fetch", "shell_exec"),
                *("user_interact", "consolidate"),
            },
        ),
    ],
)
def test_thresholds_are_strict_and_chance_is_not_enough(
    monkeypatch: pytest.MonkeyPatch, value: float, tools: set[str]
) -> None:
    near(monkeypatch, value)

    assert rank_by_tool(Outlook(goal())).keys() - {"kg_query", "gap_analysis"} == tools


def test_the_base_is_similarity_times_the_multiplier(monkeypatch: pytest.MonkeyPatch) -> None:
    near(monkeypatch, 0.6)
    ranking = rank_by_tool(Outlook(goal()))

    assert ranking["library_search"].score.base == pytest.approx(0.48)
    assert ranking["file_io"].score.base == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("value", "used", "expected"),
    [(0.3, {}, 0.35), (0.5, {}, 0.45), (0.5, {"infer_rules": 1}, 0.35), (1.0, {}, 0.75)],
)
def test_infer_rules_has_a_floor_and_a_bonus_for_the_first_time(
    monkeypatch: pytest.MonkeyPatch, value: float, used: dict[str, int], expected: float
) -> None:
    near(monkeypatch, value)
    outlook = Outlook(goal(used=used), knowledge=[MARS])

    assert score(outlook, "infer_rules").base == pytest.approx(expected)
    assert "infer_rules" not in rank_by_tool(Outlook(goal(used=used)))


@pytest.mark.parametrize(
    ("value", "queries", "expected"),
    [(0.3, 0, 0.30), (0.5, 1, 0.35), (0.5, 2, 0.45), (1.0, 2, 0.75)],
)
def test_gap_analysis_has_a_floor_and_a_bonus_after_two_queries(
    monkeypatch: pytest.MonkeyPatch, value: float, queries: int, expected: float
) -> None:
    near(monkeypatch, value)

    assert score(Outlook(goal(used={"kg_query": queries})), "gap_analysis").base == pytest.approx(
        expected
    )


def test_only_the_description_of_a_goal_counts() -> None:
    shell_goal = goal("alpha beta").patched({"criteria": "run the shell script"})

    assert affinity(shell_goal, PROFILES["shell_exec"]) < 0.52


def test_ties_go_to_the_one_that_comes_first_in_the_list_of_tools() -> None:
    # 0.40 and 0.15 for the first, 0.55 for the others.
    outlook = Outlook(
        goal(used={"memory_recall": 1, "similarity_search": 1}),
        inferred=["Sun"],
        knowledge=[MARS],
        episodes=[episode()],
    )
    tied = [
        candidate for candidate in rank(outlook, PROFILES.values()) if candidate.score.total == 0.55
    ]

    assert [candidate.tool for candidate in tied] == [
        "kg_query",
        "memory_recall",
        "similarity_search",
    ]


def test_other_plugins_may_have_tools_too_and_tie_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = ToolProfile(name="disk:clean", keywords=("disk", "clean", "space"))
    logs = ToolProfile(name="disk:archive", keywords=("disk", "clean", "space"))
    outlook = Outlook(goal("clean the disk until there is space"))

    tools = [candidate.tool for candidate in rank(outlook, [disk, logs])]

    assert tools == ["disk:archive", "disk:clean"]


def test_when_nothing_fits_the_graph_is_asked_about_the_goal() -> None:
    ranking = rank(Outlook(goal()), [PROFILES["shell_exec"]])

    assert [candidate.tool for candidate in ranking] == ["kg_query"]
    assert ranking[0].params == {"symbol": "goal:1", "direction": "both"}
    assert ranking[0].score.total == 0.0


def test_candidates_are_the_best_first() -> None:
    totals = [
        candidate.score.total
        for candidate in rank(Outlook(goal(), knowledge=[MARS], inferred=["Io"]), PROFILES.values())
    ]

    assert totals == sorted(totals, reverse=True)
