"""Ids on the command line: any beginning of one that fits a single thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from boyd.cli import output
from boyd.cli.completing import Offers, offered
from boyd.cli.connection import Api

_Command = Callable[..., Any]


def short(whole: str) -> str:
    """An id as tables show it."""
    return whole[: output.SHORT]


def not_empty(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """What was given, one or several.

    A variable of a script that is not set must not stand for the only thing there is.

    Raises:
        BadParameter: it is empty.
    """
    return _filled(value, "it is empty: say which one is meant, or leave it out")


def _whole_or_beginning(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    return _filled(value, "the id is empty: give it, or a beginning of it")


def _filled(value: Any, complaint: str) -> Any:
    for one in value if isinstance(value, tuple) else (value,):
        if one is not None and not one.strip():
            raise click.BadParameter(complaint)
    return value


def id_argument(
    name: str, offers: Callable[[Api], Offers], **how: Any
) -> Callable[[_Command], _Command]:
    """An argument that takes an id, or any beginning of one; never an empty one.

    Args:
        name: of the argument.
        offers: what a shell offers for it.
        how: see `click.argument`.
    """
    complete = offered(offers)
    return click.argument(name, callback=_whole_or_beginning, shell_complete=complete, **how)


def the_one(noun: str, beginning: str, ids: Iterable[str]) -> str:
    """The only id that begins like that, or is that; ends the command when there is none."""
    found = []
    for one in dict.fromkeys(ids):
        if one == beginning:
            return one
        if one.startswith(beginning):
            found.append(one)
    if not found:
        output.stop(output.NOT_FOUND, f"no {noun} {beginning!r}")
    if len(found) > 1:
        some = ", ".join(one[: output.SHORT + 4] for one in found[:5])
        more = ", …" if len(found) > 5 else ""
        output.stop(output.FAILED, f"{beginning!r} fits {len(found)} {noun}s: {some}{more}")
    return found[0]
