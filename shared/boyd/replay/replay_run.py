"""Runs a replay: from recordings, which shadows judge side by side, to the report."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from boyd import naming
from boyd.embedded.state_folder import private_folder, write_private
from boyd.errors import BoydError
from boyd.models.tape import ReplayedIteration, ReplayReport
from boyd.replay.differences import report
from boyd.replay.shadow_process import ShadowAnswer, ShadowHello, ShadowTask

if TYPE_CHECKING:
    # They load SQLAlchemy; meanwhile the first shadow starts.
    from boyd.export.archive.merged_work import MergedWork
    from boyd.replay.recordings import Recordings

#: Portions that wait for a process, for each of them.
_AHEAD = 2
#: Lines that are shown of what a process has printed before it ended, and characters of each.
_LAST_LINES, _LONGEST_LINE = 10, 500
#: Seconds after which the results of a replay that nobody went on with are removed.
_OLD = 7 * 86_400.0

#: The order of sets depends on it, and two replays have to say the same.
_FIRST: Mapping[str, str] = {"PYTHONHASHSEED": "0"}
#: Processes that judge differences again have sets in other orders and other local times. One is
#: not enough: it has the same order of a small set too often.
_TWINS: Sequence[Mapping[str, str]] = (
    {"PYTHONHASHSEED": "1", "TZ": "Etc/GMT-9"},
    {"PYTHONHASHSEED": "2", "TZ": "Etc/GMT+5"},
    {"PYTHONHASHSEED": "3", "TZ": "Asia/Kolkata"},
)
_UNSTABLE = "it depends on the order of a set, a hash, an address or the local time zone"

#: Is told the number of iterations that were judged.
Progress = Callable[[int], object]


class ReplayError(BoydError):
    """The replay cannot go on."""


def replay(
    pool: ShadowPool, recordings: Recordings, folder: Path, progress: Progress
) -> ReplayReport:
    """Replay all *recordings*; what an interrupted replay has kept in *folder* is used.

    A closed loop begins anew, as each iteration needs what the one before has left.

    Raises:
        ConfigError: the folder cannot be used.
        ReplayError: a record cannot be read, or a process has ended.
    """
    hello = pool.hello
    results = PartialResults(folder, hello.code)

    def judgements() -> Iterator[ReplayedIteration]:
        for portion in pool.judge(recordings.portions(), None if pool.in_order else results):
            progress(len(portion))
            yield from portion

    replay_report = report(hello.agent_id, hello.build, judgements(), hello.confined_by)
    results.remove()
    return replay_report


def with_endings(report: ReplayReport, work: MergedWork) -> ReplayReport:
    """The report, with verdicts on the recorded actions, and what became of approvals."""
    findings = [
        judgement.patched({"ended": _ending(judgement, work)}) for judgement in report.findings
    ]
    return report.patched({"findings": findings})


def _ending(judgement: ReplayedIteration, work: MergedWork) -> str:
    kind, _, approval_id = judgement.ended.partition(" ")
    item = work.approval(approval_id) if kind == "approval" else None
    name = (
        naming.approval(item.id)
        if item
        else naming.iteration_execution(judgement.iteration.partition(":")[2])
    )
    entry = work.execution(name) if judgement.ended else None
    verdict = entry.verification.verdict if entry and entry.verification else None
    suffix = f", {verdict}" if verdict else ""
    if item is None:
        return f"{judgement.ended}{suffix}"
    done = f", {entry.state}" if entry else ""
    return f"approval {naming.short(item.id)} {item.status}{done}{suffix}"


class ShadowPool:
    """Processes that judge records; a context manager.

    Attributes:
        hello: the answer of the first process.
        in_order: whether each iteration goes on from the one before.
    """

    def __init__(self, task: ShadowTask, jobs: int) -> None:
        """Start the first of up to *jobs* processes; a closed loop has one.

        Raises:
            ReplayError: the agent cannot be loaded, or acts when it is loaded.
        """
        jobs = 1 if task.closed_loop else jobs
        self.in_order = task.closed_loop
        self._task = task
        self._jobs = jobs
        self._idle: SimpleQueue[_ShadowProcess | None] = SimpleQueue()
        self._all = [_ShadowProcess(task)]
        self.hello = self._all[0].hello
        self._idle.put(self._all[0])
        self._twins: list[SimpleQueue[_ShadowProcess | None]] = [SimpleQueue() for _ in _TWINS]
        for number in range(jobs):
            for twins in self._twins:
                twins.put(None)  # started when it is needed
            if number:
                self._idle.put(None)  # likewise
        self._threads = ThreadPoolExecutor(jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        # Ending the processes frees the threads that wait for them.
        for process in list(self._all):
            process.close()
        self._threads.shutdown(cancel_futures=True)

    def judge(
        self, portions: Iterable[Sequence[str]], results: PartialResults | None = None
    ) -> Iterator[list[ReplayedIteration]]:
        """Judge portions of records without *results* yet, and yield the judgements in their order.

        Raises:
            ReplayError: a record cannot be read, or a process has ended.
        """
        waiting: deque[Future[list[ReplayedIteration]]] = deque()
        for portion in portions:
            waiting.append(self._threads.submit(self._judge, portion, results))
            if len(waiting) > self._jobs * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _judge(
        self, records: Sequence[str], results: PartialResults | None
    ) -> list[ReplayedIteration]:
        judgements = results.find(records) if results else None
        if judgements is None:
            judgements = self._judge_now(records)
            if results:
                results.keep(records, judgements)
        return judgements

    def _judge_now(self, records: Sequence[str]) -> list[ReplayedIteration]:
        judgements = self._judge_in(self._idle, records)
        if not self.in_order:
            for twins, env in zip(self._twins, _TWINS, strict=True):
                self._judge_again(twins, env, records, judgements)
        return judgements

    def _judge_again(
        self,
        twins: SimpleQueue[_ShadowProcess | None],
        env: Mapping[str, str],
        records: Sequence[str],
        judgements: list[ReplayedIteration],
    ) -> None:
        """Replace the *judgements* of differences that another process does not find."""
        differing = [
            place
            for place, judgement in enumerate(judgements)
            if judgement.differences and judgement.after
        ]
        if not differing:
            return
        again = self._judge_in(twins, [records[place] for place in differing], env)
        for place, twin in zip(differing, again, strict=True):
            if _outcome(twin) != _outcome(judgements[place]):
                judgements[place] = judgements[place].patched(
                    {"differences": ["cannot tell"], "after": None, "why": _UNSTABLE}
                )

    def _judge_in(
        self,
        idle: SimpleQueue[_ShadowProcess | None],
        records: Sequence[str],
        env: Mapping[str, str] = _FIRST,
    ) -> list[ReplayedIteration]:
        process = idle.get()
        try:
            if process is None:
                process = _ShadowProcess(self._task, env)
                self._all.append(process)
            return process.judge(records)
        finally:
            idle.put(process)


def _outcome(judgement: ReplayedIteration) -> object:
    """The differences and the course of a judgement, without the texts that explain them."""
    after = judgement.after and judgement.after.patched({"reason": ""})
    return (judgement.differences, after)


class _ShadowProcess:
    """One process; used by one thread at a time."""

    def __init__(self, task: ShadowTask, environment: Mapping[str, str] = _FIRST) -> None:
        """Start it and have it load the agent.

        Raises:
            ReplayError: it cannot.
        """
        # It needs no secrets: neither Redis nor the API.
        env = {name: value for name, value in os.environ.items() if not name.startswith("BOYD_")}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "boyd.replay.shadow_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**env, **environment},
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
        self._said: deque[str] = deque(maxlen=_LAST_LINES)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._write(f"{task.to_json()}\n")
        self.hello = ShadowHello.from_json(self._read())
        if self.hello.error:
            self.close()
            raise ReplayError(self.hello.error)

    def judge(self, records: Sequence[str]) -> list[ReplayedIteration]:
        """Judge records, each a JSON text on one line.

        Raises:
            ReplayError: one cannot be read, or the process has ended.
        """
        self._write(f"{len(records)}\n" + "".join(f"{record}\n" for record in records))
        judgements = []
        for _ in records:
            answer = ShadowAnswer.from_json(self._read())
            if answer.judgement is None:
                raise ReplayError(answer.error)
            judgements.append(answer.judgement)
        return judgements

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _listen(self) -> None:
        """Keep the last lines that it prints besides its answers: the reason why it ended."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.rstrip()[:_LONGEST_LINE])

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._exit_error() from None

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._exit_error()
        return line

    def _exit_error(self) -> ReplayError:
        status = self._process.wait()
        self._listener.join()
        output = "".join(f"\n  {line}" for line in self._said if line)
        return ReplayError(
            f"a process of the replay ended with status {status}; does a plugin end its process, "
            f"or need more memory?{output}"
        )


class PartialResults:
    """Judgements in files, one for each portion, named by digests of what they depend on."""

    def __init__(self, folder: Path, key: str) -> None:
        """Keep results below *folder*; *key* names the agent that is replayed.

        Raises:
            ConfigError: the folder cannot be used.
        """
        _remove_old(folder)
        self._folder = private_folder(folder / key)

    def find(self, records: Sequence[str]) -> list[ReplayedIteration] | None:
        """The judgements of a portion, if they were kept."""
        try:
            lines = self._path(records).read_text("utf-8").split("\n")
            judgements = [ReplayedIteration.from_json(line) for line in lines if line]
        except (OSError, ValueError, ValidationError):
            return None
        return judgements if len(judgements) == len(records) else None

    def keep(self, records: Sequence[str], judgements: Sequence[ReplayedIteration]) -> None:
        """Keep the judgements of a portion.

        Raises:
            ConfigError: the file cannot be written.
        """
        write_private(
            self._path(records), "".join(f"{judgement.to_json()}\n" for judgement in judgements)
        )

    def remove(self) -> None:
        """Remove all of them: the replay is complete."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, records: Sequence[str]) -> Path:
        digest = hashlib.sha256()
        for record in records:
            digest.update(record.encode("utf-8", "surrogatepass") + b"\n")
        return self._folder / f"{digest.hexdigest()[:32]}.jsonl"


def _remove_old(folder: Path) -> None:
    for old in _folders(folder):
        with suppress(OSError):
            if old.stat().st_mtime < time.time() - _OLD:
                shutil.rmtree(old, ignore_errors=True)


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from [path for path in folder.iterdir() if path.is_dir()]
