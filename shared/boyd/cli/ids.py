"""Ids on the command line: any beginning of one that fits a single thing."""

from __future__ import annotations

from collections.abc import Iterable

from boyd.cli import output

#: Characters of an id that are shown.
SHORT = 8


def short(whole: str) -> str:
    """An id as tables show it."""
    return whole[:SHORT]


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
        some = ", ".join(one[: SHORT + 4] for one in found[:5])
        more = ", …" if len(found) > 5 else ""
        output.stop(output.FAILED, f"{beginning!r} fits {len(found)} {noun}s: {some}{more}")
    return found[0]
