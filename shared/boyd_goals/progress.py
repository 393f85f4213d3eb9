"""Progress of goals: the criteria that complete one, and plans of tools towards it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from boyd.text.tokenizer import STOP, URL, tokens
from boyd_goals.criteria import Criterion, read_criterion
from boyd_goals.goal_conditions import is_condition
from boyd_goals.state import Config, Goal, GoalSession, PlanStep, StepStatus, ToolPlan

_SEPARATOR = re.compile(r",(?: ?and )?| and ", re.IGNORECASE)
_URL = re.compile(URL)
_PATH = re.compile(r"(?<![\w/.:])(?:/[\w.-]+)+|(?<![\w/.:-])(?:[\w-]+/)*[\w-]+\.[A-Za-z]\w{0,7}\b")
# Abbreviations that look like file names.
_NO_PATHS = frozenset({"e.g", "i.e", "a.m", "p.m", "u.s"})
_COMMAND = re.compile(r"`([^`]+)`")
#: A goal that says what to ask, as in "Ask the user which colour the bike should have".
_ASKING = re.compile(
    r"(?:please\s+)?ask\s+(?:the\s+|an?\s+|my\s+)?"
    r"(?:users?|persons?|people|humans?|operators?|somebody|someone|me)\s+"
    r"(?:for\s+|(?P<to>to\s+))?(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)

#: Verbs that want to know something; in front of a goal they are no criterion.
_KNOWING_WORDS = """
    analyse analyze check compare count define describe determine discover explain explore
    figure find get give identify investigate know learn list look name report research say
    search see seek show study summarise summarize tell understand
"""
_KNOWING = frozenset(_KNOWING_WORDS.split())
#: Verbs that want something done; the goal is reached by doing it, not by knowing about it.
_DOING_WORDS = """
    approve ask buy consolidate create delete deploy disable download drain drop enable erase
    execute fetch ingest insert install kill migrate purge reboot remove rename repair replace
    reset restart restore rotate save send shut stop suspend uninstall update upgrade upload
    wipe write
"""
_DOING = frozenset(_DOING_WORDS.split())
#: Words that are such verbs in front of something definite, as in "clean the disk".
_DOING_TO = frozenset(
    ["build", "change", "clean", "clear", "close", "copy", "move", "run", "start"]
)
#: Verbs that want something done with the file or address that the goal names.
_DOING_WITH_PLACE = frozenset(["absorb", "add", "get", "import", "load", "open", "read", "store"])
#: Words of a question, and of what a source is; no criterion beside others.
_FRAME_WORDS = """
    article belong book detail document fact information kind knowledge page paper passage
    property relation say sort source tell text thing type
"""
_FRAME = frozenset(_FRAME_WORDS.split())
#: A verb at the beginning or in the middle, as in "List the files and delete all of them".
_DEFINITE = re.compile(
    r"(?:^|\band\b|\bthen\b|,)\s*(?:(?:please|then)\s+)?(\w+)\s+"
    r"(?:all|an?|any|each|every|it|its|my|our|that|the|their|them|these|this|those)\b",
    re.IGNORECASE,
)


def split_criteria(criteria: str) -> list[str]:
    """The parts between commas and the word "and"."""
    parts = (part.strip() for part in _SEPARATOR.split(" ".join(criteria.split())))
    return [part for part in parts if part]


def condition_of(goal: Goal) -> str | None:
    """The criteria of a goal if they are a condition; its description never is."""
    is_own = goal.criteria.casefold() != goal.description.casefold()
    return goal.criteria if is_own and is_condition(goal.criteria) else None


def criteria_of(goal: Goal) -> list[str]:
    """The criteria of a goal, each of which a step must fulfil; without any it cannot complete."""
    if verb_of(goal) or condition_of(goal):
        return [goal.criteria]
    return [part for part in split_criteria(goal.criteria) if criterion_words(part)]


def criterion_of(text: str) -> Criterion:
    """Read a criterion, without verbs in front, commands, addresses and paths."""
    # A single word is no sentence, and so no verb in front of one.
    return read_criterion(text if len(tokens(text)) == 1 else subject_of(text), text, _FRAME)


def criterion_words(text: str) -> tuple[str, ...]:
    """The keywords of a criterion."""
    return criterion_of(text).words


def subject_of(text: str) -> str:
    """The text without its commands, and without verbs and function words in front."""
    rest = _COMMAND.sub(" ", text).strip()
    while remaining := tokens(rest):
        if remaining[0].lower() not in STOP | _KNOWING:
            return rest
        rest = rest[rest.index(remaining[0]) + len(remaining[0]) :].strip()
    return ""


def verb_of(goal: Goal) -> str | None:
    """The verb of a goal that is judged by its act, or None if words of its criteria decide.

    A goal with criteria of its own is judged by them.
    """
    text = goal.description
    if goal.criteria.casefold() != text.casefold():
        return None
    if find_command(text):
        return "run"
    words = [word.lower() for word in tokens(text)]
    first = next((word for word in words if word not in STOP), "")
    if first in _DOING or (first in _DOING_WITH_PLACE and (find_url(text) or find_path(text))):
        return first
    verbs = (match[1].lower() for match in _DEFINITE.finditer(text))
    return next((verb for verb in verbs if verb in _DOING | _DOING_TO), None)


def own_acts(goal: Goal) -> frozenset[str]:
    """The own tools that do what a goal judged by its act wants."""
    verb, text = verb_of(goal), goal.description
    if verb is None:
        return frozenset()
    if find_command(text):
        return frozenset(["shell_exec"])
    return frozenset(tool for tool, verbs in _ACTS.items() if verb in verbs)


_ACTS = {
    "content_ingest": ("absorb", "add", "import", "ingest", "load", "store"),
    "user_interact": ("ask",),
    "file_io": ("load", "open", "read"),
    "http_fetch": ("download", "fetch", "get", "load", "open", "read"),
    "consolidate": ("consolidate",),
}


def find_url(text: str) -> str | None:
    """The first address in a text."""
    match = _URL.search(text)
    return match[0] if match else None


def find_path(text: str) -> str | None:
    """The first path or file name in a text."""
    paths = (match[0].rstrip(".") for match in _PATH.finditer(_URL.sub(" ", text)))
    return next((path for path in paths if path and path.lower() not in _NO_PATHS), None)


def find_command(text: str) -> str | None:
    """The first command in backticks in a text."""
    match = _COMMAND.search(text)
    return match[1] if match else None


def question_in(text: str) -> str | None:
    """The question that a text wants a person to be asked."""
    match = _ASKING.match(text)
    if match is None:
        return None
    question = match["what"].rstrip(" .?!")
    return f"Please {question}." if match["to"] else f"Please tell me {question}."


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
    """The first pending step of an active plan, if any."""
    if plan.status != "Active":
        return None
    return next((step for step in plan.steps if step.status == "Pending"), None)


def tick(plan: ToolPlan, tool: str) -> ToolPlan:
    """The plan after *tool* has succeeded; only the next step can be completed."""
    step = next_step(plan)
    if step is None or step.tool != tool:
        return plan
    steps = _mark(plan.steps, step, "Completed")
    done = all(item.status != "Pending" for item in steps)
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
    candidates = {
        "kg_query": "knowledge" in needs or not has_knowledge,
        "similarity_search": not has_knowledge and inside,
        "reason": "reasoning" in needs or (has_knowledge and inside),
    }
    return [tool for tool, is_wanted in candidates.items() if is_wanted]


def _mark(steps: list[PlanStep], step: PlanStep, status: StepStatus) -> list[PlanStep]:
    return [item.model_copy(update={"status": status}) if item is step else item for item in steps]


def _stop(plan: ToolPlan, steps: list[PlanStep], status: str, reason: str) -> ToolPlan:
    for step in steps:
        if step.status == "Pending":
            steps = _mark(steps, step, "Skipped")
    return plan.model_copy(update={"steps": steps, "status": status, "reason": reason})
