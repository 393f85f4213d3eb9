"""Figures that tests of promises come by: told at the end of a run, compared with nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

_FIGURES = pytest.StashKey[list[tuple[int, str]]]()


class Measure:
    """Takes down what one run of the tests measures."""

    def __init__(self, config: pytest.Config) -> None:
        self._figures = config.stash.setdefault(_FIGURES, [])

    def __call__(self, promise: int, figure: str) -> None:
        """Take down a figure of P1 to P18."""
        self._figures.append((promise, figure))

    @contextmanager
    def seconds(self, promise: int, what: str) -> Iterator[None]:
        """Take down how long the block has taken, if it comes to its end."""
        began = monotonic()
        yield
        self(promise, f"{what}: {monotonic() - began:.1f} s")

    @property
    def lines(self) -> list[str]:
        """What was taken down, by promise."""
        return [f"P{promise}  {figure}" for promise, figure in sorted(self._figures)]
