"""Runs the cases of one lane, one after the other, as the world and as its people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event

from boyd.models import Actor, ExecutionEntry
from harness import BUSY, wait_until
from range.cases import Case
from range.lines import Line, read_lines
from range.site import Site
from range.watch import Looks, Watch
from range.world import World

#: Seconds that it has to be good, until a fault counts as over.
_CALM = 1.0
#: Seconds that a case may take, and that an agent may be stuck until a person helps it.
_LONGEST = 20.0 * BUSY
_STUCK = 5.0
_PERSON = Actor(principal="person")


@dataclass
class Course:
    """A case as it went: the looks from outside, the lines of the actions, and Boyd's records."""

    case: Case
    began: float
    looks: Looks
    lines: list[Line] = field(default_factory=list)
    entries: list[ExecutionEntry] = field(default_factory=list)
    #: Whether the agent named the fault, and whether all came to rest.
    detected: bool = False
    over: bool = False
    ended: float = 0.0
    recovered: float | None = None
    #: Whether a worker was to be killed, how often a person helped, and what else is wrong.
    killed: bool = False
    helped: int = 0
    misfits: list[str] = field(default_factory=list)


class Runner:
    """One lane: its site, its agent and its cases."""

    def __init__(self, world: World, site: Site, stopping: Event) -> None:
        self._world = world
        self._site = site
        self._stopping = stopping
        self._agent = world.deployment.agent(f"range-{site.lane}")
        self._path = site.layout.lines(site.lane)

    def run(self, cases: list[Case]) -> Iterator[Course]:
        """Run the cases."""
        for case in cases:
            if self._stopping.is_set():
                return
            yield self._run(case)

    def _run(self, case: Case) -> Course:
        ready = time.time()
        wait_until(lambda: self._is_calm(ready))
        earlier = len(read_lines(self._path))
        watch = Watch(self._site)
        course = Course(case, time.time(), watch.looks)
        try:
            self._begin(case)
            while not (course.over or self._stopping.is_set() or self._is_late(course)):
                course.lines = read_lines(self._path)[earlier:]
                self._kill(course)
                # Redis may not answer for a while; no entries at all are an answer too.
                course.entries = wait_until(lambda: [list(self._entries(course))])[0]
                self._help(course)
                course.over = self._is_over(course)
                time.sleep(0.05)
        finally:
            watch.stop()
        self._end(course, earlier)
        return course

    def _is_late(self, course: Course) -> bool:
        return time.time() - course.began > _LONGEST

    def _begin(self, case: Case) -> None:
        mistake = self._site.layout.mistake(case.lane)
        mistake.unlink(missing_ok=True)
        if case.mistake:
            mistake.write_text(case.mistake)
        self._site.begin()
        if case.fault:
            self._site.inject(case.fault)
        else:
            self._site.disturb()

    def _end(self, course: Course, earlier: int) -> None:
        """Take down how it ended, and make everything as it was."""
        case = course.case
        course.lines = read_lines(self._path)[earlier:]
        course.entries = list(self._entries(course))
        course.ended = time.time()
        course.recovered = course.looks.good_since() if course.over else None
        results = self._agent.history.results(200)
        situations = [r.situation for r in results if r.started_at.timestamp() >= course.began - 1]
        course.detected = any(
            anomaly.type == case.fault for s in situations if s for anomaly in s.anomalies
        )
        undone = sum(line.step == "undo" for line in course.lines)
        acted = sum((o.step, o.action) == ("act", case.action) for o in course.lines)
        if self._site.exceeds_rollbacks(undone, acted):
            course.misfits.append("more was undone than the actions say")
        # What did harm is held for its time, whatever the situation, and on all targets.
        held = self._agent.holds.all()
        lasting = [hold for hold in held if hold.kind not in ("rolled back", "stopped")]
        if course.over and lasting:
            course.misfits.append(f"still held: {lasting[0].reason}")
        self._lift()
        self._site.repair()
        self._site.reset()

    def _kill(self, course: Course) -> None:
        """Kill the worker that does what the case says."""
        if course.killed or course.case.kill is None:
            return
        for line in course.lines:
            if line.step == course.case.kill:
                course.killed = True
                self._world.kill(line.pid)
                return

    def _help(self, course: Course) -> None:
        """Repair what Boyd tells people of, and help an agent that is stuck."""
        executions = {line.execution for line in course.lines if line.step == "told"}
        holds = self._agent.holds.all()
        suspended = [hold for hold in holds if hold.kind == "suspended"]
        if any(hold.execution in executions for hold in suspended):
            self._site.repair()
            self._lift()
            course.helped += 1
            return
        latest = max((line.at for line in course.lines), default=0.0)
        actions = {hold.action for hold in holds}
        stuck = len(actions) > 1 and not any(hold.in_flight for hold in holds)
        if stuck and time.time() - latest > _STUCK:
            self._lift()
            course.helped += 1

    def _lift(self) -> None:
        for hold in self._agent.holds.all():
            if not hold.in_flight:
                self._agent.holds.lift(hold.action, hold.target, _PERSON)

    def _is_over(self, course: Course) -> bool:
        """Check that all is good and judged, and that the agent has seen it since."""
        good = course.looks.good_since()
        if good is None or time.time() - good < _CALM:
            return False
        if course.case.fault and not course.entries:
            return False
        if any(hold.kind == "suspended" for hold in self._agent.holds.all()):
            return False  # a person has to help first
        judged = max((_judgement_time(entry) for entry in course.entries), default=0.0)
        since = max(good, judged, max((line.at for line in course.lines), default=0.0))
        return judged < float("inf") and self._is_calm(since)

    def _is_calm(self, since: float) -> bool:
        """Check that two iterations began after that, ended, and did nothing."""
        results = self._agent.history.results(3)
        later = [r for r in results if r.started_at.timestamp() > since]
        return len(later) > 1 and not any(r.action_results for r in later)

    def _entries(self, course: Course) -> Iterator[ExecutionEntry]:
        """The records of what ran in this case, but not of rollbacks."""
        executions = {line.execution for line in course.lines if line.step == "act"}
        for listed in self._agent.executions.page(20).executions:
            at = listed.started_at.timestamp() if listed.started_at else 0.0
            if at > course.began and not listed.id.startswith("rollback:"):
                executions.add(listed.id)
        for execution in sorted(executions):
            if entry := self._agent.executions.get(execution):
                yield entry


def _judgement_time(entry: ExecutionEntry) -> float:
    """When everything was decided about an execution; infinite: not yet."""
    verification = entry.verification
    if entry.state == "running":
        return float("inf")
    if verification is None:
        return 0.0
    if verification.ended_at is None or (
        verification.verdict == "worse" and verification.compensation is None
    ):
        return float("inf")
    return verification.ended_at.timestamp()
