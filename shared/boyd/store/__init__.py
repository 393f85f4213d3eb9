"""All state in Redis: keys, scripts, and a class per noun. No other package names a key."""

from __future__ import annotations

from boyd.store.acknowledgements import Acknowledged
from boyd.store.agent_store import AgentStore
from boyd.store.api_keys import Admission, ApiKeys
from boyd.store.approvals import ItemAnswer, Resolution, Verdict, fingerprint, read_item
from boyd.store.audit_chain import Sealing
from boyd.store.audit_trail import Audit
from boyd.store.calls import read_call
from boyd.store.deployment_store import Store
from boyd.store.due import Due
from boyd.store.ended_work import EndedWork
from boyd.store.events import AgentEvents, Events, StreamWatcher, Topic, is_later
from boyd.store.executions import ActionLedger, Stale, StillRunning, WaitsForTurn
from boyd.store.fleet import AgentEntry, AgentFleet, Fleet, Retention, WorkerInfo, in_service
from boyd.store.freezes import Freezes, reason_text
from boyd.store.history import History
from boyd.store.holds import Holds
from boyd.store.idempotency import IdempotentAnswers, ReservedAnswer, StoredAnswer
from boyd.store.investigations import Investigations, LogChange, Written, read_investigation
from boyd.store.iteration_record import (
    BatchRun,
    Record,
    build_fields,
    dump_blocks,
    dump_changes,
    dump_not_due,
    dump_problems,
    dump_reads,
    dump_results,
)
from boyd.store.iterations import Iterations, Lost, Retry
from boyd.store.jobs import RunEnding, StuckJob
from boyd.store.keys import DEPLOYMENT
from boyd.store.login_sessions import LoginSessions, OpenSession, SessionAdmission
from boyd.store.loop_control import IntakeLimits, Loop, Slot, TriggerOutcome
from boyd.store.model_usage import ModelUsage
from boyd.store.observers import Observers, StuckBatch
from boyd.store.phase_entries import BatchEntry, PhaseEnd, PhaseEntry
from boyd.store.plugin_state import FactGraph
from boyd.store.procedures import ProcedureStore, read_procedure, step_field
from boyd.store.runs import Submitted, read_callback
from boyd.store.server.connection import connect, mask_url, translate_errors
from boyd.store.throttle import Throttle
from boyd.store.timing import ServerClock, Timing
from boyd.store.track_records import TrackRecords

__all__ = [
    "DEPLOYMENT",
    "Acknowledged",
    "ActionLedger",
    "Admission",
    "AgentEntry",
    "AgentEvents",
    "AgentFleet",
    "AgentStore",
    "ApiKeys",
    "Audit",
    "BatchEntry",
    "BatchRun",
    "Due",
    "EndedWork",
    "Events",
    "FactGraph",
    "Fleet",
    "Freezes",
    "History",
    "Holds",
    "IdempotentAnswers",
    "IntakeLimits",
    "Investigations",
    "ItemAnswer",
    "Iterations",
    "LogChange",
    "LoginSessions",
    "Loop",
    "Lost",
    "ModelUsage",
    "Observers",
    "OpenSession",
    "PhaseEnd",
    "PhaseEntry",
    "ProcedureStore",
    "Record",
    "ReservedAnswer",
    "Resolution",
    "Retention",
    "Retry",
    "RunEnding",
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
    "Throttle",
    "Timing",
    "Topic",
    "TrackRecords",
    "TriggerOutcome",
    "Verdict",
    "WaitsForTurn",
    "WorkerInfo",
    "Written",
    "build_fields",
    "connect",
    "dump_blocks",
    "dump_changes",
    "dump_not_due",
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
    "translate_errors",
]
