"""The inbox: its lists and badge, and answers to several approvals at once."""

from __future__ import annotations

import html
import re
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest

from api_kit import Site
from archive_kit import Archive, sqlite
from boyd.models import ApprovalItem
from boyd.store import pending_approvals
from boyd_api.console import session as sessions_of_browsers
from boyd_api.console.inbox_list import PAGE_SIZE
from console_kit import Browser

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe\"'{{7007*7001}}"


def test_the_badge_counts_what_the_list_shows(alice: Browser, bob: Browser, desk: Site) -> None:
    desk.waiting("one")
    desk.waiting("two", principals=["bob"])

    assert "Mine to answer 1 Waiting for others 1" in alice.get("/console/").text
    assert "Mine to answer 2 Waiting for others 0" in bob.get("/console/").text
    assert alice.get("/console/").title.startswith("(1) Inbox")
    others = alice.get("/console/?tab=others")
    assert "text two" in others.text
    assert "text one" not in others.text


def test_the_badge_of_many_requests_compares_none_of_them_with_each_other(
    bob: Browser, desk: Site
) -> None:
    for number in range(30):
        desk.waiting(f"{number}", principals=["bob" if number % 2 else "carol"])
    with mock.patch.object(ApprovalItem, "__eq__") as compare:
        inbox = bob.get("/console/")

    assert "Mine to answer 15 Waiting for others 15" in inbox.text
    assert not compare.called, "each page would take as long as there are pairs"


def test_only_the_list_shortens_long_parameters(alice: Browser, desk: Site) -> None:
    text = "long " * 2000 + "end"
    ticked = f"desk/{desk.waiting(text)}/1"
    listed = alice.get("/console/")
    confirmation = alice.send(listed.form("/answer-several"), chosen=ticked, verb="approve")

    assert "long long" in listed.text
    assert text not in listed.text, "the list is read again with each event"
    assert text in confirmation.text


def test_invisible_characters_of_parameters_are_seen(alice: Browser, desk: Site) -> None:
    id = desk.waiting("/srv/\u202etxt.exe\u200b\x07")
    listed = alice.get("/console/")
    form = listed.form("/answer-several")
    confirmation = alice.send(form, chosen=f"desk/{id}/1", verb="approve")

    for inbox in (listed, confirmation, alice.get(f"/console/agents/desk/approvals/{id}")):
        assert r"/srv/\u202etxt.exe\u200b\u0007" in inbox.text
        assert "\u202e" not in inbox.source


def test_a_reader_has_nothing_to_answer(guest: Browser, desk: Site) -> None:
    desk.waiting("one")
    inbox = guest.get("/console/?tab=others")

    assert "Mine to answer 0 Waiting for others 1" in inbox.text
    assert "answer-several" not in inbox.source or "checkbox" not in inbox.source


def test_an_empty_inbox_says_why_nothing_can_wait(alice: Browser, desk: Site) -> None:
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    inbox = alice.get("/console/")

    assert "Nothing waits, but 1 agent is not watching." in inbox.text
    assert "desk : not watching, no worker consumes the queue loop" in inbox.text
    assert "boyd worker -Q loop" in inbox.text


def test_the_inbox_says_that_nobody_watches_what_waits_in_it(alice: Browser, desk: Site) -> None:
    desk.waiting("one")
    assert "not watching" not in alice.get("/console/").text
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    inbox = alice.get("/console/")

    assert "desk : not watching, no worker consumes the queue loop" in inbox.text
    assert "What it saw last may be over." in inbox.text
    assert "not watching" not in alice.get("/console/?risk=high").text


def test_a_watched_agent_without_approvals_leaves_nothing_to_wait(
    alice: Browser, desk: Site
) -> None:
    assert "Nothing waits for you." in alice.get("/console/").text


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("risk=high", ["two"]),
        ("risk=low", ["one", "three"]),
        ("target=TH", ["three"]),
        ("action=desk:publish", ["one", "two", "three"]),
        ("action=other", []),
        ("agent=desk&target=o", ["one", "two"]),
        ("tab=others", []),
    ],
)
def test_the_inbox_is_filtered(alice: Browser, desk: Site, query: str, rest: list[str]) -> None:
    for text in ("one", "two", "three"):
        desk.waiting(text, risk="high" if text == "two" else "low")
    inbox = alice.get(f"/console/?{query}")

    assert [text for text in ("one", "two", "three") if f"text {text}" in inbox.text] == rest
    assert "Mine to answer 3" in inbox.text


@pytest.mark.parametrize(
    ("order", "texts"),
    [
        ("deadline", ["soon", "later", "never"]),
        ("risk", ["later", "never", "soon"]),
        ("age", ["never", "later", "soon"]),
        ("nonsense", ["soon", "later", "never"]),
    ],
)
def test_the_inbox_is_sorted(alice: Browser, desk: Site, order: str, texts: list[str]) -> None:
    desk.waiting("never", risk="medium", ttl=9000)
    desk.waiting("later", risk="critical", ttl=7200)
    desk.waiting("soon", risk="low", ttl=60)
    source = alice.get(f"/console/?order={order}").text

    assert sorted(texts, key=lambda text: source.index(f"text {text}")) == texts


def test_the_pages_of_the_inbox_show_each_approval_once(alice: Browser, desk: Site) -> None:
    ids = {desk.waiting(f"{number}") for number in range(PAGE_SIZE + 20)}
    first, second = alice.get("/console/"), alice.get("/console/?page=2")

    assert f"1 to {PAGE_SIZE} of {len(ids)} Next" in first.text
    assert f"Previous {PAGE_SIZE + 1} to {len(ids)} of {len(ids)}" in second.text
    listed = re.findall(r"/approvals/([\w-]+)\"", first.source + second.source)
    assert sorted(listed) == sorted(ids)
    assert "Previous" in alice.get("/console/?page=99").text, "the last page, if there are fewer"


def test_an_inbox_that_leaves_approvals_out_says_so(
    alice: Browser, desk: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        desk.waiting(f"{number}", ttl=60 * (number + 1))
    monkeypatch.setattr(pending_approvals, "MOST", 2)
    inbox = alice.get("/console/")

    assert "Mine to answer 2+" in inbox.text
    assert "More approvals wait" in inbox.text
    assert "text 2" not in inbox.text


def test_all_of_a_view_are_listed_before_they_are_answered(alice: Browser, desk: Site) -> None:
    chosen = [desk.waiting(f"{number}", risk="low") for number in range(PAGE_SIZE + 10)]
    other = desk.waiting("another", risk="high")
    view = alice.get("/console/?risk=low")
    confirmation = alice.send(view.form("/answer-several"), all="deny")

    assert f"Deny {len(chosen)} approvals of desk:publish?" in confirmation.text
    ticked = re.findall(r'name="chosen" value="([^"]+)"', confirmation.source)
    assert sorted(text.split("/")[1] for text in ticked) == sorted(chosen)
    done = alice.send(confirmation.form("/answer-several"), chosen=ticked)
    assert f"{len(chosen)} answers of {len(chosen)} count" in done.text
    assert _item(desk, other)["status"] == "pending"


@pytest.mark.long
def test_300_of_5000_are_answered_each_with_its_outcome(
    alice: Browser, bob: Browser, desk: Site
) -> None:
    chosen = [desk.waiting(f"{n}", risk="low") for n in range(5000) if n % 17 == 0 or n < 6]
    for number in range(5000 - len(chosen)):
        desk.waiting(f"other {number}", risk="high")
    view = alice.get("/console/?risk=low&order=age")
    confirmation = alice.send(view.form("/answer-several"), all="approve")
    ticked = re.findall(r'name="chosen" value="([^"]+)"', confirmation.source)
    for id in chosen[:3]:
        bob.send(bob.get(f"/console/agents/desk/approvals/{id}?answer=deny").form("/answer"))

    done = alice.send(confirmation.form("/answer-several"), chosen=ticked)
    assert len(ticked) == len(chosen) == 300
    assert "297 answers of 300 count" in done.text
    assert done.text.count("the approval is denied by bob") == 3
    assert "Mine to answer 4700" in alice.get("/console/").text


def test_a_view_of_several_actions_is_not_answered_at_once(alice: Browser, desk: Site) -> None:
    desk.waiting("one")
    desk.waiting("two", action="desk:other")
    view = alice.get("/console/")

    assert "Filter by one action to answer all of it at once." in view.text
    refused = alice.send(view.form("/answer-several"), all="approve")
    assert refused.status == 400
    assert "filter them" in refused.text


def test_hostile_text_is_shown_as_text(alice: Browser, desk: Site) -> None:
    id = desk.waiting(HOSTILE)
    for path in ("/console/", f"/console/agents/desk/approvals/{id}"):
        inbox = alice.get(path)
        assert "<img" not in inbox.source.replace('<img src="/console', "")
        assert "49056007" not in inbox.text
    assert html.escape("<img src=x onerror=alert(1)>", quote=False) in inbox.source


def test_ticked_approvals_are_listed_before_they_are_answered(alice: Browser, desk: Site) -> None:
    ids = [desk.waiting(text) for text in ("one", "two", "three")]
    form = alice.get("/console/").form("/answer-several")
    ticked = [f"desk/{id}/1" for id in ids[:2]]

    confirmation = alice.send(form, chosen=ticked, verb="approve")
    assert "Approve 2 approvals of desk:publish?" in confirmation.text
    assert all(_item(desk, id)["status"] == "pending" for id in ids)

    done = alice.send(confirmation.form("/answer-several"), chosen=ticked, note="fine")
    assert "2 answers of 2 count" in done.text
    assert [_item(desk, id)["status"] for id in ids] == ["approved", "approved", "pending"]
    assert _item(desk, ids[0])["note"] == "fine"


def test_each_ticked_approval_has_an_outcome_of_its_own(
    alice: Browser, bob: Browser, desk: Site
) -> None:
    ids = [desk.waiting(text) for text in ("one", "two")]
    ticked = [f"desk/{id}/1" for id in ids]
    confirmation = alice.send(
        alice.get("/console/").form("/answer-several"), chosen=ticked, verb="approve"
    )
    theirs = bob.get(f"/console/agents/desk/approvals/{ids[0]}?answer=deny")
    bob.send(theirs.form("/answer"))

    done = alice.send(confirmation.form("/answer-several"), chosen=ticked)
    assert "1 answer of 2 count" in done.text
    assert "the approval is denied by bob" in done.text
    assert _item(desk, ids[1])["status"] == "approved"


def test_ticked_approvals_of_different_actions_are_refused(alice: Browser, desk: Site) -> None:
    ids = [desk.waiting("one"), desk.waiting("two", action="desk:write")]
    form = alice.get("/console/").form("/answer-several")
    inbox = alice.send(form, chosen=[f"desk/{id}/1" for id in ids], verb="deny")

    assert inbox.status == 400
    assert "different actions" in inbox.text
    assert all(_item(desk, id)["status"] == "pending" for id in ids)


def test_several_risky_approvals_need_a_recent_login_too(alice: Browser, desk: Site) -> None:
    risky, bearable = desk.waiting("one", risk="high"), desk.waiting("two")
    form = alice.get("/console/").form("/answer-several")
    ticked = [f"desk/{risky}/1", f"desk/{bearable}/1"]
    confirmation = alice.send(form, chosen=ticked, verb="approve")
    with _long_after_the_login():
        login = alice.send(form, chosen=ticked, verb="approve")
        done = alice.send(confirmation.form("/answer-several"), chosen=ticked)

    assert "needs a login within the last five minutes" in login.text
    assert "1 answer of 2 count" in done.text
    assert "it is risky: open it, and sign in again" in done.text
    assert _item(desk, risky)["status"] == "pending"
    assert _item(desk, bearable)["status"] == "approved"


def test_several_risky_approvals_are_denied_without_another_login(
    alice: Browser, desk: Site
) -> None:
    id = desk.waiting(risk="critical")
    form = alice.get("/console/").form("/answer-several")
    with _long_after_the_login():
        alice.send(form, chosen=f"desk/{id}/1", verb="deny", confirmed="1")

    assert _item(desk, id)["status"] == "denied"


def test_an_approval_of_no_known_agent_leaves_the_outcomes_of_others_visible(
    alice: Browser, desk: Site
) -> None:
    id = desk.waiting()
    form = alice.get("/console/").form("/answer-several")
    ticked = [f"desk/{id}/1", "nobody/x/1"]
    assert alice.send(form, chosen=ticked, verb="approve").status == 200
    done = alice.send(form, chosen=ticked, verb="approve", confirmed="1")

    assert "1 answer of 2 count" in done.text
    assert "no longer known" in done.text
    assert _item(desk, id)["status"] == "approved"


def test_a_ticked_version_that_cannot_be_one_is_refused(alice: Browser, desk: Site) -> None:
    id = desk.waiting()
    form = alice.get("/console/").form("/answer-several")
    for version in ("9" * 5000, "-1", "", "٣"):
        inbox = alice.send(form, chosen=f"desk/{id}/{version}", verb="approve", confirmed="1")
        assert inbox.status == 400
    assert _item(desk, id)["status"] == "pending"


def test_nothing_ticked_changes_nothing(alice: Browser, desk: Site) -> None:
    desk.waiting()
    inbox = alice.send(alice.get("/console/").form("/answer-several"), verb="approve")

    assert inbox.status == 400
    assert "no approval was ticked" in inbox.text


def test_answered_approvals_tell_who_answered_how(alice: Browser, desk: Site) -> None:
    id = desk.waiting("one")
    assert "No approval was answered yet" in alice.get("/console/answered").text
    alice.send(alice.get(f"/console/agents/desk/approvals/{id}?answer=deny").form("/answer"))

    assert "desk:publish on one test denied by alice desk" in alice.get("/console/answered").text


def test_an_answered_approval_can_be_opened_after_redis_has_dropped_it(
    alice: Browser, desk: Site, tmp_path: Path
) -> None:
    id = desk.waiting("one")
    alice.send(alice.get(f"/console/agents/desk/approvals/{id}?answer=deny").form("/answer"))
    archive = Archive(sqlite(tmp_path), desk.store, agent_id="desk")
    archive.copy()
    desk.services.archive = archive.access()
    desk.lab.client.delete(f"boyd:{{desk}}:approval:{id}")

    overview = alice.get("/console/answered")
    page = alice.get(f"/console/agents/desk/approvals/{id}")
    archive.close()
    assert f'href="/console/agents/desk/approvals/{id}"' in overview.source
    assert page.status == 200
    assert "denied by alice" in page.text


def test_a_freeze_and_a_pause_are_on_every_page_with_who_and_why(
    alice: Browser, desk: Site
) -> None:
    desk.post("/freeze-all", {"reason": "storm"})
    desk.post("/pause", {"reason": "upgrade"})

    for path in ("/console/", "/console/answered"):
        text = alice.get(path).text
        assert re.search(r"FROZEN all agents: storm \(by alice\), since \d+ s ago", text)
        assert re.search(r"PAUSED desk: upgrade \(by alice\), since \d+ s ago", text)


def test_an_empty_inbox_says_when_it_was_looked_last(alice: Browser, desk: Site) -> None:
    assert "it has not looked yet" in alice.get("/console/").text
    desk.post("/loop/trigger")
    inbox = alice.get("/console/").text
    assert re.search(r"last look \d+ s ago ?; it looks when something triggers it", inbox)


def _long_after_the_login() -> AbstractContextManager[object]:
    """All logins are too old for what is dangerous."""
    return mock.patch.object(sessions_of_browsers, "FRESH", timedelta(seconds=-1))


def _item(desk: Site, id: str) -> dict[str, object]:
    item: dict[str, object] = desk.get(f"/approvals/{id}").json
    return item
