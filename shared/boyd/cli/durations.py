"""Times on the command line: `90s`, `10m`, `2h`, `90d`, `4w`."""

from __future__ import annotations

import re
from collections.abc import Callable
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
