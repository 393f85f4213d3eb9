"""Plans: the tools that may lead to a goal, and another plan when one has failed (M6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from boyd.plugins.goals.state import Config, Goal, GoalSession, PlanStep, ToolPlan

#: What a goal asks for, found by its likeness to what tools are for.
Need = Literal["knowledge", "reasoning", "external"]

_WHY = {
    "kg_query": "look up what is known",
    "similarity_search": "look for what is alike",
    "reason": "draw conclusions from what is known",
    "memory_recall": "remember what helped before",
    "file_io": "read or write files",
    "http_fetch": "fetch it from the web",
    "shell_exec": "run a command",
}


def make_plan(
    goal: Goal,
    needs: Collection[Need],
    *,
    has_knowledge: bool,
    external: Sequence[str] = (),
    attempt: int = 0,
) -> ToolPlan:
    """The plan of that *attempt*: even ones explore first, odd ones reason first.

    Args:
        goal: what it is for.
        needs: what that asks for.
        has_knowledge: whether anything is known that is no metadata.
        external: the tools outside of the graph that are like the goal, in their order.
        attempt: how often the goal was planned before; then a first step whose tool was tried
            already is skipped.
    """
    explores = attempt % 2 == 0
    tools = _explore(needs, has_knowledge) if explores else _reason(has_knowledge)
    if "external" in needs:
        tools += [tool for tool in external if tool not in tools]
    steps = [PlanStep(tool=tool, rationale=_why(tool)) for tool in tools or ["kg_query"]]
    if attempt > 0 and len(steps) > 1 and steps[0].tool in goal.used:
        steps[0] = _marked(steps[0], "Skipped")
    strategy = f"Attempt {attempt + 1}: {' → '.join(step.tool for step in steps)}"
    return ToolPlan(goal=goal.id, steps=steps, attempt=attempt, strategy=strategy)


def ensure_plan(
    session: GoalSession,
    goal_id: str,
    needs: Collection[Need],
    *,
    has_knowledge: bool,
    external: Sequence[str] = (),
) -> GoalSession:
    """Give an Active goal its next plan, unless it has one that goes on (the same session then)."""
    goal, before = session.goals.get(goal_id), session.plans.get(goal_id)
    if goal is None or goal.status != "Active" or (before and before.status == "Active"):
        return session
    attempt = before.attempt + 1 if before else 0
    plan = make_plan(goal, needs, has_knowledge=has_knowledge, external=external, attempt=attempt)
    return session.model_copy(update={"plans": {**session.plans, goal_id: plan}})


def next_step(plan: ToolPlan) -> PlanStep | None:
    """The step to be done now; None: the plan has ended."""
    if plan.status != "Active":
        return None
    return next((step for step in plan.steps if step.status == "Pending"), None)


def tick(plan: ToolPlan, tool: str) -> ToolPlan:
    """The plan after *tool* has worked: its step is done only if it was that tool's turn."""
    step = next_step(plan)
    if step is None or step.tool != tool:
        return plan
    steps = _with(plan.steps, step, "Completed")
    done = all(one.status != "Pending" for one in steps)
    return plan.model_copy(update={"steps": steps, "status": "Completed" if done else "Active"})


def backtrack(plan: ToolPlan, tool: str, reason: str) -> ToolPlan:
    """The plan after *tool* has failed: whatever tool it was, the plan has failed (M6)."""
    step = next_step(plan)
    if step is None:
        return plan
    steps = _with(plan.steps, step, "Failed") if step.tool == tool else plan.steps
    changes = {"steps": _skipped(steps), "status": "Failed", "reason": reason}
    return plan.model_copy(update=changes)


def supersede(plan: ToolPlan, reason: str) -> ToolPlan:
    """The plan after its goal goes on without it, or ends."""
    if plan.status != "Active":
        return plan
    changes = {"steps": _skipped(plan.steps), "status": "Superseded", "reason": reason}
    return plan.model_copy(update=changes)


def exhausted(goal: Goal, config: Config) -> bool:
    """Whether so many plans have failed that the goal is given up."""
    return goal.failed_plans >= config.max_backtrack_attempts


def _explore(needs: Collection[Need], has_knowledge: bool) -> list[str]:
    inside = "external" not in needs
    wanted = {
        "kg_query": "knowledge" in needs or not has_knowledge,
        "similarity_search": not has_knowledge and inside,
        "reason": "reasoning" in needs or (has_knowledge and inside),
    }
    return [tool for tool, is_wanted in wanted.items() if is_wanted]


def _reason(has_knowledge: bool) -> list[str]:
    return ["memory_recall", *(["reason"] if has_knowledge else []), "kg_query"]


def _why(tool: str) -> str:
    return _WHY.get(tool, f"use {tool}")


def _marked(
    step: PlanStep, status: Literal["Pending", "Completed", "Failed", "Skipped"]
) -> PlanStep:
    return step.model_copy(update={"status": status})


def _with(
    steps: list[PlanStep], step: PlanStep, status: Literal["Completed", "Failed"]
) -> list[PlanStep]:
    return [_marked(one, status) if one is step else one for one in steps]


def _skipped(steps: list[PlanStep]) -> list[PlanStep]:
    return [_marked(step, "Skipped") if step.status == "Pending" else step for step in steps]
