"""`boyd status|observers|events`: the state of agents and workers, and what happens to them."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import datetime
from typing import Any

import click

from boyd.errors import UnknownAgent
from boyd.models import Event, LoopStatus, responses
from boyd.text.formatting import counted
from boyd_cli import completion, output
from boyd_cli.api_access import Api
from boyd_cli.options import (
    api_options,
    data_options,
    deployment_api_options,
    duration_option,
    lines_option,
    not_empty,
    output_option,
)
from boyd_cli.output import label, sentence, whole
from boyd_cli.terminal import EventFollower
from boyd_cli.views import event_view, iteration_view

OBSERVED = (
    *(whole("observer"), label("health", least=17)),
    *(whole("last success"), sentence("last error")),
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
@output_option
@deployment_api_options
def status(api: Api, watch: bool, form: str) -> None:
    """Show the current state of agents.

    Phase, pending work, health of observers, live workers.
    """
    ids = [entry.id for entry in api.deployment.get("/agents", responses.AgentList).agents]
    name = api.agent.agent
    if not ids:
        raise UnknownAgent("no agent has been started yet, or the key may not see any")
    if name is not None and name not in ids:
        raise UnknownAgent(f"no agent {name!r}; known: {', '.join(ids)}")
    chosen = ids if name is None else [name]
    if watch:
        _watch(api, chosen, form)
    else:
        _show(_Everything(api, chosen), form)


class _Agent:
    """The state of one agent."""

    def __init__(self, api: Api, entry: responses.AgentState) -> None:
        client = api.deployment.of(entry.id)
        self.entry = entry
        self.status = client.get("/loop/status", LoopStatus)
        self.observers = client.get("/observers", responses.ObserverList).observers
        self.last = client.get("/state", responses.StateResponse).history.last_loop

    def to_wire(self) -> dict[str, Any]:
        return {
            **self.status.to_wire(),
            "name": self.entry.name,
            "mode": self.entry.mode,
            "loopInterval": self.entry.loop_interval,
            "schedule": self.entry.schedule,
            "timezone": self.entry.timezone,
            "nextStart": self.entry.to_wire().get("nextStart"),
            "obstacle": self.entry.obstacle,
            "observers": {observer.id: observer for observer in self.observers},
        }


class _Everything:
    """The state of several agents, and of the workers that run them."""

    def __init__(self, api: Api, ids: list[str]) -> None:
        listing = api.deployment.get("/agents", responses.AgentList)
        workers = api.deployment.get("/workers", responses.WorkerList).workers
        self.frozen = listing.frozen
        self.agents = [_Agent(api, entry) for entry in listing.agents if entry.id in ids]
        self.workers = [worker for worker in workers if set(ids).intersection(worker.agents)]
        self.now = api.deployment.now()


def _show(everything: _Everything, form: str) -> None:
    agents = [agent.to_wire() for agent in everything.agents]
    document = {"frozen": everything.frozen, "agents": agents, "workers": everything.workers}
    if output.print_data(form, document):
        return
    if everything.frozen is not None:
        output.say(f"Actions of all agents are frozen: {output.one_line(everything.frozen)}\n")
    for agent in everything.agents:
        _show_agent(agent, everything.now)
        output.say()
    _show_workers(everything)


def _show_agent(agent: _Agent, now: datetime) -> None:
    entry, state = agent.entry, agent.status
    title = f" ({output.one_line(entry.name)})" if entry.name != entry.id else ""
    output.say(f"{entry.id}{title}: {condition_text(entry)}; {_doing(state)}")
    since = state.start_time or (agent.last.ended_at if agent.last else None)
    last = "no iteration yet"
    if agent.last is not None:
        last = iteration_view.iteration_line(agent.last, output.width() - _INDENT)
    output.print_pairs(
        ("problem", problem_text(entry, now)),
        ("mode", mode_text(entry)),
        ("next start", next_text(entry, now)),
        ("iteration", str(state.iteration)),
        ("since", f"{output.date(since)} ({output.age(since, now)})" if since else ""),
        ("worker", state.worker or ""),
        ("paused", state.paused or ""),
        ("frozen", state.frozen or ""),
        ("revoked", state.revoked or ""),
        ("waiting", waiting_text(state)),
        ("last", last),
    )
    if agent.observers:
        output.say()
        rows = [observer_row(observer, now) for observer in agent.observers]
        output.print_table(OBSERVED, rows, indent=2)


def condition_text(entry: responses.AgentState) -> str:
    """An agent's condition, and what else keeps it from acting."""
    stops = {"paused": entry.paused, "frozen": entry.frozen, "revoked": entry.revoked}
    words = [entry.condition.name, *(name for name, reason in stops.items() if reason is not None)]
    return ", ".join(dict.fromkeys(words))


def problem_text(entry: responses.AgentState, now: datetime) -> str:
    """The worst of an agent's open anomalies, and the reason of its condition; may be empty.

    An agent that does not watch begins with that: what it saw last may be over.
    """
    is_blind = entry.condition.name == "not watching"
    parts = [entry.condition.reason] if is_blind else []
    if entry.anomalies:
        worst, more = entry.anomalies[0], entry.open_anomalies - 1
        parts.append(f"{worst.severity}: {worst.description}{f' (and {more} more)' * bool(more)}")
        keeper = worst.keeper(now)
        parts.append(f"{keeper.by} has it" if keeper else "")
    parts += [] if is_blind else [entry.condition.reason]
    return "; ".join(filter(None, parts))


def _doing(state: LoopStatus) -> str:
    if state.phase == "idle":
        return "idle"
    waits = "" if state.worker else ", waits for a worker"
    return f"{state.phase}{waits}"


def mode_text(entry: responses.AgentState) -> str:
    """An agent's mode, with its interval and schedule if it has them."""
    every = f", every {output.seconds(entry.loop_interval)}" if entry.mode == "continuous" else ""
    zone = f" ({entry.timezone})" if entry.schedule else ""
    return f"{entry.mode}{every}{''.join(f', at {cron}' for cron in entry.schedule)}{zone}"


def next_text(entry: responses.AgentState, now: datetime) -> str:
    """The next start by the schedule; empty without one."""
    at = entry.next_start
    if at is None or not entry.schedule:
        return ""
    return f"{output.date(at)} (in {output.seconds(round((at - now).total_seconds()))})"


def waiting_text(state: LoopStatus | responses.AgentState) -> str:
    """The number of pending runs, pending approvals and stopped procedures; empty without any."""
    parts = [
        counted(state.pending_runs, "run") if state.pending_runs else "",
        counted(state.pending_approvals, "approval") if state.pending_approvals else "",
        counted(state.stopped_procedures, "procedure") if state.stopped_procedures else "",
    ]
    return ", ".join(filter(None, parts))


def observer_row(observer: responses.ObserverState, now: datetime) -> list[str]:
    """An observer below `OBSERVED`."""
    never = observer.last_success_at is None and not observer.failures
    state = "not run yet" if never else "ok"
    if observer.failures:
        state = f"failed {counted(observer.failures, 'time')} in a row"
    if observer.backoff_until and observer.backoff_until > now:
        left = int((observer.backoff_until - now).total_seconds())
        state += f", backs off {output.seconds(left)}"
    age = output.short_age(observer.last_success_at, now)
    return [observer.id, state, age, observer.last_error or ""]


@click.command()
@data_options
def observers(api: Api, form: str) -> None:
    """List an agent's observers with their health."""
    listing = api.agent.get("/observers", responses.ObserverList)
    rows = [observer_row(observer, api.agent.now()) for observer in listing.observers]
    output.print_list(form, listing.observers, OBSERVED, rows, "The agent has no observers.")


def _show_workers(everything: _Everything) -> None:
    if not everything.workers:
        boyd = output.command_name()
        output.say(f"No worker is alive. Start one with `{boyd} worker`, or all with `{boyd} up`.")
        return
    rows = [
        [
            *(worker.role, worker.name, output.short_age(worker.started_at, everything.now)),
            *(", ".join(worker.agents), ", ".join(worker.queues), worker.problem or "ok"),
        ]
        for worker in sorted(everything.workers, key=lambda worker: (worker.role, worker.name))
    ]
    output.print_table(WORKERS, rows)


def _watch(api: Api, ids: list[str], form: str) -> None:
    follower = EventFollower(api.deployment, ids)
    try:
        if form != "table":
            for agent_id, event in follower.endlessly():
                output.print_item(form, {"agentId": agent_id, **event.to_wire()})
        else:
            _show(_Everything(api, ids), form)
            show = _watch_live if output.is_terminal() else _watch_lines
            show(follower)
    except KeyboardInterrupt:
        return


def _watch_lines(follower: EventFollower) -> None:
    output.say()
    for agent_id, event in follower.endlessly():
        if not is_repeated(event):
            output.say(event_line(follower, agent_id, event))


def _watch_live(follower: EventFollower) -> None:
    """Print finished events, and below them a line for each running iteration."""
    from rich.live import Live
    from rich.text import Text

    flight: dict[str, tuple[str, float]] = {}

    def below() -> Text:
        now = time.monotonic()
        lines = [f"{text}  {now - since:.1f} s" for text, since in list(flight.values())]
        return Text("\n".join(lines) or "Waiting for events; Ctrl-C quits.", "dim")

    with Live(console=output.console(), get_renderable=below, transient=True) as live:
        for agent_id, event in follower.endlessly():
            line = event_line(follower, agent_id, event, live.console.width)
            if event.kind in ("iteration.started", "phase"):
                flight[agent_id] = (line, time.monotonic())
            elif not is_repeated(event):
                if event.kind.startswith("iteration."):
                    flight.pop(agent_id, None)
                colour = "yellow" if event.kind.startswith("approval.") else ""
                style = "red" if event.kind == "iteration.failed" else colour
                live.console.print(Text(line, style))


_HOUR = 3600.0


def is_repeated(event: Event) -> bool:
    """Match events of a pending approval that was merely proposed again."""
    return event.kind == "approval.seen"


def event_line(
    follower: EventFollower, agent_id: str, event: Event, width: int | None = None
) -> str:
    """An event as one line; the end of an iteration shows its outcome."""
    if event.kind in ("iteration.completed", "iteration.failed"):
        result = follower.result(agent_id, event_view.iteration_of(event))
        if result is not None:
            return iteration_view.iteration_line(result, width or output.width())
    return event_view.plain_line(agent_id, event)


@click.command()
@duration_option(
    "--since", help="Start this long ago, as in 10m; default: 1h, or now with --follow."
)
@click.option("--follow", is_flag=True, help="Keep following until Ctrl-C.")
@lines_option
@api_options
def events(api: Api, since: float | None, follow: bool, form: str) -> None:
    """Show the events of an agent, newest last."""
    agent_id = api.agent_id
    follower = EventFollower(api.deployment, [agent_id]) if follow else None
    last_id = ""
    if since is not None or not follow:
        begin = int(
            (api.deployment.read_clock().timestamp() - (_HOUR if since is None else since)) * 1000
        )
        with closing(api.agent.events(f"{max(0, begin)}-0", follow=False)) as past:
            for event in [event for event in past if event.kind != "missed"]:
                last_id = event.id
                _print(agent_id, event, form)
    try:
        for _, event in follower.endlessly() if follower else ():
            if event.kind == "missed" or _position(event.id) > _position(last_id):
                _print(agent_id, event, form)
    except KeyboardInterrupt:
        return


def _position(event_id: str) -> tuple[int, int]:
    """The position of an event in the stream; an empty id comes first."""
    milliseconds, _, number = event_id.partition("-")
    return (int(milliseconds), int(number)) if number else (-1, 0)


def _print(agent_id: str, event: Event, form: str) -> None:
    if output.print_item(form, {"agentId": agent_id, **event.to_wire()}):
        return
    if not is_repeated(event):
        output.say(event_view.plain_line(agent_id, event, output.date(event.at)))
