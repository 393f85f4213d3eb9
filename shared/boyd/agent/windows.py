"""The windows of an agent: whether each is open, why not, and when it opens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from boyd.agent.change_calendar import CalendarError, ChangeCalendar, ChangeFreeze
from boyd.settings.permissions import Window, named

#: Times at which a window opens by its hours but is closed by a freeze, that are looked at.
_MOST = 100


@dataclass(frozen=True)
class WindowState:
    """A window of an action: why it is closed, if it is, and whether the action then waits."""

    name: str
    closed: str | None = None
    waits: bool = False


class AgentWindows:
    """The windows of one agent, with their calendars."""

    def __init__(self, windows: list[Window], folder: Path) -> None:
        """Paths of calendars are relative to *folder*."""
        self._windows = windows
        self._calendars = {
            (window.freezes, window.timezone): ChangeCalendar(
                folder / window.freezes, window.timezone
            )
            for window in windows
            if window.freezes
        }

    def of(self, action: str) -> Iterator[tuple[str, Window]]:
        """The windows of an action by their places in the settings."""
        for number, window in enumerate(self._windows):
            if named(window.actions, action):
                yield f"windows.{number}", window

    @property
    def calendars(self) -> list[Path]:
        """The files with change freezes."""
        return [calendar.path for calendar in self._calendars.values()]

    def problems(self) -> Iterator[str]:
        """The calendars that cannot be read now, and why."""
        for calendar in self._calendars.values():
            try:
                calendar.check()
            except CalendarError as error:
                yield f"change freezes: {error}; actions in their windows need a person"

    def state(self, name: str, window: Window, now: datetime) -> WindowState:
        """The state of a window.

        Raises:
            CalendarError: its calendar cannot be read.
        """
        try:
            why = self._why_closed(window, now)
            if why is None:
                return WindowState(name)
            opening = self._opening(window, now)
        except CalendarError as error:
            raise CalendarError(f"window {name!r} is closed: {error}") from None
        opens = f"it opens {_local(opening, window)}" if opening else "its opening is not in sight"
        reason = f"window {name!r} is closed: {why}; {opens}"
        return WindowState(name, reason, window.outside == "wait")

    def _why_closed(self, window: Window, now: datetime) -> str | None:
        freeze = self._freeze(window, now)
        if freeze:
            return f"change freeze {freeze.title!r} until {_local(freeze.until, window)}"
        return None if window.is_open(now) else "outside its hours"

    def _opening(self, window: Window, now: datetime) -> datetime | None:
        """The next time at which a closed window is open; None: not in sight."""
        at: datetime | None = now
        for _ in range(_MOST):
            if at is not None and not window.is_open(at):
                at = window.opens(at)
            if at is None:
                return None
            freeze = self._freeze(window, at)
            if freeze is None:
                return at
            at = freeze.until
        return None

    def _freeze(self, window: Window, at: datetime) -> ChangeFreeze | None:
        if window.freezes is None:
            return None
        return self._calendars[window.freezes, window.timezone].freeze(at)


def _local(at: datetime, window: Window) -> str:
    """A time as people in the window's zone write it, in full minutes."""
    full = at + timedelta(seconds=-at.second % 60)
    return f"{full.astimezone(ZoneInfo(window.timezone)):%Y-%m-%d %H:%M} {window.timezone}"
