"""Figures that tests of promises come by: told at the end of a run, compared with nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

_FIGURES = pytest.StashKey[list[tuple[int, str]]]()
_MOST = pytest.StashKey[dict[tuple[int, str], tuple[float, str]]]()


class Measure:
    """Takes down what one run of the tests measures."""

    def __init__(self, config: pytest.Config) -> None:
        self._figures = config.stash.setdefault(_FIGURES, [])
        self._most = config.stash.setdefault(_MOST, {})

    def __call__(self, promise: int, figure: str) -> None:
        """Take down a figure of P1 to P18."""
        self._figures.append((promise, figure))

    def most(self, promise: int, measure: str, seconds: float, where: str) -> None:
        """Take down the longest of what several tests measure, and which of them it was."""
        longest_before = self._most.get((promise, measure), (0.0, ""))
        self._most[promise, measure] = max(longest_before, (seconds, where))

    @contextmanager
    def seconds(self, promise: int, label: str) -> Iterator[None]:
        """Take down how long the block has taken, if it comes to its end."""
        began = monotonic()
        yield
        self(promise, f"{label}: {monotonic() - began:.1f} s")

    def dump(self) -> dict[str, Any]:
        """The figures, in a form that another process can add to its own."""
        most = [(*key, *longest) for key, longest in self._most.items()]
        return {"figures": self._figures, "most": most}

    def add(self, dumped: dict[str, Any]) -> None:
        """Add what another process has taken down."""
        for promise, figure in dumped["figures"]:
            self(promise, figure)
        for measured in dumped["most"]:
            self.most(*measured)

    @property
    def lines(self) -> list[str]:
        """The figures, by promise."""
        most = [
            (promise, f"{label}: {seconds:.1f} s ({where})")
            for (promise, label), (seconds, where) in self._most.items()
        ]
        return [f"P{promise}  {figure}" for promise, figure in sorted([*self._figures, *most])]
