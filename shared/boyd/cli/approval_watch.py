"""`boyd approvals list --watch`: the queue, drawn anew with each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from boyd.cli import approval_view, output
from boyd.cli.connection import Api
from boyd.cli.follow import Follower
from boyd.errors import ApiUnavailable
from boyd.models import ApprovalItem, ApprovalQueue

if TYPE_CHECKING:
    from rich.console import Group

#: Seconds between two looks at the clock, for the time that is left.
_TICK = 1.0


def watch_queue(api: Api, read: Callable[[], ApprovalQueue], form: str) -> None:
    """Show the queue whenever it changes, until Ctrl-C."""
    follower = Follower(api.deployment, [api.agent_id])
    try:
        if form == "table" and output.is_terminal():
            _watch_live(api, follower, read)
        else:
            _watch_items(api, follower, read, form)
    except KeyboardInterrupt:
        return


def _watch_items(
    api: Api, follower: Follower, read: Callable[[], ApprovalQueue], form: str
) -> None:
    shown: ApprovalQueue | None = None
    while True:
        queue = _read(read, shown)
        if queue != shown and not output.print_item(form, queue):
            _print(api, queue, again=shown is not None)
        shown = queue
        while not _has_changed(follower, _TICK * 5):
            pass


def _print(api: Api, queue: ApprovalQueue, again: bool) -> None:
    if again:
        output.say()
    items = [*queue.pending, *queue.history]
    if items:
        rows = approval_view.table(items, api.agent.now())
        output.print_table(approval_view.columns(items), rows)
    else:
        output.say("Nothing waits.")


def _watch_live(api: Api, follower: Follower, read: Callable[[], ApprovalQueue]) -> None:
    from rich.live import Live

    queue = read()
    with Live(console=output.console(), auto_refresh=False) as live:
        while True:
            live.update(_drawn(api, [*queue.pending, *queue.history]), refresh=True)
            if _has_changed(follower, _TICK) or _expires(api, queue):
                queue = _read(read, queue)


def _drawn(api: Api, items: list[ApprovalItem]) -> Group:
    from rich.console import Group
    from rich.text import Text

    help_ = Text("boyd approvals approve|deny ID; Ctrl-C ends this", "dim")
    if not items:
        return Group(Text("Nothing waits."), help_)
    rows = approval_view.table(items, api.agent.now())
    return Group(output.fitted(approval_view.columns(items), rows), help_)


def _has_changed(follower: Follower, seconds: float) -> bool:
    return any(
        event.kind.startswith(("approval.", "missed")) for _, event in follower.wait(seconds)
    )


def _expires(api: Api, queue: ApprovalQueue) -> bool:
    now = api.agent.now()
    return any(item.expires_at is not None and item.expires_at <= now for item in queue.pending)


def _read(read: Callable[[], ApprovalQueue], before: ApprovalQueue | None) -> ApprovalQueue:
    try:
        return read()
    except ApiUnavailable:  # the follower says so, and that it is back
        if before is None:
            raise
        return before
