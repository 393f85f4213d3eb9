"""`boyd freeze`, `boyd unfreeze`: stop all acting; also when the API is down (L34)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from boyd.cli import output
from boyd.cli.connection import is_same
from boyd.cli.options import Access, access_options, agent_option, choose_agent, open_store
from boyd.cli.typed import boyd_here
from boyd.cli.whoami import actor
from boyd.embedded.runtime import read_runtime, with_redis
from boyd.errors import ApiProblem, ApiUnavailable, BoydError, StoreUnavailable
from boyd.models.answers import AgentList, Standing, StandingAll

if TYPE_CHECKING:
    from boyd.cli.connection import Api
    from boyd.settings import Settings
    from boyd.store import Store

#: Seconds that the API has to answer: whoever freezes is in a hurry, and there is another way.
_PATIENCE = 5.0
#: What stays frozen, by agent; an empty name: everywhere.
_Stays = dict[str, str]


@click.command()
@agent_option
@click.option("--all", "everywhere", is_flag=True, help="All agents, those to come too.")
@click.option("--reason", help="Why; shown to everybody who looks.")
@access_options
def freeze(access: Access, agent: str | None, everywhere: bool, reason: str | None) -> None:
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
    output.say(f"{whose}. `{boyd_here()} unfreeze {undo}` lets it go on.")


@click.command()
@agent_option
@click.option("--all", "everywhere", is_flag=True, help="Lift the deployment-wide freeze.")
@access_options
def unfreeze(access: Access, agent: str | None, everywhere: bool) -> None:
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
            f"{whose} still frozen{where}: {why}. `{boyd_here()} unfreeze {undo}` lifts that."
        )


def _lifted(name: str, held: bool) -> str:
    if not name:
        return "The deployment-wide freeze is lifted."
    return f"The freeze of {name} is lifted." if held else f"{name} may act again."


def _check(agent: str | None, everywhere: bool) -> None:
    if agent and everywhere:
        raise click.UsageError("--agent names one, --all means every one; give one of them")


def _either(
    access: Access,
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


def _redis(access: Access, what: str) -> Store:
    """Redis, once it is said which one: it may not be the one that somebody has in mind."""
    store = open_store(access.settings)
    output.note(f"{what} goes to Redis directly: {_where(access.settings)}")
    return store


def _fall_back(access: Access, url: str, error: BoydError) -> Store:
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
    access: Access, store: Store, agent: str | None, everywhere: bool, reason: str | None
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
    access: Access, store: Store, agent: str | None, everywhere: bool
) -> tuple[str, _Stays]:
    from boyd.store import DEPLOYMENT

    entry = None if everywhere else choose_agent(store, access.settings, agent)[0]
    store.freezes.lift(entry.id if entry else None, actor())
    stays = {"" if who == DEPLOYMENT else who: why for who, why in store.freezes.all().items()}
    return entry.id if entry else "", stays
