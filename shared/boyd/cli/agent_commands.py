"""`boyd agent cycle|run|resume|repl|…`: have an agent work towards its goals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from boyd.cli import output
from boyd.cli.goal_commands import data_lines_option, data_option, mind_options, session_argument
from boyd.cli.parameter_types import Whole
from boyd.formatting import counted

if TYPE_CHECKING:
    from boyd.cli.cycle_runner import CycleRunner
    from boyd.cli.goals_client import GoalsClient
    from boyd.plugins.goals.api_models import SessionState

_Command = Callable[..., Any]

#: How many cycles are done unless something else is said.
_CYCLES = 10


def _texts(_ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """What is between the commas."""
    found = [text.strip() for text in (value or "").split(",")]
    if value is not None and not any(found):
        raise click.BadParameter("no goal is named", param=param)
    return list(dict.fromkeys(filter(None, found)))


def _text(_ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("there is nothing in it", param=param)
    return value.strip()


goals_option: Callable[[_Command], _Command] = click.option(
    "--goals", callback=_texts, help="Goals to add, separated by commas, unless they are active."
)
cycles_option: Callable[[_Command], _Command] = click.option(
    "--max-cycles",
    type=Whole(1),
    default=_CYCLES,
    show_default=True,
    help="How many cycles to do at most.",
)


@click.group()
def agent() -> None:
    """Have an agent work towards its goals, cycle by cycle.

    It takes an agent with the plugin `goals`. `boyd agents` lists the agents, `boyd goals` shows
    and changes what they work towards.
    """


@agent.command()
@click.option("--goal", required=True, callback=_text, help="What to achieve.")
@click.option("--priority", type=Whole(0, 255), help="Of a new goal; default 128.")
@data_option
@mind_options
def cycle(mind: GoalsClient, goal: str, priority: int | None, form: str) -> None:
    """Work towards a goal for one cycle, and show every phase of it.

    The goal is added unless an active one has that description, and comes before all others. Exit
    status 1 when it has failed, or what was chosen could not be done.
    """
    from boyd.cli import goal_views
    from boyd.cli.cycle_runner import next_cycle
    from boyd.cli.frozen_hint import frozen_line

    wanted = mind.wanted(goal, priority)
    mind.focus([wanted.id])
    with _resumable():
        done = next_cycle(mind)
        if done.decision is None and done.result.success and not done.is_frozen:
            # It was one that had begun before there was this goal.
            done = next_cycle(mind)
    if not output.print_data(form, done.to_wire()):
        goal_views.show_cycle(done)
        goal_views.WaitingToolView().tell(done.session.questions, done.approvals)
    if done.goal is not None and done.goal.id != wanted.id:
        output.note(f"{output.one_line(wanted.id)} waits: another goal comes first")
    if done.is_frozen:
        output.note(f"boyd: {frozen_line(mind.api, done.refusal or '')}")
    failed = done.goal is not None and done.goal.status == "Failed"
    if failed or done.refusal or not done.result.success:
        raise click.exceptions.Exit(output.FAILED)


@agent.command()
@goals_option
@cycles_option
@click.option("--fresh", is_flag=True, help="Begin a new session; the old one is kept.")
@data_lines_option
@mind_options
def run(mind: GoalsClient, goals: list[str], max_cycles: int, fresh: bool, form: str) -> None:
    """Work towards goals until none is active any more, or for so many cycles.

    The goals that are named come before all others. Exit status 1 when one of them has failed
    (without --goals: when any has), or acting is frozen.
    """
    if fresh:
        mind.begin()
    named = [mind.wanted(description).id for description in goals]
    session = mind.session()
    if named != session.focus:
        mind.focus(named)
    _run(mind, session, max_cycles, form, named)


@agent.command()
@cycles_option
@data_lines_option
@mind_options
def resume(mind: GoalsClient, max_cycles: int, form: str) -> None:
    """Go on where the session was left, with its goals, plans and memory.

    `boyd resume` is another command: it lets a paused agent go on.
    """
    from boyd.cli.goals_client import to_type

    session = mind.session()
    if not session.cycle:
        how = f"{to_type('agent run --goals …')} or {to_type('agent repl')}"
        output.stop(output.FAILED, f"there is no session to go on with: {how} begins one")
    if session.active and mind.may_act():
        output.note(f"going on after cycle {session.cycle}")
    _run(mind, session, max_cycles, form)


def _run(
    mind: GoalsClient, session: SessionState, most: int, form: str, named: Collection[str] = ()
) -> None:
    """Do cycles and show them; ends the command with 1 when a goal, or an iteration, has failed.

    Of goals only those that are *named* count, if any are.
    """
    from boyd.cli import goal_views
    from boyd.cli.cycle_runner import CycleRunner

    before = {goal.id for goal in mind.goals("Failed")}
    course = CycleRunner(mind, most, session)
    waits = goal_views.WaitingToolView()
    with _resumable():
        if form == "table":
            waits.tell(session.questions, session.waiting)
        for done in course.cycles():
            if not output.print_item(form, done.to_wire()):
                goal_views.show_step(done)
                waits.tell(done.session.questions, done.approvals)
        failed = [goal for goal in mind.goals("Failed") if goal.id not in before]
        _finish(course, form)
    for goal in failed:
        reason = f": {goal.reason}" if goal.reason else ""
        output.note(output.one_line(f"boyd: goal {goal.id} has failed{reason}"))
    counting = [goal for goal in failed if not named or goal.id in named]
    if counting or course.ending in ("failed", "frozen"):
        raise click.exceptions.Exit(output.FAILED)


def _finish(course: CycleRunner, form: str) -> None:
    """Say why there are no more cycles, and what is left."""
    from boyd.cli import goal_views

    session = course.session
    if form != "table":
        why = {"why": course.why} if course.why else {}
        output.print_item(form, {"ending": course.ending, **why, "session": session})
    say = output.say if form == "table" else output.note
    say(_ending(course))
    if course.ending in ("enough", "failed") and session.active:
        for goal in course.mind.goals("Active"):
            say(f"  {output.one_line(f'{goal.id} {goal.description}')}")
    for line in goal_views.WaitingToolView().lines(session.questions, session.waiting):
        say(f"  {line}")


def _ending(course: CycleRunner) -> str:
    from boyd.cli.frozen_hint import frozen_line
    from boyd.cli.goal_views import counts
    from boyd.cli.goals_client import to_type

    if course.ending == "done" and not course.done:
        return _nothing_active(course.session)
    after = f"after {counted(course.done, 'cycle')}"
    left = f"goals: {counts(course.session)}"
    again = f"{to_type('agent resume')} goes on"
    if course.ending == "done":
        return f"No goal is active any more {after}; {left}."
    if course.ending == "spent":
        fresh = to_type("agent run --fresh --goals …")
        return f"The session has had its {course.session.max_cycles} cycles; {fresh} begins another"
    if course.ending == "idle":
        why = f": {course.why}" if course.why else ""
        return f"Nothing can be done now, {after}{why}; {left}; {again} later."
    if course.ending == "frozen":
        frozen = frozen_line(course.mind.api, course.why or "")
        return f"{frozen}. Stopped {after}; {left}; {again}."
    return f"Stopped {after}; {left}; {again}."


def _nothing_active(session: SessionState) -> str:
    """How there would be something to do."""
    from boyd.cli.goal_views import counts
    from boyd.cli.goals_client import to_type

    ways = [f"{to_type('goals add …')} adds one"]
    if session.goals.get("Suspended"):
        ways.append(f"{to_type('goals resume ID')} takes one up again")
    return f"No goal is active ({counts(session)}): {', '.join(ways)}."


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C ends the command, and what was begun goes on."""
    from boyd.cli.goals_client import to_type

    try:
        yield
    except KeyboardInterrupt:
        resume = to_type("agent resume")
        output.note(f"A cycle that has begun goes on without this command; {resume} does the next.")
        raise click.exceptions.Exit(output.INTERRUPTED) from None


@agent.command()
@goals_option
@mind_options
def repl(mind: GoalsClient, goals: list[str]) -> None:
    """Do cycles one by one, and look at everything in between.

    Enter does a cycle, `help` lists the commands. From a pipe each line is a command, and an empty
    one a cycle; exit status 1 when one of them has failed.
    """
    from boyd.cli.repl import Repl
    from boyd.settings.process import load_settings

    for description in goals:
        mind.wanted(description)
    if not Repl(mind).run(load_settings().state_dir):
        raise click.exceptions.Exit(output.FAILED)


@agent.command()
@data_option
@mind_options
def consolidate(mind: GoalsClient, form: str) -> None:
    """Make memories of what is on the agent's mind, now."""
    from boyd.cli.goal_views import consolidated_line

    found = mind.consolidate()
    if not output.print_data(form, found):
        output.say(consolidated_line(found))


@agent.command()
@click.option("--query", required=True, callback=_text, help="Words, labels or ids.")
@click.option(
    "--top-k",
    type=Whole(1, 1000),
    default=5,
    show_default=True,
    help="How many memories to show at most.",
)
@data_option
@mind_options
def recall(mind: GoalsClient, query: str, top_k: int, form: str) -> None:
    """Show what the agent remembers about something, what fits best first."""
    from boyd.cli.goal_views import show_episodes

    found = mind.recall(query, top_k)
    if not output.print_data(form, found):
        show_episodes(found)


limit_option: Callable[[_Command], _Command] = click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=20,
    show_default=True,
    help="How many to show at most, the newest first.",
)


@agent.command()
@limit_option
@data_option
@mind_options
def memory(mind: GoalsClient, limit: int, form: str) -> None:
    """Show what is on the agent's mind: its working memory, the newest first."""
    from boyd.cli.goal_views import show_memory

    found = mind.memory(limit)
    if not output.print_data(form, found):
        show_memory(found)


@agent.command()
@limit_option
@data_option
@mind_options
def episodes(mind: GoalsClient, limit: int, form: str) -> None:
    """Show what the agent remembers for long, the newest first."""
    from boyd.cli.goal_views import show_episodes

    found = mind.episodes(limit)
    if not output.print_data(form, found):
        show_episodes(found)


@agent.command()
@data_option
@mind_options
def psyche(mind: GoalsClient, form: str) -> None:
    """Show what the agent leans to, and what its shadow forbids."""
    from boyd.cli.goal_views import show_psyche

    found = mind.psyche()
    if not output.print_data(form, found):
        show_psyche(found.psyche)


@agent.command()
@data_option
@mind_options
def sessions(mind: GoalsClient, form: str) -> None:
    """List the sessions that are kept, the one that is worked on first."""
    from boyd.cli.goal_views import show_sessions

    found = mind.sessions()
    if not output.print_data(form, found):
        show_sessions(mind, found)


@agent.command()
@session_argument()
@data_option
@mind_options
def reopen(mind: GoalsClient, session: str, form: str) -> None:
    """Go on with an older session: `boyd agent sessions` lists them.

    What was learned in the session before comes along, and that session is kept too.
    """
    id = mind.reopen(session)
    if not output.print_data(form, {"id": id}):
        output.say(f"session {id} is worked on now; {_going_on()}")


def _going_on() -> str:
    from boyd.cli.goals_client import to_type

    return f"{to_type('agent resume')} goes on"
