"""The audit trail: every change with its actor, time and origin, chained by hashes.

A change writes its entry into an *open* stream, in the same atomic step. Workers, beat and readers
act as *sealers*: they move open entries into the chain, where each hash covers the entry before.
Redis computes only SHA-1, so sealers compute the hashes and a script stores them if the chain still
ends where they continue it; one sealer wins and the others start over. Entries beyond the cap are
removed and leave a checkpoint.

`verify` finds any entry that was changed, removed, added or moved after sealing. With an
`audit_key`, this holds against anyone who can write to Redis but does not have the key.

Limits: without a key, anyone who can write to Redis can recompute the chain. With a key, they can
still restore an earlier state of the whole chain; to detect that, note heads elsewhere and pass
them to `verify`. Entries are unprotected until they are sealed, about a second, and a writer can
add false entries: the chain shows that a record was not altered, not that it is true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import redis

from boyd.errors import BadCursor
from boyd.models import Actor, AuditEntry, AuditFilter, AuditHead, AuditPage, Verification
from boyd.store.audit_chain import PLAIN, START, Link, Sealing, Verifier, read_head, seal
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, replies_of_some, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds

#: The most entries to seal or read in one step.
BATCH = 1000
#: The most entries to scan for one page with a filter.
SCANNED = 5000
#: The kinds of entries that are counted for metrics.
COUNTED = (
    *("approval.approved", "approval.denied", "approval.withdrawn", "approval.expired"),
    *("action.succeeded", "action.failed", "action.unknown"),
)
ANY_ENTRY = AuditFilter()


class Audit:
    """The audit trail of an agent or of the deployment."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, sealing: Sealing) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._sealing = replace(sealing, chain=keys.prefix)

    @property
    def open_stream(self) -> str:
        """The key of the open stream."""
        return self._keys.audit_open

    def append(self, kind: str, actor: Actor | None, **fields: str | int | None) -> None:
        """Record a change that no script makes.

        *kind* is for example `key.created`. *fields* are `before`, `after`, `note` and the
        changed values; None and empty ones are left out. They must not use the actor's names:
        `who`, `name`, `key`, `from`, `claims`, `link`.
        """
        entry = {"kind": kind}
        flat = actor_fields(actor)
        entry |= dict(zip(flat[::2], flat[1::2], strict=True))
        for name, value in fields.items():
            assert name not in ("kind", "who", "name", "key", "from", "claims", "link"), name
            if value is not None and value != "":
                entry[name] = str(value)
        with translate_errors():
            self._client.xadd(self._keys.audit_open, entry)

    def seal(self) -> int:
        """Move all open entries into the chain; return the number that this call moved."""
        moved = 0
        while True:
            done = self._seal_batch()
            if done == 0:
                return moved
            moved += max(0, done)

    def _seal_batch(self) -> int:
        """Seal a batch; return its size, 0 for nothing to do, -1 when another sealer won."""
        keys, sealing = self._keys, self._sealing
        most = min(BATCH, sealing.keep)
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hmget(keys.audit_head, ["hash", "seq", "by", "trimmedSeq"])
            pipe.xrange(keys.audit_open, count=most)
            pipe.xrevrange(keys.audit, count=1)
            (stored, seq, by, trimmed), waiting, last = pipe.execute()
        if not waiting:
            return 0
        head = read_head(seq, stored) or START
        end = Link.read(*last[0]) if last else None
        if end and end.stands_at > head.seq:
            # The head was lost, or is older than the chain: Redis has replayed a part of its log.
            head, by = AuditHead(seq=end.stands_at, hash=end.hash), end.sealed_by
        if sealing.key is None and by not in (None, PLAIN):
            return 0  # only a process with the key can continue this chain
        links = list(self._build_links(head, waiting))
        cut = self._to_trim(head.seq + len(links) - sealing.keep, int(trimmed or 0))
        won = self._scripts.run(
            "seal_audit",
            expected=stored,
            cut_seq=cut[0],
            cut_hash=cut[1],
            cut_proof=cut[2],
            kinds=Counter(kind for _, fields in waiting if (kind := fields.get("kind")) in COUNTED),
            entries=[text for link in links for text in link.arguments()],
        )
        return len(links) if won else -1

    def _build_links(
        self, head: AuditHead, waiting: Iterable[tuple[str, dict[str, str]]]
    ) -> Iterator[Link]:
        prev = head.hash
        for seq, (at, fields) in enumerate(waiting, head.seq + 1):
            link = seal(self._sealing, prev, seq, at, fields)
            yield link
            prev = link.hash

    def _to_trim(self, last: int, trimmed: int) -> Sequence[Any]:
        """The checkpoint that the cap requires: number, hash, proof; empty texts for none."""
        if last <= trimmed:
            return "", "", ""
        with translate_errors():
            rows = self._client.xrevrange(self._keys.audit, f"{last}-0", f"{trimmed}-0", count=1)
        if not rows:
            return "", "", ""
        link = Link.read(*rows[0])
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
        filters: AuditFilter = ANY_ENTRY,
    ) -> AuditPage:
        """Sealed entries from *since* until before *until*, newest first, at a bounded cost.

        At most `SCANNED` entries are scanned, so a filtered page may hold fewer than *limit*
        entries, or none, and still have a next cursor.

        Raises:
            BadCursor: *cursor* was not given out by an earlier page.
        """
        entries: list[AuditEntry] = []
        last = self._start(cursor, until)
        links = self._backwards(last, min(BATCH, limit + 1) if filters.is_open else BATCH)
        for number, link in enumerate(links):
            entry = link.entry()
            if since is not None and entry.at < since:
                break
            fits = filters.fits(entry)
            if number == SCANNED or (fits and len(entries) == limit):
                return AuditPage(entries=entries, next_cursor=str(last))
            if fits:
                entries.append(entry)
            last = link.stands_at or last
        return AuditPage(entries=entries)

    def _start(self, cursor: str | None, until: datetime | None) -> int | None:
        """The number below which a page begins; None for the newest entry."""
        if cursor is not None:
            return _number(cursor)
        return None if until is None else self._before(until) + 1

    def _backwards(self, after: int | None, step: int) -> Iterator[Link]:
        """The links below number *after*, newest first, read in steps."""
        place = "+" if after is None else f"({after}-0"
        while True:
            with translate_errors():
                rows = self._client.xrevrange(self._keys.audit, place, "-", count=step)
            for item in rows:
                yield Link.read(*item)
            if len(rows) < step:
                return
            place = f"({rows[-1][0]}"

    def entries(self, after: int = 0, since: datetime | None = None) -> Iterator[AuditEntry]:
        """Sealed entries after number *after* and not older than *since*, oldest first.

        They are read in steps; bisection finds the first.
        """
        if since is not None:
            after = max(after, self._before(since))
        place = f"({after}-0"
        while True:
            with translate_errors():
                rows = self._client.xrange(self._keys.audit, place, "+", count=BATCH)
            for item in rows:
                yield Link.read(*item).entry()
            if len(rows) < BATCH:
                return
            place = f"({rows[-1][0]}"

    def export(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        filters: AuditFilter = ANY_ENTRY,
    ) -> Iterator[str]:
        """Sealed entries, oldest first, each as a line of JSON without the line break."""
        entries = self.entries(since=since)
        if until is not None:
            entries = takewhile(lambda entry: entry.at < until, entries)
        return (entry.to_json() for entry in entries if filters.fits(entry))

    def wait(self, after: int, seconds: float) -> list[AuditEntry]:
        """Wait for entries sealed after number *after*.

        *seconds* must be less than the connection's timeout.
        """
        with translate_errors():
            block = max(1, milliseconds(seconds))
            streams = self._client.xread({self._keys.audit: f"{after}-0"}, BATCH, block)
        return [Link.read(*item).entry() for _, items in streams or [] for item in items]

    def head(self) -> AuditHead | None:
        """The recorded end of the chain; None when it is empty."""
        with translate_errors():
            seq, digest = self._client.hmget(self._keys.audit_head, ["seq", "hash"])
        return read_head(seq, digest)

    def verify(
        self, expect: AuditHead | None = None, begin: AuditHead | None = None
    ) -> Verification:
        """Check the chain, reading it in steps.

        Args:
            expect: a head noted earlier, which must still be part of the chain.
            begin: a trusted head noted earlier; only entries after it are checked.
        """
        return Verifier(self._client, self._keys, self._sealing).verify(expect, begin)

    def _before(self, since: datetime) -> int:
        """The number of the last entry that is older than *since*."""
        with translate_errors():
            first = self._client.xrange(self._keys.audit, count=1)
            last = self._client.xrevrange(self._keys.audit, count=1)
        if not first:
            return 0
        low, high = Link.read(*first[0]).stands_at - 1, Link.read(*last[0]).stands_at
        while low < high:
            middle = (low + high + 1) // 2
            with translate_errors():
                rows = self._client.xrange(self._keys.audit, f"{middle}-0", "+", count=1)
            if rows and Link.read(*rows[0]).entry().at < since:
                low = middle
            else:
                high = middle - 1
        return low


def seal_all(client: Client, chains: Sequence[Audit]) -> int:
    """Seal every chain that has open entries; return the number of entries sealed.

    One round trip is enough when no chain has any.
    """
    with translate_errors():
        pipe = client.pipeline(transaction=False)
        for chain in chains:
            pipe.xlen(chain.open_stream)
        waiting = replies_of_some(pipe)
    done = 0
    for chain, n in zip(chains, waiting, strict=True):
        if n and not isinstance(n, redis.RedisError):
            done += chain.seal()
    return done


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > 18:
        raise BadCursor(f"invalid cursor {cursor[:40]!r}: pass nextCursor of an earlier response")
    return int(cursor)
