"""Calls side by side, of which one that hangs holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from boyd.plugin.plugin_boundary import contain

_T = TypeVar("_T")


class Hangs(Exception):
    """A call has not returned in time."""


class StillHangs(Hangs):
    """An earlier call of that name has not returned yet."""


@dataclass(frozen=True)
class BoundedCall(Generic[_T]):
    """A function, and the seconds in which it should return."""

    function: Callable[[], _T]
    seconds: float


class _Running(Generic[_T]):
    """A call in a thread of its own."""

    def __init__(self, name: str, call: BoundedCall[_T]) -> None:
        self._call = call
        self._outcome: list[_T | Exception] = []
        self._deadline = time.monotonic() + call.seconds
        self.thread = threading.Thread(target=self._run, name=f"bounded {name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(contain(self._call.function))
        except Exception as error:  # noqa: BLE001 - an outcome like any other
            self._outcome.append(error)

    def wait(self) -> _T | Exception:
        """The answer or the error, when it is there or the time is over."""
        self.thread.join(max(0.0, self._deadline - time.monotonic()))
        if self._outcome:
            return self._outcome[0]
        return Hangs(f"no answer within {self._call.seconds:g} s")


class BoundedCalls:
    """Makes calls side by side, each within its own time.

    Python cannot stop a thread. A call that hangs, such as one to a dead NFS server, keeps its
    thread; the next call of that name fails at once until that thread has ended, so there is never
    more than one of it.
    """

    def __init__(self) -> None:
        self._hanging: dict[str, threading.Thread] = {}

    def make(self, calls: Mapping[str, BoundedCall[_T]]) -> dict[str, _T | Exception]:
        """The answer of each call, or its error; `Hangs` for one that does not return."""
        running = {name: _Running(name, call) for name, call in calls.items() if self._free(name)}
        outcomes: dict[str, _T | Exception] = {}
        for name in calls:
            if name not in running:
                outcomes[name] = StillHangs("the previous call still hangs")
                continue
            outcomes[name] = running[name].wait()
            if isinstance(outcomes[name], Hangs):
                self._hanging[name] = running[name].thread
        return outcomes

    def _free(self, name: str) -> bool:
        thread = self._hanging.get(name)
        return thread is None or not thread.is_alive()
