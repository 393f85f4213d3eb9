"""Every data shape of Boyd: camelCase on the wire, snake_case in Python, one model each."""

from boyd.models.access import SCOPES, Actor, ApiKey, Scope
from boyd.models.action import ActionResult, Autonomy, AutonomyMode, Budget
from boyd.models.approval import (
    ApprovalExecution,
    ApprovalItem,
    ApprovalQueue,
    ApprovalStatus,
    Proposal,
)
from boyd.models.base import (
    LEVELS,
    SEVERITIES,
    Confidence,
    JsonObject,
    Level,
    Model,
    Severity,
    Timestamp,
    explain,
    from_ms,
    utc_now,
)
from boyd.models.catalog import ActionInfo, Catalog, EndpointInfo
from boyd.models.decision import NO_OP, Change, Decision, DecisionTrace, Refusal, no_op
from boyd.models.loop import Event, LoopResult, LoopStatus, Mode, ObserverHealth, Phase, Problem
from boyd.models.observation import Observation, ObservationType
from boyd.models.run import ActionPerformed, Run, RunRequest, RunResult, RunStatus
from boyd.models.situation import Anomaly, Correlation, Situation, SituationAssessment

__all__ = [
    "LEVELS",
    "NO_OP",
    "SCOPES",
    "SEVERITIES",
    "ActionInfo",
    "ActionPerformed",
    "ActionResult",
    "Actor",
    "Anomaly",
    "ApiKey",
    "ApprovalExecution",
    "ApprovalItem",
    "ApprovalQueue",
    "ApprovalStatus",
    "Autonomy",
    "AutonomyMode",
    "Budget",
    "Catalog",
    "Change",
    "Confidence",
    "Correlation",
    "Decision",
    "DecisionTrace",
    "EndpointInfo",
    "Event",
    "JsonObject",
    "Level",
    "LoopResult",
    "LoopStatus",
    "Mode",
    "Model",
    "Observation",
    "ObservationType",
    "ObserverHealth",
    "Phase",
    "Problem",
    "Proposal",
    "Refusal",
    "Run",
    "RunRequest",
    "RunResult",
    "RunStatus",
    "Scope",
    "Severity",
    "Situation",
    "SituationAssessment",
    "Timestamp",
    "explain",
    "from_ms",
    "no_op",
    "utc_now",
]
