"""The condition of an agent in one word: what matters most about it, and since when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from boyd.health.agent_health import AgentHealth, Backlog
from boyd.health.agent_replies import StoppedProcedure
from boyd.health.checks import seconds_blind
from boyd.health.finding import span
from boyd.health.snapshot import Roster
from boyd.models import Hold, ProcedureRecord, from_ms
from boyd.models.effect import HARM
from boyd.models.responses import CONDITIONS, AgentCondition, ConditionName
from boyd.text.formatting import call_text, counted


def condition_of(roster: Roster, agent: AgentHealth) -> AgentCondition:
    """The condition of *agent*: the first one of `CONDITIONS` that applies.

    An agent that nothing watches comes first, as all else that is known of it is then old.
    """
    conditions = (_CONDITIONS[name](roster, agent) for name in CONDITIONS)
    return next(condition for condition in conditions if condition is not None)


def _retirement(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    at = agent.entry.retired_at
    return AgentCondition(name="retired", since=at) if at is not None else None


def _blindness(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    entry = agent.entry
    if agent.stops.paused is not None:
        return None
    observed = agent.progress.observed
    since = from_ms(observed * 1000) if observed is not None else None
    obstacle = entry.obstacle(roster.live())
    if obstacle is not None:
        return AgentCondition(
            name="not watching", reason=obstacle.text, command=obstacle.command, since=since
        )
    silence = seconds_blind(roster, agent)
    if silence is not None:
        reason = f"it has made no observations for {span(silence)}"
        return AgentCondition(name="not watching", reason=reason, since=since)
    failing = [name for name, health in agent.observers.items() if health.failures]
    if failing and len(failing) == len(entry.catalog.observers):
        name = failing[0]
        reason = f"all observers fail: {name}: {agent.observers[name].last_error or 'no reason'}"
        successes = [health.last_success_at for health in agent.observers.values()]
        latest = max((at for at in successes if at is not None), default=None)
        return AgentCondition(name="not watching", reason=reason, since=latest)
    return None


def _demand(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    first = agent.backlog.next_approval
    stop = stop_text(agent.backlog.first_stopped, agent.backlog.stopped - 1)
    demands = [*filter(None, [_question_text(agent.backlog), stop])]
    if not demands:
        return None
    return AgentCondition(
        name="waits for you",
        reason="; ".join([*demands, *_attempts(agent)]),
        approval=first.id if first else None,
        since=_since(agent) or _stop_time(agent.backlog),
    )


def _question_text(backlog: Backlog) -> str:
    """Describe the pending approvals in one line; empty without any."""
    approvals, first = backlog.approvals, backlog.next_approval
    if first is not None:
        more = f" and {counted(approvals - 1, 'other')} wait" if approvals > 1 else " waits"
        return f"{call_text(first.title, first.target)}{more} for an answer"
    return f"{counted(approvals, 'approval')} to answer" if approvals else ""


def stop_text(first: StoppedProcedure | ProcedureRecord | None, more: int) -> str:
    """Describe a stopped procedure, and how many *more* there are, in one line; empty without."""
    if first is None:
        return ""
    others = f" (and {counted(more, 'other')})" if more > 0 else ""
    reason = f": {first.reason}" if first.reason else ""
    return f"{call_text(first.action, first.target)} is stopped{others}{reason}"


def _stop_time(backlog: Backlog) -> datetime | None:
    return from_ms(backlog.first_stopped.since * 1000) if backlog.first_stopped else None


def _harm(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    holds = [hold for hold in agent.trouble.holds if hold.kind in HARM]
    if not holds:
        return None
    latest = max(holds, key=_since_when)
    reason = f"{latest.brief}{f': {latest.evidence}' if latest.evidence else ''}"
    return AgentCondition(name="made worse", reason=reason, since=latest.since)


def _incident(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    trouble = agent.trouble
    if not trouble.anomalies or trouble.in_flight:
        return None
    reason = "; ".join([*_attempts(agent), "nothing is being done"])
    return AgentCondition(name="open incident", reason=reason, since=_since(agent))


def _work(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    in_flight = agent.trouble.in_flight
    if not in_flight and agent.progress.phase != "act":
        return None
    reason = "1 action in flight"
    if in_flight:
        (action, target), *others = in_flight
        more = f" and {counted(len(others), 'other action')}" if others else ""
        reason = f"{call_text(action, target)}{more} in flight"
    return AgentCondition(name="at work", reason=reason, since=_since(agent))


def _pause(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    reason = agent.stops.paused
    return AgentCondition(name="paused", reason=reason) if reason is not None else None


def _calm(roster: Roster, agent: AgentHealth) -> AgentCondition | None:
    return AgentCondition(name="quiet")


def _attempts(agent: AgentHealth) -> list[str]:
    """The fate of the latest held action on a target with an anomaly; empty without one."""
    troubled = {anomaly.resource for anomaly in agent.trouble.anomalies}
    holds = [
        hold
        for hold in agent.trouble.holds
        if (hold.target in troubled or not hold.target) and not hold.in_flight
    ]
    return [max(holds, key=_since_when).brief] if troubled and holds else []


def _since_when(hold: Hold) -> datetime:
    return hold.since


def _since(agent: AgentHealth) -> datetime | None:
    anomalies = agent.trouble.anomalies
    return anomalies[0].since if anomalies else None


_CONDITIONS: dict[ConditionName, Callable[[Roster, AgentHealth], AgentCondition | None]] = {
    "retired": _retirement,
    "not watching": _blindness,
    "waits for you": _demand,
    "made worse": _harm,
    "open incident": _incident,
    "at work": _work,
    "paused": _pause,
    "quiet": _calm,
}
