"""Entries of the archive: what is kept of each record, and the terms that find it.

A filter of a list is a set of *terms*, such as `host` and `host-b`. The same functions make the
terms of archived records and judge records that only Redis has, so that both agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from boyd.models import (
    ApprovalItem,
    AuditEntry,
    ExecutionEntry,
    LoopResult,
    Observation,
    Run,
    Situation,
)
from boyd.models.loop import HistoryFilter, InvestigationRecord
from boyd.store.iteration_record import summary_of

Kind = Literal["iteration", "run", "approval", "execution", "investigation", "audit"]

#: Steps of a millisecond by which Redis keeps its records apart, and keys of the archive in each.
STEPS = 1024
SLOT = 1024
#: Above the key of any record, and the highest that a database takes.
HIGHEST = 2**63 - 1
#: The most words and targets of one record that can be found, and characters of a term.
WORDS = 100
TARGETS = 1000
LONGEST = 200
#: Shorter words of a search match whole words only, longer ones also the beginnings of words.
BEGINNING = 3
_WORD = re.compile(r"\w+")
#: Fields and labels of alerts that name what an alert is about.
_NAMING = frozenset(
    {"target", "host", "hostname", "instance", "node", "pod", "service", "job", "resource"}
    | {"endpoint", "device", "entity", "server", "deployment", "container", "database", "queue"}
)
_PORT = re.compile(r":\d{1,5}$")


class Term(NamedTuple):
    """A property of records: a field and its value; `prefix`: also values that begin so."""

    field: str
    value: str
    prefix: bool = False


@dataclass(frozen=True)
class ArchiveEntry:
    """A record as the archive keeps it.

    Attributes:
        kind: what it is.
        agent: whose it is, or `DEPLOYMENT`.
        name: its id, unique for kind and agent.
        at: the time that orders it, in milliseconds since the epoch; records of the same
            millisecond have different fractions, by which lists in Redis are ordered, too.
        stamp: differs when the record has changed.
        body: all of it as JSON.
        outline: its row in lists as JSON; empty where lists show all of it.
        terms: what finds it.
        open: it is still going to change, so that the copier looks at it again.
    """

    kind: Kind
    agent: str
    name: str
    at: float
    stamp: str
    body: str
    outline: str = ""
    terms: frozenset[Term] = field(default_factory=frozenset)
    open: bool = False


def of_iteration(result: LoopResult, at: float, stamp: str) -> ArchiveEntry:
    """An ended iteration."""
    return ArchiveEntry(
        kind="iteration",
        agent=result.agent_id,
        name=result.id.partition(":")[2],
        at=at,
        stamp=stamp,
        body=result.to_json(),
        outline=summary_of(result).to_json(),
        terms=frozenset(_terms_of(result)),
    )


def of_run(agent: str, run: Run, at: float, stamp: str) -> ArchiveEntry:
    """An ended run."""
    terms = _terms(status=run.status, priority=run.priority, source=run.source)
    return ArchiveEntry("run", agent, run.id, at, stamp, run.to_json(), terms=terms)


def of_approval(agent: str, item: ApprovalItem, at: float, stamp: str) -> ArchiveEntry:
    """A resolved approval; it is open while its action is to be executed."""
    going = item.execution is not None and item.execution.state in ("queued", "running")
    terms = _terms(target=item.target)
    return ArchiveEntry("approval", agent, item.id, at, stamp, item.to_json(), "", terms, going)


def of_execution(agent: str, entry: ExecutionEntry, at: float, stamp: str) -> ArchiveEntry:
    """An execution in the ledger; it is open while it runs."""
    names = ("host", "worker", "action", "state", "target")
    terms = _terms(**{name: getattr(entry, name) for name in names})
    return ArchiveEntry(
        kind="execution",
        agent=agent,
        name=entry.id,
        at=at,
        stamp=stamp,
        body=entry.to_json(),
        outline=entry.patched({"result": None}).to_json(),
        terms=terms,
        open=entry.state == "running",
    )


def of_investigation(
    agent: str, record: InvestigationRecord, at: float, stamp: str
) -> ArchiveEntry:
    """An ended investigation with its log."""
    investigation = record.investigation
    return ArchiveEntry(
        kind="investigation",
        agent=agent,
        name=investigation.id,
        at=at,
        stamp=stamp,
        body=record.to_json(),
        outline=investigation.to_json(),
    )


def of_audit(agent: str, entry: AuditEntry) -> ArchiveEntry:
    """A sealed audit entry."""
    parts = entry.kind.split(".")
    kinds = (".".join(parts[:size]) for size in range(1, len(parts) + 1))
    fields = {name: entry.what.get(name) for name in ("action", "host", "worker")}
    people = {Term("by", cut(who)) for who in (entry.who, entry.claims) if who}
    terms = _terms(**fields) | people | {Term("kind", cut(kind)) for kind in kinds}
    name = audit_name(entry)
    return ArchiveEntry("audit", agent, name, exact_ms(entry.at), "", entry.to_json(), terms=terms)


def audit_name(entry: AuditEntry) -> str:
    """The name of an audit entry; numbers may begin again, so its hash is part of it."""
    return f"{entry.seq}:{entry.hash}"


def query_terms(query: HistoryFilter) -> list[Term]:
    """The terms that iterations need to match *query*, besides its period."""
    names = ("target", "source", "trigger", "status")
    fields = {name: getattr(query, name) for name in names}
    places = list(filter(None, (query.host, query.worker)))
    if query.action and places:
        where = frozenset(Term("ran", cut(_place(query.action, place))) for place in places)
    else:
        where = _terms(host=query.host, worker=query.worker, action=query.action)
    return [*sorted(where | _terms(**fields)), *_word_terms(query.q or "")]


def _place(action: str, place: str) -> str:
    return f"{action} on {place}"


def fits(query: HistoryFilter, result: LoopResult) -> bool:
    """Report whether an iteration matches *query*."""
    if query.since is not None and result.ended_at < query.since:
        return False
    if query.until is not None and result.ended_at >= query.until:
        return False
    terms = query_terms(query)
    return not terms or _holds(frozenset(_terms_of(result)), terms)


def targets_of(situation: Situation | None, observations: Iterable[Observation]) -> list[str]:
    """The targets of an iteration: resources of its anomalies, and names in its alerts."""
    anomalies = situation.anomalies if situation else []
    names = [name for anomaly in anomalies for name in anomaly.affected_resources or []]
    for observation in observations:
        if observation.type == "alert":
            names += alert_targets(observation)
    return list(dict.fromkeys(names))[:TARGETS]


def alert_targets(observation: Observation) -> list[str]:
    """The names in an alert that may be its target, also without the port behind one."""
    data = observation.data
    payload = data.get("payload")
    places = [data, *(item for item in (data.get("labels"), payload) if isinstance(item, dict))]
    fields = {name: value for place in places for name, value in place.items()}
    names = [value for name, value in fields.items() if name in _NAMING and isinstance(value, str)]
    return [*names, *(_PORT.sub("", name) for name in names)]


def terms_for(**values: str | None) -> list[Term]:
    """The terms of those *values* that are given."""
    return sorted(_terms(**values))


def exact_ms(time: datetime) -> int:
    """A time as milliseconds since the epoch, exactly as Redis had it."""
    return round(time.timestamp() * 1000)


def lowest_key(at: float) -> int:
    """The lowest key of a record at a time in milliseconds."""
    return min(int(max(0, at) * STEPS) * SLOT, HIGHEST)


def lowest_beside(key: int) -> int:
    """The lowest key of a record at the same time as the one with that *key*."""
    return key - key % SLOT


def audit_key(at: float, seq: int) -> int:
    """The key of an audit entry: those of one millisecond are in order of their numbers."""
    return lowest_key(at) + seq % (STEPS * SLOT)


def cut(text: str) -> str:
    """A value as a term holds it; a longer one ends in its digest."""
    # PostgreSQL stores no NUL.
    text = text.replace("\0", "\ufffd")
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}~{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def _terms_of(result: LoopResult) -> Iterator[Term]:
    done = result.action_results
    runs = result.observer_runs
    decided = [result.decision.action] if result.decision else []
    values_by_field: Mapping[str, Iterable[str | None]] = {
        "host": [*(item.host for item in runs), *(item.host for item in done)],
        "worker": [*(item.worker for item in runs), *(item.worker for item in done)],
        "action": [*decided, *(item.action for item in done)],
        "ran": [
            _place(item.action, place)
            for item in done
            for place in (item.host, item.worker)
            if place
        ],
        "target": targets_of(result.situation, result.observations),
        "source": [*(item.id for item in runs), *(item.source for item in result.observations)],
        "trigger": [result.trigger],
        "status": ["ok" if result.success else "failed"],
        "word": _words(result),
    }
    for name, values in values_by_field.items():
        yield from (Term(name, cut(value)) for value in set(values) if value)


def _words(result: LoopResult) -> list[str]:
    """The words of situation, decision and errors, each once."""
    decision = result.decision
    texts = [
        result.situation.summary if result.situation else "",
        result.error or "",
        f"{decision.action} {decision.rationale}" if decision else "",
        *(result.error or "" for result in result.action_results),
    ]
    all_words = (word for text in texts for word in words(text))
    return list(dict.fromkeys(all_words))[:WORDS]


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return [word[:LONGEST] for word in _WORD.findall(text.casefold())]


def _word_terms(text: str) -> list[Term]:
    unique = dict.fromkeys(words(text))
    return [Term("word", word, prefix=len(word) >= BEGINNING) for word in unique]


def _holds(terms: frozenset[Term], required: Iterable[Term]) -> bool:
    for expected in required:
        if Term(expected.field, expected.value) in terms:
            continue
        same = (term.value for term in terms if expected.prefix and term.field == expected.field)
        if not any(value.startswith(expected.value) for value in same):
            return False
    return True


def _terms(**values: str | None) -> frozenset[Term]:
    return frozenset(Term(name, cut(value)) for name, value in values.items() if value)
