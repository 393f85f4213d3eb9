"""The tools that work on the graph, on memory and on the host."""

from __future__ import annotations

from typing import Any

import pytest

from boyd_goals.goal_tools import OUTPUT
from boyd_goals.outcome import symbols_of
from goals_kit import Mind


def use(mind: Mind, tool: str, **params: Any) -> Any:
    action = mind.lab.agent.host.actions[f"goals:{tool}"]
    arguments = {"ctx": mind.ctx, "params": action.params(**params) if action.params else None}
    done = action.call("execute", **arguments)
    return done if tool == "shell_exec" or isinstance(done, str) else done.output


def test_kg_query_returns_facts_without_notes_about_goals() -> None:
    mind = Mind()
    mind.know("whale is-a mammal", "mammal is-a animal")
    goal = mind.goal("whale")

    assert use(mind, "kg_query", symbol="mammal").count("\n") == 1
    assert use(mind, "kg_query", symbol="mammal", direction="out") == (
        '"mammal" -> is-a -> "animal"  [1.00]'
    )
    noted = {"subject": f"goal:{goal}", "predicate": "related-to", "object": "krill"}
    use(mind, "kg_mutate", **noted)
    assert use(mind, "kg_query", symbol="krill") == "No triples found"


def test_a_query_about_a_goal_is_one_about_what_it_mentions() -> None:
    mind = Mind()
    mind.know("whale is-a mammal", "find is-a verb")
    goal, other = mind.goal("Find whales"), mind.goal("zorb")

    assert use(mind, "kg_query", symbol=f"goal:{goal}") == '"whale" -> is-a -> "mammal"  [1.00]'
    assert use(mind, "kg_query", symbol=f"goal:{other}") == "No triples found"


@pytest.mark.parametrize("predicate", ["agent:has_status", " agent:x", "Agent:x", "_agent:x"])
def test_metadata_cannot_be_made_up(predicate: str) -> None:
    mind = Mind()
    with pytest.raises(ValueError, match="agent's own"):
        use(mind, "kg_mutate", subject="goal:1", predicate=predicate, object="status:done")
    assert mind.facts.size() == 0


def test_a_fact_is_added_with_where_it_comes_from() -> None:
    mind = Mind()
    use(mind, "kg_mutate", subject="a", predicate="b", object="c")

    assert [triple.source for triple in mind.facts.out("a")] == ["agent:a"]
    assert use(mind, "kg_mutate", subject="a", predicate="b", object="c").endswith("already known")


def test_a_fact_that_is_added_is_spelled_as_rules_and_imports_spell_it() -> None:
    mind = Mind()
    use(mind, "kg_mutate", subject="wheel", predicate="isPartOf", object="axle")
    use(mind, "kg_mutate", subject="axle", predicate="part_of", object="cart")

    assert [triple.predicate for triple in mind.facts.out("wheel")] == ["part-of"]
    assert '"wheel" -> part-of -> "cart"' in use(mind, "infer_rules")
    assert use(mind, "kg_mutate", subject="wheel", predicate="part of", object="axle") == (
        '"wheel" -> part-of -> "axle"  [0.80] was already known'
    )


def test_infer_rules_adds_inferences_once() -> None:
    mind = Mind()
    mind.know("whale is-a mammal", "mammal is-a animal")

    assert '"whale" -> is-a -> "animal"' in use(mind, "infer_rules")
    assert use(mind, "infer_rules") == "Nothing new follows"


def test_gaps_are_looked_for_around_what_a_goal_speaks_of() -> None:
    mind = Mind()
    mind.know("whale is-a mammal")
    goal = mind.goal("whale")

    assert use(mind, "gap_analysis", goal=f"goal:{goal}").startswith("2 symbols, ")
    unknown = mind.goal("zorb")
    assert use(mind, "gap_analysis", goal=f"goal:{unknown}") == "Nothing is known about it"
    assert use(mind, "reason", expression="(and b a)").splitlines()[0]
    assert use(mind, "similarity_search", symbol="nothing") == "No similar symbol found"
    assert use(mind, "memory_recall", query_symbols=["x"]) == "No similar episode found"
    assert use(mind, "consolidate") == "0 entries became episodes, 0 were forgotten"


def test_reason_shows_inferences_without_adding_them() -> None:
    mind = Mind()
    mind.know("whale is-a mammal", "mammal is-a animal", "Ahab likes Moby")
    revision = mind.facts.revision()

    fact = "(triple whale is-a mammal)"
    assert use(mind, "reason", expression=f"(not (not {fact}))").splitlines() == [
        fact,
        f"double negation: (not (not {fact})) becomes {fact}",
        '"whale" -> is-a -> "animal"  [0.95]  follows by is-a-transitive',
    ]
    both = "(and (triple Ahab likes Moby) (triple whale eats krill))"
    assert use(mind, "reason", expression=both).splitlines()[1:] == [
        '"Ahab" -> likes -> "Moby" is known, and nothing new follows',
        '"whale" -> eats -> "krill" is not known',
    ]
    assert mind.facts.revision() == revision


@pytest.mark.parametrize(
    ("tool", "params", "symbols"),
    [
        ("kg_query", {"symbol": "mammal", "direction": "out"}, ["mammal", "animal"]),
        ("kg_query", {"symbol": "unicorn"}, []),
        ("similarity_search", {"symbol": "whale"}, ["whale", "dolphin"]),
        ("reason", {"expression": "(triple whale is-a mammal)"}, ["whale", "mammal", "animal"]),
        (
            "kg_mutate",
            {"subject": "goal:1", "predicate": "related-to", "object": "whale"},
            ["whale"],
        ),
        ("library_search", {"query": "whales"}, []),
    ],
)
def test_a_tool_tells_the_symbols_that_it_has_named_or_found(
    tool: str, params: dict[str, Any], symbols: list[str]
) -> None:
    mind = Mind()
    mind.know("whale is-a mammal", "dolphin is-a mammal", "mammal is-a animal")
    action = mind.lab.agent.host.actions[f"goals:{tool}"]
    assert action.params is not None
    done = action.call("execute", ctx=mind.ctx, params=action.params(**params))

    assert symbols_of(done) == symbols


def test_a_command_needs_a_person_and_its_output_is_bounded() -> None:
    mind = Mind()
    shell = mind.lab.agent.host.actions["goals:shell_exec"]
    done = use(mind, "shell_exec", command="head -c 500000 /dev/zero | tr '\\0' x; exit 3")

    assert shell.autonomy.mode == "approval-required"
    assert (done.success, done.error) == (False, "exit code 3")
    assert len(done.output) < OUTPUT + 500


def test_a_command_that_takes_too_long_is_ended() -> None:
    done = use(Mind(), "shell_exec", command="sleep 60", timeout=0.2)

    assert done.error == "timed out after 0.2 s"


def test_secrets_of_the_worker_are_not_passed_to_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOYD_SECRET", "hunter2")

    assert "hunter2" not in use(Mind(), "shell_exec", command="env").output
