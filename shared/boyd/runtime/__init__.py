"""Joins the phases and the store: one step is enter, run the phase, leave, say what comes next."""

from boyd.messaging.dispatcher import BatchHint, Dispatcher
from boyd.runtime.ending import Abandoner, Abandonment
from boyd.runtime.engine import Engine, EngineSettings, Post
from boyd.runtime.iteration import IterationSteps
from boyd.runtime.jobs.approved_action import ApprovedActionHandler
from boyd.runtime.jobs.client_call import ClientCallHandler
from boyd.runtime.jobs.no_model import NoModelHandler
from boyd.runtime.jobs.notifications import NotificationHandler, RunCallbackHandler
from boyd.runtime.jobs.runner import JobHandler, JobRunner
from boyd.runtime.leases import Leases
from boyd.runtime.resolver import Resolution, Resolver
from boyd.runtime.retirement import retire
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
    "Resolution",
    "Resolver",
    "Sweeper",
    "jobs_of",
    "retire",
    "sweep_all",
]


def jobs_of(engine: Engine) -> JobRunner:
    """The jobs of an agent, with what is to be done for each kind."""
    jobs: dict[str, JobHandler] = {
        "approval": ApprovedActionHandler(engine),
        "call": ClientCallHandler(engine),
        "callback": RunCallbackHandler(engine),
        "notice": NotificationHandler(engine),
        "investigation": NoModelHandler(engine),
    }
    llm = engine.agent.settings.llm
    if llm is not None:
        from boyd.runtime.investigation import (
            InvestigationHandler,  # an agent without a model does without
        )

        jobs["investigation"] = InvestigationHandler(engine, llm)
    return JobRunner(engine, jobs)
