"""Looks at a site all the time, from outside, and keeps what it saw."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from range.site import Site

#: Seconds between two looks.
PERIOD = 0.1


@dataclass
class Answers:
    """The answers to a question: when it was asked (seconds since the epoch), and if it is bad."""

    all: list[tuple[float, bool]] = field(default_factory=list)

    def any_bad(self, since: float, until: float) -> bool:
        """Check that it was bad at some time in between."""
        return any(bad for at, bad in self.all if since <= at <= until)

    def is_bad(self, until: float) -> bool:
        """Check that it was bad at the last look before that."""
        return next((bad for at, bad in reversed(self.all) if at <= until), False)

    def may_be_bad(self, time: float) -> bool:
        """Check that it was bad at the last look before that time, or at the next one.

        It may change between two looks, and an agent may see that first.
        """
        return self.is_bad(time) or next((bad for at, bad in self.all if at > time), False)

    def good_since(self) -> float | None:
        """The time since when it has been good, if it is."""
        since = None
        for at, bad in reversed(self.all):
            if bad:
                break
            since = at
        return since

    def changes(self) -> list[tuple[float, bool]]:
        """The first answer, and each one that differs from that before."""
        before = [None, *(bad for _, bad in self.all)]
        return [(at, bad) for (at, bad), was in zip(self.all, before, strict=False) if bad != was]

    def bad_for(self) -> float:
        """Seconds for which it was bad."""
        pairs = itertools.pairwise(self.all)
        return sum(later - at for (at, bad), (later, _) in pairs if bad)


@dataclass
class Looks:
    """The truth about a case: when there was a fault, and when there was harm."""

    faults: Answers = field(default_factory=Answers)
    harm: Answers = field(default_factory=Answers)

    def good_since(self) -> float | None:
        """The time since when there has been neither, if that is so."""
        faults, harm = self.faults.good_since(), self.harm.good_since()
        return None if faults is None or harm is None else max(faults, harm)


class Watch:
    """Two threads: one asks whether there is a fault, the other one whether there is harm."""

    def __init__(self, site: Site) -> None:
        self.looks = Looks()
        self._over = threading.Event()
        questions = ((self.looks.faults, site.is_faulty), (self.looks.harm, site.is_harmed))
        self._threads = [
            threading.Thread(target=self._ask, args=watch, daemon=True) for watch in questions
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End it."""
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self, answers: Answers, is_bad: Callable[[], bool]) -> None:
        while not self._over.is_set():
            at = time.time()
            answers.all.append((at, is_bad()))
            self._over.wait(PERIOD)
