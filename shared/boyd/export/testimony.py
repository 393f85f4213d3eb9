"""Writes a flight record as a Testimony Record, which others check with a program of their own.

The format, `testimony-record/0.2`, is an individual draft (draft-clifford-testimony-record): lines
of JSON, each an entry. Beliefs name their evidence, a decision its beliefs, its risk and its fate,
an approval the person; an integrity entry has a digest of all others.

Two properties make sure that nothing can be changed without breaking the digest or the form:

- What Boyd recorded stands in entries as JSON text. The digest has no rule for some numbers, and
  leaves out names that begin with `_`.
- The integrity entry is the only one that its digest cannot cover. It has no id, and it stands
  before the last entry: entries are in the order of their times, and all have the same one, so its
  time cannot be changed either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from boyd.models import (
    ActionResult,
    ApprovalItem,
    AuditEntry,
    Decision,
    ExecutionEntry,
    LoopResult,
    Model,
    Observation,
    Vote,
)
from boyd.text.version import VERSION

SPEC = "testimony-record/0.2"
#: The scheme of the integrity entry; another entry, which the digest covers, names it as well.
SCHEME = "hash-chain"
MEDIA_TYPE = "application/x-ndjson"


@dataclass(frozen=True)
class FlightRecord:
    """An iteration that has ended, with all that belongs to it.

    Attributes:
        result: the iteration.
        approvals: those that it asked for.
        executions: of its action, by itself or after an approval.
        entries: its audit entries, oldest first.
        missing: why audit entries are missing, if any are.
    """

    result: LoopResult
    approvals: Sequence[ApprovalItem] = ()
    executions: Sequence[ExecutionEntry] = ()
    entries: Sequence[AuditEntry] = ()
    missing: str | None = None

    @property
    def outcome(self) -> ActionResult | None:
        """The result of its action; None: it decided nothing, or the action has not ended."""
        ended = [item.result for item in self.approvals]
        ended += [entry.result for entry in self.executions]
        known = [result for result in ended if result]
        return next(iter([*known, *self.result.action_results]), None)

    @property
    def is_effective(self) -> bool:
        """True if the verification of its action found the wanted effect."""
        verified = [entry.verification for entry in self.executions if entry.verification]
        return any(one.verdict == "effective" for one in verified)


def write_testimony(record: FlightRecord, now: datetime) -> str:
    """The Testimony Record of *record* as lines of JSON, written at the time *now*."""
    document = _Document(now)
    result = record.result
    document.add(
        "scope",
        "scope",
        acts=True,
        description="the flight record of one iteration of an agent",
        declared_by={"id": f"boyd/{VERSION}", "kind": "system"},
        agent=result.agent_id,
        iteration=result.id,
        integrity=SCHEME,
    )
    _add_evidence(document, record)
    beliefs = _add_beliefs(document, result)
    _add_decision(document, record, beliefs)
    document.add(
        "evidence",
        "audit",
        kind="event",
        source=f"boyd:{result.agent_id}:audit",
        content=_texts(record.entries),
        **({"missing": record.missing} if record.missing else {}),
    )
    return document.sealed()


@dataclass
class _Document:
    """Entries, all written at the same time."""

    now: datetime
    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, type: str, id: str, /, **members: Any) -> str:
        """Add an entry and return its id."""
        self.entries.append({**self._head(type), "id": id, **members})
        return id

    def sealed(self) -> str:
        """The lines, with an integrity entry before the last one."""
        text = "\n".join(map(_canonical, self.entries))
        digest = hashlib.sha256(text.encode()).hexdigest()
        integrity = {
            **self._head("integrity"),
            "scheme": SCHEME,
            "digest": f"sha256:{digest}",
            "covers": [entry["id"] for entry in self.entries],
        }
        lines = [*self.entries[:-1], integrity, self.entries[-1]]
        # Readers split lines at more characters than the line feed; escaped, none is one of them.
        return "".join(f"{json.dumps(line)}\n" for line in lines)

    def _head(self, type: str) -> dict[str, Any]:
        at = self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"spec": SPEC, "type": type, "at": at}


def _canonical(entry: dict[str, Any]) -> str:
    """The text of an entry that the digest covers; entries hold no numbers."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _texts(models: Sequence[Model]) -> str:
    return f"[{','.join(one.to_json() for one in models)}]"


def _add_evidence(document: _Document, record: FlightRecord) -> None:
    """Add what was observed, by source, and what Boyd recorded of iteration and action."""
    result = record.result
    sources: dict[str, list[Observation]] = {}
    for one in result.observations:
        sources.setdefault(one.source, []).append(one)
    for number, (source, seen) in enumerate(sources.items(), 1):
        content = _texts(seen)
        document.add("evidence", f"seen-{number}", kind="event", source=source, content=content)
    rest = result.patched({"observations": []})
    documents: list[tuple[str, str, Model]] = [
        ("iteration", result.id, rest),
        *((f"approval-record-{n}", one.id, one) for n, one in enumerate(record.approvals, 1)),
        *((f"execution-{n}", one.id, one) for n, one in enumerate(record.executions, 1)),
    ]
    for id, name, kept in documents:
        source = f"boyd:{name}" if id == "iteration" else f"boyd:{result.agent_id}:{name}"
        document.add("evidence", id, kind="document", source=source, content=kept.to_json())


def _add_beliefs(document: _Document, result: LoopResult) -> list[str]:
    """Add the assessments and the situation that they make; return their ids."""
    situation = result.situation
    if situation is None:
        return []
    seen = [entry["id"] for entry in document.entries if entry["id"].startswith("seen-")]
    texts = [(one.source, "; ".join(one.findings) or "nothing") for one in situation.assessments]
    found = [*texts, (result.agent_id, situation.summary)]
    return [
        document.add(
            "belief",
            f"belief-{number}",
            subject=f"the situation of {result.id}",
            proposition=text,
            polarity="affirm",
            state="believed_true",
            asserted_by={"id": f"agent:{source}", "kind": "agent"},
            evidence=seen,
        )
        for number, (source, text) in enumerate(found, 1)
    ]


def _add_decision(document: _Document, record: FlightRecord, beliefs: list[str]) -> None:
    """Add the decision with its fate, and the people who approved it."""
    result = record.result
    trace = result.trace
    decided = (trace.proposed if trace else None) or result.decision
    given = [] if decided is None else _approvals(record)
    document.add(
        "decision",
        "decision",
        **_risk(record, decided),
        **_fate(record, decided),
        action_type=decided.action if decided else "none",
        params=json.dumps(decided.params if decided else {}),
        rationale=decided.rationale if decided else "",
        proposed_by={"id": f"agent:{result.agent_id}", "kind": "agent"},
        strategy=(trace.chosen if trace else None) or "",
        inputs=beliefs,
        **({"approval": "approval-1"} if given else {}),
    )
    for number, (vote, source) in enumerate(given, 1):
        document.add(
            "approval",
            f"approval-{number}",
            decision="decision",
            approver={"id": vote.by, "kind": "human"},
            identity_source=source,
            given_at=vote.at.isoformat(),
            note=vote.note or "",
        )


def _approvals(record: FlightRecord) -> list[tuple[Vote, str]]:
    """The approvals that people gave, each with the source of the person's identity.

    Those of programs are no approvals in this format; the record of the approval has them.
    """
    item = record.approvals[-1] if record.approvals else None
    if item is None or item.status != "approved":
        return []
    return [(vote, _identity_source(item, vote)) for vote in item.approvals if vote.person]


def _identity_source(item: ApprovalItem, vote: Vote) -> str:
    if item.link and vote.by == item.acted_by:
        return "signed-token"
    return "api-key" if vote.key else "oidc"


def _risk(record: FlightRecord, decided: Decision | None) -> dict[str, Any]:
    """The risk as the action declares it; as the decision states it, if that is not recorded."""
    gate = record.result.gate
    declared = gate.risk if gate else None
    risk = declared or (decided.risk if decided else "low")
    return {
        "risk_class": "high" if risk == "critical" else risk,
        "risk_source": "registry" if declared else "x-decision",
        "risk": risk,
    }


def _fate(record: FlightRecord, decided: Decision | None) -> dict[str, Any]:
    """The fate of a decision, as far as Boyd knows it.

    A call that returned without an error shows that the action ran, not that it helped: only a
    verification can confirm that.
    """
    refusal = _refusal(record, decided)
    if refusal:
        return {
            "verdict": "refused",
            "executed": False,
            "outcome": "not_attempted",
            "reason": refusal,
        }
    done = record.outcome
    ran = done is not None and not done.unknown
    idle = decided is not None and decided.is_no_op
    began = done is not None or any(one.state == "running" for one in record.executions)
    tried = "confirmed" if record.is_effective else "unconfirmed"
    return {
        "verdict": "permitted",
        "executed": ran and not idle,
        "outcome": tried if began and not idle else "not_attempted",
        "result": done.state if done else "",
    }


def _refusal(record: FlightRecord, decided: Decision | None) -> str | None:
    """The reason why an action was not permitted; None: it was."""
    result, done = record.result, record.outcome
    stopped = result.trace and (result.trace.vetoed or result.trace.invalid)
    if stopped:
        return f"stopped by {stopped.by}: {stopped.reason}"
    if decided is None:
        return f"the iteration ended before a decision: {result.error or 'no reason given'}"
    for item in record.approvals[-1:]:
        if item.status != "approved":
            by = f" by {item.acted_by}" if item.acted_by else ""
            return f"its approval is {item.status}{by}: {item.note or 'no note'}"
    if done and done.waits_for:
        return f"it waits for approval {done.waits_for}"
    if done and (done.prevented or (done.host is None and not done.unknown)):
        return done.error or "it was not executed"
    return None
