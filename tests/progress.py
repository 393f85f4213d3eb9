"""Shows how far a run of the tests is, the time it has taken, and about how long it still takes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

#: Seconds between two lines when nobody watches, and between two updates on a terminal.
_LINES, _UPDATES = 15.0, 1.0
#: Tests of a run below which there is nothing to show.
_FEW = 50
#: Seconds that a test takes by where it is, as long as no earlier run has said.
_USUAL = {"tests/unit/": 0.05, "tests/integration/": 1.0, "tests/faults/": 10.0}
#: Where pytest keeps the seconds that the tests of a file take on average.
_KEPT = "boyd/seconds"


class Progress:
    """Counts tests, weighs them by the time that they took in the last run, and shows a line."""

    def __init__(self, config: pytest.Config, out: TextIO) -> None:
        self._config = config
        self._out = out
        self._live = out.isatty()
        self._cache = getattr(config, "cache", None)  # absent with `-p no:cacheprovider`
        self._known: dict[str, float] = self._cache.get(_KEPT, {}) if self._cache else {}
        self._left: dict[str, float] = {}
        self._whole = 0.0
        self._tests = 0
        self._failed: set[str] = set()
        self._took: dict[str, float] = {}
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="progress")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Begin when the first process of several knows the tests."""
        self._begin(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin when this process knows the tests."""
        if not session.config.option.collectonly:
            self._begin([item.nodeid for item in session.items])

    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str] | None:
        """Show no letter for a test: the line says how many there were."""
        quiet = self._config.option.verbose <= 0 and self._running
        if not quiet or hasattr(report, "wasxfail"):
            return None
        if report.failed:
            return "failed" if report.when == "call" else "error", "", ""
        if report.skipped or report.when == "call":
            return report.outcome, "", ""
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the time of a test, and name it at once when it has failed."""
        self._took[report.nodeid] = self._took.get(report.nodeid, 0.0) + report.duration
        if report.failed and self._running and report.nodeid not in self._failed:
            self._failed.add(report.nodeid)
            self._write(f"FAILED {report.nodeid}", stays=True)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count a test."""
        self._left.pop(nodeid, None)

    def pytest_sessionfinish(self) -> None:
        """Leave the last line, and keep what the tests have taken for the next run."""
        if self._running:
            self._ended.set()
            self._ticker.join()
            self._write(self.line, stays=True)
        if self._cache and self._took:
            self._cache.set(_KEPT, {**self._known, **dict(self._averages())})

    @property
    def line(self) -> str:
        """The line that shows the progress."""
        # A test may be counted meanwhile.
        left = list(self._left.values())
        elapsed = time.monotonic() - self._began
        done = 1 - sum(left) / self._whole if self._whole else 1.0
        text = f"{self._tests - len(left)} of {self._tests} tests, {_clock(elapsed)}"
        if left and done > 0.02:
            text += f", about {_clock(elapsed / done - elapsed)} left"
        return f"{text}, {len(self._failed)} failed" if self._failed else text

    @property
    def _running(self) -> bool:
        return self._ticker.is_alive()

    def _begin(self, ids: list[str]) -> None:
        if self._tests or len(ids) < _FEW:
            return
        self._left = {nodeid: self._estimate(nodeid) for nodeid in ids}
        self._whole = sum(self._left.values())
        self._tests = len(ids)
        self._began = time.monotonic()
        self._ticker.start()

    def _estimate(self, nodeid: str) -> float:
        file = nodeid.partition("::")[0]
        usual = (seconds for folder, seconds in _USUAL.items() if nodeid.startswith(folder))
        return max(0.001, self._known.get(file, next(usual, 1.0)))

    def _averages(self) -> Iterator[tuple[str, float]]:
        files: dict[str, list[float]] = {}
        for nodeid, seconds in self._took.items():
            files.setdefault(nodeid.partition("::")[0], []).append(seconds)
        for file, took in files.items():
            yield file, round(sum(took) / len(took), 3)

    def _tick(self) -> None:
        while not self._ended.wait(_UPDATES if self._live else _LINES):
            self._write(self.line, stays=not self._live)

    def _write(self, text: str, *, stays: bool) -> None:
        end = "\n" if stays else ""
        self._out.write(f"\r\x1b[K{text}{end}" if self._live else f"{text}{end}")
        self._out.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def add_progress(config: pytest.Config) -> None:
    """Show progress, unless this process only runs tests for another one."""
    if hasattr(config, "workerinput"):
        return
    # Pytest redirects what tests write, and a thread writes while they run.
    out = os.fdopen(os.dup(sys.__stdout__.fileno()), "w") if sys.__stdout__ else sys.stdout
    config.pluginmanager.register(Progress(config, out), "progress")
