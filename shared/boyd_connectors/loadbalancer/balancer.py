"""A load balancer as the plugin sees it: servers of backends, each with a state and a weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from boyd.models import JsonObject
from boyd.plugin import Context

ServerState = Literal["ready", "drain", "maint"]


class BalancerError(Exception):
    """The load balancer cannot be reached, or refused a change; nothing was changed."""


class AnswerLost(BalancerError):
    """The load balancer did not answer a change, which it may have made."""


@dataclass(frozen=True)
class BackendServer:
    """A server of a backend.

    Attributes:
        name: `backend/server`.
        state: what an administrator wants: `ready`, `drain` (no new requests) or `maint` (none).
        status: what the load balancer says of it, such as `UP` or `DOWN`; empty if it does not.
        up: whether it can answer, as far as the load balancer knows.
        backup: whether it only answers when the others cannot.
        requests: answered so far, and `errors` among them.
    """

    name: str
    state: ServerState
    weight: int
    status: str = ""
    up: bool = True
    backup: bool = False
    sessions: int = 0
    requests: int = 0
    errors: int = 0

    @property
    def backend(self) -> str:
        """The name of its backend."""
        return self.name.partition("/")[0]

    @property
    def is_active(self) -> bool:
        """True if it gets new requests."""
        return self.up and self.state == "ready" and self.weight > 0

    def setting(self) -> JsonObject:
        """The state and the weight, which can be changed."""
        return {"state": self.state, "weight": self.weight}


class Balancer(Protocol):
    """A load balancer that can be asked and changed."""

    def servers(self, ctx: Context) -> Sequence[BackendServer]:
        """All servers; raises `BalancerError`."""

    def counters(self, ctx: Context) -> JsonObject:
        """Counters of the load balancer as a whole; raises `BalancerError`."""

    def change(self, server: BackendServer, state: ServerState, weight: int) -> None:
        """Give a server a state and a weight; raises `BalancerError`."""

    def applied(self, server: BackendServer) -> str | None:
        """The reason why its setting does not count yet; None: it counts."""
