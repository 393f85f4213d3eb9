"""Boyd: an agent that watches, understands, decides and acts.

These are the names that plugin and agent authors use; everything else is internal.
They are imported when they are first used, so that a command such as `boyd --version` is quick.
"""

import sys

#: As in `typing`, which takes longer to import than all of this.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from boyd.agent import Agent
    from boyd.errors import BoydError, ConfigError, PluginError, Veto
    from boyd.models import (
        ActionResult,
        Anomaly,
        ApprovalItem,
        ApprovalPolicy,
        Autonomy,
        Budget,
        Correlation,
        Decision,
        EffectChecks,
        EffectVerdict,
        EndpointReply,
        EndpointRequest,
        LoopResult,
        Observation,
        ProcedureStep,
        Sandbox,
        Situation,
        SituationAssessment,
        StepAction,
        no_op,
    )
    from boyd.plugin import (
        Action,
        Connector,
        Context,
        Endpoint,
        Observer,
        Orienter,
        Perform,
        Plugin,
        Procedure,
        Secret,
        Strategy,
        Tool,
        action,
        endpoint,
        hook,
        observer,
        orienter,
        strategy,
        tool,
    )
    from boyd.settings.secret_references import SecretProvider

__all__ = [
    "Action",
    "ActionResult",
    "Agent",
    "Anomaly",
    "ApprovalItem",
    "ApprovalPolicy",
    "Autonomy",
    "BoydError",
    "Budget",
    "ConfigError",
    "Connector",
    "Context",
    "Correlation",
    "Decision",
    "EffectChecks",
    "EffectVerdict",
    "Endpoint",
    "EndpointReply",
    "EndpointRequest",
    "LoopResult",
    "Observation",
    "Observer",
    "Orienter",
    "Perform",
    "Plugin",
    "PluginError",
    "Procedure",
    "ProcedureStep",
    "Sandbox",
    "Secret",
    "SecretProvider",
    "Situation",
    "SituationAssessment",
    "StepAction",
    "Strategy",
    "Tool",
    "Veto",
    "action",
    "endpoint",
    "hook",
    "no_op",
    "observer",
    "orienter",
    "strategy",
    "tool",
]

#: Where the names are, the quickest to import first.
_HOMES = (
    "boyd.errors",
    "boyd.models",
    "boyd.plugin",
    "boyd.agent",
    "boyd.settings.secret_references",
)


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name in __all__:
        from importlib import import_module

        for home in _HOMES:
            value = getattr(import_module(home), name, None)
            if value is not None and not isinstance(value, type(sys)):
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
