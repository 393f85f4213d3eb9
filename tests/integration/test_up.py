"""`boyd up` as a user runs it: starts, shows, restarts, stops, and says what is wrong."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self
from urllib.request import urlopen

import psutil
import pytest
import redis

from boyd.embedded.state_folder import read_runtime
from harness import Process, free_port, nursery, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
AGENT = """
id = "small"
mode = "continuous"
loop_interval = 0.5
[[plugins]]
use = "example"
"""


class Up:
    """A running `boyd up`."""

    def __init__(
        self, folder: Path, *agents: str, refused: bool = False, **environment: str
    ) -> None:
        """Start it; what will be *refused* is forked, as it starts nothing."""
        self.state = folder / "state"
        self.output = folder / "output"
        self.environment = {
            **os.environ,
            "BOYD_STATE_DIR": str(self.state),
            "BOYD_API__PORT": "0",
            "XDG_STATE_HOME": str(folder),
            **environment,
        }
        with self.output.open("w") as output:
            self.process = self._fork(agents, output) if refused else self._run(agents, output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(180)

    def says(self, text: str, timeout: float = 30.0) -> None:
        """Wait until it has printed *text*."""
        wait_until(lambda: text in self.output.read_text() or self._ended(text), timeout)

    def command(self, *arguments: str) -> Any:
        """Run another command beside it; its JSON output."""
        command = [sys.executable, "-m", "boyd_cli", *arguments, "-o", "json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, check=True)
        return json.loads(done.stdout)

    def children(self) -> dict[str, psutil.Process]:
        """The processes it has started, by what they do."""
        children = psutil.Process(self.process.pid).children()
        names = [child.name().removeprefix("boyd ") for child in children]
        return {
            "redis" if name.endswith("-server") else name: child
            for name, child in zip(names, children, strict=True)
        }

    def tree(self) -> list[psutil.Process]:
        """Everything below it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def leftovers(self) -> list[psutil.Process]:
        """The processes that have its folder in their environment, regardless of their parents."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.environ().get("XDG_STATE_HOME") == self.environment["XDG_STATE_HOME"]
        return False

    def _fork(self, agents: Sequence[str], output: IO[str]) -> Process:
        return nursery().start(["up", *agents], self.environment, output.fileno())

    def _run(self, agents: Sequence[str], output: IO[str]) -> Process:
        return subprocess.Popen(
            [sys.executable, "-m", "boyd_cli", "up", *agents],
            env=self.environment,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            start_new_session=True,
        )

    def _ended(self, text: str) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"ended before {text!r}:\n{self.output.read_text()}")
        return False


@pytest.fixture
def agent(tmp_path: Path) -> str:
    """A small agent file."""
    path = tmp_path / "small.toml"
    path.write_text(AGENT)
    return str(path)


@pytest.fixture
def fresh(tmp_path: Path, agent: str) -> Iterator[Up]:
    """A `boyd up` whose first iteration has ended."""
    with Up(tmp_path, agent) as running:
        running.says("small #1")
        yield running


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The same, shared by the tests that leave it running."""
    folder = tmp_path_factory.mktemp("up")
    path = folder / "small.toml"
    path.write_text(AGENT)
    with Up(folder, str(path)) as running:
        running.says("small #1")
        yield running


def are_gone(processes: list[psutil.Process]) -> bool:
    """Check that every process has ended."""
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_it_shows_iterations_and_others_can_look_in(up: Up) -> None:
    up.says("small #3")
    status = up.command("status")
    history = up.command("history", "--limit", "2")
    with urlopen(f"{printed_value(up, 'API')}/healthz") as answer:
        health = json.load(answer)

    assert "continuous" in json.dumps(status)
    assert len(history) == 2
    assert health["status"] == "ok"


def test_the_process_that_forks_the_others_has_one_thread(up: Up) -> None:
    assert psutil.Process(up.process.pid).num_threads() == 1
    assert set(up.children()) == {"redis", "worker", "act", "beat", "api"}


def test_it_has_six_processes_where_nothing_is_to_be_done(up: Up) -> None:
    assert len(up.tree()) == 5
    assert "no archive" not in json.dumps(up.command("doctor"))


def printed_value(up: Up, name: str) -> str:
    """A value that it printed when it started."""
    lines = up.output.read_text().splitlines()
    return next(line.split(maxsplit=1)[1] for line in lines if line.startswith(f"  {name} "))


@pytest.mark.long
def test_it_makes_a_key_that_only_its_user_can_read(up: Up) -> None:
    path = up.state / "key"
    text = path.read_text().strip()
    assert str(path) in printed_value(up, "key")
    assert text not in up.output.read_text()
    assert path.stat().st_mode & 0o077 == 0
    result = subprocess.run(
        ["/bin/sh", "-c", printed_value(up, "try")], capture_output=True, text=True, check=False
    )
    [key] = up.command("keys", "list")
    assert key["id"] == text.split("_")[1]
    assert (key["principal"], key["person"]) == (getpass.getuser(), True)
    if shutil.which("curl"):
        assert json.loads(result.stdout)["agent"]["id"] == "small"


@pytest.mark.long
def test_up_prints_the_api_address_once_it_answers_before_any_iteration(
    tmp_path: Path, agent: str
) -> None:
    with Up(tmp_path, agent) as running:
        running.says("  API ")
        with urlopen(f"{printed_value(running, 'API')}/healthz") as answer:
            assert answer.status == 200
        running.says("small #1  ")
        lines = running.output.read_text().splitlines()
    first = next(line for line in lines if "small #1  " in line)
    assert lines[0].endswith("starting agent small")
    assert lines.index(first) > next(n for n, line in enumerate(lines) if "Ctrl-C" in line)


BROKEN = """
from boyd import Plugin


class Broken(Plugin):
    id = "broken"

    def init(self, ctx):
        raise OSError("no database")
"""


@pytest.mark.long
def test_a_plugin_that_fails_to_prepare_stops_boyd_up_at_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('id = "small"\nplugins_dir = "plugins"\n[[plugins]]\nuse = "broken"\n')
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "broken.py").write_text(BROKEN)
    with Up(tmp_path, str(path)) as failed:
        status = failed.process.wait(180)
        output = failed.output.read_text()
    assert status == 1
    assert "cannot start: plugin 'broken': init failed: OSError: no database" in output
    assert "starting it again" not in output
    assert "http://" not in output
    assert "Ctrl-C" not in output


@pytest.mark.long
def test_an_api_that_lets_everybody_in_says_so_at_every_start(tmp_path: Path, agent: str) -> None:
    with Up(tmp_path, agent, BOYD_API__ALLOW_UNAUTHENTICATED="true") as running:
        running.says("warning: api.allow_unauthenticated is set: every user of this machine")
        logged = (running.state / "logs" / "api.log").read_text()
    assert "warning api.allow_unauthenticated is set: every user of this machine" in logged


@pytest.mark.long
def test_ctrl_c_stops_everything(fresh: Up) -> None:
    below = fresh.tree()
    fresh.process.send_signal(signal.SIGINT)

    assert fresh.process.wait(180) == 0
    assert are_gone(below)
    assert not (fresh.state / "runtime.json").exists()


@pytest.mark.long
def test_a_kill_leaves_no_process_behind(fresh: Up) -> None:
    below = fresh.tree()
    fresh.process.kill()
    fresh.process.wait()

    wait_until(lambda: are_gone(below), 20)


@pytest.mark.parametrize("name", ["redis", "worker", pytest.param("beat", marks=pytest.mark.long)])
def test_a_child_that_dies_is_started_again_and_the_loop_goes_on(up: Up, name: str) -> None:
    killed = up.output.read_text().count("SIGKILL")
    up.children()[name].kill()
    wait_until(lambda: up.output.read_text().count("SIGKILL") > killed)
    number = up.output.read_text().count("small #")
    wait_until(lambda: up.output.read_text().count("small #") > number + 3, 60)
    last = [line for line in up.output.read_text().splitlines() if "small #" in line][-1]

    assert " ok " in last


@pytest.mark.long
def test_data_survives_from_one_start_to_the_next(tmp_path: Path, agent: str) -> None:
    with Up(tmp_path, agent) as first:
        first.says("small #2")
    with Up(tmp_path, agent) as second:
        second.says("small #3")
        history = second.command("history", "--limit", "500")
        numbers = [entry["iteration"] for entry in history]
        keys = second.command("keys", "list")

    assert {1, 2, 3} <= set(numbers)
    assert len(keys) == 1


@pytest.mark.long
def test_state_may_be_on_a_cluster_from_one_start_to_the_next(tmp_path: Path, agent: str) -> None:
    with Up(tmp_path, agent, "--redis-nodes", "3") as first:
        first.says("small #2")
        findings = first.command("doctor")["findings"]
        below = first.tree()
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(180) == 0
        assert are_gone(below)
    assert [finding["what"] for finding in findings if finding["subject"] == "cluster"] == [
        "3 masters serve all slots"
    ]
    with Up(tmp_path, agent, "--redis-nodes", "3") as second:
        second.says("small #3")
        numbers = [entry["iteration"] for entry in second.command("history", "--limit", "500")]
    assert {1, 2} <= set(numbers)
    with Up(tmp_path, agent) as other:
        assert other.process.wait(180) == 1
    assert "has data of a cluster of 3 masters: use --redis-nodes 3" in other.output.read_text()


@pytest.mark.long
def test_a_key_unknown_to_redis_is_replaced(tmp_path: Path, agent: str) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "key").write_text(f"boyd_{'a' * 12}_{'b' * 43}")
    with Up(tmp_path, agent, "--show-key") as running:
        running.says("small #1")
        text = (state / "key").read_text().strip()
        assert printed_value(running, "key") == text
        assert "b" * 43 not in text
        assert running.command("agents")[0]["id"] == "small"


@pytest.mark.long
def test_the_example_restarts_its_service_when_it_is_killed(tmp_path: Path) -> None:
    """`make up` runs a real service, which is seen down, started, killed and started again."""
    port = str(free_port())
    folder = tmp_path / "watch"
    _copy(ROOT / "examples" / "watch", folder, port)
    with Up(tmp_path, str(folder / "agent.toml"), WATCH_PORT=port) as running:
        running.says("restartService", 60)
        pidfile = tmp_path / "boyd-watch" / "service.pid"
        first = wait_until(lambda: _pid(pidfile), 30)
        wait_until(lambda: _healthy(port), 30)
        # What dies before its restart was found effective is not restarted again at once.
        wait_until(lambda: running.command("actions", "holds") == [], 30)
        os.kill(first, signal.SIGKILL)
        second = wait_until(lambda: _pid(pidfile) != first and _pid(pidfile), 60)
        wait_until(lambda: _healthy(port), 30)
        os.kill(second, signal.SIGKILL)

    assert first != second


@pytest.mark.long
def test_the_example_asks_for_the_clean_up_when_a_restart_has_no_effect(tmp_path: Path) -> None:
    port = str(free_port())
    folder = tmp_path / "watch"
    _copy(ROOT / "examples" / "watch", folder, port)
    scratch = tmp_path / "boyd-watch" / "scratch"
    scratch.mkdir(parents=True)
    for number in range(45):
        (scratch / f"scratch-{number:06}.bin").write_bytes(b"0" * 500_000)
    with Up(tmp_path, str(folder / "agent.toml"), WATCH_PORT=port) as running:
        running.says("restartService", 60)
        [held] = wait_until(lambda: _holds(running, "no effect"), 60)
        running.says('restartService target=web verdict="no effect"', 60)
        messages = wait_until(lambda: _instead(running), 60)
        restarts = [
            execution["verification"]["verdict"]
            for execution in running.command("actions", "executions")
            if execution["action"] == "http-monitor:restartService"
        ]

    assert "answered 503" in held["evidence"]
    assert messages[0].startswith("http-monitor:restartService on web is not repeated")
    assert restarts == ["no effect"]


def _holds(running: Up, kind: str) -> list[Any]:
    holds = running.command("actions", "holds")
    return [hold for hold in holds if hold["kind"] == kind]


def _instead(running: Up) -> list[str]:
    pending = running.command("approvals", "list")
    return [
        reason for item in pending for reason in item.get("insteadOf", []) if "no eff" in reason
    ]


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ('id = "x"\n[[plugins]]\nuse = "nothing"\n', {}, "plugin 'nothing': not found"),
        ('id = "x"\n[[plugins]]\nuse = "example"\noptions = {a = 1}\n', {}, "a: is not known"),
        ('id = "x"\n[[plugins]]\nuse = "no.such:P"\n', {}, "cannot import 'no.such'"),
        (AGENT, {"BOYD_REDIS_URL": "redis://127.0.0.1:1/0"}, "Redis does not answer"),
        (AGENT, {"BOYD_REDIS_URL": "http://127.0.0.1"}, "redis_url 'http://127.0.0.1' cannot"),
        (AGENT, {"BOYD_STATE_DIR": "/proc/nowhere"}, "/proc/nowhere"),
        (AGENT, {"BOYD_API__HOST": "192.0.2.1"}, "the API cannot listen on 192.0.2.1:0"),
        (AGENT, {"BOYD_API__PORT": "99999"}, "api.port"),
        (AGENT, {"BOYD_REDIS_ULR": "x"}, "did you mean BOYD_REDIS_URL?"),
        (AGENT, {"BOYD_LOG_LEVEL": "loud"}, "log_level"),
    ],
)
def test_an_invalid_setup_is_reported_in_one_line_before_anything_starts(
    tmp_path: Path, text: str, environment: dict[str, str], message: str
) -> None:
    agent = tmp_path / "agent.toml"
    agent.write_text(text)
    with Up(tmp_path, str(agent), refused=True, **environment) as failed:
        status = failed.process.wait(180)
        output = failed.output.read_text().strip()

    assert message in output
    assert len(output.splitlines()) == 1, output
    assert status == 1
    assert failed.leftovers() == []


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path, agent: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with Up(tmp_path, agent, refused=True, BOYD_API__PORT=port) as failed:
            assert failed.process.wait(180) == 1

    assert "Address already in use" in failed.output.read_text()
    assert not (failed.state / "redis").exists()


def test_a_second_start_in_the_same_folder_is_refused(up: Up, tmp_path: Path, agent: str) -> None:
    second = tmp_path / "second"
    second.mkdir()
    with Up(second, agent, refused=True, BOYD_STATE_DIR=str(up.state)) as refused:
        assert refused.process.wait(180) == 1

    assert f"already running in {up.state} (pid {up.process.pid})" in refused.output.read_text()


def _copy(source: Path, target: Path, port: str) -> None:
    """The example with another port and a quicker pace."""
    shutil.copytree(source, target)
    path = target / "agent.toml"
    text = path.read_text().replace(":8765/", f":{port}/")
    text = text.replace("loop_interval = 5", "loop_interval = 1").replace(
        "interval = 5", "interval = 1"
    )
    text += '\n[verification."http-monitor:restartService"]\nwithin = 5\n'
    path.write_text(text.replace("cooldown = 15", "cooldown = 2"))


def _pid(path: Path) -> int | None:
    return int(path.read_text().split()[0]) if path.exists() and path.read_text() else None


def _healthy(port: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.long
def test_a_key_that_redis_loses_at_run_time_is_replaced(up: Up) -> None:
    running = read_runtime(up.state)
    assert running is not None
    with redis.Redis.from_url(running.redis_url) as client:
        client.flushall()
    up.says("Redis has lost the key, or it was revoked; a new one is in")

    wait_until(lambda: [row["id"] for row in up.command("agents")] == ["small"])


@pytest.mark.long
def test_when_its_folder_is_deleted_it_says_so_and_ends(fresh: Up) -> None:
    shutil.rmtree(fresh.state)

    assert fresh.process.wait(timeout=60) == 1
    assert f"{fresh.state} was deleted, with all data: start it again" in fresh.output.read_text()
    wait_until(lambda: fresh.leftovers() == [])
