"""`boyd questions list|answer`: what an agent with goals wants to know from a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from boyd.cli import output
from boyd.cli.goal_options import data_option, mind_options, question_argument

if TYPE_CHECKING:
    from boyd.cli.mind import Mind


@click.group()
def questions() -> None:
    """See what an agent with goals asks, and answer it."""


@questions.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that were answered.")
@data_option
@mind_options
def list_(mind: Mind, every: bool, form: str) -> None:
    """List the questions that wait for an answer."""
    from boyd.cli.mind_view import show_questions

    found = mind.questions(answered=every)
    if not output.print_data(form, found):
        show_questions(mind, found)


@questions.command()
@question_argument()
@click.argument("text")
@data_option
@mind_options
def answer(mind: Mind, question: str, text: str, form: str) -> None:
    """Answer a question; `-` reads the answer from standard input."""
    given = sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text
    if not given.strip():
        raise click.BadParameter("there is nothing in it", param_hint="TEXT")
    answered = mind.answer(question, given.strip())
    if not output.print_data(form, answered):
        output.say(f"question {output.one_line(answered.id)} is answered")
