"""Tells an investigation when to stop and think (F1 to F9).

`OODAReflection` is asked once per turn, after all results of the turn. It says what to inject, and
whether the model keeps its tools. It does nothing itself, and what it remembers is JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from boyd.llm import synthesis
from boyd.llm.synthesis import GatheredEvidence
from boyd.llm.tool_calls import ToolOutcome, ToolUse
from boyd.models import JsonObject, Model
from boyd.models.investigation import Category, Profile, call_number

#: The share of known words above which a result is stale, and how many words make it comparable.
STALE = 0.9
WORDS = 20


def is_stale(text: str, earlier: Iterable[str]) -> bool:
    """Whether nearly all that *text* says was in the *earlier* texts already."""
    new = _words(text)
    if len(new) < WORDS:
        return False
    known = new.intersection(*[set().union(*map(_words, earlier))])
    return len(known) > STALE * len(new)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


#: After how many successful calls a profile reflects (F7).
BASES: dict[Profile, int] = {"research": 3, "general": 8, "execution": 8, "off": 0}
#: How many errors without any success are enough to say that it cannot proceed.
MAX_ERRORS = 6
#: How many searches in a row that bring nothing new are pointed out, and are enough.
STALE_WARNING = 2
MAX_STALE = 4
#: How many turns without tools may fail to give an answer (F6).
TRIES = 2
#: Characters of a signature that are remembered.
_SHORT = 24

Kind = Literal["none", "duplicate", "stale", "micro", "advice", "synthesis", "retry", "digest"]
Reason = Literal["threshold", "max_errors", "no_novelty", "no_answer"]

_DUPLICATE = (
    "You have already made this call with the same arguments: {names}. Try a different approach, "
    "or synthesise what you have."
)
_STALE = "Your last searches have brought nothing new. Look elsewhere, or synthesise what you have."
_MICRO = (
    "You have used half of your tool calls: {used} of {budget}. Assess: do you have enough to "
    "answer, or do you need one more targeted call? Answer now if you have enough."
)
_ADVICE = (
    "You have made {successes} successful calls. If the task is done, answer now: {instruction} "
    "If it is not, go on."
)
_STUCK = (
    "All {errors} calls so far have failed. Unless you know what to change, stop and say what you "
    "tried, what went wrong, and what you would need."
)
_RETRY = (
    "That was no answer, and you have no tools any more. Write the final answer in words, from the "
    "results above, now."
)
_WHY: dict[Reason, str] = {
    "threshold": "You have gathered enough: {successes} calls succeeded and {errors} failed.",
    "max_errors": "All {errors} calls have failed.",
    "no_novelty": "Your last {stale} searches have brought nothing new.",
}


@dataclass(frozen=True)
class ReflectionAction:
    """What to do before the next turn.

    Attributes:
        kind: what it is about; of several things the gravest.
        inject_message: what the model is told, after all results of the turn; None: nothing.
        strip_tools: whether the next turn has no tools.
        terminate: whether there is no next turn: `synthesis.digest` is the answer then.
        reason: why tools are taken away or the investigation ends.
        stats: as `OODAReflection.stats`.
    """

    kind: Kind
    inject_message: str | None
    strip_tools: bool
    terminate: bool
    reason: Reason | None
    stats: JsonObject


class _State(Model):
    """What is remembered from turn to turn.

    Attributes:
        turns: how many were observed.
        seen: the signatures of all calls, in the order in which they came first.
        stale: searches since the last that brought something new.
        polls: successful calls of tools that are called again and again, as to wait for something.
        micro: whether the model was asked if it has enough.
        advised: whether it was advised to end.
        reason: why the tools were taken away; None: they were not.
        tries: turns without tools that gave no answer.
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
    """The reflection of one investigation (F1).

    Args:
        profile: how eager it is (F7): `execution` only advises, `off` only counts.
        state: as `state` gave it after an earlier turn; None: there was none.
        limit: how many calls the investigation may make; None: nobody knows.

    Raises:
        pydantic.ValidationError: the state is none.
    """

    def __init__(
        self, profile: Profile, state: JsonObject | None = None, limit: int | None = None
    ) -> None:
        self._profile = profile
        self._limit = limit
        self._state = _State.model_validate(state or {}, extra="ignore")

    @property
    def state(self) -> JsonObject:
        """What it remembers, as JSON."""
        return self._state.to_wire()

    @property
    def evidence(self) -> list[GatheredEvidence]:
        """What was gathered, within the limit for prompts."""
        return list(self._state.evidence)

    @property
    def kind(self) -> synthesis.Kind:
        """The kind of work that most calls were."""
        return synthesis.dominant(self._state.categories)

    @property
    def stats(self) -> JsonObject:
        """What it has counted and done, for people (F8)."""
        state = self._state
        return {
            "profile": self._profile,
            "base": BASES[self._profile],
            "threshold": self._threshold(),
            "turns": state.turns,
            "calls": state.calls,
            "successes": state.successes,
            "errors": state.errors,
            "duplicates": state.duplicates,
            "stale": state.stale,
            "polls": state.polls,
            "category": self.kind,
            "microReflected": state.micro,
            "advised": state.advised,
            "synthesised": state.reason is not None,
            "reason": state.reason,
        }

    def observe(
        self, tool_calls: Sequence[ToolUse], tool_results: Sequence[ToolOutcome]
    ) -> ReflectionAction:
        """What to do after a turn that did not end the investigation.

        Once tools were taken away, each further turn that comes here has given no answer, whether
        it asked for calls or said nothing (F6).

        Args:
            tool_calls: what the model asked for, in its order.
            tool_results: their results, in the same order.

        Raises:
            ValueError: calls and results do not belong together.
        """
        pairs = list(zip(tool_calls, tool_results, strict=True))
        for use, outcome in pairs:
            if use.id != outcome.call_id:
                raise ValueError(f"the result of {outcome.call_id!r} is not that of {use.id!r}")
        if self._state.reason is not None:
            return self._unanswered()
        self._update(turns=self._state.turns + 1)
        repeated = [use for use, outcome in pairs if self._take(use, outcome)]
        return self._reflect(repeated) if self._profile != "off" else self._action("none")

    def _unanswered(self) -> ReflectionAction:
        self._update(turns=self._state.turns + 1, tries=self._state.tries + 1)
        if self._state.tries < TRIES:
            return self._action("retry", _RETRY, self._state.reason, strip=True)
        return self._action("digest", None, "no_answer", strip=True, terminate=True)

    def _take(self, use: ToolUse, outcome: ToolOutcome) -> bool:
        """Count a call and keep its result; whether the same call was made before."""
        state, signature = self._state, use.signature[:_SHORT]
        seen = signature in state.seen
        repeated = seen and not use.poll
        categories = {**state.categories, use.category: state.categories.get(use.category, 0) + 1}
        self._update(
            calls=state.calls + 1,
            successes=state.successes + outcome.succeeded,
            errors=state.errors + outcome.counts_as_error,
            duplicates=state.duplicates + repeated,
            polls=state.polls + (use.poll and outcome.succeeded),
            stale=self._stale(use, outcome),
            categories=categories,
            seen=state.seen if seen else [*state.seen, signature],
            evidence=self._with(use, outcome),
        )
        return repeated

    def _stale(self, use: ToolUse, outcome: ToolOutcome) -> int:
        if use.category != "search" or use.poll or not outcome.succeeded:
            return self._state.stale
        stale = is_stale(outcome.text, (one.text for one in self._state.evidence))
        return self._state.stale + 1 if stale else 0

    def _with(self, use: ToolUse, outcome: ToolOutcome) -> list[GatheredEvidence]:
        """The evidence and this result; what was not run is none."""
        if not outcome.succeeded and not outcome.counts_as_error:
            return self._state.evidence
        number = call_number(use.id) or self._state.calls + 1
        return synthesis.collect(self._state.evidence, use, outcome, number, self._state.turns)

    def _reflect(self, repeated: Sequence[ToolUse]) -> ReflectionAction:
        reason = self._due()
        if reason is not None and self._profile != "execution":
            self._update(reason=reason)
            return self._action("synthesis", self._synthesis(reason), reason, strip=True)
        kind, said = self._hints(repeated)
        if reason is not None and not self._state.advised:
            self._update(advised=True)
            kind, said = "advice", [*said, self._advice(reason)]
        elif self._micro_due():
            self._update(micro=True)
            kind, said = "micro", [*said, _MICRO.format(used=self._gathered, budget=self._budget())]
        return self._action(kind, "\n\n".join(said) or None)

    def _due(self) -> Reason | None:
        """Why it is time to answer; None: it is not."""
        state = self._state
        if self._gathered >= self._threshold():
            return "threshold"
        if state.successes == 0 and state.errors >= MAX_ERRORS:
            return "max_errors"
        return "no_novelty" if state.stale >= MAX_STALE else None

    def _threshold(self) -> int:
        """How many successful calls are enough: each error makes it one less (F3)."""
        return max(1, BASES[self._profile] - self._state.errors)

    @property
    def _gathered(self) -> int:
        """How many successful calls have found something out; waiting is none of them."""
        return self._state.successes - self._state.polls

    def _budget(self) -> int | None:
        """How many calls there are until the tools are taken away; None: nobody knows (F4)."""
        if self._profile == "execution":
            return self._limit
        return min(self._threshold(), self._limit or self._threshold())

    def _micro_due(self) -> bool:
        """Whether half of the calls are used up, and the model was not asked yet (F4)."""
        budget = self._budget()
        if self._state.micro or budget is None:
            return False
        return (budget + 1) // 2 <= self._gathered < budget

    def _hints(self, repeated: Sequence[ToolUse]) -> tuple[Kind, list[str]]:
        kind: Kind = "none"
        said = []
        if repeated:
            names = ", ".join(dict.fromkeys(use.name for use in repeated))
            kind, said = "duplicate", [_DUPLICATE.format(names=names)]
        elif self._state.stale == STALE_WARNING:
            kind, said = "stale", [_STALE]
        return kind, said

    def _synthesis(self, reason: Reason) -> str:
        state = self._state
        why = _WHY[reason].format(**self._numbers())
        return synthesis.prompt(state.evidence, self.kind, why, stuck=reason == "max_errors")

    def _advice(self, reason: Reason) -> str:
        if reason == "max_errors":
            return _STUCK.format(**self._numbers())
        instruction = synthesis.instruction(self.kind)
        return _ADVICE.format(instruction=instruction, **self._numbers())

    def _numbers(self) -> dict[str, int]:
        state = self._state
        return {"successes": state.successes, "errors": state.errors, "stale": state.stale}

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
