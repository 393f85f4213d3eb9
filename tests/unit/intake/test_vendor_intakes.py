"""Messages of vendors become observations: their alerts, and their ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boyd.intake import BadIntake, IntakeRequest, parse
from boyd.models import Observation
from boyd.settings.intake_settings import check_intakes, shipped_intakes

DATA = Path(__file__).parents[2] / "data" / "intake"
#: Source, severity, title and time of each alert; the title of Alertmanager's is an annotation.
ALERTS = {
    "alertmanager": ("alertmanager/InstanceDown", "critical", "", "2026-01-05T12:00:00"),
    "grafana": ("grafana/High memory usage", "warning", "", "2021-10-12T07:51:03"),
    "datadog": ("datadog/1234", "error", "[Triggered] CPU is high", "2026-01-05T12:00:00"),
    "pagerduty": ("pagerduty/API Service", "critical", "A little bump", "2020-10-02T18:45:22"),
    "sentry": ("sentry/1", "error", "ReferenceError: heck", "2019-08-19T21:06:17"),
    "sentry/metric": ("sentry/backend", "critical", "Critical: Too", "2020-09-07T18:50:00"),
    "cloudwatch": ("cloudwatch/Example alarm name", "error", "Example", "2017-01-12T16:30:42"),
    "azure-monitor": ("azure-monitor/WCUS-R2-Gen2", "info", "WCUS-R2", "2019-03-22T13:58:24"),
    "google-monitoring": ("google-monitoring/test", "critical", "CPU usage", "2020-02-05T16:42:37"),
    "zabbix": ("zabbix/web-1", "warning", "High CPU utilization", ""),
    "nagios": ("nagios/db1/Disk /", "critical", "DISK CRITICAL", "2026-01-05T12:00:00"),
    "new-relic": ("new-relic/Policy1", "critical", "Memory Used", "2021-04-08T11:27:26"),
    "dynatrace": ("dynatrace", "warning", "Response time degradation", ""),
    "uptime-kuma": ("uptime-kuma/Shop", "critical", "[Shop] [🔴 Down]", "2024-09-24T23:51:35"),
    "github": ("github/Codertocat/Hello-World", "error", "CI: Update", "2026-01-05T12:06:00"),
    "github/dependabot": (
        *("github/Codertocat/Hello-World", "error", "Django allows", "2022-06-15T07:43:03"),
    ),
    "gitlab": ("gitlab/gitlab-org/gitlab-test", "error", "test", "2016-08-12T15:26:29"),
}


def read(vendor: str, name: str) -> list[Observation]:
    body = (DATA / vendor / f"{name}.json").read_bytes()
    return parse(vendor, IntakeRequest("application/json", {}, body))


@pytest.mark.parametrize("case", ALERTS)
def test_an_alert_and_its_end_are_one_thing_that_fires_and_resolves(case: str) -> None:
    source, severity, title, time = ALERTS[case]
    vendor, _, kind = case.partition("/")
    prefix = f"{kind}-" if kind else ""
    [firing], [resolved] = read(vendor, f"{prefix}firing"), read(vendor, f"{prefix}resolved")

    assert (firing.source, firing.severity) == (source, severity)
    assert str(firing.data.get("title", "")).startswith(title)
    assert firing.timestamp.isoformat().startswith(time)
    assert (firing.data["status"], resolved.data["status"]) == ("firing", "resolved")
    assert resolved.severity == "info"
    identities = [
        (observation.source, (observation.metadata or {}).get("fingerprint"))
        for observation in (firing, resolved)
    ]
    assert identities[0] == identities[1]
    assert identities[0][1]


@pytest.mark.parametrize(
    "message", ["pagerduty/note", "github/ping", "gitlab/running", "cloudwatch/subscription"]
)
def test_messages_without_alerts_are_accepted_but_yield_no_observations(message: str) -> None:
    assert read(*message.split("/")) == []


def change_fields(message: str, **changes: Any) -> list[Observation]:
    """The observations of a message with other values at some paths, as in `workflow_run.event`."""
    vendor, _, name = message.partition("/")
    body = json.loads((DATA / vendor / f"{name}.json").read_bytes())
    for place, value in changes.items():
        *path, last = place.split("__")
        part = body
        for step in path:
            part = part[step]
        part[last] = value
    return parse(vendor, IntakeRequest("application/json", {}, json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("github/resolved", {"workflow_run__event": "pull_request"}),
        ("github/resolved", {"workflow_run__event": "pull_request_target"}),
        ("github/firing", {"workflow_run__head_repository": {"full_name": "mallory/Hello-World"}}),
        ("github/resolved", {"workflow_run__event": "pull_request_review"}),
        ("gitlab/resolved", {"object_attributes__source": "parent_pipeline"}),
        ("gitlab/firing", {"object_attributes__source": "merge_request_event"}),
        ("gitlab/resolved", {"object_attributes__source": "external_pull_request_event"}),
    ],
)
def test_runs_for_forks_and_parents_say_nothing_of_the_branch(message: str, changes: Any) -> None:
    assert change_fields(message, **changes) == []


def test_a_scheduled_pipeline_does_not_end_the_failure_of_a_push() -> None:
    [failed] = change_fields("gitlab/firing", object_attributes__source="push")
    [nightly] = change_fields("gitlab/resolved", object_attributes__source="schedule")
    [push] = change_fields("gitlab/resolved", object_attributes__source="push")
    prints = [
        (observation.metadata or {})["fingerprint"] for observation in (failed, nightly, push)
    ]

    assert prints[0] == prints[2] != prints[1]


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("uptime-kuma/certificate", {"msg": "Shop Testing"}),
        ("uptime-kuma/firing", {"heartbeat__status": 3}),
        ("google-monitoring/firing", {"version": "test"}),
        ("zabbix/firing", {"trigger_id": "{TRIGGER.ID}"}),
        ("datadog/firing", {"alert_type": "$ALERT_TYPE"}),
        ("dynatrace/firing", {"ProblemTitle": "Dynatrace problem notification TEST NOTIFICATION"}),
        ("nagios/firing", {"type": "ACKNOWLEDGEMENT"}),
        ("nagios/firing", {"type": "DOWNTIMESTART"}),
        ("sentry/firing", {"action": "assigned"}),
    ],
)
def test_tests_and_notes_of_a_vendor_do_not_fire(message: str, changes: Any) -> None:
    assert change_fields(message, **changes) == []


def test_a_priority_of_their_own_leaves_the_urgency_to_tell_the_severity() -> None:
    [observation] = change_fields("pagerduty/firing", event__data__priority={"summary": "SEV-1"})
    assert observation.severity == "error"


def test_a_problem_that_is_merged_into_another_one_has_ended() -> None:
    [observation] = change_fields("dynatrace/firing", State="MERGED")
    assert observation.data["status"] == "resolved"


@pytest.mark.parametrize("vendor", sorted(shipped_intakes().keys() - {"cloudevents", "json"}))
@pytest.mark.parametrize("body", ['{"hello": "world"}', "{}"])
def test_a_message_of_somebody_else_is_refused(vendor: str, body: str) -> None:
    with pytest.raises(BadIntake):
        parse(vendor, IntakeRequest("application/json", {}, body.encode()))


@pytest.mark.parametrize(
    ("message", "source"),
    [
        ("datadog/default", "datadog"),
        ("nagios/host", "nagios/db1"),
        ("gitlab/deployment", "gitlab/gitlab-org/gitlab-test"),
        ("uptime-kuma/certificate", "uptime-kuma"),
    ],
)
def test_messages_without_the_usual_fields_are_observed(message: str, source: str) -> None:
    [observation] = read(*message.split("/"))
    assert observation.source == source
    assert observation.severity in ("warning", "error", "critical")


def test_each_intake_that_comes_with_boyd_is_valid_and_has_messages_of_both_states() -> None:
    names = shipped_intakes().keys() - {"json", "cloudevents"}
    assert {path.parent.name for path in DATA.glob("*/firing.json")} == names
    assert {path.parent.name for path in DATA.glob("*/resolved.json")} == names
    check_intakes([intake_file.declared(name) for name, intake_file in shipped_intakes().items()])
    sources = (DATA / "README.md").read_text()
    assert all(f"| `{name}` |" in sources for name in names)


@pytest.mark.parametrize("name", sorted(ALERTS.keys() - {"sentry/metric", "github/dependabot"}))
@pytest.mark.parametrize("body", [None, 7, "text", [], {}, [{}], {"alerts": 1, "event": []}])
def test_any_other_json_is_refused_or_observed_but_breaks_nothing(name: str, body: object) -> None:
    try:
        observations = parse(name, IntakeRequest("application/json", {}, json.dumps(body).encode()))
    except BadIntake:
        return
    assert len(observations) <= 1
