"""A real thing that the range breaks, seen from outside, as its users see it.

Nothing here asks Boyd, nor the code with which its agents look at the same things.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import ClassVar

from harness import wait_until
from range.layout import Layout, status


class Site:
    """Something that can be broken, and something beside it that must not suffer."""

    lane: ClassVar[str] = ""

    def __init__(self, layout: Layout, seed: int) -> None:
        self.layout = layout
        self.dice = random.Random(f"{seed}/{self.lane}")

    def start(self) -> None:
        """Make everything work."""

    def stop(self) -> None:
        """End everything."""

    def begin(self) -> None:
        """Take down how things are before a case."""

    def inject(self, fault: str) -> None:
        """Break something."""
        raise NotImplementedError

    def disturb(self) -> None:
        """Do something unusual that is no fault."""
        raise NotImplementedError

    def is_faulty(self) -> bool:
        """Check for a fault that its users notice."""
        raise NotImplementedError

    def is_harmed(self) -> bool:
        """Check for harm to something beside it."""
        raise NotImplementedError

    def repair(self) -> None:
        """Mend what suffers beside it, as a person does."""
        raise NotImplementedError

    def reset(self) -> None:
        """Make everything as it was."""
        raise NotImplementedError

    def exceeds_rollbacks(self, undone: int, acted: int) -> bool:
        """Check for more rollbacks in this case than *undone*.

        The first remedy *acted* so many times, of which only the first time can be undone.
        """
        return False


def start_service(layout: Layout, name: str) -> None:
    """Start a service again, and wait until it answers."""
    layout.supervised(name).restart()
    wait_until(lambda: status(layout.url(name)))


def kill_service(layout: Layout, name: str) -> None:
    """Kill a service, if it runs."""
    with suppress(ProcessLookupError):
        layout.supervised(name).send("KILL")
