"""One agent on one worker: all that its steps and jobs work with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from boyd.agent import Agent
from boyd.errors import InitFailed, PluginError, StoreError
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import ApprovalItem, Proposal
from boyd.outbound import Delivery, post_callback
from boyd.phases.observe import Isolate
from boyd.phases.phase_context import describe
from boyd.plugin import Context, Llm
from boyd.runtime.leases import Leases
from boyd.store import AgentEntry, AgentFleet, AgentStore, Retention
from boyd.store.approvals import Approvals

#: Sends a callback: URL, body, an id that stays the same when it is repeated, and the time.
Post = Callable[[str, bytes, str, datetime], Delivery]


def post_unsigned(url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
    """Send a callback without a signature, to public addresses only."""
    return post_callback(
        url, body, webhook_id=webhook_id, at=at, secrets=(), allow_private=False, timeout=10.0
    )


@dataclass(frozen=True)
class EngineSettings:
    """How a worker takes its steps.

    Attributes:
        worker: names this process in leases and claims.
        host: the name of the host that it runs on.
        bundle_size: how many observers travel in one message.
        width: how many observers of a bundle run at the same time.
        max_bytes: the most JSON that one observer may return.
        phase_limit: seconds after which a control phase that hangs loses its lease.
        post: sends the callbacks of runs.
        thinking: how many threads may wait for a model at the same time.
    """

    worker: str
    host: str
    bundle_size: int = 32
    width: int = 64
    max_bytes: int = 1_000_000
    phase_limit: float = 120.0
    post: Post = post_unsigned
    thinking: int = 4


class ReadOnlyApprovals:
    """Implements `boyd.plugin.ApprovalReader`, so that plugins cannot answer approvals."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    def get(self, approval_id: str) -> ApprovalItem | None:
        """An approval as it is now; None: there is none, or it is not kept any more."""
        return self._approvals.get(approval_id)

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        """Those of them that nobody has answered yet, in one round trip; none for none."""
        return self._approvals.pending_of(list(approval_ids)) if approval_ids else set()


class StoredApprovalGateway:
    """Implements `loop.act.Approvals` on the store."""

    def __init__(self, store: AgentStore, retention: Retention, notify: bool) -> None:
        """Queue approvals; with *notify* somebody wants to be told of them."""
        self._approvals = store.approvals
        self._runs = store.runs
        self._loop = store.loop
        self._retention = retention
        self._notify = notify

    def propose(self, proposal: Proposal, execution_id: str) -> str:
        """Queue the proposal, on behalf of those who submitted its runs, too (A11); its id."""
        asking = [*proposal.requested_by, *self._runs.requesters(proposal.run_ids)]
        changes: dict[str, object] = {"requested_by": list(dict.fromkeys(asking))}
        if not proposal.loop_iteration:
            # No iteration asks for it: it is known by the one in flight, or the last one.
            changes["loop_iteration"] = self._loop.iteration()
        complete = proposal.patched(changes)
        return self._approvals.enqueue(complete, self._retention, execution_id, self._notify)

    def waits(self, proposal: Proposal) -> bool:
        """Whether the same proposal is pending already."""
        return self._approvals.waits(proposal)

    def proposed(self, execution_id: str) -> str | None:
        """The approval that an earlier attempt has proposed, if it has."""
        return self._approvals.proposed(execution_id)


class Engine:
    """One agent on one worker."""

    def __init__(
        self,
        agent: Agent,
        store: AgentStore,
        fleet: AgentFleet,
        dispatcher: Dispatcher,
        leases: Leases,
        settings: EngineSettings,
        isolate: Isolate | None = None,
    ) -> None:
        self.agent = agent
        self.store = store
        self.fleet = fleet
        self.dispatcher = dispatcher
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
            _approvals=ReadOnlyApprovals(store.approvals),
            host=self.settings.host,
            worker=self.settings.worker,
        )

    def _playbooks(self) -> dict[str, list[str]]:
        plugins = self.agent.host.plugins.values()
        return {plugin.id: list(plugin.playbooks(self.context(plugin.id))) for plugin in plugins}

    def _model(self, plugin_id: str) -> Llm:
        from boyd.runtime.investigation import (
            ModelAccess,  # an agent without a model does without it
        )

        assert self.agent.settings.llm is not None
        llm = self.agent.settings.llm
        return ModelAccess(llm, self.store, self.dispatcher, self.retention, plugin_id)

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
    def waiting(self) -> StoredApprovalGateway:
        """Where the agent's gated actions wait."""
        notify = bool(self.agent.host.hooks("on_approval"))
        return StoredApprovalGateway(self.store, self.retention, notify)

    def action_limit(self, action_id: str | None) -> float:
        """Seconds after which a step that executes that action counts as hanging."""
        action = self.agent.host.actions.get(action_id or "")
        return self.settings.phase_limit + (action.timeout if action else 0.0)
