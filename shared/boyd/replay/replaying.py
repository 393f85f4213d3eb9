"""A replay from its recordings to its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from boyd import naming
from boyd.export.archive.past_work import PastWork
from boyd.models.tape import ReplayedIteration, ReplayReport
from boyd.replay.differences import report
from boyd.replay.partial_results import PartialResults
from boyd.replay.recordings import Recordings
from boyd.replay.shadow_pool import ShadowPool

#: Is told the number of iterations that were judged.
Progress = Callable[[int], object]


def replay(
    pool: ShadowPool, recordings: Recordings, folder: Path, progress: Progress
) -> ReplayReport:
    """Replay all *recordings*; what an interrupted replay has kept in *folder* is used.

    Raises:
        ConfigError: the folder cannot be used.
        ReplayError: a record cannot be read, or a process has ended.
    """
    hello = pool.hello
    results = PartialResults(folder, hello.code)

    def judgements() -> Iterator[ReplayedIteration]:
        for portion in pool.judge(recordings.portions(), results):
            progress(len(portion))
            yield from portion

    replay_report = report(hello.agent_id, hello.build, judgements(), hello.confined_by)
    results.remove()
    return replay_report


def with_endings(report: ReplayReport, work: PastWork) -> ReplayReport:
    """The report, with verdicts on the recorded actions, and what became of approvals."""
    findings = [
        judgement.patched({"ended": _ending(judgement, work)}) for judgement in report.findings
    ]
    return report.patched({"findings": findings})


def _ending(judgement: ReplayedIteration, work: PastWork) -> str:
    kind, _, approval_id = judgement.ended.partition(" ")
    item = work.approval(approval_id) if kind == "approval" else None
    name = naming.approval(item.id) if item else naming.loop(judgement.iteration.partition(":")[2])
    entry = work.execution(name) if judgement.ended else None
    verdict = entry.verification.verdict if entry and entry.verification else None
    suffix = f", {verdict}" if verdict else ""
    if item is None:
        return f"{judgement.ended}{suffix}"
    done = f", {entry.state}" if entry else ""
    return f"approval {naming.short(item.id)} {item.status}{done}{suffix}"
