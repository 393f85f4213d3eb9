"""How far a goal has got: the words of its criteria that are known or were told (M5)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from boyd.plugins.goals.state import Config, Goal, Progress
from boyd.tokenizer import keywords, words

#: How labels and lines begin that are about how the agent works, and no knowledge.
METADATA = (
    *("agent:", "criteria:", "desc:", "episode:", "goal:", "priority:", "status:", "summary:"),
    "tag:",
)
#: What may also stand inside of a line that tells of a goal.
_TELLING = ("desc:", "criteria:")


class Evaluation(NamedTuple):
    """What a cycle has done for a goal, and all keywords of its criteria found so far."""

    progress: Progress
    matched: list[str]


def evaluate(
    goal: Goal, matched_in_graph: Collection[str], output: str, success: bool, config: Config
) -> Evaluation:
    """What the use of a tool has done for *goal* (M5).

    Args:
        goal: with what was found so far.
        matched_in_graph: words that the graph knows, as `boyd.tokenizer` gives them;
            words beyond those of the criteria do no harm.
        output: what the tool has told.
        success: whether the tool did what it was asked; if not, nothing is taken from its output.
        config: says what share of the keywords completes it.
    """
    if not success:
        return Evaluation("Failed", goal.matched)
    matched = gathered(goal, {*matched_in_graph, *told(output)})
    if is_met(goal, matched, config):
        return Evaluation("Completed", matched)
    return Evaluation("Advanced" if len(matched) > len(goal.matched) else "NoChange", matched)


def gathered(goal: Goal, found: Collection[str]) -> list[str]:
    """The keywords of *goal* found by now, those found earlier first."""
    new = [word for word in keywords(goal.criteria) if word in found and word not in goal.matched]
    return [*goal.matched, *new]


def is_met(goal: Goal, matched: Collection[str], config: Config) -> bool:
    """Whether the criteria are met; without any keyword they never are."""
    return bool(matched) and ratio(goal, matched) >= config.completion_ratio


def ratio(goal: Goal, matched: Collection[str]) -> float:
    """The share of the keywords of *goal* that is among *matched*: 0 to 1, 0 without keywords."""
    wanted = keywords(goal.criteria)
    return sum(word in matched for word in wanted) / len(wanted) if wanted else 0.0


def told(output: str) -> set[str]:
    """The words of *output*, but of the lines in which the agent tells of its goals."""
    lines = (line for line in output.splitlines() if not _is_bookkeeping(line))
    return set().union(*map(words, lines))


def is_metadata(label: str) -> bool:
    """Whether *label* names something of the agent's own."""
    return label.lower().startswith(METADATA)


def _is_bookkeeping(line: str) -> bool:
    bare = line.strip().strip("\"'").lower()
    return is_metadata(bare) or any(mark in bare for mark in _TELLING)


_BETWEEN = re.compile(r",(?: ?and )?| and ", re.IGNORECASE)


def split_criteria(criteria: str) -> list[str]:
    """The parts between commas and the word "and", never inside of a word (M7)."""
    parts = (part.strip() for part in _BETWEEN.split(" ".join(criteria.split())))
    return [part for part in parts if part]


def clipped(text: str, limit: int) -> str:
    """At most *limit* characters of *text*; dots say that there was more."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
