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
    kept = PartialResults(folder, hello.code)

    def judgements() -> Iterator[ReplayedIteration]:
        for portion in pool.judge(recordings.portions(), kept):
            progress(len(portion))
            yield from portion

    made = report(hello.agent_id, hello.build, judgements(), hello.confined_by)
    kept.remove()
    return made


def with_endings(found: ReplayReport, work: PastWork) -> ReplayReport:
    """The report, with verdicts on the recorded actions, and what became of approvals."""
    findings = [one.patched({"ended": _ending(one, work)}) for one in found.findings]
    return found.patched({"findings": findings})


def _ending(one: ReplayedIteration, work: PastWork) -> str:
    kind, _, approval_id = one.ended.partition(" ")
    item = work.approval(approval_id) if kind == "approval" else None
    name = naming.approval(item.id) if item else naming.loop(one.iteration.partition(":")[2])
    entry = work.execution(name) if one.ended else None
    verdict = entry.verification.verdict if entry and entry.verification else None
    said = f", {verdict}" if verdict else ""
    if item is None:
        return f"{one.ended}{said}"
    done = f", {entry.state}" if entry else ""
    return f"approval {naming.short(item.id)} {item.status}{done}{said}"
