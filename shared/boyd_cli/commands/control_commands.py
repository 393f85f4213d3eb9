"""Commands that list and control agents: trigger, pause, abandon, freeze, revoke and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from boyd.embedded.state_folder import read_runtime, with_redis
from boyd.errors import ApiProblem, ApiUnavailable, BoydError, StoreUnavailable
from boyd.models import LoopResult, LoopStatus, responses
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.api_access import (
    Api,
    CommandAccess,
    actor,
    choose_agent,
    is_same,
    open_store,
    past_iteration,
)
from boyd_cli.commands.status_command import (
    condition_text,
    mode_text,
    problem_text,
    waiting_text,
)
from boyd_cli.options import (
    Number,
    access_options,
    agent_option,
    api_options,
    data_options,
    deployment_api_options,
    output_option,
    yes_option,
)
from boyd_cli.output import sentence, whole
from boyd_cli.terminal import Spinner
from boyd_cli.views import iteration_view

if TYPE_CHECKING:
    from boyd.settings.process_settings import Settings
    from boyd.store import Store

_T = TypeVar("_T")

COLUMNS = (
    *(whole("agent"), whole("state"), whole("since"), sentence("problem", least=40)),
    *(whole("waiting", drop=1), whole("phase", drop=3), whole("iteration", drop=4)),
    *(whole("mode", drop=2), whole("workers", drop=5), sentence("plugins", drop=6)),
)

timeout_option = click.option(
    "--timeout",
    type=Number(0, min_open=True),
    help="Maximum seconds to wait; exit status 124 on timeout.",
)


@click.command()
@click.option("--retired", is_flag=True, help="Include retired agents.")
@output_option
@deployment_api_options
def agents(api: Api, retired: bool, form: str) -> None:
    """List the agents."""
    page = api.deployment.get("/agents", responses.AgentList, retired=str(retired).lower())
    if page.frozen is not None:
        output.note(f"Actions of all agents are frozen: {output.one_line(page.frozen)}\n")
    now = api.deployment.now()
    agents = sorted(page.agents, key=lambda agent: agent.urgency)
    rows = [_row(agent, now) for agent in agents]
    empty = "No agent has been started yet, or the key may not see any."
    output.print_list(form, agents, COLUMNS, rows, empty)


def _row(agent: responses.AgentState, now: datetime) -> list[str]:
    since = agent.condition.since
    return [
        agent.id,
        condition_text(agent),
        output.short_age(since, now) if since else "",
        problem_text(agent, now),
        waiting_text(agent) or "nothing",
        agent.phase,
        str(agent.iteration),
        mode_text(agent),
        str(agent.workers),
        ", ".join(agent.plugins),
    ]


@click.command()
@click.option("--wait/--no-wait", help="Wait for the result; exit status 1 if it failed.")
@timeout_option
@click.option("--context", help="Text to repeat in the response; not stored.")
@data_options
def trigger(api: Api, wait: bool, timeout: float | None, context: str | None, form: str) -> None:
    """Start an iteration now, or join the running one.

    --timeout implies --wait.
    """
    body = {"async": True, "context": context}
    triggered = api.agent.post("/loop/trigger", responses.Triggered, body)
    _warn_without_workers(api)
    if not wait and timeout is None:
        if not output.print_data(form, triggered):
            output.say(_start_line(api, triggered))
        return
    result = _await(api, triggered, timeout)
    if not output.print_data(form, result):
        output.say(iteration_view.iteration_line(result, output.width()))
    output.fail_if(not result.success)


def _start_line(api: Api, triggered: responses.Triggered) -> str:
    return f"{_name(api)}#{triggered.iteration}: {triggered.message}"


def _name(api: Api) -> str:
    """The agent's id and a space; empty if the key may not read it."""
    try:
        return f"{api.agent_id} "
    except ApiProblem:
        return ""


def _warn_without_workers(api: Api) -> None:
    try:
        entries = api.deployment.get("/agents", responses.AgentList).agents
        idle = any(entry.id == api.agent_id and not entry.workers for entry in entries)
    except ApiProblem:  # a key that may trigger need not be one that may look
        return
    if idle:
        note = "the iteration continues once one is started"
        output.note(f"no live worker runs {api.agent_id}: {note}")


def _await(api: Api, triggered: responses.Triggered, timeout: float | None) -> LoopResult:
    iteration = triggered.iteration
    line = _start_line(api, triggered)
    with Spinner(timeout) as waiting:
        output.note(line)
        while True:
            result = waiting.ask(lambda: past_iteration(api, iteration))
            if result is not None:
                return result
            if waiting.is_over:
                subject = f"{_name(api)}#{iteration} had not finished"
                output.stop(output.TIMED_OUT, f"{subject} after {output.seconds(timeout or 0)}")
            waiting.pause(lambda: _doing(api, iteration))


def _doing(api: Api, iteration: int) -> str:
    status = api.agent.get("/loop/status", LoopStatus)
    where = f" on {status.worker}" if status.worker else ", waits for a worker"
    return f"{status.agent_id} #{iteration}: {status.phase}{where}"


@click.command()
@click.option("--reason", help="Reason; visible to everyone.")
@api_options
def pause(api: Api, reason: str | None) -> None:
    """Keep an agent from starting iterations.

    It ignores ticks and refuses triggers; a running iteration continues to its end.
    """
    name = api.agent.post("/pause", responses.Standing, {"reason": reason}).agent_id
    output.say(f"{name} is paused. `{output.command_name()} resume --agent {name}` resumes it.")


@click.command()
@api_options
def resume(api: Api) -> None:
    """Resume a paused agent.

    Pending work starts an iteration.
    """
    output.say(f"{api.agent.post('/resume', responses.Standing).agent_id} is resumed.")


@click.command()
@click.argument("iteration", type=click.IntRange(min=1), required=False)
@click.option("--reason", help="Reason; recorded as the error of the iteration.")
@data_options
def abandon(api: Api, iteration: int | None, reason: str | None, form: str) -> None:
    """End the running iteration as failed.

    With ITERATION, only if that is the running one. This needs no worker. A started action is not
    started again; its outcome stays unknown unless it was reported.
    """
    body = {"iteration": iteration, "reason": reason}
    abandoned = api.agent.post("/loop/abandon", responses.Abandoned, body)
    if not output.print_data(form, abandoned):
        output.say(f"{abandoned.agent_id} #{abandoned.iteration} has failed: {abandoned.error}")


@click.command()
@click.option("--reason", help="Reason; recorded in the audit trail.")
@yes_option
@api_options
def retire(api: Api, reason: str | None, ask: bool) -> None:
    """Take an unused agent out of service.

    Its pending approvals are withdrawn and its open runs cancelled; its history and audit trail
    stay. Starting the agent again puts it back into service.
    """
    name = api.agent_id
    if ask:
        question = f"Retire {name}, withdraw its approvals and cancel its runs?"
        output.confirm(question, f"{name} is not retired")
    done = api.agent.post("/retire", responses.Retired, {"reason": reason})
    effects = [
        f"{counted(done.approvals, 'approval')} withdrawn" if done.approvals else "",
        f"{counted(done.runs, 'run')} cancelled" if done.runs else "",
    ]
    output.say("; ".join(filter(None, [f"{done.agent_id} is retired", *effects])) + ".")


#: Seconds for the API to answer: a freeze is urgent, and Redis is the alternative.
_PATIENCE = 5.0
#: The reasons of remaining freezes by agent; the empty name stands for the deployment.
_Stays = dict[str, str]


@click.command()
@agent_option
@click.option("--all", "everywhere", is_flag=True, help="All agents, including future ones.")
@click.option("--reason", help="Reason; visible to everyone.")
@access_options
def freeze(access: CommandAccess, agent: str | None, everywhere: bool, reason: str | None) -> None:
    """Stop all actions of an agent, or of all agents.

    Observing, orienting and deciding continue. Uses Redis directly if the API does not answer.
    """

    def over(api: Api) -> tuple[str, list[str] | None]:
        body = {"reason": reason}
        if everywhere:
            return "", api.deployment.post("/freeze-all", responses.StandingAll, body).unreached
        done = api.agent.post("/freeze", responses.Standing, body)
        return done.agent_id, done.unreached

    def directly(store: Store, chosen: str) -> tuple[str, list[str] | None]:
        from boyd.store import reason_text

        who, text = actor(), reason_text(actor().principal, reason)
        return chosen, store.freezes.freeze(text, chosen or None, who)

    name, unreached = _over_api_or_redis(access, agent, everywhere, over, directly)
    undo = "--all" if everywhere else f"--agent {name}"
    output.say(
        f"Actions of {name or 'all agents'} are frozen."
        f" `{output.command_name()} unfreeze {undo}` lifts the freeze."
    )
    _tell_unreached(unreached)


def _tell_unreached(names: Sequence[str] | None) -> None:
    """Say which agents have not been told, as their Redis server does not answer."""
    if names:
        output.say(
            f"Not reached yet: {', '.join(names)}, whose Redis server does not answer."
            " They are told within seconds of its return."
        )


@click.command()
@agent_option
@click.option("--all", "everywhere", is_flag=True, help="Lift the deployment-wide freeze.")
@access_options
def unfreeze(access: CommandAccess, agent: str | None, everywhere: bool) -> None:
    """Lift the freeze of an agent, or the deployment-wide one.

    --all lifts the deployment-wide freeze; agents frozen by name stay frozen.
    """

    def over(api: Api) -> tuple[str, list[str] | None, _Stays]:
        if everywhere:
            unreached = api.deployment.post("/unfreeze-all", responses.StandingAll).unreached
            return "", unreached, _remaining_freezes(api)
        done = api.agent.post("/unfreeze", responses.Standing)
        return done.agent_id, done.unreached, _remaining_freezes(api)

    def directly(store: Store, chosen: str) -> tuple[str, list[str] | None, _Stays]:
        from boyd.store import DEPLOYMENT

        unreached = store.freezes.lift(chosen or None, actor())
        freezes = store.freezes.all()
        stays = {"" if who == DEPLOYMENT else who: stop.reason for who, stop in freezes.items()}
        return chosen, unreached, stays

    name, unreached, stays = _over_api_or_redis(access, agent, everywhere, over, directly)
    if not name:
        output.say("Deployment-wide freeze lifted.")
    else:
        held = name in stays or "" in stays
        output.say(f"Freeze of {name} lifted." if held else f"{name} can act again.")
    _tell_unreached(unreached)
    for who, cause in stays.items():
        undo = f"--agent {who}" if who else "--all"
        output.say(
            f"Actions of {who or 'all agents'} are still frozen: {output.one_line(cause)}."
            f" `{output.command_name()} unfreeze {undo}` lifts this freeze."
        )


@click.command()
@agent_option
@click.option("--reason", help="Reason; visible to everyone.")
@access_options
def revoke(access: CommandAccess, agent: str | None, reason: str | None) -> None:
    """Revoke an agent's right to act.

    None of its actions starts any more, its pending approvals are withdrawn, its model is halted,
    and its investigations are cancelled. Uses Redis directly if the API does not answer.
    """

    def over(api: Api) -> responses.RevokedAgent:
        return api.agent.post("/revoke", responses.RevokedAgent, {"reason": reason})

    def directly(store: Store, chosen: str) -> responses.RevokedAgent:
        from boyd.runtime import revoke as revoke_agent

        return revoke_agent(store, chosen, actor(), reason)

    done = _over_api_or_redis(access, agent, False, over, directly)
    effects = [
        f"{counted(done.approvals, 'approval')} withdrawn" if done.approvals else "",
        f"{counted(done.investigations, 'investigation')} cancelled" if done.investigations else "",
    ]
    undo = f"`{output.command_name()} restore --agent {done.agent_id}` restores it."
    summary = "; ".join(filter(None, [f"The right of {done.agent_id} to act is revoked", *effects]))
    output.say(f"{summary}. {undo}")


@click.command()
@agent_option
@access_options
def restore(access: CommandAccess, agent: str | None) -> None:
    """Give a revoked agent the right to act again; a freeze stays."""

    def over(api: Api) -> tuple[str, str | None]:
        standing = api.agent.post("/restore", responses.Standing)
        return standing.agent_id, standing.frozen

    def directly(store: Store, chosen: str) -> tuple[str, str | None]:
        store.freezes.restore(chosen, actor())
        return chosen, store.freezes.of(chosen)

    name, frozen = _over_api_or_redis(access, agent, False, over, directly)
    held = f", but its actions are frozen: {output.one_line(frozen)}" if frozen else ""
    output.say(f"{name} has the right to act again{held}.")


def _over_api_or_redis(
    access: CommandAccess,
    agent: str | None,
    everywhere: bool,
    over: Callable[[Api], _T],
    directly: Callable[[Store, str], _T],
) -> _T:
    """Do it over the API, or directly on Redis if the API is unavailable.

    Refusals of the API are final. *directly* gets the chosen agent, or an empty name for all.
    """
    if agent and everywhere:
        raise click.UsageError("give either --agent or --all, not both")
    api = access.api(agent, running=True)
    if api is None:
        store = _redis(access)
    else:
        api.deployment.timeout = api.agent.timeout = _PATIENCE
        try:
            return over(api)
        except (ApiUnavailable, ApiProblem) as error:
            if isinstance(error, ApiProblem) and error.status < 500:
                raise
            store = _fall_back(access, api.deployment.url, error)
    chosen = "" if everywhere else choose_agent(store, access.settings, agent)[0].id
    return directly(store, chosen)


def _redis(access: CommandAccess, reason: str = "") -> Store:
    """Open Redis and name it: it may not be the one that the user has in mind."""
    store = open_store(access.settings)
    output.note(f"{reason}using Redis directly: {_where(access.settings)}")
    return store


def _fall_back(access: CommandAccess, url: str, error: BoydError) -> Store:
    """Open Redis because the API at *url* is unavailable.

    Raises:
        ApiUnavailable: the Redis of that API is not known.
        StoreUnavailable: it does not answer either.
    """
    reason = output.one_line(str(error).partition(";")[0])
    settings = access.settings
    running = None if settings.redis_url else read_runtime(settings.state_dir)
    # The Redis of a local `boyd up` serves its own API only.
    is_its_own = running and running.api_url and is_same(running.api_url, url)
    if not settings.redis_url and not is_its_own:
        raise ApiUnavailable(
            f"{reason}; nothing was changed. To use Redis directly, name it with --redis-url"
            " or BOYD_REDIS_URL"
        )
    try:
        return _redis(access, f"{reason}; ")
    except StoreUnavailable:
        where = _where(access.settings)
        text = f"nothing was changed: {where} does not answer either ({reason})"
        raise StoreUnavailable(text) from None


def _where(settings: Settings) -> str:
    from boyd.store import mask_url

    return mask_url(with_redis(settings).redis_url or "")


def _remaining_freezes(api: Api) -> _Stays:
    try:
        page = api.deployment.get("/agents", responses.AgentList)
    except ApiProblem:  # it is lifted, and this key may not look
        return {}
    own = {
        entry.id: entry.frozen
        for entry in page.agents
        if entry.frozen and entry.frozen != page.frozen
    }
    return {**({"": page.frozen} if page.frozen else {}), **own}
