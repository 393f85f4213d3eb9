"""CI runs the long tests that changes affect; an unstable one passes once, and is watched."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from areas import long_files
from long_tests import (
    MOST_RETRIES,
    PASSES,
    Choice,
    Clone,
    LongTests,
    State,
    Stop,
    Unstable,
    choice,
    existing,
    remember,
)
from pytest_report import Outcome

FILE = "tests/faults/test_disk.py"
TEST = f"{FILE}::test_it[a b-ü]"
OTHER = f"{FILE}::test_other"
BEFORE = Unstable(TEST, "2026-01-02", "c0ffee" * 6, "assert 1 == 2")


def failure(*tests: str) -> Outcome:
    return Outcome(1, failures=dict.fromkeys(tests, "assert 1 == 2"))


class Runs:
    """Outcomes of runs, one after the other, and what ran: more than there are outcomes passes."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.calls: list[tuple[list[str], bool]] = []
        self._outcomes = iter(outcomes)

    def __call__(self, tests: Sequence[str], alone: bool) -> Outcome:
        """The next outcome."""
        self.calls.append((list(tests), alone))
        return next(self._outcomes, Outcome(0))


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "not" / "yet")


def closing_lines(state: State, runs: Runs, *, unstable: Sequence[str] = ()) -> list[str]:
    """The closing lines of a run that passes."""
    long = LongTests(runs, state, "d00d" * 10)
    long.check([FILE], unstable)
    return long.notes


# Retries


def test_a_file_that_passes_runs_once(state: State) -> None:
    runs = Runs()

    assert closing_lines(state, runs) == []
    assert runs.calls == [([FILE], False)]


def test_a_test_that_fails_and_passes_alone_is_unstable(state: State) -> None:
    runs = Runs(failure(TEST))

    assert closing_lines(state, runs) == [f"unstable: {TEST}"]
    assert runs.calls == [([FILE], False), ([TEST], True)]
    [entry] = state.unstable.values()
    assert (entry.test, entry.commit, entry.failure) == (TEST, "d00d" * 10, "assert 1 == 2")


def test_a_test_that_fails_twice_fails_the_run_and_others_are_still_taken_down(
    state: State,
) -> None:
    runs = Runs(failure(TEST, OTHER), failure(TEST))

    with pytest.raises(Stop, match=r"failed twice: .*test_it"):
        closing_lines(state, runs)
    assert list(state.unstable) == [OTHER]


def test_a_retry_that_finds_no_test_has_not_passed(state: State) -> None:
    with pytest.raises(Stop, match="failed twice"):
        closing_lines(state, Runs(failure(TEST), Outcome(5)))


@pytest.mark.parametrize("count", [MOST_RETRIES, MOST_RETRIES + 1])
def test_many_failures_are_not_retried(state: State, count: int) -> None:
    runs = Runs(failure(*(f"{FILE}::test_{number}" for number in range(count))))

    if count <= MOST_RETRIES:
        assert len(closing_lines(state, runs)) == count
    else:
        with pytest.raises(Stop, match="6 tests failed: too many"):
            closing_lines(state, runs)
        assert len(runs.calls) == 1


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(1, failures={TEST: "x"}, broken=["gw1 crashed"]),
        Outcome(2),
        Outcome(3, failures={TEST: "x"}),
        Outcome(4),
        Outcome(-9, broken=["pytest ended with -9 before its end"]),
        Outcome(1),
    ],
)
def test_crashes_and_errors_of_collection_are_not_retried(state: State, outcome: Outcome) -> None:
    runs = Runs(outcome)

    with pytest.raises(Stop, match="nothing is retried"):
        closing_lines(state, runs)
    assert len(runs.calls) == 1


def test_nothing_chosen_runs_nothing(state: State) -> None:
    runs = Runs()
    LongTests(runs, state, "d00d").check([], [])

    assert runs.calls == []


def test_files_without_a_test_to_run_pass(state: State) -> None:
    assert closing_lines(state, Runs(Outcome(5))) == []


# Tests that were unstable before


def test_an_unstable_test_is_named_until_it_has_passed_in_three_runs(state: State) -> None:
    state.add(BEFORE)
    notes = [closing_lines(state, Runs(), unstable=list(state.unstable)) for _ in range(PASSES)]

    assert notes == [
        [f"unstable: {TEST} (passed 1 of 3 runs since)"],
        [f"unstable: {TEST} (passed 2 of 3 runs since)"],
        [f"stable again: {TEST}"],
    ]
    assert state.unstable == {}


def test_an_unstable_test_runs_whatever_has_changed(state: State) -> None:
    state.add(BEFORE)
    runs = Runs()
    LongTests(runs, state, "d00d").check(["tests/hosts/test_hosts.py"], [TEST])

    assert runs.calls == [(["tests/hosts/test_hosts.py", TEST], False)]


def test_an_unstable_test_that_fails_again_is_retried_and_restarts_its_count(state: State) -> None:
    state.add(replace(BEFORE, passes=2))

    assert closing_lines(state, Runs(failure(TEST)), unstable=[TEST]) == [f"unstable: {TEST}"]
    assert state.unstable[TEST].passes == 0
    with pytest.raises(Stop, match="failed twice"):
        closing_lines(state, Runs(failure(TEST), failure(TEST)), unstable=[TEST])


def test_an_unstable_test_that_is_gone_is_struck(state: State) -> None:
    state.add(Unstable("tests/unit/test_gone.py::test_it", "2026-01-02", "c0ffee", "x"))

    assert existing(state) == []
    assert state.unstable == {}


@pytest.mark.long
def test_only_unstable_tests_that_exist_run_again(state: State) -> None:
    file = "tests/unit/text/test_sequential_bounds.py"
    test = f"{file}::test_at_the_least_share_itself_the_error_is_as_stated"
    for name in (test, f"{file}::test_gone"):
        state.add(Unstable(name, "2026-01-02", "c0ffee", "x"))

    assert existing(state) == [test]
    assert list(state.unstable) == [test]


# What has changed


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet")
    commit(folder, "CHANGELOG.md")
    return folder


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "core.hooksPath=/none"]
    return subprocess.check_output(["git", "-C", str(folder), *identity, *words], text=True).strip()


def commit(folder: Path, name: str, text: str = "text") -> str:
    """Write a file and commit it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", name)
    return git(folder, "rev-parse", "HEAD")


def choose(place: Path, state: State, **environment: str) -> Choice:
    return choice(Clone(place), state, environment)


def test_without_a_commit_that_passed_all_run(place: Path, state: State) -> None:
    everything = choose(place, state)

    assert everything.files == long_files()
    assert "no earlier commit is known" in everything.reason


def test_after_a_pass_only_what_changed_since_counts(place: Path, state: State) -> None:
    remember(Clone(place), state, {})
    assert choose(place, state).files == []
    commit(place, FILE)
    git(place, "rm", "--quiet", "CHANGELOG.md")
    git(place, "commit", "--quiet", "--message", "gone")

    assert choose(place, state).files == [FILE, "tests/unit/project/test_docs.py"]
    assert "2 files changed since" in choose(place, state).reason


def test_a_renamed_file_counts_by_both_names(place: Path, state: State) -> None:
    remember(Clone(place), state, {})
    git(place, "mv", "CHANGELOG.md", "pictures ü.png")
    git(place, "commit", "--quiet", "--message", "renamed")

    assert Clone(place).changed(str(state.passed)) == ["CHANGELOG.md", "pictures ü.png"]
    assert "because pictures ü.png is in no area" in choose(place, state).reason


def test_uncommitted_changes_count_and_are_not_remembered(place: Path, state: State) -> None:
    remember(Clone(place), state, {})
    before = state.passed
    commit(place, "README.md")
    (place / "strange").write_text("text")
    remember(Clone(place), state, {})

    assert state.passed == before
    assert Clone(place).changed(str(before)) == ["README.md", "strange"]


def test_a_commit_that_passed_and_is_no_ancestor_does_not_count(place: Path, state: State) -> None:
    git(place, "checkout", "--quiet", "-b", "other")
    commit(place, "README.md")
    remember(Clone(place), state, {})
    git(place, "checkout", "--quiet", "-")

    assert choose(place, state).files == long_files()


def test_a_commit_that_passed_and_is_not_here_does_not_count(place: Path, state: State) -> None:
    state.remember("c0ffee00" * 5)

    assert choose(place, state).files == long_files()


def test_ci_base_comes_before_the_last_pass(place: Path, state: State) -> None:
    remember(Clone(place), state, {})
    base = commit(place, FILE)
    commit(place, "README.md")

    assert choose(place, state, CI_BASE=base).files == ["tests/unit/project/test_docs.py"]
    with pytest.raises(Stop, match="CI_BASE=nowhere is no commit of this clone"):
        choose(place, state, CI_BASE="nowhere")


def test_a_run_limited_by_ci_base_is_not_remembered_as_passed(place: Path, state: State) -> None:
    remember(Clone(place), state, {"CI_BASE": "HEAD"})
    assert state.passed is None

    remember(Clone(place), state, {"CI_BASE": "HEAD", "CI_LONG": "all"})
    assert state.passed == Clone(place).head


def test_ci_long_runs_all(place: Path, state: State) -> None:
    remember(Clone(place), state, {})

    assert choose(place, state, CI_LONG="all").files == long_files()
    with pytest.raises(Stop, match="CI_LONG=some is not known"):
        choose(place, state, CI_LONG="some")
