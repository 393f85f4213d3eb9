"""The state of a deployment in Redis: what its agents share, and the way to each of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from boyd.errors import StoreError
from boyd.store.agent_store import AgentStore, ProcessAccess
from boyd.store.api_keys import ApiKeys
from boyd.store.audit_chain import Sealing
from boyd.store.audit_trail import Audit, seal_all
from boyd.store.delegations import Delegations
from boyd.store.due import take_each
from boyd.store.events import Events, StreamWatcher
from boyd.store.fleet import Fleet
from boyd.store.freezes import Freezes
from boyd.store.idempotency import IdempotentAnswers
from boyd.store.keys import DEPLOYMENT, Keys
from boyd.store.login_sessions import LoginSessions
from boyd.store.server.connection import Client, near
from boyd.store.server.scripts import Scripts
from boyd.store.storage_budget import StorageBudget
from boyd.store.throttle import Throttle
from boyd.store.timing import ServerClock, Timing


class Store:
    """The state of a deployment in one Redis; its nouns are built as those of `AgentStore`."""

    def __init__(
        self,
        client: Client,
        worker: str = "",
        timing: Timing | None = None,
        sealing: Sealing | None = None,
    ) -> None:
        """Use *client*; *worker* names this process in claims, *sealing* seals the audit."""
        self.client = client
        self.worker = worker
        self.timing = timing or Timing()
        self.sealing = sealing or Sealing()
        self.clock = ServerClock(client)
        self._agents: dict[str, AgentStore] = {}
        self._scripts = Scripts(client)
        self._deployment = self._scripts.of(Keys(DEPLOYMENT))
        # Built at once: it remembers what this process has registered, so there must be only one.
        self.fleet = Fleet(client, self._scripts)

    @cached_property
    def freezes(self) -> Freezes:
        """Freezes and revocations."""
        return Freezes(self.client, self._scripts)

    @cached_property
    def delegations(self) -> Delegations:
        """The policies of agents for each other."""
        return Delegations(self.client, self._scripts)

    @cached_property
    def api_keys(self) -> ApiKeys:
        """API keys and the requests that they admit."""
        return ApiKeys(self.client, self._deployment)

    @cached_property
    def login_sessions(self) -> LoginSessions:
        """Sessions of people who logged in, and their names."""
        return LoginSessions(self.client, self._deployment)

    @cached_property
    def idempotency(self) -> IdempotentAnswers:
        """Answers to requests that may be repeated."""
        return IdempotentAnswers(self.client, self._scripts)

    @cached_property
    def storage_budget(self) -> StorageBudget:
        """The storage budgets of principals."""
        return StorageBudget(self._scripts)

    @cached_property
    def audit_trail(self) -> Audit:
        """The deployment's audit trail."""
        return Audit(self.client, self._deployment, self._deployment.keys, self.sealing)

    def agent(self, agent_id: str) -> AgentStore:
        """The state of one agent; it is opened once."""
        return self._agents.get(agent_id) or self._agents.setdefault(agent_id, self._open(agent_id))

    def _open(self, agent_id: str) -> AgentStore:
        access = ProcessAccess(
            self.client, self._scripts, self.worker, self.timing, self.sealing, self.fleet
        )
        return AgentStore(access, agent_id, self._clock_of(agent_id))

    def _clock_of(self, agent_id: str) -> ServerClock:
        """The clock of the server with the agent's state."""
        beside = near(self.client, Keys(agent_id).loop)
        return self.clock if beside is self.client else ServerClock(beside)

    def seal(self, agent_ids: Iterable[str] = ()) -> int:
        """Seal the audit of the deployment and of *agent_ids*; return the number of entries."""
        return seal_all(
            self.client, [self.audit_trail, *(self.agent(name).audit_trail for name in agent_ids)]
        )

    def take_due(self, agent_ids: Iterable[str]) -> list[dict[str, str] | StoreError]:
        """Take the overdue work of each agent; an error stands for work that cannot be taken."""
        return take_each(self._scripts, [self.agent(name).due for name in agent_ids])

    def throttle(self, agent_ids: Iterable[str]) -> Throttle:
        """The heartbeats of this process, and its throttle for the work of these agents."""
        return Throttle(self._deployment, self.fleet, agent_ids)

    def events(self, agent_ids: list[str]) -> Events:
        """The events of these agents from now on."""
        return Events(self.client, agent_ids)

    def stream_watcher(self) -> StreamWatcher:
        """A watcher of event streams and investigation logs."""
        return StreamWatcher(self.client)
