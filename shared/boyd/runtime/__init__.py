"""Runs agents on workers: iterations, jobs, approvals, recovery."""

from __future__ import annotations

from boyd.messaging.dispatcher import BatchHint, Dispatcher
from boyd.runtime.approvals.approval_gateway import Resolver
from boyd.runtime.autonomy.case_waits import WaitHandler
from boyd.runtime.ending import Abandoner, Abandonment, retire, revoke
from boyd.runtime.engine import Engine, EngineSettings, Post, Processes
from boyd.runtime.iteration import IterationSteps
from boyd.runtime.jobs.action_jobs import ApprovedActionHandler
from boyd.runtime.jobs.client_call import ClientCallHandler
from boyd.runtime.jobs.investigation_job import InvestigationHandler
from boyd.runtime.jobs.job_runner import JobRunner
from boyd.runtime.jobs.notifications import DeliveryHandler, NotificationHandler, RunCallbackHandler
from boyd.runtime.jobs.verification_job import VerificationHandler
from boyd.runtime.leases import Leases
from boyd.runtime.procedures.procedure_move import ProcedureHandler
from boyd.runtime.procedures.wave_moves import TargetHandler
from boyd.runtime.sweeper import Sweeper, sweep_all
from boyd.runtime.triggers import Launcher

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
    "Processes",
    "Resolver",
    "Sweeper",
    "job_runner",
    "retire",
    "revoke",
    "sweep_all",
]


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
            "target": TargetHandler(engine),
            "verify": VerificationHandler(engine),
            "wait": WaitHandler(engine),
        },
    )
