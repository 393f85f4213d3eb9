"""Pages about a target and its incidents, their routes and their links from other pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote, urlencode

import pytest

from api_kit import Site
from archive_kit import Archive, sqlite
from boyd.export.archive.access import ArchiveAccess
from boyd_api.routes import incident_routes
from console_kit import Browser
from past_kit import alert, approval, archive_past, execution, iteration, latency, problem

HOSTILE = "<script>x</script>/../é?a=b&c"
PERIOD = {"since": "2026-11-25T00:00:00Z", "until": "2026-11-26T00:00:00Z"}
INCIDENT = "2026-11-25T01:00:00.000Z"
LINKS: dict[str, Any] = {
    "annotations": {"runbook_url": "https://wiki/r?a=1&b=2", "evil": "javascript:alert(1)"}
}


@pytest.fixture
def past(desk: Site, tmp_path: Path) -> Iterator[Archive]:
    """A day on which web-3 was down for ten minutes, and restarted."""
    archive = Archive(sqlite(tmp_path), desk.store, agent_id="desk")
    well = [iteration(n, n, observations=[latency(0.1)]) for n in [*range(55, 60), *range(70, 90)]]
    down = [
        iteration(n, n, problem(), problem(HOSTILE), observations=[latency(9.0)])
        for n in range(60, 70)
    ]
    first = down[0].model_copy(update={"observations": [alert(**LINKS)]})
    restart = execution("approval:a1", 66, verdict="effective", verified=10, by="eve")
    archive_past(archive, [*well, first, *down[1:]], [restart], [approval("a1", 63, 3)])
    desk.services.archive = archive.access()
    yield archive
    archive.close()


def address(path: str = "/console/target", **query: str) -> str:
    return f"{path}?{urlencode({'target': 'web-3', **query})}"


@pytest.mark.usefixtures("past")
def test_a_target_has_its_incidents_a_plot_and_a_timeline(alice: Browser) -> None:
    page = alice.get(address(**PERIOD))

    assert "1 incident" in page.text
    assert "it answers 503" in page.text
    assert "effective: k8s:restart by eve" in page.text
    assert 'aria-label="http:probe latency over time, from 0.1 to 9"' in page.source
    assert 'aria-label="Verdicts over time: 1 effective' in page.source
    assert "verdict k8s:restart effective" in page.text
    assert 'href="/console/agents/desk/approvals/a1"' in page.source


@pytest.mark.usefixtures("past")
def test_an_incident_has_a_page_with_the_links_of_its_alerts(alice: Browser) -> None:
    page = alice.get(address("/console/incident", id=INCIDENT))

    assert page.title.startswith("it answers 503 on web-3")
    link = 'href="https://wiki/r?a=1&amp;b=2" rel="noopener noreferrer nofollow" target="_blank"'
    assert link in page.source
    assert "javascript:" not in page.source


@pytest.mark.usefixtures("past")
def test_an_open_incident_says_that_nobody_watches_it(alice: Browser, desk: Site) -> None:
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    show = incident_routes.show_incident
    pages = [alice.get(address("/console/incident", id=INCIDENT))]
    with mock.patch.object(
        incident_routes, "show_incident", lambda *a: show(*a).patched({"open": True})
    ):
        pages.append(alice.get(address("/console/incident", id=INCIDENT)))

    assert ["desk : not watching" in page.text for page in pages] == [False, True]
    kinds = [page.source.partition('data-live="')[2].partition('"')[0] for page in pages]
    assert kinds == ["", "iteration approval call execution procedure"]


@pytest.mark.usefixtures("past")
def test_an_incident_is_exported_as_markdown(alice: Browser, desk: Site) -> None:
    file = alice.get(address("/console/incident/report", id=INCIDENT))
    answer = desk.get(address(f"/incident-reports/{INCIDENT}"))

    assert file.headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''incident-")
    assert answer.mimetype == "text/markdown"
    assert answer.text == file.source
    assert "| Verdict: k8s:restart | effective |" in answer.text


@pytest.mark.usefixtures("past")
def test_a_hostile_name_is_inert_and_leads_to_its_own_page(alice: Browser) -> None:
    page = alice.get(f"/console/target?{urlencode({'target': HOSTILE, **PERIOD})}")

    assert page.status == 200
    assert "<script>x" not in page.source
    assert "1 incident" in page.text
    record = alice.get("/console/agents/desk/iterations/60")
    assert f'href="/console/target?target={quote(HOSTILE, safe="")}"' in record.source.replace(
        "/..", quote("/..", safe="")
    )


@pytest.mark.usefixtures("past")
def test_the_route_lists_the_incidents_of_a_period(desk: Site) -> None:
    history = desk.get(address("/incidents", **PERIOD)).get_json()
    incident = desk.get(address(f"/incidents/{INCIDENT}")).get_json()

    assert [it["id"] for it in history["incidents"]] == [INCIDENT]
    assert incident == history["incidents"][0]
    assert history["agents"] == ["desk"]


@pytest.mark.usefixtures("past")
def test_the_history_and_the_executions_are_filtered_by_target(desk: Site) -> None:
    iterations = desk.get("/loop/history?target=web-3&limit=500").get_json()["iterations"]
    executions = [desk.get(f"/executions?target={name}").get_json() for name in ("web-3", "web")]

    assert [it["iteration"] for it in iterations] == list(range(69, 59, -1))
    assert [len(page["executions"]) for page in executions] == [1, 0]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("target=", 422),
        ("target=web-3&since=2026-11-26T00:00:00Z&until=2026-11-25T00:00:00Z", 422),
        ("target=web-3&since=2020-01-01T00:00:00Z", 422),
        ("target=web-3&agent=nobody", 404),
        ("target=web-3&since=0001-01-01T00:00:00Z&until=0001-01-02T00:00:00Z", 422),
    ],
)
def test_a_wrong_question_is_refused(desk: Site, query: str, status: int) -> None:
    assert desk.get(f"/incidents?{query}").status_code == status


@pytest.mark.parametrize(
    "id",
    [
        *("x", "2026-11-25", "2026-11-25T01:00:00Z", "2126-01-01T00:00:00Z"),
        *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"),
    ],
)
def test_a_time_without_an_incident_is_not_found(desk: Site, alice: Browser, id: str) -> None:
    assert desk.get(address(f"/incidents/{id}")).status_code == 404
    assert alice.get(address("/console/incident", id=id)).status == 404


def test_a_day_before_all_records_has_no_incidents(desk: Site) -> None:
    response = desk.get(address("/incidents", until="0001-01-01T00:00:00Z"))
    assert response.get_json()["incidents"] == []


def test_an_incident_of_which_only_the_approval_is_kept_leads_to_its_target(
    past: Archive, alice: Browser
) -> None:
    archive_past(past, approvals=[approval("b7", 300, 3)])
    page = alice.get(address("/console/incident", id="2026-11-25T05:00:00+00:00"))

    assert page.status == 200
    assert "No incident on record" in page.text
    assert 'href="/console/agents/desk/approvals/b7"' in page.source


def test_a_key_of_some_agents_sees_only_what_they_know(desk: Site, past: Archive) -> None:
    archive_past(past, [iteration(1, 1, problem(), agent_id="other")], agent_id="other")
    limited = desk.key("read", agents=["other"])

    assert desk.get(address("/incidents", **PERIOD), headers=limited).get_json()["incidents"] == []


def test_an_archive_that_is_down_leaves_a_note(alice: Browser, desk: Site) -> None:
    desk.services.archive = ArchiveAccess("sqlite:////nowhere/at/all.db")
    page = alice.get(address())

    assert "Older records are missing: the archive does not answer" in page.text
    assert "Nothing is known of it in this time." in page.text


def test_without_a_name_the_page_asks_for_one(alice: Browser) -> None:
    page = alice.get("/console/target")

    assert page.status == 200
    assert 'name="target"' in page.source
    assert alice.get("/console/incident").status == 422


def test_an_approval_leads_to_the_history_of_its_target(alice: Browser, desk: Site) -> None:
    id = desk.waiting("web-3")
    page = alice.get(f"/console/agents/desk/approvals/{id}")

    assert 'href="/console/target?target=web-3"' in page.source
