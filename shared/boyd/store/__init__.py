"""All of Redis: keys, scripts, and one class per noun. Nothing outside this package names a key."""

from __future__ import annotations

from boyd.store.approvals import Approvals, Retention, StuckExecution, fingerprint
from boyd.store.client import Client, connect, masked, translated
from boyd.store.events import Events
from boyd.store.fleet import AgentEntry, AgentFleet, Fleet, WorkerInfo, reason_text
from boyd.store.iterations import (
    Begun,
    Entry,
    Iterations,
    Retry,
    RunEnd,
    Slot,
    StuckUnit,
    Timing,
)
from boyd.store.keys import Keys
from boyd.store.ledger import Fence, Ledger, Reply, Stale, StillRunning
from boyd.store.record import Record, dump_blocks, dump_problems, dump_results
from boyd.store.runs import Runs, Submitted
from boyd.store.scripts import Scripts
from boyd.store.state import PluginState


class AgentStore:
    """Everything of one agent in Redis."""

    def __init__(
        self, client: Client, scripts: Scripts, agent_id: str, worker: str, timing: Timing
    ) -> None:
        keys = Keys(agent_id)
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self.agent_id = agent_id
        self.iterations = Iterations(client, scripts, keys, agent_id, timing)
        self.runs = Runs(client, scripts, keys, timing.dispatch)
        self.approvals = Approvals(client, scripts, keys, agent_id, timing)
        self.ledger = Ledger(client, scripts, keys, worker, timing.lease)

    def state(self, plugin_id: str) -> PluginState:
        """The state of one plugin."""
        return PluginState(self._client, self._scripts, self._keys, plugin_id)


class Store:
    """Boyd's state on one Redis."""

    def __init__(self, client: Client, worker: str = "", timing: Timing | None = None) -> None:
        """Use *client*; *worker* names this process in claims."""
        self.client = client
        self.worker = worker
        self.timing = timing or Timing()
        self._scripts = Scripts(client)
        self.fleet = Fleet(client, self._scripts)

    def agent(self, agent_id: str) -> AgentStore:
        """What belongs to one agent."""
        return AgentStore(self.client, self._scripts, agent_id, self.worker, self.timing)

    def events(self, agent_ids: list[str]) -> Events:
        """What happens to those agents from now on."""
        return Events(self.client, agent_ids)


__all__ = [
    "AgentEntry",
    "AgentFleet",
    "AgentStore",
    "Begun",
    "Entry",
    "Events",
    "Fence",
    "Fleet",
    "Iterations",
    "Record",
    "Reply",
    "Retention",
    "Retry",
    "RunEnd",
    "Slot",
    "Stale",
    "StillRunning",
    "Store",
    "StuckExecution",
    "StuckUnit",
    "Submitted",
    "Timing",
    "WorkerInfo",
    "connect",
    "dump_blocks",
    "dump_problems",
    "dump_results",
    "fingerprint",
    "masked",
    "reason_text",
    "translated",
]
