"""`/healthz`, `/readyz`, `/health`, `/metrics`: health of this process and of the deployment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from flask import Response, request

from boyd.errors import StoreError, StoreUnavailable
from boyd.health.checks import SILENCE, may_refuse_writes
from boyd.health.reader import read_health, read_roster
from boyd.health.snapshot import Roster
from boyd.models import Model, Timestamp
from boyd.settings.process_settings import Settings
from boyd.store import Store
from boyd.text.version import VERSION
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import BASE, JsonResponse, Media, Routes

health_routes = Routes("health", base="")
metric_routes = Routes("metrics", base="")

OPENMETRICS = "application/openmetrics-text"


class Alive(Model):
    """A process that answers, even if everything else is down."""

    status: Literal["ok"] = "ok"
    version: str = VERSION


class Health(Model):
    """The same, in the format of the reference server."""

    status: Literal["ok"] = "ok"
    timestamp: Timestamp


class Readiness(Model):
    """Readiness to serve requests; `missing` names what is down, without addresses."""

    status: Literal["ready", "not-ready"]
    missing: list[str]

    @property
    def ready(self) -> bool:
        """True if nothing is missing."""
        return not self.missing


@health_routes.get("/healthz", scope=None)
def healthz(ctx: RequestContext) -> Alive:
    """Tell that this process answers, even if everything else is down."""
    return Alive()


@health_routes.get("/readyz", scope=None, answers={200: Readiness, 503: Readiness})
def readyz(ctx: RequestContext) -> JsonResponse:
    """Report the state of Redis, workers and beat."""
    services = ctx.services
    try:
        services.check_reachable()
        state = readiness(services.store, services.settings)
    except StoreUnavailable:
        state = Readiness(status="not-ready", missing=["Redis does not answer"])
    return JsonResponse(state, 200 if state.ready else 503)


@health_routes.get(f"{BASE}/health", scope=None)
def health(ctx: RequestContext) -> Health:
    """Tell that this process answers, and the time: by Redis, unless that has never answered."""
    return Health(timestamp=ctx.services.store.clock.now())


@metric_routes.get(
    "/metrics",
    scope="read",
    reach="deployment",
    answers={200: Media("text/plain", "Metrics in the format of Prometheus.", (OPENMETRICS,))},
    label="show",
)
def show_metrics(ctx: RequestContext) -> Response:
    """Show the metrics of the deployment, and of the requests to this process."""
    body, content_type = ctx.services.metrics.expose(request.headers.get("Accept", ""))
    return Response(body, content_type=content_type)


def readiness(store: Store, settings: Settings) -> Readiness:
    """Check that Redis answers and every agent has a worker and, if continuous, a beat.

    It makes two round trips, and four more when no process is alive; it waits as long as the
    connection of *store* does, which has to have short time limits. Agents without processes for a
    day are left out, except the default one.
    """
    try:
        roster = read_roster(store.client)
        if not roster.live() and may_refuse_writes(read_health(store.client)):
            missing = [SILENCE]
        else:
            missing = list(_missing(roster, settings.agent))
    except StoreUnavailable:
        missing = ["Redis does not answer"]
    except StoreError:
        missing = ["Redis refuses to answer"]
    return Readiness(status="not-ready" if missing else "ready", missing=missing)


def _missing(roster: Roster, default: str | None) -> Iterator[str]:
    if not roster.live("worker"):
        yield "no worker is alive"
    if default is not None and default not in roster.agents:
        yield f"agent {default} has never been started"
    for name, entry in roster.agents.items():
        if roster.is_retired(name) and name != default:
            continue
        if not roster.live("worker", name):
            yield f"no worker is alive for agent {name}"
        if entry.mode == "continuous" and not roster.live("beat", name):
            yield f"no beat is alive for agent {name}"
        flight = roster.flights.get(name)
        if flight is not None and flight.is_stuck(roster.now):
            yield f"the iteration in flight of agent {name} has stalled"
