"""Times on the command line: `90s`, `10m`, `2h`, `90d`, `4w`, or a date."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

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
