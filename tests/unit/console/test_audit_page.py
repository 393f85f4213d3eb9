"""The audit trails: who may see them, what verifies, filters, pages, and the download."""

from __future__ import annotations

import json
from datetime import timedelta
from unittest import mock
from zoneinfo import ZoneInfo

import pytest

from api_kit import MAKER, Site
from boyd.models import Actor, utc_now
from boyd.store.keys import Keys
from boyd_api.console import administration_page
from console_kit import Browser

HOSTILE = "<script>alert(1)</script>\u202e"
TRAIL = "/console/agents/desk/audit"


def record(desk: Site, count: int = 1, kind: str = "test.done", **fields: str) -> None:
    for number in range(count):
        desk.lab.store.audit_trail.append(kind, MAKER, number=number, **fields)


def test_the_trail_says_up_to_where_it_verifies(alice: Browser, desk: Site) -> None:
    record(desk, 3, note="as agreed")
    response = alice.get(TRAIL)

    assert "verified up to #3" in response.text
    assert "#3" in response.text
    assert "maker test.done number 2 “as agreed”" in response.text


def test_the_first_bad_entry_is_named(alice: Browser, desk: Site) -> None:
    record(desk, 3)
    desk.lab.store.audit_trail.seal()
    stream = Keys("desk").audit
    [(id, _fields)] = desk.store.client.xrange(stream, "2-0", "+", count=1)
    desk.store.client.xdel(stream, id)
    response = alice.get(TRAIL)

    assert "Entry #2 does not verify" in response.text
    assert response.title.startswith("Audit of desk: does not verify")
    assert "verified up to" not in response.text


def test_a_long_trail_is_verified_on_request(alice: Browser, desk: Site) -> None:
    record(desk, 3)
    with mock.patch.object(administration_page, "_AT_ONCE", 2):
        desk.lab.store.audit_trail.seal()
        assert "Not verified now, because the trail is long" in alice.get(TRAIL).text
        response = alice.get(f"{TRAIL}?verify=1")

    assert "verified up to #3" in response.text
    # It is not read again with each event.
    assert 'data-live=""' in response.source


def test_a_filter_shows_what_matches_and_keeps_what_was_written(alice: Browser, desk: Site) -> None:
    record(desk, kind="action.started")
    record(desk, kind="approval.pending")
    response = alice.get(f"{TRAIL}?kind=action&by=&since=2h")

    assert "action.started" in response.text
    assert "approval.pending" not in response.text
    assert 'name="kind" value="action"' in response.source
    assert f'href="{TRAIL}/export?since=2h&amp;kind=action"' in response.source
    assert "No entry matches." in alice.get(f"{TRAIL}?by=nobody").text


def test_times_of_a_filter_are_in_the_zone_that_comes_with_them(alice: Browser, desk: Site) -> None:
    record(desk)
    at = utc_now().astimezone(ZoneInfo("Asia/Kolkata")) + timedelta(hours=1)
    hour = f"{at:%Y-%m-%dT%H:%M}"

    assert "No entry matches." in alice.get(f"{TRAIL}?since={hour}&zone=Asia/Kolkata").text
    response = alice.get(f"{TRAIL}?until={hour}&zone=Asia/Kolkata")
    assert "test.done" in response.text
    assert "Times without a zone are in Asia/Kolkata" in response.text
    assert "zone=Asia%2FKolkata" in response.source
    assert "no time zone '../x'" in alice.get(f"{TRAIL}?until={hour}&zone=../x").text


def test_a_wrong_filter_shows_why_and_no_entries(alice: Browser, desk: Site) -> None:
    record(desk)
    response = alice.get(f"{TRAIL}?since=whenever")

    assert "'whenever' is not a time: write 2h, today" in response.text
    assert "test.done" not in response.text


def test_older_entries_are_a_page_away(alice: Browser, desk: Site) -> None:
    record(desk, 3)
    with mock.patch.object(administration_page, "_SHOWN", "2"):
        first = alice.get(f"{TRAIL}?kind=test")
        assert f'href="{TRAIL}?kind=test&amp;cursor=2"' in first.source
        second = alice.get(f"{TRAIL}?kind=test&cursor=2").text

    assert "number 0" not in first.text
    assert "number 2" in first.text
    assert "number 0" in second
    assert "number 2" not in second
    assert "Older" not in second


def test_an_empty_trail_says_so(alice: Browser) -> None:
    assert "Nothing was recorded yet." in alice.get(TRAIL).text


@pytest.mark.parametrize("path", ["/console/audit", TRAIL])
def test_without_the_scope_the_page_says_what_is_missing(guest: Browser, path: str) -> None:
    guest.site.lab.store.audit_trail.append("secret.kind", MAKER)
    page = guest.get(path)

    assert "lacks the scope 'admin'" in page.text
    assert "secret.kind" not in page.text
    assert "verified" not in page.text
    assert guest.get(f"{path}/export").status == 403


def test_a_limited_key_sees_the_trail_of_its_agent_only(desk: Site) -> None:
    limited = Browser(desk, desk.key("admin", agents=["desk"]))

    assert "it concerns all agents, and your key" in limited.get("/console/audit").text
    assert "Nothing was recorded yet." in limited.get(TRAIL).text
    assert limited.get("/console/audit/export").status == 403


def test_filtered_entries_can_be_downloaded(alice: Browser, desk: Site) -> None:
    record(desk, 2, kind="action.started")
    record(desk)
    got = alice.get(f"{TRAIL}/export?kind=action")

    assert [json.loads(line)["kind"] for line in got.source.splitlines()] == ["action.started"] * 2
    assert "audit-desk.ndjson" in got.headers["Content-Disposition"]


def test_hostile_entries_are_shown_as_text(alice: Browser, desk: Site) -> None:
    actor = Actor(principal="<b>x</b>")
    desk.lab.store.audit_trail.append("test.done", actor, note=HOSTILE, run=f"{HOSTILE}/../..")
    response = alice.get(TRAIL)

    assert "<script>alert" not in response.source
    assert "<b>x" not in response.source
    assert "runs/%3Cscript" in response.source
