"""The outcome of an action that waits for a person reaches the goal."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import pytest

from boyd import Decision as LoopDecision
from boyd import Plugin
from boyd.models import ApprovalItem, LoopResult, Prevention
from boyd.phases.action_call import failure
from boyd.testing import TESTER
from boyd.testing.lab import MemoryGraph
from boyd_goals.cycle import approval_outcomes, record_outcome
from boyd_goals.plugin import Goals
from boyd_goals.state import GoalSession, ToolDecision
from goals_kit import CONFIG, NOW, Mind, Steer, check, having, report_outcome

CRITERIA = "unicorn habitat, dragon nests and whale songs"
SAID = "unicorn habitat dragon nest whale song"
TOOLBOX = Goals().toolbox


class Desk:
    """Approvals in memory; tells what it was asked."""

    def __init__(self, *items: ApprovalItem) -> None:
        self.items = {item.id: item for item in items}
        self.asked: list[str] = []

    def get(self, approval_id: str) -> ApprovalItem | None:
        self.asked.append(f"get {approval_id}")
        return self.items.get(approval_id)

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        self.asked.append("waiting")
        approvals = (
            self.items[approval_id] for approval_id in approval_ids if approval_id in self.items
        )
        return {item.id for item in approvals if item.status == "pending"}


def asking(command: str = f"echo {SAID}", **options: Any) -> tuple[Mind, str]:
    """A mind whose every cycle asks for that command, and its goal."""
    mind = Mind(Steer("goals:shell_exec", command=command), **options)
    return mind, mind.goal("Find mammals", criteria=CRITERIA)


def approval(result: LoopResult) -> str:
    approval_id = result.action_results[0].waits_for
    assert approval_id is not None
    return approval_id


def answer(
    mind: Mind, approval_id: str, verdict: Literal["approved", "denied"], note: str | None = None
) -> None:
    assert mind.lab.resolver.answer(approval_id, verdict, TESTER, note).counts


def an_item(mind: Mind, approval_id: str, **fields: object) -> ApprovalItem:
    """The approval with other fields."""
    item = mind.lab.store.approvals.get(approval_id)
    assert item is not None
    return item.patched(fields)


def the_decision(mind: Mind) -> ToolDecision:
    [decision] = mind.session.decisions
    return decision


def test_a_pending_approval_is_neither_progress_nor_failure() -> None:
    mind, goal = asking()
    result = mind.cycle()

    assert (the_decision(mind).progress, the_decision(mind).approval) == (
        "Pending",
        approval(result),
    )
    assert mind.session.goals[goal].cycles_worked == 0


def test_any_worker_applies_an_approved_result_in_the_next_iteration() -> None:
    mind, goal = asking()
    result = mind.cycle()
    answer(mind, approval(result), "approved")
    mind.lab.deliver()
    mind.forget()
    mind.cycle()
    decision = the_decision(mind)

    assert (decision.progress, decision.cycle, decision.iteration, decision.detail) == (
        "Completed",
        1,
        result.iteration,
        f"{SAID}\n",
    )
    assert mind.session.goals[goal].status == "Completed"
    assert mind.session.cycle == 1
    check(mind.session, CONFIG)


def test_an_approved_action_that_fails_fails_the_plan() -> None:
    mind, goal = asking("exit 3")
    answer(mind, approval(mind.cycle()), "approved")
    mind.lab.deliver()
    mind.ask("suspend_goal", {}, id=goal)
    mind.cycle()

    assert (the_decision(mind).progress, mind.session.goals[goal].failed_plans) == ("Failed", 1)
    assert the_decision(mind).detail == "shell_exec failed: exit code 3"


def test_a_person_may_be_quicker_than_the_cycle_that_asks() -> None:
    mind, goal = asking()
    hints = mind.lab.dispatcher.hints
    mind.lab.launcher.trigger("test")
    mind.lab.deliver(until=lambda: bool(hints) and hints[0][0] == "complete")
    [item] = mind.lab.store.approvals.page(10).pending
    answer(mind, item.id, "approved")
    hints.rotate(1)
    mind.lab.deliver()
    mind.cycle()

    assert the_decision(mind).progress == "Completed"
    assert mind.session.goals[goal].cycles_worked == 1


def test_an_approved_but_unexecuted_action_is_still_pending() -> None:
    mind, _ = asking()
    result = mind.cycle()
    answer(mind, approval(result), "approved")
    mind.lab.dispatcher.hints.clear()
    mind.plugin.on_loop_start(mind.within(2))

    assert the_decision(mind).progress == "Pending"


def test_a_denial_is_neither_progress_nor_failure_and_names_who_and_why() -> None:
    mind, goal = asking()
    answer(mind, approval(mind.cycle()), "denied", "not today")
    mind.plugin.on_loop_start(mind.within(2))
    session = mind.session

    assert (the_decision(mind).progress, the_decision(mind).detail) == (
        "Refused",
        "denied by tester: not today",
    )
    assert (session.goals[goal].cycles_worked, session.goals[goal].failed_plans) == (0, 0)
    assert session.goals[goal].used == {"shell_exec": 1}
    assert session.memory[-1].content == "Tool result (shell_exec):\ndenied by tester: not today"


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"status": "withdrawn", "acted_by": "ann"}, "withdrawn by ann"),
        ({"status": "withdrawn", "note": "it has cleared"}, "withdrawn: it has cleared"),
    ],
)
def test_approvals_that_come_to_nothing_give_the_reason(
    fields: dict[str, object], detail: str
) -> None:
    mind, _ = asking()
    desk = Desk(an_item(mind, approval(mind.cycle()), **fields))
    [outcome] = approval_outcomes(mind.session, desk, TOOLBOX, MemoryGraph())
    after = record_outcome(mind.session, outcome, NOW, CONFIG)

    assert [(decision.progress, decision.detail) for decision in after.decisions] == [
        ("Refused", detail)
    ]


def test_a_goal_asks_again_when_nobody_has_answered() -> None:
    mind, goal = asking()
    first = approval(mind.cycle())
    waiting = f"boyd:{{{mind.lab.agent.id}}}:approvals:pending"
    mind.lab.client.zadd(waiting, {first: 1})
    mind.lab.sweeper.sweep()
    assert an_item(mind, first).status == "expired"

    second = approval(mind.cycle())
    assert second != first
    session = mind.session
    [decision] = [choice for choice in session.decisions if choice.approval == first]
    assert (decision.progress, decision.detail) == (None, "nobody answered in time")
    assert session.goals[goal].status == "Active"


def test_a_goal_asks_again_when_its_approval_is_gone() -> None:
    mind, _ = asking()
    approval(mind.cycle())
    [outcome] = approval_outcomes(mind.session, Desk(), TOOLBOX, MemoryGraph())

    assert (outcome.state, outcome.output) == ("undone", "the approval no longer exists")


@pytest.mark.parametrize(
    ("prevented", "error"),
    [
        ("cancelled", "Cancelled: no run wants it"),
        ("refused", "Refused: the policy"),
        ("unserved", "Not executed: no worker"),
    ],
)
def test_an_approved_action_that_was_prevented_is_no_failure(
    prevented: Prevention, error: str
) -> None:
    mind, _ = asking()
    id = approval(mind.cycle())
    result = failure("goals:shell_exec", error, prevented=prevented)
    item = an_item(mind, id, status="approved", result=result)
    [outcome] = approval_outcomes(mind.session, Desk(item), TOOLBOX, MemoryGraph())

    assert (outcome.state, outcome.output) == ("undone", f"approved but not executed: {error}")


def test_an_approved_action_that_a_guard_vetoes_fails_no_plan() -> None:
    mind, goal = asking("rm -rf /")
    result = mind.cycle()
    answer(mind, approval(result), "approved")
    mind.lab.deliver()
    mind.plugin.on_loop_start(mind.within(2))

    assert the_decision(mind).progress is None
    assert "Vetoed by goals" in the_decision(mind).detail
    assert mind.session.goals[goal].failed_plans == 0


SHELL = "run the shell command `uptime` in a terminal"


def ask_in_cycles(mind: Mind, cycles: int = 6) -> list[str]:
    """The approvals that so many cycles ask for."""
    results = [mind.cycle() for _ in range(cycles)]
    return [
        approval_id
        for result in results
        for done in result.action_results
        if (approval_id := done.waits_for)
    ]


def test_a_pending_approval_is_not_requested_again() -> None:
    mind = Mind()
    goal = mind.goal(SHELL, criteria=CRITERIA)

    assert len(ask_in_cycles(mind)) == 1
    assert mind.session.goals[goal].status == "Active"


def test_the_session_tells_what_waits_until_somebody_has_answered_it() -> None:
    mind, goal = asking()
    id = approval(mind.cycle())
    approvals = mind.ask("get_session")[1]["approvals"]
    assert approvals == [{"tool": "shell_exec", "goal": goal, "approval": id}]
    answer(mind, id, "denied")

    assert the_decision(mind).progress == "Pending"
    assert mind.ask("get_session")[1].get("approvals", []) == []


def test_subgoals_do_not_request_an_action_denied_to_their_parent() -> None:
    mind = Mind(stall_threshold=2)
    whole = f"{SHELL}, and then again {SHELL}, and whale songs"
    mind.goal(whole, criteria=whole)
    [id] = ask_in_cycles(mind, 2)
    answer(mind, id, "denied", "never")
    again = ask_in_cycles(mind, 30)
    depths = {goal.depth for goal in mind.session.goals.values()}

    assert depths == {0, 1}
    assert [goal for goal in mind.session.goals.values() if goal.depth and goal.cycles_worked]
    assert again == []


def test_only_another_goal_requests_a_denied_action_again() -> None:
    mind = Mind(stall_threshold=50)
    first = mind.goal(SHELL, criteria=CRITERIA)
    [id] = ask_in_cycles(mind)
    answer(mind, id, "denied")
    assert ask_in_cycles(mind) == []
    mind.ask("suspend_goal", {}, id=first)
    mind.goal(SHELL, criteria=CRITERIA)

    assert len(ask_in_cycles(mind)) == 1


class Patient(Plugin):
    """Gives every command line more time."""

    id = "patient"

    def on_decide(self, decision: LoopDecision) -> dict[str, Any] | None:
        is_shell = decision.action == "goals:shell_exec"
        return {"params": {**decision.params, "timeout": 5.0}} if is_shell else None


def test_a_denied_action_changed_by_a_hook_is_not_requested_again() -> None:
    mind = Mind(Patient(), stall_threshold=50)
    mind.goal(SHELL, criteria=CRITERIA)
    [id] = ask_in_cycles(mind)
    answer(mind, id, "denied")

    assert ask_in_cycles(mind, 12) == []


def test_an_approved_but_refused_action_may_be_requested_again() -> None:
    mind = Mind(stall_threshold=50)
    mind.goal(SHELL, criteria=CRITERIA)
    [id] = ask_in_cycles(mind)
    mind.lab.client.hset(f"boyd:{{a}}:approval:{id}", "params", '{"command": "other"}')
    answer(mind, id, "approved")
    mind.lab.deliver()
    again = ask_in_cycles(mind, 12)
    [decision] = [
        choice_made for choice_made in mind.session.decisions if choice_made.approval == id
    ]

    assert decision.progress is None
    assert decision.detail.startswith("approved but not executed: Refused: ")
    assert len(again) == 1


def test_an_approval_that_a_later_release_has_written_costs_only_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mind, _ = asking()
    id = approval(mind.cycle())
    answer(mind, id, "denied")
    mind.lab.client.hset(f"boyd:{{a}}:approval:{id}", "status", "postponed")
    result = mind.cycle()

    assert mind.session.cycle == 2
    assert result.problems == []
    assert f"approval {id} cannot be read" in caplog.text


def test_two_approvals_of_one_tool_with_the_same_params_find_their_own_outcomes() -> None:
    mind, _ = asking("echo nothing")
    first = mind.cycle()
    answer(mind, approval(first), "approved")
    held = list(mind.lab.dispatcher.hints)
    mind.lab.dispatcher.hints.clear()
    second = mind.cycle()
    assert approval(first) != approval(second)
    answer(mind, approval(second), "denied", "once is enough")
    mind.lab.dispatcher.hints.extend(held)
    mind.lab.deliver()
    mind.plugin.on_loop_start(mind.within(3))

    assert [
        (decision.cycle, decision.progress, decision.detail) for decision in mind.session.decisions
    ] == [
        (1, "NoChange", "nothing\n"),
        (2, "Refused", "denied by tester: once is enough"),
    ]


def test_the_approval_of_another_item_does_not_resolve_a_pending_one() -> None:
    mind, _ = asking()
    item = an_item(mind, approval(mind.cycle()))
    by_hand = item.patched({"id": "other", "status": "approved"})

    assert approval_outcomes(mind.session, Desk(item, by_hand), TOOLBOX, MemoryGraph()) == []


@pytest.mark.parametrize("ending", ["suspended", "spent"])
def test_an_approved_result_is_applied_although_no_cycle_begins(ending: str) -> None:
    mind, goal = asking(max_cycles=1)
    result = mind.cycle()
    if ending == "suspended":
        mind.ask("suspend_goal", {}, id=goal)
    answer(mind, approval(result), "approved")
    mind.lab.deliver()
    mind.cycle()

    assert the_decision(mind).progress == "Completed"
    assert mind.session.cycle == 1


def test_an_answer_is_taken_in_once_however_often_it_is_found() -> None:
    mind, _ = asking("echo nothing")
    answer(mind, approval(mind.cycle()), "approved")
    mind.lab.deliver()
    before = mind.session
    [outcome] = approval_outcomes(before, mind.ctx.approvals, TOOLBOX, mind.facts)
    mind.plugin.on_loop_start(mind.within(2))
    after = mind.session

    assert record_outcome(after, outcome, NOW, CONFIG) is after
    assert approval_outcomes(after, mind.ctx.approvals, TOOLBOX, mind.facts) == []
    for _ in range(2):
        mind.forget()
        mind.plugin.on_loop_start(mind.within(2))
    assert mind.session == after
    contents = [entry.content for entry in after.memory]
    assert contents.count("Tool result (shell_exec):\nnothing\n") == 1


def pending(*approvals: str) -> GoalSession:
    """A session with a decision that waits for each of those."""
    session, [goal] = having("alpha beta")
    for approval_id in approvals:
        session = report_outcome(session, goal, "pending", approval=approval_id)
    return session


def test_nothing_is_looked_up_while_nothing_waits() -> None:
    session, [goal] = having("alpha beta")
    desk = Desk()

    assert approval_outcomes(report_outcome(session, goal), desk, TOOLBOX, MemoryGraph()) == []
    assert desk.asked == []


def test_only_what_was_answered_is_looked_up_and_all_that_waits_at_once() -> None:
    mind, _ = asking()
    item = an_item(mind, approval(mind.cycle()))
    desk = Desk(*(item.patched({"id": id}) for id in ("a", "b", "c")))
    desk.items["b"] = item.patched({"id": "b", "status": "expired"})
    outcomes = approval_outcomes(pending("a", "b", "c", "b"), desk, TOOLBOX, MemoryGraph())

    assert [(outcome.cycle, outcome.approval) for outcome in outcomes] == [(2, "b"), (4, "b")]
    assert desk.asked == ["waiting", "get b"]


def test_approvals_of_a_forgotten_goal_are_not_looked_up() -> None:
    session, desk = pending("a"), Desk()

    assert approval_outcomes(session.patched({"goals": {}}), desk, TOOLBOX, MemoryGraph()) == []
    assert desk.asked == []
