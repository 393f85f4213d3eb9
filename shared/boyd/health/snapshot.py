"""The health of a deployment, as `boyd.health.reader` reads and `boyd.health.checks` judges it.

Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from boyd.health.agent_health import AgentHealth
from boyd.health.declaration import HealthMetric, Number, declare, gauge, health_fields
from boyd.health.roster import PROCESS_METRICS, Roster
from boyd.health.server_health import MasterHealth, ServerHealth
from boyd.models import from_ms
from boyd.models.archived import ArchiveStatus, FollowerStatus, TraceStatus


def works(status: FollowerStatus, now: float) -> bool:
    """Tell whether archive or traces run, and what they write to answers."""
    return status.works_at(from_ms(now * 1000))


def seconds_behind(status: FollowerStatus, now: float) -> float | None:
    """Seconds by which archive or traces are behind; None if nothing was copied."""
    return None if status.copied_at is None else max(0.0, now - status.copied_at.timestamp())


def _follower_gauge(name: str, help: str, number: Number) -> HealthMetric:
    """A gauge of archive or traces, unless none has run for a week."""
    return HealthMetric(name, help, lambda status, now: status and [((), number(status, now))])


@health_fields
class HealthSnapshot:
    """The health of a deployment."""

    roster: Roster = declare("The agents and processes.", None, *PROCESS_METRICS)
    server: ServerHealth | None = declare(
        "The state of the Redis server; None without permission to ask."
    )
    skew: float = declare(
        "Seconds by which the server's clock is ahead of this process's.",
        None,
        gauge("boyd_redis_clock_skew_seconds", "Offset of the clock of Redis from the local one."),
    )
    latency: float = declare(
        "Seconds until the server's first answer.",
        None,
        gauge("boyd_redis_answer_seconds", "Response time of Redis."),
    )
    frozen: str | None = declare("The reason of the deployment's freeze, if any.")
    agents: list[AgentHealth] = declare("The health of each agent.")
    messages: dict[tuple[str, str], int] | None = declare(
        "The length of each queue whose broker answers, by agent and short name.",
        None,
        HealthMetric(
            "boyd_queue_messages",
            "Messages that wait for a worker.",
            lambda messages, _: (messages or {}).items(),
            ("agent", "queue"),
        ),
    )
    broker_error: str | None = declare(
        "Which brokers do not answer, and why.",
        None,
        gauge("boyd_broker_up", "1 if all brokers answer.", lambda error, _: error is None),
    )
    archive: ArchiveStatus | None = declare(
        "The state of the archive; None when none has run for a week.",
        None,
        _follower_gauge(
            "boyd_archive_up", "1 if the archive runs and its database answers.", works
        ),
        _follower_gauge(
            "boyd_archive_behind_seconds",
            "Time by which the archive is behind Redis.",
            seconds_behind,
        ),
        HealthMetric(
            "boyd_archive_records",
            "Records that the archive process has copied since its start.",
            lambda status, _: status and [((), status.copied)],
            counts=True,
        ),
    )
    traces: TraceStatus | None = declare(
        "The state of the export of traces; None when none has run for a week.",
        None,
        _follower_gauge(
            "boyd_traces_up", "1 if the export of traces runs and its collector answers.", works
        ),
        _follower_gauge(
            "boyd_traces_behind_seconds",
            "Time by which the export of traces is behind Redis.",
            seconds_behind,
        ),
        HealthMetric(
            "boyd_traces_spans",
            "Spans that were exported since the process started, or refused.",
            lambda status, _: (
                status and [(("exported",), status.copied), (("refused",), status.refused)]
            ),
            ("outcome",),
            counts=True,
        ),
    )
    cluster: Sequence[MasterHealth] = declare(
        "The masters of a cluster, whose fullest one `server` is; empty without one."
    )
    unreached: Sequence[str] = declare("The agents whose server does not answer.")
