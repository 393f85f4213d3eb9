"""Reads of several things, of which one that fails or is slow hides no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from boyd.text.formatting import message_of

_K = TypeVar("_K", bound=str)
_V = TypeVar("_V")


class SeparateReads:
    """Reads things one after another, within *seconds* in all.

    Those that failed come last the next time, so that they use up the time of no others.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._failed: set[str] = set()

    def make(
        self, names: Iterable[_K], read: Callable[[_K], _V]
    ) -> tuple[dict[_K, _V], dict[_K, str]]:
        """Read each; the results, and the errors of the others, in the order of *names*.

        Raises:
            Exception: none could be read; it is the error of the first.
        """
        wanted, until = list(names), self._clock() + self._seconds
        found: dict[_K, _V] = {}
        errors: dict[_K, Exception] = {}
        for name in sorted(wanted, key=self._failed.__contains__):
            try:
                if self._clock() > until:
                    raise TimeoutError("was not asked: the others took too long")
                found[name] = read(name)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about this one only
                errors[name] = error
        self._failed = (self._failed - set(wanted)) | errors.keys()
        if errors and not found:
            raise next(iter(errors.values()))
        lost = {name: _text_of(errors[name]) for name in wanted if name in errors}
        return {name: found[name] for name in wanted if name in found}, lost


def _text_of(error: Exception) -> str:
    return message_of(error) or type(error).__name__
