"""What commands about goals share: options, arguments that a shell completes, the mind they ask.

Nothing here imports what only a command that runs needs, so that `boyd --help` stays quick.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from boyd.cli import output
from boyd.cli.completing import Offers
from boyd.cli.connection import Api
from boyd.cli.ids import id_argument
from boyd.cli.options import api_options

if TYPE_CHECKING:
    pass

_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]


def mind_options(command: _Command) -> _Command:
    """Give *command* what says which API and agent are meant, and that agent's `mind`."""

    @api_options
    @functools.wraps(command)
    def wrapped(*args: Any, api: Api, **more: Any) -> Any:
        from boyd.cli.mind import Mind

        return command(*args, mind=Mind(api), **more)

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
        from boyd.cli.mind import Mind

        found = Mind(api).goals()
        fitting = [one for one in found if not statuses or one.status in statuses]
        return [(one.id, one.description) for one in fitting]

    return id_argument("goal", goals)


def session_argument() -> _Decorator:
    """The argument SESSION; a shell offers those that are kept."""

    def sessions(api: Api) -> Offers:
        from boyd.cli.mind import Mind

        return [(one.id, f"{one.cycle} cycles") for one in Mind(api).sessions()]

    return id_argument("session", sessions)


def question_argument() -> _Decorator:
    """The argument QUESTION; a shell offers those that wait for an answer."""

    def questions(api: Api) -> Offers:
        from boyd.cli.mind import Mind

        return [(one.id, one.text) for one in Mind(api).questions()]

    return id_argument("question", questions)
