"""Values of JSON on the command line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from boyd.cli.api_access import Api
from boyd.cli.completion import Offers, offered
from boyd.settings.files import nearest

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


def duration_option(name: str, help_: str) -> Callable[..., Any]:
    """An option that takes a time, and gives seconds."""
    return click.option(name, callback=_seconds, metavar="TIME", help=help_)


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """A date, with the time of day or without, or so long ago."""
    if value is None:
        return None
    if _DURATION.fullmatch(value):
        seconds = _seconds(ctx, param, value)
        assert seconds is not None
        return datetime.now(UTC) - timedelta(seconds=seconds)
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        wanted = "write a date as in 2026-01-05 or 2026-01-05T12:00, or how long ago, as in 2h"
        raise click.BadParameter(f"{value!r} is no time; {wanted}", ctx, param) from None


def period_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the options `--since` and `--until`, as `since` and `until`."""
    what = "a date (local time unless it says otherwise), or how long ago, as in 2h"
    since = click.option(
        "--since", callback=_moment, metavar="TIME", help=f"Leave out what is older: {what}."
    )
    until = click.option(
        "--until", callback=_moment, metavar="TIME", help="Leave out what is not older."
    )
    made: Callable[..., Any] = since(until(command))
    return made


if TYPE_CHECKING:
    _Type = click.ParamType[list[str]]
else:  # older releases of click cannot be asked for its type
    _Type = click.ParamType


class Whole(click.IntRange):
    """A whole number; what is none is told so in these words."""

    name = "whole number"


class Number(click.FloatRange):
    """A number, likewise."""

    name = "number"


class Words(_Type):
    """Words with commas between them, as they are printed."""

    name = "words"

    def __init__(
        self, choices: Sequence[str] = (), offers: Callable[[Api], Offers] | None = None
    ) -> None:
        """Take *choices* only, if there are any; *offers* is what a shell offers otherwise."""
        self._choices = choices
        self._offers = offers

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """The words."""
        words = [word.strip() for word in str(value).split(",")]
        for word in words:
            if not word:
                self.fail("an empty one stands for nothing", param, ctx)
            if self._choices and word not in self._choices:
                self.fail(f"{word!r} is none of them{nearest(word, self._choices)}", param, ctx)
        return words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        """What the help shows for a value."""
        return f"[{'|'.join(self._choices)}]" if self._choices else None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer what may stand behind the last comma."""
        before, comma, last = incomplete.rpartition(",")
        if self._offers is not None:
            found = [one.value for one in offered(self._offers)(ctx, param, last)]
        else:
            found = [one for one in self._choices if one.startswith(last)]
        return [CompletionItem(f"{before}{comma}{one}") for one in found]


def words_option(
    *names: str,
    choices: Sequence[str] = (),
    offers: Callable[[Api], Offers] | None = None,
    **how: Any,
) -> Callable[..., Any]:
    """An option that takes words, with commas between them or one at a time, as a list."""

    def flat(_ctx: click.Context, _param: click.Parameter, given: Iterable[list[str]]) -> list[str]:
        return list(dict.fromkeys(word for words in given for word in words))

    return click.option(*names, type=Words(choices, offers), multiple=True, callback=flat, **how)


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
