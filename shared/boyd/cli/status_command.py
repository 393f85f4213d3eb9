"""`boyd status`: the current state of agents and workers, or with `--watch` live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from boyd.cli import completion, output
from boyd.cli.api_access import Api
from boyd.cli.event_commands import event_line, is_repeated
from boyd.cli.options import deployment_api_options, not_empty
from boyd.cli.output import command_name
from boyd.cli.tables import label, sentence, whole
from boyd.cli.waiting import EventFollower
from boyd.errors import UnknownAgent
from boyd.formatting import counted
from boyd.models import Event, LoopResult, LoopStatus
from boyd.models.responses import (
    AgentList,
    AgentState,
    ObserverList,
    ObserverState,
    StateResponse,
    WorkerInfo,
    WorkerList,
)

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

OBSERVED = (
    whole("observer"),
    label("health", least=17),
    whole("last success"),
    sentence("last error"),
)
WORKERS = (
    *(whole("role"), whole("name"), whole("started", drop=3), label("agents", drop=1)),
    *(sentence("queues", drop=2), sentence("health", least=8)),
)
#: The indent of texts about an agent.
_INDENT = 13


@click.command()
@click.option(
    "--agent",
    callback=not_empty,
    shell_complete=completion.completer(completion.agents),
    help="Only this agent.",
)
@click.option("--watch", is_flag=True, help="Keep running and show events until Ctrl-C.")
@output.output_option
@deployment_api_options
def status(api: Callable[[str | None], Api], agent: str | None, watch: bool, form: str) -> None:
    """Show the current state of agents.

    Phase, pending work, health of observers, live workers.
    """
    opened = api(agent)
    known = opened.deployment.get("/agents", AgentList)
    chosen = _choose(known.agents, opened.agent.agent)
    if watch:
        _watch(opened, [one.id for one in chosen], form)
    else:
        _show(_look(opened, [one.id for one in chosen]), form)


def _choose(known: list[AgentState], name: str | None) -> list[AgentState]:
    chosen = [one for one in known if name in (None, one.id)]
    if not known:
        raise UnknownAgent("no agent has been started yet, or the key may not see any")
    if not chosen:
        names = ", ".join(one.id for one in known)
        raise UnknownAgent(f"no agent {name!r}; known: {names}")
    return chosen


@dataclass(frozen=True)
class _Agent:
    entry: AgentState
    status: LoopStatus
    observers: list[ObserverState]
    last: LoopResult | None


@dataclass(frozen=True)
class _Everything:
    now: datetime
    frozen: str | None
    agents: list[_Agent]
    workers: list[WorkerInfo]


def _look(api: Api, ids: list[str]) -> _Everything:
    known = api.deployment.get("/agents", AgentList)
    workers = api.deployment.get("/workers", WorkerList).workers
    agents = [_look_at(api, entry) for entry in known.agents if entry.id in ids]
    serving = [worker for worker in workers if set(ids).intersection(worker.agents)]
    return _Everything(api.deployment.now(), known.frozen, agents, serving)


def _look_at(api: Api, entry: AgentState) -> _Agent:
    client = api.deployment.of(entry.id)
    return _Agent(
        entry,
        client.get("/loop/status", LoopStatus),
        client.get("/observers", ObserverList).observers,
        client.get("/state", StateResponse).history.last_loop,
    )


def _show(seen: _Everything, form: str) -> None:
    if output.print_data(form, _document(seen)):
        return
    if seen.frozen is not None:
        output.say(f"Actions of all agents are frozen: {seen.frozen}\n")
    for agent in seen.agents:
        _show_agent(agent, seen.now)
        output.say()
    _show_workers(seen)


def _document(seen: _Everything) -> dict[str, Any]:
    agents = [
        {
            **agent.status.to_wire(),
            "name": agent.entry.name,
            "mode": agent.entry.mode,
            "loopInterval": agent.entry.loop_interval,
            "observers": {one.id: one for one in agent.observers},
        }
        for agent in seen.agents
    ]
    return {"frozen": seen.frozen, "agents": agents, "workers": seen.workers}


def _show_agent(agent: _Agent, now: datetime) -> None:
    entry, state = agent.entry, agent.status
    named = f" ({entry.name})" if entry.name != entry.id else ""
    output.say(f"{entry.id}{named}: {_doing(state)}")
    output.print_pairs(
        [
            ("mode", mode_text(entry)),
            ("iteration", str(state.iteration)),
            ("since", _since(agent, now)),
            ("worker", state.worker or ""),
            ("paused", state.paused or ""),
            ("frozen", state.frozen or ""),
            ("waiting", waiting_text(state)),
            ("last", _last(agent)),
        ]
    )
    _show_observers(agent, now)


def _last(agent: _Agent) -> str:
    if agent.last is None:
        return "no iteration yet"
    return output.iteration_line(agent.last, output.width() - _INDENT)


def _doing(state: LoopStatus) -> str:
    if state.phase == "idle":
        return "paused" if state.paused is not None else "idle"
    waits = "" if state.worker else ", waits for a worker"
    return f"{state.phase}{waits}"


def mode_text(entry: AgentState) -> str:
    """An agent's mode, with its interval if it has one."""
    every = f", every {output.seconds(entry.loop_interval)}" if entry.mode == "continuous" else ""
    return f"{entry.mode}{every}"


def waiting_text(state: LoopStatus | AgentState) -> str:
    """The number of pending runs and approvals; empty without any."""
    parts = [
        counted(state.pending_runs, "run") if state.pending_runs else "",
        counted(state.pending_approvals, "approval") if state.pending_approvals else "",
    ]
    return ", ".join(filter(None, parts))


def _since(agent: _Agent, now: datetime) -> str:
    moment = agent.status.start_time or (agent.last.ended_at if agent.last else None)
    return f"{output.date(moment)} ({output.age(moment, now)})" if moment else ""


def _show_observers(agent: _Agent, now: datetime) -> None:
    if not agent.observers:
        return
    output.say()
    rows = [_observer_row(observer, now) for observer in agent.observers]
    output.print_table(OBSERVED, rows, indent=2)


def _observer_row(observer: ObserverState, now: datetime) -> list[str]:
    return [observer.id, *observer_cells(observer, now)]


def observer_cells(observer: ObserverState, now: datetime) -> list[str]:
    """The state of an observer, its last success and its last error."""
    never = observer.last_success_at is None and not observer.failures
    state = "not run yet" if never else "ok"
    if observer.failures:
        state = f"failed {counted(observer.failures, 'time')} in a row"
    if observer.backoff_until and observer.backoff_until > now:
        left = int((observer.backoff_until - now).total_seconds())
        state += f", backs off {output.seconds(left)}"
    return [state, output.short_age(observer.last_success_at, now), observer.last_error or ""]


def _show_workers(seen: _Everything) -> None:
    if not seen.workers:
        boyd = command_name()
        output.say(f"No worker is alive. Start one with `{boyd} worker`, or all with `{boyd} up`.")
        return
    rows = [
        [
            *(worker.role, worker.name, output.short_age(worker.started_at, seen.now)),
            *(", ".join(worker.agents), ", ".join(worker.queues), worker.problem or "ok"),
        ]
        for worker in sorted(seen.workers, key=lambda worker: (worker.role, worker.name))
    ]
    output.print_table(WORKERS, rows)


def _watch(api: Api, ids: list[str], form: str) -> None:
    follower = EventFollower(api.deployment, ids)
    try:
        if form != "table":
            _watch_items(follower, form)
        else:
            _show(_look(api, ids), form)
            show = _watch_live if output.is_terminal() else _watch_lines
            show(follower)
    except KeyboardInterrupt:
        return


def _watch_items(follower: EventFollower, form: str) -> None:
    while True:
        for agent_id, event in follower.wait():
            output.print_item(form, {"agentId": agent_id, **event.to_wire()})


def _watch_lines(follower: EventFollower) -> None:
    output.say()
    while True:
        for agent_id, event in follower.wait():
            if not is_repeated(event):
                output.say(event_line(follower, agent_id, event))


def _watch_live(follower: EventFollower) -> None:
    """Print finished events, and below them a line for each running iteration."""
    flight: dict[str, tuple[str, float]] = {}
    with _live(flight) as live:
        while True:
            for agent_id, event in follower.wait():
                if not is_repeated(event):
                    _show_live(live, flight, follower, agent_id, event)


@contextmanager
def _live(flight: dict[str, tuple[str, float]]) -> Iterator[Live]:
    from rich.live import Live
    from rich.text import Text

    def below() -> Text:
        now = time.monotonic()
        lines = [f"{what}  {now - since:.1f} s" for what, since in list(flight.values())]
        return Text("\n".join(lines) or "Waiting for events; Ctrl-C quits.", "dim")

    with Live(console=output.console(), get_renderable=below, transient=True) as live:
        yield live


def _show_live(
    live: Live,
    flight: dict[str, tuple[str, float]],
    follower: EventFollower,
    agent_id: str,
    event: Event,
) -> None:
    from rich.text import Text

    line = event_line(follower, agent_id, event, live.console.width)
    if event.kind in ("iteration.started", "phase"):
        flight[agent_id] = (line, time.monotonic())
        return
    if event.kind.startswith("iteration."):
        flight.pop(agent_id, None)
    live.console.print(_paint(Text(line), event))


def _paint(line: Text, event: Event) -> Text:
    if event.kind == "iteration.failed":
        line.stylize("red")
    elif event.kind.startswith("approval."):
        line.stylize("yellow")
    return line
