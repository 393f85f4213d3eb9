"""Whether the deployment behind this API can do its work: what `GET /readyz` answers (H6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from boyd.errors import StoreError, StoreUnavailable
from boyd.models import Model
from boyd.settings.process import Settings
from boyd.store import Store
from boyd.store.health_reader import read_roster
from boyd.store.health_snapshot import Roster


class Readiness(Model):
    """Whether requests can be served; `missing` says what is not there, and names no addresses."""

    status: Literal["ready", "not-ready"]
    missing: list[str]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def readiness(store: Store, settings: Settings) -> Readiness:
    """Whether Redis answers and every agent has a worker and, when it is continuous, a beat.

    Two round trips. It waits as long as the connection of *store* does, so that has to have short
    time limits. Agents that nobody has run for a day are left out, unless it is the default one.
    """
    try:
        missing = list(_missing(read_roster(store.client), settings.agent))
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
        if roster.retired(name) and name != default:
            continue
        if not roster.live("worker", name):
            yield f"no worker is alive for agent {name}"
        if entry.mode == "continuous" and not roster.live("beat", name):
            yield f"no beat is alive for agent {name}"
        flight = roster.flights.get(name)
        if flight is not None and flight.stands_still(roster.now):
            yield f"the iteration in flight of agent {name} stands still"
