"""Runs a command, and turns what goes wrong into one line and an exit status."""

from __future__ import annotations

import sys

import click

from boyd.cli.group import boyd
from boyd.cli.interrupts import INTERRUPTED, is_interrupt
from boyd.errors import INIT_FAILED, AgentPaused, ApiProblem, BoydError, InitFailed, UnknownAgent

#: Exit statuses of errors that scripts may want to tell apart; all others are 1.
STATUS: dict[type[BoydError], int] = {UnknownAgent: 4, AgentPaused: 5, InitFailed: INIT_FAILED}


def run() -> int:
    """Run the command that the arguments name; what goes wrong is one line and a status.

    Exit status: 0 ok, 1 error, 2 usage, 3 not allowed, 4 not found, 5 conflict, 124 timeout, 130
    interrupted.
    """
    try:
        status = boyd.main(prog_name="boyd", standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BoydError as error:
        print(f"boyd: {_told(error)}", file=sys.stderr)
        return _status_of(error)
    except (Exception, KeyboardInterrupt) as error:
        if is_interrupt(error):
            return INTERRUPTED
        raise
    return status if isinstance(status, int) else 0


def _told(error: BoydError) -> str:
    if not isinstance(error, ApiProblem):
        return str(error)
    from boyd.cli.output import one_line

    if error.name != "unauthenticated":
        return one_line(str(error))
    detail = error.detail.partition(";")[0]
    return f"{one_line(detail)}; give one by --key, BOYD_API_KEY, BOYD_API_KEY_FILE or a profile"


def _status_of(error: BoydError) -> int:
    if isinstance(error, ApiProblem):
        from boyd.cli.output import status_of

        return status_of(error)
    return STATUS.get(type(error), 1)
