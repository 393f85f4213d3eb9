"""Pages of hashes that fit some filters, at a cost that does not grow with what is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boyd.store.client import Client, translated
from boyd.store.paging import Position, dump_cursor, read_page
from boyd.store.portion import Portion
from boyd.store.scripts import Scripts

#: The most hashes that are looked at for one page, to find those that fit.
SCANNED = 500

_Places = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Hits:
    """What was found, and where the next page goes on, if there may be more."""

    hashes: list[dict[str, str]]
    next_cursor: str | None = None


class Search:
    """Looks for hashes by an index of them, newest first."""

    def __init__(self, client: Client, scripts: Scripts, index: str, prefix: str, sign: str):
        """Search the hashes `<prefix><member of index>`; one without the field *sign* is gone."""
        self._client = client
        self._scripts = scripts
        self._index = index
        self._prefix = prefix
        self._sign = sign

    def page(
        self,
        limit: int,
        position: Position,
        filters: Mapping[str, str],
        *,
        fields: Sequence[str] = (),
        oldest: float = -math.inf,
    ) -> Hits:
        """Hashes after *position* in which every field has the value that *filters* names.

        At most `SCANNED` are looked at and only a `Portion` is read, so a page may hold fewer than
        *limit*, or none, and still name a cursor to go on with. Of each hash only *fields* are
        read, if any are named; what has a lower score than *oldest* is left out.
        """
        portion = Portion(self._scripts)
        found: list[dict[str, str]] = []
        looked_at = 0
        while True:
            # As many again as have been looked at: usually the first step has them all.
            step = min(max(limit, looked_at), SCANNED - looked_at) if filters else limit
            places = read_page(self._scripts, self._index, position, step)
            recent = [place for place in places if place[1] >= oldest]
            fitting = self._fitting(recent, filters)
            read = portion.read(self._prefix, [name for name, _ in fitting], fields)
            for place, hash in zip(fitting, read, strict=False):
                # One may be given up, or not fit any more, by the time that all of it is read.
                if self._sign in hash and _fits(hash, filters):
                    found.append(hash)
                if len(found) == limit or portion.full:
                    return Hits(found, dump_cursor(place))
            looked_at += len(places)
            if len(recent) < step:
                return Hits(found)
            position = places[-1]
            if looked_at >= SCANNED or not filters:
                return Hits(found, dump_cursor(position))

    def every(self, filters: Mapping[str, str]) -> list[str]:
        """The members of all hashes that fit; reads all that are kept, so ask rarely."""
        with translated():
            names = self._client.zrevrange(self._index, 0, -1)
        return [
            name
            for first in range(0, len(names), SCANNED)
            for name, _ in self._fitting(
                [(n, 0.0) for n in names[first : first + SCANNED]], filters
            )
        ]

    def _fitting(self, places: _Places, filters: Mapping[str, str]) -> _Places:
        """The places of those that fit, by the few fields that tell."""
        if not filters or not places:
            return places
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for name, _ in places:
                pipe.hmget(self._prefix + name, list(filters))
            answers = pipe.execute()
        wanted = list(filters.values())
        return [place for place, found in zip(places, answers, strict=True) if found == wanted]


def _fits(hash: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    return all(hash.get(name) == value for name, value in filters.items())
