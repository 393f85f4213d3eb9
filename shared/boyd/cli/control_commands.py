"""`boyd agents`, `trigger`, `pause`, `resume`, `retire`: list agents, start iterations, steer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from boyd.cli import output
from boyd.cli.api_access import Api, is_same
from boyd.cli.options import (
    CommandAccess,
    access_options,
    actor,
    agent_option,
    agents_api_options,
    api_options,
    choose_agent,
    open_store,
)
from boyd.cli.output import command_name
from boyd.cli.parameter_types import Number
from boyd.cli.spinner import Spinner
from boyd.cli.status_command import mode_text, waiting_text
from boyd.cli.tables import sentence, whole
from boyd.embedded.state_folder import read_runtime, with_redis
from boyd.errors import ApiProblem, ApiUnavailable, BoydError, StoreUnavailable
from boyd.formatting import counted
from boyd.models import LoopResult, LoopStatus
from boyd.models.responses import (
    Abandoned,
    AgentList,
    AgentState,
    Retired,
    Standing,
    StandingAll,
    Triggered,
)

if TYPE_CHECKING:
    from boyd.settings.process import Settings
    from boyd.store import Store

#: The columns of the list of agents.
COLUMNS = (
    *(whole("agent"), whole("phase"), whole("iteration", drop=2), whole("mode", drop=1)),
    *(whole("waiting"), whole("workers"), sentence("plugins", drop=3)),
)

timeout_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--timeout",
    type=Number(0, min_open=True),
    help="Wait at most that many seconds; exit status 124 when it takes longer.",
)


@click.command()
@click.option("--retired", is_flag=True, help="Retired agents, too.")
@output.output_option
@agents_api_options
def agents(api: Api, retired: bool, form: str) -> None:
    """List the agents."""
    found = api.deployment.get("/agents", AgentList, retired=str(retired).lower())
    if output.print_data(form, found):
        return
    if found.frozen is not None:
        output.say(f"Acting is frozen everywhere: {found.frozen}\n")
    if not found.agents:
        output.say("No agent has been started yet, or the key may see none.")
        return
    output.print_table(COLUMNS, map(_row, found.agents))


def _row(agent: AgentState) -> list[str]:
    held = [
        "retired" if agent.retired_at is not None else "",
        "paused" if agent.paused is not None else "",
        "frozen" if agent.frozen is not None else "",
    ]
    return [
        agent.id,
        ", ".join(filter(None, [*held, agent.phase])),
        str(agent.iteration),
        mode_text(agent),
        waiting_text(agent) or "nothing",
        str(agent.workers),
        ", ".join(agent.plugins),
    ]


@click.command()
@click.option("--wait/--no-wait", help="Wait for its end; exit status 1 when it failed.")
@timeout_option
@click.option("--context", help="A text that the answer repeats; it is not stored.")
@output.output_option
@api_options
def trigger(api: Api, wait: bool, timeout: float | None, context: str | None, form: str) -> None:
    """Start an iteration now.

    If one is in flight, join that. --timeout waits, too.
    """
    begun = api.agent.post("/loop/trigger", Triggered, {"async": True, "context": context})
    _warn_without_workers(api)
    if not wait and timeout is None:
        if not output.print_data(form, begun):
            output.say(_begun_line(api, begun))
        return
    result = _await(api, begun, timeout)
    if not output.print_data(form, result):
        output.say(output.iteration_line(result, output.width()))
    if not result.success:
        raise click.exceptions.Exit(output.FAILED)


def _begun_line(api: Api, begun: Triggered) -> str:
    return f"{_name(api)}#{begun.iteration}: {begun.message}"


def _name(api: Api) -> str:
    """The agent's id and a space; nothing when the key may not read it."""
    try:
        return f"{api.agent_id} "
    except ApiProblem:
        return ""


def _warn_without_workers(api: Api) -> None:
    try:
        known = api.deployment.get("/agents", AgentList).agents
        idle = any(one.id == api.agent_id and not one.workers for one in known)
    except ApiProblem:  # a key that may trigger need not be one that may look
        return
    if idle:
        output.note(
            f"no live worker runs {api.agent_id}: the iteration goes on when one is started"
        )


def _await(api: Api, begun: Triggered, timeout: float | None) -> LoopResult:
    """The result of the iteration, once it is over."""
    iteration = begun.iteration
    line = _begun_line(api, begun)
    with Spinner(timeout) as waiting:
        output.note(line)
        while True:
            result = waiting.ask(lambda: _past(api, iteration))
            if result is not None:
                return result
            if waiting.is_over:
                what = f"{_name(api)}#{iteration} was not over"
                output.stop(output.TIMED_OUT, f"{what} after {output.seconds(timeout or 0)}")
            waiting.pause(lambda: _doing(api, iteration))


def _past(api: Api, iteration: int) -> LoopResult | None:
    try:
        return api.agent.get(f"/loop/history/{iteration}", LoopResult)
    except ApiProblem as problem:
        if problem.status != 404:
            raise
        return None


def _doing(api: Api, iteration: int) -> str:
    status = api.agent.get("/loop/status", LoopStatus)
    where = f" on {status.worker}" if status.worker else ", waits for a worker"
    return f"{status.agent_id} #{iteration}: {status.phase}{where}"


@click.command()
@click.option("--reason", help="Why; shown to everybody who looks.")
@api_options
def pause(api: Api, reason: str | None) -> None:
    """Keep an agent from starting iterations.

    It ignores ticks and refuses triggers; an iteration in flight goes on to its end.
    """
    name = api.agent.post("/pause", Standing, {"reason": reason}).agent_id
    output.say(f"{name} is paused. `{command_name()} resume --agent {name}` lets it go on.")


@click.command()
@api_options
def resume(api: Api) -> None:
    """Let a paused agent go on.

    Work that has arrived meanwhile starts an iteration.
    """
    output.say(f"{api.agent.post('/resume', Standing).agent_id} goes on.")


@click.command()
@click.argument("iteration", type=click.IntRange(min=1), required=False)
@click.option("--reason", help="Why; it becomes the error of the iteration.")
@output.output_option
@api_options
def abandon(api: Api, iteration: int | None, reason: str | None, form: str) -> None:
    """End the iteration in flight as failed.

    With ITERATION, only if that is the one. No worker has to be there. An action that has begun is
    not begun again; unless it is known how it ended, its outcome is unknown.
    """
    asked = {"iteration": iteration, "reason": reason}
    found = api.agent.post("/loop/abandon", Abandoned, asked)
    if not output.print_data(form, found):
        output.say(f"{found.agent_id} #{found.iteration} has failed: {found.error}")


@click.command()
@click.option("--reason", help="Why; kept in the audit trail.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@api_options
def retire(api: Api, reason: str | None, yes: bool) -> None:
    """Take an agent that nobody runs any more out of service.

    Its pending approvals are withdrawn and its open runs cancelled; its history and its audit
    trail stay. Starting the agent again puts it back into service.
    """
    name = api.agent_id
    if not yes:
        click.confirm(f"Retire {name}, withdraw its approvals and cancel its runs?", abort=True)
    done = api.agent.post("/retire", Retired, {"reason": reason})
    gone = [
        f"{counted(done.approvals, 'approval')} withdrawn" if done.approvals else "",
        f"{counted(done.runs, 'run')} cancelled" if done.runs else "",
    ]
    output.say("; ".join(filter(None, [f"{done.agent_id} is retired", *gone])) + ".")


#: Seconds that the API has to answer: whoever freezes is in a hurry, and there is another way.
_PATIENCE = 5.0
#: What stays frozen, by agent; an empty name: everywhere.
_Stays = dict[str, str]


@click.command()
@agent_option
@click.option("--all", "everywhere", is_flag=True, help="All agents, those to come too.")
@click.option("--reason", help="Why; shown to everybody who looks.")
@access_options
def freeze(access: CommandAccess, agent: str | None, everywhere: bool, reason: str | None) -> None:
    """Stop the acting of an agent, or of all.

    Observing, orienting and deciding go on. Goes to Redis directly when the API does not answer.
    """
    _check(agent, everywhere)
    name = _either(
        access,
        agent,
        lambda api: _freeze_over(api, everywhere, reason),
        lambda store: _freeze_in(access, store, agent, everywhere, reason),
    )
    undo = "--all" if everywhere else f"--agent {name}"
    whose = "Acting is frozen everywhere" if everywhere else f"Acting of {name} is frozen"
    output.say(f"{whose}. `{command_name()} unfreeze {undo}` lets it go on.")


@click.command()
@agent_option
@click.option("--all", "everywhere", is_flag=True, help="Lift the deployment-wide freeze.")
@access_options
def unfreeze(access: CommandAccess, agent: str | None, everywhere: bool) -> None:
    """Let an agent act again.

    --all lifts the deployment-wide freeze; agents that were frozen by name stay frozen.
    """
    _check(agent, everywhere)
    name, stays = _either(
        access,
        agent,
        lambda api: _unfreeze_over(api, everywhere),
        lambda store: _unfreeze_in(access, store, agent, everywhere),
    )
    output.say(_lifted(name, held=bool({"", name}.intersection(stays))))
    for who, why in stays.items():
        whose = f"{who} is" if who else "Acting is"
        where = "" if who else " everywhere"
        undo = f"--agent {who}" if who else "--all"
        output.say(
            f"{whose} still frozen{where}: {why}. `{command_name()} unfreeze {undo}` lifts that."
        )


def _lifted(name: str, held: bool) -> str:
    if not name:
        return "The deployment-wide freeze is lifted."
    return f"The freeze of {name} is lifted." if held else f"{name} may act again."


def _check(agent: str | None, everywhere: bool) -> None:
    if agent and everywhere:
        raise click.UsageError("--agent names one, --all means every one; give one of them")


def _either(
    access: CommandAccess,
    agent: str | None,
    over: Callable[[Api], Any],
    directly: Callable[[Store], Any],
) -> Any:
    """Do it over the API; where there is none, or it is of no use now, directly on Redis.

    What the API forbids stays forbidden.
    """
    api = access.api(agent, running=True)
    if api is None:
        return directly(_redis(access, "this"))
    api.deployment.timeout = api.agent.timeout = _PATIENCE
    try:
        return over(api)
    except (ApiUnavailable, ApiProblem) as error:
        if isinstance(error, ApiProblem) and error.status < 500:
            raise
        return directly(_fall_back(access, api.deployment.url, error))


def _redis(access: CommandAccess, what: str) -> Store:
    """Redis, once it is said which one: it may not be the one that somebody has in mind."""
    store = open_store(access.settings)
    output.note(f"{what} goes to Redis directly: {_where(access.settings)}")
    return store


def _fall_back(access: CommandAccess, url: str, error: BoydError) -> Store:
    """Redis, instead of the API at *url*, which is of no use.

    Raises:
        ApiUnavailable: nothing says which Redis belongs to that API.
        StoreUnavailable: it does not answer either.
    """
    said = output.one_line(str(error).partition(";")[0])
    if not _belongs(access.settings, url):
        raise ApiUnavailable(
            f"{said}; nothing was changed. To go to Redis directly, say which one by --redis-url"
            " or BOYD_REDIS_URL"
        )
    try:
        return _redis(access, f"{said}: this")
    except StoreUnavailable:
        where = _where(access.settings)
        text = f"nothing was changed: asked directly, {where} does not answer either ({said})"
        raise StoreUnavailable(text) from None


def _belongs(settings: Settings, url: str) -> bool:
    """Whether the Redis that is known is that of the API at *url*.

    One that was named is, as whoever has named both means the same deployment; that of a
    `boyd up` only if it is this API that it runs.
    """
    if settings.redis_url:
        return True
    running = read_runtime(settings.state_dir)
    return running is not None and running.api_url is not None and is_same(running.api_url, url)


def _where(settings: Settings) -> str:
    from boyd.store import masked

    return masked(with_redis(settings).redis_url or "")


def _freeze_over(api: Api, everywhere: bool, reason: str | None) -> str:
    body = {"reason": reason}
    if everywhere:
        api.deployment.post("/freeze-all", StandingAll, body)
        return ""
    return api.agent.post("/freeze", Standing, body).agent_id


def _freeze_in(
    access: CommandAccess, store: Store, agent: str | None, everywhere: bool, reason: str | None
) -> str:
    from boyd.store import reason_text

    who = actor()
    text = reason_text(who.principal, reason)
    if everywhere:
        store.freezes.freeze(text, actor=who)
        return ""
    entry, _ = choose_agent(store, access.settings, agent)
    store.freezes.freeze(text, entry.id, who)
    return entry.id


def _unfreeze_over(api: Api, everywhere: bool) -> tuple[str, _Stays]:
    if everywhere:
        api.deployment.post("/unfreeze-all", StandingAll)
        return "", _staying(api)
    name = api.agent.post("/unfreeze", Standing).agent_id
    return name, _staying(api)


def _staying(api: Api) -> _Stays:
    try:
        known = api.deployment.get("/agents", AgentList)
    except ApiProblem:  # it is lifted, and this key may not look
        return {}
    own = {one.id: one.frozen for one in known.agents if one.frozen and one.frozen != known.frozen}
    return {**({"": known.frozen} if known.frozen else {}), **own}


def _unfreeze_in(
    access: CommandAccess, store: Store, agent: str | None, everywhere: bool
) -> tuple[str, _Stays]:
    from boyd.store import DEPLOYMENT

    entry = None if everywhere else choose_agent(store, access.settings, agent)[0]
    store.freezes.lift(entry.id if entry else None, actor())
    stays = {"" if who == DEPLOYMENT else who: why for who, why in store.freezes.all().items()}
    return entry.id if entry else "", stays
