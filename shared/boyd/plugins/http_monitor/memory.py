"""What the monitor remembers of each endpoint, in `ctx.state` and so on every worker."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from boyd.models import Model, Timestamp
from boyd.plugin import Context
from boyd.plugins.http_monitor.options import Endpoint
from boyd.plugins.http_monitor.probe import Check

#: Seconds that the memory of an endpoint outlives its last check.
KEEP = 7 * 86400.0


class Past(Model):
    """A check that was made; `ms` is the time it took."""

    at: Timestamp
    ok: bool
    ms: float
    status: int | None = None
    error: str | None = None


class Memory(Model):
    """What is known of one endpoint.

    Attributes:
        failures: failed checks in a row.
        checks: the last checks, oldest first.
        restarted_at: when a restart was last attempted, whatever came of it.
        iteration: the iteration that was counted last, so that none is counted twice.
    """

    failures: int = 0
    checks: list[Past] = Field(default_factory=list)
    restarted_at: Timestamp | None = None
    iteration: int | None = None

    def in_cooldown(self, endpoint: Endpoint, now: datetime) -> bool:
        """Whether the last attempt to restart *endpoint* is too recent for another one."""
        if self.restarted_at is None:
            return False
        return now < self.restarted_at + timedelta(seconds=endpoint.cooldown)


def recall(ctx: Context, endpoints: list[Endpoint]) -> dict[str, Memory]:
    """The memory of each of *endpoints* by id, in one round trip."""
    keys = {_key(endpoint): endpoint.id for endpoint in endpoints}
    found = ctx.state.get_many(list(keys))
    return {id: _read(found.get(key)) for key, id in keys.items()}


def count(ctx: Context, endpoint: Endpoint, check: Check, max_history: int) -> Memory:
    """Count a check, once per iteration; outside of an iteration it leaves no trace."""
    if ctx.iteration is None:
        return recall(ctx, [endpoint])[endpoint.id]
    past = Past(
        at=ctx.now(),
        ok=check.healthy,
        ms=round(check.ms, 1),
        status=check.status,
        error=check.error,
    )

    def change(memory: Memory) -> Memory:
        if memory.iteration == ctx.iteration:
            return memory
        return memory.patched(
            {
                "failures": 0 if check.healthy else memory.failures + 1,
                "checks": [*memory.checks, past][-max_history:],
                "iteration": ctx.iteration,
            }
        )

    return _update(ctx, endpoint, change)


def stamp_restart(ctx: Context, endpoint: Endpoint) -> None:
    """Begin the cooldown: before the attempt, so that it holds when the attempt fails or dies."""
    now = ctx.now()
    _update(ctx, endpoint, lambda memory: memory.patched({"restarted_at": now}))


def forgive(ctx: Context, endpoint: Endpoint) -> None:
    """Start counting from zero after a restart that succeeded."""
    _update(ctx, endpoint, lambda memory: memory.patched({"failures": 0}))


def _update(ctx: Context, endpoint: Endpoint, change: Any) -> Memory:
    stored = ctx.state.update(
        _key(endpoint),
        lambda value: change(_read(value)).to_wire(),
        ttl=max(KEEP, 2 * endpoint.cooldown),
    )
    return _read(stored)


def _key(endpoint: Endpoint) -> str:
    return f"endpoint:{endpoint.id}"


def _read(value: Any) -> Memory:
    return Memory() if value is None else Memory.model_validate(value)
