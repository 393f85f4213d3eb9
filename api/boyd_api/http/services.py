"""Services that all requests of a process share: store, agents, dispatcher, streams, metrics."""

from __future__ import annotations

import ipaddress
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError, StoreReadOnly, StoreUnavailable, UnknownAgent
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.merged_history import MergedHistory
from boyd.export.archive.merged_work import MergedWork
from boyd.health.reader import brokers_of
from boyd.intake.sns import SnsVerifier
from boyd.messaging.dispatcher import SpreadDispatcher
from boyd.models import ApiKey, ApprovalItem, Phase
from boyd.models.actor import GroupRights
from boyd.runtime import BatchHint, Dispatcher, Launcher, Leases, Resolver
from boyd.security.approval_signatures import ApprovalSigner, read_signer
from boyd.settings.intake_settings import DeclaredIntake
from boyd.settings.process_settings import Settings
from boyd.store import AgentEntry, AgentStore, Sealing, Store, connect, in_service
from boyd.store.fleet import read_entry
from boyd_api.http.change_watcher import BLOCK, ChangeWatcher, Hints
from boyd_api.http.event_streams import EventStreams
from boyd_api.http.idempotency_keys import LEASE
from boyd_api.http.metrics import Metrics, RefusalReporter
from boyd_api.http.problems import HttpProblem

if TYPE_CHECKING:
    from boyd_api.oidc.provider import IdentityProvider

log = logging.getLogger("boyd.api")

#: Seconds to wait for Redis, so that a request is answered within one.
TIMEOUT = 0.8
#: Seconds for which the list of agents is cached.
_FRESH = 1.0
#: Seconds for which the names of people are cached.
_NAMES_FRESH = 5.0
#: Seconds in which no request tries a Redis that has just not answered.
_AWAY = 0.3
#: Seconds for a message to reach the broker.
_SEND_TIMEOUT = 2.0
#: How many messages may wait. More are dropped: the sweeper sends what did not arrive.
MAX_WAITING = 1000


@dataclass(frozen=True)
class AgentAccess:
    """One agent, as requests use it."""

    entry: AgentEntry
    store: AgentStore
    dispatcher: Dispatcher
    archive: ArchiveAccess
    signer: ApprovalSigner | None
    rights: GroupRights

    @cached_property
    def launcher(self) -> Launcher:
        """Starts iterations, runs and calls."""
        return Launcher(self.store, self.dispatcher, self.entry.mode)

    @cached_property
    def resolver(self) -> Resolver:
        """Answers approvals, as far as the rights of groups allow."""
        entry, rights = self.entry, self.rights
        parts = (self.store, self.dispatcher, entry.retention, self.signer)
        return Resolver(*parts, rights=rights, of_now=entry.compare_code)

    @cached_property
    def past(self) -> MergedHistory:
        """Ended iterations, in Redis and archive."""
        return MergedHistory(self.store, self.archive)

    @cached_property
    def past_work(self) -> MergedWork:
        """Other ended work, in Redis and archive."""
        return MergedWork(self.store, self.archive)

    def approval(self, id: str) -> ApprovalItem | None:
        """An approval in Redis, as it is now."""
        item = self.store.find_approval(id)
        return self.of_now([item])[0] if item is not None else None

    def past_approval(self, id: str) -> ApprovalItem | None:
        """An approval in Redis or, once Redis has dropped it, in the archive; as it is now."""
        item = self.past_work.approval(id)
        return self.of_now([item])[0] if item is not None else None

    def of_now(self, items: Sequence[ApprovalItem]) -> list[ApprovalItem]:
        """The approvals, compared with the code and the keys of now."""
        marked = self.store.approvals.mark_revoked(items)
        return [self.entry.compare_code(item) for item in marked]


class Services:
    """Everything that requests share in one process; it holds no state that another would need."""

    def __init__(
        self,
        settings: Settings,
        *,
        open_store: Callable[[float], Store] | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Create them; connections are opened when they are needed.

        *open_store* opens the store, with a time limit in seconds. Raises `ConfigError` if
        everybody would be admitted from other machines, or nobody could sign in with the provider.
        """
        _check_open(settings)
        self.settings = settings
        self.provider = _open_provider(settings, lambda: self.store.clock.seconds())
        self.rights = GroupRights(settings.rights)
        self.stopping = threading.Event()
        self.leases = Leases(LEASE / 4)
        self._open_store = open_store or self._connect
        self.dispatcher = dispatcher or self._dispatcher()
        half = max(1, settings.api.threads // 2)
        self.changes = ChangeWatcher(
            lambda: self._open_store(BLOCK + TIMEOUT), self.agents, half, self.stopping
        )
        self.streams = EventStreams(self.changes, settings.api.streams, self.stopping)
        self.archive = ArchiveAccess(settings.archive_url)
        self.hints = Hints(lambda: self.store, self.agents)
        self.brokers = brokers_of(settings, TIMEOUT)
        self.metrics = Metrics(lambda: self.store, self.brokers)
        self.refusals = RefusalReporter(self.metrics)
        self.sns = SnsVerifier(clock=lambda: self.store.clock.seconds())
        self._lock = threading.Lock()
        self._agents: tuple[float, dict[str, AgentEntry]] = (float("-inf"), {})
        self._people: tuple[float, dict[str, str]] = (float("-inf"), {})
        self._away_until = float("-inf")

    @cached_property
    def signer(self) -> ApprovalSigner | None:
        """Signs approvals, if there is a key or secret.

        Raises:
            ConfigError: the key cannot be used.
        """
        return read_signer(self.settings.approval_private_key, self.settings.approval_secret)

    @cached_property
    def store(self) -> Store:
        """The store; it answers quickly or raises `StoreUnavailable`."""
        return self._open_store(TIMEOUT)

    def check_reachable(self) -> None:
        """Raise `StoreUnavailable` at once, without a timeout, if Redis is known to be away."""
        if time.monotonic() < self._away_until:
            raise StoreUnavailable

    def note_away(self, error: StoreUnavailable) -> None:
        """Remember that Redis has just not answered; one that takes no writes did so at once."""
        if not isinstance(error, StoreReadOnly):
            self._away_until = time.monotonic() + _AWAY

    def agents(self) -> dict[str, AgentEntry]:
        """All agents, as read within the last second."""
        with self._lock:
            read_at, entries = self._agents
        if time.monotonic() - read_at > _FRESH:
            entries = self.store.fleet.agents()
            self.refusals.know(
                intake.name for entry in entries.values() for intake in entry.intakes
            )
            with self._lock:
                self._agents = (time.monotonic(), entries)
        return entries

    def intake(self, agent: str | None, name: str) -> tuple[str, DeclaredIntake] | None:
        """The agent of that name, or else the default agent, and its intake; None without one."""
        self.check_reachable()
        try:
            entries = self.agents()
        except StoreUnavailable as error:
            self.note_away(error)
            raise
        try:
            agent_id = agent or self._default(entries, None)
        except HttpProblem:
            return None
        intakes = entries[agent_id].intakes if agent_id in entries else []
        return next(((agent_id, intake) for intake in intakes if intake.name == name), None)

    def forget_agents(self) -> None:
        """Drop the cached list of agents."""
        with self._lock:
            self._agents = (float("-inf"), {})

    def names(self) -> dict[str, str]:
        """The readable names of principals, as read within the last seconds."""
        with self._lock:
            read_at, names = self._people
        if time.monotonic() - read_at > _NAMES_FRESH:
            names = self.store.login_sessions.names()
            with self._lock:
                self._people = (time.monotonic(), names)
        return names

    def note_name(self, identity: ApiKey) -> None:
        """Keep the name of an identity, if it is new or has changed."""
        if self.names().get(identity.principal) != identity.name:
            self.store.login_sessions.remember_name(identity.principal, identity.name)
            with self._lock:
                self._people = (float("-inf"), {})

    def visible(self, key: ApiKey | None) -> dict[str, AgentEntry]:
        """The agents that *key* may see."""
        return {name: e for name, e in self.agents().items() if key is None or key.sees(name)}

    def agent(self, name: str | None, key: ApiKey | None) -> AgentAccess:
        """The agent of that name; without one, the default agent.

        An agent that the key may not see is unknown to it, not forbidden: that would reveal which
        other agents there are. Raises `UnknownAgent`, or `HttpProblem` without a default agent.
        """
        visible = self.visible(key)
        agent_id = name or self._default(visible, key)
        if agent_id not in visible and (key is None or key.sees(agent_id)):
            # Its entry may be there, but of somebody else's making.
            read_entry(self.store.client, agent_id)
        if agent_id not in visible:
            raise UnknownAgent(f"no agent {agent_id!r}; known: {', '.join(visible) or 'none'}")
        entry, store = visible[agent_id], self.store.agent(agent_id)
        return AgentAccess(entry, store, self.dispatcher, self.archive, self.signer, self.rights)

    def _default(self, visible: dict[str, AgentEntry], key: ApiKey | None) -> str:
        configured = self.settings.agent
        if configured and (key is None or key.sees(configured)):
            return configured
        serving = in_service(visible)
        if len(serving) == 1:
            return serving[0]
        names = ", ".join(serving)
        advice = f"name one of the agents, as in /api/v0/agents/NAME/… or --agent NAME: {names}"
        there = advice if serving else "no agent has been started yet"
        raise HttpProblem("no-default-agent", there, agents=serving)

    def stop(self) -> None:
        """End all waiting and all streams: the process is to end."""
        self.stopping.set()
        self.changes.wake()
        self.streams.wake()
        self.archive.close()

    def _connect(self, timeout: float) -> Store:
        sealing = Sealing.of(self.settings.audit_key, self.settings.audit_keep)
        return Store(connect(self._redis_url, timeout=timeout), sealing=sealing)

    @property
    def _redis_url(self) -> str:
        try:
            return with_redis(self.settings).redis_url or ""
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from None

    def _dispatcher(self) -> Dispatcher:
        """A dispatcher with a thread for each broker, so that one that is away delays no other."""
        urls = self.settings.broker_urls or [""]
        return SpreadDispatcher([BackgroundDispatcher(partial(self._celery, url)) for url in urls])

    def _celery(self, broker_url: str) -> Dispatcher:
        from boyd.messaging.celery_app import CeleryDispatcher, make_app

        app = make_app(broker_url or self._redis_url, self.settings.celery.events)
        options = app.conf.broker_transport_options
        limits = {"socket_timeout": _SEND_TIMEOUT, "socket_connect_timeout": _SEND_TIMEOUT}
        app.conf.broker_transport_options = {**options, **limits}
        return CeleryDispatcher(app)


class BackgroundDispatcher:
    """Sends messages from a thread of its own, so that no request waits for the broker.

    Implements `runtime.Dispatcher` with another dispatcher, which may block.
    """

    def __init__(self, make: Callable[[], Dispatcher]) -> None:
        """Create it; *make* creates the other one, in the thread, for the first message."""
        self._make = make
        self._messages: queue.Queue[Callable[[Dispatcher], None]] = queue.Queue(MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Announce that *phase* is due."""
        self._put(lambda sender: sender.send(agent_id, iteration, epoch, phase, queue))

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Announce that those batches are due."""
        self._put(lambda sender: sender.fan_out(agent_id, iteration, batches))

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Announce that a job is due."""
        self._put(lambda sender: sender.job(agent_id, name, attempt, queue))

    def _put(self, message: Callable[[Dispatcher], None]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
                self._thread.start()
        try:
            self._messages.put_nowait(message)
        except queue.Full:
            log.warning("too many messages wait for the broker; a worker will send this one")

    def _run(self) -> None:
        sender: Dispatcher | None = None
        while True:
            message = self._messages.get()
            try:
                sender = sender or self._make()
                message(sender)
            except Exception:  # the thread has to outlive any error of the broker
                log.exception("a message could not be sent; a worker will send it")


def _check_open(settings: Settings) -> None:
    if settings.api.allow_unauthenticated and not is_loopback(settings.api.host):
        raise ConfigError(
            f"api.allow_unauthenticated admits everyone who can reach {settings.api.host}; "
            "it is meant for a loopback address such as 127.0.0.1: unset it, and use keys"
        )


def _open_provider(settings: Settings, clock: Callable[[], float]) -> IdentityProvider | None:
    """The identity provider that the settings name."""
    if settings.oidc.issuer is None:
        return None
    if settings.api.url is None:
        raise ConfigError(
            "oidc.issuer needs api.url, the public address of the console, such as"
            " https://boyd.example.com: the provider sends browsers back there"
        )
    try:
        from boyd_api.oidc.provider import IdentityProvider
    except ModuleNotFoundError as error:
        problem = f"oidc.issuer needs the extra boyd[oidc] ({error}): pip install 'boyd[oidc]'"
        raise ConfigError(problem) from None
    return IdentityProvider(settings.oidc, settings.api.url, clock)


def is_loopback(host: str) -> bool:
    """True if only this machine reaches *host*."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
