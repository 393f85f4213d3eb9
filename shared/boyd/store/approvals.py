"""Approvals: actions that wait for a person, in hashes with a deadline."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from boyd import naming
from boyd.errors import ActionHeld, AgentRevoked, UnreadableRecord
from boyd.models import (
    FROZEN,
    REVOKED,
    STAGES,
    ActionResult,
    Actor,
    ApiKey,
    ApprovalItem,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalQueue,
    JobExecution,
    JoinedRequest,
    NotificationRecord,
    Proposal,
    Vote,
    default_rationale,
    from_ms,
    to_ms,
    utc_now,
)
from boyd.store.fleet import Retention
from boyd.store.freezes import FreezeCopy
from boyd.store.hashes import (
    FIRST,
    ByteBudget,
    Listing,
    Place,
    Position,
    dump_cursor,
    flatten,
    load_cursor,
    read_page,
    readable,
    restore,
)
from boyd.store.in_flight import InFlight, place_of
from boyd.store.jobs import read_execution
from boyd.store.keys import API_KEYS, Keys
from boyd.store.notification_records import NOTIFIED
from boyd.store.server.connection import Client, near, replies_by_type, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds

#: The ways in which a person or the loop resolves an item; expiry is not one of them.
Verdict = Literal["approved", "denied", "withdrawn"]


@dataclass(frozen=True)
class ItemAnswer:
    """An answer to a pending item.

    Attributes:
        version: the one that the item must still have, if it matters.
        request: repeating it as the same actor has the first outcome.
        link_until: the deadline of the signed link that the actor uses; the answer uses it up.
        result: of the action, if it was executed already.
        vote: the approval, if it is signed.
    """

    verdict: Verdict
    by: Actor
    note: str | None = None
    version: int | None = None
    request: str | None = None
    link_until: datetime | None = None
    result: ActionResult | None = None
    vote: Vote | None = None


#: Items that one call of `expire_approvals` moves at most.
EXPIRED_AT_ONCE = 100
#: Seconds before its deadline in which an item may expire before a proposal can join it.
SOON = 5.0
#: The score from which on the index of pending items has those without a deadline.
NO_DEADLINE = 4e12
#: Seconds for which a denial holds its action where approvals have no deadline.
DENIAL = 3600.0
#: Seconds to remember the situation that asked for an item.
WATCHED = 30 * 86400


@dataclass(frozen=True)
class Resolution:
    """The outcome of an answer, the approval after it, and why rights or a freeze refuse it."""

    outcome: ApprovalOutcome
    item: ApprovalItem | None
    reason: str = ""

    @property
    def counts(self) -> bool:
        """True if the answer was accepted."""
        return self.outcome.counts


@dataclass(frozen=True)
class QueueListing:
    """A page of the queue.

    Attributes:
        pending: the items that wait for an answer, earliest deadline first.
        waiting: the position of the last of them, after which the next page begins.
        waits_for_more: whether others wait after that position.
        overdue: items that have expired and are not in the history yet.
        history: resolved items, newest first.
    """

    pending: list[ApprovalItem]
    waiting: Position
    waits_for_more: bool
    overdue: list[ApprovalItem]
    history: Listing[ApprovalItem]


class Approvals:
    """The approval queue of one agent."""

    def __init__(
        self,
        client: Client,
        scripts: KeyedScripts,
        keys: Keys,
        agent_id: str,
        resend_after: float,
        in_flight: InFlight,
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._agent_id = agent_id
        self._resend_after = milliseconds(resend_after)
        self._in_flight = in_flight

    def enqueue(
        self,
        proposal: Proposal,
        retention: Retention,
        proposed_by: str | None = None,
        notify: bool = False,
        unless_in_flight: bool = False,
    ) -> str:
        """Queue *proposal*, or increment `seen` of an equal pending item; return the item's id.

        *proposed_by* is the id of the execution that waits for the approval; the same execution
        always gets the same item, even a resolved one. The id is empty when the call or all runs
        of the proposal were cancelled. With *notify*, notifiers receive a notice.

        Raises:
            AgentRevoked: the agent's right to act is revoked.
            ActionHeld: `unless_in_flight`, and no more executions of it may be in flight; or a
                person has denied it since the iteration that proposes it has decided.
        """
        approval_id = self.id_for(proposed_by) if proposed_by else str(uuid.uuid4())
        lists: dict[str, object] = {"run_ids": [], "requested_by": [], "wakes": []}
        lists["situation_summary"] = None
        fields = flatten(proposal.patched(lists))
        if proposal.preview is not None:
            fields += ["previewDigest", _digest_of(proposal.preview)]
        options = self._options(proposal, retention, notify, unless_in_flight)
        options["by"] = proposed_by or ""
        propose = partial(
            self._scripts.run,
            "propose_action",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            fingerprint=fingerprint(proposal),
            fields=["agentId", self._agent_id, *fields],
        )
        reply = propose(options=options)
        if reply == ["unconfirmed"]:
            FreezeCopy(self._client, self._scripts).compare()
            reply = propose(options={**options, "compared": True})
        if isinstance(reply, list) and reply[0] == "in-flight":
            raise ActionHeld(f"{naming.short(reply[1])} has not ended")
        if reply == ["denied"]:
            raise ActionHeld("a person has just denied it")
        if isinstance(reply, list):
            raise AgentRevoked(f"{REVOKED}: {reply[1]}")
        return str(reply)

    def _options(
        self, proposal: Proposal, retention: Retention, notify: bool, unless_in_flight: bool
    ) -> dict[str, object]:
        """The options of the script `propose_action`."""
        asked_by = " ".join(proposal.requested_by)
        options: dict[str, object] = {
            "summary": proposal.situation_summary or "",
            "runs": " ".join(proposal.run_ids),
            "asked_by": asked_by,
            "wakes": " ".join(proposal.wakes),
            "who": asked_by or f"agent:{self._agent_id}",
            "rationale": _rationale(proposal),
            "title": _new_title(proposal),
            "undoes": proposal.undoes or "",
            "action": proposal.action_id,
            "target": proposal.target,
            "notify": notify,
            "agent": self._agent_id,
            **({"instead_of": json.dumps(proposal.instead_of)} if proposal.instead_of else {}),
        }
        if unless_in_flight and proposal.concurrency:
            place = place_of(proposal.action_id, proposal.target)
            options["in_flight"] = {"field": place, "limit": proposal.concurrency}
        if proposal.record is not None:
            options["class"] = proposal.record.situation
        if retention.ttl is not None:
            options["ttl"] = milliseconds(retention.ttl)
            options["keep"] = milliseconds(retention.max_age)
        return options

    def item_proposed_by(self, execution: str) -> str | None:
        """The id of the item that *execution* has proposed, if any."""
        approval_id = self.id_for(execution)
        with translate_errors():
            fields = ["sameAs", "id"]
            same, own = self._client.hmget(self._keys.approval(approval_id), fields)
        item_id: str | None = same or own
        return item_id

    def waits(self, proposal: Proposal) -> bool:
        """Check whether an equal proposal is pending and does not expire within `SOON`."""
        keys = self._keys
        with translate_errors():
            item_id = self._client.hget(keys.approvals_fingerprints, fingerprint(proposal))
            if item_id is None:
                return False
            deadline = self._client.zscore(keys.approvals_pending, item_id)
            seconds, micros = near(self._client, keys.loop).time()
        return deadline is not None and seconds + micros / 1e6 + SOON < deadline / 1000

    def refresh(self, approval_id: str, preview: ActionResult) -> bool:
        """Store the latest dry run of an item; False when the item is not pending.

        A dry run with another result increments the item's version.
        """
        stored = self._scripts.run(
            "store_preview",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            preview=preview.to_json(),
            digest=_digest_of(preview),
        )
        return bool(stored)

    def resolve(
        self, approval_id: str, answer: ItemAnswer, policy: ApprovalPolicy, retention: Retention
    ) -> Resolution:
        """Answer a pending item; exactly one answer resolves it.

        *policy* sets how many approvals an item needs. The last one also queues the execution,
        in the same step, unless there is a result already.
        """
        by, result = answer.by, answer.result
        options = {
            "needed": policy.min_approvals,
            "own": policy.allow_requester,
            "vote": (answer.vote or Vote.of(by, answer.note, utc_now())).to_json(),
            "request": answer.request or "",
            "note": answer.note or "",
            "actor": actor_fields(by),
            "resend_after": self._resend_after,
            "agent": self._agent_id,
            "hold_for": milliseconds(retention.ttl or DENIAL),
        }
        if answer.version is not None:
            options["version"] = str(answer.version)
        if answer.link_until is not None:
            options["link_until"] = to_ms(answer.link_until)
        if result is not None:
            options["done"] = result.state
        call = partial(
            self._scripts.call,
            "resolve_approval",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            verdict=answer.verdict,
            principal=by.principal,
            retention=retention.limits(),
            fields=_updates(by, answer.note, result),
        )
        run, reads = self._scripts.run_and_read, partial(self._add_reads, [approval_id])
        (outcome, *reason), replies = run(call(options=options), reads)
        if outcome == "unconfirmed":
            FreezeCopy(self._client, self._scripts).compare()
            (outcome, *reason), replies = run(call(options={**options, "compared": True}), reads)
        item = next(iter(self._in_flight.show_in(self._items([approval_id], replies))), None)
        if reason:
            text = f"{FROZEN if outcome == 'frozen' else REVOKED}: {reason[0]}"
            return Resolution(ApprovalOutcome.FROZEN, item, text)
        return Resolution(ApprovalOutcome(outcome), item)

    def keys_of_votes(self, items: Iterable[ApprovalItem]) -> dict[str, ApiKey | None]:
        """The keys with which pending items were approved, by id; None for a revoked one."""
        votes = (vote for item in items if item.status == "pending" for vote in item.approvals)
        names = sorted({vote.key for vote in votes if vote.key})
        if not names:
            return {}
        with translate_errors(API_KEYS):
            texts = self._client.hmget(API_KEYS, names)
        pairs = zip(names, texts, strict=True)
        return {name: ApiKey.from_json(text) if text else None for name, text in pairs}

    def mark_revoked(self, items: Sequence[ApprovalItem]) -> list[ApprovalItem]:
        """The *items*, in which the approvals with keys that were revoked are marked."""
        keys = self.keys_of_votes(items)
        revoked = {name for name, key in keys.items() if key is None}
        return [item.mark_votes(revoked) for item in items] if revoked else list(items)

    def drop_votes(self, approval_id: str, votes: Iterable[tuple[Vote, str]]) -> bool:
        """Drop approvals of a pending item, each for a reason; tell whether any was."""
        texts = []
        for vote, reason in votes:
            name, value = ("key", vote.key) if vote.key else ("by", vote.by)
            texts += [vote.by, f'"{name}":{json.dumps(value, ensure_ascii=False)}', reason]
        if not texts:
            return False
        approval = self._keys.approval(approval_id)
        return bool(self._scripts.run("drop_votes", approval=approval, id=approval_id, votes=texts))

    def expire(self, retention: Retention) -> list[ApprovalItem]:
        """Move pending items past their deadline to history; the sweeper calls this.

        Readers see such items as expired even before the move, and nobody can answer them.
        """
        expired: list[str] = []
        while True:
            batch = self._scripts.run("expire_approvals", retention=retention.limits())
            expired += batch
            if len(batch) < EXPIRED_AT_ONCE:
                return self.some(expired)

    def set_deadlines(self, retention: Retention) -> None:
        """Give items that were queued without a deadline the one that they would have now.

        A worker calls this when it starts: its agent may let approvals expire since.
        """
        if retention.ttl is None:
            return
        ttl, keep = milliseconds(retention.ttl), milliseconds(retention.max_age)
        while self._scripts.run("date_approvals", ttl=ttl, keep=keep) >= EXPIRED_AT_ONCE:
            pass

    def get(self, approval_id: str, in_flight: bool = True) -> ApprovalItem | None:
        """One item; with *in_flight* it has the executions that it waits for."""
        items = self._read([approval_id])
        return next(iter(self._in_flight.show_in(items) if in_flight else items), None)

    def page(self, limit: int, cursor: str | None = None, history: bool = True) -> ApprovalQueue:
        """Pending items by deadline and resolved ones, newest first; up to *limit* each.

        A `ByteBudget` bounds the page, so a page with fewer items may still have a next cursor.

        Raises:
            BadCursor: *cursor* was not given out by an earlier page.
        """
        waiting, resolved = load_cursor(cursor, 2)
        listing = self.listing(limit, waiting, resolved, history)
        more = listing.waits_for_more or listing.history.next is not None
        after = listing.history.next or listing.history.last or resolved
        return ApprovalQueue(
            pending=listing.pending,
            history=[*listing.overdue, *listing.history.records],
            next_cursor=dump_cursor(listing.waiting, after) if more else None,
        )

    def listing(
        self, limit: int, waiting: Position, resolved: Position, history: bool = True
    ) -> QueueListing:
        """The same page, from these positions on, with the places of resolved items."""
        keys = self._keys
        pending = read_page(self._scripts, keys.approvals_pending, waiting, limit, False)
        past = read_page(self._scripts, keys.approvals_history, resolved, limit) if history else []
        budget = ByteBudget(self._scripts)
        waits = self._read_page(budget, pending, limit, waiting)
        items = waits.records
        return QueueListing(
            # An item resolved between the two reads is no longer pending.
            pending=[item for item in items if item.status == "pending"],
            waiting=waits.next or (pending[-1] if pending else waiting),
            waits_for_more=waits.next is not None,
            overdue=[i for i in reversed(items) if i.status == "expired"] if history else [],
            history=self._read_page(budget, past, limit, resolved),
        )

    def watch(self, approval_id: str, strategy: str, observers: Sequence[str]) -> None:
        """Remember the strategy that asked for an item and the observers it relied on."""
        with translate_errors():
            pipe = self._client.pipeline()
            value = " ".join([strategy, *observers])
            pipe.hset(self._keys.approvals_clearing, approval_id, value)
            pipe.expire(self._keys.approvals_clearing, WATCHED)
            pipe.execute()

    def watches(self) -> dict[str, tuple[str, set[str]]]:
        """The strategy and observers of each item that is withdrawn when its situation clears."""
        with translate_errors():
            texts = self._client.hgetall(self._keys.approvals_clearing)
        return {name: (text.split()[0], set(text.split()[1:])) for name, text in texts.items()}

    def unwatch(self, approval_ids: Sequence[str]) -> None:
        """Forget the strategies and observers of these items."""
        with translate_errors():
            self._client.hdel(self._keys.approvals_clearing, *approval_ids)

    def pending_of(self, approval_ids: Sequence[str]) -> set[str]:
        """The ids in *approval_ids* that are pending."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.zmscore(self._keys.approvals_pending, list(approval_ids))
            pipe.time()
            scores, now = pipe.execute()
        pairs = zip(approval_ids, scores, strict=True)
        return {name for name, score in pairs if score is not None and score > _ms(now)}

    def id_for(self, proposed_by: str) -> str:
        """The id of the item that an execution of this name would propose."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"boyd:{self._agent_id}:{proposed_by}"))

    def some(self, approval_ids: list[str]) -> list[ApprovalItem]:
        """The items with these ids; those that are gone or cannot be read are left out."""
        return self._in_flight.show_in(self._read(approval_ids, passing_over=True))

    def _read(self, ids: list[str], passing_over: bool = False) -> list[ApprovalItem]:
        if not ids:
            return []
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            self._add_reads(ids, pipe)
            replies = replies_by_type(pipe)
        return self._items(ids, replies, passing_over)

    def _add_reads(self, ids: Iterable[str], pipe: Any) -> None:
        for approval_id in ids:
            pipe.hgetall(self._keys.approval(approval_id))
            pipe.zscore(self._keys.approvals_pending, approval_id)
        pipe.time()
        pipe.get(self._keys.symptoms)

    def _items(
        self, ids: Iterable[str], replies: Sequence[Any], passing_over: bool = False
    ) -> list[ApprovalItem]:
        """The items with *ids*, from the replies to `_add_reads`."""
        *halves, now, sight = replies
        moment = _Moment(_ms(now), _open_symptoms(sight))
        rows = zip(ids, halves[::2], halves[1::2], strict=True)
        present = [row for row in rows if "status" in (row[1] or ())]
        if not passing_over:
            return [_read_at(moment, fields, at) for _, fields, at in present]
        read = [
            readable(f"approval {id}", partial(_read_at, moment, at=at), fields)
            for id, fields, at in present
        ]
        return [item for item in read if item is not None]

    def _read_page(
        self, budget: ByteBudget, places: Sequence[Place], limit: int, position: Position
    ) -> Listing[ApprovalItem]:
        """The items of a page that began at *position*, up to the byte budget."""
        hashes = list(budget.read("approval", [name for name, _ in places]))
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            self._add_reads([], pipe)
            now, sight = replies_by_type(pipe)
        moment = _Moment(_ms(now), _open_symptoms(sight))
        read = [
            (
                place,
                readable(f"approval {place[0]}", partial(_read_at, moment, at=place[1]), fields),
            )
            for place, fields in zip(places, hashes, strict=False)
            if "status" in fields
        ]
        readable_items = [(place, item) for place, item in read if item is not None]
        items = self._in_flight.show_in([item for _, item in readable_items])
        rows = [(place, item) for (place, _), item in zip(readable_items, items, strict=True)]
        more = len(places) == limit or len(hashes) < len(places)
        last = places[len(hashes) - 1] if hashes else position or FIRST
        return Listing(rows, last if more else None)


def _open_symptoms(text: str | None) -> set[str] | None:
    """The symptoms that `update_symptoms` keeps; None if that is not known, or there are more."""
    try:
        sight = json.loads(text or "")
        return None if sight["more"] else {str(row[1]) for row in sight["open"]}
    except (ValueError, TypeError, LookupError):
        return None


@dataclass(frozen=True)
class _Moment:
    """The Redis server's time in milliseconds, and the symptoms then.

    `symptoms` is None unless all are known.
    """

    now: float
    symptoms: set[str] | None

    def lacks_all(self, symptoms: Collection[str]) -> bool:
        """Report whether there were some, and none of them is left."""
        if not symptoms or self.symptoms is None:
            return False
        return self.symptoms.isdisjoint(symptoms)


def _read_at(moment: _Moment, fields: Mapping[str, str], at: float | None) -> ApprovalItem:
    """An item at a moment: a pending one past its deadline *at* has expired."""
    item = read_item(fields)
    if item.status != "pending":
        return item
    if at is None or at > moment.now:
        return item.patched({"problem_ended": moment.lacks_all(item.symptoms)})
    changes = {"status": "expired", "version": item.version + 1}
    return item.patched({**changes, "updated_at": item.expires_at or item.updated_at})


def read_item(fields: Mapping[str, str]) -> ApprovalItem:
    """An item from its hash.

    Raises:
        StoreError: the hash cannot be read, for example because a later release wrote it.
    """
    try:
        votes = [_read_vote(fields, name) for name in fields if name.startswith("vote:")]
        requests = [_read_asked(fields, name) for name in fields if name.startswith("asked:")]
        item = restore(ApprovalItem, fields)
        return item.patched(
            {
                "title": _title(fields),
                "asked": sorted(requests, key=lambda request: request.at),
                "approvals": sorted(votes, key=lambda vote: vote.at),
                "symptoms": fields["symptomLines"].split("\n") if "symptomLines" in fields else [],
                "execution": _read_execution(item, fields),
                "notifications": _read_notifications(fields),
            }
        )
    except ValueError as error:
        raise UnreadableRecord(f"approval {fields.get('id')} cannot be read: {error}") from None


def _read_notifications(fields: Mapping[str, str]) -> list[NotificationRecord]:
    """The notifications of an item, by stage."""
    texts = [text for name, text in fields.items() if name.startswith(NOTIFIED)]
    records = map(NotificationRecord.from_json, texts)
    return sorted(records, key=lambda record: (STAGES.index(record.stage), record.name))


def _read_execution(item: ApprovalItem, fields: Mapping[str, str]) -> JobExecution | None:
    """The execution of an item; it counts as running while a procedure that it started runs."""
    execution = read_execution(fields)
    if execution is None or item.result is None or item.result.procedure is None:
        return execution
    return execution.patched({"state": "running", "ended_at": None})


def _ms(time: tuple[int, int]) -> float:
    seconds, micros = time
    return seconds * 1000 + micros / 1000


def _read_vote(fields: Mapping[str, str], name: str) -> Vote:
    vote = Vote.from_json(fields[name])
    counted = fields.get(f"votedAt:{name.removeprefix('vote:')}")
    return vote.patched({"at": from_ms(float(counted))}) if counted else vote


def _digest_of(preview: ActionResult) -> str:
    """The digest of a dry run's result, without its duration."""
    content = preview.patched({"duration": 0.0}).to_wire()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _rationale(proposal: Proposal) -> str:
    """The requester's reason; empty when there is none."""
    rationale = proposal.decision.rationale
    return "" if rationale in map(default_rationale, proposal.requested_by) else rationale


def _new_title(proposal: Proposal) -> str:
    if proposal.action_id == naming.GRANT and proposal.action_name:
        return proposal.action_name
    return naming.title(proposal.action_id, proposal.undoes)


def _title(fields: Mapping[str, str]) -> str:
    """The title; earlier releases did not store it."""
    return fields.get("title") or naming.title(fields["actionId"], fields.get("undoes"))


def _read_asked(fields: Mapping[str, str], name: str) -> JoinedRequest:
    by = name.removeprefix("asked:")
    return JoinedRequest(by=by, at=from_ms(float(fields[f"askedAt:{by}"])), rationale=fields[name])


def _updates(actor: Actor, note: str | None, result: ActionResult | None) -> list[str]:
    claims = actor.claims if actor.claims != actor.principal else None
    fields = {"actedBy": actor.principal, "claimedBy": claims, "note": note, "link": actor.link}
    flat = [item for name, value in fields.items() if value for item in (name, value)]
    if result is None:
        return flat
    return [*flat, "result", result.to_json(), "executionState", result.state]


def fingerprint(proposal: Proposal) -> str:
    """The digest of action id and canonical params; equal proposals have the same one.

    It also covers the execution that a roll-back undoes, the one that a proposal is bound to, and
    the steps of a procedure.
    """
    canonical = json.dumps(proposal.params, sort_keys=True, separators=(",", ":"))
    undoes = f"\n{proposal.undoes}" if proposal.undoes else ""
    bound = f"\n=> {proposal.bound_to}" if proposal.bound_to else ""
    steps = [step.to_wire() for step in proposal.plan]
    plan = f"\n# {json.dumps(steps, sort_keys=True)}" if steps else ""
    text = f"{proposal.action_id}\n{canonical}{undoes}{bound}{plan}"
    return hashlib.sha256(text.encode()).hexdigest()
