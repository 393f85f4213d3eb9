"""Those on call are told, and further groups if nobody takes care."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from boyd.errors import PluginError
from boyd.models import Acknowledgement, ApprovalItem, NotificationRecord, Vote
from boyd.plugins.notifier import Notifier
from boyd.plugins.notifier.rota import is_on_call
from kit import approval_item
from plugin_kit import Rig, site

#: A Monday, and the rig's clock.
NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WEEKLY = """\
BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
SUMMARY:On call: Eve Example
DTSTART;TZID=Europe/Vienna:20251201T080000
DTEND;TZID=Europe/Vienna:20251201T200000
RRULE:FREQ=WEEKLY;BYDAY=MO,TU
END:VEVENT
BEGIN:VEVENT
UID:2
SUMMARY:Nights
ATTENDEE;CN="Jane Doe":mailto:jane@example.com
DTSTART;TZID=Europe/Vienna:20251201T200000
DTEND;TZID=Europe/Vienna:20251202T080000
RRULE:FREQ=DAILY
END:VEVENT
END:VCALENDAR
"""


def item(**values: Any) -> ApprovalItem:
    """An approval that waits until an hour from now."""
    return approval_item(NOW, **{"expires_at": NOW + 60 * MINUTE, **values})


def group(name: str, *people: str, **options: Any) -> dict[str, Any]:
    """A group of people, each with a webhook."""
    recipients = [{"url": "http://127.0.0.1:1/", "as": person} for person in people]
    return {"name": name, "recipients": recipients, **options}


def rig(*groups: dict[str, Any], **options: Any) -> Rig:
    """A rig with these groups, at `NOW`."""
    rig = Rig(Notifier(groups=list(groups), **options))
    rig.clock.time = NOW
    return rig


def recipients_of(rig: Rig, stage: Any = "waiting", **values: Any) -> list[str]:
    """The recipients of a stage."""
    entries = rig.plugin.notification_recipients(item(**values), stage, rig.ctx)
    return [entry.id for entry in entries]


def further(rig: Rig, **values: Any) -> list[tuple[str, float]]:
    """The recipients of an escalation, and minutes until each is told."""
    recipients = rig.plugin.escalation_recipients(item(**values), rig.ctx)
    pairs = [(recipient.id, recipient.not_before) for recipient in recipients]
    return [(id, (moment - NOW) / MINUTE) for id, moment in pairs if moment is not None]


def calendar(tmp_path: Path, text: str = WEEKLY) -> dict[str, Any]:
    """A rota in a file."""
    path = tmp_path / "rota.ics"
    path.write_text(text)
    return {"calendar": str(path)}


# The rota


def test_those_on_call_are_asked_by_day_and_by_night(tmp_path: Path) -> None:
    people = group("ops", "eve", "mail:jane@example.com", "bob", rota=calendar(tmp_path))
    assert recipients_of(rig(people)) == ["ops/0"]

    night = rig(people)
    night.clock.time = datetime(2026, 7, 7, 19, 0, tzinfo=UTC)
    assert recipients_of(night) == ["ops/1"], "it is nine in the evening in Vienna in summer"


def test_a_shift_begins_once_in_an_hour_that_clocks_show_twice(tmp_path: Path) -> None:
    shifts = "".join(
        f"BEGIN:VEVENT\nUID:{who}\nDTSTAMP:20260101T000000Z\nSUMMARY:{who}\n"
        f"DTSTART;TZID=Europe/Vienna:{start}\nDTEND;TZID=Europe/Vienna:{end}\nEND:VEVENT\n"
        for who, start, end in (
            ("eve", "20261024T200000", "20261025T023000"),
            ("bob", "20261025T023000", "20261025T200000"),
        )
    )
    text = f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\n{shifts}END:VCALENDAR\n"
    rota = {**calendar(tmp_path, text), "timezone": "Europe/Vienna"}
    two_people = rig(group("ops", "eve", "bob", rota=rota))
    two_people.clock.time = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)
    assert recipients_of(two_people) == ["ops/1"]


@pytest.mark.parametrize(
    ("names", "person", "matches"),
    [
        (["eve"], "On call: Eve Example", True),
        (["eve"], "Steve", False),
        (["jane@example.com"], "jane@example.com", True),
        (["ann", "Jane Doe"], "jane doe", True),
        ([""], "anybody", False),
    ],
)
def test_a_name_in_a_rota_is_whole_words_in_any_case(
    names: list[str], person: str, matches: bool
) -> None:
    assert is_on_call(names, [person]) is matches


def test_without_anybody_on_call_everybody_is_asked_and_the_message_says_so(
    tmp_path: Path,
) -> None:
    with site() as served:
        people = group("ops", "ann", "bob", rota=calendar(tmp_path))
        people["recipients"][0]["url"] = served.url
        plan = rig(people)
        assert recipients_of(plan) == ["ops/0", "ops/1"]
        [hook] = plan.host.hooks("on_approval")
        hook(approval=item(), stage="waiting", recipient="ops/0", ctx=plan.ctx)

    [(_, _, _, body)] = served.requests
    assert "rota: nobody in ops is on call" in json.loads(body)["text"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not an iCalendar file"),
        ("x" * 300_000, "longer than"),
        ("BEGIN:VEVENT\nEND:VEVENT\n", "VEVENT where VCALENDAR"),
    ],
)
def test_a_calendar_that_cannot_be_read_means_everybody_and_the_reason_is_in_the_message(
    tmp_path: Path, text: str, problem: str
) -> None:
    with site() as served:
        people = group("ops", "eve", "bob", rota=calendar(tmp_path, text))
        people["recipients"][0]["url"] = served.url
        plan = rig(people)
        assert recipients_of(plan) == ["ops/0", "ops/1"]
        [hook] = plan.host.hooks("on_approval")
        hook(approval=item(), stage="waiting", recipient="ops/0", ctx=plan.ctx)

    [(_, _, _, body)] = served.requests
    assert re.search(f"the rota of ops cannot be read.*{problem}", json.loads(body)["text"])


def test_a_calendar_is_fetched_once_a_minute_and_not_from_elsewhere() -> None:
    with site() as served:
        served.body = WEEKLY.encode()
        plan = rig(group("ops", "eve", "bob", rota={"calendar": f"{served.url}/rota.ics"}))
        assert [recipients_of(plan) for _ in range(3)] == [["ops/0"]] * 3
        assert len(served.requests) == 1

        served.status, served.headers = 302, {"Location": f"{served.url}/elsewhere"}
        other = rig(group("ops", "eve", "bob", rota={"calendar": f"{served.url}/rota.ics"}))
        assert recipients_of(other) == ["ops/0", "ops/1"]
        assert [path for _, path, _, _ in served.requests] == ["/rota.ics", "/rota.ics"]


def pagerduty(url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A rota at an emulated PagerDuty."""
    monkeypatch.setenv("PD_TOKEN", "y_secret")
    return {"pagerduty": {"schedule": "PSCHED1", "token": {"env": "PD_TOKEN"}, "url": url}}


def test_pagerduty_names_who_is_on_call(monkeypatch: pytest.MonkeyPatch) -> None:
    user = {"id": "PU1", "type": "user", "summary": "Jane Doe", "email": "jane@example.com"}
    with site() as served:
        served.body = json.dumps({"oncalls": [{"user": user, "escalation_level": 1}]}).encode()
        rota = pagerduty(served.url, monkeypatch)
        plan = rig(group("ops", "mail:jane@example.com", "bob", rota=rota))
        assert recipients_of(plan) == ["ops/0"]

    [(method, address, headers, _)] = served.requests
    query = parse_qs(urlsplit(address).query)
    assert (method, urlsplit(address).path) == ("GET", "/oncalls")
    assert query["schedule_ids[]"] == ["PSCHED1"]
    assert query["include[]"] == ["users"]
    assert query["since"] == query["until"] == [NOW.isoformat()]
    assert headers["Authorization"] == "Token token=y_secret"
    assert headers["Accept"] == "application/vnd.pagerduty+json;version=2"


@pytest.mark.parametrize(
    ("status", "body"), [(429, "{}"), (200, "[]"), (200, "{"), (200, "[" * 9999)]
)
def test_an_answer_of_pagerduty_that_is_none_means_everybody(
    monkeypatch: pytest.MonkeyPatch, status: int, body: str
) -> None:
    with site() as served:
        served.status, served.body = status, body.encode()
        plan = rig(group("ops", "eve", "bob", rota=pagerduty(served.url, monkeypatch)))
        assert recipients_of(plan) == ["ops/0", "ops/1"]


@pytest.mark.parametrize(
    "rota", [{}, {"calendar": "x", "timezone": "Mars/Crater"}, {"calendar": "x", "pagerduty": {}}]
)
def test_an_impossible_rota_is_refused(rota: dict[str, Any]) -> None:
    with pytest.raises(PluginError):
        rig(group("ops", "eve", rota=rota))


def test_a_rota_needs_the_names_of_its_recipients(tmp_path: Path) -> None:
    nameless = {"name": "ops", "recipients": ["http://127.0.0.1:1/"], "rota": calendar(tmp_path)}
    with pytest.raises(PluginError, match="on_call"):
        rig(nameless)


# What follows


def record(recipient: str, stage: Any = "waiting", attempts: int = 1) -> NotificationRecord:
    """A notification that was sent, unless *attempts* is 0."""
    return NotificationRecord(
        stage=stage,
        plugin="notifier",
        recipient=recipient,
        group="g",
        kind="webhook",
        state="succeeded",
        attempts=attempts,
    )


def test_the_outcome_is_for_those_on_call_when_it_was_asked_and_not_for_the_next_shift(
    tmp_path: Path,
) -> None:
    plan = rig(group("ops", "eve", "mail:jane@example.com", rota=calendar(tmp_path)))
    plan.clock.time = datetime(2026, 1, 5, 20, 0, tzinfo=UTC)

    assert recipients_of(plan, "verified", notifications=[record("ops/0")]) == ["ops/0"]


def test_the_outcome_reaches_who_approved_it_in_any_group() -> None:
    plan = rig(group("ops", "eve"), group("others", "ann", "bob", default=False))
    votes = [Vote(by="ann", at=NOW)]

    assert recipients_of(plan, "executed", status="approved", approvals=votes) == [
        "ops/0",
        "others/0",
    ]
    assert recipients_of(plan, "answered", status="approved", approvals=votes) == ["ops/0"]


# Further groups


CHAIN = [{"group": "leads", "after": 600}, {"group": "boss", "after": 1200}]


def groups() -> list[dict[str, Any]]:
    """A group that is asked, and two that are not."""
    return [
        group("ops", "eve"),
        group("leads", "ann", "bob", default=False),
        group("boss", "cid", default=False),
    ]


def test_further_groups_have_their_times_from_when_it_was_proposed() -> None:
    plan = rig(*groups(), escalations=CHAIN)

    assert recipients_of(plan) == ["ops/0"]
    assert further(plan) == [("leads/0", 10), ("leads/1", 10), ("boss/0", 20)]


def test_the_times_count_from_the_end_of_an_acknowledgement() -> None:
    plan = rig(*groups(), escalations=CHAIN)
    plan.clock.forward(30 * 60)
    latest = Acknowledgement(by="eve", at=NOW, until=NOW + 15 * MINUTE)

    assert further(plan, acknowledgement=latest) == [
        ("leads/0", 25),
        ("leads/1", 25),
        ("boss/0", 35),
    ]


def test_nothing_is_escalated_at_the_deadline_or_after_it() -> None:
    plan = rig(*groups(), escalations=CHAIN)

    assert further(plan, expires_at=NOW + 20 * MINUTE) == [("leads/0", 10), ("leads/1", 10)]


def test_quiet_hours_hold_an_escalation_back_unless_it_is_critical() -> None:
    quiet = {"start": 12, "end": 13, "timezone": "UTC"}
    plan = rig(
        group("ops", "eve"),
        group("leads", "ann", default=False, quiet=quiet),
        escalations=[{"group": "leads", "after": 600}],
    )
    later = NOW + 600 * MINUTE

    assert further(plan, expires_at=later) == [("leads/0", 60)]
    assert further(plan, expires_at=later, risk="critical") == [("leads/0", 10)]
    assert further(plan) == [], "the quiet hours last until its deadline"


def test_escalations_are_for_the_groups_that_were_asked_and_for_actions_of_the_group() -> None:
    both = [{"group": "leads", "after": 600, "asked": ["desk"]}, {"group": "ops", "after": 60}]
    plan = rig(
        group("ops", "eve"),
        group("desk", "dan", default=False),
        group("leads", "ann", default=False, actions=["svc:*"]),
        escalations=both,
    )
    to_desk = item().required.patched({"groups": ["desk"]})

    assert further(plan) == [], "ops has been asked"
    assert further(plan, required=to_desk) == [("ops/0", 1), ("leads/0", 10)]
    assert further(plan, required=to_desk, action_id="db:drop") == [("ops/0", 1)]


def test_the_outcome_reaches_the_groups_to_which_it_was_escalated() -> None:
    plan = rig(*groups(), escalations=CHAIN)
    notifications = [record("leads/0", "escalated"), record("boss/0", "escalated", attempts=0)]

    assert recipients_of(plan, "verified", notifications=notifications) == ["ops/0", "leads/0"]


def test_it_is_escalated_to_those_on_call_at_that_time(tmp_path: Path) -> None:
    people = ("eve", "mail:jane@example.com")
    leads = group("leads", *people, default=False, rota=calendar(tmp_path))
    plan = rig(group("ops", "bob"), leads, escalations=[{"group": "leads", "after": 600}])
    assert [id for id, _ in further(plan)] == ["leads/0", "leads/1"], "nobody knows yet"

    plan.clock.forward(601)
    assert [id for id, _ in further(plan)] == ["leads/0"]


def test_an_escalation_to_a_group_that_there_is_not_is_refused() -> None:
    with pytest.raises(PluginError, match="there is no group 'nobody'"):
        rig(group("ops", "eve"), escalations=[{"group": "nobody", "after": 600}])
