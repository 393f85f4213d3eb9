"""Detects an investigation that repeats itself.

Every check looks at the calls since the last message of the user, in order, across turns and within
one; text between the calls makes no difference. A call is checked before it is made, and a call in
violation is never made. Nothing is remembered here. The patterns:

    identical       the third identical call in a row
    repeated error  the fourth identical call in a row that fails with the same error
    poll            the fifth identical call of a polling tool, after four identical results
    cycle           the last call of a third round of 2 to 4 calls with unchanged results
    empty           the second turn in a row without a call and without substance
    monologue       the third turn in a row without a call and with the same text
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeVar

from boyd.llm.messages import Turn, digest
from boyd.llm.reply_text import is_empty, strip_reasoning
from boyd.models.investigation import Ending

IDENTICAL = 3
ERRORS = 4
POLLS = 4
PERIODS = (2, 3, 4)
EMPTY = 2
MONOLOGUE = 3

Pattern = Literal["identical", "repeated_error", "poll", "cycle", "empty", "monologue"]
_QUOTED = 300
_T = TypeVar("_T")


@dataclass(frozen=True)
class PlannedCall:
    """A call that the model asks for; `runnable` unless it is unreadable or names no tool."""

    name: str
    signature: str
    poll: bool = False
    runnable: bool = True


@dataclass(frozen=True)
class ExecutedCall:
    """A call with its result.

    Attributes:
        result: a digest of the result, without times, durations and ids.
        error: the error as the model saw it.
        poll: the tool is meant to be called repeatedly.
        runnable: the call could be made.
    """

    name: str
    signature: str
    result: str
    error: str | None = None
    poll: bool = False
    runnable: bool = True


@dataclass(frozen=True)
class Violation:
    """The reason to end an investigation.

    Attributes:
        period: calls or turns in one round.
        indexes: positions of what was compared; a call not made yet comes last.
        signatures: the calls of one round.
        sentence: explanation for people.
    """

    ending: Ending
    pattern: Pattern
    period: int
    indexes: tuple[int, ...]
    signatures: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class LoopWarning:
    """A message to the model before a violation."""

    pattern: Pattern
    text: str


def check_call(history: Sequence[ExecutedCall], call: PlannedCall) -> Violation | None:
    """The violation that *call* would be after *history*."""
    repeats = bool(history) and history[-1].signature == call.signature
    return (_repetition(history, call) if repeats else None) or _cycle(history, call)


def warn_of_calls(history: Sequence[ExecutedCall], new: int = 1) -> LoopWarning | None:
    """The gravest warning after the last *new* calls of *history*, of equal ones the latest."""
    ends = range(len(history), max(0, len(history) - new), -1)
    warnings = [warning for end in ends for warning in _warnings(history[:end])]
    gravest = ("repeated_error", "identical", "poll", "cycle")
    return min(warnings, key=lambda warning: gravest.index(warning.pattern), default=None)


def check_turns(turns: Sequence[Turn]) -> Violation | None:
    """The violation in the last of *turns*."""
    empty = _trailing_empty(turns)
    if empty >= EMPTY:
        sentence = f"The model gave {_in_words(empty)} empty turns in a row."
        return Violation("empty_turns", "empty", 1, _last(len(turns), empty), (), sentence)
    same = _trailing_same(turns)
    if same >= MONOLOGUE:
        sentence = f"The model said the same thing {_in_words(same)} times and called no tool."
        return Violation("stuck_cycle", "monologue", 1, _last(len(turns), same), (), sentence)
    return None


def warn_of_turns(turns: Sequence[Turn]) -> LoopWarning | None:
    """The warning after the last of *turns*."""
    if _trailing_empty(turns) == EMPTY - 1:
        return LoopWarning("empty", "Your last turn was empty. Answer in words, or call a tool.")
    if _trailing_same(turns) == MONOLOGUE - 1:
        text = "You have said the same thing twice. Call a tool, or give your final answer."
        return LoopWarning("monologue", text)
    return None


def result_digest(text: str) -> str:
    """The SHA-256 of a result, ignoring whitespace."""
    return digest(" ".join(text.split()))


def _repetition(history: Sequence[ExecutedCall], call: PlannedCall) -> Violation | None:
    """The violation by a *call* that equals the last one."""
    run = _run(history, _is_same_error)
    if run >= ERRORS - 1:
        repetition = f"The model asked {_in_words(run + 1)} times in a row for the same call"
        sentence = f"{repetition} of {call.name}, which fails: {_quote_error(history[-1])}"
        return _violation("repeated_error", "repeated_error", [*history, call], run + 1, sentence)
    run = _run(history, _is_same_call)
    if run >= IDENTICAL - 1 and call.runnable and not call.poll:
        repetition = f"The model asked {_in_words(run + 1)} times in a row for the same call"
        sentence = f"{repetition} of {call.name}; the last one was not executed."
        return _violation("doom_loop", "identical", [*history, call], run + 1, sentence)
    run = _run(history, _is_same_result)
    if run >= POLLS and call.poll:
        returned = f"{call.name} returned the same result {_in_words(run)} times in a row"
        sentence = f"{returned}; it was not called again."
        return _violation("doom_loop", "poll", [*history, call], run + 1, sentence)
    return None


def _cycle(history: Sequence[ExecutedCall], call: PlannedCall) -> Violation | None:
    for period in PERIODS:
        compared = 3 * period - 1
        if len(history) < compared or history[-period].signature != call.signature:
            continue
        if _matches(history, period) >= 2 * period - 1 and _varies(history, period):
            names = ", ".join(executed.name for executed in history[-period:])
            sentence = (
                f"The model made the same {_in_words(period)} calls three times with the "
                f"same results ({names}); the last one was not executed."
            )
            return _violation(
                "stuck_cycle", "cycle", [*history, call], compared + 1, sentence, period
            )
    return None


def _warnings(history: Sequence[ExecutedCall]) -> Iterator[LoopWarning]:
    last = history[-1]
    if _run(history, _is_same_error) == ERRORS - 1:
        yield LoopWarning(
            "repeated_error",
            f"This call of {last.name} has failed {_in_words(ERRORS - 1)} times in the same way: "
            f"{_quote_error(last)} If you send it again unchanged, the investigation ends. "
            "Change the call or try another way.",
        )
    if _run(history, _is_same_call) == IDENTICAL - 1 and last.runnable and not last.poll:
        yield LoopWarning(
            "identical",
            f"You have made the same call of {last.name} twice in a row. A third one will not be "
            "executed and ends the investigation. Try something else, or answer with what you "
            "have.",
        )
    if _run(history, _is_same_result) == POLLS - 1 and last.poll:
        yield LoopWarning(
            "poll",
            f"{last.name} has given the same result {_in_words(POLLS - 1)} times. "
            "Wait longer, look elsewhere, or answer with what you have.",
        )
    for period in PERIODS:
        if _matches(history, period) == period and _varies(history, period):
            number = _in_words(period)
            yield LoopWarning(
                "cycle",
                f"Your last {number} calls repeat the {number} before them, with the same "
                "results. A third round ends the investigation. Try something else, or answer "
                "with what you have.",
            )


def _run(
    history: Sequence[ExecutedCall], same: Callable[[ExecutedCall, ExecutedCall], bool]
) -> int:
    return _count_while(lambda executed: same(executed, history[-1]), reversed(history))


def _is_same_call(first: ExecutedCall, second: ExecutedCall) -> bool:
    return first.signature == second.signature


def _is_same_result(first: ExecutedCall, second: ExecutedCall) -> bool:
    return _is_same_call(first, second) and first.result == second.result


def _is_same_error(first: ExecutedCall, second: ExecutedCall) -> bool:
    if first.error is None or second.error is None:
        return False
    return _is_same_call(first, second) and _error_kind(first.error) == _error_kind(second.error)


def _error_kind(error: str) -> str:
    """The first line of an error, with numbers masked."""
    return re.sub(r"\d+", "#", error.strip().partition("\n")[0])[:_QUOTED]


def _matches(history: Sequence[ExecutedCall], period: int) -> int:
    """Calls at the end that equal, with their results, the call *period* places before."""
    pairs = zip(reversed(history), reversed(history[:-period]), strict=False)
    return _count_while(lambda pair: _is_same_result(*pair), pairs)


def _varies(history: Sequence[ExecutedCall], period: int) -> bool:
    """Report whether a round has different calls; a single repeated call is another pattern."""
    return len({executed.signature for executed in history[-period:]}) > 1


def _trailing_empty(turns: Sequence[Turn]) -> int:
    return _count_while(is_empty, reversed(turns))


def _trailing_same(turns: Sequence[Turn]) -> int:
    def is_same(turn: Turn) -> bool:
        return not turn.calls and not is_empty(turn) and _plain(turn) == _plain(turns[-1])

    return _count_while(is_same, reversed(turns))


def _plain(turn: Turn) -> str:
    return " ".join(strip_reasoning(turn.text).casefold().split())


def _count_while(condition: Callable[[_T], bool], items: Iterable[_T]) -> int:
    """Items before the first one that fails *condition*."""
    return sum(1 for _ in takewhile(condition, items))


def _violation(
    ending: Ending,
    pattern: Pattern,
    calls: Sequence[ExecutedCall | PlannedCall],
    compared: int,
    sentence: str,
    period: int = 1,
) -> Violation:
    signatures = tuple(call.signature for call in calls[-period:])
    return Violation(ending, pattern, period, _last(len(calls), compared), signatures, sentence)


def _last(total: int, number: int) -> tuple[int, ...]:
    return tuple(range(total - number, total))


def _quote_error(call: ExecutedCall) -> str:
    error = " ".join((call.error or "").split())
    return f"“{error[:_QUOTED]}…”" if len(error) > _QUOTED else f"“{error}”."


def _in_words(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[number] if number < len(words) else str(number)
