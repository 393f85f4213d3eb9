"""Plans of tools towards a goal, and their progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from boyd_goals.state import Config, Goal, GoalSession, PlanStep, StepStatus, ToolPlan


def clip(text: str, limit: int) -> str:
    """At most *limit* characters of *text*, ending in dots if it was longer."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


# --- Plans ---------------------------------------------------------------------------------------

#: A need of a goal, found by its similarity to the purposes of tools.
Need = Literal["knowledge", "reasoning", "external"]

_REASONS = {
    "kg_query": "look up what is known",
    "similarity_search": "look for similar symbols",
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
    """Plan the next attempt: even ones explore first, odd ones reason first.

    *external* lists the tools outside the graph that fit the goal. From the second attempt on, a
    first step whose tool was used already is skipped.
    """
    tools = ["memory_recall", *(["reason"] if has_knowledge else []), "kg_query"]
    if attempt % 2 == 0:
        tools = _explore(needs, has_knowledge)
    if "external" in needs:
        tools += [tool for tool in external if tool not in tools]
    steps = [
        PlanStep(tool=tool, rationale=_REASONS.get(tool, f"use {tool}"))
        for tool in tools or ["kg_query"]
    ]
    if attempt > 0 and len(steps) > 1 and steps[0].tool in goal.used:
        steps[0] = steps[0].model_copy(update={"status": "Skipped"})
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
    """Give an Active goal its next plan unless it has an active one."""
    goal, before = session.goals.get(goal_id), session.plans.get(goal_id)
    if goal is None or goal.status != "Active" or (before and before.status == "Active"):
        return session
    attempt = before.attempt + 1 if before else 0
    plan = make_plan(goal, needs, has_knowledge=has_knowledge, external=external, attempt=attempt)
    return session.model_copy(update={"plans": {**session.plans, goal_id: plan}})


def next_step(plan: ToolPlan) -> PlanStep | None:
    """The first pending step; None: the plan has ended."""
    if plan.status != "Active":
        return None
    return next((step for step in plan.steps if step.status == "Pending"), None)


def tick(plan: ToolPlan, tool: str) -> ToolPlan:
    """The plan after *tool* has succeeded; only the next step can be completed."""
    step = next_step(plan)
    if step is None or step.tool != tool:
        return plan
    steps = _mark(plan.steps, step, "Completed")
    done = all(one.status != "Pending" for one in steps)
    return plan.model_copy(update={"steps": steps, "status": "Completed" if done else "Active"})


def backtrack(plan: ToolPlan, tool: str, reason: str) -> ToolPlan:
    """The plan after *tool* has failed: any failed tool fails the plan."""
    step = next_step(plan)
    if step is None:
        return plan
    steps = _mark(plan.steps, step, "Failed") if step.tool == tool else plan.steps
    return _stop(plan, steps, "Failed", reason)


def supersede(plan: ToolPlan, reason: str) -> ToolPlan:
    """The plan after its goal has ended or been split."""
    if plan.status != "Active":
        return plan
    return _stop(plan, plan.steps, "Superseded", reason)


def is_exhausted(goal: Goal, config: Config) -> bool:
    """True if so many plans failed that the goal is given up."""
    return goal.failed_plans >= config.max_backtrack_attempts


def _explore(needs: Collection[Need], has_knowledge: bool) -> list[str]:
    inside = "external" not in needs
    wanted = {
        "kg_query": "knowledge" in needs or not has_knowledge,
        "similarity_search": not has_knowledge and inside,
        "reason": "reasoning" in needs or (has_knowledge and inside),
    }
    return [tool for tool, is_wanted in wanted.items() if is_wanted]


def _mark(steps: list[PlanStep], step: PlanStep, status: StepStatus) -> list[PlanStep]:
    return [one.model_copy(update={"status": status}) if one is step else one for one in steps]


def _stop(plan: ToolPlan, steps: list[PlanStep], status: str, reason: str) -> ToolPlan:
    for step in steps:
        if step.status == "Pending":
            steps = _mark(steps, step, "Skipped")
    return plan.model_copy(update={"steps": steps, "status": status, "reason": reason})
