"""The command line, `boyd`: each command is a module; worker and api add theirs (entry points)."""

from __future__ import annotations

import sys

from boyd.cli.group import boyd
from boyd.errors import BoydError, UnknownAgent

__all__ = ["boyd", "main"]


def main() -> None:
    """Run the command that the arguments name; what goes wrong is one line and a status.

    Exit status: 0 ok, 1 error, 2 wrong usage, 4 not found, 124 timeout, 130 interrupted.
    """
    try:
        boyd(standalone_mode=True)
    except BoydError as error:
        print(f"boyd: {error}", file=sys.stderr)
        sys.exit(4 if isinstance(error, UnknownAgent) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
