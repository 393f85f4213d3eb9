"""`boyd goals list|show|add|priority|suspend|resume|fail|why`: what an agent works towards."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from boyd.cli import output
from boyd.cli.goal_options import data_option, goal_argument, mind_options
from boyd.cli.values import Whole

if TYPE_CHECKING:
    from boyd.cli.mind import Mind
    from boyd.goals.shapes import Goal, GoalStatus

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
def list_(mind: Mind, status: str | None, form: str) -> None:
    """List the goals of the session, the one that comes first at the top."""
    from boyd.cli.mind_view import show_goals

    found = mind.goals(cast("GoalStatus | None", status))
    if not output.print_data(form, found):
        show_goals(found)


@goals.command()
@goal_argument()
@data_option
@mind_options
def show(mind: Mind, goal: str, form: str) -> None:
    """Show everything about a goal."""
    from boyd.cli.mind_view import show_goal

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
    mind: Mind,
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
def suspend(mind: Mind, goal: str, reason: str | None, form: str) -> None:
    """Let a goal rest."""
    _said(mind.suspend(goal, reason), form)


@goals.command()
@goal_argument("Suspended")
@click.option("--reason", help="Why; kept with the goal.")
@data_option
@mind_options
def resume(mind: Mind, goal: str, reason: str | None, form: str) -> None:
    """Take a goal up again that rests."""
    _said(mind.resume(goal, reason), form)


@goals.command()
@goal_argument("Active", "Suspended")
@click.option("--reason", help="Why; kept with the goal.")
@data_option
@mind_options
def fail(mind: Mind, goal: str, reason: str | None, form: str) -> None:
    """Give a goal up, and all that it was split into."""
    _said(mind.fail(goal, reason), form)


@goals.command()
@goal_argument("Active", "Suspended")
@click.argument("priority", type=click.IntRange(0, 255))
@data_option
@mind_options
def priority(mind: Mind, goal: str, priority: int, form: str) -> None:
    """Change how important a goal is: 0 to 255, more is more important."""
    changed = mind.prioritize(goal, priority)
    if not output.print_data(form, changed):
        output.say(output.one_line(f"goal {changed.id} has priority {changed.priority}"))


def _said(goal: Goal, form: str) -> None:
    from boyd.cli.mind_view import standing_line

    if not output.print_data(form, goal):
        output.say(standing_line(goal))


@goals.command()
@goal_argument()
@data_option
@mind_options
def why(mind: Mind, goal: str, form: str) -> None:
    """Show what was decided for a goal, when, and on which scores."""
    from boyd.cli.mind_view import show_why

    found = mind.why(goal)
    if not output.print_data(form, found):
        show_why(found)
