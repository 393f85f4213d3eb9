"""Reads the text of a reply: reasoning tags, empty answers, answer markers, calls as text.

Servers that do not know their model's format pass tool calls on as text. Recognised are
`<tool_call>{...}</tool_call>` (Hermes, Qwen), `[TOOL_CALLS]` (Mistral), `<|python_tag|>{...}`
(Llama), and a text that is nothing but JSON or one block of it. Calls quoted in code or followed
by prose do not count. Everything runs in linear time.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from boyd.llm.messages import Turn, parse_object
from boyd.models import JsonObject
from boyd.text.json_limits import TooManyValues, check_values

_THINKING = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)\s*>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[\w+.#-]*[ \t]*$", re.MULTILINE)
#: Letters and symbols that show nothing: the fillers of Hangul and the empty cell of Braille.
_BLANK = "\u115f\u1160\u3164\uffa0\u2800"
#: Decoration around the marker on its line: `**Final answer:**`, `> Final answer:`.
_BEFORE_MARKER, _AFTER_MARKER = r"(?:(?<![*_`#> ])[*_`#> ]+)?", r"[*_`]*"

#: Markers that begin a call; calls behind the second three are not parsed.
_CALL_MARKERS = (
    *("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"),
    *("<function=", "<|tool_calls_section_begin|>", "<\uff5ctool\u2581calls\u2581begin\uff5c>"),
)
_CALL_MARKER = re.compile("|".join(map(re.escape, _CALL_MARKERS)))
_CODE = re.compile(r"^[ \t]{0,3}(```|~~~)[^\n]*$|`[^`\n]{1,2000}`", re.MULTILINE)
_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?[ \t]*\n([^`]+)```")
#: Separators between two calls, and the end behind the last one.
_BETWEEN = re.compile(r"(?:\s|;|,|</tool_call>|<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>)*+")
_AFTER = re.compile(r"(?:\s|</tool_call>|</s>|<\|e(?:om|ot)_id\|>|<\|im_end\|>)*+\Z")
#: A name in front of its arguments, as Mistral writes it.
_NAMED = re.compile(r"([A-Za-z0-9_-]{1,64})(?:\[CALL_ID\][A-Za-z0-9]{1,64})?(?:\[ARGS\])?\s*(?=\{)")
#: Fields of a call besides its name and arguments.
_OTHER_FIELDS = frozenset({"id", "type"})
_ARGUMENTS = ("arguments", "parameters")
_decoder = json.JSONDecoder()


def is_substantive(text: str) -> bool:
    """Report whether *text* has more than reasoning, blanks, punctuation and empty code fences."""
    return any(map(_is_word_character, _FENCE.sub("", strip_reasoning(text))))


def is_empty(turn: Turn) -> bool:
    """Report whether a turn says nothing; a truncated or filtered one is another fault."""
    return not turn.calls and turn.finish in {"stop", "calls"} and not is_substantive(turn.text)


def strip_reasoning(text: str) -> str:
    """*text* without tagged reasoning.

    An unclosed tag opens reasoning up to the end. Text before a closing tag that nothing opened is
    reasoning too: some servers put the opening tag into the prompt.
    """
    visible: list[str] = []
    start, thinking, opened = 0, False, False
    for tag in _THINKING.finditer(text):
        closes = tag[1] == "/"
        if not thinking and (opened or not closes):
            visible.append(text[start : tag.start()])
        start, thinking, opened = tag.end(), not closes, True
    return "".join(visible) if thinking else "".join([*visible, text[start:]])


def _is_word_character(character: str) -> bool:
    if character in string.punctuation or character in _BLANK:
        return False
    return unicodedata.category(character)[0] not in "CMPZ"


def answer_after_marker(text: str, marker: str) -> str | None:
    """The text behind *marker*, ignoring case; None if the marker is missing.

    The first marker at the beginning of a line counts, else the first one; markers in reasoning do
    not. A marker with nothing behind it marks the text before it.
    """
    visible = strip_reasoning(text)
    pattern = f"{_BEFORE_MARKER}{re.escape(marker)}{_AFTER_MARKER}"
    at_line_start = re.search(f"^{pattern}", visible, re.IGNORECASE | re.MULTILINE)
    place = at_line_start or re.search(pattern, visible, re.IGNORECASE)
    if place is None:
        return None
    parts = visible[place.end() :], visible[: place.start()]
    return next((part.strip() for part in parts if is_substantive(part)), None)


@dataclass(frozen=True)
class TextCalls:
    """Tool calls written as text.

    Attributes:
        calls: names and arguments; empty if they cannot be parsed for certain.
        marked: a marker of the model's format identifies them as calls.
    """

    before: str
    calls: tuple[tuple[str, JsonObject], ...] = ()
    marked: bool = True


def find_text_calls(text: str, tool_names: Collection[str]) -> TextCalls | None:
    """The calls of the named tools at the end of *text*; None if it is ordinary text."""
    marker = _first_call_marker(text)
    if marker is None:
        return _calls_without_marker(text, tool_names)
    before = text[: marker.start()]
    calls = _parse_calls(text, marker.end(), tool_names)
    at_line_start = not before.rpartition("\n")[2].strip()
    if calls and at_line_start:
        return TextCalls(before.rstrip(), tuple(calls))
    # A marker in mid-sentence, with prose behind it, is text about a call.
    return TextCalls(before.rstrip()) if at_line_start or calls else None


def _first_call_marker(text: str) -> re.Match[str] | None:
    """The first marker outside quoted code."""
    code = _code_spans(text)
    span = next(code, None)
    for marker in _CALL_MARKER.finditer(text):
        while span is not None and span[1] <= marker.start():
            span = next(code, None)
        if span is None or marker.start() < span[0]:
            return marker
    return None


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Spans of code: between fences, an open one to the end, and between backticks."""
    fence, mark = None, ""
    for match in _CODE.finditer(text):
        if fence is None and not match[1]:
            yield match.span()
        elif fence is None:
            fence, mark = match.start(), match[1]
        elif match[1] == mark:
            yield fence, match.end()
            fence = None
    if fence is not None:
        yield fence, len(text)


def _calls_without_marker(text: str, tool_names: Collection[str]) -> TextCalls | None:
    """Calls that make up all of *text*, or all of a code block at its end."""
    fence = text.find("```")
    block = _FENCED.fullmatch(text[fence:].rstrip()) if fence >= 0 else None
    body = block[1] if block else text
    if body.lstrip()[:1] not in ("{", "["):
        return None
    calls = _parse_calls(body, 0, tool_names)
    before = text[:fence].strip() if block else ""
    return TextCalls(before, () if before else tuple(calls), marked=False) if calls else None


def _parse_calls(
    text: str, start: int, tool_names: Collection[str]
) -> list[tuple[str, JsonObject]]:
    """The calls from *start* to the end; empty if anything there is not a call."""
    calls: list[tuple[str, JsonObject]] = []
    at = start
    try:
        check_values(text[start:])
    except TooManyValues:
        return []
    while not _AFTER.match(text, at):
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        parsed, at = _parse_next(text, at)
        if not parsed or any(call is None or call[0] not in tool_names for call in parsed):
            return []
        calls += [call for call in parsed if call is not None]
    return calls


def _parse_next(text: str, at: int) -> tuple[list[tuple[str, JsonObject] | None], int]:
    """The calls in the JSON value at *at*, and where it ends; no calls if it is not JSON."""
    name_match = _NAMED.match(text, at)
    try:
        value, end = _decoder.raw_decode(text, name_match.end() if name_match else at)
    except (ValueError, RecursionError):
        return [], at
    if name_match:
        return [(name_match[1], value) if isinstance(value, dict) else None], end
    return [_as_call(item) for item in (value if isinstance(value, list) else [value])], end


def _as_call(value: Any) -> tuple[str, JsonObject] | None:
    """The call that *value* describes: a name and arguments, and no unknown field."""
    if not isinstance(value, dict):
        return None
    argument_keys = [key for key in _ARGUMENTS if key in value]
    others = set(value) - {"name", *argument_keys} - _OTHER_FIELDS
    if len(argument_keys) != 1 or others or not isinstance(value.get("name"), str):
        return None
    arguments = value[argument_keys[0]]
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    return (value["name"], arguments) if isinstance(arguments, dict) else None
