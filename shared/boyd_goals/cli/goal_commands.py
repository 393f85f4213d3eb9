"""`boyd goals list|show|add|priority|suspend|resume|fail|why`: what an agent works towards."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from boyd_cli import output
from boyd_cli.api_access import Api
from boyd_cli.completion import Offers
from boyd_cli.options import api_options, gives, id_argument
from boyd_cli.parameter_types import Whole
from boyd_goals.cli import goal_views

if TYPE_CHECKING:
    from boyd_goals.api_models import Why
    from boyd_goals.cli.goals_client import GoalsClient
    from boyd_goals.state import Goal, GoalStatus, Question

_T = TypeVar("_T")
_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]


def _client(api: Api) -> GoalsClient:
    from boyd_goals.cli.goals_client import GoalsClient

    return GoalsClient(api)


def _form(form: str, as_json: bool) -> str:
    return "json" if as_json else form


#: The API options, and a client for the agent's goals as `client`.
client_options = gives("client", _client, api_options)
_json = click.option("--json", "as_json", is_flag=True, help="Same as `-o json`.")
#: `-o` and `--json`, as `form`.
data_option = gives("form", _form, output.output_option, _json)
#: The same for a stream of items.
data_lines_option = gives("form", _form, output.lines_option, _json)


def prints(show: Callable[[_T], None]) -> _Decorator:
    """Give a command `-o`, `--json` and the client; *show* prints the data that it returns."""

    def decorate(command: Callable[..., _T]) -> _Command:
        @data_option
        @client_options
        @functools.wraps(command)
        def wrapped(*args: Any, form: str, **more: Any) -> None:
            found = command(*args, **more)
            if not output.print_data(form, found):
                show(found)

        return wrapped

    return decorate


def client_argument(name: str, offers: Callable[[GoalsClient], Offers]) -> _Decorator:
    """An argument for an id or a prefix of one; completion offers *offers*."""
    return id_argument(name, lambda api: offers(_client(api)))


def goal_argument(*statuses: str) -> _Decorator:
    """The argument GOAL; completion offers goals in *statuses*, or all."""

    def goals(client: GoalsClient) -> Offers:
        found = client.goals()
        return [
            (one.id, one.description) for one in found if one.status in statuses or not statuses
        ]

    return client_argument("goal", goals)


reason_option = click.option("--reason", help="Reason; stored with the goal.")


@click.group()
def goals() -> None:
    """Show and change the goals of an agent."""


@goals.command("list")
@click.option(
    "--status",
    type=click.Choice(goal_views.STATUSES, case_sensitive=False),
    help="Only goals with this status.",
)
@prints(goal_views.show_goals)
def list_(client: GoalsClient, status: str | None) -> list[Goal]:
    """List the goals of the session in order of precedence."""
    return client.goals(cast("GoalStatus | None", status))


@goals.command()
@goal_argument()
@data_option
@client_options
def show(client: GoalsClient, goal: str, form: str) -> None:
    """Show everything about a goal."""
    found = client.goal(goal)
    if not output.print_data(form, found):
        goal_views.show_goal(client, found)


@goals.command()
@click.argument("description")
@click.option(
    "--criteria", help="What a step must find out to complete it; default: the description."
)
@click.option("--priority", type=Whole(0, 255), help="Higher is more important; default 128.")
@click.option(
    "--stall-threshold",
    type=Whole(1),
    help="Cycles without progress before it is split; default: the agent's setting.",
)
@prints(goal_views.show_id)
def add(client: GoalsClient, description: str, **wanted: Any) -> Goal:
    """Add a goal, and print its id."""
    if not description.strip():
        raise click.BadParameter("it must not be empty", param_hint="DESCRIPTION")
    return client.add(description.strip(), **wanted)


@goals.command()
@goal_argument("Active")
@reason_option
@prints(goal_views.show_standing)
def suspend(client: GoalsClient, goal: str, reason: str | None) -> Goal:
    """Suspend a goal."""
    return client.change("suspend", goal, reason)


@goals.command()
@goal_argument("Suspended")
@reason_option
@prints(goal_views.show_standing)
def resume(client: GoalsClient, goal: str, reason: str | None) -> Goal:
    """Resume a suspended goal."""
    return client.change("resume", goal, reason)


@goals.command()
@goal_argument("Active", "Suspended")
@reason_option
@prints(goal_views.show_standing)
def fail(client: GoalsClient, goal: str, reason: str | None) -> Goal:
    """Mark a goal and its subgoals as failed."""
    return client.change("fail", goal, reason)


@goals.command()
@goal_argument("Active", "Suspended")
@click.argument("priority", type=click.IntRange(0, 255))
@prints(goal_views.show_priority)
def priority(client: GoalsClient, goal: str, priority: int) -> Goal:
    """Change the priority of a goal: 0 to 255, higher is more important."""
    return client.prioritize(goal, priority)


@goals.command()
@goal_argument()
@prints(goal_views.show_why)
def why(client: GoalsClient, goal: str) -> Why:
    """Show the decisions made for a goal, with their scores."""
    return client.why(goal)


@click.group()
def questions() -> None:
    """Show and answer the questions of an agent with goals."""


@questions.command("list")
@click.option("--all", "every", is_flag=True, help="Include answered questions.")
@data_option
@client_options
def list_questions(client: GoalsClient, every: bool, form: str) -> None:
    """List open questions."""
    found = client.questions(answered=every)
    if not output.print_data(form, found):
        goal_views.show_questions(client, found)


@questions.command()
@client_argument("question", lambda client: [(one.id, one.text) for one in client.questions()])
@click.argument("text")
@prints(goal_views.show_answered)
def answer(client: GoalsClient, question: str, text: str) -> Question:
    """Answer a question; `-` reads the answer from standard input."""
    given = sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text
    if not given.strip():
        raise click.BadParameter("it must not be empty", param_hint="TEXT")
    return client.answer(question, given.strip())
