"""Joins the phases and the store: one step is enter, run the phase, leave, say what comes next."""

from boyd.engine.courier import Courier, UnitHint
from boyd.engine.engine import Engine, EngineSettings
from boyd.engine.executions import Executions
from boyd.engine.launch import Launcher
from boyd.engine.leases import Leases
from boyd.engine.resolve import Resolver
from boyd.engine.sweeper import Sweeper

__all__ = [
    "Courier",
    "Engine",
    "EngineSettings",
    "Executions",
    "Launcher",
    "Leases",
    "Resolver",
    "Sweeper",
    "UnitHint",
]
