"""`boyd graph import|export|show`: what an agent knows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boyd.cli import output
from boyd.cli.goal_options import data_option, mind_options
from boyd.errors import ApiProblem

if TYPE_CHECKING:
    from boyd.cli.mind import Mind


@click.group()
def graph() -> None:
    """See what an agent knows, give it facts, and take them along."""


@graph.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--source", help="Where the facts come from; default: the name of the file.")
@data_option
@mind_options
def import_(mind: Mind, file: Path, source: str | None, form: str) -> None:
    """Take in the facts of a file in Turtle; `-` reads standard input."""
    is_input = str(file) == "-"
    try:
        added = mind.learn(_read(file), source or (None if is_input else file.name))
    except ApiProblem as problem:
        if problem.name != "too-large":
            raise
        more = "split it, or raise the setting `api.max_body`"
        output.stop(output.FAILED, f"{file} is more than the API takes at once: {more}")
    if not output.print_data(form, {"added": added}):
        output.say(f"{output.count(added, 'fact')} added")


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
def export(mind: Mind, file: Path | None) -> None:
    """Write all facts in Turtle, into a new file or to standard output."""
    turtle = mind.knowledge()
    if file is None or str(file) == "-":
        output.say((output.clean(turtle) if output.is_terminal() else turtle).rstrip("\n"))
        return
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(turtle)
    except FileExistsError:
        output.stop(output.FAILED, f"{file} exists already")
    except OSError as error:
        output.stop(output.FAILED, f"cannot write {file}: {error.strerror}")


@graph.command()
@click.argument("symbol")
@click.option("--limit", type=click.IntRange(1, 5000), help="How many facts of each direction.")
@data_option
@mind_options
def show(mind: Mind, symbol: str, limit: int | None, form: str) -> None:
    """Show what is known about a symbol."""
    from boyd.cli.mind_view import show_surroundings

    found = mind.about(symbol, limit)
    if not output.print_data(form, found):
        show_surroundings(found)
