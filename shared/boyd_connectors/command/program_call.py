"""One call of a program: a line of JSON goes in, lines of JSON come out, and nothing stays."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from boyd.models import JsonObject
from boyd.plugins.command import check_limit
from boyd.plugins.shell.runner import DRAIN, GRACE, CapturedOutput, start_guarded
from boyd.sandbox.accounts import Account
from boyd.text.redaction import clean, mask_json

#: Bytes of standard error that are kept of a call.
MAX_LOG = 65_536
#: Bytes read at once, and characters quoted of an answer that makes no sense.
_CHUNK, _QUOTED = 65_536, 80
#: Characters of the end of standard error that explain a failure.
_LAST_WORDS = 500
#: The most characters of the error that a program reports.
_LONGEST = 4_000
#: Seconds between two checks whether a program has ended whose output is still open.
_TICK = 1.0
#: Exit codes above this are signals, as shells report them, up to the highest; 255 is none.
_SIGNALS = 128
#: The kinds of lines of an answer.
_KINDS = {"observation", "result", "error"}


class ProgramFailure(Exception):
    """A program gave no answer that counts; `unknown`: it may have taken effect all the same."""

    def __init__(self, reason: str, unknown: bool = False) -> None:
        super().__init__(clean(reason))
        self.unknown = unknown


@dataclass(frozen=True)
class ProgramCall:
    """A program and how it is run; its path is absolute, or in *folder* if it has a slash."""

    argv: Sequence[str]
    folder: Path
    env: Mapping[str, str]
    user: Account | None
    timeout: float
    max_output: int

    def path(self) -> str:
        """The path of the program.

        Raises:
            ProgramFailure: there is none that can be run.
        """
        name = self.argv[0]
        place = str(self.folder / name) if "/" in name else name
        path = shutil.which(place, path=self.env.get("PATH"))
        if path is None and "/" in name and Path(place).is_file():
            raise ProgramFailure(f"not started: {name} is not executable: chmod +x {place}")
        if path is None:
            raise ProgramFailure(f"not started: {name} is no program on this host")
        return path


@dataclass
class ProgramAnswer:
    """The answer of a program: observations, and the line that ended it."""

    observations: list[Any] = field(default_factory=list)
    final: JsonObject | None = None
    #: The text of its standard error, without secrets.
    log: str = ""

    @property
    def content(self) -> JsonObject:
        """The members of the line that ended it."""
        return self.final or {}


def converse(call: ProgramCall, request: JsonObject) -> tuple[ProgramAnswer, ProgramFailure | None]:
    """Send *request* to a program and read its answer, which does not count after a failure.

    Everything that it has started is ended before this returns, or soon after we are killed.
    """
    answer = ProgramAnswer()
    try:
        program = _RunningProgram(call, json.dumps(request).encode() + b"\n")
    except ProgramFailure as failure:
        return answer, failure
    except (OSError, ValueError) as error:
        return answer, ProgramFailure(f"not started: {call.argv[0]}: {error}")
    try:
        late = program.follow(call.timeout)
    finally:
        code = program.close()
    answer.log = clean(program.log.text())
    try:
        _check_end(call, program, code, late)
        _read(program.output, answer, code)
        _check_answer(answer, code)
    except ProgramFailure as failure:
        return answer, failure if "error" in answer.content else _explain(failure, answer.log)
    return answer, None


class _RunningProgram:
    """A program with its three pipes, below a guardian."""

    def __init__(self, call: ProgramCall, request: bytes) -> None:
        path = call.path()
        self.output = b""
        self.log = CapturedOutput(MAX_LOG)
        self._limit = call.max_output
        self._request = memoryview(request)
        reading, self._writing = os.pipe()
        try:
            self._process = start_guarded(
                [path, *call.argv[1:]], str(call.folder), call.env, call.user, stdin=reading
            )
        except BaseException:
            os.close(self._writing)
            raise
        finally:
            os.close(reading)
        os.set_blocking(self._writing, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._writing, selectors.EVENT_WRITE, self._send)
        for stream, take in (
            (self._process.stdout, self._hear),
            (self._process.stderr, self._note),
        ):
            assert stream is not None, "it was started with pipes"
            self._selector.register(stream.fileno(), selectors.EVENT_READ, take)

    @property
    def is_too_long(self) -> bool:
        """True if it printed more than it may."""
        return len(self.output) > self._limit

    def follow(self, seconds: float) -> bool:
        """Exchange lines until the program ends; True if it had to be ended, after *seconds*."""
        if self._exchange(seconds) or self.is_too_long:
            return False
        self._release()
        self._exchange(2 * GRACE)
        return True

    def close(self) -> int:
        """End what is left of it, and return its exit code."""
        self._release()
        try:
            self._process.wait(2 * GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._selector.close()
        self._hang_up()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None, "it was started with pipes"
            stream.close()
        code = self._process.returncode
        return _SIGNALS - code if code < 0 else code

    def _exchange(self, seconds: float) -> bool:
        """Serve the pipes until the program has ended, at most *seconds*; False if it has not."""
        until = drained = time.monotonic() + seconds
        while self._selector.get_map() and not self.is_too_long:
            left = min(until, drained) - time.monotonic()
            if left <= 0:
                break
            for key, _ in self._selector.select(min(left, _TICK)):
                key.data()
            if self._process.poll() is not None:
                # Only what nobody here may kill can hold its pipes now.
                drained = min(drained, time.monotonic() + DRAIN)
        left = 0.0 if self.is_too_long else until - time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, left))
        return self._process.poll() is not None

    def _send(self) -> None:
        try:
            self._request = self._request[os.write(self._writing, self._request) :]
        except BlockingIOError:
            return
        except OSError:  # it need not read what it does not want to know
            self._request = self._request[:0]
        if not self._request:
            self._selector.unregister(self._writing)
            self._hang_up()

    def _hang_up(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def _hear(self) -> None:
        self.output += self._read(self._process.stdout)

    def _note(self) -> None:
        self.log.add(self._read(self._process.stderr))

    def _read(self, stream: IO[bytes] | None) -> bytes:
        assert stream is not None, "it was started with pipes"
        chunk = os.read(stream.fileno(), _CHUNK)
        if not chunk:
            self._selector.unregister(stream.fileno())
        return chunk

    def _release(self) -> None:
        """Let the guardian end everything."""
        assert self._process.stdin is not None, "it was started with pipes"
        with suppress(OSError):
            self._process.stdin.close()


def _check_end(call: ProgramCall, program: _RunningProgram, code: int, late: bool) -> None:
    if program.is_too_long:
        raise ProgramFailure(f"ended: it printed more than {call.max_output} bytes", unknown=True)
    if late:
        raise ProgramFailure(f"ended: it took longer than {call.timeout:g} s", unknown=True)
    check_limit(call.argv[0], code)
    if code - _SIGNALS in signal.valid_signals():
        raise ProgramFailure(f"was killed by signal {code - _SIGNALS}", unknown=True)


def _explain(failure: ProgramFailure, log: str) -> ProgramFailure:
    words = " ".join(log.split())[-_LAST_WORDS:]
    reason = f"{failure}; its last words: {words}" if words else str(failure)
    return ProgramFailure(reason, failure.unknown)


def _read(output: bytes, answer: ProgramAnswer, code: int) -> None:
    lines = [(n, line) for n, line in enumerate(output.split(b"\n"), 1) if line.strip()]
    for number, line in lines:
        problem = _take(line, answer)
        if problem and code:  # it says itself that it has failed
            raise ProgramFailure(f"ended with code {code}; line {number} {problem}")
        if problem:
            raise ProgramFailure(f"line {number} {problem}", unknown=True)


def _take(line: bytes, answer: ProgramAnswer) -> str | None:
    """Add a line to the answer; returns what is wrong with it."""
    if answer.final is not None:
        return "follows the line that ends the answer"
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or len(_KINDS & content.keys()) != 1:
        text = clean(line.decode("utf-8", "replace"))[:_QUOTED]
        return f"is no JSON object with `observation`, `result` or `error`: {text!r}"
    masked: JsonObject = json.loads(mask_json(json.dumps(content)))
    if "observation" in masked:
        answer.observations.append(masked["observation"])
    else:
        answer.final = masked
    return None


def _check_answer(answer: ProgramAnswer, code: int) -> None:
    content = answer.content
    if "error" in content:
        raise ProgramFailure(
            clean(str(content["error"]))[:_LONGEST], content.get("unknown") is True
        )
    if code and content:
        raise ProgramFailure(f"gave a result, and ended with code {code}", unknown=True)
    if code:
        raise ProgramFailure(f"ended with code {code}")
    if not content:
        raise ProgramFailure("ended without a line `result` or `error`", unknown=True)
