"""The table of a run, for people."""

from __future__ import annotations

import statistics

from range.cases import COURSE
from range.judging import Figures
from range.runner import Course

_HEAD = (
    *("fault", "cases", "detected", "decided right", "verified right", "compensated"),
    *("harm done", "recovered after, median", "worst"),
)


class Report:
    """Figures by fault, and all together."""

    def __init__(self) -> None:
        self._by_fault: dict[str, Figures] = {
            fault: Figures() for faults in COURSE.values() for fault in faults
        }
        self._by_fault["no fault"] = Figures()
        self.total = Figures()
        #: Workers that were killed.
        self.killed = 0

    def add(self, course: Course, figures: Figures) -> None:
        """Add a case."""
        self._by_fault[course.case.fault or "no fault"].add(figures)
        self.total.add(figures)

    def progress(self, course: Course, whole: int, seconds: float) -> str:
        """A line with the progress and the outcome of the latest case."""
        text = (
            f"{self.total.cases} of {whole} cases, {seconds // 60:.0f} min {seconds % 60:02.0f} s"
        )
        misses = len(self.total.misses)
        return f"{text}: {course.case.name}{f' ({misses} misses so far)' if misses else ''}"

    @property
    def table(self) -> str:
        """The table, and what is said below it."""
        rows = [_HEAD, ("---",) * len(_HEAD)]
        rows += [_row(name, figures) for name, figures in self._by_fault.items() if figures.cases]
        rows.append(_row("all", self.total))
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([*lines, "", *self._sentences()])

    def _sentences(self) -> list[str]:
        all_ = self.total
        share = 100 * all_.wrong_detected / all_.wrong if all_.wrong else 100
        wrong = f"{all_.wrong} wrong actions reported success, {all_.wrong_detected} were detected"
        harm = f"{all_.harmful} actions did harm: {all_.undone} of {all_.undoable} were undone"
        others = "others, which have no rollback or were cut off when their worker was killed"
        alarms = f"{all_.alarms} of {all_.right} right actions judged otherwise"
        return [
            f"{wrong} ({share:.0f} %).",
            f"{harm} exactly once; people were told of {all_.told} of {all_.left} {others}.",
            f"False alarms: {alarms}, {all_.unprovoked} actions without a fault.",
            f"{self.killed} workers were killed; a person helped {all_.helped} times.",
            *(f"untrue: {text}" for text in all_.untrue),
            *(f"details: {text}" for text in all_.details),
            *(f"MISSED: {text}" for text in all_.misses),
        ]


def _row(name: str, figures: Figures) -> tuple[str, ...]:
    times = figures.recoveries
    return (
        name,
        str(figures.cases),
        f"{figures.detected} of {figures.faults}" if figures.faults else "",
        f"{figures.decided} of {figures.detected}" if figures.faults else "",
        f"{figures.right_verdicts} of {figures.verdicts}" if figures.verdicts else "",
        f"{figures.undone} of {figures.undoable}" if figures.undoable else "",
        f"{figures.harmful}, {figures.harm_seconds:.1f} s" if figures.harmful else "0",
        f"{statistics.median(times):.1f} s" if times else "",
        f"{max(times):.1f} s" if times else "",
    )
