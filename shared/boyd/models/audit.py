"""The audit trail: entries of a hash chain, filters, and their verification."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field

from boyd.models.base import Model, Timestamp

Fault = Literal["changed", "missing", "reordered", "inserted", "wrong key"]

_HEAD = re.compile(r"^([1-9]\d{0,17}):([0-9a-f]{64})$")


class AuditHead(Model):
    """A position in the chain: number and hash of an entry. It vouches for all entries before it.

    `str(head)` is `SEQ:HASH`, which `AuditHead.parse` reads.
    """

    seq: int = Field(ge=0)
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `SEQ:HASH`.

        Raises:
            ValueError: it is not of that form.
        """
        match = _HEAD.match(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not SEQ:HASH, such as 12:<64 hex digits>")
        return cls(seq=int(match[1]), hash=match[2])


class AuditedChange(Model):
    """A change, who made it and from where."""

    seq: int
    id: str
    at: Timestamp
    kind: str
    who: str | None = None
    name: str | None = None
    key: str | None = None
    address: str | None = Field(default=None, alias="from")
    claims: str | None = None
    before: str | None = None
    after: str | None = None
    note: str | None = None
    what: dict[str, str] = Field(default_factory=dict)


class AuditEntry(AuditedChange):
    """One change.

    Attributes:
        seq: its number in the chain, from 1.
        id: its id in the open stream, where the change itself wrote it.
        at: when, by the Redis server's clock.
        kind: what happened, as in `approval.approved`.
        who: the principal who did it.
        name: the principal's name at that time, if a provider has told it.
        key: the id of the key that was shown, if one was.
        address: where the request came from; `from` on the wire.
        claims: who the caller said to act for.
        before: what the state was.
        after: what it is since.
        note: why.
        what: everything else, such as `approval` or `run` with its id.
        sealed_by: `sha256`, or `hmac:` and the fingerprint of the audit key.
        prev: the hash of the entry before it; empty for the first.
        hash: that of this one.
    """

    sealed_by: str
    prev: str
    hash: str


class AuditFilter(Model):
    """A filter for audit entries; absent fields match anything.

    Attributes:
        by: the principal who did it, or who the caller said to act for.
        kind: what happened: `action.started`, or `action` for all that begin with it.
        action: the id of the action that it was about.
        host: where an action was executed.
        worker: by which process.
    """

    by: str | None = Field(default=None, max_length=200)
    kind: str | None = Field(default=None, max_length=100)
    action: str | None = Field(default=None, max_length=200)
    host: str | None = Field(default=None, max_length=255)
    worker: str | None = Field(default=None, max_length=300)

    @property
    def is_open(self) -> bool:
        """True if it matches every entry."""
        return not any(getattr(self, name) for name in AuditFilter.model_fields)

    def fits(self, entry: AuditEntry) -> bool:
        """Check whether *entry* matches."""
        if self.by and self.by not in (entry.who, entry.claims):
            return False
        if self.kind and not f"{entry.kind}.".startswith(f"{self.kind.rstrip('.')}."):
            return False
        required = {"action": self.action, "host": self.host, "worker": self.worker}
        return all(entry.what.get(name) == value for name, value in required.items() if value)


class AuditPage(Model):
    """Entries, newest first, and where the next page goes on; absent: it was the last.

    `missing` says why archived ones are missing, if the archive does not answer.
    """

    entries: list[AuditEntry]
    next_cursor: str | None = None
    missing: str | None = None


class Misfit(Model):
    """The first entry that breaks the chain.

    Attributes:
        seq: its number, or that of the entry that should be there.
        id: the id of what stands there, if anything does.
        why: the kind of manipulation, as far as it can be told.
        detail: the same in a sentence.
    """

    seq: int
    id: str | None = None
    why: Fault
    detail: str


class Verification(Model):
    """The result of verifying a chain.

    Attributes:
        ok: whether every entry fits.
        checked: how many entries were looked at and fit.
        head: the last entry that fits; absent when the chain is empty. Note it elsewhere.
        trimmed: the checkpoint: the last entry that the cap removed.
        waiting: how many entries are not sealed yet, and so not protected.
        misfit: the first entry that does not fit.
    """

    ok: bool
    checked: int
    head: AuditHead | None = None
    trimmed: AuditHead | None = None
    waiting: int = 0
    misfit: Misfit | None = None
