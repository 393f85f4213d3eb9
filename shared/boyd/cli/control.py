"""`boyd agents`, `trigger`, `pause`, `resume`, `freeze`, `unfreeze`: list agents, steer them."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from boyd.cli import output
from boyd.cli.options import choose_agent, open_store, settings_options, with_redis
from boyd.cli.status import BLOCK, Follower, mode_text, waiting_text
from boyd.errors import UnknownAgent
from boyd.models import Actor, LoopResult, LoopStatus
from boyd.settings import Settings
from boyd.store import AgentEntry, AgentStore, Begun, Store, reason_text

if TYPE_CHECKING:
    from boyd.engine import Launcher

reason_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--reason", help="Why; shown to everybody who looks."
)


@click.command()
@output.output_option
@settings_options
def agents(settings: Settings, form: str) -> None:
    """List the agents."""
    store = open_store(settings)
    known = list(store.fleet.agents().values())
    states = [store.agent(entry.id).iterations.status() for entry in known]
    live = store.fleet.workers()
    serving = {
        entry.id: sum(w.role == "worker" and entry.id in w.agents for w in live) for entry in known
    }
    frozen = store.fleet.frozen()
    if form == "json":
        rows = [
            {**entry.to_wire(), "status": state, "workers": serving[entry.id]}
            for entry, state in zip(known, states, strict=True)
        ]
        output.print_json({"frozen": frozen, "agents": rows})
        return
    if frozen is not None:
        output.say(f"Acting is frozen everywhere: {frozen}\n")
    if not known:
        output.say("No agent has been started against this Redis yet.")
        return
    header = ["agent", "phase", "iteration", "mode", "waiting", "workers", "plugins"]
    pairs = zip(known, states, strict=True)
    output.print_table(header, [_row(entry, state, serving[entry.id]) for entry, state in pairs])


def _row(entry: AgentEntry, state: LoopStatus, workers: int) -> list[str]:
    held = [
        "paused" if state.paused is not None else "",
        "frozen" if state.frozen is not None else "",
    ]
    return [
        entry.id,
        ", ".join(filter(None, [*held, state.phase])),
        str(state.iteration),
        mode_text(entry),
        waiting_text(state) or "nothing",
        str(workers),
        ", ".join(entry.plugins),
    ]


@click.command()
@click.argument("agent", required=False)
@click.option("--wait", is_flag=True, help="Wait for its end; exit status 1 when it failed.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    help="Wait at most that many seconds; exit status 124 when it takes longer.",
)
@output.output_option
@settings_options
def trigger(
    settings: Settings, agent: str | None, wait: bool, timeout: float | None, form: str
) -> None:
    """Start an iteration now.

    If one is in flight, join that.
    """
    whole = open_store(settings)
    entry, store = choose_agent(whole, settings, agent)
    follower = Follower(settings, [entry.id])
    begun = _launcher(settings, entry, store).trigger(who())
    _warn_without_workers(whole, entry.id)
    if not wait and timeout is None:
        _show_begun(entry.id, begun, form)
        return
    if form == "table":
        output.note(_begun_line(entry.id, begun))
    try:
        result = _await(follower, entry.id, begun.iteration, timeout)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(output.INTERRUPTED) from None
    if form == "json":
        output.print_json(result)
    else:
        output.say(output.iteration_line(result, output.width()))
    if not result.success:
        raise click.exceptions.Exit(output.FAILED)


def _launcher(settings: Settings, entry: AgentEntry, store: AgentStore) -> Launcher:
    # Celery takes a while to import, and only these commands send messages.
    from boyd.broker import CeleryCourier, make_app
    from boyd.engine import Launcher

    settings = with_redis(settings)
    app = make_app(settings.broker_url or settings.redis_url or "")
    return Launcher(store, CeleryCourier(app), entry.mode)


def _warn_without_workers(store: Store, agent_id: str) -> None:
    live = store.fleet.workers()
    if not any(w.role == "worker" and agent_id in w.agents for w in live):
        output.note(f"no live worker runs {agent_id}: the iteration goes on when one is started")


def _show_begun(agent_id: str, begun: Begun, form: str) -> None:
    if form == "json":
        output.print_json(
            {"agentId": agent_id, "iteration": begun.iteration, "outcome": begun.outcome}
        )
    else:
        output.say(_begun_line(agent_id, begun))


def _begun_line(agent_id: str, begun: Begun) -> str:
    what = "has begun" if begun.new else "was in flight already: joined"
    return f"{agent_id} #{begun.iteration} {what}"


def _await(follower: Follower, agent_id: str, iteration: int, timeout: float | None) -> LoopResult:
    """The result of the iteration, once it is over."""
    deadline = time.monotonic() + timeout if timeout is not None else float("inf")
    while (result := follower.result(agent_id, iteration)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            reason = f"{agent_id} #{iteration} was not over after {output.seconds(timeout or 0)}"
            output.stop(output.TIMED_OUT, reason)
        follower.wait(min(BLOCK, left))
    return result


@click.command()
@click.argument("agent", required=False)
@reason_option
@settings_options
def pause(settings: Settings, agent: str | None, reason: str | None) -> None:
    """Keep an agent from starting iterations.

    It ignores ticks and refuses triggers; an iteration in flight goes on to its end.
    """
    _, store = choose_agent(open_store(settings), settings, agent)
    store.iterations.pause(reason_text(who(), reason), actor())
    output.say(f"{store.agent_id} is paused. `boyd resume {store.agent_id}` lets it go on.")


@click.command()
@click.argument("agent", required=False)
@settings_options
def resume(settings: Settings, agent: str | None) -> None:
    """Let a paused agent go on.

    Work that has arrived meanwhile starts an iteration.
    """
    entry, store = choose_agent(open_store(settings), settings, agent)
    was_paused = store.iterations.status().paused is not None
    _launcher(settings, entry, store).resume(actor())
    output.say(f"{entry.id} goes on." if was_paused else f"{entry.id} was not paused.")


@click.command()
@click.argument("agents", nargs=-1, metavar="[AGENT]...")
@reason_option
@settings_options
def freeze(settings: Settings, agents: tuple[str, ...], reason: str | None) -> None:
    """Stop all acting, or that of some agents.

    Observing, orienting and deciding go on.
    """
    store = open_store(settings)
    _check_known(store, agents)
    store.fleet.freeze(reason_text(who(), reason), agents, actor())
    whose = f"Acting of {', '.join(agents)} is frozen" if agents else "Acting is frozen everywhere"
    undo = " ".join(["boyd unfreeze", *agents])
    output.say(f"{whose}. `{undo}` lets it go on.")


@click.command()
@click.argument("agents", nargs=-1, metavar="[AGENT]...")
@settings_options
def unfreeze(settings: Settings, agents: tuple[str, ...]) -> None:
    """Let acting go on.

    Without AGENT, this lifts the freeze of everywhere; agents that were frozen by name stay so.
    """
    store = open_store(settings)
    _check_known(store, agents)
    store.fleet.unfreeze(agents, actor())
    output.say(f"{', '.join(agents)} may act again." if agents else "The freeze is lifted.")
    _tell_what_stays(store)


def _check_known(store: Store, agents: tuple[str, ...]) -> None:
    known = store.fleet.agents()
    for name in agents:
        if name not in known:
            raise UnknownAgent(f"no agent {name!r}; there are: {', '.join(known) or 'none'}")


def _tell_what_stays(store: Store) -> None:
    everywhere = store.fleet.frozen()
    if everywhere is not None:
        output.say(f"Acting is still frozen everywhere: {everywhere}")
    for name in store.fleet.agents():
        own = store.agent(name).iterations.status().frozen
        if own is not None:
            output.say(f"{name} is still frozen: {own}")


def actor() -> Actor:
    """Who gives the command, as the audit names them."""
    return Actor(principal="-".join(who().split()), person=True)


def who() -> str:
    """Who gives the command, as the record names it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # no name for this user id, as in many containers
        return "cli:unknown"
