"""Values of JSON on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click


def _object(_ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any]:
    """An object of JSON; `-`: from standard input."""
    if value is None:
        return {}
    try:
        found = json.loads(sys.stdin.read() if value == "-" else value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param=param) from None
    if not isinstance(found, dict):
        raise click.BadParameter('it must be an object, such as \'{"path": "/tmp"}\'')
    return found


def object_option(name: str, variable: str, help_: str) -> Callable[..., Any]:
    """An option that takes an object of JSON."""
    return click.option(name, variable, metavar="JSON", callback=_object, help=help_)


class Pairs(dict[str, Any]):
    """Values by their names.

    Attributes:
        typed: how those were typed that were taken for JSON and are no text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.typed: dict[str, str] = {}


def _pairs(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Pairs:
    """`name=value` as an object; a value is JSON where it can be, and text elsewhere."""
    found = Pairs()
    for text in values:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param=param)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
        if not isinstance(found[name], str):
            found.typed[name] = value
    return found


def pairs_option(*names: str, help_: str) -> Callable[..., Any]:
    """An option that takes `name=value`, any number of times."""
    return click.option(*names, multiple=True, metavar="NAME=VALUE", callback=_pairs, help=help_)
