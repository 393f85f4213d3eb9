"""The progress of the export of one agent's traces, held by one process at a time."""

from __future__ import annotations

from collections.abc import Mapping

from boyd.store.server.connection import pairs
from boyd.store.server.scripts import KeyedScripts, flat, milliseconds

#: Seconds after which another process takes over from one that is silent.
SILENT = 20.0
#: Seconds to remember how far the export of an agent has come.
KEEP = 30 * 86_400.0


class TraceProgress:
    """The progress of one agent's export, as fields."""

    def __init__(self, scripts: KeyedScripts) -> None:
        self._scripts = scripts

    def take(self, holder: str) -> dict[str, str] | None:
        """Take or keep the export for `SILENT` seconds; None if another process has it."""
        return self._hold(holder, {}, goes_on=False)

    def note(self, holder: str, changes: Mapping[str, str]) -> bool:
        """Note *changes*; an empty value removes a field. False: another process has taken over."""
        return self._hold(holder, changes, goes_on=True) is not None

    def release(self, holder: str) -> None:
        """Let another process take over at once."""
        self._hold(holder, {}, goes_on=True, seconds=0.0)

    def _hold(
        self, holder: str, changes: Mapping[str, str], *, goes_on: bool, seconds: float = SILENT
    ) -> dict[str, str] | None:
        outcome, fields = self._scripts.run(
            "hold_traces",
            traces=self._scripts.keys.traces,
            holder=holder,
            wait=milliseconds(seconds) if seconds else 0,
            goes_on=goes_on,
            keep=milliseconds(KEEP),
            fields=flat(changes),
        )
        return pairs(fields) if outcome == "held" else None
