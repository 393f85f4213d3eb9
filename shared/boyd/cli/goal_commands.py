"""`boyd goals list|show|add|priority|suspend|resume|fail|why`: what an agent works towards."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click

from boyd.cli import output
from boyd.cli.api_access import Api
from boyd.cli.completion import Offers
from boyd.cli.options import api_options, id_argument
from boyd.cli.parameter_types import Whole

if TYPE_CHECKING:
    from boyd.cli.goals_client import GoalsClient
    from boyd.plugins.goals.state import Goal, GoalStatus

_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]


def mind_options(command: _Command) -> _Command:
    """Give *command* what says which API and agent are meant, and that agent's `mind`."""

    @api_options
    @functools.wraps(command)
    def wrapped(*args: Any, api: Api, **more: Any) -> Any:
        from boyd.cli.goals_client import GoalsClient

        return command(*args, mind=GoalsClient(api), **more)

    return wrapped


def data_option(command: _Command) -> _Command:
    """Give *command* `-o` and `--json`, as `form`."""
    return output.output_option(_with_json(command))


def data_lines_option(command: _Command) -> _Command:
    """The same for what comes piece by piece."""
    return output.lines_option(_with_json(command))


def _with_json(command: _Command) -> _Command:
    @click.option("--json", "as_json", is_flag=True, help="The same as `-o json`.")
    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, form: str, **more: Any) -> Any:
        return command(*args, form="json" if as_json else form, **more)

    return wrapped


def goal_argument(*statuses: str) -> _Decorator:
    """The argument GOAL; a shell offers the goals of those statuses, or all."""

    def goals(api: Api) -> Offers:
        from boyd.cli.goals_client import GoalsClient

        found = GoalsClient(api).goals()
        fitting = [one for one in found if not statuses or one.status in statuses]
        return [(one.id, one.description) for one in fitting]

    return id_argument("goal", goals)


def session_argument() -> _Decorator:
    """The argument SESSION; a shell offers those that are kept."""

    def sessions(api: Api) -> Offers:
        from boyd.cli.goals_client import GoalsClient

        return [(one.id, f"{one.cycle} cycles") for one in GoalsClient(api).sessions()]

    return id_argument("session", sessions)


def question_argument() -> _Decorator:
    """The argument QUESTION; a shell offers those that wait for an answer."""

    def questions(api: Api) -> Offers:
        from boyd.cli.goals_client import GoalsClient

        return [(one.id, one.text) for one in GoalsClient(api).questions()]

    return id_argument("question", questions)


_STATUSES = ("Active", "Suspended", "Completed", "Failed")


@click.group()
def goals() -> None:
    """See and change what an agent works towards."""


@goals.command("list")
@click.option(
    "--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only goals that are so."
)
@data_option
@mind_options
def list_(mind: GoalsClient, status: str | None, form: str) -> None:
    """List the goals of the session, the one that comes first at the top."""
    from boyd.cli.goal_views import show_goals

    found = mind.goals(cast("GoalStatus | None", status))
    if not output.print_data(form, found):
        show_goals(found)


@goals.command()
@goal_argument()
@data_option
@mind_options
def show(mind: GoalsClient, goal: str, form: str) -> None:
    """Show everything about a goal."""
    from boyd.cli.goal_views import show_goal

    found = mind.goal(goal)
    if not output.print_data(form, found):
        show_goal(mind, found)


@goals.command()
@click.argument("description")
@click.option(
    "--criteria", help="What must be known for it to be achieved; default: the description."
)
@click.option("--priority", type=Whole(0, 255), help="More is more important; default 128.")
@click.option(
    "--stall-threshold",
    type=Whole(1),
    help="Cycles without progress before it is split; default: as the agent says.",
)
@data_option
@mind_options
def add(
    mind: GoalsClient,
    description: str,
    criteria: str | None,
    priority: int | None,
    stall_threshold: int | None,
    form: str,
) -> None:
    """Give the agent a goal, and print its id."""
    if not description.strip():
        raise click.BadParameter("there is nothing in it", param_hint="DESCRIPTION")
    made = mind.add(description.strip(), priority, criteria, stall_threshold)
    if not output.print_data(form, made):
        output.say(output.one_line(made.id))


@goals.command()
@goal_argument("Active")
@click.option("--reason", help="Why; kept with the goal.")
@data_option
@mind_options
def suspend(mind: GoalsClient, goal: str, reason: str | None, form: str) -> None:
    """Let a goal rest."""
    _said(mind.suspend(goal, reason), form)


@goals.command()
@goal_argument("Suspended")
@click.option("--reason", help="Why; kept with the goal.")
@data_option
@mind_options
def resume(mind: GoalsClient, goal: str, reason: str | None, form: str) -> None:
    """Take a goal up again that rests."""
    _said(mind.resume(goal, reason), form)


@goals.command()
@goal_argument("Active", "Suspended")
@click.option("--reason", help="Why; kept with the goal.")
@data_option
@mind_options
def fail(mind: GoalsClient, goal: str, reason: str | None, form: str) -> None:
    """Give a goal up, and all that it was split into."""
    _said(mind.fail(goal, reason), form)


@goals.command()
@goal_argument("Active", "Suspended")
@click.argument("priority", type=click.IntRange(0, 255))
@data_option
@mind_options
def priority(mind: GoalsClient, goal: str, priority: int, form: str) -> None:
    """Change how important a goal is: 0 to 255, more is more important."""
    changed = mind.prioritize(goal, priority)
    if not output.print_data(form, changed):
        output.say(output.one_line(f"goal {changed.id} has priority {changed.priority}"))


def _said(goal: Goal, form: str) -> None:
    from boyd.cli.goal_views import standing_line

    if not output.print_data(form, goal):
        output.say(standing_line(goal))


@goals.command()
@goal_argument()
@data_option
@mind_options
def why(mind: GoalsClient, goal: str, form: str) -> None:
    """Show what was decided for a goal, when, and on which scores."""
    from boyd.cli.goal_views import show_why

    found = mind.why(goal)
    if not output.print_data(form, found):
        show_why(found)


@click.group()
def questions() -> None:
    """See what an agent with goals asks, and answer it."""


@questions.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that were answered.")
@data_option
@mind_options
def list_questions(mind: GoalsClient, every: bool, form: str) -> None:
    """List the questions that wait for an answer."""
    from boyd.cli.goal_views import show_questions

    found = mind.questions(answered=every)
    if not output.print_data(form, found):
        show_questions(mind, found)


@questions.command()
@question_argument()
@click.argument("text")
@data_option
@mind_options
def answer(mind: GoalsClient, question: str, text: str, form: str) -> None:
    """Answer a question; `-` reads the answer from standard input."""
    given = sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text
    if not given.strip():
        raise click.BadParameter("there is nothing in it", param_hint="TEXT")
    answered = mind.answer(question, given.strip())
    if not output.print_data(form, answered):
        output.say(f"question {output.one_line(answered.id)} is answered")
