"""One agent on one worker: all that its steps and orders work with."""

from __future__ import annotations

import uuid

from boyd.agent import Agent
from boyd.engine.courier import Courier
from boyd.engine.leases import Leases
from boyd.engine.seen_approvals import SeenApprovals
from boyd.engine.settings import EngineSettings
from boyd.engine.waiting import Waiting
from boyd.errors import InitFailed, PluginError, StoreError
from boyd.loop.context import describe
from boyd.loop.observe import Isolate
from boyd.models import ApprovalItem
from boyd.plugin import Context, Llm
from boyd.store import AgentEntry, AgentFleet, AgentStore, Retention


class Engine:
    """One agent on one worker."""

    def __init__(
        self,
        agent: Agent,
        store: AgentStore,
        fleet: AgentFleet,
        courier: Courier,
        leases: Leases,
        settings: EngineSettings,
        isolate: Isolate | None = None,
    ) -> None:
        self.agent = agent
        self.store = store
        self.fleet = fleet
        self.courier = courier
        self.settings = settings
        self.leases = leases
        self.isolate = isolate

    def context(self, plugin_id: str, iteration: int | None = None) -> Context:
        """The `ctx` of a plugin."""
        agent, store = self.agent, self.store
        return Context(
            agent=agent.info,
            plugin_id=plugin_id,
            state=store.state(plugin_id),
            iteration=iteration,
            now=store.clock.now,
            catalog=agent.host.catalog,
            _llm=self._model if agent.settings.llm else None,
            _playbooks=self._playbooks,
            _graph=store.graph,
            _approvals=SeenApprovals(store.approvals),
            host=self.settings.host,
            worker=self.settings.worker,
        )

    def _playbooks(self) -> dict[str, list[str]]:
        plugins = self.agent.host.plugins.values()
        return {plugin.id: list(plugin.playbooks(self.context(plugin.id))) for plugin in plugins}

    def _model(self, plugin_id: str) -> Llm:
        from boyd.engine.investigation import Thinking  # an agent without a model does without it

        assert self.agent.settings.llm is not None
        llm = self.agent.settings.llm
        return Thinking(llm, self.store, self.courier, self.retention, plugin_id)

    def init_plugins(self) -> None:
        """Let every plugin prepare, in order.

        Raises:
            InitFailed: one cannot; the agent must not start.
            StoreError: Redis refuses us.
        """
        for plugin in self.agent.host.plugins.values():
            try:
                plugin.init(self.context(plugin.id))
            except StoreError:
                raise
            except PluginError as error:
                raise InitFailed(plugin.id, error.reason) from error
            except Exception as error:
                raise InitFailed(plugin.id, f"init failed: {describe(error)}") from error

    def entry(self) -> AgentEntry:
        """How the agent is announced to the deployment."""
        settings = self.agent.settings
        return AgentEntry(
            id=self.agent.id,
            name=self.agent.info.name,
            mode=settings.mode,
            loop_interval=settings.loop_interval,
            plugins=list(self.agent.host.plugins),
            fingerprint=self.agent.fingerprint,
            model=settings.llm.model if settings.llm else None,
            catalog=self.agent.host.catalog,
            retention=self.retention,
        )

    def token(self) -> str:
        """A name for entering something once: this worker's, a slash, and what nobody else has."""
        return f"{self.settings.worker}/{uuid.uuid4().hex[:8]}"

    def purge_approvals(self) -> list[ApprovalItem]:
        """Move expired approvals to history, with the runs that waited for them (L7, A2)."""
        return self.store.approvals.purge(self.retention)

    @property
    def retention(self) -> Retention:
        """How long the agent's approvals wait, and what it keeps (A1, A14, L37, R6)."""
        settings = self.agent.settings
        approvals = settings.approvals
        waits = approvals.auto_expire and approvals.ttl > 0
        return Retention(
            ttl=approvals.ttl if waits else None,
            max_age=approvals.max_age,
            max_count=approvals.max_history,
            runs_max_age=settings.runs.retention,
            runs_max_count=settings.runs.max_finished,
            iterations_max_age=settings.history.max_age,
            iterations_max_count=settings.history.max_count,
        )

    @property
    def waiting(self) -> Waiting:
        """Where the agent's gated actions wait."""
        notify = bool(self.agent.host.hooks("on_approval"))
        return Waiting(self.store, self.retention, notify)

    def action_limit(self, action_id: str | None) -> float:
        """Seconds after which a step that executes that action counts as hanging."""
        action = self.agent.host.actions.get(action_id or "")
        return self.settings.phase_limit + (action.timeout if action else 0.0)
