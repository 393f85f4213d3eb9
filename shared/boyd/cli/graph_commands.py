"""`boyd graph import|export|show|search`: what an agent knows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from boyd.cli import output
from boyd.cli.goal_commands import data_option, mind_options
from boyd.cli.parameter_types import Whole
from boyd.errors import ApiProblem
from boyd.formatting import counted

if TYPE_CHECKING:
    from boyd.cli.goals_client import GoalsClient
    from boyd.models import Triple
    from boyd.plugins.goals.api_models import Exported

#: The most bytes and triples of a file that is imported: as much as a graph holds.
_BYTES, _TRIPLES = 500_000_000, 1_000_000
#: How many facts are sent at once; fewer when the API takes no request of that size.
_AT_ONCE = 1000
#: What the reasons for leaving out statements mean.
_REASONS = {
    "blank-node": "about blank nodes",
    "label": "naming what they are about",
    "language": "in other languages",
    "metadata": "about an agent",
    "prose": "explaining it in sentences",
    "schema": "saying what is a class or a property",
    "unfit": "with labels that are empty or too long",
}


@click.group()
def graph() -> None:
    """See what an agent knows, give it facts, and take them along."""


@graph.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--source", help="Where the facts come from; default: the name of the file.")
@data_option
@mind_options
def import_(mind: GoalsClient, file: Path, source: str | None, form: str) -> None:
    """Take in the facts of a file in Turtle; `-` reads standard input.

    The file is read here, and its facts are sent in as many requests as it takes.
    """
    is_input = str(file) == "-"
    facts, skipped = _facts(_read(file), source or (None if is_input else file.name))
    added = sum(_learned(mind, facts[at : at + _AT_ONCE]) for at in range(0, len(facts), _AT_ONCE))
    if not output.print_data(form, {"added": added, "skipped": skipped}):
        _tell(added, len(facts), skipped)


def _facts(text: str, source: str | None) -> tuple[list[Triple], dict[str, int]]:
    """The facts of a text, and how many statements were left out for which reason."""
    from boyd.plugins.goals.knowledge import turtle

    facts: list[Triple] = []
    skipped: dict[str, int] = {}
    for part in turtle.parts(text):
        try:
            found = turtle.read(part, source=source, max_bytes=_BYTES, max_triples=_TRIPLES)
        except turtle.TurtleError as error:
            output.stop(output.FAILED, f"turtle: {error}")
        facts += found.triples
        for reason, count in found.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + count
    return facts, skipped


def _learned(mind: GoalsClient, facts: Sequence[Triple]) -> int:
    """How many of those facts are new; they are sent in halves if they are too much at once."""
    try:
        return mind.learn(facts)
    except ApiProblem as problem:
        if problem.name != "too-large" or len(facts) == 1:
            raise
    middle = len(facts) // 2
    return _learned(mind, facts[:middle]) + _learned(mind, facts[middle:])


def _tell(added: int, known: int, skipped: dict[str, int]) -> None:
    already = f", {known - added} known already" if known > added else ""
    output.say(f"{counted(added, 'fact')} added{already}")
    if skipped:
        output.say(f"{counted(sum(skipped.values()), 'statement')} left out:")
        output.print_pairs([(str(count), _REASONS.get(why, why)) for why, count in skipped.items()])


def _read(file: Path) -> str:
    """What is in the file; ends the command when that cannot be read."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode()
    except OSError as error:
        output.stop(output.FAILED, f"cannot read {file}: {error.strerror}")
    except UnicodeDecodeError:
        output.stop(output.FAILED, f"cannot read {file}: it is not UTF-8")


@graph.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), required=False)
@mind_options
def export(mind: GoalsClient, file: Path | None) -> None:
    """Write all facts in Turtle, into a new file or to standard output.

    A graph of any size is written, part by part. It says so when the graph was changed meanwhile.
    """
    if file is None or str(file) == "-":
        _copy(mind.knowledge(), sys.stdout, is_terminal=output.is_terminal())
        return
    with _made(file) as made:
        _copy(mind.knowledge(), made)


def _copy(parts: Iterable[Exported], target: TextIO, *, is_terminal: bool = False) -> None:
    revisions = set()
    for part in parts:
        target.write(output.clean(part.turtle) if is_terminal else part.turtle)
        revisions.add(part.revision)
    target.flush()
    if len(revisions) > 1:
        output.note(
            "boyd: the graph was changed meanwhile: facts that were added or removed since may be"
            " in it or not"
        )


@contextmanager
def _made(file: Path) -> Iterator[TextIO]:
    """A new file; removed again unless all of it is written."""
    try:
        with file.open("x", encoding="utf-8") as made:
            try:
                yield made
            except BaseException:
                file.unlink(missing_ok=True)
                raise
    except FileExistsError:
        output.stop(output.FAILED, f"{file} exists already")
    except OSError as error:
        output.stop(output.FAILED, f"cannot write {file}: {error.strerror}")


@graph.command()
@click.argument("symbol")
@click.option("--limit", type=Whole(1, 500), help="How many facts of each direction.")
@data_option
@mind_options
def show(mind: GoalsClient, symbol: str, limit: int | None, form: str) -> None:
    """Show what is known about a symbol."""
    from boyd.cli.goal_views import show_surroundings

    found = mind.about(symbol, limit)
    if not output.print_data(form, found):
        show_surroundings(found)


@graph.command()
@click.argument("query")
@click.option("--limit", type=Whole(1, 500), help="How many to show at most; default 20.")
@data_option
@mind_options
def search(mind: GoalsClient, query: str, limit: int | None, form: str) -> None:
    """Find symbols by the words in them, those nearest to the query first."""
    found = mind.search(query, limit)
    if output.print_data(form, found):
        return
    for symbol in found:
        output.say(output.one_line(symbol))
    if not found:
        output.say(f"No symbol has a word of {output.one_line(query)!r}.")
