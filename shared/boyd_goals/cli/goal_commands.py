"""`boyd goals …`, `boyd questions …`, `boyd graph …`: what an agent works for and knows."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click

from boyd.errors import ApiProblem
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.api_access import Api
from boyd_cli.completion import Offers
from boyd_cli.options import Whole, api_options, gives, id_argument, lines_option, output_option
from boyd_goals.cli import goal_views

if TYPE_CHECKING:
    from boyd.models import Triple
    from boyd_goals.api_models import Exported, GoalExplanation, Surroundings
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
data_option = gives("form", _form, output_option, _json)
#: The same for a stream of items.
data_lines_option = gives("form", _form, lines_option, _json)


def prints(show: Callable[[_T], None]) -> _Decorator:
    """Give a command `-o`, `--json` and the client; *show* prints the data that it returns."""

    def decorate(command: Callable[..., _T]) -> _Command:
        @data_option
        @client_options
        @functools.wraps(command)
        def run(*args: Any, form: str, **more: Any) -> None:
            data = command(*args, **more)
            if not output.print_data(form, data):
                show(data)

        return run

    return decorate


def client_argument(name: str, offers: Callable[[GoalsClient], Offers]) -> _Decorator:
    """An argument for an id or a prefix of one; completion offers *offers*."""
    return id_argument(name, lambda api: offers(_client(api)))


def goal_argument(*statuses: str) -> _Decorator:
    """The argument GOAL; completion offers goals in *statuses*, or all."""

    def goals(client: GoalsClient) -> Offers:
        all_goals = client.goals()
        return [
            (goal.id, goal.description)
            for goal in all_goals
            if goal.status in statuses or not statuses
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
    item = client.goal(goal)
    if not output.print_data(form, item):
        goal_views.show_goal(client, item)


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
def add(client: GoalsClient, description: str, **fields: Any) -> Goal:
    """Add a goal, and print its id."""
    if not description.strip():
        raise click.BadParameter("it must not be empty", param_hint="DESCRIPTION")
    return client.add(description.strip(), **fields)


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
def why(client: GoalsClient, goal: str) -> GoalExplanation:
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
    items = client.questions(answered=every)
    if not output.print_data(form, items):
        goal_views.show_questions(client, items)


@questions.command()
@client_argument("question", lambda client: [(item.id, item.text) for item in client.questions()])
@click.argument("text")
@prints(goal_views.show_answered)
def answer(client: GoalsClient, question: str, text: str) -> Question:
    """Answer a question; `-` reads the answer from standard input."""
    content = sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text
    if not content.strip():
        raise click.BadParameter("it must not be empty", param_hint="TEXT")
    return client.answer(question, content.strip())


#: The most bytes and triples of an imported file: the capacity of a graph.
_BYTES, _TRIPLES = 500_000_000, 1_000_000
#: Facts per request; fewer if the API refuses requests of that size.
_AT_ONCE = 1000
#: Descriptions of the reasons for skipping statements.
_REASONS = {
    "blank-node": "about blank nodes",
    "label": "labels of symbols",
    "language": "texts in other languages",
    "metadata": "about an agent",
    "prose": "descriptions in sentences",
    "schema": "schema definitions",
    "unfit": "with labels that are empty or too long",
}


@click.group()
def graph() -> None:
    """Import, export and search the facts that an agent knows."""


@graph.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--source", help="Where the facts come from; default: the name of the file.")
@data_option
@client_options
def import_(client: GoalsClient, file: Path, source: str | None, form: str) -> None:
    """Import the facts of a Turtle file; `-` reads standard input.

    The file is parsed here, and sent in several requests.
    """
    is_input = str(file) == "-"
    facts, skipped = _facts(_read(file), source or (None if is_input else file.name))
    added = sum(_send(client, facts[at : at + _AT_ONCE]) for at in range(0, len(facts), _AT_ONCE))
    if output.print_data(form, {"added": added, "skipped": skipped}):
        return
    duplicates = len(facts) - added
    already = f", {duplicates} known already" if duplicates > 0 else ""
    output.say(f"{counted(added, 'fact')} added{already}")
    if skipped:
        output.say(f"{counted(sum(skipped.values()), 'statement')} left out:")
        output.print_pairs(
            *((str(count), _REASONS.get(reason, reason)) for reason, count in skipped.items())
        )


def _facts(text: str, source: str | None) -> tuple[list[Triple], dict[str, int]]:
    """Parse the facts, and count the skipped statements by reason."""
    from boyd_goals.knowledge import turtle

    facts: list[Triple] = []
    skipped: Counter[str] = Counter()
    for part in turtle.parts(text):
        try:
            result = turtle.read(part, source=source, max_bytes=_BYTES, max_triples=_TRIPLES)
        except turtle.TurtleError as error:
            output.stop(output.FAILED, f"turtle: {error}")
        facts += result.triples
        skipped.update(result.skipped)
    return facts, dict(skipped)


def _send(client: GoalsClient, facts: Sequence[Triple]) -> int:
    """Send facts, in halves if they are too large, and count the new ones."""
    try:
        return client.learn(facts)
    except ApiProblem as problem:
        if problem.name != "too-large" or len(facts) == 1:
            raise
    middle = len(facts) // 2
    return _send(client, facts[:middle]) + _send(client, facts[middle:])


def _read(file: Path) -> str:
    """Read the file; exit with an error if that fails."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode()
    except OSError as error:
        output.stop(output.FAILED, f"cannot read {file}: {error.strerror}")
    except UnicodeDecodeError:
        output.stop(output.FAILED, f"cannot read {file}: it is not UTF-8")


@graph.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), required=False)
@client_options
def export(client: GoalsClient, file: Path | None) -> None:
    """Write all facts as Turtle to a new file or standard output.

    A warning says if the graph changed during the export.
    """
    if file is None or str(file) == "-":
        _copy(client.knowledge(), sys.stdout, is_terminal=output.is_terminal())
        return
    with _create(file) as target:
        _copy(client.knowledge(), target)


def _copy(parts: Iterable[Exported], target: TextIO, *, is_terminal: bool = False) -> None:
    revisions = set()
    for part in parts:
        target.write(output.clean(part.turtle) if is_terminal else part.turtle)
        revisions.add(part.revision)
    target.flush()
    if len(revisions) > 1:
        output.note(
            "boyd: the graph changed during the export: facts added or removed since then may or"
            " may not be included"
        )


@contextmanager
def _create(file: Path) -> Iterator[TextIO]:
    """Create a file; remove it again unless it is written completely."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            try:
                yield stream
            except BaseException:
                file.unlink(missing_ok=True)
                raise
    except FileExistsError:
        output.stop(output.FAILED, f"{file} already exists")
    except OSError as error:
        output.stop(output.FAILED, f"cannot write {file}: {error.strerror}")


@graph.command("show")
@click.argument("symbol")
@click.option("--limit", type=Whole(1, 500), help="Maximum number of facts in each direction.")
@prints(goal_views.show_surroundings)
def show_symbol(client: GoalsClient, symbol: str, limit: int | None) -> Surroundings:
    """Show the facts about a symbol."""
    return client.about(symbol, limit)


@graph.command()
@click.argument("query")
@click.option("--limit", type=Whole(1, 500), help="Maximum number of symbols; default 20.")
@data_option
@client_options
def search(client: GoalsClient, query: str, limit: int | None, form: str) -> None:
    """Find symbols by words, best match first."""
    symbols = client.search(query, limit)
    if output.print_data(form, symbols):
        return
    for symbol in symbols:
        output.say(output.one_line(symbol))
    if not symbols:
        output.say(f"No symbol matches {output.one_line(query)!r}.")
