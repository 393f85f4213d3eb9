"""Messages to people, and the ways to send them: a webhook, or one of the services of Apprise."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import requests

from boyd import naming
from boyd.errors import ConfigError
from boyd.models import (
    ASKING,
    ActionResult,
    ApprovalItem,
    ExecutionEntry,
    Hold,
    JsonObject,
    NotificationStage,
    ProcedureRecord,
    TrackRecord,
    describe_outcome,
    start_of_wait,
)
from boyd.text.formatting import call_text

if TYPE_CHECKING:
    from apprise import Apprise

    from boyd.plugin.http_session import Session


#: The most characters of one line; the page and `boyd approvals show` have everything.
MAX_LINE = 500
_HEADLINES = {
    "waiting": "Approval needed",
    "escalated": "Escalated, approval needed",
    "reminder": "Approval needed again",
    "half-time": "Still waiting for approval",
}
#: What comes before the long link, in this order.
_FIRST = ("outcome", "note", "problem", "why", "time left", "escalated", "acknowledged")
#: Control characters, and those that change the direction of text; joiners make letters and emoji.
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
#: What begins a mention, a link or code in chats, unless a joiner follows that nobody sees.
_MARKUP = re.compile(r"(?<!\w)@(?=\w)|<(?=\S)|\](?=\()|`(?=`)")
#: Inline style, because mail programs drop anything else; it wraps on the narrowest phone.
_BODY = "margin:0;padding:12px;font:16px/1.4 sans-serif;overflow-wrap:anywhere"


@dataclass(frozen=True)
class NotificationMessage:
    """A message about an approval, an action or a procedure.

    Attributes:
        title: one line.
        lines: labels and texts, each on one line; the label may be empty.
        link: the address to look and answer; empty: there is none.
        command: the command that shows it.
        thread: the same for all messages about one thing; empty: it has no thread.
    """

    title: str
    lines: tuple[tuple[str, str], ...]
    link: str
    command: str
    thread: str = ""

    def add(self, label: str, text: str) -> NotificationMessage:
        """The message with a further line, unless *text* is empty."""
        return replace(self, lines=(*self.lines, (label, _one_line(text)))) if text else self

    def text(self) -> str:
        """The message as plain text, without its title."""
        first, rest = ([_inert(": ".join(line)) for line in lines] for lines in self._parts())
        return "\n".join([*first, self.link or self.command, *rest])

    def chat_text(self) -> str:
        """The message with its title for chats that read `&`, `<` and `>` as Slack does."""
        text = re.sub("&(?=(?:amp|lt|gt);)", "&amp;", f"{_inert(self.title)}\n{self.text()}")
        return text.replace("<", "&lt;").replace(">", "&gt;")

    def html(self) -> str:
        """The message as an HTML document that a phone shows without zooming."""
        link = escape(self.link)
        answer = f'<a href="{link}">{link}</a>' if link else f"<code>{escape(self.command)}</code>"
        first, rest = ("".join(map(_paragraph, lines)) for lines in self._parts())
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title></head>"
            f'<body style="{_BODY}">{first}<p>{answer}</p>{rest}</body></html>'
        )

    def _parts(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """The lines before the long link, and the others."""
        rest = (n for n, (label, _) in enumerate(self.lines) if label not in _FIRST)
        end = next(rest, len(self.lines))
        return self.lines[:end], self.lines[end:]


def approval_message(
    item: ApprovalItem, stage: NotificationStage, link: str, now: datetime
) -> NotificationMessage:
    """The message about *item* at *stage*, with the address *link* if there is one."""
    command = f"boyd approvals show {item.id[:8]} --agent {item.agent_id}"
    title = f"{_headline(item, stage)}: {_subject(item)}"
    thread = _thread(item.undoes) or f"approval_{item.id}"
    return _message(title, _rows(item, stage, now, link), command, thread, link)


def suspension_message(hold: Hold, execution: ExecutionEntry, agent_id: str) -> NotificationMessage:
    """The message about an action that is suspended because it did harm."""
    verification = execution.verification
    done = verification.compensation if verification else None
    rows = [
        ("why", hold.reason),
        ("params", _json(execution.params)),
        ("ran on", execution.host or ""),
        ("rollback", f"{done.state}: {done.detail}".removesuffix(": ") if done else ""),
        ("agent", agent_id),
    ]
    title = f"Suspended: {call_text(hold.action, hold.target)}"
    return _message(title, rows, f"boyd actions holds --agent {agent_id}", _thread(execution.id))


def withdrawal_message(
    record: TrackRecord, execution: ExecutionEntry, agent_id: str
) -> NotificationMessage:
    """The message about an action that may not run alone any more."""
    verification = execution.verification
    rows = [
        ("why", record.ended or ""),
        ("situation", record.label),
        ("last execution", execution.id),
        ("evidence", (verification.evidence if verification else None) or ""),
        ("agent", agent_id),
    ]
    title = f"Needs approval again: {record.action}"
    return _message(title, rows, f"boyd autonomy list --agent {agent_id}", _thread(execution.id))


def procedure_message(record: ProcedureRecord, agent_id: str) -> NotificationMessage:
    """The message about a procedure that was stopped or has failed."""
    rows = [
        ("why", record.reason or ""),
        ("where", record.summary),
        ("undone", ", ".join(record.compensated)),
        ("params", _json(record.params)),
        ("agent", agent_id),
    ]
    heading = "Waits for a person" if record.state == "stopped" else "Procedure failed"
    command = f"boyd procedures show {record.id} --agent {agent_id}"
    title = f"{heading}: {call_text(record.action, record.target)}"
    return _message(title, rows, command, _thread(record.id))


def _message(
    title: str, rows: Iterable[tuple[str, str]], command: str, thread: str, link: str = ""
) -> NotificationMessage:
    lines = tuple((label, _one_line(text)) for label, text in rows if text)
    return NotificationMessage(_one_line(title, 200), lines, link, command, thread)


def _thread(execution_id: str | None) -> str:
    """Return the thread of the approval that its name says, or an empty text."""
    approval_id = naming.approval_in(execution_id or "")
    return f"approval_{approval_id}" if approval_id else ""


def _headline(item: ApprovalItem, stage: NotificationStage) -> str:
    if stage in ASKING:
        headline = _HEADLINES[stage]
        over = f"Problem over, {headline[0].lower()}{headline[1:]}"
        return over if item.problem_ended else headline
    if stage == "acknowledged" and item.acknowledgement is not None:
        return f"{item.acknowledgement.by} has it"
    outcome = describe_outcome(item)
    return outcome.words if outcome is not None else "Answered"


def _subject(item: ApprovalItem) -> str:
    return f"{call_text(item.title or item.action_id, item.target)} ({item.agent_id})"


def _incident(item: ApprovalItem, link: str) -> str:
    """The page of what is wrong on the target of *item*, beside the page *link*, if it fits."""
    is_wrong = item.target and any(it.endswith(f" on {item.target}") for it in item.symptoms)
    console = link.rpartition("/console/")[0]
    query = urlencode({"target": item.target, "id": item.created_at.isoformat()})
    page = f"{console}/console/incident?{query}"
    return page if console and is_wrong and len(page) <= MAX_LINE else ""


def _rows(
    item: ApprovalItem, stage: NotificationStage, now: datetime, link: str
) -> Iterator[tuple[str, str]]:
    waits = stage in ASKING or stage == "acknowledged"
    if not waits:
        outcome = describe_outcome(item)
        yield "outcome", outcome.detail if outcome is not None and stage != "answered" else ""
        yield "note", item.note or ""
    if waits or item.status == "expired":
        yield "problem", item.end_of_problem or ""
    yield "why", item.decision.rationale
    if waits:
        yield "time left", _time_left(item, now)
        if stage == "escalated":
            since = start_of_wait(item, now)
            yield "escalated", f"nobody takes care of it since {since:%H:%M:%S} UTC"
        yield "acknowledged", item.acknowledgement.describe(now) if item.acknowledgement else ""
    yield "incident", _incident(item, link)
    yield "done before", item.done_before
    for hold in item.in_flight if waits else ():
        yield "in flight", hold.course
    for reason in item.instead_of:
        yield "instead", reason
    name = item.action_name or item.action_id
    yield "action", name if name == item.action_id else f"{name} ({item.action_id})"
    yield "params", _json(item.params)
    yield "risk", item.risk or "unknown"
    if item.situation_summary != item.decision.rationale:
        yield "situation", item.situation_summary or ""
    yield "undoes", _output_text(item.undone)
    yield "preview", _output_text(item.preview)
    yield "requested by", " and ".join(item.askers)
    if waits:
        yield "requires", item.required.words
        yield "approved so far by", " and ".join(vote.by for vote in item.approvals)
    yield "agent", item.agent_id


def _time_left(item: ApprovalItem, now: datetime) -> str:
    if item.expires_at is None:
        return "no deadline"
    minutes = max(0, round((item.expires_at - now).total_seconds() / 60))
    left = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    return f"{left}, until {item.expires_at:%Y-%m-%d %H:%M:%S} UTC"


def _output_text(result: ActionResult | None) -> str:
    output = (result.output if result.success else result.error) if result else ""
    return output if isinstance(output, str) else _json(output)


def _json(value: object | JsonObject) -> str:
    return json.dumps(value, ensure_ascii=False)


def _one_line(text: str, longest: int = MAX_LINE) -> str:
    line = " ".join(_HIDDEN.sub(" ", text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _paragraph(line: tuple[str, str]) -> str:
    label, text = map(escape, line)
    value = f'<a href="{text}">{text}</a>' if label == "incident" else text
    return f"<p><b>{label}:</b> {value}</p>"


def _inert(text: str) -> str:
    return _MARKUP.sub("\\g<0>\u2060", text)


# An address is a secret, so errors never contain it or a part of it.

#: The services that get HTML; all others get plain text, which mentions nobody and forges no link.
_MAIL = ("mailto", "mailtos")
#: Characters that separate the parts of an address.
_SEPARATORS = re.compile(r"[/:@?&=,#]+")
#: The shortest part of an address that errors hide.
_SECRET = 4


class SendError(Exception):
    """A message that was not accepted; its text has no part of the address."""


def kind_of(url: str) -> str:
    """The kind of service: `webhook`, or the scheme of an Apprise URL."""
    scheme = url.partition("://")[0].lower()
    return "webhook" if scheme in ("http", "https") else scheme


def check_address(url: str) -> None:
    """Check an address without sending anything.

    Raises:
        ValueError: it is invalid, of an unknown service, or Apprise is not installed.
    """
    if "://" not in url:
        raise ValueError("must begin with https:// or the scheme of an Apprise URL")
    if kind_of(url) == "webhook":
        if not urlsplit(url).hostname:
            raise ValueError("has no host")
        return
    try:
        _service(url)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def post_webhook(
    session: Session, url: str, body: dict[str, Any], headers: dict[str, str], timeout: float
) -> None:
    """Post JSON once; a redirect is a failure.

    Raises:
        SendError: it was not accepted.
    """
    try:
        answer = session.post(
            url, json=body, headers=headers, timeout=timeout, allow_redirects=False
        )
    except requests.RequestException as error:
        # The error itself would show the URL.
        raise SendError(f"the webhook failed: {type(error).__name__}") from None
    if not 200 <= answer.status_code < 300:
        raise SendError(f"the webhook answered {answer.status_code}")


def send_by_apprise(url: str, message: NotificationMessage, waits: bool) -> None:
    """Send once through Apprise; *waits* marks a message that asks for an answer.

    Raises:
        SendError: it was not accepted.
    """
    from apprise import NotifyFormat, NotifyType

    is_mail = kind_of(url) in _MAIL
    address = _in_thread(url, message.thread) if is_mail and message.thread else url
    result = _service(address).notify(
        body=message.html() if is_mail else message.text(),
        title=message.title if is_mail else _inert(message.title),
        body_format=NotifyFormat.HTML if is_mail else NotifyFormat.TEXT,
        notify_type=NotifyType.WARNING if waits else NotifyType.INFO,
    )
    if not result:
        errors = "; ".join(entry.message for attempt in result.results for entry in attempt.logs())
        raise SendError(f"{kind_of(url)} failed: {_without_url(errors, url) or result.status.name}")


def _in_thread(url: str, thread: str) -> str:
    """An address of mail with the headers that join it to a thread.

    Apprise makes each Message-ID itself, so all messages refer to one that was never sent; RFC 5256
    threads them nevertheless.
    """
    root = quote(f"<{thread}@boyd>")
    return f"{url}{'&' if '?' in url else '?'}+In-Reply-To={root}&+References={root}"


def _service(url: str) -> Apprise:
    """An Apprise object for *url* alone.

    It sends in the calling thread, which has a time limit of its own: without a timeout Apprise
    starts no threads. It follows no redirects, keeps nothing on disk and sends one message, cut if
    it is too long.

    Raises:
        ConfigError: the URL is invalid, or Apprise is not installed.
    """
    # Imported only here: it is an extra, and takes a fifth of a second.
    try:
        from apprise import Apprise, AppriseAsset, OverflowMode, PersistentStoreMode
    except ImportError:
        raise ConfigError("needs Apprise: pip install 'boyd[notify]'") from None
    # It logs addresses; what went wrong is in its results.
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    asset = AppriseAsset(
        app_id="Boyd",
        app_desc="Boyd",
        app_url="",
        async_mode=False,
        http_redirects=False,
        storage_mode=PersistentStoreMode.MEMORY,
        service_timeout=0,
        allow_templates=False,
    )
    service = Apprise.instantiate(url, asset=asset)
    if service is None:
        raise ConfigError(f"is not a valid Apprise URL of the service {kind_of(url)!r}")
    service.overflow_mode = OverflowMode.TRUNCATE
    sender = Apprise(asset=asset)
    sender.add(service)
    return sender


def _without_url(text: str, url: str) -> str:
    """*text* on one line, without any part of *url*."""
    rest = url.partition("://")[2]
    parts = {part for each in (rest, unquote(rest)) for part in _SEPARATORS.split(each)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SECRET:
            text = text.replace(part, "***")
    return " ".join(text.split())
