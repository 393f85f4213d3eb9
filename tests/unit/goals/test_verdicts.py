"""Goals are judged by results: cases that were judged wrongly when words alone counted."""

from __future__ import annotations

from pathlib import Path

from boyd.models import Triple
from boyd_goals.state import Goal
from goals_kit import Mind, Steer

#: Facts as a vocabulary has them: words of almost any goal occur somewhere.
VOCABULARY = """
    CheckOutAction subclass-of CommunicateAction
    FindAction subclass-of Action
    Recipe subclass-of HowTo
    HowTo subclass-of CreativeWork
    Movie subclass-of CreativeWork
    cookTime domain-includes Recipe
    recipeYield domain-includes Recipe
    Zone_Air_Cooling_Temperature_Setpoint has-property Recipe_Limit
    gravity_txt is-a document
    List_Item subclass-of Thing
    Delete_Action subclass-of Action
    tmp_file is-a file
    Person disjoint-with Organization
    mailbox range Thing
"""


def knowing(*others: Steer, **options: object) -> Mind:
    """A mind that has imported the vocabulary, and gives up late."""
    mind = Mind(*others, stall_threshold=25, **options)
    parts = (line.split() for line in VOCABULARY.split("\n") if line.strip())
    mind.facts.add([Triple(subject=s, predicate=p, object=o) for s, p, o in parts])
    return mind


def work_on(mind: Mind, id: str, most: int = 15) -> Goal:
    """The goal after so many cycles, or when it has left `Active`."""
    for _ in range(most):
        mind.cycle()
        if mind.session.goals[id].status != "Active":
            break
    return mind.session.goals[id]


def test_a_command_is_not_carried_out_because_its_words_occur_in_the_graph() -> None:
    mind = knowing()
    id = mind.goal("List the files and delete all of them with `rm -rf /tmp/x`")
    goal = work_on(mind, id)

    assert (goal.status, goal.evidence, goal.result) == ("Active", [], None)


def test_a_question_about_kinds_is_answered_by_facts_about_the_subject() -> None:
    mind = knowing(completion_ratio=1.0)
    id = mind.goal("Find out what a Recipe is a kind of", criteria="HowTo, CreativeWork")
    goal = work_on(mind, id)

    assert goal.status == "Completed"
    assert {evidence.criterion: evidence.text for evidence in goal.evidence} == {
        "HowTo": "Recipe subclass-of HowTo",
        "CreativeWork": "Recipe subclass-of CreativeWork",
    }
    assert "CheckOutAction" not in str(goal.result)


def test_a_question_of_properties_is_answered_by_the_facts_and_not_by_a_similar_text() -> None:
    mind = knowing()
    goal = work_on(mind, mind.goal("Find out which properties a Recipe has"))

    assert goal.status == "Completed"
    assert "Recipe" in str(goal.result)
    assert "Zone" not in str(goal.result)


def test_a_fact_with_half_of_the_words_is_no_answer() -> None:
    mind = knowing()
    goal = work_on(mind, mind.goal("Find mailbox of a Person"))
    assert (goal.status, goal.evidence) == ("Active", [])

    mind.facts.add([Triple(subject="mailbox", predicate="domain", object="Person")])
    goal = work_on(mind, goal.id)
    assert goal.status == "Completed"
    assert goal.result == "mailbox domain Person"


def gravity(folder: Path) -> Path:
    """A document about gravity."""
    path = folder / "paper.txt"
    path.write_text("Einstein wrote much.\n\n" + "x" * 800 + "\n\nGravity bends light.\n")
    return path


def test_a_document_is_ingested_when_it_was_ingested(tmp_path: Path) -> None:
    mind = knowing(roots=[tmp_path])
    id = mind.goal(f"Ingest the document {gravity(tmp_path)}")
    goal = work_on(mind, id)
    [decision] = [choice for choice in mind.session.decisions if choice.progress == "Completed"]

    assert (goal.status, decision.tool) == ("Completed", "content_ingest")
    assert goal.used["content_ingest"] == 1
    assert [(evidence.tool, evidence.cycle) for evidence in goal.evidence] == [
        ("content_ingest", decision.cycle)
    ]
    assert str(goal.result).startswith("3 passages, about ")


def test_a_question_about_a_paper_is_answered_by_its_passage(tmp_path: Path) -> None:
    mind = knowing(roots=[tmp_path])
    work_on(mind, mind.goal(f"Ingest the document {gravity(tmp_path)}"))
    goal = work_on(mind, mind.goal("What did that paper say about gravity?"), most=25)

    assert goal.status == "Completed"
    assert goal.result == "Gravity bends light."
    assert [evidence.tool for evidence in goal.evidence] == ["library_search"]


def test_the_notes_and_the_question_of_a_goal_are_no_knowledge() -> None:
    mind = knowing(
        Steer("goals:kg_mutate", subject="goal:1", predicate="related-to", object="zorb")
    )
    id = mind.goal("Explore zorbs")
    mind.cycle()
    mind.facts.add([Triple(subject=f"goal:{id}", predicate="related-to", object="zorb")])
    goal = work_on(mind, id, most=5)

    assert (goal.status, goal.matched) == ("Active", [])
    other = knowing(Steer("goals:user_interact", question="What do you know about zorbs?"))
    goal = work_on(other, other.goal("Explore zorbs"), most=3)
    assert (goal.status, goal.matched) == ("Active", [])


def test_a_verdict_names_a_step_of_the_goal_that_has_succeeded() -> None:
    mind = knowing()
    goal = work_on(mind, mind.goal("Explore the Movie"))
    [evidence] = goal.evidence
    [step] = [decision for decision in mind.session.decisions if decision.cycle == evidence.cycle]

    assert goal.status == "Completed"
    assert (step.goal, step.tool, step.progress) == (goal.id, evidence.tool, "Completed")
    assert evidence.text == "Movie subclass-of CreativeWork"
    assert goal.reason == (
        f"the criteria are met: Explore the Movie by {step.tool} in cycle {step.cycle}"
    )


def test_a_goal_starts_at_the_symbol_it_names_and_not_at_one_named_like_its_verb() -> None:
    mind = knowing()
    mind.know("ExploreAction subclass-of Action", "Explore is-a verb", "AddAction is-a Action")
    mind.goal("Explore Action")
    [observed] = [
        observation for observation in mind.cycle().observations if observation.source == "goals"
    ]
    symbols = observed.data["symbols"]

    assert isinstance(symbols, list)
    assert symbols[1:3] == ["Action", "AddAction"]
    assert "Explore" not in symbols
