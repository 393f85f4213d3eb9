"""The state of one agent in Redis: every noun that belongs to an agent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from boyd.models.approval import ApprovalItem
from boyd.models.base import Model
from boyd.models.tape import PublishedReplay
from boyd.store.acknowledgements import Acknowledgements
from boyd.store.approvals import Approvals
from boyd.store.audit_chain import Sealing
from boyd.store.audit_trail import Audit
from boyd.store.budgets import BudgetBook
from boyd.store.calls import Calls
from boyd.store.delegations import Delegations
from boyd.store.due import Due
from boyd.store.ended_work import EndedWork
from boyd.store.events import AgentEvents
from boyd.store.executions import ActionLedger
from boyd.store.fleet import AgentFleet, Fleet, Retention, read_entry
from boyd.store.freezes import FreezeCopy
from boyd.store.history import History
from boyd.store.holdouts import Holdouts
from boyd.store.holds import Holds
from boyd.store.in_flight import InFlight
from boyd.store.investigations import Investigations
from boyd.store.iterations import Iterations
from boyd.store.jobs import Jobs
from boyd.store.keys import GraphKeys, Keys
from boyd.store.latest_report import LatestReport
from boyd.store.loop_control import Loop
from boyd.store.model_usage import ModelUsage
from boyd.store.notification_records import NotificationRecords
from boyd.store.observers import Observers
from boyd.store.pending_approvals import PendingApprovals
from boyd.store.plugin_state import DelegatedGraph, FactGraph, PluginState
from boyd.store.procedures import ProcedureStore
from boyd.store.runs import Runs
from boyd.store.server.connection import Client
from boyd.store.server.scripts import Scripts
from boyd.store.storage_budget import StorageBudget
from boyd.store.timing import ServerClock, Timing
from boyd.store.trace_progress import TraceProgress
from boyd.store.track_records import TrackRecords
from boyd.store.waves import WaveStore

_M = TypeVar("_M", bound=Model)


@dataclass(frozen=True)
class ProcessAccess:
    """The access of one process to Redis, which the stores of all agents share.

    Attributes:
        worker: names the process in claims.
        sealing: seals the audit trails.
        fleet: the workers of the deployment.
    """

    client: Client
    scripts: Scripts
    worker: str
    timing: Timing
    sealing: Sealing
    fleet: Fleet


class AgentStore:
    """The state of one agent in Redis.

    Each noun is an attribute named like its module, and built when first used: a request needs
    two or three of them. Two threads may each build their own; that is harmless, because all
    state is in Redis.
    """

    def __init__(self, access: ProcessAccess, agent_id: str, clock: ServerClock) -> None:
        self._access = access
        self._client = access.client
        self._all_scripts = access.scripts
        self._keys = Keys(agent_id)
        self._scripts = access.scripts.of(self._keys)
        self._timing = access.timing
        self.agent_id = agent_id
        self.clock = clock

    @cached_property
    def fleet(self) -> AgentFleet:
        """The live workers that run the agent."""
        return self._access.fleet.of(self.agent_id)

    @cached_property
    def loop_control(self) -> Loop:
        """Triggers, intake, pause and resume."""
        return Loop(self._client, self._scripts, self._keys, self.agent_id, self._timing)

    @cached_property
    def iterations(self) -> Iterations:
        """The iteration in flight, phase by phase."""
        return Iterations(self._client, self._scripts, self._keys, self._timing)

    @cached_property
    def observers(self) -> Observers:
        """Batches of observers, their last runs and health."""
        return Observers(self._client, self._scripts, self._keys, self._timing)

    @cached_property
    def history(self) -> History:
        """Ended iterations."""
        return History(self._client, self._scripts, self._keys, self.agent_id)

    @cached_property
    def due(self) -> Due:
        """Overdue work."""
        return Due(self._scripts, self._timing)

    @cached_property
    def runs(self) -> Runs:
        """Submitted runs."""
        return Runs(self._client, self._scripts, self._keys, self._timing.resend_after)

    @cached_property
    def in_flight(self) -> InFlight:
        """Executions in flight, by action and target."""
        return InFlight(self._client, self._scripts, self._keys)

    @cached_property
    def approvals(self) -> Approvals:
        """Proposals that wait for a person, and answered ones."""
        return Approvals(
            self._client,
            self._scripts,
            self._keys,
            self.agent_id,
            self._timing.resend_after,
            self.in_flight,
        )

    @cached_property
    def pending_approvals(self) -> PendingApprovals:
        """Proposals that wait, in brief."""
        return PendingApprovals(self._scripts, self._keys, self.clock, self.agent_id)

    @cached_property
    def notification_records(self) -> NotificationRecords:
        """Sent notifications."""
        return NotificationRecords(self._scripts, self._keys, self._timing.resend_after)

    @cached_property
    def acknowledgements(self) -> Acknowledgements:
        """Acknowledgements of approvals and anomalies."""
        return Acknowledgements(self._client, self._scripts, self._keys)

    @cached_property
    def calls(self) -> Calls:
        """Actions that clients call directly."""
        return Calls(self._client, self._scripts, self._keys, self._timing.resend_after)

    @cached_property
    def jobs(self) -> Jobs:
        """Work that runs beside iterations."""
        return Jobs(self._client, self._scripts, self._keys, self._timing)

    @cached_property
    def investigations(self) -> Investigations:
        """Investigations and their logs."""
        return Investigations(self._client, self._scripts, self._keys, self._timing.resend_after)

    @cached_property
    def model_usage(self) -> ModelUsage:
        """Running totals of the agent's model."""
        return ModelUsage(self._client, self._scripts, self._keys)

    @cached_property
    def events(self) -> AgentEvents:
        """The event stream."""
        return AgentEvents(self._client, self._keys)

    @cached_property
    def executions(self) -> ActionLedger:
        """The ledger of executed actions."""
        return ActionLedger(
            self._client, self._scripts, self._keys, self._access.worker, self._timing.lease
        )

    @cached_property
    def holds(self) -> Holds:
        """Verdicts on effects, and the actions that they hold."""
        return Holds(self._client, self._scripts, self._keys, self.in_flight)

    @cached_property
    def track_records(self) -> TrackRecords:
        """Outcomes of actions, and the grants that they earned."""
        return TrackRecords(self._client, self._scripts, self._keys)

    @cached_property
    def holdouts(self) -> Holdouts:
        """Cases that wait before the action."""
        return Holdouts(self._scripts, self._keys)

    @cached_property
    def procedures(self) -> ProcedureStore:
        """Procedures and their progress."""
        return ProcedureStore(self._client, self._scripts, self._keys)

    @cached_property
    def waves(self) -> WaveStore:
        """The targets of the steps of procedures."""
        return WaveStore(self._client, self._scripts, self._keys)

    @cached_property
    def budgets(self) -> BudgetBook:
        """The use of budgets."""
        return BudgetBook(self._client, self._keys, self.executions)

    @cached_property
    def audit_trail(self) -> Audit:
        """The agent's audit trail."""
        return Audit(self._client, self._scripts, self._keys, self._access.sealing)

    @cached_property
    def ended_work(self) -> EndedWork:
        """Indexes of ended work, for archive and traces."""
        return EndedWork(self._client, self._scripts, self._keys)

    @property
    def latest_replay(self) -> LatestReport[PublishedReplay]:
        """The replay that was published last."""
        return self.latest_report("replay", PublishedReplay)

    def latest_report(self, name: str, model: type[_M]) -> LatestReport[_M]:
        """The report of that name that was published last."""
        return LatestReport(self._client, self._keys.report(name), model)

    @cached_property
    def trace_progress(self) -> TraceProgress:
        """The progress of the export of traces."""
        return TraceProgress(self._scripts)

    @cached_property
    def delegations(self) -> Delegations:
        """The policies of agents for each other."""
        return Delegations(self._client, self._all_scripts)

    @cached_property
    def storage_budget(self) -> StorageBudget:
        """The storage budgets of principals."""
        return StorageBudget(self._all_scripts)

    def find_approval(self, approval_id: str) -> ApprovalItem | None:
        """An approval with the effect of its execution, or its progress, if it was approved."""
        item = self.approvals.get(approval_id)
        if item is None or item.status != "approved":
            return item
        entry = self.executions.get(item.execution_id)
        if entry is None:
            return item
        execution = item.execution and item.execution.patched({"progress": entry.progress})
        return item.patched({"effect": entry.verification, "execution": execution})

    def retention(self) -> Retention:
        """The retention that the agent's workers announced."""
        entry = read_entry(self._client, self.agent_id)
        return entry.retention if entry else Retention()

    def halt(self) -> str | None:
        """The reason for halting the agent's model, if it is halted."""
        return FreezeCopy(self._client, self._scripts).halt()

    def graph(self, name: str, agent_id: str | None = None) -> FactGraph:
        """A fact graph of this agent, or of *agent_id*.

        Raises:
            NotDelegated: the agent *agent_id* does not let this one read it.
        """
        owner = agent_id or self.agent_id
        keys = GraphKeys(owner, name)
        scripts = self._all_scripts.of(keys)
        if owner == self.agent_id:
            return FactGraph(self._client, scripts, keys)
        allowed = partial(self.delegations.check, owner, self.agent_id)
        allowed("read_graph")
        return DelegatedGraph(self._client, scripts, keys, partial(allowed, "write_graph"))

    def state(self, plugin_id: str) -> PluginState:
        """The state of one plugin."""
        return PluginState(self._client, self._scripts, self._keys, plugin_id)
