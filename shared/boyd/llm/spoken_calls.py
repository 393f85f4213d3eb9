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
from dataclasses import dataclass
from typing import Any

from boyd.models import JsonObject
from boyd.values import TooManyValues, check_values

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
