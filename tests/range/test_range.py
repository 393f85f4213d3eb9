"""A short run over the range, and how its figures are made; `make range` does a long one."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from boyd.models import ActionResult, Compensation, EffectName, EffectVerification, ExecutionEntry
from faults import small_disk
from range.cases import COURSE, Case, make_cases
from range.judging import Figures, judge
from range.lines import Line, Step
from range.report import Report
from range.run import run_range
from range.runner import Course
from range.watch import Answers, Looks
from range.world import missing

SHORT = {
    "database": [
        Case("database", "exhausted connections", "lowers the limit", kill="look"),
        Case("database", "locked table", "terminates another session"),
    ],
    "proxy": [
        Case("proxy", "wrong config", "helps and loses a page"),
        Case("proxy", "wrong config", "reloads the wrong config"),
        Case("proxy"),
    ],
    "service": [
        Case("service", "hung service", "stops another service", kill="undone"),
        Case("service", "killed service"),
    ],
    "disk": [
        Case("disk", "full disk", "cleans another folder"),
        Case("disk", "leaked file", "restarts nothing"),
    ],
}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.long
def test_wrong_actions_on_real_services_are_noticed_and_undone_while_workers_are_killed() -> None:
    if reason := missing():
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    cases = {lane: some for lane, some in SHORT.items() if lane != "disk" or not NO_DISK}
    report = run_range(cases, 1, print)
    print(report.table)

    assert report.total.misses == []
    assert report.total.cases == sum(map(len, cases.values()))
    assert report.total.harmful >= 3
    assert report.killed > 0


NO_DISK = small_disk.missing()

#: When the case of the following tests began, and its actions did something.
BEGAN, FIRST, UNDONE, SECOND, ENDED = 100.0, 102.0, 106.0, 110.0, 120.0


def line(step: Step, execution: str, action: str, at: float) -> Line:
    return Line(step, execution, action, 1, at)


def entry(
    execution: str, action: str, verdict: EffectName, done: Compensation | None = None
) -> ExecutionEntry:
    """An entry of the ledger."""
    now = datetime.now(UTC)
    verification = EffectVerification(
        verdict=verdict, until=now + timedelta(seconds=60), ended_at=now, compensation=done
    )
    result = ActionResult(action=action, success=True, output="", duration=1)
    return ExecutionEntry(
        id=execution,
        state="succeeded",
        action=f"database:{action}",
        params={},
        target="app",
        result=result,
        verification=verification,
    )


def run_case(change: Callable[[Course], None] = lambda course: None) -> Course:
    """A case as it should go: harm is undone, and the second remedy helps; then a *change*."""
    faults = [(BEGAN + n, BEGAN + n < SECOND + 1) for n in range(21)]
    harm = [(BEGAN + n, FIRST < BEGAN + n < UNDONE + 1) for n in range(21)]
    course = Course(
        case=Case("database", "exhausted connections", "lowers the limit"),
        began=BEGAN,
        looks=Looks(Answers(faults), Answers(harm)),
        lines=[
            line("act", "loop:1", "raise_limit", FIRST),
            line("acted", "loop:1", "raise_limit", FIRST + 0.5),
            line("undo", "loop:1", "raise_limit", UNDONE),
            line("undone", "loop:1", "raise_limit", UNDONE + 0.5),
            line("act", "loop:2", "drop_sessions", SECOND),
            line("acted", "loop:2", "drop_sessions", SECOND + 0.5),
        ],
        entries=[
            entry("loop:1", "raise_limit", "worse", Compensation(state="rolled back")),
            entry("loop:2", "drop_sessions", "effective"),
        ],
        detected=True,
        over=True,
        ended=ENDED,
        recovered=SECOND + 1,
    )
    change(course)
    return course


def test_a_case_that_goes_as_it_should_misses_nothing() -> None:
    judgement = judge(run_case())

    assert (judgement.misses, judgement.untrue) == ([], [])
    assert (judgement.wrong, judgement.wrong_detected) == (1, 1)
    assert (judgement.undoable, judgement.undone) == (1, 1)
    assert (judgement.right, judgement.alarms) == (1, 0)
    assert judgement.recoveries == [SECOND + 1 - BEGAN]
    assert judgement.harm_seconds == 4


def judge_as(which: int, verdict: EffectName) -> Callable[[Course], None]:
    """The change that Boyd has another verdict."""

    def change(course: Course) -> None:
        old = course.entries[which]
        course.entries[which] = entry(old.id, old.action.partition(":")[2], verdict)

    return change


def without(*steps: str) -> Callable[[Course], None]:
    """The change that some lines are missing."""

    def change(course: Course) -> None:
        course.lines = [step_line for step_line in course.lines if step_line.step not in steps]

    return change


def again(step: Step) -> Callable[[Course], None]:
    """The change that something happens twice."""

    def change(course: Course) -> None:
        template = next(step_line for step_line in course.lines if step_line.step == step)
        course.lines.append(line(step, template.execution, template.action, template.at + 1))

    return change


def miss_fault(course: Course) -> None:
    course.detected = False


def lasting(course: Course) -> None:
    course.recovered = None


def hide_loss(course: Course) -> None:
    lost = Compensation(state="failed", detail="Outcome unknown: w0 was lost while executing it")
    course.entries[0] = entry("loop:1", "raise_limit", "worse", lost)


def healthy(course: Course) -> None:
    course.looks.faults.all = [(at, False) for at, _ in course.looks.faults.all]


def drop_entry(course: Course) -> None:
    del course.entries[1]


def elsewhere(course: Course) -> None:
    course.case = Case("database", "locked table")


def misfitting(course: Course) -> None:
    course.misfits.append("still held")


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        (judge_as(0, "effective"), "fewer than 95 % of the wrong actions were detected"),
        (judge_as(0, "no effect"), "records were untrue"),
        (judge_as(1, "no effect"), "right actions were judged otherwise"),
        (without("undo", "undone"), "harmful actions were not undone exactly once"),
        (without("act", "acted"), "records were untrue"),
        (again("undone"), "harmful actions were not undone exactly once"),
        (again("undo"), "records were untrue"),
        (again("act"), "records were untrue"),
        (miss_fault, "faults were not detected"),
        (lasting, "faults did not end"),
        (hide_loss, "people were not told of harm that stays"),
        (healthy, "actions were taken without a fault"),
        (drop_entry, "records were untrue"),
        (elsewhere, "first decisions were wrong"),
        (misfitting, "records were untrue"),
    ],
)
def test_a_case_that_goes_otherwise_is_a_miss(
    change: Callable[[Course], None], missed: str
) -> None:
    misses = judge(run_case(change)).misses

    assert any(missed in miss for miss in misses), misses


def test_an_action_on_a_fault_that_comes_between_two_looks_is_no_miss() -> None:
    def comes_back(course: Course) -> None:
        faults = course.looks.faults
        faults.all = [(at, bad and at != FIRST) for at, bad in faults.all]

    assert judge(run_case(comes_back)).misses == []


def test_the_table_tells_what_was_missed() -> None:
    report = Report()
    for change in (lambda course: None, lasting):
        course = run_case(change)
        report.add(course, judge(course))

    assert "| exhausted connections | 2 | 2 of 2 |" in report.table
    assert "MISSED: 1 faults did not end" in report.table


def test_the_same_seed_gives_the_same_cases_and_each_round_has_all() -> None:
    cases = make_cases(7, 2)

    assert cases == make_cases(7, 2)
    assert cases != make_cases(8, 2)
    for lane, faults in COURSE.items():
        kinds = 1 + sum(1 + len(mistakes) for _, mistakes in faults.values())
        assert len(cases[lane]) == 2 * kinds
        assert len({(case.fault, case.mistake) for case in cases[lane]}) == kinds


def test_figures_are_added() -> None:
    total = Figures()
    total.add(judge(run_case()))
    total.add(judge(run_case(lasting)))

    assert (total.cases, len(total.recoveries), total.harm_seconds) == (2, 1, 8)
