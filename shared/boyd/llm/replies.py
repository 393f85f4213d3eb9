"""Handles the replies of a model: an answer, part of one, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from boyd.llm import loop_detection, steering
from boyd.llm.conclusion import Conclusion
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.messages import MAX_SAID, Turn, limit_reply, parse_arguments
from boyd.llm.reply_text import (
    TextCalls,
    answer_after_marker,
    find_text_calls,
    is_empty,
    is_substantive,
)
from boyd.llm.steering import Steering
from boyd.models import JsonObject
from boyd.models.investigation import Entry, Result, Steered, Warned

#: Warnings about calls that came as text: they could be parsed, or not.
SPOKEN = "spoken_calls"
UNREAD = "unread_calls"
#: Truncated turns, and answers in the wrong form, that are tolerated.
TRIES = 2


def check_schema(schema: JsonObject) -> None:
    """Check that *schema* can describe an answer; raises `ValueError`."""
    if schema.get("type") != "object":
        raise ValueError("its type must be object")
    for part in _objects(schema):
        # A client's pattern on a model's text could occupy a worker for ever.
        if {"pattern", "patternProperties"} & set(part):
            raise ValueError("it must not use patterns")
    try:
        Draft202012Validator.check_schema(schema)
        for part in _objects(schema):
            if isinstance(part.get("$ref"), str):
                list(_validator(schema).descend({}, {"$ref": part["$ref"]}))
        _validator(schema).is_valid({})
    except SchemaError as error:
        raise ValueError(error.message) from None
    except Unresolvable as error:
        raise ValueError(f"a reference has no target: {error}") from None
    except RecursionError:
        raise ValueError("its references are circular") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"a reference does not point to a schema: {error}") from None


def misfit(value: JsonObject, schema: JsonObject) -> str | None:
    """The most important violation of *schema* by *value*."""
    try:
        error = best_match(_validator(schema).iter_errors(value))
    except (Unresolvable, RecursionError, AttributeError, TypeError) as wrong:
        return f"the schema itself is invalid: {wrong}"
    if error is None:
        return None
    where = "/".join(str(part) for part in error.absolute_path)
    return f"{where}: {error.message}" if where else str(error.message)


def object_in(text: str) -> JsonObject | None:
    """The JSON object between the first and the last brace of *text*."""
    begin, end = text.find("{"), text.rfind("}")
    return parse_arguments(text[begin : end + 1]) if 0 <= begin < end else None


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in *schema*, itself first."""
    if isinstance(schema, dict):
        yield schema
    parts = schema.values() if isinstance(schema, dict) else schema
    for part in parts if isinstance(schema, dict | list) else ():
        yield from _objects(part)


def _validator(schema: JsonObject) -> Draft202012Validator:
    # An empty registry: no schema can cause a download.
    return Draft202012Validator(schema, registry=Registry())


@dataclass(frozen=True)
class Replies:
    """Handles the replies in one investigation; *marker*, if any, has to begin answers in prose."""

    conclusion: Conclusion
    steering: Steering
    schema: JsonObject | None
    marker: str | None

    def handle_text(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """React to a turn without calls."""
        if turn.finish == "length":
            if sum(each.finish == "length" for each in conversation.turns) <= TRIES:
                return [Steered(text=steering.TRUNCATED, why="cut")]
            reason = "The model's turns were truncated repeatedly"
            return [self.conclusion.end(conversation, "error", reason)]
        violation = loop_detection.check_turns(conversation.turns)
        if violation is not None:
            return [self.conclusion.end(conversation, violation.ending, violation.sentence)]
        if is_empty(turn):
            warning = loop_detection.warn_of_turns(conversation.turns)
            return [Steered(text=warning.text if warning else steering.EMPTY, why="empty")]
        return [self._handle_answer(conversation, turn.text)]

    def handle_last_turn(self, conversation: Conversation, turn: Turn) -> Entry:
        """React to a turn in which the model had no tools."""
        limit = conversation.concluding
        ending = (limit.ending if limit else None) or "final_synthesis"
        answer = self._without_calls(turn.text)
        if is_substantive(answer) and not turn.calls and turn.finish == "stop":
            text, findings = self._strip_marker(answer), self._findings(answer)
            reason = f"{limit.why}; the model was asked to conclude" if limit else None
            return self.conclusion.end(conversation, ending, reason, text=text, findings=findings)
        reason = "the model gave no answer after its tools were removed"
        if limit:
            return self.conclusion.end(conversation, ending, f"{limit.why}; {reason}")
        retry = self.steering.retry_answer(conversation)
        return retry or self.conclusion.end(conversation, ending, reason)

    def _without_calls(self, text: str) -> str:
        """The text before a call that comes as text: the call itself is no answer."""
        text_calls = find_text_calls(text, {tool.name for tool in self.conclusion.toolbox.specs()})
        is_call = (
            text_calls is not None
            and (text_calls.marked or not text_calls.before)
            and not self.fits(text)
        )
        return text_calls.before if text_calls is not None and is_call else text

    def handle_unread_calls(
        self,
        conversation: Conversation,
        turn: Turn,
        text_calls: TextCalls,
        tool_names: Sequence[str],
    ) -> list[Entry]:
        """React to calls written as text that cannot be parsed for certain."""
        if UNREAD not in conversation.warned:
            return [
                Warned(what=UNREAD, text=steering.UNPARSED),
                Steered(text=steering.explain_tool_calls(tool_names), why="spoken_call"),
            ]
        if not text_calls.marked:  # the model knows the rule, so this is its answer
            return self.handle_text(conversation, turn)
        reason = f"The model writes its tool calls as plain text: {steering.UNPARSED}"
        return [self.conclusion.end(conversation, "error", reason)]

    def fits(self, text: str) -> bool:
        """Report whether *text* has the required form of the answer."""
        return self._findings(text) is not None

    def check_answer_call(self, called: ToolCallRecord) -> str | None:
        """The reason to reject a call of the tool `answer`."""
        if len(called.call.arguments) > MAX_SAID:
            return f"The answer is too long: the limit is {MAX_SAID} characters"
        if called.arguments is None:
            return "The answer does not match its schema: it is not a JSON object"
        wrong = misfit(called.arguments, self.schema or {})
        return f"The answer does not match its schema: {wrong}" if wrong else None

    def accept_answer_call(
        self, conversation: Conversation, called: ToolCallRecord, now: datetime
    ) -> list[Entry]:
        """End the investigation with a valid call of the tool `answer`; skip other open calls."""
        findings = called.arguments or {}
        accepted = called.observe("succeeded", "The answer was accepted.", now)
        reason = "Not called: the answer had already been given."
        others = [other for other in conversation.open if other is not called]
        skipped = [other.observe("skipped", reason, now) for other in others]
        results = [Result(observation=each) for each in (accepted, *skipped)]
        after, text = conversation.after(results), _as_prose(findings)
        end = self.conclusion.end(after, "final_answer", text=text, findings=findings)
        return [*results, end]

    def _handle_answer(self, conversation: Conversation, text: str) -> Entry:
        """End with the answer, or ask for the required form or marker once more."""
        findings, flaw = self._findings(text), None
        if self.schema is not None and findings is None:
            if sum(not turn.calls for turn in conversation.turns) < TRIES:
                return Steered(text=steering.WRONG_FORM, why="shape")
            flaw = "the answer does not have the required form"
        if self.marker is not None and answer_after_marker(text, self.marker) is None:
            if len(conversation.turns) < 2 or conversation.turns[-2].calls:
                hint = f"Call a tool, or answer. {steering.explain_marker(self.marker)}"
                return Steered(text=hint, why="marker")
            flaw = f"the model did not mark its answer with {self.marker!r}"
        end, text = self.conclusion.end, self._strip_marker(text)
        return end(conversation, "final_answer", flaw, text=text, findings=findings)

    def _strip_marker(self, text: str) -> str:
        answer = answer_after_marker(text, self.marker) if self.marker else None
        return limit_reply(text if answer is None else answer)

    def _findings(self, text: str) -> JsonObject | None:
        if self.schema is None:
            return None
        value = object_in(text)
        return value if value is not None and misfit(value, self.schema) is None else None


def _as_prose(findings: JsonObject) -> str:
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in findings.items()
    }
    return "\n".join(f"{name}: {text}" for name, text in texts.items()) or "{}"
