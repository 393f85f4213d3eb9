"""The hash chain under the audit trail: what is hashed, and how an entry lies in Redis. No I/O.

The hash of an entry covers its chain, the hash of the one before it, its number, its time and its
text, so none can be changed, left out or moved without breaking every hash that follows.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pydantic import SecretStr

from boyd.models import AuditEntry, AuditHead, from_ms

PLAIN = "sha256"
#: Where an empty chain ends.
START = AuditHead(seq=0, hash="")
#: Fields of an entry that have a place of their own in `AuditEntry`.
_NAMED = frozenset({"kind", "who", "key", "from", "claims", "before", "after", "note"})


@dataclass(frozen=True)
class Sealing:
    """How entries are sealed.

    Attributes:
        key: the secret for HMAC-SHA256; without one it is SHA-256, which anybody can recompute.
        keep: how many sealed entries are kept.
        chain: which chain it is, so that none can be put in another's place.
    """

    key: str | None = field(default=None, repr=False)
    keep: int = 100_000
    chain: str = ""

    @classmethod
    def of(cls, key: SecretStr | None, keep: int) -> Self:
        """What the settings `audit_key` and `audit_keep` say."""
        return cls(key.get_secret_value() if key else None, keep)

    @property
    def name(self) -> str:
        """What entries sealed like this carry: `sha256`, or `hmac:` and the key's fingerprint."""
        if self.key is None:
            return PLAIN
        return "hmac:" + self._keyed("boyd audit key")[:8]

    def hash(self, prev: str, seq: int, at: str, body: str) -> str:
        """The hash of an entry, in hex."""
        # No part holds a line break, so no two entries give the same text.
        text = f"{self.chain}\n{prev}\n{seq}\n{at}\n{body}"
        return self._keyed(text) if self.key is not None else _sha256(text)

    def proof(self, head: AuditHead) -> str:
        """What shows that a checkpoint was set by somebody with the key."""
        text = f"{self.chain}\ncheckpoint\n{head}"
        return self._keyed(text) if self.key is not None else _sha256(text)

    def _keyed(self, text: str) -> str:
        assert self.key is not None
        return hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Link:
    """An entry as it lies in the sealed stream.

    Attributes:
        place: its id there, `SEQ-0` when it was put there by a sealer.
        seq: the number that it says to have.
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
        """One of the stream; what is absent or unreadable is empty, for it may be forged."""
        given = [fields.get(name, "") for name in ("at", "body", "prev", "by", "hash")]
        return cls(place, _whole(fields.get("seq", "")), *given)

    @property
    def stands_at(self) -> int:
        """The number that its place gives it; 0 when no sealer made such a place."""
        number, _, rest = self.place.partition("-")
        return int(number) if rest == "0" else 0

    def arguments(self) -> list[str]:
        """What the script that stores it takes."""
        return [str(self.seq), self.at, self.body, self.prev, self.sealed_by, self.hash]

    def is_whole(self, sealing: Sealing) -> bool:
        """Whether its hash is that of its own content."""
        expected = sealing.hash(self.prev, self.seq, self.at, self.body)
        return hmac.compare_digest(expected.encode(), self.hash.encode())

    def entry(self) -> AuditEntry:
        """As it is shown; a forged one too, as far as it can be read."""
        fields = _fields(self.body)
        named = {name: fields.get(name) for name in _NAMED - {"kind"}}
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
                **named,
            }
        )


def sealed(sealing: Sealing, prev: str, seq: int, at: str, fields: Mapping[str, str]) -> Link:
    """The next link of a chain."""
    body = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = sealing.hash(prev, seq, at, body)
    return Link(f"{seq}-0", seq, at, body, prev, sealing.name, digest)


def noted(seq: str | None, digest: str | None) -> AuditHead | None:
    """A head as it is noted in Redis, if it can be read."""
    return AuditHead(seq=_whole(seq), hash=digest) if seq and digest else None


def _ms(at: str) -> int:
    number = _whole(at.partition("-")[0])
    # A forged time may be one that no datetime can hold.
    return number if number < 2**47 else 0


def _whole(text: str) -> int:
    """The number, or 0 when it is none that Boyd wrote."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else 0


def _fields(body: str) -> dict[str, str]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
