"""The command line, `boyd`: each command is a module; worker and api add theirs (entry points)."""

from __future__ import annotations

import sys

import click

from boyd.cli.group import boyd
from boyd.errors import AgentPaused, ApiProblem, BoydError, UnknownAgent

__all__ = ["boyd", "main"]


#: Exit statuses of errors that scripts may want to tell apart; all others are 1.
STATUS: dict[type[BoydError], int] = {UnknownAgent: 4, AgentPaused: 5}


def main() -> None:
    """Run the command that the arguments name; what goes wrong is one line and a status.

    Exit status: 0 ok, 1 error, 2 usage, 3 not allowed, 4 not found, 5 conflict, 124 timeout, 130
    interrupted.
    """
    try:
        status = boyd.main(prog_name="boyd", standalone_mode=False)
    except ApiProblem as error:
        print(f"boyd: {_told(error)}", file=sys.stderr)
        sys.exit(_status_of(error))
    except BoydError as error:
        print(f"boyd: {error}", file=sys.stderr)
        sys.exit(STATUS.get(type(error), 1))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


def _told(problem: ApiProblem) -> str:
    from boyd.cli.output import one_line

    if problem.name != "unauthenticated":
        return one_line(str(problem))
    detail = problem.detail.partition(";")[0]
    return f"{one_line(detail)}; give one by --key, BOYD_API_KEY, BOYD_API_KEY_FILE or a profile"


def _status_of(problem: ApiProblem) -> int:
    from boyd.cli.output import status_of

    return status_of(problem)
