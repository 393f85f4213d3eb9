"""`boyd keys` and `boyd can`: API keys, over the API or directly on Redis, and what they allow.

Anyone who can reach Redis may create keys; that is how the first one is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
from pydantic import ValidationError

from boyd.models import SCOPES, explain
from boyd.models.responses import AccessAnswer, KeyInfo, KeyList, NewKey, Revoked
from boyd.models.rights import VERBS, describe_right
from boyd_cli import completion, output
from boyd_cli.api_access import Api, CommandAccess, actor, open_store, resolve_prefix
from boyd_cli.options import (
    access_options,
    data_options,
    duration_option,
    id_argument,
    output_option,
    words_option,
)
from boyd_cli.output import label, sentence, whole

COLUMNS = (
    *(whole("id"), label("name", drop=3), label("principal"), sentence("scopes")),
    *(label("groups", drop=4), label("agents", drop=5), sentence("may", least=12, drop=2)),
    *(whole("created", drop=6), whole("expires", drop=1)),
)


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command()
@click.argument("name")
@click.option(
    "--principal", required=True, help="Identity behind the key, named in the audit trail."
)
@click.option("--person", is_flag=True, help="The principal is a person, not a program.")
@words_option(
    "--scope",
    "scopes",
    choices=SCOPES,
    required=True,
    help="Permissions, separated by commas; `admin` includes all.",
)
@words_option("--group", "groups", metavar="NAME,...", help="Groups of the principal.")
@words_option(
    "--agent",
    "agents",
    offers=completion.agents,
    metavar="NAME,...",
    help="Agents the key may access; default: all.",
)
@click.option(
    "--may",
    multiple=True,
    metavar="RIGHT",
    help="All that it may do with actions, as in 'approve restart:* on web-*'; can be repeated.",
)
@duration_option("--expires", help="Lifetime of the key, as in 90d.")
@output_option
@access_options
def create(access: CommandAccess, expires: float | None, form: str, **properties: Any) -> None:
    """Create a key, and print it once."""
    _print(form, _create(access, access.api(), properties, expires))


def _create(
    access: CommandAccess, api: Api | None, properties: dict[str, Any], expires: float | None
) -> NewKey:
    if api is None:
        return _create_directly(access, properties, expires)
    return api.deployment.post("/keys", NewKey, {**properties, "expiresIn": expires})


def _print(form: str, key: NewKey) -> None:
    if key.key is None:
        reason = f"key {key.id} was created, but its text was lost on the way: revoke it"
        output.stop(output.FAILED, reason)
    if not output.print_data(form, key):
        output.note(f"key {key.id} for {key.principal}: store it now, it is not shown again")
        output.say(key.key)


def _create_directly(
    access: CommandAccess, properties: dict[str, Any], expires: float | None
) -> NewKey:
    store = open_store(access.settings)
    try:
        key, text = store.api_keys.create(**properties, by=actor(), expires_in=expires)
    except ValidationError as error:
        raise click.UsageError(explain(error)) from None
    return NewKey(**key.model_dump(exclude={"hash"}), key=text)


@keys.command("list")
@output_option
@access_options
def list_keys(access: CommandAccess, form: str) -> None:
    """List the keys without their secrets."""
    api = access.api()
    keys_ = _all(access, api)
    now = api.deployment.now() if api else open_store(access.settings).clock.now()
    make = f"`{output.command_name()} keys create`"
    empty = f"There are no keys, so nobody can use the API. {make} creates one."
    output.print_list(form, keys_, COLUMNS, (_row(key, now) for key in keys_), empty)


def _all(access: CommandAccess, api: Api | None) -> Sequence[KeyInfo]:
    if api is not None:
        return api.deployment.get("/keys", KeyList).keys
    keys_ = open_store(access.settings).api_keys.all()
    return [KeyInfo(**key.model_dump(exclude={"hash"})) for key in keys_]


def _row(key: KeyInfo, now: datetime) -> list[str]:
    has_expired = key.expires_at is not None and key.expires_at <= now
    expiry = "expired" if has_expired else output.short_date(key.expires_at) or "never"
    return [
        key.id,
        key.name,
        f"{key.principal} (person)" if key.person else key.principal,
        ", ".join(key.scopes),
        ", ".join(key.groups),
        ", ".join(key.agents) or "all",
        "; ".join(key.may),
        output.short_date(key.created_at),
        expiry,
    ]


@keys.command()
@id_argument("key_id", completion.keys, metavar="ID")
@duration_option("--expires", help="Lifetime of the new key, as in 90d.")
@click.option("--revoke", "at_once", is_flag=True, help="Revoke the old key at once.")
@output_option
@access_options
def rotate(
    access: CommandAccess, key_id: str, expires: float | None, at_once: bool, form: str
) -> None:
    """Create a key with the rights of another one, and print it once.

    Without --revoke the old key stays valid until you revoke it, so that you can deploy the new one
    first. The new key lives as long as the old one was meant to. ID may be any unambiguous prefix.
    """
    api = access.api()
    keys_by_id = {key.id: key for key in _all(access, api)}
    old = keys_by_id[resolve_prefix("key", key_id, list(keys_by_id))]
    same = {"name", "principal", "person", "scopes", "groups", "agents", "may"}
    if expires is None and old.expires_at is not None:
        expires = (old.expires_at - old.created_at).total_seconds()
    new = _create(access, api, old.model_dump(include=same), expires)
    _print(form, new)
    if at_once:
        _revoke_rotated(access, api, old.id, new.id)
        output.note(f"the old key {old.id} is revoked")
    else:
        output.note(f"revoke the old key later: {_revocation(old.id)}")


def _revoke_rotated(access: CommandAccess, api: Api | None, old: str, new: str) -> None:
    """Revoke the key *old*; if that fails, say what is left to do, since *new* is in force."""
    try:
        _revoke(access, api, old)
    except Exception:
        output.note(f"the new key {new} is valid, but the old key was not revoked; once the")
        output.note(f"following is mended, revoke it: {_revocation(old)}")
        raise


def _revocation(key_id: str) -> str:
    return f"`{output.command_name()} keys revoke {key_id}`"


@keys.command()
@id_argument("key_id", completion.keys, metavar="ID")
@access_options
def revoke(access: CommandAccess, key_id: str) -> None:
    """Revoke a key at once.

    ID may be any unambiguous prefix.
    """
    api = access.api()
    whole_id = resolve_prefix("key", key_id, [key.id for key in _all(access, api)])
    _revoke(access, api, whole_id)
    output.say(f"key {whole_id} is revoked")


def _revoke(access: CommandAccess, api: Api | None, key_id: str) -> None:
    if api is not None:
        api.deployment.delete(f"/keys/{key_id}", Revoked)
    elif not open_store(access.settings).api_keys.revoke(key_id, actor()):
        output.stop(output.NOT_FOUND, f"no key {key_id!r}")


@click.command()
@click.argument("principal")
@click.argument("verb", type=click.Choice(VERBS))
@id_argument("action", completion.actions)
@click.argument("target", required=False)
@data_options
def can(api: Api, principal: str, verb: str, action: str, target: str | None, form: str) -> None:
    """Explain whether somebody may do something with an action, and change nothing.

    PRINCIPAL is a principal, the id or name of a key, or `me`. Without a TARGET it is about any.
    The exit code is 3 if they may not.
    """
    who = {} if principal == "me" else {"principal": principal}
    query = {"verb": verb, "action": action, **who, **({"target": target} if target else {})}
    answer = api.agent.get("/rights", AccessAnswer, **query)
    if not output.print_data(form, answer):
        may = "may" if answer.allowed else "may not"
        output.say(f"{answer.principal} {may} {describe_right(answer.verb, action, target)}")
        for identity in answer.identities:
            output.say(f"  {output.one_line(identity.identity)}")
            for step in identity.steps:
                output.say(f"    {'yes' if step.passed else 'no '}  {output.one_line(step.reason)}")
    if not answer.allowed:
        raise click.exceptions.Exit(output.DENIED)
