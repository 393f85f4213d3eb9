"""docs/protocol.md is what the code does: its scripts, states, fences, settings and bounds."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from boyd.models import ExecutionEntry, JobExecution, approval, effect, loop, procedure, run
from boyd.runtime import sweeper
from boyd.runtime.engine import EngineSettings
from boyd.settings.process_settings import TimingSettings
from boyd.store import fleet, throttle
from boyd.store.server.scripts import source_of
from lua_scripts import NAMES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}
#: The mark of a property that no test shows.
NOT_TESTED = "**not tested**"
WRITES = re.compile(
    r"redis\.p?call\('(?:HSET|HSETNX|HDEL|HINCRBY|SET|DEL|ZADD|ZREM|ZREMRANGEBYSCORE|SADD|SREM"
    r"|RPUSH|LPOP|LTRIM|XADD|XDEL|XTRIM|PEXPIRE|PERSIST|RENAME|GETDEL)'"
)
#: It includes a function that stores fields, and does not call it.
READS = {"read_hashes"}
ACTORS = {"worker", "sweeper", "beat", "API", "exporter"}
#: The annotation of each list of states, by its name on the page.
STATE_LISTS: dict[str, Any] = {
    "Phase": loop.Phase,
    "JobExecution.state": JobExecution.model_fields["state"].annotation,
    "ExecutionEntry.state": ExecutionEntry.model_fields["state"].annotation,
    "EffectName": effect.EffectName,
    "ApprovalStatus": approval.ApprovalStatus,
    "ProcedureState": procedure.ProcedureState,
    "StepState": procedure.StepState,
    "StepCompensationState": procedure.StepCompensationState,
    "TargetState": procedure.TargetState,
    "RunStatus": run.RunStatus,
}


def code(text: str) -> list[str]:
    """The parts of a text that are between backticks."""
    return re.findall(r"`([^`]+)`", text)


def rows(text: str, columns: int) -> list[list[str]]:
    """The rows of the tables with so many columns, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns and row[0] not in ("from", "script")]


TRANSITIONS = [(name, row) for name, text in SECTIONS.items() for row in rows(text, 5)]
OTHERS = rows(SECTIONS["Everything else"], 4)
#: Scripts, fence and actors of each row.
CHANGES = [(row[2], row[3], row[4]) for _, row in TRANSITIONS]
CHANGES += [(row[0], row[2], row[3]) for row in OTHERS]


def scripts_in(cell: str) -> list[str]:
    return [name for name in code(cell) if name in NAMES]


def test_the_page_names_every_script_that_writes_and_no_other() -> None:
    writing = {name for name in NAMES if WRITES.search(source_of(name).text)} - READS
    on_page = {name for cell, _, _ in CHANGES for name in scripts_in(cell)}

    assert writing - on_page == set()
    assert on_page - writing == set()


def test_every_row_has_a_script_its_fence_and_who_may_do_it() -> None:
    for cell, fence, who in CHANGES:
        names = scripts_in(cell)
        assert names, cell
        sources = [source_of(name).text for name in names]
        for word in code(fence):
            assert any(re.search(rf"\b{re.escape(word)}\b", text) for text in sources), (cell, word)
        assert set(who.split(", ")) <= ACTORS, who


def test_the_fences_of_the_first_table_are_those_of_the_scripts() -> None:
    text = "\n".join(source_of(name).text for name in NAMES)
    fences = [row[0] for row in rows(PAGE.partition("\n## ")[0], 3)]

    assert len(fences) > 5
    for word in (word for cell in fences for word in code(cell)):
        assert re.search(rf"\b{word}\b", text), word


@pytest.mark.parametrize("name", STATE_LISTS)
def test_the_states_are_those_of_the_models(name: str) -> None:
    listed = re.findall(rf"\(`{re.escape(name)}`\): ([^.;]+)[.;]", PAGE)

    assert len(listed) == 1
    assert code(listed[0]) == list(get_args(STATE_LISTS[name]))


@pytest.mark.parametrize(
    ("section", "names", "more"),
    [
        ("Iteration", ["Phase"], {"loop"}),
        ("Job", ["JobExecution.state"], set()),
        ("Execution", ["ExecutionEntry.state", "EffectName"], {"open"}),
        ("Approval", ["ApprovalStatus"], set()),
        ("Procedure", ["ProcedureState"], {"pending", "done"}),
    ],
)
def test_the_transitions_lead_from_and_to_every_state(
    section: str, names: list[str], more: set[str]
) -> None:
    states = {state for name in names for state in get_args(STATE_LISTS[name])}
    used = {
        word
        for name, row in TRANSITIONS
        if name == section
        for cell in row[:2]
        for word in code(cell)
    }

    assert used - more == states


def test_every_property_names_a_test_or_is_marked() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"def (test_\w+)", text))
    properties = re.findall(r"^- (.+)$", PAGE, re.MULTILINE)

    assert len(properties) > 30
    for line in properties:
        shown_by = [word for word in code(line) if word.startswith("test_")]
        assert bool(shown_by) != line.endswith(NOT_TESTED), line
        assert set(shown_by) <= tests, line


def values() -> dict[str, Any]:
    """The names in formulas of the page: default settings, and constants of the code."""
    settings = TimingSettings().model_dump()
    constants = {
        "ALIVE": fleet.ALIVE,
        "RESTART": sweeper.RESTART,
        "phase_limit": EngineSettings("w", "h").phase_limit,
    }
    variables = {**settings, **constants, "min": min, "max": max}
    formula = re.search(r"^`gap = (.+)`$", PAGE, re.MULTILINE)
    assert formula
    assert f"{throttle.CLOSED} * sweep" in formula[1]
    return {**variables, "gap": eval(formula[1], {}, variables)}


def test_the_bounds_follow_from_the_settings() -> None:
    variables = values()
    bounds = rows(SECTIONS["Recovery"], 4)[1:]

    assert len(bounds) > 10
    for fault, _, formula, figure in bounds:
        bound = eval(code(formula)[0], {}, variables)
        assert round(bound, 2) == float(figure.removesuffix(" s")), fault
    for name, seconds in re.findall(r"`(ALIVE|RESTART|phase_limit)` = (\d+) s", PAGE):
        assert variables[name] == int(seconds)


def test_the_settings_are_those_of_processes() -> None:
    settings = re.findall(r"`timing\.(\w+)`", PAGE)

    assert set(settings) == set(TimingSettings.model_fields)


@pytest.mark.parametrize(("sweep", "heartbeat"), [(1.0, 2.0), (3.0, 2.0), (10.0, 2.0)])
def test_two_sweeps_are_never_further_apart_than_the_gap(sweep: float, heartbeat: float) -> None:
    """Processes visit the throttle as `Maintenance` does; half of those that swept are killed."""
    visits, closed = min(sweep, heartbeat), throttle.CLOSED * sweep
    gaps = []
    for seed in range(1000):
        draw = random.Random(seed)
        due = [draw.uniform(0.0, visits) for _ in range(draw.randint(2, 6))]
        last = 0.0
        while last < 4 * sweep:
            visit = min(due)
            due.remove(visit)
            sweeps = visit - last >= closed
            if sweeps:
                gaps.append(visit - last)
                last = visit
            if not sweeps or not due or draw.random() < 0.5:
                due.append(visit + draw.uniform(0.8, 1.2) * visits)
    bound = closed + 1.2 * visits

    assert 0.95 * bound < max(gaps) <= bound
