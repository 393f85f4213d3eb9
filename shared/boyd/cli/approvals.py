"""`boyd approvals list|show|approve|deny|withdraw`: what waits for a person, and the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

import click

from boyd.broker import CeleryCourier, make_app
from boyd.cli import output
from boyd.cli.control import who
from boyd.cli.options import choose_agent, open_store, settings_options, with_redis
from boyd.engine import Resolver
from boyd.models import ApprovalItem, utc_now
from boyd.settings import Settings
from boyd.store import AgentStore

_Answer = Callable[[str, str, str | None], ApprovalItem | None]

#: Characters of an id that are shown; any beginning that fits one item only is accepted.
SHORT = 8

agent_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--agent", help="Whose approvals; needed when there are several agents."
)
note_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--note", help="Why; kept with the item."
)


@click.group()
def approvals() -> None:
    """See what waits for a person, and answer it."""


@approvals.command("list")
@agent_option
@click.option("--all", "everything", is_flag=True, help="Also what was resolved.")
@output.output_option
@settings_options
def list_(settings: Settings, agent: str | None, everything: bool, form: str) -> None:
    """List what waits, the most urgent first."""
    store, _ = _open(settings, agent)
    queue = store.approvals.queue(history=50 if everything else 0)
    if form == "json":
        output.print_json(queue)
        return
    items = [*queue.pending, *queue.history]
    if not items:
        output.say("Nothing waits.")
        return
    header = ["id", "status", "action", "risk", "seen", "time left", "why"]
    output.print_table(header, [_row(item) for item in items])


@approvals.command()
@click.argument("approval")
@agent_option
@output.output_option
@settings_options
def show(settings: Settings, approval: str, agent: str | None, form: str) -> None:
    """Show everything about an item: what, why, and with which parameters exactly."""
    store, _ = _open(settings, agent)
    item = _find(store, approval)
    if form == "json":
        output.print_json(item)
    else:
        _show(item)


@approvals.command()
@click.argument("approval")
@agent_option
@note_option
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the result; 0: do not wait.",
)
@settings_options
def approve(
    settings: Settings, approval: str, agent: str | None, note: str | None, wait: float
) -> None:
    """Approve: a worker executes the action, whatever becomes of this command."""
    store, item = _answer(settings, approval, agent, lambda by: by.approve, note)
    if wait:
        _show_result(_await(store, item.id, wait))


@approvals.command()
@click.argument("approval")
@agent_option
@note_option
@settings_options
def deny(settings: Settings, approval: str, agent: str | None, note: str | None) -> None:
    """Deny: nothing is executed."""
    _answer(settings, approval, agent, lambda by: by.deny, note)


@approvals.command()
@click.argument("approval")
@agent_option
@note_option
@settings_options
def withdraw(settings: Settings, approval: str, agent: str | None, note: str | None) -> None:
    """Withdraw: it is not wanted any more; nothing is executed."""
    _answer(settings, approval, agent, lambda by: by.withdraw, note)


def _answer(
    settings: Settings,
    approval: str,
    agent: str | None,
    choose: Callable[[Resolver], _Answer],
    note: str | None,
) -> tuple[AgentStore, ApprovalItem]:
    """Give an answer and say so; ends the command when the item is not pending any more."""
    store, resolver = _open(settings, agent)
    item = _find(store, approval)
    resolved = choose(resolver)(item.id, who(), note)
    if resolved is None:
        _refuse(store, item)
    output.say(f"{resolved.action_id} is {resolved.status}")
    return store, resolved


def _open(settings: Settings, agent: str | None) -> tuple[AgentStore, Resolver]:
    entry, store = choose_agent(open_store(settings), settings, agent)
    url = settings.broker_url or with_redis(settings).redis_url
    assert url is not None
    store.approvals.purge(entry.retention)
    courier = CeleryCourier(make_app(url))
    return store, Resolver(store, courier, entry.retention)


def _find(store: AgentStore, beginning: str) -> ApprovalItem:
    """The one item whose id begins like that; ends the command when there is none or several."""
    exact = store.approvals.get(beginning) if beginning else None
    if exact is not None:
        return exact
    queue = store.approvals.queue(history=500)
    found = [i for i in (*queue.pending, *queue.history) if i.id.startswith(beginning)]
    if not found:
        output.stop(output.NOT_FOUND, f"no approval {beginning!r}; see `boyd approvals list --all`")
    if len(found) > 1:
        ids = ", ".join(item.id[: SHORT + 4] for item in found[:5])
        output.stop(output.FAILED, f"{beginning!r} fits {len(found)} approvals: {ids}")
    return found[0]


def _refuse(store: AgentStore, item: ApprovalItem) -> NoReturn:
    """Say what the item is instead: somebody else, or the time, was first."""
    now = store.approvals.get(item.id) or item
    by = f" by {now.acted_by}" if now.acted_by else ""
    output.stop(output.CONFLICT, f"it is {now.status}{by} already, {output.age(now.updated_at)}")


def _await(store: AgentStore, approval_id: str, seconds: float) -> ApprovalItem:
    until = time.monotonic() + seconds
    while True:
        item = store.approvals.get(approval_id)
        if item is not None and item.result is not None:
            return item
        if time.monotonic() > until:
            message = "it still runs, or waits for a worker; see `boyd approvals show`"
            output.stop(output.TIMED_OUT, message)
        time.sleep(0.1)


def _row(item: ApprovalItem) -> list[str]:
    status = item.execution.state if item.execution else item.status
    return [
        item.id[:SHORT],
        status,
        item.action_id,
        item.risk or "",
        f"{item.seen}x",
        _left(item),
        item.decision.rationale,
    ]


def _left(item: ApprovalItem) -> str:
    if item.status != "pending":
        return ""
    if item.expires_at is None:
        return "no limit"
    return output.seconds(max(0.0, (item.expires_at - utc_now()).total_seconds()))


def _show(item: ApprovalItem) -> None:
    output.say(f"{item.action_id}  {item.status}")
    pairs = [
        ("id", item.id),
        ("why", item.decision.rationale),
        ("because", item.reason or ""),
        ("situation", item.situation_summary or ""),
        ("risk", item.risk or ""),
        ("confidence", "" if item.confidence is None else f"{item.confidence:g}"),
        ("proposed", f"{output.age(item.created_at)}, seen {item.seen}x"),
        ("time left", _left(item)),
        ("execution", _execution(item)),
        ("queue", item.queue or ""),
        ("digest", item.fingerprint[:16]),
        ("answered by", item.acted_by or ""),
        ("note", item.note or ""),
    ]
    output.print_pairs([(name, value) for name, value in pairs if value])
    output.say("  params")
    output.print_json(item.params)
    if item.result is not None:
        output.say(f"  result     {output.action_outcome(item.result)}")


def _execution(item: ApprovalItem) -> str:
    if item.execution is None:
        return ""
    worker = f" on {item.execution.worker}" if item.execution.worker else ""
    return f"{item.execution.state}{worker}"


def _show_result(item: ApprovalItem) -> None:
    assert item.result is not None
    output.say(output.action_outcome(item.result))
    if not item.result.success:
        raise click.exceptions.Exit(output.FAILED)
