"""What comes next in an investigation: one of four things, each for a worker to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boyd.llm.conversation import Called
from boyd.llm.messages import ModelRequest
from boyd.models.investigation import Ended, Entry


@dataclass(frozen=True)
class Think:
    """Ask the model for a turn."""

    request: ModelRequest


@dataclass(frozen=True)
class Use:
    """Execute a tool, or go on with one that was begun."""

    called: Called


@dataclass(frozen=True)
class Write:
    """Write those entries, and look again."""

    entries: Sequence[Entry]


@dataclass(frozen=True)
class Over:
    """There is nothing left to do."""

    ended: Ended


Next = Think | Use | Write | Over
