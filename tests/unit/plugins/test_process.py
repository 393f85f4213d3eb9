from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from boyd.errors import PluginError
from boyd.plugins.process import ProcessControl, Program, StartFailed, Supervised
from plugin_kit import Rig

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
NO_TERM = (
    "import pathlib, signal, time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "pathlib.Path('ready').touch(); time.sleep(60)"
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Builds the plugin with one process `web`, killed with its group after the test."""

    def build(argv: list[str] = SLEEP, units: tuple[str, ...] = (), **more: Any) -> Rig:
        program = {"argv": argv, "pidfile": pidfile, "cwd": tmp_path, "settle": 0.1, **more}
        return Rig(ProcessControl(processes={"web": program}, units=list(units)))

    pidfile = tmp_path / "run" / "web.pid"
    yield build
    left = Supervised(Program(argv=SLEEP, pidfile=pidfile)).find()
    if left:
        os.killpg(left.pid, signal.SIGKILL)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for systemctl that writes down how it was called."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho inactive\n[ "$1" != is-active ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return calls


def start(plugin: Rig) -> psutil.Process:
    return psutil.Process(plugin.act("start", {"name": "web"})["pid"])


def until(true: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.01)
    return False


def test_a_started_process_has_a_session_of_its_own(rig: Callable[..., Rig]) -> None:
    process = start(rig())
    assert os.getsid(process.pid) == process.pid


def test_the_pidfile_holds_the_process_id_and_when_it_was_created(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    process = start(rig())
    pid, created = (tmp_path / "run" / "web.pid").read_text().splitlines()
    assert int(pid) == process.pid
    assert float(created) == process.create_time()


def test_a_process_that_runs_is_not_started_again(rig: Callable[..., Rig]) -> None:
    plugin = rig()
    process = start(plugin)
    assert plugin.act("start", {"name": "web"}) == {"pid": process.pid, "started": False}


def test_workers_that_start_it_at_the_same_time_start_one(rig: Callable[..., Rig]) -> None:
    plugins = [rig() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda plugin: plugin.act("start", {"name": "web"}), plugins))
    assert len({result["pid"] for result in results}) == 1
    assert [result["started"] for result in results].count(True) == 1


def test_another_process_with_the_same_id_is_never_taken_for_ours(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    pidfile = tmp_path / "run" / "web.pid"
    pidfile.parent.mkdir()
    pidfile.write_text(f"{os.getpid()}\n{psutil.Process().create_time() - 60}\n")
    plugin = rig()
    with pytest.raises(ProcessLookupError, match="not running"):
        plugin.act("signal", {"name": "web", "signal": "KILL"})
    assert start(plugin).pid != os.getpid()


@pytest.mark.parametrize("text", ["", "x", "1", "-1 2", "99999999 1.0", "1 2 3", "\0"])
def test_a_damaged_pidfile_means_that_nothing_runs(
    rig: Callable[..., Rig], tmp_path: Path, text: str
) -> None:
    pidfile = tmp_path / "run" / "web.pid"
    pidfile.parent.mkdir()
    pidfile.write_text(text)
    assert rig().observe()[0].data["alive"] is False


def test_a_restart_replaces_the_process(rig: Callable[..., Rig]) -> None:
    plugin = rig()
    before = start(plugin)
    after = plugin.act("restart", {"name": "web"})["pid"]
    assert after != before.pid
    assert not before.is_running()
    assert plugin.observe()[0].data["pid"] == after


def test_a_restart_starts_what_is_not_running(rig: Callable[..., Rig]) -> None:
    assert psutil.pid_exists(rig().act("restart", {"name": "web"})["pid"])


def test_a_process_that_ignores_term_is_killed(rig: Callable[..., Rig], tmp_path: Path) -> None:
    plugin = rig([sys.executable, "-c", NO_TERM], stop_timeout=0.2)
    before = start(plugin)
    assert until((tmp_path / "ready").exists)
    plugin.act("restart", {"name": "web"})
    assert not before.is_running()


def test_children_of_a_restarted_process_end_with_it(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    code = f"import subprocess, time; p = subprocess.Popen({SLEEP!r}); "
    code += "open('child', 'w').write(f'{p.pid}.'); time.sleep(60)"
    plugin = rig([sys.executable, "-c", code])
    start(plugin)
    note = tmp_path / "child"
    assert until(lambda: note.exists() and note.read_text().endswith("."))
    child = psutil.Process(int(note.read_text().rstrip(".")))
    plugin.act("restart", {"name": "web"})
    assert until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_process_that_ends_at_once_is_a_failed_start(rig: Callable[..., Rig]) -> None:
    with pytest.raises(Exception, match="ended immediately with code 7"):
        rig([sys.executable, "-c", "raise SystemExit(7)"], settle=5).act("start", {"name": "web"})


def test_a_program_that_does_not_exist_is_a_failed_start(rig: Callable[..., Rig]) -> None:
    with pytest.raises(Exception, match="cannot be started"):
        rig(["/no/such/program"]).act("start", {"name": "web"})


def test_a_process_whose_pidfile_cannot_be_written_is_not_left_running(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    # A folder in its place: the file cannot replace it.
    (tmp_path / "run" / "web.pid" / "full").mkdir(parents=True)
    with pytest.raises(StartFailed, match="pidfile cannot be written"):
        rig().act("start", {"name": "web"})
    ours = psutil.Process().children()
    assert not [child for child in ours if child.cmdline() == SLEEP]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"web.pid", "web.pid.lock"}


def test_output_and_environment_are_as_configured(rig: Callable[..., Rig], tmp_path: Path) -> None:
    code = "import os, time; print(os.environ['COLOUR'], flush=True); time.sleep(60)"
    log = tmp_path / "log" / "web.log"
    start(rig([sys.executable, "-c", code], env={"COLOUR": "blue"}, log=log))
    assert until(lambda: log.read_text() == "blue\n")


def test_a_process_gets_no_setting_of_boyd(
    rig: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOYD_REDIS_URL", "redis://:secret@127.0.0.1/0")
    monkeypatch.setenv("COLOUR", "blue")
    code = "import os, time; print(*sorted(os.environ), flush=True); time.sleep(60)"
    log = tmp_path / "web.log"
    start(rig([sys.executable, "-c", code], env={"BOYD_MINE": "1"}, log=log))

    assert until(log.read_text)
    names = log.read_text().split()
    assert [name for name in names if name.startswith("BOYD")] == ["BOYD_MINE"]
    assert "COLOUR" in names


def test_a_signal_reaches_the_process(rig: Callable[..., Rig]) -> None:
    plugin = rig()
    process = start(plugin)
    plugin.act("signal", {"name": "web", "signal": "TERM"})
    assert until(lambda: not process.is_running())


def test_a_dead_process_is_an_error_and_leaves_no_zombie(rig: Callable[..., Rig]) -> None:
    plugin = rig()
    process = start(plugin)
    [observation] = plugin.observe()
    assert (observation.source, observation.type, observation.severity) == (
        "process/web",
        "state",
        "info",
    )
    process.kill()
    assert until(lambda: not psutil.pid_exists(process.pid))
    [observation] = plugin.observe()
    assert (observation.severity, observation.data["alive"]) == ("error", False)


@pytest.mark.parametrize("name", ["start", "restart", "signal"])
def test_only_what_the_options_name_is_touched(rig: Callable[..., Rig], name: str) -> None:
    params = {"name": "sshd"} | ({"signal": "TERM"} if name == "signal" else {})
    plugin = rig(units=("nginx.service",))
    with pytest.raises(LookupError, match=r"no process or unit 'sshd'.*web, nginx.service"):
        plugin.act(name, params)
    with pytest.raises(LookupError):
        plugin.act(name, params, "dry_run")


def test_a_signal_that_is_not_known_is_refused(rig: Callable[..., Rig]) -> None:
    with pytest.raises(ValueError, match="signal"):
        rig().act("signal", {"name": "web", "signal": "9"})


def test_dry_runs_tell_and_do_nothing(rig: Callable[..., Rig], tmp_path: Path) -> None:
    plugin = rig()
    assert "Would start" in plugin.act("start", {"name": "web"}, "dry_run")
    assert "Would start" in plugin.act("restart", {"name": "web"}, "dry_run")
    result = plugin.act("signal", {"name": "web", "signal": "HUP"}, "dry_run")
    assert result == "Would send HUP to web"
    assert not (tmp_path / "run").exists()


def test_a_dry_run_knows_what_runs(rig: Callable[..., Rig]) -> None:
    plugin = rig()
    process = start(plugin)
    assert "Would do nothing" in plugin.act("start", {"name": "web"}, "dry_run")
    result = plugin.act("restart", {"name": "web"}, "dry_run")
    assert result.startswith(f"Would stop process {process.pid} and start")


def test_units_are_asked_through_systemctl(rig: Callable[..., Rig], systemctl: Path) -> None:
    plugin = rig(units=("nginx.service",))
    unit = plugin.observe()[1]
    assert unit.severity == "error"
    assert unit.data == {
        "name": "nginx.service",
        "kind": "unit",
        "alive": False,
        "state": "inactive",
    }
    plugin.act("start", {"name": "nginx.service"})
    plugin.act("restart", {"name": "nginx.service"})
    plugin.act("signal", {"name": "nginx.service", "signal": "HUP"})
    assert systemctl.read_text().splitlines() == [
        "is-active -- nginx.service",
        "start -- nginx.service",
        "restart -- nginx.service",
        "kill --signal=SIGHUP --kill-who=main -- nginx.service",
    ]


def test_units_of_the_user_are_asked_for_as_such(systemctl: Path) -> None:
    Rig(ProcessControl(units=["web.service"], user=True)).act("start", {"name": "web.service"})
    assert systemctl.read_text() == "--user start -- web.service\n"


def test_a_host_without_systemd_still_reports_its_processes(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plugin = rig(units=("nginx.service",))
    start(plugin)
    monkeypatch.setenv("PATH", str(tmp_path))
    web, unit = plugin.observe()
    assert web.data["alive"] is True
    assert "systemctl cannot be started" in str(unit.data["error"])


def test_a_queue_pins_observer_and_actions() -> None:
    host = Rig(ProcessControl(queue="eu1")).host
    assert {observer.queue for observer in host.observers.values()} == {"eu1"}
    assert {action.queue for action in host.actions.values()} == {"eu1"}


def test_the_actions_carry_their_risk() -> None:
    actions = Rig(ProcessControl()).host.actions.values()
    assert {a.name: (a.risk, a.idempotent) for a in actions} == {
        "start": ("low", True),
        "restart": ("medium", False),
        "signal": ("high", False),
    }


@pytest.mark.parametrize(
    "options",
    [
        {"processes": {"web": {"argv": "python web.py", "pidfile": "web.pid"}}},
        {"processes": {"web": {"argv": [], "pidfile": "web.pid"}}},
        {"units": ["--force"]},
        {"units": ["a b"]},
        {"units": ["web"], "processes": {"web": {"argv": ["x"], "pidfile": "web.pid"}}},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PluginError):
        ProcessControl(**options)
