"""Shows the report of a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from boyd import naming
from boyd.models.replayed import Course, Difference, ReplayedIteration, ReplayReport
from boyd.sandbox.kernel import MEANS
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.views.tables import folded, label, sentence, whole

#: Findings of one kind, and reasons, that are shown; `-o json` has them all.
_SHOWN = 10
_KINDS: Sequence[Difference] = get_args(Difference)
#: A finding is shown once, with the first of these that it has.
_WORST_FIRST: Sequence[Difference] = (
    "newly automatic",
    "newly refused",
    "newly asked",
    "other approval",
    "flipped",
)
_FINDINGS = (
    *(whole("iteration"), label("then", least=20), label("now", least=20)),
    *(sentence("why", drop=1), label("ended", drop=2)),
)


def show(report: ReplayReport) -> None:
    """Print it."""
    output.say(
        f"{report.agent_id}: {counted(report.iterations, 'iteration')} replayed,"
        f" {report.unchanged} as recorded, {report.changed} not"
    )
    if report.actions:
        output.say()
        output.print_table([label("action", least=20), *map(whole, _KINDS)], _rows(report))
    found = {one.iteration: one for one in report.findings}
    for kind in _WORST_FIRST:
        _show_kind(kind, [found.pop(key) for key in list(found) if kind in found[key].differences])
    _show_reasons(Counter(one.why or "" for one in found.values()))
    lacking = [name for name in MEANS if name not in report.confined_by]
    if lacking:
        means = " and ".join(lacking)
        output.note(f"warning: no {means} here: Python alone kept plugins from what these refuse")


def _rows(report: ReplayReport) -> list[list[str]]:
    return [
        [one.action or "unknown", *(str(one.counts.get(kind, "")) for kind in _KINDS)]
        for one in report.actions
    ]


def _show_kind(kind: Difference, findings: Sequence[ReplayedIteration]) -> None:
    if not findings:
        return
    output.say()
    output.say(f"{kind}: {counted(len(findings), 'iteration')}")
    output.print_table(_FINDINGS, map(_row, findings[:_SHOWN]), indent=2)
    if len(findings) > _SHOWN:
        output.note(f"  and {len(findings) - _SHOWN} more; `-o json` has them all")


def _show_reasons(reasons: Mapping[str, int]) -> None:
    if not reasons:
        return
    output.say()
    output.say("cannot tell")
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    rows = [[str(times), why] for why, times in ordered[:_SHOWN]]
    output.print_table([whole("iterations"), folded("why")], rows, indent=2)
    if len(ordered) > _SHOWN:
        output.note(f"  and {len(ordered) - _SHOWN} more reasons; `-o json` has them all")


def _row(one: ReplayedIteration) -> list[str]:
    reason = one.after.reason if one.after else ""
    name = one.iteration.partition(":")[2] or one.iteration
    before, after = course_text(one.before), course_text(one.after)
    return [name, before, after, reason, naming.short(one.ended)]


def course_text(course: Course | None) -> str:
    """A course in short: what becomes of which action."""
    if course is None:
        return "unknown"
    if course.fate == "none":
        return "no-op"
    about = f" {course.target}" if course.target else ""
    return f"{course.fate} {course.action}{about}"
