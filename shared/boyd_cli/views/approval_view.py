"""Approvals as rows, in full, and live; and the manifests of their actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING

from boyd.errors import ApiUnavailable
from boyd.models import (
    ActionInfo,
    ActionResult,
    ApprovalItem,
    JsonObject,
    NotificationRecord,
    ProcedureStep,
    describe_outcome,
)
from boyd.models.procedure import AT_ONCE
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.api_access import Api
from boyd_cli.output import Column, label, sentence, whole
from boyd_cli.terminal import EventFollower
from boyd_cli.views import iteration_view

if TYPE_CHECKING:
    from rich.console import Group

#: Targets that are named.
_FIRST = 5


def show_manifest(action: ActionInfo) -> None:
    """Print an action: what it does, its rules, and how it is confined."""
    output.say(f"{action.id}: {action.description}" if action.description else action.id)
    rows = [("sandbox", "none: it runs in the worker, with all its rights")]
    if action.sandbox:
        rows = [(f"sandbox {name}", text) for name, text in action.sandbox.rows]
    output.print_pairs(*_manifest_rows(action), *rows)


def _manifest_rows(action: ActionInfo) -> Iterator[tuple[str, str]]:
    confidence = action.autonomy.min_confidence
    least = f", from confidence {confidence:g}" if confidence is not None else ""
    yield "risk", action.risk
    yield "reversibility", action.reversibility
    yield "autonomy", f"{action.autonomy.mode}{least}"
    yield "alone when", action.alone_when or ""
    yield "windows", ", ".join(action.windows)
    if action.budget:
        yield "budget", f"{action.budget.limit} in {output.seconds(action.budget.window)}"
    yield "target", action.target or ""
    limit = action.concurrency
    yield "in flight", "any number" if limit is None else f"at most {limit} per target"
    yield "params", fields_of(action.params)
    yield "output", fields_of(action.output)
    yield "time limit", output.seconds(action.timeout)
    yield "queue", action.queue or ""
    yield "code", action.code or ""
    also = {
        "dry run": action.dry_run,
        "rollback": action.rollback,
        "verified": action.verify,
        "idempotent": action.idempotent,
    }
    yield "also", ", ".join(name for name, has in also.items() if has)


def fields_of(schema: JsonObject | None) -> str:
    """The names of the fields of a JSON Schema; optional ones in brackets."""
    if schema is None:
        return "any"
    properties, required = schema.get("properties"), schema.get("required")
    names = properties if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    return ", ".join(name if name in needed else f"[{name}]" for name in names)


#: The columns of `row`.
COLUMNS = (
    *(whole("id"), whole("action"), whole("risk"), sentence("why", least=16, drop=1)),
    *(label("asked by", least=9, drop=3), whole("seen", drop=4), whole("votes", drop=2)),
    whole("time left"),
)
#: The columns if there are resolved items.
COLUMNS_OF_ALL = (*COLUMNS[:-1], sentence("time left or end"))

#: Seconds after which a preview is outdated.
_OLD = 60.0
#: The states of a notification in words.
_DELIVERY = {"queued": "waits", "running": "is sent now", "succeeded": "sent"}


def columns(items: Sequence[ApprovalItem]) -> tuple[Column, ...]:
    """The columns for the rows of `table`."""
    return COLUMNS if all(item.status == "pending" for item in items) else COLUMNS_OF_ALL


def table(items: Sequence[ApprovalItem], now: datetime) -> Iterator[list[str]]:
    """The rows of items; the last cell is the time left of a pending one, or how it ended."""
    for item in items:
        is_pending = item.status == "pending"
        yield [
            output.short(item.id),
            # The id of the execution to undo is too long for a column.
            item.title.partition(" (")[0],
            item.risk or "",
            _with_marks(item, now),
            ", ".join(item.askers),
            f"{item.seen}x",
            f"{len(item.counting)}/{item.required.min_approvals}",
            time_left(item, now, output.short_seconds)
            if is_pending
            else resolution_text(item, now),
        ]


def _with_marks(item: ApprovalItem, now: datetime) -> str:
    """The rationale, after what a reader of the list has to know first."""
    marks = {
        "no right to answer": item.no_right,
        "code changed": item.change_of_code,
        "a key of an approver was revoked": len(item.counting) < len(item.approvals),
    }
    keeper = item.keeper(now)
    words = [*(f"({mark})" for mark, holds in marks.items() if holds)]
    words += [f"{keeper.by} has it:"] if keeper else []
    return " ".join([*words, item.decision.rationale])


def outcome(item: ApprovalItem) -> str:
    """The outcome of an approved action; empty until there is one."""
    if item.result is None:
        return ""
    if item.effect is not None and item.effect.verdict is not None:
        return str(describe_outcome(item))
    return iteration_view.action_outcome(item.result, item.title if item.undoes else "")


def time_left(
    item: ApprovalItem, now: datetime, words: Callable[[float], str] = output.seconds
) -> str:
    """The time left to approve it."""
    if item.expires_at is None:
        return "no limit"
    left = (item.expires_at - now).total_seconds()
    return words(int(left)) if left >= 1 else "none"


def resolution_text(item: ApprovalItem, now: datetime) -> str:
    """The end of a resolved item: who, when, and the outcome."""
    by = f" by {item.acted_by}" if item.acted_by and item.status != "expired" else ""
    claimed = f" for {item.claimed_by}" if item.claimed_by else ""
    text = f"{item.status}{by}{claimed} {output.age(item.resolved_at or item.updated_at, now)}"
    came_to = outcome(item) or (progress(item) if item.execution else "")
    return ", ".join(filter(None, [text, came_to]))


def progress(item: ApprovalItem) -> str:
    """The progress of the execution."""
    execution = item.execution
    if item.in_flight:
        return f"waits for its turn: {item.in_flight[0].course}"
    if execution is None:
        return "waits for a worker"
    if execution.state == "queued":
        return execution.delay
    if execution.state == "running" and execution.progress:
        return execution.progress
    where = f" on {execution.worker}" if execution.worker else ""
    return f"{execution.state}{where}"


def refusal(item: ApprovalItem, now: datetime) -> str:
    """The reason for refusing an answer to an item that has expired or is resolved."""
    if item.status == "expired":
        return f"it expired {output.age(item.updated_at, now)}: nothing was executed"
    note = f" with the note {output.one_line(item.note)!r}" if item.note else ""
    return f"it is already resolved: {resolution_text(item, now)}{note}"


def show(item: ApprovalItem, now: datetime) -> None:
    """Print everything about an item."""
    title = item.title if item.undoes else item.action_name or item.action_id
    state = "waits" if item.status == "pending" else resolution_text(item, now)
    output.say(output.one_line(f"{title}: {state}"))
    output.print_pairs(*_rows(item, now))
    output.say("  params")
    output.print_json(item.params, margin=4)
    if item.undone is not None:
        output.say(f"  output of the execution to undo ({item.undoes})")
        output.print_json(item.undone.output, margin=4)
    if item.preview is not None:
        _show_preview(item, item.preview, now)
    if item.result is not None:
        parts = [outcome(item), output.text_of(item.result.output)]
        output.say(f"  result  {output.one_line(': '.join(filter(None, parts)))}")


def _targets(step: ProcedureStep) -> str:
    """The number of targets of a step, the first of them, and how it goes through them."""
    if not isinstance(step.for_each, list):
        return ""
    first = ", ".join(str(item) for item in step.for_each[:_FIRST])
    more = ", …" if len(step.for_each) > _FIRST else ""
    wave = f", waves of {', '.join(map(str, step.wave))} and the rest" if step.wave else ""
    limits = f"{step.at_once or AT_ONCE} at once, stops at {counted(step.stop_at or 1, 'failure')}"
    return f" for {counted(len(step.for_each), 'target')} ({first}{more}){wave}, {limits}"


def _rows(item: ApprovalItem, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", item.id
    yield "action", item.action_id
    yield "target", item.target
    yield "undoes", item.undoes or ""
    yield "why", item.decision.rationale
    yield "done before it was asked", item.done_before
    for hold in item.in_flight:
        yield "in flight", hold.course
    for reason in item.instead_of:
        yield "instead", reason
    yield "code", item.change_of_code or item.code or ""
    yield "problem", item.end_of_problem or ", ".join(item.symptoms)
    yield "acknowledged", item.acknowledgement.describe(now) if item.acknowledgement else ""
    yield "because", item.reason or ""
    for step in item.plan:
        yield "step", f"{step.id}: {step.action or step.ask}{_targets(step)}"
    for review in item.decision.reviews or []:
        yield "review", str(review)
    yield "situation", item.situation_summary or ""
    yield "risk", item.risk or ""
    yield "reversibility", item.reversibility
    yield "confidence", "" if item.confidence is None else f"{item.confidence:g}"
    yield "track record", item.record.about(item.decision.confidence) if item.record else ""
    yield "impact", item.decision.estimated_impact or ""
    yield "asked by", ", ".join(item.askers)
    for request in item.asked:
        yield "asked again", f"by {request.by} {output.age(request.at, now)}: {request.rationale}"
    yield "runs", ", ".join(item.run_ids)
    yield "proposed", f"{output.age(item.created_at, now)}, seen {item.seen}x"
    yield "time left", time_left(item, now) if item.status == "pending" else ""
    yield "queue", item.queue or ""
    yield "digest", item.fingerprint
    yield "policy", item.required.words
    yield "your right", item.no_right or ""
    for vote in item.approvals:
        claimed = f" for {vote.claims}" if vote.claims else ""
        note = f": {vote.note}" if vote.note else ""
        void = ", which does not count: the key was revoked" if vote.revoked else ""
        yield "approved by", f"{vote.by}{claimed} {output.age(vote.at, now)}{note}{void}"
    if item.status != "pending":
        yield "ended", resolution_text(item, now)
    for sent in item.notifications:
        yield "notified", _notification(sent, now)
    yield "note", item.note or ""
    yield "signed link", item.link or ""


def _notification(notification: NotificationRecord, now: datetime) -> str:
    whom = " ".join(filter(None, (notification.group, f"by {notification.kind}")))
    parts = [
        f"{notification.stage}: {whom} {_DELIVERY.get(notification.state, notification.state)}"
    ]
    if notification.at is not None:
        parts.append(
            f"{counted(notification.attempts, 'attempt')}, {output.age(notification.at, now)}"
        )
    if (
        notification.state == "queued"
        and notification.next_at is not None
        and notification.next_at > now
    ):
        parts.append(
            f"next in {output.seconds(ceil((notification.next_at - now).total_seconds()))}"
        )
    return "; ".join([*parts, *filter(None, [notification.error])])


def _show_preview(item: ApprovalItem, preview: ActionResult, now: datetime) -> None:
    """Print the dry run with its age, and the first one if it differs."""
    preview_time = item.preview_at or item.created_at
    first = item.first_preview or preview
    differs = (first.output, first.error) != (preview.output, preview.error)
    old = (now - preview_time).total_seconds() > _OLD and item.status == "pending"
    parts = [
        f"dry run {output.age(preview_time, now)}",
        "OUTDATED: the result may differ now" if old else "",
        "DIFFERS from the first preview" if differs else "",
    ]
    output.say(f"  preview ({'; '.join(filter(None, parts))})")
    _print_preview(preview)
    if differs:
        output.say(f"  first preview ({output.age(item.created_at, now)})")
        _print_preview(first)


def _print_preview(preview: ActionResult) -> None:
    if preview.success:
        output.print_json(preview.output, margin=4)
    else:
        output.say(f"    {output.one_line(iteration_view.action_outcome(preview))}")


#: Seconds between two updates of the time left.
_TICK = 1.0


#: Reads approvals, the pending ones first.
_Reader = Callable[[], list[ApprovalItem]]


def show_queue(items: list[ApprovalItem], now: datetime, form: str) -> None:
    """Print approvals as a list."""
    empty = "No approvals are pending."
    output.print_list(form, items, columns(items), table(items, now), empty)


def watch_queue(api: Api, read: _Reader, form: str) -> None:
    """Show the queue whenever it changes, until Ctrl-C."""
    follower = EventFollower(api.deployment, [api.agent_id])
    try:
        if form == "table" and output.is_terminal():
            _watch_live(api, follower, read)
        else:
            _watch_items(api, follower, read, form)
    except KeyboardInterrupt:
        return


def _watch_items(api: Api, follower: EventFollower, read: _Reader, form: str) -> None:
    before: list[ApprovalItem] | None = None
    while True:
        items = _read(read, before)
        if items != before and not output.print_item(form, items):
            if before is not None:
                output.say()
            show_queue(items, api.agent.now(), form)
        before = items
        while not _has_changed(follower, _TICK * 5):
            pass


def _watch_live(api: Api, follower: EventFollower, read: _Reader) -> None:
    from rich.live import Live

    items = read()
    with Live(console=output.console(), auto_refresh=False) as live:
        while True:
            live.update(_draw(api, items), refresh=True)
            has_changed = _has_changed(follower, _TICK)
            now = api.agent.now()
            if has_changed or any(
                item.status == "pending" and item.expires_at and item.expires_at <= now
                for item in items
            ):
                items = _read(read, items)


def _draw(api: Api, items: list[ApprovalItem]) -> Group:
    from rich.console import Group
    from rich.text import Text

    help_ = Text("boyd approvals approve|deny ID; Ctrl-C quits", "dim")
    if not items:
        return Group(Text("No approvals are pending."), help_)
    rows = table(items, api.agent.now())
    return Group(output.fit_table(columns(items), rows), help_)


def _has_changed(follower: EventFollower, seconds: float) -> bool:
    return any(
        event.kind.startswith(("approval.", "missed")) for _, event in follower.wait(seconds)
    )


def _read(read: _Reader, before: list[ApprovalItem] | None) -> list[ApprovalItem]:
    try:
        return read()
    except ApiUnavailable:  # the follower says so, and that it is back
        if before is None:
            raise
        return before
