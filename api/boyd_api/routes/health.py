"""`/healthz`, `/readyz`, `/health`: whether this process answers, and whether it is of use."""

from __future__ import annotations

from typing import Literal

from boyd.errors import StoreError, StoreUnavailable
from boyd.models import Model, Timestamp, utc_now
from boyd.store import WorkerInfo
from boyd.version import VERSION
from boyd_api.routing import BASE, Answer, Routes
from boyd_api.services import Services
from boyd_api.serving import Ask

routes = Routes("health", base="")


class Alive(Model):
    """A process that answers, whatever else is missing."""

    status: Literal["ok"] = "ok"
    version: str = VERSION


class Health(Model):
    """The same, as the reference server says it."""

    status: Literal["ok"] = "ok"
    timestamp: Timestamp


class Readiness(Model):
    """Whether requests can be served; `missing` says in words what is not there."""

    status: Literal["ready", "not-ready"]
    missing: list[str]


@routes.get("/healthz", scope=None, answers={200: Alive})
def healthz(ask: Ask) -> Alive:
    """Say that this process answers, whatever else is missing."""
    return Alive()


@routes.get("/readyz", scope=None, answers={200: Readiness, 503: Readiness})
def readyz(ask: Ask) -> Answer:
    """Say whether Redis, workers and beat are there."""
    missing = _missing(ask.services)
    if missing:
        return Answer(Readiness(status="not-ready", missing=missing), 503)
    return Answer(Readiness(status="ready", missing=[]))


@routes.get(f"{BASE}/health", scope=None, answers={200: Health})
def health(ask: Ask) -> Health:
    """Say that this process answers, and its time."""
    return Health(timestamp=utc_now())


def _missing(services: Services) -> list[str]:
    try:
        services.check_reachable()
        workers = services.store.fleet.workers()
        continuous = any(entry.mode == "continuous" for entry in services.agents().values())
    except StoreUnavailable:
        services.note_away()
        return ["Redis does not answer"]
    except StoreError:
        return ["Redis refuses to work"]
    missing = [] if _has(workers, "worker") else ["no worker is alive"]
    if continuous and not _has(workers, "beat"):
        missing.append("no beat ticks, which continuous agents need")
    return missing


def _has(workers: list[WorkerInfo], role: str) -> bool:
    return any(worker.role == role for worker in workers)
