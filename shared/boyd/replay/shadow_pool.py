"""Shadows in processes of their own, which judge records side by side."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from boyd.errors import BoydError
from boyd.models.tape import ReplayedIteration
from boyd.replay.partial_results import PartialResults
from boyd.replay.shadow_process import ShadowAnswer, ShadowHello, ShadowTask

#: Portions that wait for a process, for each of them.
_AHEAD = 2
#: Lines that are shown of what a process has printed before it ended, and characters of each.
_LAST_LINES, _LONGEST_LINE = 10, 500


class ReplayError(BoydError):
    """The replay cannot go on."""


class _ShadowProcess:
    """One process; used by one thread at a time."""

    def __init__(self, task: ShadowTask) -> None:
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
            # The order of sets depends on it, and two replays have to say the same.
            env={**env, "PYTHONHASHSEED": "0"},
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


class ShadowPool:
    """Processes that judge records; a context manager."""

    def __init__(self, task: ShadowTask, jobs: int) -> None:
        """Start the first of up to *jobs* processes.

        Raises:
            ReplayError: the agent cannot be loaded, or acts when it is loaded.
        """
        self._task = task
        self._jobs = jobs
        self._idle: SimpleQueue[_ShadowProcess | None] = SimpleQueue()
        self._all = [_ShadowProcess(task)]
        self.hello = self._all[0].hello
        self._idle.put(self._all[0])
        for _ in range(jobs - 1):
            self._idle.put(None)  # started when it is needed
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
        process = self._idle.get()
        try:
            if process is None:
                process = _ShadowProcess(self._task)
                self._all.append(process)
            return process.judge(records)
        finally:
            self._idle.put(process)
