"""`boyd agents`, `trigger`, `pause`, `resume`, `retire`: list agents, start iterations, steer."""

from __future__ import annotations

from collections.abc import Callable

import click

from boyd.cli import output
from boyd.cli.columns import sentence, whole
from boyd.cli.connection import Api
from boyd.cli.options import agents_api_options, api_options
from boyd.cli.status import mode_text, waiting_text
from boyd.cli.typed import boyd_here
from boyd.cli.values import Number
from boyd.cli.waiting import Waiting
from boyd.counting import counted
from boyd.errors import ApiProblem
from boyd.models import LoopResult, LoopStatus
from boyd.models.answers import Abandoned, AgentList, AgentState, Retired, Standing, Triggered

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
    with Waiting(timeout) as waiting:
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
    output.say(f"{name} is paused. `{boyd_here()} resume --agent {name}` lets it go on.")


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
