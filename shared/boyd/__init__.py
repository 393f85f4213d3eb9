"""Boyd: an agent that watches, understands, decides and acts.

These are the names that plugin and agent authors use; everything else is internal.
"""

from boyd.agent import Agent
from boyd.errors import BoydError, ConfigError, PluginError, Veto
from boyd.models import (
    ActionResult,
    Anomaly,
    Autonomy,
    Budget,
    Correlation,
    Decision,
    LoopResult,
    Observation,
    Situation,
    SituationAssessment,
    no_op,
)
from boyd.plugin import (
    Action,
    Context,
    Observer,
    Orienter,
    Plugin,
    Strategy,
    action,
    hook,
    observer,
    orienter,
    strategy,
)

__all__ = [
    "Action",
    "ActionResult",
    "Agent",
    "Anomaly",
    "Autonomy",
    "BoydError",
    "Budget",
    "ConfigError",
    "Context",
    "Correlation",
    "Decision",
    "LoopResult",
    "Observation",
    "Observer",
    "Orienter",
    "Plugin",
    "PluginError",
    "Situation",
    "SituationAssessment",
    "Strategy",
    "Veto",
    "action",
    "hook",
    "no_op",
    "observer",
    "orienter",
    "strategy",
]
