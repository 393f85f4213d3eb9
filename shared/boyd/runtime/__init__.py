"""Runs agents on workers: iterations, jobs, approvals, recovery."""

from __future__ import annotations

from collections.abc import Callable

from boyd.agent import Agent
from boyd.messaging.dispatcher import BatchHint, Dispatcher
from boyd.phases.action_call import Confiner
from boyd.phases.observe import Isolate
from boyd.plugin import Llm
from boyd.runtime.approvals.approval_gateway import Resolution, Resolver
from boyd.runtime.ending import Abandoner, Abandonment, retire, revoke
from boyd.runtime.engine import Engine, EngineSettings, Post, retention_of
from boyd.runtime.iteration import IterationSteps
from boyd.runtime.jobs.action_jobs import ApprovedActionHandler
from boyd.runtime.jobs.client_call import ClientCallHandler
from boyd.runtime.jobs.investigation_job import InvestigationHandler
from boyd.runtime.jobs.job_runner import JobRunner
from boyd.runtime.jobs.notifications import DeliveryHandler, NotificationHandler, RunCallbackHandler
from boyd.runtime.jobs.verification_job import VerificationHandler
from boyd.runtime.leases import Leases
from boyd.runtime.procedures.procedure_move import ProcedureHandler
from boyd.runtime.sweeper import Sweeper, sweep_all
from boyd.runtime.triggers import Launcher
from boyd.store import AgentFleet, AgentStore

__all__ = [
    "Abandoner",
    "Abandonment",
    "BatchHint",
    "Dispatcher",
    "Engine",
    "EngineSettings",
    "IterationSteps",
    "JobRunner",
    "Launcher",
    "Leases",
    "Post",
    "Resolution",
    "Resolver",
    "Sweeper",
    "build_engine",
    "job_runner",
    "retire",
    "revoke",
    "sweep_all",
]


def build_engine(
    agent: Agent,
    store: AgentStore,
    fleet: AgentFleet,
    dispatcher: Dispatcher,
    leases: Leases,
    settings: EngineSettings,
    isolate: Isolate | None = None,
    confiner: Confiner | None = None,
) -> Engine:
    """The engine of an agent, with access to its model if it has one."""
    llm = _model_access(agent, store, dispatcher)
    return Engine(agent, store, fleet, dispatcher, leases, settings, isolate, llm, confiner)


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


def job_runner(engine: Engine) -> JobRunner:
    """The runner of an agent's jobs, with a handler for each kind."""
    return JobRunner(
        engine,
        {
            "approval": ApprovedActionHandler(engine),
            "call": ClientCallHandler(engine),
            "callback": RunCallbackHandler(engine),
            "notice": NotificationHandler(engine),
            "delivery": DeliveryHandler(engine),
            "investigation": InvestigationHandler(engine),
            "procedure": ProcedureHandler(engine),
            "verify": VerificationHandler(engine),
        },
    )
