"""Iterations, executions and approvals of a past day, written into an archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from api_kit import Site
from archive_kit import Archive, sqlite
from boyd.export.archive import entries
from boyd.models import (
    Anomaly,
    ApprovalItem,
    EffectVerification,
    ExecutionEntry,
    Level,
    LoopResult,
    Observation,
    Severity,
    Situation,
    SituationAssessment,
)
from boyd.models.effect import Compensation, EffectName
from kit import approval_item, choice

#: The beginning of the past day.
START = datetime(2026, 11, 25, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """A time of the past day."""
    return START + timedelta(minutes=minutes)


def problem(
    resource: str = "web-3",
    type: str = "endpoint-down",
    severity: Level = "high",
    description: str = "it answers 503",
) -> Anomaly:
    """An anomaly on one resource."""
    return Anomaly(
        type=type, description=description, severity=severity, affected_resources=[resource]
    )


def alert(
    name: str = "ProbeFailed",
    status: str = "firing",
    severity: Severity = "critical",
    **data: Any,
) -> Observation:
    """An alert of Alertmanager about web-3; one that is resolved is of severity info."""
    return Observation(
        source=f"alertmanager/{name}",
        type="alert",
        severity=severity if status == "firing" else "info",
        data={"status": status, "labels": {"alertname": name, "instance": "web-3:9115"}, **data},
        metadata={"intake": "alertmanager", "fingerprint": name},
    )


def latency(value: float, host: str = "web-3") -> Observation:
    """A measurement on a host."""
    return Observation(source="http:probe", type="metric", data={"host": host, "latency": value})


def iteration(
    number: int,
    minutes: float,
    *anomalies: Anomaly,
    observations: Sequence[Observation] = (),
    agent_id: str = "desk",
    fails: bool = False,
    blind: Sequence[str] = (),
) -> LoopResult:
    """An iteration that took a second."""
    assessment = SituationAssessment(
        source="http:sense", findings=[], confidence=1.0, anomalies=list(anomalies)
    )
    situation = Situation(assessments=[assessment], anomalies=list(anomalies))
    return LoopResult(
        id=f"{agent_id}:{number}",
        agent_id=agent_id,
        iteration=number,
        trigger="beat",
        observations=list(observations),
        situation=None if fails else situation,
        success=not fails,
        duration=1000,
        blind=list(blind),
        started_at=at(minutes),
        ended_at=at(minutes) + timedelta(seconds=1),
    )


def execution(
    id: str,
    minutes: float,
    took: float = 0.5,
    verdict: EffectName | None = None,
    verified: float = 1.0,
    undone: bool = False,
    **fields: Any,
) -> ExecutionEntry:
    """An execution on web-3, *verified* minutes after its end if there is a *verdict*."""
    end = at(minutes + took)
    check = EffectVerification(
        verdict=verdict,
        evidence="4 of 4 probes answer" if verdict == "effective" else "still 503",
        until=end + timedelta(minutes=10),
        ended_at=end + timedelta(minutes=verified),
        compensation=Compensation(state="rolled back") if undone else None,
    )
    values: dict[str, Any] = {
        "id": id,
        "state": "succeeded",
        "action": "k8s:restart",
        "params": {"host": "web-3"},
        "target": "web-3",
        "started_at": at(minutes),
        "ended_at": end,
        "verification": check if verdict else None,
    }
    return ExecutionEntry(**{**values, **fields})


def approval(
    id: str,
    minutes: float,
    answered: float | None = None,
    status: Literal["approved", "denied", "expired"] = "approved",
    agent_id: str = "desk",
    **fields: Any,
) -> ApprovalItem:
    """An approval of a restart of web-3 that eve has answered so many minutes later."""
    end = at(minutes + (answered or 0))
    values: dict[str, Any] = {
        "id": id,
        "agent_id": agent_id,
        "title": "k8s:restart on web-3",
        "action_id": "k8s:restart",
        "decision": choice("k8s:restart", rationale="a restart helps"),
        "params": {"host": "web-3"},
        "target": "web-3",
        "status": status,
        "updated_at": end,
        "resolved_at": end,
        "acted_by": "eve",
    }
    return approval_item(at(minutes), **{**values, **fields})


def archive_past(
    archive: Archive,
    iterations: Sequence[LoopResult] = (),
    executions: Sequence[ExecutionEntry] = (),
    approvals: Sequence[ApprovalItem] = (),
    *,
    agent_id: str = "desk",
) -> None:
    """Write these records of an agent."""
    rows = {
        "iteration": [entries.of_iteration(it, _ms(it.ended_at), "") for it in iterations],
        "execution": [
            entries.of_execution(agent_id, it, _ms(it.started_at or START), "") for it in executions
        ],
        "approval": [
            entries.of_approval(agent_id, it, _ms(it.resolved_at or START), "") for it in approvals
        ],
    }
    for kind, some in rows.items():
        for first in range(0, len(some), 500):
            archive.writer.write(agent_id, kind, some[first : first + 500])  # type: ignore[arg-type]


@contextmanager
def archiving(site: Site, folder: Path) -> Iterator[Archive]:
    """The archive in *folder*, which the API of the agent `desk` reads until the block ends."""
    archive = Archive(sqlite(folder), site.store, agent_id="desk")
    site.services.archive = archive.access()
    yield archive
    archive.close()


def _ms(time: datetime) -> float:
    return entries.exact_ms(time)
