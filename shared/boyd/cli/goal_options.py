"""What commands about goals share: options, arguments that a shell completes, the mind they ask.

Nothing here imports what only a command that runs needs, so that `boyd --help` stays quick.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from boyd.cli import output
from boyd.cli.connection import Api, Flags, open_api
from boyd.cli.ids import id_argument
from boyd.cli.options import api_options
from boyd.errors import BoydError
from boyd.settings import load_settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from boyd.cli.mind import Mind

_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]

#: Seconds that somebody who has pressed Tab waits at most.
_PATIENCE = 3.0
#: How many ids a shell is offered.
_OFFERED = 200


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

    def goals(mind: Mind) -> list[tuple[str, str]]:
        fitting = [one for one in mind.goals() if not statuses or one.status in statuses]
        return [(one.id, one.description) for one in fitting]

    return id_argument("goal", shell_complete=_offered(goals))


def question_argument() -> _Decorator:
    """The argument QUESTION; a shell offers those that wait for an answer."""

    def questions(mind: Mind) -> list[tuple[str, str]]:
        return [(one.id, one.text) for one in mind.questions()]

    return id_argument("question", shell_complete=_offered(questions))


def _offered(
    find: Callable[[Mind], list[tuple[str, str]]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            found = find(_mind(ctx))
        except BoydError:
            return []
        fitting = [(id, text) for id, text in found if id.startswith(incomplete)]
        return [CompletionItem(id, help=output.one_line(text)) for id, text in fitting[:_OFFERED]]

    return complete


def _mind(ctx: click.Context) -> Mind:
    """The mind that the half-typed command line means.

    Raises:
        BoydError: it means none.
    """
    from boyd.cli.mind import Mind

    given = ctx.params
    flags = Flags(*(given.get(name) for name in ("url", "key", "profile", "agent")))
    api = open_api(load_settings({}, given.get("config")), flags)
    api.agent.timeout = _PATIENCE
    return Mind(api)
