"""`boyd keys`: make, list and revoke the keys of the HTTP API, directly on Redis.

Whoever can reach Redis may do that; so the first key comes to be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from boyd.cli import output
from boyd.cli.control import actor
from boyd.cli.options import open_store, settings_options
from boyd.models import SCOPES, ApiKey, Scope, explain, utc_now

if TYPE_CHECKING:
    from boyd.settings import Settings

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,6})([smhdw])")


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A time such as `90d` in seconds."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None or int(match[1]) == 0:
        wanted = "write a number and s, m, h, d or w, as in 90d"
        raise click.BadParameter(f"{value!r} is no time; {wanted}", ctx, param)
    return float(match[1]) * _UNITS[match[2]]


@click.group()
def keys() -> None:
    """Make, list and revoke the keys of the HTTP API."""


@keys.command()
@click.argument("name")
@click.option("--principal", required=True, help="Whom it stands for; the audit names them.")
@click.option("--person", is_flag=True, help="The principal is a person, not a program.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="What it may do; may be given again. `admin` includes all.",
)
@click.option("--group", "groups", multiple=True, help="A group of the principal.")
@click.option("--agent", "agents", multiple=True, help="An agent that it may see; none: all.")
@click.option("--expires", callback=_seconds, metavar="TIME", help="Good for so long, as in 90d.")
@settings_options
def create(
    settings: Settings,
    name: str,
    principal: str,
    person: bool,
    scopes: tuple[Scope, ...],
    groups: tuple[str, ...],
    agents: tuple[str, ...],
    expires: float | None,
) -> None:
    """Make a key, and print it, once."""
    store = open_store(settings)
    try:
        key, text = store.access.create(
            name,
            principal,
            scopes,
            by=actor(),
            person=person,
            groups=groups,
            agents=agents,
            expires_in=expires,
        )
    except ValidationError as error:
        raise click.UsageError(explain(error)) from None
    output.note(f"key {key.id} for {principal}: keep it, it is not shown again")
    output.say(text or "")


@keys.command("list")
@output.output_option
@settings_options
def list_keys(settings: Settings, form: str) -> None:
    """List the keys, without what would let anybody use them."""
    found = open_store(settings).access.all()
    if form == "json":
        output.print_json([key.public() for key in found])
        return
    if not found:
        output.say("There is no key: the API lets nobody in. `boyd keys create` makes one.")
        return
    header = ["id", "name", "principal", "scopes", "groups", "agents", "created", "expires"]
    output.print_table(header, map(_row, found))


def _row(key: ApiKey) -> list[str]:
    return [
        key.id,
        key.name,
        f"{key.principal} (person)" if key.person else key.principal,
        ", ".join(key.scopes),
        ", ".join(key.groups),
        ", ".join(key.agents) or "all",
        output.date(key.created_at),
        _expiry(key),
    ]


def _expiry(key: ApiKey) -> str:
    if key.expires_at is None:
        return "never"
    return "expired" if key.expires_at <= utc_now() else output.date(key.expires_at)


@keys.command()
@click.argument("key_id", metavar="ID")
@settings_options
def revoke(settings: Settings, key_id: str) -> None:
    """Make a key useless at once."""
    if not open_store(settings).access.revoke(key_id, actor()):
        output.stop(output.NOT_FOUND, f"no key {key_id!r}")
    output.say(f"key {key_id} is revoked")
