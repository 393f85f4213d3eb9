"""`boyd agent cycle|run|resume|repl|…`: have an agent work towards its goals."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from boyd.text.formatting import counted
from boyd_cli import INTERRUPTED, output
from boyd_cli.options import Whole
from boyd_goals.cli import goal_views
from boyd_goals.cli.goal_commands import (
    client_argument,
    client_options,
    data_lines_option,
    data_option,
    prints,
)

if TYPE_CHECKING:
    from boyd_goals.api_models import Consolidated, PsycheState, SessionState
    from boyd_goals.cli.goals_client import CycleRunner, GoalsClient
    from boyd_goals.state import Episode, MemoryEntry


def _texts(_ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    texts = [text.strip() for text in (value or "").split(",")]
    if value is not None and not any(texts):
        raise click.BadParameter("name at least one goal", param=param)
    return list(dict.fromkeys(filter(None, texts)))


def _text(_ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("it must not be empty", param=param)
    return value.strip()


goals_option = click.option(
    "--goals",
    callback=_texts,
    help="Goals to work on, separated by commas; added unless already active.",
)
cycles_option = click.option(
    "--max-cycles", type=Whole(1), default=10, show_default=True, help="Maximum number of cycles."
)


@click.group()
def agent() -> None:
    """Have an agent work towards its goals, cycle by cycle.

    The agent needs the plugin `goals`. `boyd agents` lists the agents, `boyd goals` shows and
    changes their goals.
    """


@agent.command()
@click.option("--goal", required=True, callback=_text, help="What to achieve.")
@click.option("--priority", type=Whole(0, 255), help="Priority of a new goal; default 128.")
@data_option
@client_options
def cycle(client: GoalsClient, goal: str, priority: int | None, form: str) -> None:
    """Work towards a goal for one cycle, and show each phase.

    Adds the goal unless it is already active, and gives it precedence. Exit status 1 if the goal
    failed, or the chosen action could not be executed.
    """
    from boyd_goals.cli.goals_client import freeze_notice, next_cycle

    target = client.ensure(goal, priority)
    client.focus([target.id])
    with _resumable():
        done = next_cycle(client)
        if done.decision is None and done.result.success and not done.is_frozen:
            # The iteration had started before the goal was added.
            done = next_cycle(client)
    if not output.print_data(form, done.to_wire()):
        goal_views.show_cycle(done)
        goal_views.WaitingToolView().tell(done.session.questions, done.approvals)
    if done.goal is not None and done.goal.id != target.id:
        output.note(f"{output.one_line(target.id)} waits: another goal comes first")
    if done.is_frozen:
        output.note(f"boyd: {freeze_notice(client.api, done.refusal or '')}")
    failed = done.goal is not None and done.goal.status == "Failed"
    output.fail_if(failed or done.refusal or not done.result.success)


@agent.command()
@goals_option
@cycles_option
@click.option("--fresh", is_flag=True, help="Start a new session; the old one is kept.")
@data_lines_option
@client_options
def run(client: GoalsClient, goals: list[str], max_cycles: int, fresh: bool, form: str) -> None:
    """Work towards goals until none is active, or the limit is reached.

    Goals given here take precedence. Exit status 1 if one of them fails (without --goals: if any
    does), or actions are frozen.
    """
    if fresh:
        client.begin()
    ids = [client.ensure(description).id for description in goals]
    session = client.session()
    if ids != session.focus:
        client.focus(ids)
    _run(client, session, max_cycles, form, ids)


@agent.command()
@cycles_option
@data_lines_option
@client_options
def resume(client: GoalsClient, max_cycles: int, form: str) -> None:
    """Continue the session with its goals, plans and memory.

    Not to be confused with `boyd resume`, which resumes a paused agent.
    """
    session = client.session()
    if not session.cycle:
        commands = f"{output.to_type('agent run --goals …')} or {output.to_type('agent repl')}"
        output.stop(output.FAILED, f"there is no session to resume: {commands} starts one")
    if session.active and client.may_act():
        output.note(f"resuming after cycle {session.cycle}")
    _run(client, session, max_cycles, form)


def _run(
    client: GoalsClient, session: SessionState, most: int, form: str, goal_ids: Collection[str] = ()
) -> None:
    """Run cycles and show them; exit with an error if a goal or an iteration has failed.

    If *goal_ids* are given, only those goals count.
    """
    from boyd_goals.cli.goals_client import CycleRunner

    before = {goal.id for goal in client.goals("Failed")}
    runner = CycleRunner(client, most, session)
    waits = goal_views.WaitingToolView()
    with _resumable():
        if form == "table":
            waits.tell(session.questions, session.waiting)
        for done in runner.cycles():
            if not output.print_item(form, done.to_wire()):
                goal_views.show_step(done)
                waits.tell(done.session.questions, done.approvals)
        failed = [goal for goal in client.goals("Failed") if goal.id not in before]
        _finish(runner, form)
    for goal in failed:
        reason = f": {goal.reason}" if goal.reason else ""
        output.note(output.one_line(f"boyd: goal {goal.id} has failed{reason}"))
    counting = [goal for goal in failed if not goal_ids or goal.id in goal_ids]
    output.fail_if(counting or runner.ending in ("failed", "frozen"))


def _finish(runner: CycleRunner, form: str) -> None:
    """Print why the cycles ended, and what is left to do."""
    session = runner.session
    if form != "table":
        fields = {"why": runner.reason} if runner.reason else {}
        output.print_item(form, {"ending": runner.ending, **fields, "session": session})
    say = output.say if form == "table" else output.note
    say(_ending(runner))
    if runner.ending in ("enough", "failed") and session.active:
        for goal in runner.client.goals("Active"):
            say(f"  {output.one_line(f'{goal.id} {goal.description}')}")
    for line in goal_views.WaitingToolView().lines(session.questions, session.waiting):
        say(f"  {line}")


def _ending(runner: CycleRunner) -> str:
    from boyd_goals.cli.goals_client import freeze_notice

    if runner.ending == "done" and not runner.done:
        ways = [f"{output.to_type('goals add …')} adds one"]
        if runner.session.goals.get("Suspended"):
            ways.append(f"{output.to_type('goals resume ID')} resumes one")
        return f"No goal is active ({goal_views.counts(runner.session)}): {', '.join(ways)}."
    after = f"after {counted(runner.done, 'cycle')}"
    left = f"goals: {goal_views.counts(runner.session)}"
    again = f"{output.to_type('agent resume')} continues"
    if runner.ending == "done":
        return f"No active goals left {after}; {left}."
    if runner.ending == "spent":
        fresh = output.to_type("agent run --fresh --goals …")
        most = runner.session.max_cycles
        return f"The session has used all its {most} cycles; {fresh} starts another"
    if runner.ending == "idle":
        reason = f": {runner.reason}" if runner.reason else ""
        return f"Nothing to do now, {after}{reason}; {left}; {again} later."
    if runner.ending == "frozen":
        frozen = freeze_notice(runner.client.api, runner.reason or "")
        return f"{frozen}. Stopped {after}; {left}; {again}."
    return f"Stopped {after}; {left}; {again}."


@contextmanager
def _resumable() -> Iterator[None]:
    """Let Ctrl-C end the command, and say that the cycle continues."""
    try:
        yield
    except KeyboardInterrupt:
        resume = output.to_type("agent resume")
        output.note(
            f"A running cycle continues without this command; {resume} starts the next one."
        )
        raise click.exceptions.Exit(INTERRUPTED) from None


@agent.command()
@goals_option
@client_options
def repl(client: GoalsClient, goals: list[str]) -> None:
    """Run cycles one by one, and inspect everything in between.

    Enter runs a cycle, `help` lists the commands. From a pipe each line is a command, and an empty
    line a cycle; exit status 1 if one of them fails.
    """
    from boyd.settings.process_settings import load_settings
    from boyd_goals.cli.repl import Repl

    for description in goals:
        client.ensure(description)
    output.fail_if(not Repl(client).run(load_settings().state_dir))


@agent.command()
@prints(goal_views.show_consolidated)
def consolidate(client: GoalsClient) -> Consolidated:
    """Turn working memory into memories now."""
    return client.consolidate()


@agent.command()
@click.option("--query", required=True, callback=_text, help="Words, labels or ids.")
@click.option(
    "--top-k", type=Whole(1, 1000), default=5, show_default=True, help="Maximum number of memories."
)
@prints(goal_views.show_episodes)
def recall(client: GoalsClient, query: str, top_k: int) -> list[Episode]:
    """Show memories about something, best match first."""
    return client.recall(query, top_k)


limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=20,
    show_default=True,
    help="Maximum number of entries, newest first.",
)


@agent.command()
@limit_option
@prints(goal_views.show_memory)
def memory(client: GoalsClient, limit: int) -> list[MemoryEntry]:
    """Show the agent's working memory, newest first."""
    return client.memory(limit)


@agent.command()
@limit_option
@prints(goal_views.show_episodes)
def episodes(client: GoalsClient, limit: int) -> list[Episode]:
    """Show the agent's memories, newest first."""
    return client.episodes(limit)


@agent.command()
@prints(goal_views.show_psyche)
def psyche(client: GoalsClient) -> PsycheState:
    """Show the agent's preferences, and the actions its shadow forbids."""
    return client.psyche()


@agent.command()
@data_option
@client_options
def sessions(client: GoalsClient, form: str) -> None:
    """List the sessions, the current one first."""
    summaries = client.sessions()
    if not output.print_data(form, summaries):
        goal_views.show_sessions(client, summaries)


@agent.command()
@client_argument(
    "session",
    lambda client: [(session.id, f"{session.cycle} cycles") for session in client.sessions()],
)
@data_option
@client_options
def reopen(client: GoalsClient, session: str, form: str) -> None:
    """Continue an older session from `boyd agent sessions`.

    It takes over the memories of the current session, which is kept too.
    """
    id = client.begin(session)
    if not output.print_data(form, {"id": id}):
        again = f"{output.to_type('agent resume')} continues"
        output.say(f"session {id} is the current session now; {again}")
