"""Mappings read messages by expressions, whose work is limited."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boyd import Agent
from boyd.errors import ConfigError
from boyd.intake import MAX_OBSERVATIONS, BadIntake, IntakeRequest, parse_declared
from boyd.intake.formats import parse_mapped
from boyd.models import Observation
from boyd.runtime import Engine
from boyd.settings.intake_settings import IntakeMapping
from boyd.store import AgentEntry
from boyd.testing import Lab
from boyd.text import extraction
from boyd.text.extraction import Expression, ExtractionError, StepMeter


def read(body: Any, sent: Any = None, **fields: Any) -> list[Observation]:
    request = IntakeRequest("application/json", sent or {}, json.dumps(body).encode())
    return parse_mapped(IntakeMapping(**fields), "mine", request)


def agent(*intakes: Any) -> Agent:
    return Agent("shop", intakes=list(intakes))


def test_an_intake_of_an_agent_says_how_its_messages_are_read() -> None:
    mapping = {
        "items": "body.alerts",
        "source": "item.host",
        "severity": "item.level",
        "severities": {"Sev1": "critical"},
        "title": "item.text",
        "fingerprint": "item.id",
        "resolved": "item.over",
        "timestamp": "item.at",
        "data": "{host: item.host, by: body.sender}",
    }
    own = agent({"name": "legacy", "mapping": mapping}).settings.intakes[0]
    alert = {"host": "db1", "level": "SEV1", "text": "full", "id": 7, "at": 1767614400123}
    body = {"sender": "m1", "alerts": [alert, {**alert, "over": True}]}
    request = IntakeRequest("application/json", {}, json.dumps(body).encode())

    firing, over = parse_declared(own, request)

    assert (firing.source, firing.type, firing.severity) == ("legacy/db1", "alert", "critical")
    assert firing.data == {
        "title": "full",
        "status": "firing",
        "payload": {"host": "db1", "by": "m1"},
    }
    assert firing.metadata == {"intake": "legacy", "fingerprint": "7"}
    assert firing.timestamp.isoformat() == "2026-01-05T12:00:00.123000+00:00"
    assert (over.severity, over.data["status"]) == ("info", "resolved")


def test_an_intake_changes_single_fields_of_one_that_comes_with_boyd() -> None:
    [intake] = agent(
        {
            "name": "code",
            "use": "github",
            "mapping": {"source": "body.repository.name"},
            "auth": {"secret": "github-code"},
        }
    ).settings.intakes
    assert intake.mapping is not None
    assert intake.mapping.source == "body.repository.name"
    assert intake.mapping.fingerprint is not None
    assert intake.auth.model_dump()["header"] == "X-Hub-Signature-256"


def test_workers_announce_intakes_with_the_names_of_secrets_only() -> None:
    lab = Lab(agent({"name": "github", "auth": {"secret": "gh"}}))
    engine: Engine = lab.engine
    text = engine.entry().to_json()
    assert AgentEntry.from_json(text).intakes == lab.engine.agent.settings.intakes
    assert '"secret":"gh"' in text


@pytest.mark.parametrize(
    ("intakes", "reason"),
    [
        ([{"name": "a", "use": "json"}, {"name": "a", "use": "github"}], "several are called 'a'"),
        ([{"name": "A b"}], "name"),
        ([{"name": "a", "mapping": {"title": "body.["}}], "a.mapping.title: `body.\\["),
        ([{"name": "a", "mapping": {"title": "f(@)"}, "auth": {"method": "none"}}], "auth"),
        ([{"name": "a", "mapping": {"titel": "x"}}], "titel: is not known; did you mean 'title'"),
        ([{"name": "github", "auth": {}}], "secret"),
        ([{"name": "githup", "auth": {"secret": "s"}}], "method is missing; did you mean 'github'"),
        ([{"name": "cloudwatch", "auth": {"topics": ["alarms"]}}], "topics"),
        ([{"name": "a", "mapping": {"title": "[?nofunc(x)]"}}], "there is no function nofunc"),
        ([{"name": "a", "mapping": {"title": "@" * 1001}}], "longer than 1000"),
        ([{"name": "a", "mapping": {"title": "(" * 900}}], "a.mapping.title"),
    ],
)
def test_mistakes_in_intakes_are_found_before_they_are_used(intakes: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        agent(*intakes)


def test_only_the_headers_that_a_mapping_lists_are_seen() -> None:
    sent = {"x-kind": "disk", "authorization": "Bearer of-somebody"}
    [observation] = read({}, sent, headers=["X-Kind"], source='headers."x-kind"', data="headers")
    assert observation.source == "mine/disk"
    assert observation.data == {"payload": {"x-kind": "disk"}}


def test_a_source_always_begins_with_the_name_of_the_intake() -> None:
    assert read({"s": "run:1"}, source="body.s")[0].source == "mine/run:1"
    assert read({"s": ["a"]}, source="body.s")[0].source == "mine"
    assert len(read({"s": "x" * 9000}, source="body.s", title="body.s")[0].source) < 400


@pytest.mark.parametrize(
    ("value", "read_as"),
    [
        ("2026-01-05T12:00:00Z", "2026-01-05T12:00:00+00:00"),
        ("2026-01-05T12:00:00.1234567Z", "2026-01-05T12:00:00.123456+00:00"),
        ("2026-01-05 12:00:00 UTC", "2026-01-05T12:00:00+00:00"),
        ("2026-01-05 14:00:00 +0200", "2026-01-05T12:00:00+00:00"),
        ("2026-01-05 12:00:00", "2026-01-05T12:00:00+00:00"),
        (1767614400, "2026-01-05T12:00:00+00:00"),
        ("1767614400000", "2026-01-05T12:00:00+00:00"),
        (1767614400000000, "2026-01-05T12:00:00+00:00"),
        ("", None),
        ("  ", None),
        ("soon", None),
        (True, None),
        ({}, None),
        (-1, None),
        (1e300, None),
        ("9" * 400, None),
        ("1767614400" + " " * 400, None),
        ("2999-01-01", None),
    ],
)
def test_times_are_read_as_vendors_write_them_and_others_are_now(
    value: Any, read_as: str | None
) -> None:
    before = read({})[0].timestamp
    timestamp = read({"at": value}, timestamp="body.at")[0].timestamp
    assert timestamp.isoformat() == read_as if read_as else timestamp >= before


@pytest.mark.parametrize(
    ("value", "read_as"),
    [
        ("2026-01-05 13:00:00", "2026-01-05T12:00:00+00:00"),
        ("2025-07-05T14:00:00", "2025-07-05T12:00:00+00:00"),
        ("2025-03-30T02:30:00", "2025-03-30T01:30:00+00:00"),
        ("2025-10-26T02:30:00", "2025-10-26T00:30:00+00:00"),
        ("2026-01-05T12:00:00Z", "2026-01-05T12:00:00+00:00"),
        ("2026-01-05 14:00:00 +0200", "2026-01-05T12:00:00+00:00"),
        (1767614400, "2026-01-05T12:00:00+00:00"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_the_mapping(value: Any, read_as: str) -> None:
    [observation] = read({"at": value}, timestamp="body.at", timezone="Europe/Vienna")
    assert observation.timestamp.isoformat() == read_as


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"timezone: no such time zone: 'Europe/Wien'"):
        agent({"name": "own", "mapping": {"timezone": "Europe/Wien"}})


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "[@,@]" + "|[@,@]" * 100,
        "[@,@]" + "|[@,@][]" * 100,
        "body.many[*].[@,@][]" + "|[@,@][]" * 40,
        "'text'" + "|join('', [@, @])" * 50,
        "join(body.text, body.many[*].to_string(@))",
        "[" + ",".join(["body.many[*].to_string(@)"] * 30) + "]",
        "to_string(" + "[@,@]|" * 40 + "@)",
        "([@,@]" + "|[@,@]" * 40 + ") == ([@,@]" + "|[@,@]" * 40 + ")",
    ],
)
def test_an_expression_that_explodes_is_stopped(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "MAX_STEPS", 300_000)
    body = {"many": list(range(30_000)), "text": "x" * 1_000_000}
    for field in ("title", "fingerprint", "data"):
        with pytest.raises(BadIntake, match=r"take too long|more than"):
            read(body, **{"data": "'x'", field: text})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"fingerprint": "body.shared"}, "take too long"),
        ({"data": "ceil(to_number('nan'))"}, "cannot convert"),
    ],
)
def test_a_costly_or_failing_expression_is_refused(fields: Any, reason: str) -> None:
    body = {"items": [0] * 3000, "shared": "x" * 1_000_000}
    with pytest.raises(BadIntake, match=reason):
        read(body, items="body.items", **fields)


def test_expressions_of_one_message_are_limited_together() -> None:
    meter = StepMeter()
    Expression("@").value({}, meter)
    meter.take(extraction.MAX_STEPS - 1)
    with pytest.raises(ExtractionError):
        Expression("@").value({}, meter)


@pytest.mark.parametrize(
    ("fields", "body", "reason"),
    [
        ({"items": "body.alerts"}, {}, "gives no list"),
        ({"items": "body"}, [0] * (MAX_OBSERVATIONS + 1), "the limit is"),
        ({"items": "body", "data": "body"}, ["x" * 100] * 1000, "bytes of observations"),
        ({"title": "join(body, body)"}, {}, "the mapping of mine"),
        ({"data": "body.a"}, {"a": [0] * 100_001}, "values"),
    ],
)
def test_too_much_or_something_else_is_refused(fields: Any, body: Any, reason: str) -> None:
    with pytest.raises(BadIntake, match=reason):
        read(body, **fields)


def test_json_within_a_text_is_read_and_other_text_is_nothing() -> None:
    fields = {"items": "[parse_json(body.t)]", "when": "item", "data": "item"}
    assert read({"t": '{"a": 1}'}, **fields)[0].data == {"payload": {"a": 1}}
    assert read({"t": "hello"}, **fields) == []
    assert read({"t": "[" * 100_000}, **fields) == []
    assert read({"t": "[" + "[]," * 90_000 + "0]"}, **fields) == []
