"""Approvals: actions that wait for a person, in hashes with a deadline (A1-A9, A14)."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Literal

from boyd import naming
from boyd.errors import StoreError
from boyd.models import (
    ActionResult,
    Actor,
    ApprovalItem,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalQueue,
    JoinedRequest,
    Proposal,
    Vote,
    from_ms,
    unexplained,
    utc_now,
)
from boyd.store.audit_trail import actor_fields
from boyd.store.connection import Client, translated
from boyd.store.hashes import flatten, restore
from boyd.store.jobs import read_execution
from boyd.store.keys import Keys
from boyd.store.paging import ByteBudget, dump_cursor, load_cursor, read_page
from boyd.store.scripts import KeyedScripts
from boyd.store.timing import Retention, milliseconds

#: How a person or the loop may resolve an item; it expires by itself.
Verdict = Literal["approved", "denied", "withdrawn"]

#: How many items the script `expire_approvals` moves at once.
EXPIRED_AT_ONCE = 100
#: Seconds before its deadline in which an item may be gone before somebody joins it.
SOON = 5.0
#: Seconds that it is remembered which situation asked for an item.
WATCHED = 30 * 86400


class Approvals:
    """The approval queue of one agent."""

    def __init__(
        self, client: Client, scripts: KeyedScripts, keys: Keys, agent_id: str, resend_after: float
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._agent_id = agent_id
        self._resend_after = milliseconds(resend_after)

    def enqueue(
        self,
        proposal: Proposal,
        retention: Retention,
        proposed_by: str | None = None,
        notify: bool = False,
    ) -> str:
        """Queue *proposal*, or raise `seen` on the pending item that is the same (A9); its id.

        *proposed_by* is the execution that it would be: proposed again by the same one, it is the
        same item, whatever has become of it. The id is empty when all its runs were cancelled.
        With *notify* notifiers are told of it (A13).
        """
        approval_id = self._id(proposed_by) if proposed_by else str(uuid.uuid4())
        lists: dict[str, object] = {"run_ids": [], "requested_by": [], "wakes": []}
        lists["situation_summary"] = None
        fields = flatten(proposal.patched(lists))
        if proposal.preview is not None:
            fields += ["previewDigest", _said(proposal.preview)]
        asked_by = " ".join(proposal.requested_by)
        options = {
            "summary": proposal.situation_summary or "",
            "runs": " ".join(proposal.run_ids),
            "asked_by": asked_by,
            "wakes": " ".join(proposal.wakes),
            "who": asked_by or f"agent:{self._agent_id}",
            "rationale": _rationale(proposal),
            "title": naming.title(proposal.action_id, proposal.undoes),
            "undoes": proposal.undoes or "",
            "notify": notify,
        }
        if retention.ttl is not None:
            options["ttl"] = milliseconds(retention.ttl)
        found = self._scripts.run(
            "propose_action",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            fingerprint=fingerprint(proposal),
            options=options,
            fields=["agentId", self._agent_id, *fields],
        )
        return str(found)

    def proposed(self, proposed_by: str) -> str | None:
        """The item that an execution has proposed, if it has."""
        approval_id = self._id(proposed_by)
        with translated():
            fields = ["sameAs", "id"]
            same, own = self._client.hmget(self._keys.approval(approval_id), fields)
        found: str | None = same or own
        return found

    def waits(self, proposal: Proposal) -> bool:
        """Whether the same proposal is pending already, and will not expire at once."""
        keys = self._keys
        with translated():
            found = self._client.hget(keys.approvals_fingerprints, fingerprint(proposal))
            if found is None:
                return False
            deadline = self._client.zscore(keys.approvals_pending, found)
            seconds, micros = self._client.time()
        return deadline is not None and seconds + micros / 1e6 + SOON < deadline / 1000

    def refresh(self, approval_id: str, preview: ActionResult) -> bool:
        """Store what the dry run of an item says now (A12); False when it is not pending.

        When it says something else than before, the item has another version.
        """
        stored = self._scripts.run(
            "store_preview",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            preview=preview.to_json(),
            digest=_said(preview),
        )
        return bool(stored)

    def resolve(
        self,
        approval_id: str,
        verdict: Verdict,
        actor: Actor,
        retention: Retention,
        *,
        note: str | None = None,
        policy: ApprovalPolicy,
        version: int | None = None,
        result: ActionResult | None = None,
        request: str | None = None,
    ) -> ApprovalOutcome:
        """Answer a pending item; exactly one answer resolves it (A3).

        An approval counts towards what *policy* asks for. With the last one needed, the execution
        is due in the same step (A4), unless *result* says that it has been done. The same *request*
        of the same actor is answered as the first time.
        """
        options = {
            "needed": policy.min_approvals,
            "own": policy.allow_requester,
            "vote": _vote(actor, note).to_json(),
            "request": request or "",
            "note": note or "",
            "actor": actor_fields(actor),
            "resend_after": self._resend_after,
        }
        if version is not None:
            options["version"] = str(version)
        if result is not None:
            options["done"] = result.state
        [outcome] = self._scripts.run(
            "resolve_approval",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            verdict=verdict,
            principal=actor.principal,
            options=options,
            retention=retention.limits(),
            fields=_updates(actor, note, result),
        )
        return ApprovalOutcome(outcome)

    def expire(self, retention: Retention) -> list[ApprovalItem]:
        """Move pending items whose deadline has passed to history; the sweeper does this.

        Until then they are read as expired, and nobody can act on them.
        """
        expired: list[str] = []
        while True:
            found = self._scripts.run("expire_approvals", retention=retention.limits())
            expired += found
            if len(found) < EXPIRED_AT_ONCE:
                return self._read(expired)

    def get(self, approval_id: str) -> ApprovalItem | None:
        """One item."""
        found = self._read([approval_id])
        return found[0] if found else None

    def page(self, limit: int, cursor: str | None = None, history: bool = True) -> ApprovalQueue:
        """What waits, first deadline first, and what was resolved, last first; up to *limit* each.

        Only a `Portion` is read, so there may be fewer and still a cursor to go on with.

        Raises:
            BadCursor: *cursor* was not given out by an earlier page.
        """
        keys = self._keys
        waiting, resolved = load_cursor(cursor, 2)
        pending = read_page(self._scripts, keys.approvals_pending, waiting, limit, False)
        past = read_page(self._scripts, keys.approvals_history, resolved, limit) if history else []
        portion = ByteBudget(self._scripts)
        waits, read = self._read_page(portion, pending)
        overdue = [item for item in reversed(waits) if item.status == "expired"] if history else []
        done, read_past = self._read_page(portion, past)
        more = portion.full or len(pending) == limit or len(past) == limit
        positions = (
            pending[read - 1] if read else waiting,
            past[read_past - 1] if read_past else resolved,
        )
        return ApprovalQueue(
            # What was resolved between the two reads is not pending any more.
            pending=[item for item in waits if item.status == "pending"],
            history=[*overdue, *done],
            next_cursor=dump_cursor(*positions) if more else None,
        )

    def watch(self, approval_id: str, strategy: str, observers: Sequence[str]) -> None:
        """Remember which strategy asked for an item, and what it went by (A10)."""
        with translated():
            pipe = self._client.pipeline()
            value = " ".join([strategy, *observers])
            pipe.hset(self._keys.approvals_clearing, approval_id, value)
            pipe.expire(self._keys.approvals_clearing, WATCHED)
            pipe.execute()

    def watched(self) -> dict[str, tuple[str, set[str]]]:
        """The items that go away with their situation: strategy and observers of each."""
        with translated():
            found = self._client.hgetall(self._keys.approvals_clearing)
        return {name: (text.split()[0], set(text.split()[1:])) for name, text in found.items()}

    def unwatch(self, approval_ids: Sequence[str]) -> None:
        """Forget what was remembered of those items."""
        with translated():
            self._client.hdel(self._keys.approvals_clearing, *approval_ids)

    def pending_of(self, approval_ids: Sequence[str]) -> set[str]:
        """Those of the items that are pending."""
        with translated():
            scores = self._client.zmscore(self._keys.approvals_pending, list(approval_ids))
        found = zip(approval_ids, scores, strict=True)
        return {name for name, score in found if score is not None}

    def _id(self, proposed_by: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"boyd:{self._agent_id}:{proposed_by}"))

    def _read(self, ids: list[str]) -> list[ApprovalItem]:
        if not ids:
            return []
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for approval_id in ids:
                pipe.hgetall(self._keys.approval(approval_id))
                pipe.zscore(self._keys.approvals_pending, approval_id)
            pipe.time()
            *found, now = pipe.execute()
        items = zip(found[::2], found[1::2], strict=True)
        return [_read_now(fields, at, _ms(now)) for fields, at in items if "status" in fields]

    def _read_page(
        self, portion: ByteBudget, places: Sequence[tuple[str, float]]
    ) -> tuple[list[ApprovalItem], int]:
        """The items of a page, and at how many of its places the portion was full."""
        found = list(portion.read("approval", [name for name, _ in places]))
        with translated():
            now = _ms(self._client.time())
        items = zip(found, (at for _, at in places), strict=False)
        read = [_read_now(fields, at, now) for fields, at in items if "status" in fields]
        return read, len(found)


def _read_now(fields: Mapping[str, str], deadline: float | None, now: float) -> ApprovalItem:
    """An item as it is *now*: one that is pending past its deadline has expired."""
    item = read_item(fields)
    if item.status != "pending" or deadline is None or deadline > now:
        return item
    changes = {"status": "expired", "version": item.version + 1}
    return item.patched({**changes, "updated_at": item.expires_at or item.updated_at})


def read_item(fields: Mapping[str, str]) -> ApprovalItem:
    """An item from its hash.

    Raises:
        StoreError: it is not to be read: a later release has written it, or somebody else.
    """
    try:
        votes = [_read_vote(fields, name) for name in fields if name.startswith("vote:")]
        asked = [_read_asked(fields, name) for name in fields if name.startswith("asked:")]
        return restore(ApprovalItem, fields).patched(
            {
                "title": _title(fields),
                "asked": sorted(asked, key=lambda one: one.at),
                "approvals": sorted(votes, key=lambda vote: vote.at),
                "execution": read_execution(fields),
            }
        )
    except ValueError as error:
        raise StoreError(f"approval {fields.get('id')} cannot be read: {error}") from None


def _ms(time: tuple[int, int]) -> float:
    seconds, micros = time
    return seconds * 1000 + micros / 1000


def _read_vote(fields: Mapping[str, str], name: str) -> Vote:
    vote = Vote.from_json(fields[name])
    counted = fields.get(f"votedAt:{name.removeprefix('vote:')}")
    return vote.patched({"at": from_ms(float(counted))}) if counted else vote


def _said(preview: ActionResult) -> str:
    """The digest of what a dry run says, however long it took."""
    said = preview.patched({"duration": 0.0}).to_wire()
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _rationale(proposal: Proposal) -> str:
    """The reason that somebody gave; empty when nobody did."""
    rationale = proposal.decision.rationale
    return "" if rationale in map(unexplained, proposal.requested_by) else rationale


def _title(fields: Mapping[str, str]) -> str:
    """The title, also of what an earlier release has stored."""
    return fields.get("title") or naming.title(fields["actionId"], fields.get("undoes"))


def _read_asked(fields: Mapping[str, str], name: str) -> JoinedRequest:
    by = name.removeprefix("asked:")
    return JoinedRequest(by=by, at=from_ms(float(fields[f"askedAt:{by}"])), rationale=fields[name])


def _updates(actor: Actor, note: str | None, result: ActionResult | None) -> list[str]:
    claims = actor.claims if actor.claims != actor.principal else None
    fields = {"actedBy": actor.principal, "claimedBy": claims, "note": note}
    flat = [item for name, value in fields.items() if value for item in (name, value)]
    if result is None:
        return flat
    return [*flat, "result", result.to_json(), "executionState", result.state]


def _vote(actor: Actor, note: str | None) -> Vote:
    claims = actor.claims if actor.claims != actor.principal else None
    return Vote(
        by=actor.principal,
        person=actor.person,
        groups=actor.groups,
        at=utc_now(),
        note=note,
        key=actor.key,
        claims=claims,
    )


def fingerprint(proposal: Proposal) -> str:
    """The digest of action id and canonical params: the same proposal has the same one.

    A roll-back also names the execution that it undoes; what is for one execution only, that one.
    """
    canonical = json.dumps(proposal.params, sort_keys=True, separators=(",", ":"))
    undoes = f"\n{proposal.undoes}" if proposal.undoes else ""
    bound = f"\n=> {proposal.bound_to}" if proposal.bound_to else ""
    text = f"{proposal.action_id}\n{canonical}{undoes}{bound}"
    return hashlib.sha256(text.encode()).hexdigest()
