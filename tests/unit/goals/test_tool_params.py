"""Params of a tool from the words of a goal."""

from __future__ import annotations

import pytest

from boyd_goals.goal_toolbox import params_for
from goals_kit import a_goal


@pytest.mark.parametrize(
    ("tool", "description", "expected"),
    [
        ("file_io", "read notes/plan.md.", {"action": "read", "path": "notes/plan.md"}),
        ("file_io", "look at /etc/hosts.", {"action": "read", "path": "/etc/hosts"}),
        ("file_io", "read something, e.g. a poem", None),
        ("file_io", "read http://x.org/a.txt", None),
        ("http_fetch", "get (https://x.org/a?b=c).", {"url": "https://x.org/a?b=c"}),
        ("http_fetch", "get a page", None),
        ("shell_exec", "run `uptime -p` now", {"command": "uptime -p"}),
        ("shell_exec", "run uptime", None),
        ("content_ingest", "ingest a.pdf", {"title": "a.pdf", "path": "a.pdf"}),
        ("content_ingest", "ingest the web", None),
        ("library_search", "find whales", {"query": "find whales", "top_k": 5}),
        ("consolidate", "tidy up", {}),
        ("others:clean", "tidy up", {}),
    ],
)
def test_params_come_from_the_words_of_the_goal(
    tool: str, description: str, expected: object
) -> None:
    assert params_for(tool, a_goal(description), {}) == expected


def test_params_found_by_scoring_take_precedence() -> None:
    assert params_for("kg_query", a_goal(), {"symbol": "x"}) == {"symbol": "x"}


def test_a_person_is_asked_once() -> None:
    assert params_for("user_interact", a_goal(), {})
    assert params_for("user_interact", a_goal(question="q"), {}) is None
    assert params_for("user_interact", a_goal(used={"user_interact": 1}), {}) is None


@pytest.mark.parametrize(
    ("description", "question"),
    [
        ("find mammals", 'What can you tell me that helps with the goal "find mammals"?'),
        (
            "Ask the user which colour it should have.",
            "Please tell me which colour it should have.",
        ),
        ("please ask somebody for the budget", "Please tell me the budget."),
        ("Ask a person to confirm the plan", "Please confirm the plan."),
        ("Ask users about\nwhales?", "Please tell me about\nwhales."),
        ("Ask me", 'What can you tell me that helps with the goal "Ask me"?'),
    ],
)
def test_a_person_is_asked_what_the_goal_says_is_to_be_asked(
    description: str, question: str
) -> None:
    assert params_for("user_interact", a_goal(description), {}) == {"question": question}
