"""`boyd approvals list|show|approve|deny|withdraw`: what waits for a person, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from boyd.cli import answering, approval_view, completing, output, pages
from boyd.cli.answering import find
from boyd.cli.approval_watch import watch_queue
from boyd.cli.connection import Api
from boyd.cli.ids import id_argument
from boyd.cli.options import api_options
from boyd.cli.values import Number
from boyd.models import ApprovalItem, ApprovalQueue

_Command = Callable[..., None]

#: How many resolved ones `--all` lists.
_HISTORY = 50

ids_argument: Callable[[_Command], _Command] = id_argument(
    "approvals", completing.pending_approvals, nargs=-1, required=True, metavar="APPROVAL..."
)
note_option: Callable[[_Command], _Command] = click.option("--note", help="Why; kept with it.")


@click.group()
def approvals() -> None:
    """See what waits for a person, and answer it."""


@approvals.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what was resolved.")
@click.option("--watch", is_flag=True, help="Go on, and show each change until Ctrl-C.")
@output.output_option
@api_options
def list_(api: Api, everything: bool, watch: bool, form: str) -> None:
    """List what waits, the next to expire first."""

    def read() -> ApprovalQueue:
        return _queue(api, everything)

    if watch:
        watch_queue(api, read, form)
        return
    queue = read()
    if output.print_data(form, queue):
        return
    items = [*queue.pending, *queue.history]
    if not items:
        output.say("Nothing waits.")
        return
    output.print_table(approval_view.columns(items), approval_view.table(items, api.agent.now()))


def _queue(api: Api, everything: bool) -> ApprovalQueue:
    pending: list[ApprovalItem] = []
    history: list[ApprovalItem] = []
    for page in pages.approvals(api, history=everything):
        pending += page.pending
        history += page.history
        if everything and len(history) >= _HISTORY and not page.pending:
            break
    return ApprovalQueue(pending=pending, history=history[:_HISTORY])


@approvals.command()
@id_argument("approval", completing.approvals)
@output.output_option
@api_options
def show(api: Api, approval: str, form: str) -> None:
    """Show everything about an item.

    What, why, and with which parameters exactly; what it takes to approve it, and who has. The
    table has a preview of now, which a worker makes; json and yaml have the last one.
    """
    item = find(api, approval)
    if not output.print_data(form, item):
        approval_view.show(answering.fresh(api, item), api.agent.now())


@approvals.command()
@ids_argument
@note_option
@click.option("--yes", is_flag=True, help="Do not show it and ask first.")
@click.option(
    "--wait",
    type=Number(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the result; 0: do not wait.",
)
@output.output_option
@api_options
def approve(
    api: Api, approvals: Sequence[str], note: str | None, yes: bool, wait: float, form: str
) -> None:
    """Approve: a worker executes the action, even if this command is interrupted.

    On a terminal it shows each item and asks. What is approved is what was shown.
    """
    ask = not yes and output.can_ask()
    answering.approve(api, approvals, note, ask=ask, wait=wait, form=form)


@approvals.command()
@ids_argument
@note_option
@output.output_option
@api_options
def deny(api: Api, approvals: Sequence[str], note: str | None, form: str) -> None:
    """Deny: nothing is executed."""
    answering.refuse(api, "deny", approvals, note, form)


@approvals.command()
@ids_argument
@note_option
@output.output_option
@api_options
def withdraw(api: Api, approvals: Sequence[str], note: str | None, form: str) -> None:
    """Withdraw: it is not wanted any more; nothing is executed."""
    answering.refuse(api, "withdraw", approvals, note, form)
