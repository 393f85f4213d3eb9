"""Groups of people are notified by mail, chat or webhook, as the options say."""

from __future__ import annotations

import html
import json
import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import (
    ActionResult,
    ApprovalItem,
    ApprovalPolicy,
    Decision,
    ExecutionEntry,
    Hold,
    NotificationRecord,
    ProcedureRecord,
    TrackRecord,
    Vote,
)
from boyd.plugins.notifier import Notifier, QuietHours
from boyd.plugins.notifier.message import (
    NotificationMessage,
    SendError,
    approval_message,
    send_by_apprise,
    suspension_message,
)
from boyd.security.links import LinkBuilder, LinkSigner
from boyd.settings.permissions import WEEKDAYS
from harness import free_port
from kit import approval_item, choice
from mail_kit import mail_server, parts_of
from plugin_kit import Rig, site

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SECRET = "a secret with more than thirty-two characters"
LINK = "https://boyd.example.com/console/agents/test/approvals/4711"


ENDED = ExecutionEntry(id="loop:1", state="succeeded", action="disk:clean", params={}, target="")


def item(**values: Any) -> ApprovalItem:
    decision = choice("disk:clean", rationale="/ is 97 % full")
    own = {"action_id": "disk:clean", "decision": decision, "params": {"path": "/"}}
    return approval_item(NOW, **{**own, **values})


def action_result(**values: Any) -> ActionResult:
    """The result of the action, which succeeded unless *values* say otherwise."""
    return ActionResult(**{"action": "disk:clean", "success": True, "duration": 1.0, **values})


def message(stage: Any = "waiting", link: str = "", **values: Any) -> NotificationMessage:
    """The message about an approval."""
    return approval_message(item(**values), stage, link, NOW)


def tell(
    recipient: Any, stage: str = "waiting", links: LinkBuilder | None = None, **values: Any
) -> None:
    """Send one message to a recipient."""
    rig = Rig(Notifier(groups=[{"name": "ops", "recipients": [recipient]}]))
    [hook] = rig.host.hooks("on_approval")
    ctx = rig.ctx
    if links is not None:
        object.__setattr__(ctx, "_link", links.link)
    hook(approval=item(**values), stage=stage, recipient="ops/0", ctx=ctx)


# The message


def test_a_message_says_what_why_and_how_to_answer() -> None:
    past = "disk:clean (12 min earlier): effective"
    notice = message(expires_at=NOW + timedelta(minutes=90), target="web1", done_before=past)

    assert notice.title == "Approval needed: disk:clean on web1 (test)"
    assert notice.text().splitlines() == [
        "why: / is 97 % full",
        "time left: 1 h 30 min, until 2026-03-02 13:30:00 UTC",
        "boyd approvals show 4711 --agent test",
        f"done before: {past}",
        "action: disk:clean",
        'params: {"path": "/"}',
        "risk: medium",
        "requested by: the agent",
        "requires: one approval, by anyone, not by the requester",
        "agent: test",
    ]


def test_a_message_has_the_preview_the_policy_in_words_who_asked_and_what_is_undone() -> None:
    preview = ActionResult(action="disk:clean", success=True, duration=1, output="9 files\n4 MB")
    undone = ActionResult(action="disk:clean", success=True, duration=1, output={"freed": "3 GB"})
    policy = ApprovalPolicy(min_approvals=2, groups=["ops"], person=True, require_note=True)
    lines = message(
        preview=preview, required=policy, requested_by=["agent:test", "ann"], undone=undone
    ).lines

    assert ("preview", "9 files 4 MB") in lines
    assert ("requested by", "the agent and ann") in lines
    assert ("undoes", '{"freed": "3 GB"}') in lines
    words = "2 approvals, by a person (group ops), not by the requester, with a note"
    assert ("requires", words) in lines
    assert ("time left", "no deadline") in lines


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ({"status": "approved", "acted_by": "ann"}, "Approved by ann: disk:clean (test)"),
        ({"status": "denied", "acted_by": "bob"}, "Denied by bob: disk:clean (test)"),
        ({"status": "withdrawn", "acted_by": "agent:x"}, "Withdrawn by agent:x: disk:clean (test)"),
        ({"status": "expired"}, "Expired without an answer: disk:clean (test)"),
    ],
)
def test_an_answer_says_what_it_was_and_by_whom(values: Any, title: str) -> None:
    notice = message("answered", note="not today", **values)
    assert notice.title == title
    assert notice.lines[0] == ("note", "not today")
    assert "requires" not in dict(notice.lines)


def test_an_escalated_message_says_since_when_nobody_takes_care_of_it() -> None:
    lines = dict(message("escalated").lines)
    assert lines["escalated"] == "nobody takes care of it since 12:00:00 UTC"
    assert "escalated" not in dict(message("half-time").lines)


def test_a_message_about_a_problem_that_is_over_says_so_in_its_title() -> None:
    over = message("half-time", problem_ended=True, symptoms=["disk on /"])
    assert over.title == "Problem over, still waiting for approval: disk:clean (test)"
    expired = message("answered", status="expired", problem_ended=True, symptoms=["disk on /"])
    assert ("problem", "The problem is over: disk on /") in expired.lines


def test_a_message_says_a_reason_once_that_is_also_the_situation() -> None:
    assert "situation" not in dict(message(situation_summary="/ is 97 % full").lines)
    assert "situation" in dict(message(situation_summary="/ is full, /var is well").lines)


def test_a_rollback_and_a_suspension_are_in_the_thread_of_the_action() -> None:
    cleaned = ENDED.patched({"id": "approval:4711"})
    hold = Hold(action="disk:clean", kind="suspended", execution="approval:4711", since=NOW)
    thread = message().thread
    assert message(id="4712", undoes="approval:4711").thread == thread
    assert suspension_message(hold, cleaned, "test").thread == thread
    undone = ENDED.patched({"id": "rollback:approval:4711"})
    assert suspension_message(hold, undone, "test").thread == thread
    assert suspension_message(hold, ENDED, "test").thread == ""


def test_hostile_text_stays_on_its_line_and_is_no_markup() -> None:
    decision = Decision(
        action="x", rationale="a\nrequires: nothing\x1b[2J \u202e<b>b</b>", confidence=1.0
    )
    notice = message(decision=decision, title="<script>x</script>")
    assert ("why", "a requires: nothing [2J <b>b</b>") in notice.lines
    assert "<script>" not in notice.html()
    assert "&lt;b&gt;b&lt;/b&gt;" in notice.html()
    long = message(decision=Decision(action="x", rationale="y" * 999, confidence=1))
    assert len(dict(long.lines)["why"]) == 500


def test_joiners_that_words_and_emoji_need_stay() -> None:
    text = "\u0645\u06cc\u200c\u0634\u0648\u062f \U0001f468\u200d\U0001f4bb"
    notice = message(decision=Decision(action="x", rationale=text, confidence=1))
    assert dict(notice.lines)["why"] == text


# Webhooks


def test_a_chat_gets_text() -> None:
    with site() as chat:
        tell(f"{chat.url}/hook")
        [(method, path, headers, body)] = chat.requests

    assert (method, path) == ("POST", "/hook")
    assert json.loads(body)["text"].startswith("Approval needed: disk:clean (test)\n")
    assert headers["webhook-id"] == "approval_4711_waiting"


@pytest.mark.parametrize("scheme", ["http://", "json://"])
def test_nothing_in_a_chat_mentions_people_or_poses_as_a_link(scheme: str) -> None:
    text = (
        "<!channel> <https://x.example|ok> @all, @here [ok](https://x.example) ``` &lt; a@b.example"
    )
    with site() as chat:
        decision = Decision(action="x", rationale=text, confidence=1)
        links = LinkBuilder("https://boyd.example.com")
        address = chat.url.replace("http://", scheme)
        tell(address, "waiting", links, decision=decision, target="@here", symptoms=["a on @here"])
        [(_, _, _, body)] = chat.requests

    read = "\n".join(str(value) for value in json.loads(body).values())
    for markup in ("<!", "<h", "@all", "@here", "](", "```"):
        assert markup not in read
    assert "a@b.example" in read
    assert "/console/incident?target=%40here&id=" in read
    text_shown = read.replace("\u2060", "")
    assert text in (html.unescape(text_shown) if scheme == "http://" else text_shown)


def test_another_system_gets_the_whole_approval() -> None:
    with site() as system:
        recipient = {"url": system.url, "style": "json", "headers": {"X-Token": "hidden"}}
        links = LinkBuilder("https://boyd.example.com")
        tell(recipient, "answered", links, status="expired")
        [(_, _, headers, body)] = system.requests

    data = json.loads(body)
    assert (data["stage"], data["agent"], data["approval"]["id"]) == ("answered", "test", "4711")
    assert (headers["X-Token"], data["link"]) == ("hidden", LINK)


ABOUT: dict[str, dict[str, Any]] = {
    "on_suspend": {
        "hold": Hold(action="disk:clean", kind="suspended", execution="loop:1", since=NOW),
        "execution": ENDED,
    },
    "on_withdraw": {
        "record": TrackRecord(action="disk:clean", situation="s", label="s"),
        "execution": ENDED,
    },
    "on_procedure": {
        "procedure": ProcedureRecord(
            id="loop:1",
            action="disk:clean",
            params={},
            state="stopped",
            steps=[],
            started_at=NOW,
            until=NOW,
        )
    },
}


@pytest.mark.parametrize(
    ("hook", "stage"),
    [("on_suspend", "suspended"), ("on_withdraw", "withdrawn"), ("on_procedure", "stopped")],
)
def test_every_json_message_has_its_stage_its_agent_and_what_it_is_about(
    hook: str, stage: str
) -> None:
    with site() as system:
        recipient = {"url": system.url, "style": "json"}
        rig = Rig(Notifier(groups=[{"name": "ops", "recipients": [recipient]}]))
        [call] = rig.host.hooks(hook)
        call(**ABOUT[hook], ctx=rig.ctx)
        [(_, _, _, body)] = system.requests

    sent = json.loads(body)
    assert (sent["stage"], sent["agent"]) == (stage, "test")
    assert set(sent) == {"stage", "agent", *ABOUT[hook]}


@pytest.mark.parametrize("status", [302, 403, 500])
def test_a_webhook_that_refuses_is_a_failure_that_hides_its_address(status: int) -> None:
    with site() as chat:
        chat.status = status
        with pytest.raises(SendError, match=f"the webhook answered {status}") as failure:
            tell(f"{chat.url}/secret-path")
        assert len(chat.requests) == 1
        address = chat.url
    with pytest.raises(SendError, match="ConnectionError") as unreachable:
        tell(f"{address}/secret-path")
    assert "secret-path" not in f"{failure.value} {unreachable.value}"


# Apprise


def test_a_mail_has_plain_text_and_html_that_a_phone_shows() -> None:
    with mail_server() as box:
        tell(box.address, "waiting", LinkBuilder("https://boyd.example.com"), title="Clean /")
        [mail] = box.mails
    parts = parts_of(mail)

    assert mail.get_content_type() == "multipart/alternative"
    assert (mail["To"], mail["Subject"]) == ("jane@example.com", "Approval needed: Clean / (test)")
    plain, html = parts["text/plain"], parts["text/html"]
    for expected in (LINK, "why: / is 97 % full", 'params: {"path": "/"}', "risk: medium"):
        assert expected in plain
    assert f'<a href="{LINK}">' in html
    assert "width=device-width" in html
    assert "overflow-wrap:anywhere" in html


def test_mails_about_one_approval_refer_to_the_same_message() -> None:
    with mail_server() as box:
        tell(box.address)
        tell(box.address, "executed", status="approved", acted_by="ann", result=action_result())
        first, second = box.mails

    assert first["References"] == second["References"] == "<approval_4711@boyd>"
    assert first["In-Reply-To"] == second["In-Reply-To"] == "<approval_4711@boyd>"
    assert first["Message-ID"] != second["Message-ID"]
    assert second["Subject"] == "Succeeded: disk:clean (test)"


class Log(logging.Handler):
    """Keeps what reaches the root logger, as the log of a process does."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "urllib3.connectionpool":  # the process logs its warnings only
            self.lines.append(record.getMessage())


def test_apprise_posts_and_what_fails_hides_the_address() -> None:
    log, root = Log(), logging.getLogger()
    root.addHandler(log)
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        with site() as chat:
            address = chat.url.replace("http://", "json://") + "/secret-path"
            tell(address)
            [(_, _, _, body)] = chat.requests
            assert json.loads(body)["title"] == "Approval needed: disk:clean (test)"
            chat.status, chat.headers = 302, {"Location": "/secret-place"}
            with pytest.raises(SendError, match="error=302") as failure:
                tell(address)
            assert [path for _, path, _, _ in chat.requests] == ["/secret-path"] * 2
        options = "from=b@example.com&to=j@example.com"
        with pytest.raises(SendError, match="mailto failed") as unreachable:
            tell(f"mailto://jane:sesame-open@127.0.0.1:{free_port()}?{options}")
    finally:
        root.setLevel(level)
        root.removeHandler(log)
    text = "\n".join([str(failure.value), str(unreachable.value), *log.lines])
    for secret in ("secret-p", "sesame-open", "example.com"):
        assert secret not in text


def test_apprise_sends_in_the_thread_that_calls_it() -> None:
    before = set(threading.enumerate())
    with site() as chat:
        address = chat.url.replace("http://", "json://")
        send_by_apprise(address, message(), waits=True)
        names = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in names if "ThreadPoolExecutor" in name]


def test_a_long_message_is_one_message_cut_short() -> None:
    long = [("p", "x" * 500)] * 100
    with site() as chat:
        address = chat.url.replace("http://", "json://")
        send_by_apprise(address, NotificationMessage("t", tuple(long), LINK, ""), waits=True)
        [(_, _, _, body)] = chat.requests
    assert json.loads(body)["message"].startswith(LINK)


class Approvals:
    """One approval, which `ops/1` and somebody else were told of, and ann has given."""

    def get(self, approval_id: str) -> ApprovalItem | None:
        """The approval, if that is its id."""
        skipped = NotificationRecord(
            stage="waiting", plugin="notifier", recipient="ops/0", group="ops", kind="webhook"
        )
        records = [skipped, skipped.patched({"recipient": "ops/1", "attempts": 1})]
        votes = [Vote(by="ann", at=NOW)]
        return item(notifications=records, approvals=votes) if approval_id == "4711" else None


@pytest.mark.parametrize(
    ("execution", "approval", "paths"),
    [
        ("loop:1", None, ["/a", "/b", "/ann"]),
        ("approval:4711", "4711", ["/b", "/ann"]),
        ("rollback:loop:1", "4711", ["/b", "/ann"]),
        ("approval:4700", "4700", ["/a", "/b", "/ann"]),
    ],
)
def test_those_who_know_of_the_approval_hear_of_a_suspension(
    execution: str, approval: str | None, paths: list[str]
) -> None:
    hold = Hold(action="disk:clean", kind="suspended", execution=execution, since=NOW)
    with site() as chat:
        ops = [f"{chat.url}/a", f"{chat.url}/b"]
        own = [{"url": f"{chat.url}/ann", "as": "ann"}]
        groups = [{"name": "ops", "recipients": ops}, {"name": "own", "recipients": own}]
        rig = Rig(Notifier(groups=groups))
        [hook] = rig.host.hooks("on_suspend")
        approvals: Any = Approvals()
        entry = ENDED.patched({"id": execution, "approval_id": approval})
        hook(hold=hold, execution=entry, ctx=replace(rig.ctx, _approvals=approvals))

    assert [path for _, path, _, _ in chat.requests] == paths


# Signed links


def test_only_who_may_answer_by_a_link_gets_one_and_only_to_answer() -> None:
    signer = LinkSigner(SECRET)
    links = LinkBuilder("https://boyd.example.com", signer)
    jane = {"as": "mail:jane@example.com", "groups": ["ops"]}
    policy = ApprovalPolicy(links="bearer", groups=["ops"])

    def link(stage: str, **recipient: Any) -> str:
        with site() as chat:
            tell({"url": chat.url, **recipient}, stage, links, required=policy)
            text: str = json.loads(chat.requests[0][3])["text"]
        return next(line for line in text.splitlines() if line.startswith("https://"))

    signed = signer.read(link("waiting", **jane).rpartition("/")[2])
    assert signed is not None
    assert (signed.to.principal, signed.to.groups) == ("mail:jane@example.com", ["ops"])
    assert link("answered", **jane) == LINK
    assert link("waiting") == LINK
    assert link("waiting", **{**jane, "groups": ["dev"]}) == LINK


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_message_links_to_what_is_wrong_on_the_target(style: str) -> None:
    links = LinkBuilder("https://boyd.example.com")
    page = f"{links.url}/console/incident?target=web+1&id=2026-03-02T12%3A00%3A00%2B00%3A00"
    with site() as chat:
        recipient = {"url": chat.url, "style": style}
        tell(recipient, "waiting", links, target="web 1", symptoms=["endpoint on web 1"])
        tell(recipient, "waiting", links, target="web 1", symptoms=["endpoint on web 10"])
        (_, _, _, first), (_, _, _, second) = chat.requests

    assert page.encode() in first
    assert (style == "json") == (json.loads(first).get("incident") == page)
    assert b"console/incident" not in second


def test_a_link_that_would_be_cut_is_left_out() -> None:
    long = "\u00fc" * 100
    notice = message(link=LINK, target=long, symptoms=[f"endpoint on {long}"])
    assert notice.lines == message(link=LINK, target=long).lines
    assert "incident" in dict(message(link=LINK, target="a", symptoms=["b on a"]).lines)


# Who is notified, and when


def recipients(groups: list[dict[str, Any]], stage: Any = "waiting", **values: Any) -> list[str]:
    """The recipients of an approval."""
    options = [{"recipients": ["https://chat.example"], **group} for group in groups]
    rig = Rig(Notifier(groups=options))
    return [
        recipient.id
        for recipient in rig.plugin.notification_recipients(item(**values), stage, rig.ctx)
    ]


def test_an_approval_goes_to_the_groups_of_its_policy_or_to_the_default_ones() -> None:
    groups: list[dict[str, Any]] = [
        *({"name": "ops"}, {"name": "dba", "default": False}, {"name": "all"}),
    ]
    of_dba = ApprovalPolicy(groups=["dba", "root"])
    assert recipients(groups, required=of_dba) == ["dba/0"]
    assert recipients(groups) == ["ops/0", "all/0"]
    assert recipients(groups, required=ApprovalPolicy(groups=["root"])) == ["ops/0", "all/0"]


def test_a_group_chooses_stages_actions_and_risk() -> None:
    both = {"name": "ops", "recipients": ["https://a.example", "https://b.example"]}
    assert recipients([both]) == ["ops/0", "ops/1"]
    assert recipients([{"name": "ops", "stages": ["answered"]}]) == []
    assert recipients([{"name": "ops", "actions": ["db:*"]}]) == []
    assert recipients([{"name": "ops", "min_risk": "high"}]) == []
    assert recipients([{"name": "ops", "min_risk": "high"}], risk="critical") == ["ops/0"]
    assert recipients([{"name": "ops", "min_risk": "high"}], risk=None) == ["ops/0"]


def test_quiet_hours_hold_back_what_is_not_critical() -> None:
    quiet = {"start": 8, "end": 18}  # the rig's clock says 12:00 UTC
    group = {"name": "ops", "recipients": ["https://a.example"], "quiet": quiet}
    rig = Rig(Notifier(groups=[group]))

    def until(**values: Any) -> datetime | None:
        [recipient] = rig.plugin.notification_recipients(item(**values), "waiting", rig.ctx)
        moment: datetime | None = recipient.not_before
        return moment

    assert until() == rig.clock.time.replace(hour=18)
    assert until(risk="critical") is None
    grave = Decision(action="x", rationale="x", confidence=1.0, risk="critical")
    assert until(decision=grave) is None
    rig.clock.forward(6 * 3600)
    assert until() is None


@pytest.mark.parametrize(
    ("now", "ends"),
    [
        ("2026-03-28T23:30+01:00", "2026-03-29T07:00+02:00"),  # clocks go forward at 2
        ("2026-10-24T23:30+02:00", "2026-10-25T07:00+01:00"),  # clocks go back at 3
        ("2026-10-25T02:30+02:00", "2026-10-25T07:00+01:00"),  # the first 2:30 of two
        ("2026-03-02T06:59+01:00", "2026-03-02T07:00+01:00"),
        ("2026-03-02T07:00+01:00", None),
        ("2026-03-02T21:59+01:00", None),
    ],
)
def test_quiet_hours_follow_the_clocks_of_their_zone(now: str, ends: str | None) -> None:
    hours = QuietHours(start=22, end=7, timezone="Europe/Vienna")
    moment = hours.until(datetime.fromisoformat(now).astimezone(UTC))
    assert moment == (datetime.fromisoformat(ends) if ends else None)


def test_quiet_hours_of_a_zone_that_is_off_by_quarters_end_on_time() -> None:
    hours = QuietHours(start=22, end=7, timezone="Asia/Kathmandu")
    now = datetime.fromisoformat("2026-03-02T23:00+05:45")
    assert hours.until(now) == datetime.fromisoformat("2026-03-03T07:00+05:45")


def test_a_quiet_weekend_ends_on_monday() -> None:
    hours = QuietHours(start=0, end=24, weekdays=["sat", "sun"])
    saturday = datetime(2026, 3, 7, 9, 20, 30, tzinfo=UTC)
    assert hours.until(saturday) == datetime(2026, 3, 9, tzinfo=UTC)


# Wrong options


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ({"recipients": []}, "recipients"),
        ({"recipients": ["chat.example"]}, "scheme of an Apprise URL"),
        ({"recipients": ["https:///x"]}, "has no host"),
        ({"recipients": ["slak://a/b/secret-c"]}, "not a valid Apprise URL of the service 'slak'"),
        ({"recipients": ["mailto://"]}, "not a valid Apprise URL of the service 'mailto'"),
        ({"recipients": [{"url": "json://x", "style": "json"}]}, "are for webhooks"),
        ({"recipients": [{"url": "https://x", "person": True}]}, "describe the principal"),
        ({"recipients": [{"url": "https://x", "as": "two words"}]}, "pattern"),
        ({"quiet": {"start": 0, "end": 24}}, "must end at some time"),
        (
            {"quiet": {"start": 0, "end": 24, "weekdays": [*WEEKDAYS, "mon"]}},
            "must end at some time",
        ),
        ({"stages": ["created"]}, "stages"),
        ({"urls": ["https://x"]}, "not known"),
    ],
)
def test_wrong_options_are_refused_and_hide_the_address(group: dict[str, Any], reason: str) -> None:
    options = {"name": "ops", "recipients": ["https://chat.example"], **group}
    with pytest.raises(PluginError, match=reason) as error:
        Notifier(groups=[options])
    assert "secret-c" not in str(error.value)


def test_two_groups_of_one_name_are_refused() -> None:
    group = {"name": "ops", "recipients": ["https://chat.example"]}
    with pytest.raises(PluginError, match="same name"):
        Notifier(groups=[group, group])


def test_addresses_are_not_shown() -> None:
    notifier = Notifier(
        groups=[{"name": "ops", "recipients": ["slack://TokenAAAA/TokenBBBB/TokenCCCC"]}]
    )
    assert "TokenBBBB" not in f"{notifier.options!r} {notifier.options.model_dump_json()}"
    rig = Rig(notifier)
    [recipient] = notifier.notification_recipients(item(), "waiting", rig.ctx)
    assert "Token" not in recipient.to_json()
