"""A question waits for a person, and no worker does."""

from __future__ import annotations

import pytest

from boyd_goals import sessions
from boyd_goals.sessions import Questions
from goals_kit import NOW, Mind, Steer, later

CRITERIA = "unicorn habitat and dragon nests"


def asking(**options: object) -> tuple[Mind, str]:
    mind = Mind(Steer("goals:user_interact", question="Where is the unicorn habitat?"), **options)
    return mind, mind.goal("xyzzy", criteria=CRITERIA)


def test_the_goal_that_has_asked_waits_and_its_own_words_are_no_answer() -> None:
    mind, goal = asking()
    mind.cycle()
    [open] = mind.ask("get_session")[1]["questions"]
    session = mind.session

    assert (open["goal"], session.goals[goal].question) == (goal, open["id"])
    assert session.goals[goal].matched == []


def test_nobody_is_asked_twice() -> None:
    mind = Mind()
    mind.goal("ask the user a question, confirm the answer of a human person", criteria=CRITERIA)
    question_count = 0
    for number in range(8):
        decision = mind.cycle().decision
        assert decision is not None
        question_count += decision.action == "goals:user_interact"
        if number == 3:
            [question] = mind.ask("questions")[1]["questions"]
            mind.ask("answer_question", {"text": "I cannot tell"}, id=question["id"])

    assert question_count == 1


def test_a_part_does_not_ask_what_the_goal_above_has_asked() -> None:
    mind = Mind(stall_threshold=3)
    whole = mind.goal("ask the user a question of whales, ask a human person a question of krill")
    for _ in range(10):
        mind.cycle()
    session = mind.session
    questions = mind.ask("questions")[1]["questions"]

    assert session.goals[whole].children
    assert [question["goal"] for question in questions] == [whole]
    mind.ask("answer_question", {"text": "krill is small"}, id=questions[0]["id"])
    done = [mind.session.goals[goal_id] for goal_id in (whole, *session.goals[whole].children)]
    assert {(evidence.tool, evidence.text) for goal in done for evidence in goal.evidence} == {
        ("user_interact", "krill is small")
    }
    assert all(goal.evidence for goal in done)


def test_the_answer_is_remembered_and_the_next_cycle_goes_on_with_it() -> None:
    mind, goal = asking()
    mind.cycle()
    [open] = mind.ask("questions")[1]["questions"]
    reply = "Its habitat is near the dragon nest"
    status, answer = mind.ask("answer_question", {"text": reply}, id=open["id"])
    session = mind.session

    assert (status, answer["answeredBy"]) == (200, "tester")
    assert session.goals[goal].question is None
    assert session.goals[goal].matched == ["habitat", "dragon", "nest"]
    assert [
        (evidence.criterion, evidence.tool, evidence.cycle)
        for evidence in session.goals[goal].evidence
    ] == [("dragon nests", "user_interact", 1)]
    assert session.goals[goal].last_progress_cycle == session.goals[goal].cycles_worked == 1
    assert session.memory[-1].kind == "Observation"
    assert session.memory[-1].content.endswith(f"Answer of tester: {reply}")


def test_a_goal_to_ask_a_person_is_completed_by_the_answer_and_it_is_the_result() -> None:
    mind = Mind(Steer("goals:user_interact", question="Which colour?"))
    goal = mind.goal("Ask the user which colour the bike should have")
    mind.cycle()
    assert mind.session.goals[goal].evidence == []
    [open] = mind.ask("questions")[1]["questions"]
    mind.ask("answer_question", {"text": "green"}, id=open["id"])
    mind.cycle()
    done = mind.session.goals[goal]

    assert (done.status, done.result) == ("Completed", "green")
    assert [(evidence.tool, evidence.cycle) for evidence in done.evidence] == [("user_interact", 1)]


def test_an_answer_that_got_lost_on_its_way_is_taken_in_by_the_next_cycle() -> None:
    mind, goal = asking()
    mind.cycle()
    question_id = mind.session.goals[goal].question
    assert question_id is not None
    Questions(mind.ctx.state).answer(question_id, "the habitat", "ann", mind.ctx.now())
    mind.forget()
    mind.cycle()
    session = mind.session

    assert "habitat" in session.goals[goal].matched
    assert sum("Answer of ann" in entry.content for entry in session.memory) == 1


def test_a_question_has_one_answer() -> None:
    mind, _ = asking()
    mind.cycle()
    [open] = mind.ask("questions")[1]["questions"]
    mind.ask("answer_question", {"text": "yes"}, id=open["id"])
    status, answer = mind.ask("answer_question", {"text": "no"}, id=open["id"])

    assert (status, answer["error"]) == (409, "tester has already answered it: yes")
    assert mind.ask("answer_question", {"text": "no"}, id="nope")[0] == 404
    assert mind.ask("answer_question", {"text": ""}, id=open["id"])[0] == 422


def test_a_question_is_answered_by_a_beginning_of_its_id() -> None:
    mind, _ = asking()
    mind.cycle()
    [open] = mind.ask("questions")[1]["questions"]

    assert mind.ask("answer_question", {"text": "yes"}, id="") == (
        404,
        {"error": "no question ''"},
    )
    status, answer = mind.ask("answer_question", {"text": "yes"}, id=open["id"][:3])
    assert (status, answer["id"]) == (200, open["id"])


def test_questions_of_an_old_session_and_of_ended_goals_follow_nobody() -> None:
    mind, goal = asking()
    mind.cycle()
    assert [question["goal"] for question in mind.ask("get_session")[1]["questions"]] == [goal]
    mind.ask("fail_goal", {}, id=goal)
    assert mind.ask("get_session")[1].get("questions", []) == []
    other = mind.goal("plugh", criteria=CRITERIA)
    mind.cycle()
    assert [question["goal"] for question in mind.ask("get_session")[1]["questions"]] == [other]
    mind.ask("begin_session", {})

    assert mind.ask("get_session")[1].get("questions", []) == []
    assert [question["goal"] for question in mind.ask("questions")[1]["questions"]] == [goal, other]


def test_the_same_is_asked_once_as_long_as_it_waits() -> None:
    questions = Questions(Mind().ctx.state)
    first = questions.ask("g", "why?", NOW)

    assert questions.ask("g", "why?", NOW).id == first.id
    assert questions.ask("h", "why?", NOW).id != first.id
    questions.answer(first.id, "because", "ann", NOW)
    assert questions.ask("g", "why?", NOW).id != first.id


def test_of_too_many_questions_those_with_an_answer_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MOST", 3)
    questions = Questions(Mind().ctx.state)
    first_questions = [questions.ask("g", f"{number}?", later(number)) for number in range(3)]
    questions.answer(first_questions[1].id, "yes", "ann", NOW)
    questions.ask("g", "3?", later(3))
    questions.ask("g", "4?", later(4))

    assert [question.text for question in questions.all()] == ["2?", "3?", "4?"]


def test_a_goal_whose_question_is_forgotten_no_longer_waits() -> None:
    mind, goal = asking()
    mind.cycle()
    mind.ctx.state.set("questions", [])
    mind.plugin.on_loop_start(mind.within(77))

    assert mind.session.goals[goal].question is None


def test_a_question_by_hand_belongs_to_no_goal() -> None:
    mind, _ = asking()
    mind.cycle()
    params = mind.lab.agent.host.actions["goals:user_interact"].params
    assert params is not None
    mind.plugin.user_interact(params(question="By hand?"), mind.ctx)
    questions = mind.ask("questions")[1]["questions"]

    assert [question.get("goal") is None for question in questions] == [False, True]
