"""Endpoints of goals over HTTP."""

from __future__ import annotations

import pytest

from boyd import Plugin, action
from boyd.models import Triple
from boyd_goals import goal_endpoints
from boyd_goals.goal_endpoints import Refused, resolve_id
from boyd_goals.knowledge import turtle
from boyd_goals.tool_profiles import PROFILES
from goals_kit import Mind


class Tidier(Plugin):
    """A plugin that has nothing to do with goals."""

    id = "other"

    @action()
    def tidy(self) -> str:
        """Tidy."""
        return "tidied"


CRITERIA = "unicorn habitat, dragon nests and whale songs"


def test_a_new_goal_is_returned_with_its_defaults() -> None:
    mind = Mind(stall_threshold=7)
    status, goal = mind.ask("make_goal", {"description": "Find mammals"})

    assert status == 201
    assert (goal["criteria"], goal["priority"], goal["stallThreshold"], goal["status"]) == (
        "Find mammals",
        128,
        7,
        "Active",
    )
    assert mind.ask("get_goal", id=goal["id"]) == (200, goal)
    assert mind.ask("get_goal", id=goal["id"][:4])[1]["id"] == goal["id"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"description": " "},
        {"description": "x" * 901},
        {"description": "a\x1fb"},
        {"description": "a\0b"},
        {"description": "x", "criteria": "\x1f"},
        {"description": "x", "priority": 256},
        {"description": "x", "stallThreshold": 0},
        {"description": "x", "what": 1},
        [1],
    ],
)
def test_a_goal_that_does_not_fit_is_refused_and_nothing_is_stored(body: object) -> None:
    mind = Mind()
    status, answer = mind.ask("make_goal", body)

    assert (status, list(answer)) == (422, ["error"])
    assert mind.session.goals == {}
    assert mind.facts.size() == 0


def test_the_most_important_goal_comes_first_and_ties_in_order() -> None:
    mind = Mind()
    low, first, second = mind.goal("a", priority=1), mind.goal("b"), mind.goal("c")
    mind.ask("suspend_goal", {}, id=low)

    assert [goal["id"] for goal in mind.ask("list_goals")[1]["goals"]] == [first, second, low]
    active = mind.ask("list_goals", query={"status": "Active"})[1]["goals"]
    assert [goal["id"] for goal in active] == [first, second]


def test_a_goal_is_put_off_taken_up_and_given_up() -> None:
    mind = Mind()
    goal = mind.goal("a")

    assert mind.ask("suspend_goal", {"reason": "later"}, id=goal)[1]["reason"] == "later"
    assert mind.ask("resume_goal", {}, id=goal)[1]["status"] == "Active"
    assert mind.ask("fail_goal", {}, id=goal)[1]["reason"] == "requested by tester"
    assert mind.ask("resume_goal", {}, id=goal)[0] == 409
    assert [triple.object for triple in mind.facts.out(f"goal:{goal}")].count("status:failed") == 1


def test_a_goal_is_made_more_or_less_important_until_it_has_ended() -> None:
    mind = Mind()
    goal = mind.goal("a")

    assert mind.ask("set_goal_priority", {"priority": 0}, id="1")[1]["priority"] == 0
    assert [triple.object for triple in mind.facts.out(f"goal:{goal}")].count("priority:0") == 1
    assert mind.ask("set_goal_priority", {"priority": 256}, id=goal)[0] == 422
    mind.ask("fail_goal", {}, id=goal)
    assert mind.ask("set_goal_priority", {"priority": 7}, id=goal)[0] == 409


def test_the_number_of_a_goal_names_it_also_when_others_begin_with_it() -> None:
    mind = Mind()
    ids = [mind.goal(f"goal {number}") for number in range(11)]

    assert mind.ask("why", id="1")[1]["goal"]["id"] == ids[0]
    assert mind.ask("get_goal", id="10")[1]["id"] == ids[9]


def test_an_ambiguous_id_prefix_is_refused_with_the_matches() -> None:
    ids = ["10-aa", "10-ab", "12-ac", "13-ad", "14-ae", "15-af", "2-b"]
    with pytest.raises(Refused) as many:
        resolve_id("goal", "1", ids)
    with pytest.raises(Refused) as few:
        resolve_id("goal", "10", ids)

    some = "10-aa, 10-ab, 12-ac, 13-ad, 14-ae, …"
    assert str(many.value) == f"6 goals match '1': {some}; add more characters"
    assert str(few.value) == "2 goals match '10': 10-aa, 10-ab; add more characters"


@pytest.mark.parametrize("id", ["x", ""])
def test_an_unknown_goal_is_not_found(id: str) -> None:
    mind = Mind()
    mind.goal("a")

    assert mind.ask("get_goal", id=id) == (404, {"error": f"no goal {id!r}"})


def test_the_why_endpoint_returns_decisions_plan_and_relatives() -> None:
    mind = Mind(stall_threshold=1)
    goal = mind.goal("xyzzy", criteria=CRITERIA)
    for _ in range(4):
        mind.cycle()
    history = mind.ask("why", id=goal)[1]
    child = history["children"][0]["id"]

    assert [decision["cycle"] for decision in history["decisions"]] == sorted(
        decision["cycle"] for decision in history["decisions"]
    )
    assert history["plan"]["status"] == "Superseded"
    assert mind.ask("why", id=child)[1]["parent"]["id"] == goal


def test_cycles_are_listed_newest_first_or_by_iteration() -> None:
    mind = Mind()
    mind.goal("a", criteria=CRITERIA)
    results = [mind.cycle() for _ in range(3)]
    every = mind.ask("cycles")[1]["cycles"]

    assert [cycle["cycle"] for cycle in every] == [3, 2, 1]
    cycles = mind.ask("cycles", query={"iteration": str(results[1].iteration)})[1]["cycles"]
    assert [cycle["cycle"] for cycle in cycles] == [2]
    assert mind.ask("cycles", query={"limit": "no"})[0] == 422
    status, answer = mind.ask("cycles", query={"iteration": "last"})
    assert (status, answer) == (422, {"error": "iteration: 'last' is not a number"})


def test_memory_can_be_listed_consolidated_and_recalled() -> None:
    mind = Mind()
    mind.know("whale is-a mammal")
    mind.goal("whale", criteria=CRITERIA)
    for _ in range(6):
        mind.cycle()
    entries = mind.ask("show_memory", query={"limit": "2"})[1]["entries"]
    counts = mind.ask("consolidate_now", {})[1]

    assert [entry["id"] for entry in entries] == sorted(
        (entry["id"] for entry in entries), reverse=True
    )
    assert counts["consolidated"] > 0
    assert len(mind.ask("episodes")[1]["episodes"]) == counts["consolidated"]
    assert mind.ask("recall", query={"query": "whale", "topK": "2"})[1]["episodes"]
    assert mind.ask("recall")[0] == 422


def test_facts_go_in_and_out_as_turtle_and_metadata_stays() -> None:
    mind = Mind()
    mind.goal("secret plan")
    turtle = "@prefix : <http://example.com/> . :whale :eats :krill ."
    status, answer = mind.ask("import_facts", {"turtle": turtle, "source": "test"})

    assert (status, answer) == (200, {"added": 1, "skipped": {}})
    out = mind.ask("export_facts")[1]["turtle"]
    assert "krill" in out
    assert "secret" not in out
    assert mind.ask("import_facts", {"turtle": "no turtle ("})[0] == 422
    assert mind.ask("facts")[1]["facts"] == mind.facts.size()
    assert mind.ask("facts", query={"symbol": "nothing"})[1] == {
        "symbol": "nothing",
        "out": [],
        "into": [],
        "alike": [],
    }


def test_a_graph_that_is_full_takes_no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    mind = Mind()
    monkeypatch.setattr("boyd.store.plugin_state.MOST", 0)
    turtle = "@prefix : <http://example.com/> . :whale :eats :krill ."

    assert mind.ask("import_facts", {"turtle": turtle})[0] == 413


def test_facts_are_added_as_they_are_and_none_about_the_agent() -> None:
    mind = Mind()
    fact = {"subject": "whale", "predicate": "eats", "object": "krill", "confidence": 0.5}

    assert mind.ask("add_facts", {"facts": [fact]}) == (200, {"added": 1, "skipped": {}})
    own = {**fact, "predicate": "agent:has_status"}
    assert mind.ask("add_facts", {"facts": [fact, own]})[0] == 422
    assert mind.ask("add_facts", {"facts": [{**fact, "object": "a\x1fb"}]})[0] == 422
    assert [triple.confidence for triple in mind.facts.all()] == [0.5]


def export_parts(mind: Mind) -> list[str]:
    """The parts of an export."""
    parts, query = [], dict[str, str]()
    while True:
        status, page = mind.ask("export_facts", query=query)
        assert status == 200
        parts.append(page["turtle"])
        if "next" not in page:
            return parts
        query = {"after": page["next"]}


def test_a_graph_of_any_size_is_exported_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goal_endpoints, "CHARS", 2000)
    monkeypatch.setattr(goal_endpoints, "STEP", 7)
    mind = Mind()
    mind.goal("secret plan")
    facts = [
        Triple(subject=f"s {n % 9}", predicate="has", object=f"o{n}", confidence=0.5)
        for n in range(500)
    ]
    mind.facts.add(facts)
    parts = export_parts(mind)
    read = [triple for text in turtle.parts("".join(parts)) for triple in turtle.read(text).triples]

    assert len(parts) > 10
    assert max(map(len, parts)) < 6000
    assert "secret" not in "".join(parts)
    assert read == sorted(facts, key=lambda fact: fact.place)


def test_an_export_has_each_fact_that_is_there_all_the_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(goal_endpoints, "CHARS", 1)
    monkeypatch.setattr(goal_endpoints, "STEP", 2)
    mind = Mind()
    mind.know(*(f"s{n} has o" for n in range(6)))
    first = mind.ask("export_facts")[1]
    mind.facts.remove("s1", "has", "o")
    mind.know("s0 has more")
    second = mind.ask("export_facts", query={"after": first["next"]})[1]

    assert second["turtle"].count(":s2 ") == second["turtle"].count(":s3 ") == 1
    assert second["revision"] > first["revision"]


@pytest.mark.parametrize("after", ["x", "MQ==", "WyJhIl0=", "WzEsMiwzXQ==", "\u00e4"])
def test_a_part_that_begins_nowhere_is_refused(after: str) -> None:
    assert Mind().ask("export_facts", query={"after": after}) == (
        422,
        {"error": "after: not the start of a part"},
    )


def test_a_symbol_that_is_not_known_by_that_name_is_found_by_its_words() -> None:
    mind = Mind()
    mind.facts.add([Triple(subject="Person (foaf)", predicate="is-a", object="Living person")])

    assert mind.ask("facts", query={"symbol": "Person"})[1]["alike"] == [
        "Living person",
        "Person (foaf)",
    ]
    answer = mind.ask("search_graph", query={"query": "persons who live (FOAF)", "limit": "1"})
    assert answer == (200, {"symbols": ["Person (foaf)"]})
    assert mind.ask("search_graph", query={"query": " "})[0] == 422


def test_the_session_shows_its_size_and_fresh_replaces_it() -> None:
    mind = Mind()
    mind.goal("a", criteria=CRITERIA)
    mind.cycle()
    session = mind.ask("get_session")[1]

    assert (session["id"], session["cycle"], session["goals"]) == ("1", 1, {"Active": 1})
    assert session["memory"]["size"] == len(mind.session.memory)
    assert mind.ask("begin_session", {"fresh": False}) == (201, {"id": "1"})
    assert mind.ask("begin_session", {}) == (201, {"id": "2"})
    assert mind.ask("get_session")[1]["goals"] == {}


def test_tools_are_listed_with_their_actions() -> None:
    mind = Mind(Tidier(), tools={"other:tidy": {"keywords": ["tidy"]}})
    actions = {tool["name"]: tool["action"] for tool in mind.ask("tools")[1]["tools"]}

    assert actions == {**{name: f"goals:{name}" for name in PROFILES}, "other:tidy": "other:tidy"}


def test_a_status_that_no_goal_can_have_is_refused() -> None:
    status, answer = Mind().ask("list_goals", query={"status": "active"})
    assert status == 422
    assert answer["error"] == "status: 'active' is none of Active, Suspended, Completed, Failed"
