"""The command line, `boyd`: each command is a module; worker and api add theirs (entry points).

Nothing is imported before Ctrl-C can end it calmly.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` takes long to import

if TYPE_CHECKING:
    from boyd.cli.group import boyd

__all__ = ["boyd", "main"]


def main() -> None:
    """Run the command that the arguments name; see `boyd.cli.running`."""
    from boyd.cli.interrupts import Importing

    with Importing():
        from boyd.cli.running import run
    sys.exit(run())


def __getattr__(name: str) -> object:
    if name == "boyd":
        from boyd.cli.group import boyd

        return boyd
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
