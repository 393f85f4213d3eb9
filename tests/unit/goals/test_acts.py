"""Goals that want something done, and what actions say that they have done."""

from __future__ import annotations

from datetime import date

import pytest

from boyd.plugin import Plugin, action
from boyd_goals.judgement import StepFinding, ToolStep, findings_in, is_met, judge
from boyd_goals.statements import is_done, lines_of
from goals_kit import CONFIG, Mind, Steer, a_goal


class Units(Plugin):
    """Restarts whatever it is told to, and says what it was made to say."""

    id = "units"

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    @action()
    def restart(self) -> object:
        return self.answer


@pytest.mark.parametrize(
    ("goal", "answer", "is_completed"),
    [
        ("Restart nginx", "restarted nginx", True),
        ("Restart the nginx service", "nginx: restarted without errors", True),
        ("Restart nginx", {"unit": "nginx", "restarted": True, "errors": [], "failed": 0}, True),
        ("Restart nginx on web-3", {"unit": "nginx", "host": "web-3", "exitCode": 0}, True),
        ("Restart postgresql", "restarted nginx", False),
        ("Restart nginx on web-3", "restarted nginx on web-4", False),
        ("Restart nginx", "nothing to do: nginx not found", False),
        ("Restart nginx", "nginx is already running", False),
        ("Restart nginx", "would restart nginx (dry run)", False),
        ("Restart nginx", "the restart of nginx failed", False),
        ("Restart nginx", "restart of nginx is queued", False),
        ("Restart nginx", {"unit": "nginx", "restarted": False}, False),
        ("Restart nginx", {"unit": "nginx", "dryRun": True}, False),
        ("Restart nginx", {"unit": "nginx", "error": "no such unit"}, False),
    ],
)
def test_an_action_completes_a_goal_if_it_says_that_it_was_done_to_the_same(
    goal: str, answer: object, is_completed: bool
) -> None:
    mind = Mind(
        Units(answer), Steer("units:restart"), tools={"units:restart": {"keywords": ["restart"]}}
    )
    id = mind.goal(goal)
    mind.cycle()

    assert (mind.session.goals[id].status == "Completed") is is_completed


@pytest.mark.parametrize(
    ("output", "is_so"),
    [
        ("done", True),
        ("", True),
        ("3 files copied, 0 errors", True),
        ("3 of 4 files copied, 1 failed", False),
        ("3 of 4 files copied", False),
        ("40% done", False),
        ("skipped", False),
        ("will be done tomorrow", False),
        ("nginx restarted with errors", False),
        ("Timeout waiting for nginx", False),
        ("exit code 1", False),
        ('{"unit": "nginx", "rc": 2}', False),
        ('{"httpStatus": 503}', False),
        ("--check mode: nginx restarted", False),
        ("nginx ist bereits gestartet", False),
        ("nginx restarted, exit code 0", True),
        ("ok=2 changed=1 unreachable=0 failed=0 skipped=0", True),
        ('{"httpStatus": 200}', True),
    ],
)
def test_an_output_says_whether_it_was_done(output: str, is_so: bool) -> None:
    assert is_done(output) is is_so


def test_the_lines_of_a_json_document_name_what_has_a_value() -> None:
    document = '[{"name": "web-3", "ready": true, "spec": {"readyReplicas": 3}}, {"error": null}]'

    assert lines_of(document) == [["web-3 ready: true", "web-3 spec ready replicas: 3"]]
    assert lines_of("[no json") == lines_of("text") == []


@pytest.mark.parametrize(
    ("criterion", "output", "expected"),
    [
        ("web-3 is ready", '{"name": "web-3", "ready": true}', True),
        ("web-3 is ready", '{"name": "web-3", "ready": false}', False),
        ("web-3 is ready", '[{"name": "web-3"}, {"name": "web-4", "ready": true}]', False),
        ("web-3 is ready", '{"name": "web-3", "ready": true, "paused": false}', True),
        ("payment service is up", '{"service": "payment", "state": "up"}', True),
        ("payment service is up", '{"service": "payment", "state": "down"}', False),
        ("3 replicas", '{"name": "web", "replicas": 3}', True),
        ("3 replicas", '{"name": "web", "replicas": 1}', False),
    ],
)
def test_a_criterion_is_judged_by_the_fields_of_an_output(
    criterion: str, output: str, expected: bool
) -> None:
    findings: list[StepFinding] = findings_in("others:look", output)
    goal = a_goal("see what there is", criteria=criterion)
    step = ToolStep(7, "others:look", output, findings, date(2026, 1, 5))

    assert is_met(goal, judge(goal, step, CONFIG).evidence) is expected
