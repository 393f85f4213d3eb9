"""The audit trail: who changed what, when and from where, each entry chained to the last (A15).

A change writes its entry into an *open* stream, in the same atomic step. A *sealer*, which every
worker, beat and reader is, moves open entries into the chain: the hash of an entry covers the one
before it. Redis itself computes only SHA-1, so hashes are made here, and a script stores them if
the chain still ends where they were computed to follow; of several sealers one wins and the others
start over. Entries beyond the cap are removed and leave a checkpoint to begin from.

What it proves. An entry that was changed, removed, added or moved after it was sealed is found and
named by `verify`. With an `audit_key`, that holds against whoever can write to Redis and does not
have the key.

What it does not. Without a key, who can write to Redis can compute everything anew. With one, they
can still put the whole chain back to an earlier state, which its own hashes cannot show: note heads
elsewhere and give them to `verify`, which finds a chain that lost what was noted. Entries are not
protected before they are sealed, a second or so, and who can write to Redis can also add false ones
to be sealed: the chain tells that a record was not altered, not that it was true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

from boyd.errors import BadCursor
from boyd.models import Actor, AuditEntry, AuditFilter, AuditHead, AuditPage, Verification
from boyd.store.audit_chain import PLAIN, START, Link, Sealing, Verifier, noted, sealed
from boyd.store.connection import Client, translated
from boyd.store.keys import Keys
from boyd.store.scripts import KeyedScripts
from boyd.store.timing import milliseconds

#: Most entries sealed in one step, and read in one.
BATCH = 1000
#: Most entries looked at for one page, to find those that fit a filter.
SCANNED = 5000
_ALL = AuditFilter()


def actor_fields(actor: Actor | None) -> list[str]:
    """An actor as field, value, field, value, for the last arguments of a script that audits."""
    if actor is None:
        return []
    named = {
        "who": actor.principal,
        "key": actor.key,
        "from": actor.address,
        "claims": actor.claims,
    }
    return [text for name, value in named.items() if value for text in (name, value)]


class Audit:
    """One chain: that of an agent, or of the deployment."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, sealing: Sealing) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._sealing = replace(sealing, chain=keys.prefix)

    @property
    def open_stream(self) -> str:
        """The key of the stream that changes write to."""
        return self._keys.audit_open

    def append(self, kind: str, actor: Actor | None, **fields: str | int | None) -> None:
        """Note a change that no script makes; what is None or empty is left out.

        Args:
            kind: what happened, as in `key.created`.
            actor: who did it.
            fields: `before`, `after`, `note`, and what was changed; none may have a name of the
                actor's (`who`, `key`, `from`, `claims`).
        """
        entry = {"kind": kind}
        flat = actor_fields(actor)
        entry |= dict(zip(flat[::2], flat[1::2], strict=True))
        for name, value in fields.items():
            assert name not in ("kind", "who", "key", "from", "claims"), name
            if value is not None and value != "":
                entry[name] = str(value)
        with translated():
            self._client.xadd(self._keys.audit_open, entry)

    def seal(self) -> int:
        """Move all open entries into the chain; how many this call moved."""
        moved = 0
        while True:
            done = self._seal_batch()
            if done == 0:
                return moved
            moved += max(0, done)

    def _seal_batch(self) -> int:
        """How many entries it sealed; 0: there is nothing to do, -1: another was quicker."""
        keys, sealing = self._keys, self._sealing
        most = min(BATCH, sealing.keep)
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hmget(keys.audit_head, ["hash", "seq", "by", "trimmedSeq"])
            pipe.xrange(keys.audit_open, count=most)
            (stored, seq, by, trimmed), waiting = pipe.execute()
        if not waiting:
            return 0
        head = noted(seq, stored)
        if head is None:
            head, by = self._last()
        if sealing.key is None and by not in (None, PLAIN):
            return 0  # those who have the key seal it; without it the chain would not fit
        links = list(self._chained(head, waiting))
        cut = self._to_trim(head.seq + len(links) - sealing.keep, int(trimmed or 0))
        won = self._scripts.run(
            "seal_audit",
            expected=stored,
            cut_seq=cut[0],
            cut_hash=cut[1],
            cut_proof=cut[2],
            entries=[text for link in links for text in link.arguments()],
        )
        return len(links) if won else -1

    def _chained(
        self, head: AuditHead, waiting: Iterable[tuple[str, dict[str, str]]]
    ) -> Iterator[Link]:
        prev = head.hash
        for seq, (at, fields) in enumerate(waiting, head.seq + 1):
            link = sealed(self._sealing, prev, seq, at, fields)
            yield link
            prev = link.hash

    def _last(self) -> tuple[AuditHead, str | None]:
        """The head as the chain itself shows it, for when the note of it is lost."""
        with translated():
            found = self._client.xrevrange(self._keys.audit, count=1)
        if not found:
            return START, None
        link = Link.read(*found[0])
        return AuditHead(seq=link.stands_at, hash=link.hash), link.sealed_by

    def _to_trim(self, last: int, trimmed: int) -> Sequence[Any]:
        """The checkpoint that the cap asks for: number, hash, proof; or nothing."""
        if last <= trimmed:
            return "", "", ""
        with translated():
            found = self._client.xrevrange(self._keys.audit, f"{last}-0", f"{trimmed}-0", count=1)
        if not found:
            return "", "", ""
        link = Link.read(*found[0])
        if link.stands_at <= trimmed:
            return "", "", ""
        head = AuditHead(seq=link.stands_at, hash=link.hash)
        return head.seq, head.hash, self._sealing.proof(head)

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        wanted: AuditFilter = _ALL,
    ) -> AuditPage:
        """Sealed entries, newest first; what it costs does not grow with what is kept.

        At most `SCANNED` entries are looked at, so with a filter a page may hold fewer than
        *limit*, or none, and still name a cursor to go on with.

        Args:
            limit: how many at most.
            cursor: `next_cursor` of the page before.
            since: leave out what is older.
            until: leave out what is not older.
            wanted: which entries.

        Raises:
            BadCursor: *cursor* is none that was given out.
        """
        found: list[AuditEntry] = []
        last = self._start(cursor, until)
        links = self._backwards(last, min(BATCH, limit + 1) if wanted.is_open else BATCH)
        for number, link in enumerate(links):
            entry = link.entry()
            if since is not None and entry.at < since:
                break
            fits = wanted.fits(entry)
            if number == SCANNED or (fits and len(found) == limit):
                return AuditPage(entries=found, next_cursor=str(last))
            if fits:
                found.append(entry)
            last = link.stands_at or last
        return AuditPage(entries=found)

    def _start(self, cursor: str | None, until: datetime | None) -> int | None:
        """The number of the entry that a page begins behind; None: it begins with the newest."""
        if cursor is not None:
            return _number(cursor)
        return None if until is None else self._before(until) + 1

    def _backwards(self, after: int | None, step: int) -> Iterator[Link]:
        """The chain from behind that entry to its beginning, read in steps."""
        place = "+" if after is None else f"({after}-0"
        while True:
            with translated():
                found = self._client.xrevrange(self._keys.audit, place, "-", count=step)
            for item in found:
                yield Link.read(*item)
            if len(found) < step:
                return
            place = f"({found[-1][0]}"

    def entries(self, after: int = 0, since: datetime | None = None) -> Iterator[AuditEntry]:
        """Sealed entries, oldest first, read piece by piece.

        Args:
            after: begin behind the entry of that number.
            since: begin with the first that is not older, found by bisection.
        """
        if since is not None:
            after = max(after, self._before(since))
        place = f"({after}-0"
        while True:
            with translated():
                found = self._client.xrange(self._keys.audit, place, "+", count=BATCH)
            for item in found:
                yield Link.read(*item).entry()
            if len(found) < BATCH:
                return
            place = f"({found[-1][0]}"

    def export(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        wanted: AuditFilter = _ALL,
    ) -> Iterator[str]:
        """Sealed entries, oldest first, each as one line of JSON without the line break."""
        found = self.entries(since=since)
        if until is not None:
            found = takewhile(lambda entry: entry.at < until, found)
        return (entry.to_json() for entry in found if wanted.fits(entry))

    def wait(self, after: int, seconds: float) -> list[AuditEntry]:
        """What is sealed behind the entry numbered *after*; waits for the first.

        *seconds* must be less than the time limit of the connection.
        """
        with translated():
            block = max(1, milliseconds(seconds))
            found = self._client.xread({self._keys.audit: f"{after}-0"}, BATCH, block)
        return [Link.read(*item).entry() for _, items in found or [] for item in items]

    def head(self) -> AuditHead | None:
        """Where the chain ends."""
        with translated():
            seq, digest = self._client.hmget(self._keys.audit_head, ["seq", "hash"])
        return noted(seq, digest)

    def verify(
        self, expect: AuditHead | None = None, begin: AuditHead | None = None
    ) -> Verification:
        """Check the chain from its beginning, or behind *begin*; read piece by piece.

        Args:
            expect: a head noted earlier, which must still be part of the chain.
            begin: a head noted earlier, which is trusted: only what follows is checked.
        """
        return Verifier(self._client, self._keys, self._sealing).verify(expect, begin)

    def _before(self, since: datetime) -> int:
        """The number of the last entry that is older than *since*."""
        with translated():
            first = self._client.xrange(self._keys.audit, count=1)
            last = self._client.xrevrange(self._keys.audit, count=1)
        if not first:
            return 0
        low, high = Link.read(*first[0]).stands_at - 1, Link.read(*last[0]).stands_at
        while low < high:
            middle = (low + high + 1) // 2
            with translated():
                found = self._client.xrange(self._keys.audit, f"{middle}-0", "+", count=1)
            if found and Link.read(*found[0]).entry().at < since:
                low = middle
            else:
                high = middle - 1
        return low


def seal_all(client: Client, chains: Sequence[Audit]) -> int:
    """Seal every chain that has open entries; one round trip when none has.

    Returns:
        How many entries were sealed.
    """
    with translated():
        pipe = client.pipeline(transaction=False)
        for chain in chains:
            pipe.xlen(chain.open_stream)
        waiting = pipe.execute()
    return sum(chain.seal() for chain, n in zip(chains, waiting, strict=True) if n)


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > 18:
        raise BadCursor(f"cursor {cursor[:40]!r} is none that was given out")
    return int(cursor)
