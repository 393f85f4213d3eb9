"""The chain of audit entries: seals it, verifies it, and names the first entry that is wrong."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from pydantic import SecretStr

from boyd.models import AuditEntry, AuditHead, Misfit, Verification, from_ms
from boyd.models.audit import Fault
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors

PLAIN = "sha256"
#: The head of an empty chain.
START = AuditHead(seq=0, hash="")
#: Fields of an entry that have their own attribute in `AuditEntry`.
_NAMED = frozenset({"kind", "who", "name", "key", "from", "claims", "before", "after", "note"})


@dataclass(frozen=True)
class Sealing:
    """The parameters for sealing entries.

    Attributes:
        key: the secret for HMAC-SHA256; without it plain SHA-256, which anybody can recompute.
        keep: the number of sealed entries to keep.
        chain: the chain's name, hashed so that one chain cannot replace another.
    """

    key: str | None = field(default=None, repr=False)
    keep: int = 100_000
    chain: str = ""

    @classmethod
    def of(cls, key: SecretStr | None, keep: int) -> Self:
        """The sealing for the settings `audit_key` and `audit_keep`."""
        return cls(key.get_secret_value() if key else None, keep)

    @property
    def name(self) -> str:
        """The method's name in each entry: `sha256`, or `hmac:` and the key's fingerprint."""
        if self.key is None:
            return PLAIN
        return "hmac:" + self._hmac("boyd audit key")[:8]

    def hash(self, prev: str, seq: int, at: str, body: str) -> str:
        """The hash of an entry as hex digits."""
        # No part contains a line break, so different entries never give the same text.
        text = f"{self.chain}\n{prev}\n{seq}\n{at}\n{body}"
        return self._hmac(text) if self.key is not None else _sha256(text)

    def proof(self, head: AuditHead) -> str:
        """The proof that a holder of the key set a checkpoint."""
        text = f"{self.chain}\ncheckpoint\n{head}"
        return self._hmac(text) if self.key is not None else _sha256(text)

    def _hmac(self, text: str) -> str:
        assert self.key is not None
        return hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Link:
    """An entry as stored in the sealed stream.

    Attributes:
        place: its id in that stream; sealers use `SEQ-0`.
        seq: the sequence number that the entry claims.
        at: its id in the open stream, which is its time.
        body: its fields as canonical JSON.
        prev, sealed_by, hash: as in `AuditEntry`.
    """

    place: str
    seq: int
    at: str
    body: str
    prev: str
    sealed_by: str
    hash: str

    @classmethod
    def read(cls, place: str, fields: Mapping[str, str]) -> Link:
        """Read a stream entry; absent or unreadable fields are empty, because it may be forged."""
        values = [fields.get(name, "") for name in ("at", "body", "prev", "by", "hash")]
        return cls(place, _number(fields.get("seq", "")), *values)

    @property
    def stands_at(self) -> int:
        """The sequence number in its place; 0 when no sealer wrote that place."""
        number, _, rest = self.place.partition("-")
        return int(number) if rest == "0" else 0

    def arguments(self) -> list[str]:
        """The link as arguments of the script `seal_audit`."""
        return [str(self.seq), self.at, self.body, self.prev, self.sealed_by, self.hash]

    def is_whole(self, sealing: Sealing) -> bool:
        """Check whether its hash matches its content."""
        expected = sealing.hash(self.prev, self.seq, self.at, self.body)
        return hmac.compare_digest(expected.encode(), self.hash.encode())

    def entry(self) -> AuditEntry:
        """The entry for display; a forged one as far as it is readable."""
        fields = _fields(self.body)
        values = {name: fields.get(name) for name in _NAMED - {"kind"}}
        return AuditEntry.model_validate(
            {
                "seq": self.stands_at,
                "id": self.at,
                "at": from_ms(_ms(self.at)),
                "kind": fields.get("kind", "unreadable"),
                "what": {k: v for k, v in fields.items() if k not in _NAMED},
                "sealedBy": self.sealed_by,
                "prev": self.prev,
                "hash": self.hash,
                **values,
            }
        )


def seal(sealing: Sealing, prev: str, seq: int, at: str, fields: Mapping[str, str]) -> Link:
    """The next link of a chain."""
    body = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = sealing.hash(prev, seq, at, body)
    return Link(f"{seq}-0", seq, at, body, prev, sealing.name, digest)


def read_head(seq: str | None, digest: str | None) -> AuditHead | None:
    """The head recorded in Redis; None when it is absent."""
    return AuditHead(seq=_number(seq), hash=digest) if seq and digest else None


def _ms(at: str) -> int:
    number = _number(at.partition("-")[0])
    # A forged time may be too large for a datetime.
    return number if number < 2**47 else 0


def _number(text: str) -> int:
    """The number; 0 for a text that Boyd would not write."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else 0


def _fields(body: str) -> dict[str, str]:
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in fields.items()} if isinstance(fields, dict) else {}


#: Entries to read at a time, and to search for an entry that was moved.
_PAGE = 1000
#: Attempts when the beginning of the chain is trimmed during verification.
_TRIES = 5


class Verifier:
    """Verifies one chain from its checkpoint to its end."""

    def __init__(self, client: Client, keys: Keys, sealing: Sealing) -> None:
        self._client = client
        self._keys = keys
        self._sealing = sealing

    def verify(
        self, expect: AuditHead | None = None, begin: AuditHead | None = None
    ) -> Verification:
        """Check the chain; see `Audit.verify`."""
        for _ in range(_TRIES):
            trimmed, proof = self._checkpoint()
            result = self._check(trimmed, proof, expect, begin)
            if result.ok or self._checkpoint()[0] == trimmed:
                break
        return result

    def _check(
        self, trimmed: AuditHead, proof: str, expect: AuditHead | None, begin: AuditHead | None
    ) -> Verification:
        skips = begin is not None and begin.seq > trimmed.seq
        walk = _Walk(self._sealing, begin if begin and skips else trimmed)
        misfit = (
            (None if skips else self._check_checkpoint(trimmed, proof))
            or self._check_head(begin, trimmed)
            or self._along(walk)
            or self._check_head(expect, trimmed, walk.last)
            or self._end(walk.last)
        )
        with translate_errors():
            waiting = self._client.xlen(self._keys.audit_open)
        return Verification(
            ok=misfit is None,
            checked=walk.checked,
            head=walk.last if walk.last.seq else None,
            trimmed=trimmed if trimmed.seq else None,
            waiting=waiting,
            misfit=misfit,
        )

    def _check_checkpoint(self, trimmed: AuditHead, proof: str) -> Misfit | None:
        if trimmed == START or proof == self._sealing.proof(trimmed):
            return None
        detail = "the checkpoint of the trimmed entries was not signed with this audit key"
        return _misfit(trimmed.seq, None, "wrong key", detail)

    def _check_head(
        self, head: AuditHead | None, trimmed: AuditHead, last: AuditHead | None = None
    ) -> Misfit | None:
        """The misfit of a head noted earlier; None when it is part of the chain."""
        if head is None or head == trimmed:
            return None
        if head.seq < trimmed.seq:
            detail = f"the entries up to {trimmed.seq} have been trimmed"
            return _misfit(head.seq, None, "missing", detail)
        if last and head.seq > last.seq:
            detail = f"the chain ends before the noted entry {head.seq}"
            return _misfit(last.seq + 1, None, "missing", detail)
        with translate_errors():
            place = f"{head.seq}-0"
            rows = self._client.xrange(self._keys.audit, place, place)
        if not rows:
            return _misfit(head.seq, None, "missing", "the noted entry is missing")
        link = Link.read(*rows[0])
        if link.hash == head.hash:
            return None
        return _misfit(head.seq, link, "changed", "its hash differs from the noted one")

    def _along(self, walk: _Walk) -> Misfit | None:
        for link in self._links(walk.last.seq):
            if not walk.fits(link):
                return walk.explain(link, self._read(f"({link.place}"))
            walk.step(link)
        return None

    def _end(self, last: AuditHead) -> Misfit | None:
        """The misfit between the chain's end and the recorded head."""
        end = self._read_end()
        if end.seq > last.seq and not self._has_newer_entries(last):
            return _misfit(last.seq + 1, None, "missing", f"the chain continued to entry {end.seq}")
        if end == START and last != START:
            return _misfit(last.seq, None, "missing", "the record of the chain's end is missing")
        if end.seq < last.seq:
            return _misfit(
                end.seq + 1, None, "inserted", f"the recorded end of the chain is entry {end.seq}"
            )
        if end.seq == last.seq and end.hash != last.hash:
            return _misfit(
                last.seq, None, "changed", "its hash differs from the recorded end of the chain"
            )
        return None

    def _has_newer_entries(self, last: AuditHead) -> bool:
        """Check whether more entries were sealed during verification."""
        return bool(self._read(f"({last.seq}-0", 1))

    def _read_end(self) -> AuditHead:
        with translate_errors():
            fields = self._client.hmget(self._keys.audit_head, ["seq", "hash"])
        return read_head(*fields) or START

    def _checkpoint(self) -> tuple[AuditHead, str]:
        with translate_errors():
            names = ["trimmedSeq", "trimmedHash", "trimmedProof"]
            seq, digest, proof = self._client.hmget(self._keys.audit_head, names)
        return read_head(seq, digest) or START, proof or ""

    def _links(self, after: int) -> Iterator[Link]:
        place = "-" if after == 0 else f"({after}-0"
        while True:
            page = self._read(place)
            yield from page
            if len(page) < _PAGE:
                return
            place = f"({page[-1].place}"

    def _read(self, place: str, count: int = _PAGE) -> list[Link]:
        with translate_errors():
            rows = self._client.xrange(self._keys.audit, place, "+", count=count)
        return [Link.read(*item) for item in rows]


class _Walk:
    """The progress of verification along the chain."""

    def __init__(self, sealing: Sealing, start: AuditHead) -> None:
        self._sealing = sealing
        self._previous: Link | None = None
        self.last = start
        self.checked = 0

    def fits(self, link: Link) -> bool:
        """Check whether *link* is the valid next link."""
        seq = self.last.seq + 1
        return (
            link.stands_at == seq == link.seq
            and link.prev == self.last.hash
            and link.sealed_by == self._sealing.name
            and link.is_whole(self._sealing)
        )

    def step(self, link: Link) -> None:
        """Advance to a link that fits."""
        self._previous = link
        self.last = AuditHead(seq=link.seq, hash=link.hash)
        self.checked += 1

    def explain(self, link: Link, following: Sequence[Link]) -> Misfit:
        """Explain why *link* does not fit, judging from it and the links after it."""
        seq = self.last.seq + 1
        place = link.stands_at
        if place > seq:
            return _misfit(seq, link, "missing", f"entry {seq - 1} is followed by entry {place}")
        if place < seq:
            return _misfit(
                seq, link, "inserted", f"{link.place} is not a position of a sealed entry"
            )
        if link.sealed_by != self._sealing.name:
            ours = self._sealing.name
            detail = f"it was sealed with {_words(link.sealed_by)} instead of {_words(ours)}"
            return _misfit(seq, link, "wrong key", detail)
        if not link.is_whole(self._sealing):
            return self._explain_change(link, following)
        return self._out_of_order(link, following)

    def _explain_change(self, link: Link, following: Sequence[Link]) -> Misfit:
        seq = self.last.seq + 1
        if any(self._belongs(other) for other in following):
            return _misfit(seq, link, "inserted", "the entry that belongs here follows it")
        return _misfit(seq, link, "changed", "its content has changed since it was sealed")

    def _out_of_order(self, link: Link, following: Sequence[Link]) -> Misfit:
        """The misfit before *link*, which is itself genuine."""
        seq, previous = self.last.seq + 1, self._previous
        if previous and link.seq == previous.seq and link.prev == previous.prev:
            return _misfit(previous.seq, previous, "inserted", "the next entry has its number")
        if link.seq != seq:
            if any(self._belongs(other) for other in following):
                return _misfit(seq, link, "reordered", f"entry {link.seq} is in its place")
            return _misfit(seq, link, "missing", f"entry {link.seq} is in its place")
        before = max(self.last.seq, 1)
        return _misfit(before, previous, "changed", f"entry {seq} was sealed after a different one")

    def _belongs(self, other: Link) -> bool:
        """Check whether *other* is the link that should have come next."""
        follows = other.seq == self.last.seq + 1 and other.prev == self.last.hash
        return follows and other.is_whole(self._sealing)


def _misfit(seq: int, link: Link | None, fault: Fault, detail: str) -> Misfit:
    return Misfit(seq=seq, id=link.at if link else None, why=fault, detail=detail)


def _words(sealed_by: str) -> str:
    kind, _, name = sealed_by.partition(":")
    return f"the audit key {name}" if kind == "hmac" else "no audit key"
