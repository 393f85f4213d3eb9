"""The report of a run of pytest: failed tests, and faults that no test is to blame for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from areas import ROOT
from pytest_report import Outcome

#: Only what these runs need: the plugins that are installed take longer than the tests.
PLUGINS = ("-p", "no:cacheprovider", "-p", "xdist.plugin")
FAILING = """
import pytest

@pytest.fixture
def needed():
    raise OSError("nothing there")

@pytest.fixture
def left():
    yield
    raise OSError("not gone")

def test_passes():
    pass

def test_fails():
    assert 1 == 2, "one is not two\\nat all"

@pytest.mark.parametrize("text", ["a b", "[x]::y", "ü", "-n 3", "@file"])
def test_names(text):
    assert not text

def test_needs(needed):
    pass

def test_leaves(left):
    pass
"""


def outcome(folder: Path, code: str, *arguments: str) -> Outcome:
    """The outcome of a run over one file."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(code, encoding="utf-8")
    path = folder / "outcome.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "tests" / "pytest_report.py"), str(path)]
    done = subprocess.run(
        [*command, *PLUGINS, *arguments],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome.read(path, done.returncode)


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "2"])
def test_failures_are_taken_down_with_their_first_lines(tmp_path: Path, processes: str) -> None:
    report = outcome(tmp_path, FAILING, "--numprocesses", processes)

    assert report.ran
    assert report.code == pytest.ExitCode.TESTS_FAILED
    assert len(report.failures) == 8
    assert report.failures["test_it.py::test_fails"] == "AssertionError: one is not two"
    assert report.failures["test_it.py::test_needs"] == "OSError: nothing there"
    assert report.failures["test_it.py::test_leaves"] == "OSError: not gone"


def test_each_test_that_failed_can_be_run_again_by_its_id(tmp_path: Path) -> None:
    failures = outcome(tmp_path, FAILING, "--numprocesses", "0").failures
    again = outcome(tmp_path, FAILING, "--numprocesses", "0", *failures)

    assert again.tests == list(failures)
    assert again.failures == failures


def test_tests_that_pass_leave_nothing_to_tell(tmp_path: Path) -> None:
    report = outcome(tmp_path, "def test_passes(): pass", "--numprocesses", "0")

    assert report.ran
    assert (report.code, report.failures, report.broken) == (0, {}, [])


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "1"])
def test_tests_can_import_from_the_working_directory(tmp_path: Path, processes: str) -> None:
    code = "import os, sys\ndef test_it(): assert os.getcwd() in sys.path"

    assert outcome(tmp_path, code, "--numprocesses", processes).code == 0


@pytest.mark.long
def test_a_process_that_crashes_is_no_failure_of_a_test(tmp_path: Path) -> None:
    code = "import os\ndef test_dies(): os._exit(1)\ndef test_passes(): pass"
    report = outcome(tmp_path, code, "--numprocesses", "1")

    assert not report.ran
    assert report.failures == {}
    assert "crashed while running" in "".join(report.broken)


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_file_that_cannot_be_read_is_no_failure_of_a_test(tmp_path: Path, processes: str) -> None:
    report = outcome(tmp_path, "import nothing_like_it", "--numprocesses", processes)

    assert not report.ran
    assert "test_it.py" in "".join(report.broken)


def test_a_wrong_argument_is_no_run(tmp_path: Path) -> None:
    assert not outcome(tmp_path, "", "test_missing.py").ran


def test_a_run_that_is_killed_is_no_run(tmp_path: Path) -> None:
    code = "import os\ndef test_kills(): os.kill(os.getpid(), 9)"
    report = outcome(tmp_path, code, "--numprocesses", "0")

    assert not report.ran
    assert report.broken == ["pytest ended with -9 before its end"]
