"""Assembles a turn of the model from the events of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, Protocol

from boyd.llm.messages import (
    CallFragment,
    ReasoningDelta,
    StreamEnded,
    StreamEvent,
    TextDelta,
    Turn,
    TurnFinished,
    UsageReport,
    parse_arguments,
)
from boyd.llm.model_errors import Fault
from boyd.models.investigation import Finish, ToolCall, Usage
from boyd.text.formatting import rejoin_surrogates, storable

#: Characters per token, roughly, for servers that do not count them.
_PER_TOKEN = 4
#: Characters of one answer including its reasoning; a longer one would hold up other work.
MAX_TEXT = 1_000_000
_OPEN = ("<think>", "<thinking>")
_CLOSE = ("</think>", "</thinking>")
_TAG = re.compile(r"(?<!`)</?think(?:ing)?>")
_LONGEST_TAG = max(map(len, (*_OPEN, *_CLOSE)))


class Watch(Protocol):
    """Observer of a turn in progress."""

    def delta(self, kind: Literal["text", "reasoning"], text: str) -> None:
        """A piece has arrived."""

    def discard_deltas(self, reason: str) -> None:
        """The attempt has failed; its deltas no longer count."""

    def is_stopped(self) -> bool:
        """Report whether to give up the turn; called several times a second, so it is cheap."""


class TurnAccumulator:
    """Reports the events of a stream to a watch and builds the turn."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._parser = ThinkTagParser()
        self._fragments = CallFragments()
        self._finish: Finish | None = None
        self._received = 0
        self.used: Usage | None = None
        self.has_ended = False

    @property
    def is_complete(self) -> bool:
        """The server has said that this is all."""
        return self.has_ended or self._finish is not None

    def add(self, event: StreamEvent) -> None:
        """Add the next event; raises `Fault` if the answer exceeds `MAX_TEXT`."""
        if isinstance(event, TextDelta | ReasoningDelta):
            self._received += len(event.text)
            if self._received > MAX_TEXT:
                raise Fault(f"its text is longer than {MAX_TEXT} characters")
        match event:
            case TextDelta():
                self._show(self._parser.feed(event.text))
            case ReasoningDelta():
                self._show(self._parser.feed_reasoning(event.text))
            case CallFragment():
                self._fragments.add(event)
            case UsageReport():
                self.used = event.usage
            case TurnFinished():
                self._finish = event.reason
            case StreamEnded():
                self.has_ended = True

    def turn(self, *, earlier_ids: Collection[str], prefix: str, sent: int, requests: int) -> Turn:
        """Finish the turn.

        *earlier_ids* are those of earlier calls, and *prefix* begins the ids given to calls without
        one. *sent* counts characters, for servers that do not count tokens.
        """
        self._show(self._parser.end())
        calls = self._fragments.calls(earlier_ids, prefix)
        # Servers disagree on the name of an end with calls.
        finish: Finish = "calls" if calls else "stop"
        if self._finish in ("length", "filtered"):
            finish = self._finish
        if finish == "filtered" or (finish == "length" and not self._fragments.are_complete):
            calls = []
        return Turn(
            text=self._parser.text,
            reasoning=self._parser.reasoning,
            calls=calls,
            usage=self.used or self._estimate(sent),
            finish=finish,
            requests=requests,
        )

    def _estimate(self, sent: int) -> Usage:
        received = len(self._parser.text) + len(self._parser.reasoning) + self._fragments.size
        return Usage(
            input_tokens=_count_tokens(sent), output_tokens=_count_tokens(received), estimated=True
        )

    def _show(self, pieces: Iterable[TextDelta | ReasoningDelta]) -> None:
        for piece in pieces:
            self._watch.delta("text" if isinstance(piece, TextDelta) else "reasoning", piece.text)


class ThinkTagParser:
    """Separates answer and reasoning in a text that arrives in arbitrary pieces.

    Some servers put the opening tag into the prompt: everything before a lone closing tag is
    reasoning. Text already emitted cannot be taken back, but `text` does not contain it. A tag
    behind a backtick is quoted and does not count.
    """

    def __init__(self) -> None:
        self._held = ""
        self._previous = ""
        self._inside = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        #: Index in `_reasoning` of a thought that follows some answer; if never closed, it is text.
        self._reopened_at: int | None = None

    def feed(self, piece: str) -> Iterator[TextDelta | ReasoningDelta]:
        """Add a piece of text and yield what is already certain."""
        waiting = rejoin_surrogates(self._held + piece)
        cut = _holdback(waiting)
        self._held = waiting[cut:]
        yield from self._emit(waiting[:cut])

    def feed_reasoning(self, piece: str) -> Iterator[ReasoningDelta]:
        """Add a piece that the server itself marks as reasoning."""
        if piece:
            reasoning = storable(piece)
            self._reasoning.append(reasoning)
            yield ReasoningDelta(reasoning)

    def end(self) -> Iterator[TextDelta | ReasoningDelta]:
        """Yield the rest: a partial tag is plain text."""
        rest, self._held = self._held, ""
        yield from self._emit(rest)
        if self._inside and self._reopened_at is not None:
            self._text += self._reasoning[self._reopened_at :]
            del self._reasoning[self._reopened_at :]

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    def _emit(self, ready: str) -> Iterator[TextDelta | ReasoningDelta]:
        ready = storable(ready)
        at = 0
        # The previous character shows whether a tag at the start follows a backtick.
        context = self._previous + ready
        shift = len(self._previous)
        for tag in _TAG.finditer(context, shift):
            yield from self._add(ready[at : tag.start() - shift])
            at = tag.end() - shift
            self._switch(tag[0])
        yield from self._add(ready[at:])
        self._previous = context[-1:]

    def _switch(self, tag: str) -> None:
        opens = tag in _OPEN
        if opens and not self._inside:
            has_answer = any(piece.strip() for piece in self._text)
            self._reopened_at = len(self._reasoning) if has_answer else None
        elif not opens and not self._inside:
            self._reasoning += self._text
            self._text.clear()
        self._inside = opens

    def _add(self, piece: str) -> Iterator[TextDelta | ReasoningDelta]:
        if piece:
            (self._reasoning if self._inside else self._text).append(piece)
            yield ReasoningDelta(piece) if self._inside else TextDelta(piece)


def _holdback(text: str) -> int:
    """The index from which *text* may continue as a tag or as half a surrogate pair."""
    start = text.rfind("<", max(0, len(text) - _LONGEST_TAG + 1))
    partial = text[start:] if start >= 0 else ""
    if partial and any(tag.startswith(partial) and tag != partial for tag in (*_OPEN, *_CLOSE)):
        return start
    return len(text) - 1 if "\ud800" <= text[-1:] <= "\udbff" else len(text)


@dataclass
class _Draft:
    """A call that may still grow."""

    index: int | None
    id: str | None = None
    name: str = ""
    parts: list[str] = field(default_factory=list)
    is_complete: bool = False

    def grow(self, fragment: CallFragment) -> None:
        self.id = self.id or fragment.id or None
        # Set once: a repeated name is not a further piece of it.
        self.name = self.name or fragment.name or ""
        text = _arguments_of(fragment)
        if text:
            self.parts.append(text)
        if text.strip():
            # Only a brace can complete an object; parsing every piece would take quadratic time.
            ends = text.rstrip().endswith("}")
            self.is_complete = ends and parse_arguments(self.arguments) is not None

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    @property
    def is_void(self) -> bool:
        return not (self.id or self.name or self.arguments.strip())


class CallFragments:
    """The calls of one turn, in the order in which they began."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []

    def add(self, fragment: CallFragment) -> None:
        """Add the next piece to its call, or begin a new one."""
        draft = self._candidate(fragment)
        if draft is None or _begins_new_call(fragment, draft):
            draft = _Draft(fragment.index)
            self._drafts.append(draft)
        draft.grow(fragment)

    def calls(self, earlier_ids: Collection[str] = (), prefix: str = "call") -> list[ToolCall]:
        """The calls so far; missing arguments become `{}`.

        A call without an id of its own, also compared with the *earlier_ids* ones, gets an id that
        begins with *prefix*.
        """
        used = set(earlier_ids)
        generated = (f"{prefix}_{number}" for number in count(1))
        calls = []
        for draft in self._drafts:
            if draft.is_void:
                continue
            id_ = storable(draft.id or "")
            if not id_ or id_ in used:
                id_ = next(new for new in generated if new not in used)
            used.add(id_)
            arguments = draft.arguments if draft.arguments.strip() else "{}"
            calls.append(ToolCall(id=id_, name=storable(draft.name), arguments=storable(arguments)))
        return calls

    @property
    def are_complete(self) -> bool:
        """The arguments of every call are complete."""
        return all(draft.is_complete for draft in self._drafts if not draft.is_void)

    @property
    def size(self) -> int:
        """Characters of all names and arguments."""
        return sum(len(draft.name) + len(draft.arguments) for draft in self._drafts)

    def _candidate(self, fragment: CallFragment) -> _Draft | None:
        index, id_ = fragment.index, fragment.id
        for draft in reversed(self._drafts):
            # An index outweighs an id: some servers give every call the same id.
            if id_ and draft.id == id_ and (index is None or draft.index in (None, index)):
                return draft
        for draft in reversed(self._drafts):
            if index is not None and draft.index == index:
                return draft
        can_begin = bool(id_ or fragment.name)
        if not self._drafts or (index is not None and can_begin):
            return None
        return self._drafts[-1]


def _begins_new_call(fragment: CallFragment, draft: _Draft) -> bool:
    """Report whether a piece begins another call than *draft*."""
    if fragment.name and draft.name and fragment.name != draft.name:
        return True
    if fragment.id and draft.id and fragment.id != draft.id:
        # An unnamed piece continues an unfinished call: some servers make up an id for each piece.
        return bool(fragment.name) or draft.is_complete or not draft.name
    return bool(fragment.name and draft.is_complete and _arguments_of(fragment).strip())


def _arguments_of(fragment: CallFragment) -> str:
    """The arguments of a piece as text; an empty object counts as none."""
    if isinstance(fragment.arguments, dict):
        return json.dumps(fragment.arguments, ensure_ascii=False) if fragment.arguments else ""
    return fragment.arguments or ""


def _count_tokens(characters: int) -> int:
    return -(-characters // _PER_TOKEN)
