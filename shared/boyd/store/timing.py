"""How patient the engine is: what becomes deadlines in Redis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """How patient the engine is, in seconds; see docs/configuration.md.

    Scripts take milliseconds: `dispatch_ms`, `lease_ms` and `patience_ms`.
    """

    dispatch: float = 2.0
    lease: float = 3.0
    patience: float = 300.0
    attempts: int = 3

    @property
    def dispatch_ms(self) -> int:
        """How long a message may take until it counts as lost."""
        return milliseconds(self.dispatch)

    @property
    def lease_ms(self) -> int:
        """How long a worker counts as alive that does not renew what it holds."""
        return milliseconds(self.lease)

    @property
    def patience_ms(self) -> int:
        """How long something waits for a worker that takes it."""
        return milliseconds(self.patience)


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, as scripts take times."""
    return int(seconds * 1000)
