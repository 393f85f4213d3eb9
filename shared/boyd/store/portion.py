"""What one page reads of hashes that may be large: bounded in bytes, and read in small steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boyd.store.client import pairs
from boyd.store.scripts import Scripts

#: Bytes as stored after which a page ends; somewhat more when the last hash is large.
PORTION = 8 * 1024 * 1024
#: Bytes after which a step ends.
STEP = 1024 * 1024


class Portion:
    """What is left of a page's bytes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._left = PORTION

    @property
    def full(self) -> bool:
        """Whether nothing more should be read; the page then names a cursor to go on with."""
        return self._left <= 0

    def read(
        self, prefix: str, ids: Sequence[str], fields: Sequence[str] = ()
    ) -> Iterator[dict[str, str]]:
        """The hashes `<prefix><id>` in order, until the portion is full.

        Only *fields* of them; all when none is named. One that is not there is empty.
        """
        done = 0
        while done < len(ids) and not self.full:
            first, *others = ids[done:]
            args = [min(STEP, self._left), prefix, len(fields), *fields, *others]
            for flat in self._scripts.run("read_hashes", [prefix + first], args):
                self._left -= sum(len(text.encode(errors="replace")) for text in flat)
                done += 1
                yield pairs(flat)
