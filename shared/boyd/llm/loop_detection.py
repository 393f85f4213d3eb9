"""Finds out when an investigation goes round in circles, from what it has done so far (T5).

Nothing here remembers anything. Whoever asks gives the calls since the last message of the user, in
the order in which they were made, across turns and within one; what the model said around them
makes no difference. A call is checked before it is made: the one that trips a guard never is.

The guards, with what they compare:

    identical       the call: the third in a row is not made
    repeated error  the call and its error, where the call cannot be made at all: the fourth
    poll            the call and its result, where asking again is how a tool is used: the fifth,
                    after four results that are the same
    cycle           the last 2 to 4 calls: the last call of a third round, if no result has changed
    empty           turns without a call and without substance: the second
    monologue       turns without a call and with the same text: the third
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from boyd.llm.messages import Turn
from boyd.llm.reply_text import is_empty, spoken
from boyd.models.investigation import Ending

IDENTICAL = 3
ERRORS = 4
POLLS = 4
PERIODS = (2, 3, 4)
EMPTY = 2
MONOLOGUE = 3

Pattern = Literal["identical", "repeated_error", "poll", "cycle", "empty", "monologue"]
_QUOTED = 300


@dataclass(frozen=True)
class Planned:
    """A call that the model asks for; `runnable` unless it cannot be read or has no such tool."""

    name: str
    signature: str
    poll: bool = False
    runnable: bool = True


@dataclass(frozen=True)
class Executed:
    """A call that has its result.

    Attributes:
        name: of the tool.
        signature: of the call.
        result: what came of it, or a digest of that, without times, durations and ids.
        error: what was wrong, as the model was told; None: nothing.
        poll: whether asking again is how the tool is used.
        runnable: whether the call could be made at all.
    """

    name: str
    signature: str
    result: str
    error: str | None = None
    poll: bool = False
    runnable: bool = True


@dataclass(frozen=True)
class Violation:
    """Why an investigation must not go on like this.

    Attributes:
        ending: what it ends with.
        pattern: which guard it was.
        period: how many calls or turns make one round.
        indexes: of what was compared, in what was given; a call not made yet comes after all.
        signatures: of one round of the calls.
        sentence: the same for people.
    """

    ending: Ending
    pattern: Pattern
    period: int
    indexes: tuple[int, ...]
    signatures: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class LoopWarning:
    """What the model is told before a guard trips."""

    pattern: Pattern
    text: str


def check(history: Sequence[Executed], call: Planned) -> Violation | None:
    """Why *call* must not be made after *history*; None: it may be."""
    return (
        _repeated_error(history, call)
        or _identical(history, call)
        or _unchanged_poll(history, call)
        or _cycle(history, call)
    )


def warning(history: Sequence[Executed], new: int = 1) -> LoopWarning | None:
    """What to tell the model after the last *new* calls of *history*; the gravest thing first."""
    for nudge in (_nudge_error, _nudge_identical, _nudge_poll, _nudge_cycle):
        for end in range(len(history), max(0, len(history) - new), -1):
            found = nudge(history[:end])
            if found:
                return found
    return None


def check_turns(turns: Sequence[Turn]) -> Violation | None:
    """Why there must be no turn after *turns*; None: there may be."""
    empty = _trailing_empty(turns)
    if empty >= EMPTY:
        what = f"The model gave {_number(empty)} empty turns in a row."
        return Violation("empty_turns", "empty", 1, _last(len(turns), empty), (), what)
    same = _trailing_same(turns)
    if same >= MONOLOGUE:
        what = f"The model said the same thing {_number(same)} times and called no tool."
        return Violation("stuck_cycle", "monologue", 1, _last(len(turns), same), (), what)
    return None


def turn_warning(turns: Sequence[Turn]) -> LoopWarning | None:
    """What to tell the model after the last of *turns*."""
    if _trailing_empty(turns) == EMPTY - 1:
        return LoopWarning("empty", "Your last turn was empty. Answer in words, or call a tool.")
    if _trailing_same(turns) == MONOLOGUE - 1:
        text = "You have said the same thing twice. Call a tool, or give your final answer."
        return LoopWarning("monologue", text)
    return None


def result_digest(text: str) -> str:
    """A result as `Executed` compares it: short, and the same however its blanks fall."""
    return hashlib.sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).hexdigest()


def _repeated_error(history: Sequence[Executed], call: Planned) -> Violation | None:
    run = _error_run(history)
    if run < ERRORS - 1 or history[-1].signature != call.signature:
        return None
    what = (
        f"The model asked {_number(run + 1)} times in a row for the same call of {call.name}, "
        f"which fails: {_quoted(history[-1])}"
    )
    return _trip("repeated_error", "repeated_error", history, call, run, what)


def _identical(history: Sequence[Executed], call: Planned) -> Violation | None:
    if call.poll or not call.runnable:
        return None
    run = _same_run(history)
    if run < IDENTICAL - 1 or history[-1].signature != call.signature:
        return None
    what = (
        f"The model asked {_number(run + 1)} times in a row for the same call of {call.name}; "
        "the last one was not made."
    )
    return _trip("doom_loop", "identical", history, call, run, what)


def _unchanged_poll(history: Sequence[Executed], call: Planned) -> Violation | None:
    run = _unchanged_run(history)
    if not call.poll or run < POLLS or history[-1].signature != call.signature:
        return None
    what = (
        f"{call.name} gave the same result {_number(run)} times in a row; it was not asked again."
    )
    return _trip("doom_loop", "poll", history, call, run, what)


def _cycle(history: Sequence[Executed], call: Planned) -> Violation | None:
    for period in PERIODS:
        compared = 3 * period - 1
        if len(history) < compared or history[-period].signature != call.signature:
            continue
        if _matches(history, period) >= 2 * period - 1 and _varies(history, period):
            names = ", ".join(one.name for one in history[-period:])
            what = (
                f"The model went through the same {_number(period)} calls three times with the "
                f"same results ({names}); the last one was not made."
            )
            return _trip("stuck_cycle", "cycle", history, call, compared, what, period)
    return None


def _nudge_error(history: Sequence[Executed]) -> LoopWarning | None:
    if _error_run(history) != ERRORS - 1:
        return None
    last = history[-1]
    text = (
        f"This call of {last.name} has failed {_number(ERRORS - 1)} times in the same way: "
        f"{_quoted(last)} If you send it again unchanged, the investigation ends. "
        "Change the call or go another way."
    )
    return LoopWarning("repeated_error", text)


def _nudge_identical(history: Sequence[Executed]) -> LoopWarning | None:
    if _same_run(history) != IDENTICAL - 1 or history[-1].poll or not history[-1].runnable:
        return None
    text = (
        f"You have made the same call of {history[-1].name} twice in a row. A third will not be "
        "made and ends the investigation. Try something else, or answer with what you have."
    )
    return LoopWarning("identical", text)


def _nudge_poll(history: Sequence[Executed]) -> LoopWarning | None:
    if not history[-1].poll or _unchanged_run(history) != POLLS - 1:
        return None
    text = (
        f"{history[-1].name} has given the same result {_number(POLLS - 1)} times. "
        "Wait longer, look elsewhere, or answer with what you have."
    )
    return LoopWarning("poll", text)


def _nudge_cycle(history: Sequence[Executed]) -> LoopWarning | None:
    for period in PERIODS:
        if _matches(history, period) == period and _varies(history, period):
            text = (
                f"Your last {_number(period)} calls repeat the {_number(period)} before them, with "
                "the same results. A third round ends the investigation. Try something else, or "
                "answer with what you have."
            )
            return LoopWarning("cycle", text)
    return None


def _same_run(history: Sequence[Executed]) -> int:
    """How many of the last calls are the same call."""
    return _run(history, lambda one, last: one.signature == last.signature)


def _unchanged_run(history: Sequence[Executed]) -> int:
    """How many of the last calls are the same call with the same result."""
    return _run(history, _alike)


def _error_run(history: Sequence[Executed]) -> int:
    """How many of the last calls are the same call with the same kind of error."""
    return _run(history, _fail_alike)


def _run(history: Sequence[Executed], same: Callable[[Executed, Executed], bool]) -> int:
    run = 0
    for one in reversed(history):
        if not same(one, history[-1]):
            break
        run += 1
    return run


def _alike(one: Executed, other: Executed) -> bool:
    return one.signature == other.signature and one.result == other.result


def _fail_alike(one: Executed, other: Executed) -> bool:
    if one.error is None or other.error is None:
        return False
    return one.signature == other.signature and _kind(one.error) == _kind(other.error)


def _kind(error: str) -> str:
    """An error without what differs from time to time: its first line, numbers left out."""
    return re.sub(r"\d+", "#", error.strip().partition("\n")[0])[:_QUOTED]


def _matches(history: Sequence[Executed], period: int) -> int:
    """How many of the last calls equal, with their results, the one *period* calls before."""
    found = 0
    while found + period < len(history):
        if not _alike(history[-1 - found], history[-1 - found - period]):
            break
        found += 1
    return found


def _varies(history: Sequence[Executed], period: int) -> bool:
    """Whether a round has different calls; one call over and over is for the other guards."""
    return len({one.signature for one in history[-period:]}) > 1


def _trailing_empty(turns: Sequence[Turn]) -> int:
    found = 0
    for turn in reversed(turns):
        if not is_empty(turn):
            break
        found += 1
    return found


def _trailing_same(turns: Sequence[Turn]) -> int:
    found = 0
    for turn in reversed(turns):
        if turn.calls or is_empty(turn) or _plain(turn) != _plain(turns[-1]):
            break
        found += 1
    return found


def _plain(turn: Turn) -> str:
    return " ".join(spoken(turn.text).casefold().split())


def _trip(
    ending: Ending,
    pattern: Pattern,
    history: Sequence[Executed],
    call: Planned,
    run: int,
    sentence: str,
    period: int = 1,
) -> Violation:
    compared = [one.signature for one in history[-run:]] + [call.signature]
    indexes = _last(len(history) + 1, run + 1)
    return Violation(ending, pattern, period, indexes, tuple(compared[-period:]), sentence)


def _last(total: int, number: int) -> tuple[int, ...]:
    return tuple(range(total - number, total))


def _quoted(call: Executed) -> str:
    said = " ".join((call.error or "").split())
    return f"“{said[:_QUOTED]}…”" if len(said) > _QUOTED else f"“{said}”."


def _number(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[number] if number < len(words) else str(number)
