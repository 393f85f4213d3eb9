"""The context that an agent's steps and jobs share on one worker."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from boyd.agent import Agent
from boyd.errors import AgentRevoked, InitFailed, PluginError, StoreError
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import REVOKED
from boyd.outbound import CallbackSender, Delivery
from boyd.phases.action_call import Confiner
from boyd.phases.observe import Isolate
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Context, Llm
from boyd.plugin.context import IdentitySigner
from boyd.plugin.plugin_boundary import contain, read_all
from boyd.runtime.approvals.approval_gateway import ReadOnlyApprovals, StoredApprovalGateway
from boyd.runtime.leases import LeasedLedger, Leases
from boyd.security.approval_signatures import ApprovalSigner
from boyd.security.links import LinkBuilder
from boyd.store import AgentEntry, AgentStore, Retention
from boyd.store.storage_budget import DAY

log = logging.getLogger(__name__)

#: Sends a callback: URL, body, an id that stays the same when it is repeated, and the time.
Post = Callable[[str, bytes, str, datetime], Delivery]


def retention_of(agent: Agent) -> Retention:
    """The time approvals of *agent* wait, and how much of its past is kept."""
    settings = agent.settings
    approvals = settings.approvals
    expires = approvals.auto_expire and approvals.ttl > 0
    return Retention(
        ttl=approvals.ttl if expires else None,
        max_age=approvals.max_age,
        max_count=approvals.max_history,
        runs_max_age=settings.runs.retention,
        runs_max_count=settings.runs.max_finished,
        iterations_max_age=settings.history.max_age,
        iterations_max_count=settings.history.max_count,
    )


@dataclass(frozen=True)
class EngineSettings:
    """Settings of a worker that its steps and jobs need.

    Attributes:
        worker: names this process in leases and claims.
        host: name of the host it runs on.
        bundle_size: observers per message.
        width: observers of a batch that run at the same time.
        max_bytes: the most JSON that one observer may return.
        phase_limit: seconds after which a hanging control phase loses its lease.
        post: sends the callbacks of runs; by default unsigned, to public addresses only.
        links: builds the links to approvals.
        signer: checks who approved what; without one, write access to Redis suffices to approve.
        thinking: threads that may wait for a model at the same time.
        identity: signs the identity tokens of its agents.
        principal_bytes: the storage budget of a principal.
        may_take: whether this worker may go on with a step of that queue without its message.
    """

    worker: str
    host: str
    bundle_size: int = 32
    width: int = 64
    max_bytes: int = 1_000_000
    phase_limit: float = 120.0
    post: Post = CallbackSender().post
    links: LinkBuilder = field(default_factory=LinkBuilder)
    signer: ApprovalSigner | None = None
    thinking: int = 4
    identity: IdentitySigner | None = None
    principal_bytes: int = 67_108_864
    may_take: Callable[[str], bool] = lambda queue: False


@dataclass(frozen=True)
class Processes:
    """The processes besides the worker in which functions of one agent's plugins run.

    Attributes:
        isolate: runs an isolated observer; without it, they run in the worker.
        confiner: makes the sandboxes of actions; without it, actions that need one do not run.
    """

    isolate: Isolate | None = None
    confiner: Confiner | None = None


NO_PROCESSES = Processes()


class Engine:
    """One agent on one worker.

    `llm` gives a plugin, by id, access to the agent's model, if it has one.
    """

    def __init__(
        self,
        agent: Agent,
        store: AgentStore,
        dispatcher: Dispatcher,
        leases: Leases,
        settings: EngineSettings,
        processes: Processes = NO_PROCESSES,
    ) -> None:
        self.agent = agent
        # Read now: files of plugins may change while this process runs.
        self.build = agent.build
        self.store = store
        self.fleet = store.fleet
        self.dispatcher = dispatcher
        self.settings = settings
        self.leases = leases
        self.isolate = processes.isolate
        self.confiner = processes.confiner
        self.llm = _model_access(agent, store, dispatcher)
        self.retention = retention_of(agent)
        notify = bool(agent.host.hooks("on_approval"))
        self.approvals = StoredApprovalGateway(store, self.retention, notify)
        self._approvals_reader = ReadOnlyApprovals(store.approvals)

    def ledger(self) -> LeasedLedger:
        """The ledger for one execution."""
        return LeasedLedger(self.store, self.leases, self.dispatcher, self.has_room)

    def has_room(self, principal: str, size: int, refill: float = DAY) -> bool:
        """Take *size* bytes of the storage budget of *principal*, if there are so many left."""
        try:
            limit = self.settings.principal_bytes
            return not self.store.storage_budget.take(principal, size, limit, refill)
        except StoreError as error:
            log.warning("the storage budget of %s could not be read: %s", principal, error)
            return True

    def context(self, plugin_id: str, iteration: int | None = None) -> Context:
        """The `ctx` of a plugin."""
        agent, store = self.agent, self.store
        return Context(
            agent=agent.info,
            plugin_id=plugin_id,
            state=store.state(plugin_id),
            iteration=iteration,
            now=store.clock.now,
            catalog=agent.catalog,
            _llm=self.llm,
            _playbooks=self._playbooks,
            _graph=store.graph,
            _approvals=self._approvals_reader,
            _link=self.settings.links.link,
            host=self.settings.host,
            worker=self.settings.worker,
            _identity=self._identity_signer(),
            latest_data=store.history.latest_data,
        )

    def _identity_signer(self) -> IdentitySigner | None:
        """Signs tokens, but none for an agent whose right to act is revoked."""
        identity = self.settings.identity
        if identity is None:
            return None

        def sign(agent_id: str, audience: str, requester: str | None, execution: str | None) -> str:
            revoked = self.store.loop_control.status().revoked
            if revoked is not None:
                raise AgentRevoked(f"{REVOKED}: {revoked}")
            return identity(agent_id, audience, requester, execution)

        return sign

    def act_context(self) -> PhaseContext:
        """The context of an action that runs outside an iteration.

        It has no track records: what an agent has earned is for the decisions of its iterations.
        """
        return PhaseContext(self.agent, "act", self.context, confiner=self.confiner)

    def _playbooks(self) -> dict[str, list[str]]:
        plugins = self.agent.host.plugins.values()
        return {
            plugin.id: read_all(plugin.playbooks(self.context(plugin.id))) for plugin in plugins
        }

    def init_plugins(self) -> None:
        """Initialize every plugin, in order.

        Raises:
            InitFailed: a plugin failed; the agent must not start.
            StoreError: Redis refuses the worker.
        """
        for plugin in self.agent.host.plugins.values():
            try:
                contain(partial(plugin.init, self.context(plugin.id)))
            except StoreError:
                raise
            except PluginError as error:
                raise InitFailed(plugin.id, error.reason) from error
            except Exception as error:
                raise InitFailed(plugin.id, f"init failed: {describe(error)}") from error

    def entry(self) -> AgentEntry:
        """The agent as it is announced to the deployment."""
        settings = self.agent.settings
        return AgentEntry(
            id=self.agent.id,
            name=self.agent.info.name,
            mode=settings.mode,
            loop_interval=settings.loop_interval,
            loop_offset=settings.ticks.offset / 1000,
            schedule=settings.schedule,
            timezone=settings.timezone,
            plugins=list(self.agent.host.plugins),
            fingerprint=self.agent.fingerprint,
            model=settings.llm.model if settings.llm else None,
            delegation=settings.delegation,
            intakes=settings.intakes,
            catalog=self.agent.catalog,
            retention=self.retention,
            approvals=settings.approvals.model_dump(mode="json"),
        )

    def recheck_after(self, approval_id: str, longest: float) -> float:
        """Seconds until an approval should be checked again, at most *longest*."""
        item = self.store.approvals.get(approval_id)
        if item is None or item.result or item.status not in ("pending", "approved"):
            return 0.1  # it was answered before anybody waited for that, and wakes nobody again
        until = item.expires_at if item.status == "pending" else None
        left = (until - self.store.clock.now()).total_seconds() if until else longest
        return min(longest, max(0.0, left) + 0.1)

    def attempt_name(self) -> str:
        """A unique name for one attempt of this worker: `<worker>/<random>`."""
        return f"{self.settings.worker}/{uuid.uuid4().hex[:8]}"

    def action_limit(self, action_id: str | None) -> float:
        """Seconds after which a step that executes that action counts as hanging."""
        action = self.agent.host.actions.get(action_id or "")
        return self.settings.phase_limit + (action.timeout if action else 0.0)

    def longest_action_limit(self) -> float:
        """Seconds after which a step that may execute any action counts as hanging."""
        actions = self.agent.host.actions.values()
        return self.settings.phase_limit + max((action.timeout for action in actions), default=0.0)


def _model_access(
    agent: Agent, store: AgentStore, dispatcher: Dispatcher
) -> Callable[[str], Llm] | None:
    settings = agent.settings.llm
    if settings is None:
        return None
    # Imported only here: an agent without a model does not load what a model needs.
    from boyd.runtime.investigations.model_access import ModelAccess

    retention = retention_of(agent)
    return lambda plugin_id: ModelAccess(settings, store, dispatcher, retention, plugin_id)
