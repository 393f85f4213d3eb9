"""The line that shows how far a run of the tests is."""

from __future__ import annotations

import io
from typing import Any

import pytest

from progress import Progress


class Terminal(io.StringIO):
    """An output that claims to be a terminal, or not."""

    def __init__(self, live: bool) -> None:
        super().__init__()
        self._live = live

    def isatty(self) -> bool:
        """Claim it."""
        return self._live


def make_report(nodeid: str, outcome: Any = "passed", seconds: float = 1.0) -> pytest.TestReport:
    """The report of a test that was called."""
    return pytest.TestReport(
        nodeid=nodeid,
        location=("", 0, ""),
        keywords={},
        outcome=outcome,
        longrepr=None,
        when="call",
        duration=seconds,
    )


def run(progress: Progress, count: int, total: int, outcome: str = "passed") -> None:
    """Begin a run of so many tests and end some of them."""
    ids = [f"tests/unit/test_a.py::test_{number}" for number in range(total)]
    progress.pytest_xdist_node_collection_finished(ids)
    for nodeid in ids[:count]:
        progress.pytest_runtest_logreport(make_report(nodeid, outcome))
        progress.pytest_runtest_logfinish(nodeid)


@pytest.fixture
def config(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> pytest.Config:
    """A configuration without a cache: nothing is known of earlier runs."""
    monkeypatch.setattr(pytestconfig, "cache", None, raising=False)
    return pytestconfig


def test_the_line_counts_tests_and_says_how_long_it_still_takes(config: pytest.Config) -> None:
    progress = Progress(config, Terminal(live=False))
    run(progress, 50, total=100)
    line = progress.line
    progress.pytest_sessionfinish()

    assert line.startswith("50 of 100 tests, ")
    assert line.endswith(" left")


def test_a_failed_test_is_named_at_once_and_counted(config: pytest.Config) -> None:
    out = Terminal(live=False)
    progress = Progress(config, out)
    run(progress, 1, total=100, outcome="failed")
    progress.pytest_sessionfinish()

    first, last = out.getvalue().splitlines()
    assert first == "FAILED tests/unit/test_a.py::test_0"
    assert last.endswith("1 failed")


def test_on_a_terminal_the_line_is_written_over(config: pytest.Config) -> None:
    out = Terminal(live=True)
    progress = Progress(config, out)
    run(progress, 100, total=100)
    progress.pytest_sessionfinish()

    assert out.getvalue().startswith("\r\x1b[K")
    assert "100 of 100 tests" in out.getvalue()


def test_a_run_of_a_few_tests_shows_no_line(config: pytest.Config) -> None:
    out = Terminal(live=False)
    progress = Progress(config, out)
    run(progress, 3, total=3)
    progress.pytest_sessionfinish()

    assert out.getvalue() == ""
