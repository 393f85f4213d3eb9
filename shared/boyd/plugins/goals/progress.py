"""Progress of a goal, by the keywords of its criteria, and of its plan, step by step."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from boyd.plugins.goals.state import (
    Config,
    Goal,
    GoalSession,
    PlanStep,
    Progress,
    StepStatus,
    ToolPlan,
)
from boyd.tokenizer import keywords, words

#: Prefixes of labels and lines that describe the agent itself, and so are not knowledge.
METADATA = (
    *("agent:", "criteria:", "desc:", "episode:", "goal:", "priority:", "status:", "summary:"),
    "tag:",
)
_GOAL_MARKS = ("desc:", "criteria:")
_SEPARATOR = re.compile(r",(?: ?and )?| and ", re.IGNORECASE)


class Evaluation(NamedTuple):
    """The effect of a cycle on a goal, and all keywords of its criteria found so far."""

    progress: Progress
    matched: list[str]


def evaluate(
    goal: Goal, matched_in_graph: Collection[str], output: str, success: bool, config: Config
) -> Evaluation:
    """Evaluate the use of a tool; a failed tool contributes no keywords.

    *matched_in_graph* may hold words beyond those of the criteria.
    """
    if not success:
        return Evaluation("Failed", goal.matched)
    matched = merge_matches(goal, {*matched_in_graph, *knowledge_words(output)})
    if is_met(goal, matched, config):
        return Evaluation("Completed", matched)
    return Evaluation("Advanced" if len(matched) > len(goal.matched) else "NoChange", matched)


def merge_matches(goal: Goal, found: Collection[str]) -> list[str]:
    """All keywords of *goal* found by now, earlier ones first."""
    new = [word for word in keywords(goal.criteria) if word in found and word not in goal.matched]
    return [*goal.matched, *new]


def is_met(goal: Goal, matched: Collection[str], config: Config) -> bool:
    """True if the criteria are met; criteria without keywords never are."""
    return bool(matched) and ratio(goal, matched) >= config.completion_ratio


def ratio(goal: Goal, matched: Collection[str]) -> float:
    """The share of the keywords of *goal* in *matched*, 0 without keywords."""
    wanted = keywords(goal.criteria)
    return sum(word in matched for word in wanted) / len(wanted) if wanted else 0.0


def knowledge_words(output: str) -> set[str]:
    """Words of *output*, excluding the lines in which the agent describes its goals."""
    found = set[str]()
    for line in output.splitlines():
        bare = line.strip().strip("\"'").lower()
        if not is_metadata(bare) and not any(mark in bare for mark in _GOAL_MARKS):
            found |= words(line)
    return found


def is_metadata(label: str) -> bool:
    """True if *label* names something of the agent's own."""
    return label.lower().startswith(METADATA)


def split_criteria(criteria: str) -> list[str]:
    """The parts between commas and the word "and"."""
    parts = (part.strip() for part in _SEPARATOR.split(" ".join(criteria.split())))
    return [part for part in parts if part]


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
