"""`/healthz`, `/readyz`, `/health`: whether this process answers, and whether it is of use."""

from __future__ import annotations

from typing import Literal

from boyd.errors import StoreUnavailable
from boyd.models import Model, Timestamp, utc_now
from boyd.version import VERSION
from boyd_api.readiness import Readiness, readiness
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


@routes.get("/healthz", scope=None, answers={200: Alive})
def healthz(ask: Ask) -> Alive:
    """Say that this process answers, whatever else is missing."""
    return Alive()


@routes.get("/readyz", scope=None, answers={200: Readiness, 503: Readiness})
def readyz(ask: Ask) -> Answer:
    """Say whether Redis, workers and beat are there."""
    state = _readiness(ask.services)
    return Answer(state, 200 if state.ready else 503)


@routes.get(f"{BASE}/health", scope=None, answers={200: Health})
def health(ask: Ask) -> Health:
    """Say that this process answers, and its time."""
    return Health(timestamp=utc_now())


def _readiness(services: Services) -> Readiness:
    try:
        services.check_reachable()
        return readiness(services.store, services.settings)
    except StoreUnavailable:
        return Readiness(status="not-ready", missing=["Redis does not answer"])
