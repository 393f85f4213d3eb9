"""`boyd status`: what the agents are doing now, or, with `--watch`, as it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from boyd.cli import output
from boyd.cli.options import choose_agent, open_store, settings_options, with_redis
from boyd.errors import StoreError, UnknownAgent
from boyd.models import Event, LoopResult, LoopStatus, ObserverHealth, from_ms
from boyd.settings import Settings
from boyd.store import AgentEntry, Events, Store, WorkerInfo, connect, translated

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

#: Seconds that one read of the event stream waits, and that the connection bears beyond that.
BLOCK = 5.0
_GRACE = 5.0
#: Seconds between two tries while Redis is away.
_PAUSE = 1.0
_SHORT_ID = 6
#: How far the texts of an agent are from the left.
_INDENT = 13


@click.command()
@click.argument("agent", required=False)
@click.option("--watch", is_flag=True, help="Go on, and show what happens until Ctrl-C.")
@output.output_option
@settings_options
def status(settings: Settings, agent: str | None, watch: bool, form: str) -> None:
    """Show what agents are doing now.

    Of AGENT, or of every agent: the phase, what waits, how the observers do, which workers live.
    """
    store = open_store(settings)
    chosen = _chosen(store, settings, agent)
    if watch:
        _watch(settings, chosen, form)
    else:
        _show(_look(store, chosen), form)


def _chosen(store: Store, settings: Settings, name: str | None) -> list[AgentEntry]:
    if name or settings.agent:
        return [choose_agent(store, settings, name)[0]]
    known = list(store.fleet.agents().values())
    if not known:
        raise UnknownAgent("no agent has been started against this Redis yet")
    return known


@dataclass(frozen=True)
class _Agent:
    entry: AgentEntry
    status: LoopStatus
    health: dict[str, ObserverHealth]
    last: LoopResult | None


@dataclass(frozen=True)
class _Everything:
    now: datetime
    frozen: str | None
    agents: list[_Agent]
    workers: list[WorkerInfo]


def server_now(store: Store) -> datetime:
    """The time by the Redis server's clock, which all that is stored was written by."""
    with translated():
        whole, micros = store.client.time()
    return from_ms(whole * 1000 + micros / 1000)


def _look(store: Store, chosen: list[AgentEntry]) -> _Everything:
    ids = {entry.id for entry in chosen}
    workers = [worker for worker in store.fleet.workers() if ids.intersection(worker.agents)]
    agents = [_look_at(store, entry) for entry in chosen]
    return _Everything(server_now(store), store.fleet.frozen(), agents, workers)


def _look_at(store: Store, entry: AgentEntry) -> _Agent:
    iterations = store.agent(entry.id).iterations
    last = iterations.history(1) or iterations.history(2)  # the newest may be in flight
    return _Agent(
        entry,
        iterations.status(),
        iterations.health(entry.catalog.observers),
        last[0] if last else None,
    )


def _show(seen: _Everything, form: str) -> None:
    if form == "json":
        output.print_json(_document(seen))
        return
    if seen.frozen is not None:
        output.say(f"Acting is frozen everywhere: {seen.frozen}\n")
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
            "observers": {name: agent.health.get(name) for name in agent.entry.catalog.observers},
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


def mode_text(entry: AgentEntry) -> str:
    """An agent's mode, with the interval where it has one."""
    every = f", every {output.seconds(entry.loop_interval)}" if entry.mode == "continuous" else ""
    return f"{entry.mode}{every}"


def waiting_text(state: LoopStatus) -> str:
    """What waits for the agent and for people; empty when nothing does."""
    parts = [
        output.count(state.pending_runs, "run") if state.pending_runs else "",
        output.count(state.pending_approvals, "approval") if state.pending_approvals else "",
    ]
    return ", ".join(filter(None, parts))


def _since(agent: _Agent, now: datetime) -> str:
    moment = agent.status.start_time or (agent.last.ended_at if agent.last else None)
    return f"{output.date(moment)} ({output.age(moment, now)})" if moment else ""


def _show_observers(agent: _Agent, now: datetime) -> None:
    if not agent.entry.catalog.observers:
        return
    output.say()
    rows = [
        _observer_row(name, agent.health.get(name) or ObserverHealth(), now)
        for name in agent.entry.catalog.observers
    ]
    header = ["observer", "health", "last success", "last error"]
    output.print_table(header, rows, indent=2)


def _observer_row(name: str, health: ObserverHealth, now: datetime) -> list[str]:
    never = health.last_success_at is None and not health.failures
    state = "not run yet" if never else "ok"
    if health.failures:
        state = f"failed {health.failures} in a row"
    if health.backoff_until and health.backoff_until > now:
        state += f", backs off {output.seconds(int((health.backoff_until - now).total_seconds()))}"
    return [name, state, output.age(health.last_success_at, now), health.last_error or ""]


def _show_workers(seen: _Everything) -> None:
    if not seen.workers:
        output.say("No worker is alive. Start one with `boyd worker`, or all with `boyd up`.")
        return
    rows = [
        [
            *(worker.role, worker.name, output.age(worker.started_at, seen.now)),
            *(", ".join(worker.agents), ", ".join(worker.queues), worker.problem or "ok"),
        ]
        for worker in sorted(seen.workers, key=lambda worker: (worker.role, worker.name))
    ]
    output.print_table(["role", "name", "started", "agents", "queues", "health"], rows)


class Follower:
    """Reads the events of agents from now on; Redis may go away for a while and come back."""

    def __init__(self, settings: Settings, agent_ids: list[str]) -> None:
        """Connect, with a time limit above that of a read, and take the position to go on from."""
        redis_url = with_redis(settings).redis_url
        assert redis_url is not None
        self.store = Store(connect(redis_url, timeout=BLOCK + _GRACE))
        self._events: Events = self.store.events(agent_ids)
        self._away = False
        self._events.wait(0)

    def wait(self, seconds: float = BLOCK) -> list[tuple[str, Event]]:
        """What has happened since the last call; nothing while Redis is away, said once."""
        try:
            found = self._events.wait(0 if self._away else seconds)
        except StoreError as error:
            if not self._away:
                output.note(f"{error}; waiting for it to come back")
            self._away = True
            time.sleep(min(_PAUSE, seconds))
            return []
        if self._away:
            output.note("Redis answers again")
        self._away = False
        return found

    def result(self, agent_id: str, iteration: int) -> LoopResult | None:
        """A past iteration; None when there is no such one, or Redis is away."""
        try:
            return self.store.agent(agent_id).iterations.past(iteration)
        except StoreError:
            return None


def _watch(settings: Settings, chosen: list[AgentEntry], form: str) -> None:
    follower = Follower(settings, [entry.id for entry in chosen])
    try:
        if form == "json":
            _watch_json(follower)
        else:
            _show(_look(follower.store, chosen), form)
            show = _watch_live if output.is_terminal() else _watch_lines
            show(follower)
    except KeyboardInterrupt:
        return


def _watch_json(follower: Follower) -> None:
    while True:
        for agent_id, event in follower.wait():
            output.print_json_line({"agentId": agent_id, **event.to_wire()})


def _watch_lines(follower: Follower) -> None:
    output.say()
    while True:
        for agent_id, event in follower.wait():
            output.say(event_line(follower, agent_id, event))


def event_line(follower: Follower, agent_id: str, event: Event, width: int = output.LINE) -> str:
    """An event as one line; the end of an iteration with what it came to."""
    data = event.data
    if event.kind in ("iteration.completed", "iteration.failed"):
        result = follower.result(agent_id, _number(event))
        if result is not None:
            return output.iteration_line(result, width)
    where = f"{output.clock(event.at)}  {agent_id}"
    if event.kind == "phase":
        return f"{where} #{_number(event)}  {data.get('phase')}"
    if event.kind == "iteration.started":
        return f"{where} #{_number(event)}  started by {data.get('trigger')}"
    return output.one_line(f"{where}  {_plain(event)}")


def _number(event: Event) -> int:
    return int(str(event.data.get("iteration", 0)))


def _plain(event: Event) -> str:
    noun, _, what = event.kind.partition(".")
    own = str(event.data.get(noun, ""))[:_SHORT_ID]
    others = [f"{key} {str(event.data[key])[:40]}" for key in event.data if key != noun]
    return " ".join(filter(None, [noun, own, what, *others]))


def _watch_live(follower: Follower) -> None:
    """Print what is over, and keep a line below it for each iteration in flight."""
    flight: dict[str, tuple[str, float]] = {}
    with _live(flight) as live:
        while True:
            for agent_id, event in follower.wait():
                _show_live(live, flight, follower, agent_id, event)


@contextmanager
def _live(flight: dict[str, tuple[str, float]]) -> Iterator[Live]:
    from rich.live import Live
    from rich.text import Text

    def below() -> Text:
        now = time.monotonic()
        lines = [f"{what}  {now - since:.1f} s" for what, since in list(flight.values())]
        return Text("\n".join(lines) or "Waiting for something to happen; Ctrl-C ends.", "dim")

    with Live(console=output.console(), get_renderable=below, transient=True) as live:
        yield live


def _show_live(
    live: Live,
    flight: dict[str, tuple[str, float]],
    follower: Follower,
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
    live.console.print(_painted(Text(line), event))


def _painted(line: Text, event: Event) -> Text:
    if event.kind == "iteration.failed":
        line.stylize("red")
    elif event.kind.startswith("approval."):
        line.stylize("yellow")
    return line
