"""Runs the long tests that a change can affect, and tells unstable tests from broken ones.

`.ci/run` calls it as its last step, and with `--remember` when everything has passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from areas import ROOT, affects, long_files, unassigned
from pytest_report import Outcome

#: Failures above which chance is no explanation, and none is retried.
MOST_RETRIES = 5
#: Runs in a row that an unstable test has to pass.
PASSES = 3

#: Runs tests, all side by side or alone in one process.
Runner = Callable[[Sequence[str], bool], Outcome]


class Stop(Exception):
    """CI fails, and why."""


@dataclass(frozen=True)
class Unstable:
    """A test that failed, and passed when it was run again alone."""

    test: str
    date: str
    commit: str
    failure: str
    passes: int = 0

    def __str__(self) -> str:
        return f"{self.test} ({self.date}, {self.commit[:10]}: {self.failure})"


class State:
    """The memory of CI on this machine between two runs."""

    def __init__(self, folder: Path) -> None:
        self._passed = folder / "passed"
        self.list = folder / "unstable"

    @property
    def passed(self) -> str | None:
        """The last commit of which everything passed."""
        return self._passed.read_text().strip() if self._passed.exists() else None

    def remember(self, commit: str) -> None:
        """Take down that everything passed."""
        self._write(self._passed, f"{commit}\n")

    @property
    def unstable(self) -> dict[str, Unstable]:
        """The tests that were unstable, by their ids."""
        lines = self.list.read_text(encoding="utf-8").splitlines() if self.list.exists() else []
        entries = [Unstable(**json.loads(line)) for line in lines]
        return {entry.test: entry for entry in entries}

    def add(self, entry: Unstable) -> None:
        """Put a test on the list."""
        self._keep({**self.unstable, entry.test: entry})

    def strike(self, test: str) -> None:
        """Take a test off the list."""
        self._keep({name: entry for name, entry in self.unstable.items() if name != test})

    def _keep(self, entries: Mapping[str, Unstable]) -> None:
        lines = [json.dumps(asdict(entry), ensure_ascii=False) for entry in entries.values()]
        self._write(self.list, "".join(f"{line}\n" for line in lines))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)


class Clone:
    """The Git repository that holds the project."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self._git("rev-parse", "HEAD").strip()

    @property
    def number(self) -> int:
        """The number of commits up to the one that is checked out."""
        return int(self._git("rev-list", "--count", "HEAD"))

    @property
    def clean(self) -> bool:
        """Check that the files are those of the commit."""
        return not self._git("status", "--porcelain")

    def commit(self, name: str) -> str | None:
        """The commit of that name, if there is one here."""
        result = self._call("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return result.stdout.strip() if result.returncode == 0 else None

    def descends_from(self, commit: str) -> bool:
        """Check that the commit that is checked out is later than another one."""
        return self._call("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0

    def changed(self, base: str) -> list[str]:
        """The files that differ from a commit, those that are gone or in no commit among them."""
        differing = self._git("diff", "--name-only", "--no-renames", "-z", base)
        fresh = self._git("ls-files", "--others", "--exclude-standard", "-z")
        return [path for path in (differing + fresh).split("\0") if path]

    def _git(self, *words: str) -> str:
        done = self._call(*words)
        if done.returncode != 0:
            raise Stop(f"git {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(self._root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Choice:
    """The files whose long tests run, and the reason."""

    files: Sequence[str]
    reason: str


def choice(clone: Clone, state: State, environment: Mapping[str, str]) -> Choice:
    """The files whose long tests the changes since the base can affect."""
    match environment.get("CI_LONG", ""):
        case "all":
            return Choice(long_files(), "all long tests, because of CI_LONG=all")
        case "":
            base = _base(clone, state, environment.get("CI_BASE", ""))
        case other:
            raise Stop(f"CI_LONG={other} is not known: it is empty or `all`")
    if base is None:
        return Choice(long_files(), "all long tests, because no earlier commit is known to pass")
    return _choice_since(base, clone.changed(base))


def _base(clone: Clone, state: State, name: str) -> str | None:
    """The commit to compare with: one that was named, or the last that passed before this one."""
    if name:
        commit = clone.commit(name)
        if commit is None:
            raise Stop(f"CI_BASE={name} is no commit of this clone: fetch it, or unset CI_BASE")
        return commit
    passed = state.passed and clone.commit(state.passed)
    return passed if passed and clone.descends_from(passed) else None


def _choice_since(base: str, changed: Sequence[str]) -> Choice:
    since = f"{len(changed)} files changed since {base[:10]}"
    if strange := unassigned(changed):
        return Choice(long_files(), f"all long tests, because {strange[0]} is in no area ({since})")
    files = affects(changed)
    some = f"the long tests of {len(files)} files of {len(long_files())}" if files else "none"
    return Choice(files, f"{some} ({since})")


@dataclass
class LongTests:
    """One run of long tests; `notes` are its closing lines."""

    run: Runner
    state: State
    commit: str
    notes: list[str] = field(default_factory=list)

    def check(self, files: Sequence[str], unstable: Sequence[str]) -> None:
        """Run the long tests of the files, and those that were unstable; raise if one is broken."""
        others = [test for test in unstable if test.partition("::")[0] not in files]
        if not files and not others:
            return
        outcome = self.run([*files, *others], False)
        if outcome.code != pytest.ExitCode.NO_TESTS_COLLECTED:
            self._judge(outcome)
        for test in unstable:
            if test not in outcome.failures:
                self._watch(test)

    def _judge(self, outcome: Outcome) -> None:
        if not outcome.ran:
            raise Stop(f"nothing is retried: {'; '.join(outcome.broken) or 'pytest failed'}")
        if outcome.code and not outcome.failures:
            raise Stop("nothing is retried: pytest failed, but no test did")
        if len(outcome.failures) > MOST_RETRIES:
            raise Stop(f"{len(outcome.failures)} tests failed: too many to retry")
        broken = [test for test, line in outcome.failures.items() if not self._passes(test, line)]
        if broken:
            raise Stop(f"failed twice: {', '.join(broken)}")

    def _passes(self, test: str, failure: str) -> bool:
        """Run a failed test alone; one that passes then is unstable."""
        print(f"\n-- again, alone: {test}", flush=True)
        if self.run([test], True).code != pytest.ExitCode.OK:
            return False
        self.state.add(Unstable(test, f"{datetime.now(UTC):%Y-%m-%d}", self.commit, failure))
        self.notes.append(f"unstable: {test}")
        return True

    def _watch(self, test: str) -> None:
        """Count a pass of an unstable test, and strike it when it has passed often enough."""
        entry = self.state.unstable[test]
        passes = entry.passes + 1
        if passes == PASSES:
            self.state.strike(test)
            self.notes.append(f"stable again: {test}")
        else:
            self.state.add(replace(entry, passes=passes))
            self.notes.append(f"unstable: {test} (passed {passes} of {PASSES} runs since)")


def existing(state: State) -> list[str]:
    """The tests on the list that still exist; the others are struck from it."""
    entries = state.unstable
    files = {test.partition("::")[0] for test in entries} & set(long_files())
    there = set(collect(sorted(files))) if files else set()
    for test in entries.keys() - there:
        state.strike(test)
    return [test for test in entries if test in there]


def collect(files: Sequence[str]) -> list[str]:
    """The ids of the long tests of files."""
    outcome = pytest_outcome([*_ALONE, "--collect-only", "--quiet", "--quiet", *files])
    if outcome.broken:
        raise Stop("; ".join(outcome.broken))
    return outcome.tests


_LONG = ("-m", "long", "--durations", "10")
_ALONE = (*_LONG, "--numprocesses", "0")


def run(tests: Sequence[str], alone: bool) -> Outcome:
    """Run tests as `make test-all` does, or in one process."""
    processes = os.environ.get("PROCESSES", "5")
    return pytest_outcome(
        [*(_ALONE if alone else (*_LONG, "--numprocesses", processes)), *tests],
    )


def pytest_outcome(arguments: Sequence[str]) -> Outcome:
    """Run pytest in a process of its own."""
    # Compiled modules are kept, whatever the environment says: tests start hundreds of processes.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcome.json")
        command = [sys.executable, str(ROOT / "tests" / "pytest_report.py"), str(path), *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        return Outcome.read(path, done.returncode)


def check(clone: Clone, state: State, closing: Path) -> None:
    """Run what there is to run, and write the closing lines."""
    for entry in state.unstable.values():
        print(f"unstable before: {entry}")
    chosen = choice(clone, state, os.environ)
    print(f"chosen: {chosen.reason}", flush=True)
    long = LongTests(run, state, clone.head, [f"long tests: {chosen.reason}"])
    try:
        long.check(chosen.files, existing(state))
    except Stop as stop:
        long.notes.append(f"failed: {stop}")
        raise
    finally:
        closing.write_text("".join(f"{line}\n" for line in long.notes), encoding="utf-8")


def remember(clone: Clone, state: State, environment: Mapping[str, str]) -> None:
    """Take down that everything passed, if the next run can rely on it."""
    narrowed = environment.get("CI_BASE") and environment.get("CI_LONG") != "all"
    # What changed before CI_BASE may never have been tested here, nor what is in no commit.
    if not narrowed and clone.clean:
        state.remember(clone.head)


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", type=Path, help="the folder that CI remembers things in")
    parser.add_argument(
        "--closing", type=Path, default=os.devnull, help="a file for what to say last"
    )
    parser.add_argument("--remember", action="store_true", help="everything has passed")
    options = parser.parse_args()
    clone, state = Clone(), State(options.state)
    try:
        if options.remember:
            remember(clone, state, os.environ)
        else:
            check(clone, state, options.closing)
    except Stop as stop:
        sys.exit(f"long tests: {stop}")


if __name__ == "__main__":
    main()
