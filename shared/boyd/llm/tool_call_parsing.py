"""Finds tool calls that a server has passed on as text, because it does not know its model's way.

Recognised are `<tool_call>{...}</tool_call>` (Hermes, Qwen), `[TOOL_CALLS]` (Mistral),
`<|python_tag|>{...}` (Llama), and a text that is nothing but JSON or one block of it. A text in
which somebody writes about calls is none: what stands in code does not count, and nothing may
follow. Everything is found in linear time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from boyd.json_limits import TooManyValues, check_values
from boyd.llm.messages import CallFragment
from boyd.models import JsonObject, unstorable
from boyd.models.investigation import ToolCall


def parsed(arguments: str) -> dict[str, Any] | None:
    """The object that *arguments* spell; None when they spell none, or one that cannot be kept."""
    try:
        check_values(arguments)
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and unstorable(value) is None else None


def sendable(arguments: str) -> str:
    """What to send back: servers refuse a conversation with arguments that are no object."""
    if parsed(arguments) is not None:
        return arguments
    return json.dumps({"unparseable": arguments}, ensure_ascii=False)


_HALVES = re.compile("[\ud800-\udfff]")


def rejoined(text: str) -> str:
    """*text* with the halves that fit put together; a lone one stays."""
    if not _HALVES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def storable(text: str) -> str:
    """*text* with halves put together, and lone ones replaced: nothing could store them."""
    return _HALVES.sub("\ufffd", rejoined(text))


def ends_in_half(text: str) -> bool:
    """Whether *text* may end in the middle of a character."""
    return "\ud800" <= text[-1:] <= "\udbff"


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
        # Once and for all: a name that is repeated is not a piece of it.
        self.name = self.name or fragment.name or ""
        text = _text(fragment)
        if text:
            self.parts.append(text)
        if text.strip():
            # Only a brace can complete an object; parsing at every piece would take quadratic time.
            self.is_complete = text.rstrip().endswith("}") and parsed(self.arguments) is not None

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    @property
    def is_void(self) -> bool:
        return not (self.id or self.name or self.arguments.strip())


class Fragments:
    """The calls of one turn, in the order in which they began."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []

    def add(self, fragment: CallFragment) -> None:
        """Take the next piece."""
        draft = self._target(fragment)
        if draft is None:
            draft = _Draft(fragment.index)
            self._drafts.append(draft)
        draft.grow(fragment)

    def calls(self, taken: Collection[str] = (), prefix: str = "call") -> list[ToolCall]:
        """The calls as they are now; no arguments mean `{}`.

        A call without an id, or with one that another call has, is given one.

        Args:
            taken: ids that calls of earlier turns have.
            prefix: what given ids begin with.
        """
        used = set(taken)
        given = (f"{prefix}_{number}" for number in count(1))
        calls = []
        for draft in self._drafts:
            if not draft.is_void:
                id_ = _unused(storable(draft.id or ""), used, given)
                used.add(id_)
                arguments = draft.arguments if draft.arguments.strip() else "{}"
                name, arguments = storable(draft.name), storable(arguments)
                calls.append(ToolCall(id=id_, name=name, arguments=arguments))
        return calls

    @property
    def are_complete(self) -> bool:
        """Whether every call has the arguments that it began with: none is a half."""
        return all(draft.is_complete for draft in self._drafts if not draft.is_void)

    @property
    def size(self) -> int:
        """How many characters of names and arguments there are."""
        return sum(len(draft.name) + len(draft.arguments) for draft in self._drafts)

    def _target(self, fragment: CallFragment) -> _Draft | None:
        """The call that a piece belongs to; None: it begins a new one."""
        candidate = self._candidate(fragment)
        if candidate is None or _begins_anew(fragment, candidate):
            return None
        return candidate

    def _candidate(self, fragment: CallFragment) -> _Draft | None:
        index, id_ = fragment.index, fragment.id
        for draft in reversed(self._drafts):
            # Numbers of their own outweigh an id: some servers give every call the same one.
            if id_ and draft.id == id_ and (index is None or draft.index in (None, index)):
                return draft
        for draft in reversed(self._drafts):
            if index is not None and draft.index == index:
                return draft
        can_begin = bool(id_ or fragment.name)
        if not self._drafts or (index is not None and can_begin):
            return None
        return self._drafts[-1]


def _begins_anew(fragment: CallFragment, draft: _Draft) -> bool:
    """Whether a piece is the first of another call than the one it seems to belong to."""
    has_other_name = bool(fragment.name and draft.name and fragment.name != draft.name)
    if has_other_name:
        return True
    if fragment.id and draft.id and fragment.id != draft.id:
        # A piece of half a call that names nothing is its next one, from a server that makes up an
        # id for each piece; anything else with another id is another call.
        return bool(fragment.name) or draft.is_complete or not draft.name
    return bool(fragment.name and draft.is_complete and _text(fragment).strip())


def _text(fragment: CallFragment) -> str:
    """The arguments in a piece as text; an empty object says no more than none."""
    if isinstance(fragment.arguments, dict):
        return json.dumps(fragment.arguments, ensure_ascii=False) if fragment.arguments else ""
    return fragment.arguments or ""


def _unused(wanted: str, used: Collection[str], given: Iterator[str]) -> str:
    if wanted and wanted not in used:
        return wanted
    return next(id_ for id_ in given if id_ not in used)


#: What begins a call in a text; the calls behind the second three are not read.
_MARKERS = (
    *("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"),
    *("<function=", "<|tool_calls_section_begin|>", "<\uff5ctool\u2581calls\u2581begin\uff5c>"),
)
_MARKER = re.compile("|".join(map(re.escape, _MARKERS)))
_CODE = re.compile(r"^[ \t]{0,3}(```|~~~)[^\n]*$|`[^`\n]{1,2000}`", re.MULTILINE)
_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?[ \t]*\n([^`]+)```")
#: What may stand between two calls, and behind the last.
_BETWEEN = re.compile(r"(?:\s|;|,|</tool_call>|<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>)*+")
_AFTER = re.compile(r"(?:\s|</tool_call>|</s>|<\|e(?:om|ot)_id\|>|<\|im_end\|>)*+\Z")
#: A name in front of its arguments, as Mistral writes it.
_NAMED = re.compile(r"([A-Za-z0-9_-]{1,64})(?:\[CALL_ID\][A-Za-z0-9]{1,64})?(?:\[ARGS\])?\s*(?=\{)")
#: What a call has besides its name and its arguments.
_BESIDES = frozenset({"id", "type"})
_ARGUMENTS = ("arguments", "parameters")

_decoder = json.JSONDecoder()


@dataclass(frozen=True)
class SpokenCalls:
    """Calls in a text.

    Attributes:
        before: what the model says in front of them.
        calls: the names and arguments; empty when they cannot be read for certain.
        marked: whether a marker of a model's own says that they are calls.
    """

    before: str
    calls: tuple[tuple[str, JsonObject], ...] = ()
    marked: bool = True


def spoken_calls(text: str, known: Collection[str]) -> SpokenCalls | None:
    """The calls of *known* tools that *text* ends with; None: it is a text like any other."""
    marker = _first_marker(text)
    if marker is None:
        return _bare(text, known)
    before = text[: marker.start()]
    found = _sequence(text, marker.end(), known)
    at_line_start = not before.rpartition("\n")[2].strip()
    if found and at_line_start:
        return SpokenCalls(before.rstrip(), tuple(found))
    # In the middle of a sentence that goes on, somebody writes about a call.
    return SpokenCalls(before.rstrip()) if at_line_start or found else None


def _first_marker(text: str) -> re.Match[str] | None:
    """The first marker that does not stand in code."""
    code = _code(text)
    stop = next(code, None)
    for marker in _MARKER.finditer(text):
        while stop is not None and stop[1] <= marker.start():
            stop = next(code, None)
        if stop is None or marker.start() < stop[0]:
            return marker
    return None


def _code(text: str) -> Iterator[tuple[int, int]]:
    """Where code is quoted: between fences, an open one to the end, and between backticks."""
    fence, mark = None, ""
    for found in _CODE.finditer(text):
        if fence is None and not found[1]:
            yield found.span()
        elif fence is None:
            fence, mark = found.start(), found[1]
        elif found[1] == mark:
            yield fence, found.end()
            fence = None
    if fence is not None:
        yield fence, len(text)


def _bare(text: str, known: Collection[str]) -> SpokenCalls | None:
    """Calls that are all of *text*, or all of a block of code at its end."""
    fence = text.find("```")
    block = _FENCED.fullmatch(text[fence:].rstrip()) if fence >= 0 else None
    body = block[1] if block else text
    if body.lstrip()[:1] not in ("{", "["):
        return None
    found = _sequence(body, 0, known)
    before = text[:fence].strip() if block else ""
    if not found:
        return None
    return SpokenCalls(before, () if before else tuple(found), marked=False)


def _sequence(text: str, start: int, known: Collection[str]) -> list[tuple[str, JsonObject]]:
    """The calls from *start* to the end; empty when anything there is none."""
    found: list[tuple[str, JsonObject]] = []
    at = start
    try:
        check_values(text[start:])
    except TooManyValues:
        return []
    while not _AFTER.match(text, at):
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        one, at = _next(text, at)
        if not one or any(call is None or call[0] not in known for call in one):
            return []
        found += [call for call in one if call is not None]
    return found


def _next(text: str, at: int) -> tuple[list[tuple[str, JsonObject] | None], int]:
    """What stands at *at*, as calls, and where it ends; nothing when it is no JSON."""
    named = _NAMED.match(text, at)
    try:
        value, end = _decoder.raw_decode(text, named.end() if named else at)
    except (ValueError, RecursionError):
        return [], at
    if named:
        return [(named[1], value) if isinstance(value, dict) else None], end
    return [_call(one) for one in (value if isinstance(value, list) else [value])], end


def _call(value: Any) -> tuple[str, JsonObject] | None:
    """A call as JSON has it: a name and arguments, and nothing that a call has not."""
    if not isinstance(value, dict):
        return None
    given = [key for key in _ARGUMENTS if key in value]
    others = set(value) - {"name", *given} - _BESIDES
    if len(given) != 1 or others or not isinstance(value.get("name"), str):
        return None
    arguments = value[given[0]]
    if isinstance(arguments, str):
        arguments = _object(arguments)
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _object(text: str) -> Any:
    try:
        check_values(text)
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
