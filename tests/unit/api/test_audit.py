"""`/audit`: who changed what, page by page, as a whole, and whether it all fits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_kit import Site


@pytest.fixture
def busy(desk: Site) -> Site:
    """A site on which something was changed."""
    for number in range(5):
        desk.post("/pause" if number % 2 else "/resume", {"reason": "x"} if number % 2 else None)
        desk.post(f"/approvals/{desk.waiting(f'{number}')}/deny", {"note": "no"})
    return desk


def entries(site: Site) -> list[Any]:
    """The whole trail, oldest first."""
    return [json.loads(line) for line in site.get("/audit/export").text.splitlines()]


def test_an_entry_tells_who_when_from_where_what_before_and_after(desk: Site) -> None:
    id = desk.waiting()
    desk.post(f"/approvals/{id}/deny", {"note": "no", "actedBy": "the boss"})
    [entry] = [e for e in desk.get("/audit").json["entries"] if e["kind"] == "approval.denied"]

    assert entry["who"] == "alice"
    assert entry["from"] == "127.0.0.1"
    assert entry["key"]
    assert entry["claims"] == "the boss"
    assert entry["note"] == "no"
    assert (entry["before"], entry["after"]) == ("pending", "denied")
    assert entry["what"]["approval"] == id
    assert datetime.fromisoformat(entry["at"]).tzinfo is not None


def test_the_trail_is_shown_newest_first_page_by_page(busy: Site) -> None:
    whole = entries(busy)
    listed, cursor = [], ""
    while cursor is not None:
        query = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = busy.get("/audit", query_string=query).json
        assert 1 <= len(page["entries"]) <= 3
        listed += page["entries"]
        cursor = page.get("nextCursor")

    assert listed == whole[::-1]
    assert [entry["seq"] for entry in whole] == list(range(1, len(whole) + 1))


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "cursor=x", "cursor=-1", "page=1"])
def test_a_query_that_does_not_fit_is_refused(busy: Site, query: str) -> None:
    answer = busy.get(f"/audit?{query}")

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/invalid-request"


def test_an_empty_trail_is_shown_exported_and_fits(desk: Site) -> None:
    assert desk.get("/audit").json == {"entries": []}
    assert desk.get("/audit/export").text == ""
    assert desk.get("/audit/verify").json == {"ok": True, "checked": 0, "waiting": 0}


# Export


def test_the_export_is_one_json_object_a_line_each_with_the_hash_before_it(busy: Site) -> None:
    answer = busy.get("/audit/export")
    lines = entries(busy)

    assert answer.status_code == 200
    assert answer.mimetype == "application/x-ndjson"
    assert answer.text.endswith("}\n")
    assert [entry["prev"] for entry in lines[1:]] == [entry["hash"] for entry in lines[:-1]]


def test_the_export_begins_at_the_given_time(busy: Site) -> None:
    whole = entries(busy)
    later = datetime.now(UTC) + timedelta(minutes=1)

    def since(moment: str) -> int:
        answer = busy.get("/audit/export", query_string={"since": moment})
        assert answer.status_code == 200
        return len(answer.text.splitlines())

    assert since("2000-01-01T00:00:00Z") == len(whole)
    assert since("0001-01-01T00:00:00+23:59") == len(whole)
    assert since("9999-12-31T23:59:59-23:59") == 0
    assert since(later.isoformat()) == 0
    assert since(whole[3]["at"]) >= len(whole) - 3


@pytest.mark.parametrize(
    "since", ["0.5", "5", "1767614400", "x", "", "2026-01-05T12:00", "-5", "1e-9"]
)
def test_a_time_is_written_as_one_with_its_zone(busy: Site, since: str) -> None:
    answer = busy.get("/audit/export", query_string={"since": since})

    assert answer.status_code == 422
    assert answer.json["errors"][0]["parameter"] == "since"


# Verify


def test_a_trail_that_nobody_touched_fits(busy: Site) -> None:
    report = busy.get("/audit/verify").json
    last = entries(busy)[-1]

    assert report["ok"] is True
    assert report["head"] == {"seq": last["seq"], "hash": last["hash"]}
    assert report["waiting"] == 0


def test_a_head_that_was_noted_is_looked_for(busy: Site) -> None:
    noted = entries(busy)[2]
    other = "0" * 64

    def is_valid(head: str) -> bool:
        answer = busy.get("/audit/verify", query_string={"expect": head})
        assert answer.status_code == 200
        return bool(answer.json["ok"])

    assert is_valid(f"{noted['seq']}:{noted['hash']}")
    assert not is_valid(f"{noted['seq']}:{other}")
    assert not is_valid(f"999999:{other}")


@pytest.mark.parametrize("expect", ["", "x", "1", "1:abc", f"0:{'0' * 64}", f"1:{'0' * 64}\n"])
def test_an_invalid_head_is_refused(busy: Site, expect: str) -> None:
    answer = busy.get("/audit/verify", query_string={"expect": expect})

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/invalid-request"


def test_the_first_entry_that_does_not_fit_is_named(busy: Site) -> None:
    busy.get("/audit/verify")
    client = busy.lab.client
    [stream] = [key for key in client.keys("*audit*") if _is_chain(client, key)]
    [third] = client.xrange(stream, "3-0", "3-0")
    client.xdel(stream, third[0])
    report = busy.get("/audit/verify").json

    assert report["ok"] is False
    assert report["misfit"]["seq"] == 3
    assert report["misfit"]["why"] == "missing"


def _is_chain(client: Any, key: str) -> bool:
    return client.type(key) == "stream" and "open" not in key


@pytest.mark.parametrize("path", ["/audit", "/audit/export", "/audit/verify"])
def test_only_admins_see_it(busy: Site, path: str) -> None:
    others = busy.key("read", "trigger", "runs", "actions", "approvals")

    assert busy.get(path, headers=others).status_code == 403
