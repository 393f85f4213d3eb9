"""Decides when a model should pause, assess its results, and answer.

`OODAReflection` looks at each turn once all its results are there. It returns the message to inject
and whether the model keeps its tools. It has no side effects, and its state is JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from boyd.llm import synthesis
from boyd.llm.messages import ToolOutcome, ToolUse
from boyd.llm.synthesis import GatheredEvidence
from boyd.models import JsonObject, Model
from boyd.models.investigation import Category, Profile, call_number

#: A result is stale above this share of known words; a shorter text is not compared.
STALE = 0.9
WORDS = 20
#: Successful calls after which a profile asks for an answer.
BASES: dict[Profile, int] = {"research": 3, "general": 8, "execution": 8, "off": 0}
#: Errors without any success after which the model cannot proceed.
MAX_ERRORS = 6
#: Searches in a row without news after which the model is warned, and must answer.
STALE_WARNING = 2
MAX_STALE = 4
#: Turns without tools that may fail to give an answer.
TRIES = 2
#: Characters of a signature that are kept.
_SHORT = 24

Kind = Literal["none", "duplicate", "stale", "micro", "advice", "synthesis", "retry", "digest"]
Reason = Literal["threshold", "max_errors", "no_novelty", "no_answer"]

_DUPLICATE = (
    "You have already made this call with the same arguments: {names}. Try a different approach, "
    "or synthesise what you have."
)
_STALE = "Your last searches found nothing new. Look elsewhere, or synthesise what you have."
_HALFWAY = (
    "You have used half of your tool calls: {used} of {budget}. Assess: do you have enough to "
    "answer, or do you need one more targeted call? Answer now if you have enough."
)
_ADVICE = (
    "You have made {successes} successful calls. If the task is done, answer now: {instruction} "
    "Otherwise, continue."
)
_STUCK = (
    "All {errors} calls so far have failed. Unless you know what to change, stop and say what you "
    "tried, what went wrong, and what you would need."
)
_RETRY = (
    "That was not an answer, and you no longer have tools. Write the final answer in words "
    "now, based on the results above."
)
_WHY: dict[Reason, str] = {
    "threshold": "You have gathered enough: {successes} calls succeeded and {errors} failed.",
    "max_errors": "All {errors} calls have failed.",
    "no_novelty": "Your last {stale} searches found nothing new.",
}


@dataclass(frozen=True)
class ReflectionAction:
    """The action before the next turn.

    Attributes:
        kind: the gravest subject of the message.
        inject_message: message to the model, after all results of the turn.
        strip_tools: the next turn has no tools.
        terminate: there is no next turn, and `synthesis.digest` is the answer.
        reason: why the tools are taken away or the investigation ends.
    """

    kind: Kind
    inject_message: str | None
    strip_tools: bool
    terminate: bool
    reason: Reason | None
    stats: JsonObject


class _State(Model):
    """The state between turns.

    Attributes:
        stale: searches since the last one with news.
        polls: successful calls of polling tools.
        micro: the model was asked whether it has enough.
        advised: the model was advised to conclude.
        reason: why the tools were taken away.
        tries: turns without tools that gave no answer.
        seen: distinct signatures of all calls.
    """

    turns: int = 0
    calls: int = 0
    successes: int = 0
    errors: int = 0
    duplicates: int = 0
    stale: int = 0
    polls: int = 0
    micro: bool = False
    advised: bool = False
    reason: Reason | None = None
    tries: int = 0
    categories: dict[Category, int] = Field(default_factory=dict)
    seen: list[str] = Field(default_factory=list)
    evidence: list[GatheredEvidence] = Field(default_factory=list)


class OODAReflection:
    """The reflection of one investigation.

    The profile `execution` only advises, `off` only counts. *state* is `state` after an earlier
    turn, *limit* the number of calls that the investigation may make, if limited.
    """

    def __init__(
        self, profile: Profile, state: JsonObject | None = None, limit: int | None = None
    ) -> None:
        self._profile = profile
        self._limit = limit
        self._state = _State.model_validate(state or {}, extra="ignore")

    @property
    def state(self) -> JsonObject:
        """The state as JSON."""
        return self._state.to_wire()

    @property
    def evidence(self) -> list[GatheredEvidence]:
        """The evidence, within the limit for prompts."""
        return list(self._state.evidence)

    @property
    def kind(self) -> synthesis.Kind:
        """The dominant kind of work."""
        return synthesis.dominant_kind(self._state.categories)

    @property
    def stats(self) -> JsonObject:
        """Statistics for people."""
        state = self._state
        counters = {"turns", "calls", "successes", "errors", "duplicates", "stale", "polls"}
        return {
            "profile": self._profile,
            "base": BASES[self._profile],
            "threshold": self._threshold(),
            **state.model_dump(include=counters),
            "category": self.kind,
            "microReflected": state.micro,
            "advised": state.advised,
            "synthesised": state.reason is not None,
            "reason": state.reason,
        }

    def observe(
        self, tool_calls: Sequence[ToolUse], tool_results: Sequence[ToolOutcome]
    ) -> ReflectionAction:
        """The action after a turn, given its calls and their results in the same order.

        After the tools were taken away, every turn that comes here has failed to give an answer.
        Raises `ValueError` if calls and results do not match.
        """
        pairs = list(zip(tool_calls, tool_results, strict=True))
        for use, outcome in pairs:
            if use.id != outcome.call_id:
                raise ValueError(f"expected the result of {use.id!r}, not {outcome.call_id!r}")
        if self._state.reason is not None:
            return self._retry()
        self._update(turns=self._state.turns + 1)
        repeated = [use for use, outcome in pairs if self._add(use, outcome)]
        return self._reflect(repeated) if self._profile != "off" else self._action("none")

    def _retry(self) -> ReflectionAction:
        self._update(turns=self._state.turns + 1, tries=self._state.tries + 1)
        if self._state.tries < TRIES:
            return self._action("retry", _RETRY, self._state.reason, strip=True)
        return self._action("digest", None, "no_answer", strip=True, terminate=True)

    def _add(self, use: ToolUse, outcome: ToolOutcome) -> bool:
        """Count a call and keep its result; return True if the call is a repetition."""
        state, signature = self._state, use.signature[:_SHORT]
        is_duplicate = signature in state.seen
        repeated = is_duplicate and not use.poll
        categories = {**state.categories, use.category: state.categories.get(use.category, 0) + 1}
        self._update(
            calls=state.calls + 1,
            successes=state.successes + outcome.is_success,
            errors=state.errors + outcome.counts_as_error,
            duplicates=state.duplicates + repeated,
            polls=state.polls + (use.poll and outcome.is_success),
            stale=self._count_stale(use, outcome),
            categories=categories,
            seen=state.seen if is_duplicate else [*state.seen, signature],
            evidence=self._collect(use, outcome),
        )
        return repeated

    def _count_stale(self, use: ToolUse, outcome: ToolOutcome) -> int:
        if use.category != "search" or use.poll or not outcome.is_success:
            return self._state.stale
        earlier = (evidence.text for evidence in self._state.evidence)
        return self._state.stale + 1 if is_stale(outcome.text, earlier) else 0

    def _collect(self, use: ToolUse, outcome: ToolOutcome) -> list[GatheredEvidence]:
        if not outcome.is_success and not outcome.counts_as_error:
            return self._state.evidence
        number = call_number(use.id) or self._state.calls + 1
        return synthesis.collect(self._state.evidence, use, outcome, number, self._state.turns)

    def _reflect(self, repeated: Sequence[ToolUse]) -> ReflectionAction:
        reason = self._reason_to_answer()
        if reason is not None and self._profile != "execution":
            self._update(reason=reason)
            explanation, stuck = _WHY[reason].format(**self._numbers()), reason == "max_errors"
            prompt = synthesis.prompt(self._state.evidence, self.kind, explanation, stuck=stuck)
            return self._action("synthesis", prompt, reason, strip=True)
        kind, hints = self._hints(repeated)
        if reason is not None and not self._state.advised:
            self._update(advised=True)
            kind, hints = "advice", [*hints, self._advice(reason)]
        elif self._is_halfway():
            self._update(micro=True)
            question = _HALFWAY.format(used=self._successes_without_polls, budget=self._budget())
            kind, hints = "micro", [*hints, question]
        return self._action(kind, "\n\n".join(hints) or None)

    def _reason_to_answer(self) -> Reason | None:
        state = self._state
        if self._successes_without_polls >= self._threshold():
            return "threshold"
        if state.successes == 0 and state.errors >= MAX_ERRORS:
            return "max_errors"
        return "no_novelty" if state.stale >= MAX_STALE else None

    def _threshold(self) -> int:
        """Successful calls that suffice; each error lowers the number by one."""
        return max(1, BASES[self._profile] - self._state.errors)

    @property
    def _successes_without_polls(self) -> int:
        """Successful calls other than polls."""
        return self._state.successes - self._state.polls

    def _budget(self) -> int | None:
        """Calls until the tools are taken away, if limited."""
        if self._profile == "execution":
            return self._limit
        return min(self._threshold(), self._limit or self._threshold())

    def _is_halfway(self) -> bool:
        budget = None if self._state.micro else self._budget()
        return budget is not None and (budget + 1) // 2 <= self._successes_without_polls < budget

    def _hints(self, repeated: Sequence[ToolUse]) -> tuple[Kind, list[str]]:
        if repeated:
            names = ", ".join(dict.fromkeys(use.name for use in repeated))
            return "duplicate", [_DUPLICATE.format(names=names)]
        return ("stale", [_STALE]) if self._state.stale == STALE_WARNING else ("none", [])

    def _advice(self, reason: Reason) -> str:
        if reason == "max_errors":
            return _STUCK.format(**self._numbers())
        instruction = synthesis.instruction(self.kind)
        return _ADVICE.format(instruction=instruction, **self._numbers())

    def _numbers(self) -> dict[str, int]:
        return self._state.model_dump(include={"successes", "errors", "stale"})

    def _action(
        self,
        kind: Kind,
        message: str | None = None,
        reason: Reason | None = None,
        *,
        strip: bool = False,
        terminate: bool = False,
    ) -> ReflectionAction:
        return ReflectionAction(kind, message, strip, terminate, reason, self.stats)

    def _update(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)


def is_stale(text: str, earlier: Iterable[str]) -> bool:
    """Report whether nearly all words of *text* occur in the *earlier* texts."""
    new = _words(text)
    if len(new) < WORDS:
        return False
    repeated = new.intersection(*[set().union(*map(_words, earlier))])
    return len(repeated) > STALE * len(new)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
