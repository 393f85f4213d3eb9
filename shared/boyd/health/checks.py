"""The checks of `boyd doctor`: problems of agents and their queues, from a health snapshot.

`examine` adds those of servers and processes, from `server_checks`; `/metrics` counts the findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from boyd.health.agent_health import AgentHealth
from boyd.health.finding import Finding, error, ok, span, warning
from boyd.health.server_checks import (
    ALMOST_FULL,
    check_approval_keys,
    check_archive,
    check_intakes,
    check_processes,
    check_redis,
    check_traces,
)
from boyd.health.snapshot import HealthSnapshot, Roster
from boyd.settings.model import PARSE_CALLS
from boyd.settings.schedules import Schedule
from boyd.store.fleet import WorkerInfo
from boyd.store.server.scripts import FORMAT
from boyd.text import queues
from boyd.text.formatting import counted

#: The components that need each queue, by agent and the queue's short name.
Needs = Mapping[str, Mapping[str, list[str]]]
SILENCE = "no heartbeat comes, and Redis may refuse to record any"
#: Slots without a tick after which a beat has stalled, and the least seconds of them.
STILL, STILL_AT_LEAST = 2.5, 5.0
#: Seconds by which a start by the schedule may be late.
SCHEDULE_LATE = 60.0
#: Seconds that a step may wait for a worker, or be past its deadline.
LATE = 10.0
#: The longest usual phase, in seconds.
LONG = 600.0
#: Seconds after its deadline within which an approval should expire.
OVERDUE = 60.0
#: Intervals without a new iteration after which an agent is blind, and the least seconds.
BLIND, BLIND_AT_LEAST = 5.0, 60.0
#: Seconds for which lost events are reported.
LOST_EVENTS = 3600.0
#: Seconds for which tool calls in plain text are reported.
TEXT_CALLS = 86400.0


@dataclass(frozen=True)
class UnservedQueue:
    """A queue that an agent needs, or that holds its work, and that no live worker consumes."""

    agent_id: str
    queue: str
    why: str


def examine(health: HealthSnapshot, needs: Needs | None = None) -> list[Finding]:
    """Run all checks; *needs* has the queues that plugins name, of agents with known files."""
    needs = needs or {}
    if may_refuse_writes(health) and not health.roster.live():
        advice = "give Redis room on its disk or in memory, and check again"
        return [*check_redis(health), warning("processes", SILENCE, advice)]
    return [
        *check_redis(health),
        *check_processes(health.roster),
        *check_approval_keys(health.roster.live("worker")),
        *check_intakes(health.roster),
        check_archive(health),
        *check_traces(health),
        *(f for agent in health.agents for f in _check_agent(health, agent, needs)),
        *_check_agent_files(health.roster, needs),
        *_check_stops(health),
    ]


def may_refuse_writes(health: HealthSnapshot) -> bool:
    """Report whether Redis failed to write to its disk, where settings decide, or is full."""
    it = health.server
    return it is not None and not (it.aof_ok and it.rdb_ok and it.fullness < ALMOST_FULL)


def queues_without_worker(
    health: HealthSnapshot, agent: AgentHealth, needs: Mapping[str, list[str]] | None = None
) -> Iterator[UnservedQueue]:
    """Required, named or non-empty queues without a worker; *needs* is from the agent file."""
    served = health.roster.live_queues(agent.entry.id)
    for queue, reason in _reasons(health, agent, needs or {}).items():
        if queue not in served:
            yield UnservedQueue(agent.entry.id, queue, reason)


def _check_agent(health: HealthSnapshot, agent: AgentHealth, needs: Needs) -> Iterator[Finding]:
    """Run all checks of one agent."""
    roster, subject = health.roster, _subject(agent)
    if roster.is_retired(agent.entry.id):
        yield ok(subject, f"retired: {_retirement_text(roster, agent)}")
        return
    workers = roster.live("worker", agent.entry.id)
    if not workers:
        yield _missing_workers(roster, agent)
    problems = [
        *_check_same_file(roster, agent),
        *(_check_queues(health, agent, needs.get(agent.entry.id)) if workers else ()),
        *_check_beat(roster, agent),
        *_check_progress(roster, agent),
        *_check_observing(roster, agent),
        *_check_stored_state(roster, agent),
        *_check_model(roster, agent),
        *_check_approvals(roster, agent),
    ]
    yield from problems
    if workers and not problems:
        yield ok(subject, f"its queues are served by {counted(len(workers), 'worker')}")


def _subject(agent: AgentHealth) -> str:
    return f"agent {agent.entry.id}"


def _retirement_text(roster: Roster, agent: AgentHealth) -> str:
    if agent.entry.retired_at is not None:
        return f"since {agent.entry.retired_at:%Y-%m-%d %H:%M} UTC"
    return f"unused for {_idle_time(roster, agent)}"


def _missing_workers(roster: Roster, agent: AgentHealth) -> Finding:
    name = agent.entry.id
    advice = f"start one with `boyd worker --agent FILE`, or `boyd retire --agent {name}`"
    problem = "no live worker runs it"
    swept = roster.swept.get(name)
    if swept is not None and roster.now - swept > LATE and not roster.live(None, name):
        problem += f"; unused for {_idle_time(roster, agent)}"
    return warning(_subject(agent), problem, advice)


def _idle_time(roster: Roster, agent: AgentHealth) -> str:
    return span(roster.now - roster.swept[agent.entry.id])


def _check_same_file(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that all processes of an agent run the same agent file and plugins."""
    name = agent.entry.id
    by_file: dict[str, list[WorkerInfo]] = {}
    for process in sorted(roster.live(None, name), key=lambda it: (it.started_at, it.name)):
        if name in process.fingerprints:
            by_file.setdefault(process.fingerprints[name], []).append(process)
    if len(by_file) > 1:
        # The last group has the youngest process: in a rolling restart that is the new file.
        groups = sorted(by_file.values(), key=lambda group: group[-1].started_at)
        texts = "; ".join(_group_text(roster, n, group) for n, group in enumerate(groups, 1))
        problem = f"its processes run {len(groups)} different agent files or plugins: {texts}"
        advice = (
            "restart the processes with the old file; if none is old, give all the same file,"
            " plugins and options"
        )
        yield warning(_subject(agent), problem, advice)


def _group_text(roster: Roster, number: int, group: Sequence[WorkerInfo]) -> str:
    """The processes with the same file: the last one started, and the number of others."""
    last, others = group[-1], len(group) - 1
    more = f" and {counted(others, 'other')}" if others else ""
    started = span(max(0.0, roster.now - last.started_at.timestamp()))
    return f"file {number}: {last.role} {last.name} (started {started} ago){more}"


def _check_queues(
    health: HealthSnapshot, agent: AgentHealth, needs: Mapping[str, list[str]] | None
) -> Iterator[Finding]:
    """Report the queues of an agent that no live worker consumes."""
    return map(_queue_finding, queues_without_worker(health, agent, needs))


def _check_beat(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that an agent whose iterations beat starts has a ticking beat."""
    entry = agent.entry
    if not entry.needs_beat:
        return
    beats = roster.live("beat", entry.id)
    if not beats:
        advice = "start one with `boyd beat --agent FILE`: without one no iterations start"
        yield error(_subject(agent), "no live beat runs for it", advice)
    elif agent.stops.paused is None:
        since = max(
            agent.stops.resumed_at or 0.0, min(beat.started_at.timestamp() for beat in beats)
        )
        for problem in (_missing_tick(roster, agent, since), _missing_start(roster, agent, since)):
            if problem is not None:
                advice = "check the log of beat and restart it"
                yield error(_subject(agent), f"beat has stalled: {problem}", advice)


def _missing_tick(roster: Roster, agent: AgentHealth, since: float) -> str | None:
    """The tick that is overdue, if one has been due *since* that time."""
    interval = agent.entry.loop_interval
    silence = roster.now - max(agent.beat.slot or 0.0, since)
    if agent.entry.mode != "continuous" or silence <= max(STILL * interval, STILL_AT_LEAST):
        return None
    return f"no tick for {span(silence)}, although one is due every {span(interval)}"


def _missing_start(roster: Roster, agent: AgentHealth, since: float) -> str | None:
    """The start by the schedule that is overdue, if one has been due *since* that time."""
    entry = agent.entry
    if not entry.schedule:
        return None
    latest = datetime.fromtimestamp(roster.now - SCHEDULE_LATE, UTC)
    due = Schedule(tuple(entry.schedule), entry.timezone).last(latest).timestamp()
    if due <= max(agent.beat.scheduled or 0.0, since):
        return None
    return f"the start by the schedule {span(roster.now - due)} ago is missing"


def _check_progress(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that running work makes progress."""
    subject, now, progress = _subject(agent), roster.now, agent.progress
    if progress.deadline is not None and now - progress.deadline > LATE:
        silence = span(now - progress.deadline)
        problem = f"{_current_step(agent)} has stalled: no process has handled it for {silence}"
        yield error(subject, problem, "start a worker for it; it resumes where it stopped")
    elif progress.flight is not None and progress.flight.is_stuck(now):
        problem = f"{_current_step(agent)} has stalled: no process will pick it up"
        advice = f"check the logs of its workers; `boyd abandon --agent {agent.entry.id}` ends it"
        yield error(subject, problem, advice)
    else:
        yield from _check_pace(roster, agent)


def _check_pace(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that no step waits long for a busy worker, and no phase takes long."""
    subject, now, progress = _subject(agent), roster.now, agent.progress
    late = [step for step in agent.backlog.waiting if now - step.since > LATE]
    served = [step for step in late if step.queue in roster.live_queues(agent.entry.id)]
    if served:
        oldest = min(served, key=lambda step: step.since)
        waited = span(now - oldest.since)
        problem = f"{oldest.what} has been waiting for {waited} in queue {oldest.queue!r}"
        advice = "its workers are busy: start another one, or check whether they hang"
        yield warning(subject, problem, advice)
    if progress.phase_since is not None and now - progress.phase_since > LONG and not late:
        where = f" on {progress.worker}" if progress.worker else ""
        duration = span(now - progress.phase_since)
        problem = f"{_current_step(agent)} has been running for {duration}{where}"
        advice = "check the log of its worker, unless it is expected to take that long"
        yield warning(subject, problem, advice)


def _check_observing(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that a continuous agent keeps observing."""
    silence = seconds_blind(roster, agent)
    if silence is not None and roster.live("beat", agent.entry.id):
        problem = f"it has made no observations for {span(silence)}: {_current_step(agent)}"
        advice = f"check what it is waiting for; `boyd abandon --agent {agent.entry.id}` ends it"
        yield warning(_subject(agent), problem, advice)


def seconds_blind(roster: Roster, agent: AgentHealth) -> float | None:
    """Seconds since a continuous agent has observed; None unless it should have done so since.

    It need not have done so while it was paused.
    """
    entry, observed = agent.entry, agent.progress.observed
    if entry.mode != "continuous" or agent.stops.paused is not None or observed is None:
        return None
    due_for = roster.now - max(observed, agent.stops.resumed_at or 0.0)
    is_blind = due_for > max(BLIND * entry.loop_interval, BLIND_AT_LEAST)
    return roster.now - observed if is_blind else None


def _check_stored_state(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that Redis accepts the agent's events, and that this release can read its state."""
    subject, state = _subject(agent), agent.state
    if state.events_lost is not None and roster.now - state.events_lost < LOST_EVENTS:
        age = span(max(0.0, roster.now - state.events_lost))
        problem = f"an event could not be written {age} ago: {state.events_error}"
        yield warning(subject, problem, "allow XADD for the Redis user")
    if state.format > FORMAT:
        problem = (
            f"a newer release keeps it in format {state.format}; this one reads up to {FORMAT}"
        )
        yield warning(subject, problem, "upgrade all processes, or keep the newer ones running")


def _check_model(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that the model server parses tool calls."""
    at = agent.totals.model.spoken_at
    if at is not None and roster.now - at < TEXT_CALLS:
        age = span(max(0.0, roster.now - at))
        problem = f"its model server returned a tool call as plain text {age} ago"
        yield warning(_subject(agent), problem, PARSE_CALLS)


def _current_step(agent: AgentHealth) -> str:
    if agent.progress.phase == "idle":
        return "an approved action, a call or a callback"
    return f"iteration {agent.progress.iterations} in phase {agent.progress.phase}"


def _check_approvals(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that expired approvals are moved to the history."""
    backlog = agent.backlog
    if backlog.next_deadline is None or roster.now - backlog.next_deadline <= OVERDUE:
        return
    late = span(roster.now - backlog.next_deadline)
    problem = f"{counted(backlog.expired, 'approval')} still pending {late} after the deadline"
    yield warning(_subject(agent), problem, "start a worker or beat for it: both expire approvals")


def _check_agent_files(roster: Roster, needs: Needs) -> Iterator[Finding]:
    """Report the agents of known files that have never been started, and the queues they need."""
    for name in (name for name in needs if name not in roster.agents):
        problem = "it has never been started against this Redis"
        yield warning(f"agent {name}", problem, "start it with `boyd worker --agent FILE`")
        served = roster.live_queues(name)
        for queue, parts in needs[name].items():
            if queue not in served:
                yield _queue_finding(UnservedQueue(name, queue, _need_text(parts)))


def _check_stops(health: HealthSnapshot) -> Iterator[Finding]:
    """Name what somebody has stopped on purpose, so that nobody looks for it elsewhere."""
    if health.frozen is not None:
        problem = f"actions of all agents are frozen: {health.frozen}"
        yield warning("freeze", problem, "boyd unfreeze --all")
    for agent in health.agents:
        subject, option, stops = _subject(agent), f"--agent {agent.entry.id}", agent.stops
        if stops.frozen not in (None, health.frozen):
            yield warning(subject, f"frozen: {stops.frozen}", f"boyd unfreeze {option}")
        if stops.revoked is not None:
            yield warning(subject, f"revoked: {stops.revoked}", f"boyd restore {option}")
        if stops.paused is not None:
            yield warning(subject, f"paused: {stops.paused}", f"boyd resume {option}")


def _reasons(
    health: HealthSnapshot, agent: AgentHealth, needs: Mapping[str, list[str]]
) -> dict[str, str]:
    """The queues that an agent needs or that hold its work, with the reasons."""
    parts_of = agent.parts_by_queue  # by the catalogue
    for queue, parts in needs.items():
        parts_of[queue] = list(dict.fromkeys([*parts, *parts_of.get(queue, ())]))
    reasons = dict.fromkeys((queues.LOOP, queues.OBSERVE, queues.ACT), "")
    if agent.entry.model:
        reasons[queues.THINK] = ", which sends its model requests"
    reasons |= {queue: _need_text(parts) for queue, parts in parts_of.items()}
    for queue, since in agent.oldest.items():
        waited = span(health.roster.now - since)
        reasons[queue] = f"{reasons.get(queue, '')}; work has been waiting for {waited}"
    for (name, queue), number in (health.messages or {}).items():
        # A lost host leaves its queue behind; its observations time out.
        if name == agent.entry.id and number and not queue.startswith(f"{queues.HOST}."):
            reasons.setdefault(queue, f", which holds {counted(number, 'message')}")
    return reasons


def _need_text(parts: Iterable[str]) -> str:
    return f", needed by {', '.join(parts)}"


def _queue_finding(missing: UnservedQueue) -> Finding:
    problem = f"no live worker consumes queue {missing.queue!r}{missing.why}"
    advice = f"start one with `boyd worker --agent FILE -Q {missing.queue}`"
    return error(f"agent {missing.agent_id}", problem, advice)
