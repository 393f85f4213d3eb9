"""The process of a shadow: confined before it loads the agent, it judges records.

The kernel confines it (`boyd.sandbox.kernel`); an audit hook refuses the same before that, and says
who tried. The first line of its input is a `ShadowTask`; it answers with a `ShadowHello`. Then each
portion is a line with a number, followed by as many records, one a line; it answers with as many
judgements. A fork judges the portion, so that no portion sees what another has left in a process;
where a plugin has kept something, another fork goes on with the next record.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import pickle
import signal
import sys
import sysconfig
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, NoReturn, TypeAlias

from pydantic import Field

from boyd.agent import Agent, load_agent
from boyd.errors import BoydError
from boyd.models import LoopResult
from boyd.models.base import JsonObject, Model
from boyd.models.tape import ReplayedIteration
from boyd.replay.carried_past import CarriedPast
from boyd.replay.differences import judge
from boyd.replay.playback import UnrecordedRead
from boyd.replay.shadow import CannotTell, Shadow
from boyd.replay.world_watch import watch_calls_of_c
from boyd.sandbox.kernel import confine
from boyd.sandbox.subprocess_call import follow_parent
from boyd.settings.secret_references import ReferencesOnly, use_reader
from boyd.text.version import VERSION

#: Audit events that act, and the argument that names what they act on.
_ACTS = {
    "socket.__new__": 1,
    "socket.connect": 1,
    "socket.bind": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "socket.gethostbyaddr": 0,
    "subprocess.Popen": 0,
    "os.system": 0,
    "os.exec": 0,
    "os.posix_spawn": 0,
    "os.spawn": 1,
    "os.fork": None,
    "os.forkpty": None,
    "os.kill": 0,
    "os.killpg": 0,
    "os.remove": 0,
    "os.rename": 0,
    "os.rmdir": 0,
    "os.mkdir": 0,
    "os.link": 0,
    "os.symlink": 0,
    "os.truncate": 0,
    "os.chmod": 0,
    "os.chown": 0,
    "os.utime": 0,
    "os.setxattr": 0,
    "os.removexattr": 0,
}
#: Audit events that look at files.
_LOOKS = ("os.listdir", "os.scandir", "sqlite3.connect")
#: Audit events of functions that a plugin looks up in a library of C.
_NATIVE = ("ctypes.dlopen", "ctypes.dlsym")
#: Objects more than before, after which the collector looks for garbage: a process ends soon.
_GARBAGE = 10_000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Files of code and of libraries, which may be read at any time.
_CODE = (".py", ".pyc", ".so")
_LIBRARIES = tuple(
    f"{folder}/"
    for folder in (
        Path(__file__).parents[1],
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *zoneinfo.TZPATH,
    )
)

#: Is told what the process tried, and raises.
Refuse = Callable[[str], object]


class ActionGuard:
    """Refuses, in Python, what the kernel refuses, and looks at files while an iteration runs."""

    def __init__(self, refuse: Refuse) -> None:
        """Install the hook, which stays; *refuse* raises."""
        self._refuse = refuse
        #: Whether reading files is refused, too.
        self.judging = False
        #: Whether this process makes another one of itself.
        self.is_forking = False
        # Python asks a hook for an attribute at each event, which takes a method longer.
        sys.addaudithook(partial(ActionGuard._check_event, self))

    def _check_event(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            self._check_open(*args[:3])
        elif event in _ACTS and not self.is_forking:
            place = _ACTS[event]
            target = "" if place is None or place >= len(args) else f" {args[place]!r}"
            self._refuse(f"tries {event}{target}")
        elif self.judging and event in _NATIVE:
            self._refuse("uses functions of C libraries, of which nothing is known")
        elif self.judging and event in _LOOKS and not _is_searched(args[0]):
            self._refuse(f"looks at {args[0]!r}, which was not recorded")

    def _check_open(self, path: object = None, _mode: object = None, flags: object = 0) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor that is open
        if isinstance(flags, int) and flags & _WRITING:
            self._refuse(f"tries to write {os.fspath(path)!r}")
        elif self.judging and not _is_library(path):
            self._refuse(f"reads the file {os.fspath(path)!r}, which was not recorded")


def _is_searched(path: object) -> bool:
    """Report whether imports search *path* for modules."""
    return path in sys.path or _is_library(path) or _is_library(f"{path}/")


def _is_library(path: object) -> bool:
    """Report whether *path* is code or belongs to a library."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    text = os.fsdecode(path)
    return text.endswith(_CODE) or text.startswith(_LIBRARIES)


class ShadowTask(Model):
    """The agent to replay.

    Attributes:
        agent: an agent file or module:agent.
        plugins: a folder of plugins in place of that of the agent file.
        options: options of plugins in place of those of the agent file, by plugin and name.
        paths: where modules are searched.
        known: whether decisions were recorded; otherwise all are compared with doing nothing.
        closed_loop: whether the agent goes on from what it has left itself in the iteration before,
            not from what was recorded.
    """

    agent: str
    plugins: Path | None = Field(default=None, strict=False)
    options: dict[str, JsonObject] = Field(default_factory=dict)
    paths: list[str] = Field(default_factory=list)
    known: bool = True
    closed_loop: bool = False


class ShadowHello(Model):
    """The answer of a shadow once it has loaded the agent.

    Attributes:
        agent_id: the agent.
        build: the id of its build.
        code: a digest of the agent with all files of its plugins.
        confined_by: what the kernel confines it with.
        error: the reason why it cannot work.
    """

    agent_id: str = ""
    build: str = ""
    code: str = ""
    confined_by: list[str] = Field(default_factory=list)
    error: str | None = None


class ShadowAnswer(Model):
    """A judgement, or the reason why a record cannot be read."""

    judgement: ReplayedIteration | None = None
    error: str | None = None


def main() -> None:
    """Answer on what was the standard output; what plugins print goes with their errors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", errors="surrogateescape")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.CRITICAL)
    sys.dont_write_bytecode = True
    task = ShadowTask.from_json(sys.stdin.readline())
    sys.path[:] = task.paths or sys.path
    confined_by = confine()
    watch_calls_of_c()
    judging = _Judging(task)
    try:
        hello = judging.load().patched({"confined_by": [*confined_by, "audit hook"]})
    except (BoydError, CannotTell, UnrecordedRead) as error:
        hello = ShadowHello(error=str(error))
    _say(out, hello)
    if hello.error is None:
        judging.serve(sys.stdin, out)


#: The number of records that were judged, and the past by then in a closed loop.
_Outcome: TypeAlias = tuple[int, CarriedPast | None]


class _Judging:
    """Judges one record after another."""

    def __init__(self, task: ShadowTask) -> None:
        self._task = task
        self._shadow: Shadow | None = None
        self._past: CarriedPast | None = None
        self._guard = ActionGuard(self._refuse)

    def load(self) -> ShadowHello:
        """Load the agent and initialize its plugins.

        Raises:
            BoydError: it cannot be loaded.
            CannotTell: a plugin reads something when it is initialized.
            UnrecordedRead: it acts when it is loaded.
        """
        task = self._task
        use_reader(ReferencesOnly())
        agent = load_agent(task.agent, task.plugins, task.options)
        # As in a worker, before plugins are initialized: that may change their objects.
        build = agent.build
        self._shadow = Shadow(agent)
        self._past = CarriedPast() if self._task.closed_loop else None
        self._shadow.init_plugins()
        # Calendars are read now: once it judges, no file is opened any more.
        list(agent.rules.problems())
        return ShadowHello(agent_id=agent.id, build=build.id, code=code_of(agent))

    def serve(self, lines: Iterable[str], out: IO[str]) -> None:
        """Answer each portion of records."""
        gc.freeze()
        gc.set_threshold(_GARBAGE)
        source = iter(lines)
        for line in source:
            records = [next(source) for _ in range(int(line))]
            while records:
                count, self._past = self._fork(partial(self._answer_all, records, out))
                del records[:count]

    def _fork(self, work: Callable[[], _Outcome]) -> _Outcome:
        """The outcome of *work* in a fork of this process; ends as that ends, if it has none."""
        reader, writer = os.pipe()
        parent = os.getpid()
        self._guard.is_forking = True
        child = os.fork()
        self._guard.is_forking = False
        if child == 0:
            follow_parent(signal.SIGKILL, parent)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(work(), pipe)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            content = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not content:
            sys.exit(status if status > 0 else 128 - status)
        outcome: _Outcome = pickle.loads(content)  # noqa: S301 - from a process as confined as this one
        return outcome

    def _answer_all(self, records: Sequence[str], out: IO[str]) -> _Outcome:
        """Answer records until a plugin keeps something; their number, and the past by then."""
        assert self._shadow is not None, "an agent was loaded"
        count = 0
        while count < len(records) and not self._shadow.has_memory:
            out.write(f"{self._answer(records[count]).to_json()}\n")
            count += 1
        out.flush()
        return count, self._past

    def _answer(self, text: str) -> ShadowAnswer:
        assert self._shadow is not None, "an agent was loaded"
        try:
            record = LoopResult.from_json(text)
        except ValueError as error:
            return ShadowAnswer(error=f"{_name(text)} cannot be read: {error}")
        self._guard.judging = True
        try:
            judgement = judge(self._shadow, record, self._task.known, self._past)
            return ShadowAnswer(judgement=judgement)
        finally:
            self._guard.judging = False

    def _refuse(self, action: str) -> NoReturn:
        if self._shadow is None:
            raise UnrecordedRead(f"the agent acts when it is loaded: it {action}")
        self._shadow.needs(f"a plugin {action}")


def _name(record: str) -> str:
    """The name of a record that may have another shape."""
    with suppress(ValueError):
        document = json.loads(record)
        if isinstance(document, dict) and "iteration" in document:
            return f"the record of iteration {document['iteration']}"
    return "a record"


def code_of(agent: Agent) -> str:
    """A digest of the agent and of files that its version may not tell: plugins and calendars."""
    digest = hashlib.sha256(f"{VERSION} {agent.build.id}".encode())
    modules = (sys.modules[type(plugin).__module__] for plugin in agent.host.plugins.values())
    folders = {Path(file).parent for module in modules if (file := module.__file__)}
    for folder in sorted(folders):
        for path in sorted(folder.glob("*.py")):
            with suppress(OSError):  # a folder, or the lock of an editor: no plugin
                digest.update(path.read_bytes())
    for calendar in agent.rules.calendars:
        with suppress(OSError):  # a decision that needs it cannot be told
            digest.update(calendar.read_bytes())
    return digest.hexdigest()[:16]


def _say(out: IO[str], message: Model) -> None:
    out.write(f"{message.to_json()}\n")
    out.flush()


if __name__ == "__main__":
    main()
