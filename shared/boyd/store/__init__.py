"""All state in Redis: keys, scripts, and a class per noun. No other package names a key."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from boyd.errors import StoreError
from boyd.store.api_keys import Admission, ApiKeys
from boyd.store.approvals import Approvals, Verdict, fingerprint, read_item
from boyd.store.audit_chain import Sealing
from boyd.store.audit_trail import Audit, actor_fields, seal_all
from boyd.store.batches import Batches, StuckBatch
from boyd.store.budgets import BudgetBook
from boyd.store.calls import Calls, read_call
from boyd.store.clock import ServerClock
from boyd.store.delegations import Delegations
from boyd.store.due import Due, take_each
from boyd.store.ended_work import EndedWork
from boyd.store.events import AgentEvents, Events, StreamWatcher, Topic, is_later
from boyd.store.executions import (
    ActionLedger,
    ClaimReply,
    Fence,
    Stale,
    StillRunning,
    WaitsForTurn,
)
from boyd.store.fact_graph import DelegatedGraph, FactGraph
from boyd.store.fleet import (
    AgentEntry,
    AgentFleet,
    Fleet,
    WorkerInfo,
    in_service,
    read_entry,
)
from boyd.store.freeze_copy import FreezeCopy
from boyd.store.freezes import Freezes, reason_text
from boyd.store.history import History
from boyd.store.holds import Holds
from boyd.store.idempotency import IdempotentAnswers, ReservedAnswer, StoredAnswer
from boyd.store.in_flight import InFlight
from boyd.store.investigations import (
    Investigations,
    LogChange,
    Written,
    read_investigation,
)
from boyd.store.iteration_record import (
    BatchRun,
    Record,
    build_fields,
    dump_blocks,
    dump_changes,
    dump_problems,
    dump_reads,
    dump_results,
)
from boyd.store.iterations import Iterations, Lost, PhaseEntry, Retry
from boyd.store.jobs import Ending, Jobs, StuckJob
from boyd.store.keys import DEPLOYMENT, GraphKeys, Keys
from boyd.store.latest_replay import LatestReplay
from boyd.store.login_sessions import LoginSessions, OpenSession, SessionAdmission
from boyd.store.loop_control import Begun, Loop, Room, Slot
from boyd.store.model_usage import ModelUsage
from boyd.store.notification_records import NotificationRecords
from boyd.store.observers import Observers
from boyd.store.people import People
from boyd.store.plugin_state import PluginState
from boyd.store.procedures import ProcedureStore, read_procedure, step_field
from boyd.store.runs import Runs, Submitted, read_callback
from boyd.store.server.connection import Client, connect, mask_url, near, translated
from boyd.store.server.scripts import Scripts
from boyd.store.storage_budget import StorageBudget
from boyd.store.timing import Retention, Timing
from boyd.store.trace_progress import TraceProgress
from boyd.store.track_records import TrackRecords
from boyd.store.turns import Turns


class AgentStore:
    """The state of one agent in Redis."""

    def __init__(
        self,
        client: Client,
        scripts: Scripts,
        agent_id: str,
        worker: str,
        timing: Timing,
        sealing: Sealing,
        clock: ServerClock,
    ) -> None:
        keys = Keys(agent_id)
        self._client = client
        self._all_scripts = scripts
        self._keys = keys
        self._scripts = of_agent = scripts.of(keys)
        self.agent_id = agent_id
        self.clock = clock
        self.loop_control = Loop(client, of_agent, keys, agent_id, timing)
        self.iterations = Iterations(client, of_agent, keys, timing)
        self.batches = Batches(of_agent, timing)
        self.observers = Observers(client, keys)
        self.history = History(client, of_agent, keys, agent_id)
        self.due = Due(of_agent, timing)
        self.runs = Runs(client, of_agent, keys, timing.resend_after)
        self.in_flight = InFlight(client, of_agent, keys)
        self.approvals = Approvals(
            client, of_agent, keys, agent_id, timing.resend_after, self.in_flight
        )
        self.notification_records = NotificationRecords(of_agent, keys, timing.resend_after)
        self.calls = Calls(client, of_agent, keys, timing.resend_after)
        self.jobs = Jobs(client, of_agent, keys, timing)
        self.investigations = Investigations(client, of_agent, keys, timing.resend_after)
        self.model_usage = ModelUsage(client, of_agent, keys)
        self.events = AgentEvents(client, keys)
        self.executions = ActionLedger(client, of_agent, keys, worker, timing.lease)
        self.holds = Holds(client, of_agent, keys, self.in_flight)
        self.track_records = TrackRecords(client, of_agent, keys)
        self.procedures = ProcedureStore(client, of_agent, keys)
        self.budgets = BudgetBook(client, keys, self.executions)
        self.audit_trail = Audit(client, of_agent, keys, sealing)
        self.ended_work = EndedWork(client, keys)
        self.latest_replay = LatestReplay(client, keys)
        self.trace_progress = TraceProgress(of_agent)
        self.delegations = Delegations(client, scripts)
        self.storage_budget = StorageBudget(scripts)

    def retention(self) -> Retention:
        """The retention that the agent's workers announced."""
        entry = read_entry(self._client, self.agent_id)
        return entry.retention if entry else Retention()

    def halt(self) -> str | None:
        """The reason why the agent's model is halted; None: it may be asked."""
        return FreezeCopy(self._client, self._scripts).halt()

    def graph(self, name: str, of: str | None = None) -> FactGraph:
        """A fact graph of this agent, or of the agent *of*.

        Raises:
            NotDelegated: the agent *of* does not let this one read it.
        """
        owner = of or self.agent_id
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


class Store:
    """The state of a deployment in one Redis."""

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
        self._clocks: dict[str, ServerClock] = {}
        self._scripts = Scripts(client)
        deployment = self._scripts.of(Keys(DEPLOYMENT))
        self.fleet = Fleet(client, self._scripts)
        self.freezes = Freezes(client, self._scripts)
        self.delegations = Delegations(client, self._scripts)
        self.api_keys = ApiKeys(client, deployment)
        self.login_sessions = LoginSessions(client, deployment)
        self.people = People(client)
        self.idempotency = IdempotentAnswers(client, self._scripts)
        self.storage_budget = StorageBudget(self._scripts)
        self.audit_trail = Audit(client, deployment, deployment.keys, self.sealing)

    def agent(self, agent_id: str) -> AgentStore:
        """The state of one agent."""
        return AgentStore(
            self.client,
            self._scripts,
            agent_id,
            self.worker,
            self.timing,
            self.sealing,
            self._clock_of(agent_id),
        )

    def _clock_of(self, agent_id: str) -> ServerClock:
        """The clock of the server with the agent's state."""
        beside = near(self.client, Keys(agent_id).loop)
        if beside is self.client:
            return self.clock
        return self._clocks.setdefault(agent_id, ServerClock(beside))

    def seal(self, agent_ids: Iterable[str] = ()) -> int:
        """Seal the audit of the deployment and of *agent_ids*; return the number of entries."""
        return seal_all(
            self.client, [self.audit_trail, *(self.agent(name).audit_trail for name in agent_ids)]
        )

    def take_due(self, agent_ids: Iterable[str]) -> list[dict[str, str] | StoreError]:
        """Take the overdue work of each agent; an error stands for work that cannot be taken."""
        return take_each(self._scripts, [self.agent(name).due for name in agent_ids])

    def turns(self, agent_ids: Iterable[str]) -> Turns:
        """The heartbeats of this process, and its turns among those with the same agents."""
        return Turns(self._scripts.of(Keys(DEPLOYMENT)), self.fleet, agent_ids)

    def events(self, agent_ids: list[str]) -> Events:
        """The events of these agents from now on."""
        return Events(self.client, agent_ids)

    def growth(self) -> StreamWatcher:
        """A watcher for growing event streams and investigation logs."""
        return StreamWatcher(self.client)


__all__ = [
    "DEPLOYMENT",
    "ActionLedger",
    "Admission",
    "AgentEntry",
    "AgentEvents",
    "AgentFleet",
    "AgentStore",
    "ApiKeys",
    "Audit",
    "BatchRun",
    "Batches",
    "Begun",
    "ClaimReply",
    "Due",
    "EndedWork",
    "Ending",
    "Events",
    "FactGraph",
    "Fence",
    "Fleet",
    "Freezes",
    "History",
    "Holds",
    "IdempotentAnswers",
    "Investigations",
    "Iterations",
    "LogChange",
    "LoginSessions",
    "Loop",
    "Lost",
    "ModelUsage",
    "Observers",
    "OpenSession",
    "PhaseEntry",
    "ProcedureStore",
    "Record",
    "ReservedAnswer",
    "Retention",
    "Retry",
    "Room",
    "Sealing",
    "ServerClock",
    "SessionAdmission",
    "Slot",
    "Stale",
    "StillRunning",
    "Store",
    "StoredAnswer",
    "StreamWatcher",
    "StuckBatch",
    "StuckJob",
    "Submitted",
    "Timing",
    "Topic",
    "TrackRecords",
    "Turns",
    "Verdict",
    "WaitsForTurn",
    "WorkerInfo",
    "Written",
    "actor_fields",
    "build_fields",
    "connect",
    "dump_blocks",
    "dump_changes",
    "dump_problems",
    "dump_reads",
    "dump_results",
    "fingerprint",
    "in_service",
    "is_later",
    "mask_url",
    "read_call",
    "read_callback",
    "read_investigation",
    "read_item",
    "read_procedure",
    "reason_text",
    "step_field",
    "translated",
]
