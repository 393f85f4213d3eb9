"""Joins the phases and the store: one step is enter, run the phase, leave, say what comes next."""

from boyd.engine.abandon import Abandoner, Abandonment
from boyd.engine.approved import Approved
from boyd.engine.callbacks import Callbacks
from boyd.engine.called import Called
from boyd.engine.courier import Courier, UnitHint
from boyd.engine.engine import Engine
from boyd.engine.launch import Launcher
from boyd.engine.leases import Leases
from boyd.engine.notices import Notices
from boyd.engine.orders import Job, Orders
from boyd.engine.resolve import Resolution, Resolver
from boyd.engine.retire import retire
from boyd.engine.settings import EngineSettings, Post
from boyd.engine.steps import Steps
from boyd.engine.sweeper import Sweeper, sweep_all
from boyd.engine.unled import Unled

__all__ = [
    "Abandoner",
    "Abandonment",
    "Courier",
    "Engine",
    "EngineSettings",
    "Launcher",
    "Leases",
    "Orders",
    "Post",
    "Resolution",
    "Resolver",
    "Steps",
    "Sweeper",
    "UnitHint",
    "orders_of",
    "retire",
    "sweep_all",
]


def orders_of(engine: Engine) -> Orders:
    """The orders of an agent, with what is to be done for each kind."""
    jobs: dict[str, Job] = {
        "approval": Approved(engine),
        "call": Called(engine),
        "callback": Callbacks(engine),
        "notice": Notices(engine),
        "investigation": Unled(engine),
    }
    llm = engine.agent.settings.llm
    if llm is not None:
        from boyd.engine.investigation import Investigated  # an agent without a model does without

        jobs["investigation"] = Investigated(engine, llm)
    return Orders(engine, jobs)
