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


def client_options(command: _Command) -> _Command:
    """Give *command* the API options, and a client for the agent's goals as `client`."""

    @api_options
    @functools.wraps(command)
    def wrapped(*args: Any, api: Api, **more: Any) -> Any:
        from boyd.cli.goals_client import GoalsClient

        return command(*args, client=GoalsClient(api), **more)

    return wrapped


def data_option(command: _Command) -> _Command:
    """Give *command* `-o` and `--json`, as `form`."""
    return output.output_option(_with_json(command))


def data_lines_option(command: _Command) -> _Command:
    """The same for a stream of items."""
    return output.lines_option(_with_json(command))


def _with_json(command: _Command) -> _Command:
    @click.option("--json", "as_json", is_flag=True, help="Same as `-o json`.")
    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, form: str, **more: Any) -> Any:
        return command(*args, form="json" if as_json else form, **more)

    return wrapped


def goal_argument(*statuses: str) -> _Decorator:
    """The argument GOAL; completion offers goals in *statuses*, or all."""

    def goals(api: Api) -> Offers:
        from boyd.cli.goals_client import GoalsClient

        found = GoalsClient(api).goals()
        fitting = [one for one in found if not statuses or one.status in statuses]
        return [(one.id, one.description) for one in fitting]

    return id_argument("goal", goals)


def session_argument() -> _Decorator:
    """The argument SESSION; completion offers all sessions."""

    def sessions(api: Api) -> Offers:
        from boyd.cli.goals_client import GoalsClient

        return [(one.id, f"{one.cycle} cycles") for one in GoalsClient(api).sessions()]

    return id_argument("session", sessions)


def question_argument() -> _Decorator:
    """The argument QUESTION; completion offers open questions."""

    def questions(api: Api) -> Offers:
        from boyd.cli.goals_client import GoalsClient

        return [(one.id, one.text) for one in GoalsClient(api).questions()]

    return id_argument("question", questions)


_STATUSES = ("Active", "Suspended", "Completed", "Failed")


@click.group()
def goals() -> None:
    """Show and change the goals of an agent."""


@goals.command("list")
@click.option(
    "--status",
    type=click.Choice(_STATUSES, case_sensitive=False),
    help="Only goals with this status.",
)
@data_option
@client_options
def list_(client: GoalsClient, status: str | None, form: str) -> None:
    """List the goals of the session in order of precedence."""
    from boyd.cli.goal_views import show_goals

    found = client.goals(cast("GoalStatus | None", status))
    if not output.print_data(form, found):
        show_goals(found)


@goals.command()
@goal_argument()
@data_option
@client_options
def show(client: GoalsClient, goal: str, form: str) -> None:
    """Show everything about a goal."""
    from boyd.cli.goal_views import show_goal

    found = client.goal(goal)
    if not output.print_data(form, found):
        show_goal(client, found)


@goals.command()
@click.argument("description")
@click.option(
    "--criteria", help="What must be known to complete the goal; default: the description."
)
@click.option("--priority", type=Whole(0, 255), help="Higher is more important; default 128.")
@click.option(
    "--stall-threshold",
    type=Whole(1),
    help="Cycles without progress before it is split; default: the agent's setting.",
)
@data_option
@client_options
def add(
    client: GoalsClient,
    description: str,
    criteria: str | None,
    priority: int | None,
    stall_threshold: int | None,
    form: str,
) -> None:
    """Add a goal, and print its id."""
    if not description.strip():
        raise click.BadParameter("it must not be empty", param_hint="DESCRIPTION")
    made = client.add(description.strip(), priority, criteria, stall_threshold)
    if not output.print_data(form, made):
        output.say(output.one_line(made.id))


@goals.command()
@goal_argument("Active")
@click.option("--reason", help="Reason; stored with the goal.")
@data_option
@client_options
def suspend(client: GoalsClient, goal: str, reason: str | None, form: str) -> None:
    """Suspend a goal."""
    _print_goal(client.suspend(goal, reason), form)


@goals.command()
@goal_argument("Suspended")
@click.option("--reason", help="Reason; stored with the goal.")
@data_option
@client_options
def resume(client: GoalsClient, goal: str, reason: str | None, form: str) -> None:
    """Resume a suspended goal."""
    _print_goal(client.resume(goal, reason), form)


@goals.command()
@goal_argument("Active", "Suspended")
@click.option("--reason", help="Reason; stored with the goal.")
@data_option
@client_options
def fail(client: GoalsClient, goal: str, reason: str | None, form: str) -> None:
    """Mark a goal and its subgoals as failed."""
    _print_goal(client.fail(goal, reason), form)


@goals.command()
@goal_argument("Active", "Suspended")
@click.argument("priority", type=click.IntRange(0, 255))
@data_option
@client_options
def priority(client: GoalsClient, goal: str, priority: int, form: str) -> None:
    """Change the priority of a goal: 0 to 255, higher is more important."""
    changed = client.prioritize(goal, priority)
    if not output.print_data(form, changed):
        output.say(output.one_line(f"goal {changed.id} has priority {changed.priority}"))


def _print_goal(goal: Goal, form: str) -> None:
    from boyd.cli.goal_views import standing_line

    if not output.print_data(form, goal):
        output.say(standing_line(goal))


@goals.command()
@goal_argument()
@data_option
@client_options
def why(client: GoalsClient, goal: str, form: str) -> None:
    """Show the decisions made for a goal, with their scores."""
    from boyd.cli.goal_views import show_why

    found = client.why(goal)
    if not output.print_data(form, found):
        show_why(found)


@click.group()
def questions() -> None:
    """Show and answer the questions of an agent with goals."""


@questions.command("list")
@click.option("--all", "every", is_flag=True, help="Include answered questions.")
@data_option
@client_options
def list_questions(client: GoalsClient, every: bool, form: str) -> None:
    """List open questions."""
    from boyd.cli.goal_views import show_questions

    found = client.questions(answered=every)
    if not output.print_data(form, found):
        show_questions(client, found)


@questions.command()
@question_argument()
@click.argument("text")
@data_option
@client_options
def answer(client: GoalsClient, question: str, text: str, form: str) -> None:
    """Answer a question; `-` reads the answer from standard input."""
    given = sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text
    if not given.strip():
        raise click.BadParameter("it must not be empty", param_hint="TEXT")
    answered = client.answer(question, given.strip())
    if not output.print_data(form, answered):
        output.say(f"question {output.one_line(answered.id)} is answered")
