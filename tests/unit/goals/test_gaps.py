"""Gaps in the knowledge around a goal: `gap_analysis`."""

from __future__ import annotations

import pytest

from boyd.models import Triple
from boyd.testing.lab import MemoryGraph
from boyd_goals.knowledge.association import Gap, find_gaps


def facts(*lines: str) -> list[Triple]:
    parts = [line.split() for line in lines]
    return [Triple(subject=s, predicate=p, object=o) for s, p, o in parts]


def of_kind(graph: MemoryGraph, kind: str, *starts: str) -> list[Gap]:
    return [gap for gap in find_gaps(graph, starts, max_gaps=1000).gaps if gap.kind == kind]


def test_a_symbol_with_fewer_than_two_facts_is_a_dead_end() -> None:
    graph = MemoryGraph(facts("a knows b", "b knows c", "c knows d", "d knows e"))
    gaps = of_kind(graph, "dead-end", "a")

    assert [(gap.symbol, gap.severity) for gap in gaps] == [("a", 0.9)]
    assert gaps[0].detail == "1 fact about 'a'"


def test_a_dead_end_further_away_is_less_severe() -> None:
    graph = MemoryGraph(facts("a knows b", "a knows x", "b knows c"))
    gaps = of_kind(graph, "dead-end", "a")

    assert [(gap.symbol, gap.severity) for gap in gaps] == [("x", 0.9), ("c", 0.35)]


def test_gap_analysis_stops_after_two_hops() -> None:
    graph = MemoryGraph(facts("a knows b", "b knows c", "c knows d"))

    assert {gap.symbol for gap in of_kind(graph, "dead-end", "a")} == {"a"}
    assert find_gaps(graph, ["a"]).examined == 3


def test_of_something_unknown_all_is_missing() -> None:
    report = find_gaps(MemoryGraph(), ["Mars"])

    assert report.gaps == (Gap("dead-end", "Mars", 0.9, "no facts about 'Mars'"),)
    assert (report.coverage, report.examined) == (0.0, 1)
    assert find_gaps(MemoryGraph(), []).coverage == 0.0


def test_coverage_is_the_share_of_symbols_that_are_well_connected() -> None:
    graph = MemoryGraph(facts("a knows b", "b knows c", "c knows a", "a knows d"))

    assert find_gaps(graph, ["a"]).coverage == 0.75


def planets(*of_moons: str) -> list[str]:
    others = ["Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus"]
    return [
        line
        for name in others
        for line in (
            f"{name} orbits Sun",
            f"{name} warmed-by Sun",
            *([f"{name} has-moon {name}I"] if name in of_moons else []),
        )
    ]


def test_a_predicate_that_most_similar_symbols_have_is_missing() -> None:
    graph = MemoryGraph(facts(*planets("Earth", "Mars", "Jupiter", "Saturn")))
    gaps = of_kind(graph, "missing-predicate", "Venus")
    venus = next(gap for gap in gaps if gap.symbol == "Venus")

    assert venus.predicates == ("has-moon",)
    assert venus.severity == pytest.approx(0.8 * 4 / 5)


def test_a_predicate_that_half_of_them_have_is_not() -> None:
    graph = MemoryGraph(facts(*planets("Earth", "Mars")))

    assert of_kind(graph, "missing-predicate", "Venus") == []


def test_a_type_is_incomplete_in_a_member_that_lacks_what_most_have() -> None:
    graph = MemoryGraph(
        facts(
            *[f"{name} is-a Planet" for name in ("Venus", "Earth", "Mars")],
            *("Earth has-moon Luna", "Mars has-moon Phobos"),
            *("Earth has-mass 1", "Mars has-mass 0.1"),
        )
    )
    [gap] = of_kind(graph, "incomplete-type", "Venus")

    assert gap.symbol == "Venus"
    assert gap.predicates == ("has-mass", "has-moon")
    assert gap.severity == pytest.approx(0.75 * 2 / 3)


def test_a_share_of_sixty_percent_is_not_most() -> None:
    names = [f"p{n}" for n in range(5)]
    graph = MemoryGraph(
        facts(
            *[f"{name} is-a Planet" for name in names],
            *[f"{name} has-moon {name}m" for name in names[:3]],
        )
    )

    assert of_kind(graph, "incomplete-type", "p4") == []


def test_the_only_member_of_a_type_lacks_nothing() -> None:
    graph = MemoryGraph(facts("Venus is-a Planet", "Venus orbits Sun"))

    assert of_kind(graph, "incomplete-type", "Planet") == []


def test_the_most_severe_come_first_and_no_more_than_are_wanted() -> None:
    graph = MemoryGraph(facts(*planets("Earth", "Mars", "Jupiter", "Saturn")))
    gaps = find_gaps(graph, ["Venus"], max_gaps=2).gaps

    assert len(gaps) == 2
    assert [gap.severity for gap in gaps] == sorted((g.severity for g in gaps), reverse=True)


def test_facts_about_the_agent_and_goals_are_no_gaps() -> None:
    graph = MemoryGraph(
        facts("a agent:has_status b", "a knows c", "a knows d", "goal:1 concerns a")
    )
    report = find_gaps(graph, ["a"])

    assert {gap.symbol for gap in report.gaps} == {"c", "d"}
    assert report.examined == 3


def test_it_takes_about_two_dozen_calls_however_many_symbols_there_are() -> None:
    graph = MemoryGraph(
        facts(*[f"p{n} is-a Planet" for n in range(80)], *[f"p{n} orbits s{n}" for n in range(80)])
    )
    graph.calls.clear()
    find_gaps(graph, ["Planet"])

    assert len(graph.calls) <= 24
