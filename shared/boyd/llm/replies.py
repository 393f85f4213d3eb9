"""What a model's words mean: an answer, half of one, or nothing (T5, F6)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from boyd.llm import instructions, loop_detection
from boyd.llm.call_history import observed
from boyd.llm.conclusion import Ends
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.messages import Turn
from boyd.llm.output_view import SAID, bounded
from boyd.llm.reply_text import is_empty, is_substantive, marked
from boyd.llm.steering import Steering
from boyd.llm.tool_call_parsing import SpokenCalls, parsed
from boyd.models import JsonObject
from boyd.models.investigation import Entry, Result, Steered, Warned


def check_schema(schema: JsonObject) -> None:
    """Check that answers can be asked to fit *schema*.

    Raises:
        ValueError: it is no schema of an object, or points to somewhere else.
    """
    if schema.get("type") != "object":
        raise ValueError("its type must be object")
    for part in _parts(schema):
        # A pattern of a client, on a text of a model, may take a worker for ever.
        if {"pattern", "patternProperties"} & set(part):
            raise ValueError("it may not use patterns")
    try:
        Draft202012Validator.check_schema(schema)
        for part in _parts(schema):
            if isinstance(part.get("$ref"), str):
                list(_validator(schema).descend({}, {"$ref": part["$ref"]}))
        _validator(schema).is_valid({})
    except SchemaError as error:
        raise ValueError(error.message) from None
    except Unresolvable as error:
        raise ValueError(f"it points to what is not in it: {error}") from None
    except RecursionError:
        raise ValueError("it points to itself without an end") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"it points to what is no schema: {error}") from None


def misfit(value: JsonObject, schema: JsonObject) -> str | None:
    """What is most wrong about *value*; None when it fits."""
    try:
        error = best_match(_validator(schema).iter_errors(value))
    except (Unresolvable, RecursionError, AttributeError, TypeError) as wrong:
        return f"the form itself is wrong: {wrong}"
    if error is None:
        return None
    where = "/".join(str(part) for part in error.absolute_path)
    return f"{where}: {error.message}" if where else str(error.message)


def object_in(text: str) -> JsonObject | None:
    """The object of JSON that *text* holds, if it does."""
    begin, end = text.find("{"), text.rfind("}")
    return parsed(text[begin : end + 1]) if 0 <= begin < end else None


def found_in(text: str, schema: JsonObject) -> JsonObject | None:
    """The object that *text* holds and that fits, if it does."""
    value = object_in(text)
    return value if value is not None and misfit(value, schema) is None else None


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in *schema*, itself first."""
    if isinstance(schema, dict):
        yield schema
    inside = schema.values() if isinstance(schema, dict) else schema
    for part in inside if isinstance(schema, dict | list) else ():
        yield from _parts(part)


def _validator(schema: JsonObject) -> Draft202012Validator:
    # An empty registry: a schema from outside makes nobody fetch anything.
    return Draft202012Validator(schema, registry=Registry())


#: What is warned of when calls came as text: once that they were read, once that they were not.
SPOKEN = "spoken_calls"
UNREAD = "unread_calls"
#: How often a model may be cut off, and may answer in another form than it was asked for.
TRIES = 2


class Replies:
    """Takes what the model says in one investigation.

    Args:
        ends: makes its ends.
        steering: says what follows an answer that is none.
        schema: that the answer has to fit; None: it is prose.
        marker: what an answer in prose has in front; None: nothing.
    """

    def __init__(
        self, ends: Ends, steering: Steering, schema: JsonObject | None, marker: str | None
    ) -> None:
        self._ends = ends
        self._steering = steering
        self._schema = schema
        self._marker = marker

    def words(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """What follows from a turn without calls."""
        if turn.finish == "length":
            return [self._cut_off(conversation)]
        trip = loop_detection.check_turns(conversation.turns)
        if trip is not None:
            return [self._ends.ended(conversation, trip.ending, trip.sentence)]
        if is_empty(turn):
            nudge = loop_detection.turn_warning(conversation.turns)
            return [Steered(text=nudge.text if nudge else instructions.EMPTY, why="empty")]
        return [self._answer(conversation, turn.text)]

    def without_tools(self, conversation: Conversation, turn: Turn) -> Entry:
        """What follows from a turn in which the model had to answer (F5, F6)."""
        limit = conversation.concluding
        ending = (limit.ending if limit else None) or "final_synthesis"
        if is_substantive(turn.text) and not turn.calls and turn.finish == "stop":
            text, findings = self._unmarked(turn.text), self._findings(turn.text)
            why = f"{limit.why}; the model was asked to conclude" if limit else None
            return self._ends.ended(conversation, ending, why, text=text, findings=findings)
        why = "the model did not answer without its tools"
        if limit:
            return self._ends.ended(conversation, ending, f"{limit.why}; {why}")
        again = self._steering.once_more(conversation)
        return again or self._ends.ended(conversation, ending, why)

    def spoken(
        self, conversation: Conversation, turn: Turn, found: SpokenCalls, known: Sequence[str]
    ) -> list[Entry]:
        """What follows from calls that came as text and cannot be read for certain: no answer."""
        if UNREAD not in conversation.warned:
            return [
                Warned(what=UNREAD, text=instructions.UNPARSED),
                Steered(text=instructions.spoken_call(known), why="spoken_call"),
            ]
        if not found.marked:  # it was told, and means what it says
            return self.words(conversation, turn)
        why = f"The model writes its tool calls as text: {instructions.UNPARSED}"
        return [self._ends.ended(conversation, "error", why)]

    def fits(self, text: str) -> bool:
        """Whether a text has the form that the answer was asked for in."""
        return self._findings(text) is not None

    def misfit(self, called: ToolCallRecord) -> str | None:
        """Why a call of the tool `answer` gives none; None: it fits."""
        found = called.arguments
        if len(called.call.arguments) > SAID:
            return f"The answer is too long: it may have {SAID} characters"
        wrong = "it is no object of JSON"
        if found is not None:
            wrong = misfit(found, self._schema or {}) or ""
        return f"The answer does not fit its form: {wrong}" if wrong else None

    def given(
        self, conversation: Conversation, called: ToolCallRecord, now: datetime
    ) -> list[Entry]:
        """What a call of the tool `answer` adds whose answer fits: the end."""
        found = called.arguments or {}
        accepted = observed(called, "succeeded", "The answer was taken.", now)
        rest = [
            Result(observation=observed(one, "skipped", "The answer was given before.", now))
            for one in conversation.open
            if one is not called
        ]
        results = [Result(observation=accepted), *rest]
        after = conversation.after(results)
        text = _in_words(found)
        return [*results, self._ends.ended(after, "final_answer", text=text, findings=found)]

    def _cut_off(self, conversation: Conversation) -> Entry:
        if sum(one.finish == "length" for one in conversation.turns) > TRIES:
            why = "The model was cut off again and again"
            return self._ends.ended(conversation, "error", why)
        return Steered(text=instructions.CUT, why="cut")

    def _answer(self, conversation: Conversation, text: str) -> Entry:
        """The end, unless the answer has another form than was asked for and can be put right."""
        findings, unfit = self._findings(text), None
        if self._schema is not None and findings is None:
            if sum(not one.calls for one in conversation.turns) < TRIES:
                return Steered(text=instructions.SHAPE, why="shape")
            unfit = "the answer is not in the form that was asked for"
        if self._marker is not None and marked(text, self._marker) is None:
            if not _has_ceased(conversation):
                said = f"Call a tool, or answer. {instructions.marking(self._marker)}"
                return Steered(text=said, why="marker")
            unfit = f"the model has not answered behind {self._marker!r}"
        text = self._unmarked(text)
        return self._ends.ended(conversation, "final_answer", unfit, text=text, findings=findings)

    def _unmarked(self, text: str) -> str:
        found = marked(text, self._marker) if self._marker else None
        return bounded(text if found is None else found)

    def _findings(self, text: str) -> JsonObject | None:
        return found_in(text, self._schema) if self._schema is not None else None


def _has_ceased(conversation: Conversation) -> bool:
    """Whether the model has called nothing in two turns in a row: it will not go on."""
    return len(conversation.turns) > 1 and not conversation.turns[-2].calls


def _in_words(found: JsonObject) -> str:
    """An answer in a form, for those who read."""
    lines = []
    for name, value in found.items():
        said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"{name}: {said}")
    return "\n".join(lines) or "{}"
