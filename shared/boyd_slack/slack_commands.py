"""`boyd slack`: the linked accounts, directly on Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from boyd_cli import output
from boyd_cli.api_access import CommandAccess, actor, open_store
from boyd_cli.options import access_options, output_option
from boyd_cli.output import label, whole

if TYPE_CHECKING:
    from boyd_slack.slack_accounts import SlackAccounts

COLUMNS = (
    *(whole("account"), label("name", drop=1), label("principal"), label("key", drop=2)),
    *(whole("login", drop=3), whole("state")),
)


@click.group()
def slack() -> None:
    """Show and remove Slack accounts that people answer with."""


@slack.command("list")
@output_option
@access_options
def list_accounts(access: CommandAccess, form: str) -> None:
    """List the linked accounts, directly on Redis."""
    accounts = _accounts(access)
    linked = accounts.all()
    rows = [
        (
            *(account.id, account.name, account.principal, account.key or "single sign-on"),
            output.short_date(account.confirmed_at),
            "ok" if accounts.identity(account, access.settings) else "may not answer",
        )
        for account in linked
    ]
    empty = "No Slack account is linked. People link theirs with the first button that they click."
    output.print_list(form, linked, COLUMNS, rows, empty)


@slack.command()
@click.argument("account", metavar="WORKSPACE/USER")
@access_options
def unlink(access: CommandAccess, account: str) -> None:
    """Remove a linked account, directly on Redis."""
    accounts = _accounts(access)
    linked = accounts.get(account)
    if linked is None or not accounts.unlink(linked, actor()):
        output.stop(output.NOT_FOUND, f"no Slack account {account!r} is linked")
    output.say(f"{account} is no longer linked to {linked.principal}")


def _accounts(access: CommandAccess) -> SlackAccounts:
    from boyd_slack.slack_accounts import SlackAccounts

    return SlackAccounts(open_store(access.settings))
