"""Runs pytest, and writes to a file how the run ended and which tests failed.

`python tests/pytest_report.py outcome.json …`: the rest are arguments of pytest.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

_PARTS = ("setup", "call", "teardown")


@dataclass
class Outcome:
    """The outcome of a run of pytest.

    `failures` has the first line of each failure by the test's id; `broken` says what no test is to
    blame for: a process that crashed, or a file that cannot be read.
    """

    code: int
    tests: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, code: int) -> Self:
        """Read the file that `pytest_report.py` wrote; without it the run is broken."""
        if not path.exists():
            return cls(code, broken=[f"pytest ended with {code} before its end"])
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    @property
    def ran(self) -> bool:
        """Check that tests ran, and failed or passed by themselves."""
        return not self.broken and self.code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


class Recorder:
    """A plugin of pytest that fills an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take down the tests, unless other processes collect them."""
        self._outcome.tests = [item.nodeid for item in session.items]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take down a file that cannot be read."""
        if report.failed:
            self._outcome.broken.append(f"{report.nodeid}: {_first_line(report)}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down a failure, of a test or of what it needs."""
        if not report.failed:
            return
        if report.when in _PARTS:
            self._outcome.failures.setdefault(report.nodeid, _first_line(report))
        else:  # pytest-xdist says so when a process has crashed
            self._outcome.broken.append(f"{report.nodeid}: {_first_line(report)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take down the crash of a process that ran no test."""
        if error:
            self._outcome.broken.append(f"{node.gateway.id}: {error}")


def _first_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text: str = crash.message if crash else str(report.longrepr)
    return next(iter(text.strip().splitlines()), "")


def main() -> None:
    """Run pytest and end as it does."""
    path, *arguments = sys.argv[1:]
    # As `python -m pytest` does: processes that tests spawn import them from there.
    sys.path.insert(0, str(Path.cwd()))
    outcome = Outcome(0)
    outcome.code = int(pytest.main(arguments, plugins=[Recorder(outcome)]))
    Path(path).write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    sys.exit(outcome.code)


if __name__ == "__main__":
    main()
