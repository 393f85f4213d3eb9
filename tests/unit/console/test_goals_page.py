"""The pages of goals: what they show, what their forms do, and what they say without a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api_kit import Site
from boyd import Agent
from boyd.testing import Lab
from boyd_goals.api_models import GoalList
from boyd_goals.console import goals_page
from boyd_goals.plugin import Goals
from boyd_goals.state import Goal, Question, Score
from console_kit import Browser, Form
from goals_kit import a_goal
from lab_redis import client_of

GOALS = "/console/agents/scholar/goals"
API = "/agents/scholar/plugins/goals"


@pytest.fixture
def site(server: Any) -> Iterator[Site]:
    """An API over an agent with goals."""
    redis = client_of(server)
    new_site = Site(Lab(Agent("scholar", plugins=[Goals()]), client=redis), server, max_wait=10)
    yield new_site
    new_site.services.stop()


@pytest.fixture
def ann(site: Site) -> Browser:
    """The browser of a person who may do everything."""
    return Browser(site, site.key("admin", principal="ann", person=True))


def add_goal(site: Site, description: str = "Find mammals", **more: Any) -> str:
    """The id of a new goal."""
    answer = site.post(f"{API}/goals", {"description": description, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json["id"])


def list_goals(site: Site) -> list[Goal]:
    """All goals."""
    return GoalList.model_validate(site.get(f"{API}/goals").json).goals


def cycle(site: Site) -> None:
    """Have the agent work for one cycle."""
    assert site.post("/agents/scholar/loop/trigger", {}).status_code == 200


def test_an_agent_without_the_plugin_says_so_and_how_to_add_it(alice: Browser) -> None:
    page = alice.get("/console/agents/desk/goals")
    assert page.status == 200
    assert "desk does not use the plugin goals" in page.text
    assert 'use = "goals"' in page.text


def test_without_goals_the_page_says_that_nothing_is_done(ann: Browser) -> None:
    page = ann.get(GOALS)
    assert "No goal is open." in page.text
    assert "The agent does nothing until somebody adds a goal." in page.text
    assert page.title == "Goals of scholar: 0 active · Boyd"


def test_a_goal_is_added_once_however_often_the_form_is_sent(site: Site, ann: Browser) -> None:
    form = ann.get(GOALS).form("/goals")
    for _ in range(2):
        page = ann.send(form, description="Find <b>mammals</b>", priority="200")
        assert "Find <b>mammals</b>" in page.text
        assert "active 200 0 none" in page.text
    [goal] = list_goals(site)
    assert (goal.description, goal.priority) == ("Find <b>mammals</b>", 200)


def test_a_refused_goal_keeps_what_was_written(site: Site, ann: Browser) -> None:
    page = ann.send(ann.get(GOALS).form("/goals"), description="Find mammals", priority="300")
    assert page.status == 422
    assert "Nothing was changed: priority: " in page.text
    assert "Find mammals" in page.text
    assert 'data-live=""' in page.source
    assert list_goals(site) == []


def test_a_decision_is_shown_with_its_score_term_by_term(site: Site, ann: Browser) -> None:
    id = add_goal(site)
    cycle(site)
    decision = site.get(f"{API}/cycles").json["cycles"][0]
    score = Score.model_validate(decision["score"])
    assert f"{decision['tool']} " in ann.get(GOALS).text
    page = ann.get(f"{GOALS}/{id}")
    assert f"{score.total:.2f} {score.base:.2f} -0.00 +0.15 +0.00 +0.00" in page.text
    assert f'href="/console/agents/scholar/iterations/{decision["iteration"]}"' in page.source


def test_a_completed_goal_shows_its_result_and_what_fulfilled_it(site: Site, ann: Browser) -> None:
    facts = [{"subject": "whale", "predicate": "is-a", "object": "mammal <b>"}]
    assert site.post(f"{API}/graph/facts", {"facts": facts}).status_code == 200
    id = add_goal(site)
    for _ in range(4):
        cycle(site)
    [goal] = list_goals(site)
    assert goal.status == "Completed"
    [evidence] = goal.evidence
    page = ann.get(f"{GOALS}/{id}")
    assert "Result whale is-a mammal <b>" in page.text
    assert f"Find mammals by {evidence.tool} in cycle {evidence.cycle}" in page.text
    assert "whale is-a mammal <b>" in ann.get(GOALS).text


def test_a_goal_is_suspended_resumed_given_up_and_gets_another_priority(
    site: Site, ann: Browser
) -> None:
    id = add_goal(site)
    here = f"{GOALS}/{id}"
    ann.send(ann.get(here).form("/priority"), priority="7")
    for verb, status in (("suspend", "Suspended"), ("resume", "Active"), ("fail", "Failed")):
        page = ann.send(ann.get(f"{here}?do={verb}").form(f"/{verb}"), reason=f"to {verb}")
        [goal] = list_goals(site)
        assert (goal.status, goal.priority) == (status, 7)
        assert f"to {verb}" in page.text
    late = ann.send(ann.get(GOALS).form("/goals"), description="Find birds")
    assert "1 goal has ended" in late.text


def test_a_question_of_the_agent_is_answered_on_the_page(site: Site, ann: Browser) -> None:
    add_goal(site, "Ask the user which colour it should have")
    for _ in range(8):
        cycle(site)
        if site.get(f"{API}/questions").json["questions"]:
            break
    page = ann.get(GOALS)
    assert "The agent asks Please tell me which colour it should have." in page.text
    assert page.title == "Goals of scholar: 1 active, 1 question · Boyd"
    after = ann.send(page.form("/answer"), text="green")
    assert "The agent asks" not in after.text
    [row] = site.get(f"{API}/questions").json["questions"]
    question = Question.model_validate(row)
    assert (question.answer, question.answered_by) == ("green", "ann")
    other = Browser(site, site.key("admin", principal="bob", person=True))
    form = page.form("/answer")
    fields = other.get(GOALS).form("/goals").fields
    late = other.send(Form(form.action, fields), text="red")
    assert "Nothing was changed: ann has already answered it: green" in late.text


def test_a_page_waits_for_workers_only_so_long_and_says_what_it_does_not_know(
    site: Site, ann: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goals_page, "_READ", 0.1)
    site.dispatcher.held = True
    for path in (GOALS, f"{GOALS}/1"):
        page = ann.get(path)
        assert page.status == 200
        assert "did not answer in time" in page.text
        assert "it may be busy" in page.text
    assert "The goals are not known now." in ann.get(GOALS).text


def test_a_change_that_was_not_answered_in_time_is_not_called_undone(
    site: Site, ann: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = ann.get(GOALS).form("/goals")
    monkeypatch.setattr(goals_page, "_READ", 0.1)
    monkeypatch.setattr(goals_page, "_CHANGE", 0.1)
    site.dispatcher.held = True
    page = ann.send(form, description="Find mammals")
    assert "It is not known whether it happened" in page.text


def test_without_a_worker_the_page_names_the_command(site: Site, ann: Browser) -> None:
    for worker in site.store.fleet.workers():
        site.store.fleet.leave(worker.name)
    page = ann.get(GOALS)
    assert "No live worker consumes queue 'act'" in page.text
    assert "boyd worker -Q act" in page.text


def test_a_goal_that_does_not_exist_is_not_found(ann: Browser) -> None:
    assert ann.get(f"{GOALS}/99").status == 404


def test_a_reader_is_offered_no_forms(site: Site) -> None:
    id = add_goal(site)
    guest = Browser(site, site.key("read", principal="guest"))
    for path in (GOALS, f"{GOALS}/{id}", f"{GOALS}/{id}?do=fail"):
        assert f'action="{GOALS}' not in guest.get(path).source


def part(id: str, parent: str | None = None, children: tuple[str, ...] = ()) -> Goal:
    """A goal of a tree."""
    return a_goal(id=id, parent=parent, children=list(children))


def test_the_graph_has_each_goal_of_a_tree_once_and_parts_right_of_their_parent() -> None:
    goals = [part("1", None, ("2", "3")), part("2", "1"), part("3", "1"), part("4")]
    graph = goals_page.tree_of(goals)
    places = {node.id: (node.x, node.y) for node in graph.nodes}
    assert sorted(places) == ["1", "2", "3"]
    assert places["1"][0] < places["2"][0] == places["3"][0]
    assert len({places["2"][1], places["3"][1]}) == 2
    assert len(graph.edges) == 2


def test_of_a_huge_tree_only_a_part_is_drawn() -> None:
    parts = tuple(str(number) for number in range(2, 300))
    goals = [part("1", None, parts), *(part(id, "1") for id in parts)]
    graph = goals_page.tree_of(goals)
    assert (len(graph.nodes), graph.omitted) == (60, 239)
