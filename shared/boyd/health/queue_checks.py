"""Checks of the queues: each that an agent needs has a live worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from boyd.health.agent_health import AgentHealth
from boyd.health.finding import Finding, error, span, warning
from boyd.health.snapshot import HealthSnapshot, Roster
from boyd.text import queues
from boyd.text.formatting import counted

#: The components that need each queue, by agent and the queue's short name.
Needs = Mapping[str, Mapping[str, list[str]]]


@dataclass(frozen=True)
class UnservedQueue:
    """A queue that an agent needs, or that holds its work, and that no live worker consumes."""

    agent_id: str
    queue: str
    why: str


def check_queues(
    health: HealthSnapshot, agent: AgentHealth, needs: Mapping[str, list[str]] | None
) -> Iterator[Finding]:
    """Report the queues of an agent that no live worker consumes."""
    return map(_finding, queues_without_worker(health, agent, needs))


def check_agent_files(roster: Roster, needs: Needs) -> Iterator[Finding]:
    """Report the agents of known files that have never been started, and the queues they need."""
    for name in (name for name in needs if name not in roster.agents):
        problem = "it has never been started against this Redis"
        yield warning(f"agent {name}", problem, "start it with `boyd worker --agent FILE`")
        served = roster.live_queues(name)
        for queue, parts in needs[name].items():
            if queue not in served:
                yield _finding(UnservedQueue(name, queue, _need_text(parts)))


def queues_without_worker(
    health: HealthSnapshot, agent: AgentHealth, needs: Mapping[str, list[str]] | None = None
) -> Iterator[UnservedQueue]:
    """Required, named or non-empty queues without a worker; *needs* is from the agent file."""
    served = health.roster.live_queues(agent.entry.id)
    for queue, reason in _reasons(health, agent, needs or {}).items():
        if queue not in served:
            yield UnservedQueue(agent.entry.id, queue, reason)


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


def _finding(missing: UnservedQueue) -> Finding:
    problem = f"no live worker consumes queue {missing.queue!r}{missing.why}"
    advice = f"start one with `boyd worker --agent FILE -Q {missing.queue}`"
    return error(f"agent {missing.agent_id}", problem, advice)
