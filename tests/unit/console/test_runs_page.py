"""The pages of runs: what they show, and what their forms do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api_kit import MAKER, Site
from boyd.export.archive.access import ArchiveAccess
from boyd.models import RunRequest
from boyd.store import Retention
from console_kit import Browser
from past_kit import approval, archive_past, archiving

RUNS = "/console/agents/desk/runs"
TASK: dict[str, Any] = {"title": "Slow desk", "description": "Since noon."}


@pytest.fixture
def run(desk: Site) -> str:
    """The id of a pending run."""
    return submit(desk)


def submit(desk: Site, title: str = "Slow desk", **more: object) -> str:
    """The id of a new run, which no worker takes up."""
    desk.dispatcher.held = True
    request = RunRequest.model_validate({**TASK, "title": title, **more})
    return desk.lab.store.runs.submit(request, False, MAKER).run.id


def test_a_page_without_runs_says_so_and_whether_the_agent_looks(alice: Browser) -> None:
    page = alice.get(RUNS)
    assert "No run is kept." in page.text
    assert "desk : it has not looked yet; it looks when something triggers it" in page.text


def test_runs_are_listed_with_their_state_newest_first(
    desk: Site, alice: Browser, run: str
) -> None:
    desk.lab.store.runs.cancel(run, MAKER, Retention(), "by mistake")
    submit(desk, "Loud desk", priority="high")
    text = alice.get(RUNS).text
    assert text.index("Loud desk") < text.index("Slow desk")
    assert "pending high priority api asked by maker" in text
    assert "by mistake cancelled medium priority" in text


def test_a_filter_says_when_nothing_fits_and_links_keep_it(
    desk: Site, alice: Browser, run: str
) -> None:
    assert "No kept run fits." in alice.get(f"{RUNS}?status=failed").text
    response = alice.get(f"{RUNS}?source=api")
    assert "Slow desk" in response.text
    assert 'href="/console/agents/desk/runs?source=api&amp;status=failed"' in response.source
    assert alice.get(f"{RUNS}?status=odd").status == 422


def test_the_rest_of_the_runs_follows_page_by_page(desk: Site, alice: Browser) -> None:
    for number in range(51):
        submit(desk, f"Task {number}.")
    first = alice.get(f"{RUNS}?priority=medium")
    assert "Task 50." in first.text
    assert "Task 0." not in first.text
    link = first.source.rpartition('<p><a class="button" href="')[2].partition('"')[0]
    assert "priority=medium" in link
    assert "Task 0." in alice.get(link.replace("&amp;", "&")).text


def test_hostile_text_stays_text(desk: Site, alice: Browser) -> None:
    id = submit(desk, "<script>alert(1)</script>", description="<b>" + "x" * 10_000)
    for path in (RUNS, f"{RUNS}/{id}"):
        assert "<script>alert" not in alice.get(path).source
    assert "<b>xxx" in alice.get(f"{RUNS}/{id}").text


def test_a_run_is_submitted_once_however_often_the_form_is_sent(desk: Site, alice: Browser) -> None:
    desk.dispatcher.held = True
    form = alice.get(f"{RUNS}/new").form("/runs")
    responses = [alice.send(form, **TASK, priority="high", context='{"desk": 3}') for _ in range(2)]
    assert responses[0].path == responses[1].path
    assert "Slow desk" in responses[0].text
    assert '"desk": 3' in responses[0].text
    [run] = desk.lab.store.runs.page(10).runs
    assert (run.source, run.priority, run.requested_by) == ("console", "high", ["alice"])


def test_a_form_that_was_changed_before_it_was_sent_again_is_another_run(
    desk: Site, alice: Browser
) -> None:
    form = alice.get("/console/agents/desk/runs/new").form("/runs")
    for title in ("one", "two"):
        assert title in alice.send(form, title=title, description="test").title

    assert len(desk.get("/runs").json["runs"]) == 2


def test_a_refused_form_says_why_and_keeps_what_was_written(desk: Site, alice: Browser) -> None:
    form = alice.get(f"{RUNS}/new").form("/runs")
    page = alice.send(form, title="Slow desk", description="", context="{")
    assert page.status == 422
    assert "Nothing was submitted: context: it is not JSON" in page.text
    assert 'value="Slow desk"' in page.source
    refused = alice.send(form, **TASK, callbackUrl="http://127.0.0.1/")
    assert "Nothing was submitted: callbackUrl: 127.0.0.1 is not a public address" in refused.text
    assert desk.lab.store.runs.page(10).runs == []


def test_a_run_is_cancelled_after_a_confirmation(desk: Site, alice: Browser, run: str) -> None:
    response = alice.get(f"{RUNS}/{run}?do=cancel")
    assert "Cancel this run?" in response.text
    page = alice.send(response.form("/cancel"), reason="by mistake")
    assert "cancelled by alice: by mistake" in page.text
    late = alice.send(response.form("/cancel"), reason="again")
    assert "cancelled by alice: by mistake" in late.text
    assert "again" not in late.text


def test_a_pending_run_tells_what_it_waits_for(alice: Browser, run: str) -> None:
    page = alice.get(f"{RUNS}/{run}")
    assert "It waits for the agent's next iteration." in page.text
    assert "it looks when something triggers it" in page.text
    assert page.title == "Slow desk: pending · Boyd"


def test_a_reader_is_offered_nothing_that_the_key_does_not_allow(guest: Browser, run: str) -> None:
    assert "Submit a run" not in guest.get(RUNS).text
    assert "Cancel…" not in guest.get(f"{RUNS}/{run}").text
    assert guest.get(f"{RUNS}/new").status == 403
    assert guest.get(f"{RUNS}/none").status == 404


def test_a_callback_is_shown_with_its_deliveries_and_delivered_again(
    desk: Site, alice: Browser
) -> None:
    id = submit(desk, callbackUrl="https://hooks.example.com/x")
    before = alice.get(f"{RUNS}/{id}").text
    assert "is sent when the run has ended to https://hooks.example.com/x" in before
    desk.lab.store.runs.cancel(id, MAKER, Retention(), "over")
    page = alice.get(f"{RUNS}/{id}")
    assert "queued after 0 attempts" in page.text
    assert alice.send(page.form("/deliver")).path == f"{RUNS}/{id}"
    entries = desk.get("/audit").json["entries"]
    assert {"run": id} in [
        entry["what"] for entry in entries if entry["kind"] == "callback.redelivered"
    ]


def test_an_approval_that_only_the_archive_has_is_still_kept(
    desk: Site, alice: Browser, run: str, tmp_path: Path
) -> None:
    desk.lab.client.hset(f"boyd:{{desk}}:run:{run}", "approvalId", "a1")
    assert "no longer kept" in alice.get(f"{RUNS}/{run}").text
    with archiving(desk, tmp_path) as archive:
        archive_past(archive, approvals=[approval("a1", 300, 3)])
        text = alice.get(f"{RUNS}/{run}").text

    assert "Approval a1 approved" in text
    assert "no longer kept" not in text


def test_a_list_waits_only_for_an_approval_that_is_pending(
    desk: Site, alice: Browser, run: str
) -> None:
    approval_id = desk.waiting()
    changes = {"status": "investigating", "approvalId": approval_id}
    desk.lab.client.hset(f"boyd:{{desk}}:run:{run}", mapping=changes)
    assert "waits for approval medium priority" in alice.get(RUNS).text
    desk.post(f"/approvals/{approval_id}/deny", headers=desk.key("approvals", principal="bob"))

    assert "investigating medium priority" in alice.get(RUNS).text


@pytest.mark.parametrize("subject", ["runs", "investigations"])
def test_a_list_says_that_the_archive_is_down(desk: Site, alice: Browser, subject: str) -> None:
    desk.services.archive = ArchiveAccess("sqlite:////nowhere/at/all.db")
    text = alice.get(f"/console/agents/desk/{subject}").text

    assert f"Older {subject} are missing: the archive does not answer" in text
