"""What routes work with: the store, the agents, what carries messages, what waits."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from boyd.checks import broker_of
from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError, StoreUnavailable, UnknownAgent
from boyd.models import ApiKey
from boyd.runtime import Dispatcher, Launcher, Leases
from boyd.settings.process import Settings
from boyd.store import AgentEntry, AgentStore, Sealing, Store, connect, in_service
from boyd_api import once
from boyd_api.background_dispatcher import BackgroundDispatcher
from boyd_api.metrics import Metrics
from boyd_api.problems import Problem
from boyd_api.refusals import Refusals
from boyd_api.streaming import Streams
from boyd_api.tail import BLOCK, Tail

#: Seconds to wait for Redis, so that a request is answered within one.
TIMEOUT = 0.8
#: Seconds that what was read of the agents is used.
_FRESH = 1.0
#: Seconds in which nobody asks a Redis that has just not answered.
_AWAY = 0.3
#: Seconds for a message to reach the broker.
_SEND_TIMEOUT = 2.0


@dataclass(frozen=True)
class AgentAccess:
    """One agent, and what can be done with it."""

    entry: AgentEntry
    store: AgentStore
    launcher: Launcher


class Services:
    """Everything that requests share in one process; nothing that another process would miss."""

    def __init__(
        self,
        settings: Settings,
        *,
        open_store: Callable[[float], Store] | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            settings: of the process.
            open_store: gives the store, whose answers may take so many seconds.
            dispatcher: carries hints to workers.

        Raises:
            ConfigError: everybody would be let in from other machines.
        """
        _check_open(settings)
        self.settings = settings
        self.stopping = threading.Event()
        self.leases = Leases(once.LEASE / 4)
        self._open_store = open_store or self._connect
        self.dispatcher = dispatcher or BackgroundDispatcher(self._celery)
        half = max(1, settings.api.threads // 2)
        self.tail = Tail(
            lambda: self._open_store(BLOCK + TIMEOUT), self.agents, half, self.stopping
        )
        self.streams = Streams(self.tail, settings.api.streams, self.stopping)
        broker = broker_of(settings, TIMEOUT)
        #: What this process was asked, and how the deployment does.
        self.metrics = Metrics(lambda: self.store, broker)
        self.refusals = Refusals(self.metrics)
        self._lock = threading.Lock()
        self._agents: tuple[float, dict[str, AgentEntry]] = (float("-inf"), {})
        self._away_until = float("-inf")

    @cached_property
    def store(self) -> Store:
        """The store; answers quickly or raises `StoreUnavailable`."""
        return self._open_store(TIMEOUT)

    def check_reachable(self) -> None:
        """Fail at once while Redis is known to be away, instead of after a time-out.

        Raises:
            StoreUnavailable: it did not answer a moment ago.
        """
        if time.monotonic() < self._away_until:
            raise StoreUnavailable

    def note_away(self) -> None:
        """Remember that Redis has just not answered."""
        self._away_until = time.monotonic() + _AWAY

    def agents(self) -> dict[str, AgentEntry]:
        """All agents, as read within the last second."""
        with self._lock:
            read_at, found = self._agents
        if time.monotonic() - read_at > _FRESH:
            found = self.store.fleet.agents()
            with self._lock:
                self._agents = (time.monotonic(), found)
        return found

    def forget_agents(self) -> None:
        """Read the agents anew when they are asked for next."""
        with self._lock:
            self._agents = (float("-inf"), {})

    def visible(self, key: ApiKey | None) -> dict[str, AgentEntry]:
        """The agents that *key* may see."""
        return {name: e for name, e in self.agents().items() if key is None or key.sees(name)}

    def agent(self, name: str | None, key: ApiKey | None) -> AgentAccess:
        """The agent of that name; without one, the default agent.

        An agent that the key may not see is unknown to it, not forbidden: like the list of agents,
        this tells nobody which others there are.

        Raises:
            UnknownAgent: there is none of that name.
            Problem: there is no default agent.
        """
        seen = self.visible(key)
        wanted = name or self._default(seen, key)
        if wanted not in seen:
            raise UnknownAgent(f"no agent {wanted!r}; there are: {', '.join(seen) or 'none'}")
        entry, store = seen[wanted], self.store.agent(wanted)
        return AgentAccess(entry, store, Launcher(store, self.dispatcher, entry.mode))

    def _default(self, seen: dict[str, AgentEntry], key: ApiKey | None) -> str:
        configured = self.settings.agent
        if configured and (key is None or key.sees(configured)):
            return configured
        serving = in_service(seen)
        if len(serving) == 1:
            return serving[0]
        names = ", ".join(serving)
        how = f"name one of the agents, as in /api/v0/agents/NAME/… or --agent NAME: {names}"
        there = how if serving else "no agent was started yet"
        raise Problem("no-default-agent", there, agents=serving)

    def stop(self) -> None:
        """Let nobody wait any more: the process is to end."""
        self.stopping.set()
        self.tail.wake()
        self.streams.wake()

    def _connect(self, timeout: float) -> Store:
        sealing = Sealing.of(self.settings.audit_key, self.settings.audit_keep)
        return Store(connect(self._redis_url, timeout=timeout), sealing=sealing)

    @property
    def _redis_url(self) -> str:
        try:
            return with_redis(self.settings).redis_url or ""
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from None

    def _celery(self) -> Dispatcher:
        from boyd.messaging.celery_app import CeleryDispatcher, make_app

        app = make_app(self.settings.broker_url or self._redis_url)
        options = app.conf.broker_transport_options
        limits = {"socket_timeout": _SEND_TIMEOUT, "socket_connect_timeout": _SEND_TIMEOUT}
        app.conf.broker_transport_options = {**options, **limits}
        return CeleryDispatcher(app)


def _check_open(settings: Settings) -> None:
    if settings.api.allow_unauthenticated and not is_loopback(settings.api.host):
        raise ConfigError(
            f"api.allow_unauthenticated lets everybody in who reaches {settings.api.host}; "
            "it is for a loopback address, such as 127.0.0.1: unset it, and use keys"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches *host*."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
