"""No JSON from outside holds the interpreter: texts with too many values are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import jiter
import pytest

from boyd.intake import BadIntake, IntakeRequest, parse, read_json, request
from boyd.llm.messages import parse_arguments
from boyd.llm.model_errors import Fault
from boyd.llm.providers.wire import parse_event
from boyd.llm.reply_text import TextCalls, find_text_calls
from boyd.text.json_limits import MAX_VALUES, TooManyValues, check_values
from interpreter_holds import longest_step, unit

#: Bytes of a request to intake.
BODY = 10_000_000
#: The longest step may take as many times as long as one that reads 100 000 small objects.
MOST = 15.0
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"


def repeat_item(item: str, most: int, size: int = BODY) -> str:
    """A list of *item*, with *most* of them or with *size* bytes."""
    return f"[{','.join([item] * min(most, size // (len(item) + 1)))}]"


def observation_text(data: str) -> str:
    return f'{{"source": "a", "data": {data}}}'


def alert_text(labels: str) -> str:
    alert = f'{{"status": "firing", "labels": {labels}}}'
    return f'{{"version": "4", "alerts": [{alert}]}}'


def event_text(data: str) -> str:
    return f'{{"specversion": "1.0", "id": "1", "source": "a", "type": "b", {data}}}'


def names(most: int, value: str = "1") -> str:
    """An object with *most* names, or with 10 MB."""
    pairs = [f'"k{number}":{value}' for number in range(min(most, BODY // 9))]
    return f"{{{','.join(pairs)}}}"


SMALL = '{"a":1}'

#: Bodies by their format and type, for a number of values.
BODIES: dict[str, tuple[str, str, Callable[[int], str]]] = {
    "numbers": ("json", "", lambda most: observation_text(f'{{"a": {repeat_item("1", most)}}}')),
    "lists": (
        "json",
        "",
        lambda most: observation_text(f'{{"a": {repeat_item("[]", most // 3)}}}'),
    ),
    "objects": (
        "json",
        "",
        lambda most: observation_text(f'{{"a": {repeat_item(SMALL, most // 3)}}}'),
    ),
    "nested": (
        "json",
        "",
        lambda most: observation_text(f'{{"a": {repeat_item("[" * 90 + "]" * 90, most // 181)}}}'),
    ),
    "names": ("json", "", lambda most: observation_text(names(most))),
    "observations": ("json", "", lambda most: repeat_item(observation_text('{"a": 1}'), most // 6)),
    "no observations": ("json", "", lambda most: repeat_item("1", most)),
    "unknown names": ("json", "", names),
    "one text": ("json", "", lambda most: observation_text(json.dumps({"a": ",[{" * (BODY // 3)}))),
    "labels": ("alertmanager", "", lambda most: alert_text(names(most, '"v"'))),
    "wrong labels": ("alertmanager", "", lambda most: alert_text(names(most))),
    "a version": (
        "alertmanager",
        "",
        lambda most: f'{{"version": {repeat_item("[]", most // 3)}}}',
    ),
    "data": (
        "cloudevents",
        STRUCTURED,
        lambda most: event_text(f'"data": {repeat_item("1", most)}'),
    ),
    "extensions": ("cloudevents", STRUCTURED, lambda most: event_text(names(most)[1:-1])),
    "a batch": ("cloudevents", BATCH, lambda most: repeat_item("1", most)),
}
#: Those whose steps take longest.
WORST = ("nested", "wrong labels", "unknown names", "one text")


@pytest.fixture(scope="module", name="unit")
def measured_unit() -> float:
    """The longest step of something that takes a few hundredths of a second."""
    return unit()


@pytest.mark.parametrize(
    ("kind", "most"), [*((kind, MAX_VALUES - 30) for kind in WORST), ("lists", BODY)]
)
@pytest.mark.long
def test_no_step_of_intake_holds_the_interpreter(kind: str, most: int, unit: float) -> None:
    format, content_type, body_of = BODIES[kind]
    sent = IntakeRequest(content_type or "application/json", {}, body_of(most).encode())

    def take() -> None:
        with suppress(BadIntake):
            parse(format, sent)

    assert longest_step(take, MOST * unit) < MOST * unit


@pytest.mark.parametrize("kind", sorted(BODIES.keys() - {"one text"}))
@pytest.mark.long
def test_a_body_with_too_many_values_is_not_parsed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    format, content_type, body_of = BODIES[kind]
    monkeypatch.setattr(jiter, "from_json", lambda *_, **__: pytest.fail("it is parsed"))
    body = body_of(6 * request.MAX_VALUES).encode()

    with pytest.raises(BadIntake, match="more than 500000 values"):
        parse(format, IntakeRequest(content_type or "application/json", {}, body))


def test_one_observation_has_fewer_values_than_a_request() -> None:
    many = repeat_item("1", 2 * MAX_VALUES)
    listed, alert = f'{{"a": {many}}}', alert_text(names(MAX_VALUES, '"v"'))
    sent = [
        ("json", "application/json", f"[{observation_text('{}')}, {observation_text(listed)}]"),
        ("alertmanager", "application/json", alert),
        ("alertmanager", "application/json", f'{{"version": "4", "alerts": [], "b": {many}}}'),
        ("cloudevents", STRUCTURED, event_text(f'"data": {many}')),
    ]

    for format, content_type, body in sent:
        with pytest.raises(BadIntake, match="more than 100000 values"):
            parse(format, IntakeRequest(content_type, {}, body.encode()))


@pytest.mark.long
def test_ten_thousand_alerts_of_a_kilobyte_fit_into_one_request() -> None:
    labels = {f"label{number}": "some text of a label" for number in range(24)}
    alert = {"status": "firing", "labels": labels, "annotations": labels}
    sent = json.dumps({"version": "4", "alerts": [alert] * 9000}).encode()

    assert len(parse("alertmanager", IntakeRequest("application/json", {}, sent))) == 9000


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    value = {"a": ',[{"\\' * MAX_VALUES, "b": "\\", ",[{": 1}

    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["", ",", '"', "\\", '\\"', '\\\\",[', ',"', '[{",'])
def test_characters_inside_strings_are_not_counted_as_values(text: str) -> None:
    many = [text] * (MAX_VALUES - 2)

    check_values(json.dumps(many))
    with pytest.raises(TooManyValues):
        check_values(json.dumps([*many, 1, 1, 1, 1]))


@pytest.mark.parametrize("text", ['"' * BODY, '"' + '\\"' * (BODY // 2), '"",' * (BODY // 3)])
def test_texts_that_never_end_are_counted_in_steps(text: str, unit: float) -> None:
    text_given = "," * MAX_VALUES + text

    def count() -> None:
        with suppress(TooManyValues):
            check_values(text_given)

    assert longest_step(count, MOST * unit) < MOST * unit


def test_model_output_with_too_many_values_is_not_parsed() -> None:
    many = f'{{"a": {repeat_item("1", MAX_VALUES)}}}'
    call = f'{{"name": "look", "arguments": {many}}}'

    assert parse_arguments(many) is None
    assert find_text_calls(f"<tool_call>{call}</tool_call>", ["look"]) == TextCalls("")
    with pytest.raises(Fault):
        parse_event(many)
