"""`boyd graph import|export|show|search`: the facts that an agent knows."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from boyd.errors import ApiProblem
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.parameter_types import Whole
from boyd_goals.cli import goal_views
from boyd_goals.cli.goal_commands import client_options, data_option, prints

if TYPE_CHECKING:
    from boyd.models import Triple
    from boyd_goals.api_models import Exported, Surroundings
    from boyd_goals.cli.goals_client import GoalsClient

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
    known = len(facts) - added
    already = f", {known} known already" if known > 0 else ""
    output.say(f"{counted(added, 'fact')} added{already}")
    if skipped:
        output.say(f"{counted(sum(skipped.values()), 'statement')} left out:")
        output.print_pairs(
            *((str(count), _REASONS.get(why, why)) for why, count in skipped.items())
        )


def _facts(text: str, source: str | None) -> tuple[list[Triple], dict[str, int]]:
    """Parse the facts, and count the skipped statements by reason."""
    from boyd_goals.knowledge import turtle

    facts: list[Triple] = []
    skipped: Counter[str] = Counter()
    for part in turtle.parts(text):
        try:
            found = turtle.read(part, source=source, max_bytes=_BYTES, max_triples=_TRIPLES)
        except turtle.TurtleError as error:
            output.stop(output.FAILED, f"turtle: {error}")
        facts += found.triples
        skipped.update(found.skipped)
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
    with _create(file) as made:
        _copy(client.knowledge(), made)


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
        with file.open("x", encoding="utf-8") as made:
            try:
                yield made
            except BaseException:
                file.unlink(missing_ok=True)
                raise
    except FileExistsError:
        output.stop(output.FAILED, f"{file} already exists")
    except OSError as error:
        output.stop(output.FAILED, f"cannot write {file}: {error.strerror}")


@graph.command()
@click.argument("symbol")
@click.option("--limit", type=Whole(1, 500), help="Maximum number of facts in each direction.")
@prints(goal_views.show_surroundings)
def show(client: GoalsClient, symbol: str, limit: int | None) -> Surroundings:
    """Show the facts about a symbol."""
    return client.about(symbol, limit)


@graph.command()
@click.argument("query")
@click.option("--limit", type=Whole(1, 500), help="Maximum number of symbols; default 20.")
@data_option
@client_options
def search(client: GoalsClient, query: str, limit: int | None, form: str) -> None:
    """Find symbols by words, best match first."""
    found = client.search(query, limit)
    if output.print_data(form, found):
        return
    for symbol in found:
        output.say(output.one_line(symbol))
    if not found:
        output.say(f"No symbol matches {output.one_line(query)!r}.")
