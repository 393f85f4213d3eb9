"""Ids as people write them: whole, the number before the dash, or any beginning that fits one."""

from __future__ import annotations

from collections.abc import Collection

from boyd.goals.answering import Refused

#: How many of the ids that fit are named.
_NAMED = 5


def the_one(noun: str, written: str, ids: Collection[str]) -> str:
    """The id that is *written*; what is an id or its number is not taken for a beginning.

    Raises:
        Refused: there is none, or several.
    """
    numbered = [one for one in ids if written and one.partition("-")[0] == written]
    begun = [one for one in ids if written and one.startswith(written)]
    fitting = [written] if written in ids else numbered if len(numbered) == 1 else begun
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise Refused(404, f"there is no {noun} {written!r}")
    more = ", …" if len(fitting) > _NAMED else ""
    some = ", ".join(fitting[:_NAMED]) + more
    raise Refused(404, f"{len(fitting)} {noun}s begin with {written!r}: {some}; write more of one")
