"""Types of options: durations, dates, numbers, word lists, JSON and pairs."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from boyd.settings.validation import nearest
from boyd.text.formatting import UNITS, parse_moment
from boyd_cli.api_access import Api
from boyd_cli.completion import Offers, completer

_DURATION = re.compile(r"(\d{1,6})([smhdw])")


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a duration such as `90d`."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None or int(match[1]) == 0:
        advice = "write a number and s, m, h, d or w, as in 90d"
        raise click.BadParameter(f"{value!r} is not a time; {advice}", ctx, param)
    return float(match[1]) * UNITS[match[2]]


#: An option for a duration, in seconds.
duration_option = functools.partial(click.option, callback=_seconds, metavar="TIME")


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse a date, a date with a time, an age, `today` or `yesterday`."""
    if value is None:
        return None
    try:
        return parse_moment(value, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def period_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the options `--since` and `--until`, as `since` and `until`."""
    forms = "a date (local time by default), today, yesterday, or how long ago, as in 2h"
    since = click.option(
        "--since", callback=_moment, metavar="TIME", help=f"Start of the period: {forms}."
    )
    until = click.option(
        "--until", callback=_moment, metavar="TIME", help="End of the period, likewise."
    )
    decorated: Callable[..., Any] = since(until(command))
    return decorated


if TYPE_CHECKING:
    _Type = click.ParamType[list[str]]
    _Text = click.ParamType[str]
else:  # older releases of click cannot be asked for its type
    _Type = _Text = click.ParamType


class Whole(click.IntRange):
    """A whole number, named so in error messages."""

    name = "whole number"


class Number(click.FloatRange):
    """A number, likewise."""

    name = "number"


class Shaped(_Text):
    """A text of a certain shape."""

    def __init__(self, name: str, shape: re.Pattern[str], expected: str) -> None:
        """Accept texts that match *shape* as a whole; *wanted* says what they look like."""
        self.name = name
        self._shape = shape
        self._expected = expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the text."""
        if not self._shape.fullmatch(str(value)):
            self.fail(f"{value!r} is not {self._expected}", param, ctx)
        return str(value)


class Words(_Type):
    """Words separated by commas."""

    name = "words"

    def __init__(
        self, choices: Sequence[str] = (), offers: Callable[[Api], Offers] | None = None
    ) -> None:
        """Accept only *choices*, if there are any; completion uses *offers* otherwise."""
        self._choices = choices
        self._offers = offers

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Split and check the words."""
        words = [word.strip() for word in str(value).split(",")]
        for word in words:
            if not word:
                self.fail("empty values are not allowed", param, ctx)
            if self._choices and word not in self._choices:
                self.fail(
                    f"{word!r} is not a valid choice{nearest(word, self._choices)}", param, ctx
                )
        return words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        """The placeholder in the help."""
        return f"[{'|'.join(self._choices)}]" if self._choices else None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the word after the last comma."""
        before, comma, last = incomplete.rpartition(",")
        if self._offers is not None:
            words = [item.value for item in completer(self._offers)(ctx, param, last)]
        else:
            words = [choice for choice in self._choices if choice.startswith(last)]
        return [CompletionItem(f"{before}{comma}{word}") for word in words]


def words_option(
    *names: str,
    choices: Sequence[str] = (),
    offers: Callable[[Api], Offers] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """An option for words, separated by commas or repeated."""

    def flatten(
        _ctx: click.Context, _param: click.Parameter, values: Iterable[list[str]]
    ) -> list[str]:
        return list(dict.fromkeys(word for words in values for word in words))

    words = Words(choices, offers)
    return click.option(*names, type=words, multiple=True, callback=flatten, **options)


def _object(_ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any]:
    """Parse a JSON object; `-` reads standard input."""
    if value is None:
        return {}
    try:
        parsed = json.loads(sys.stdin.read() if value == "-" else value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param=param) from None
    if not isinstance(parsed, dict):
        raise click.BadParameter('it must be a JSON object, such as \'{"path": "/tmp"}\'')
    return parsed


#: An option for a JSON object.
object_option = functools.partial(click.option, metavar="JSON", callback=_object)


class Pairs(dict[str, Any]):
    """Values by name.

    Attributes:
        typed: the typed text of each value that was parsed as JSON and is no string.
    """

    def __init__(self) -> None:
        super().__init__()
        self.typed: dict[str, str] = {}


def _pairs(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Pairs:
    """Parse `name=value`; a value is JSON if it parses, otherwise text."""
    pairs = Pairs()
    for text in values:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param=param)
        try:
            pairs[name] = json.loads(value)
        except ValueError:
            pairs[name] = value
        if not isinstance(pairs[name], str):
            pairs.typed[name] = value
    return pairs


#: A repeatable option for `name=value`.
pairs_option = functools.partial(click.option, multiple=True, metavar="NAME=VALUE", callback=_pairs)
