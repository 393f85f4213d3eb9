from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from boyd.agent import load_agent
from boyd.plugins.process import Supervised
from plugin_kit import Rig

EXAMPLE = Path(__file__).parents[3] / "examples" / "watch"


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The plugin file, loaded with its state in a folder of the test and on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("WATCH_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    name = "boyd_plugin_watch"
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / "plugins" / "watch.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    yield module
    left = Supervised(module.PROGRAM).find()
    if left:
        left.kill()


@contextmanager
def service(scratch: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service on a free port, and its URL."""
    command = [sys.executable, str(EXAMPLE / "service.py"), "0", "--scratch", str(scratch)]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


def test_the_agent_file_loads() -> None:
    agent = load_agent(str(EXAMPLE / "agent.toml"))
    assert agent.info.mode == "continuous"
    assert "http-monitor:restartService" in agent.host.actions
    assert list(agent.host.plugins)[-1] == "approval-policy"


def test_a_health_check_is_due_in_every_iteration() -> None:
    agent = load_agent(str(EXAMPLE / "agent.toml"))
    interval = agent.host.observers["http-monitor:health_check"].interval
    assert interval is not None
    assert interval <= agent.settings.loop_interval


def test_the_restart_starts_the_service_and_a_killed_one_comes_back(watch: Any) -> None:
    health = f"http://127.0.0.1:{watch.PORT}/health"
    watch.restart_service("web")
    assert _status(health) == 200
    process = Supervised(watch.PROGRAM).find()
    assert process is not None
    process.kill()
    psutil.wait_procs([process], timeout=120)
    watch.restart_service("web")
    assert _status(health) == 200


def _status(url: str) -> int:
    """The status of *url*, once it answers."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return requests.get(url, timeout=60).status_code
        except requests.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def test_a_full_scratch_folder_is_a_sick_service(tmp_path: Path) -> None:
    (tmp_path / "scratch-0.bin").write_bytes(b"\0" * 500_000)
    with service(tmp_path, "--max-mb", "0.4") as (_, url):
        assert _status(f"{url}/health") == 503
        assert _status(url) == 200


def test_nobody_who_watches_ends_the_service(tmp_path: Path) -> None:
    with service(tmp_path, "--idle-exit", "0.3") as (process, _):
        assert process.wait(120) == 0


def test_a_full_folder_is_proposed_for_cleaning_and_cleaned(watch: Any, tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    rig = Rig(watch.Scratch(folder=folder, limit_mb=2.0))
    for number in range(4):
        (folder / f"scratch-{number}.bin").write_bytes(b"\0" * 600_000)
    (folder / "precious.txt").write_text("mine")
    decision = rig.think()
    assert decision is not None
    assert rig.host.actions[decision.action].autonomy.mode == "approval-required"
    result = rig.act("clean", decision.params, "dry_run")
    assert result == "Would delete 3 files, 1.8 MB"
    assert rig.act("clean", decision.params) == "Deleted 3 files, 1.8 MB"
    assert sorted(path.name for path in folder.iterdir()) == ["precious.txt", "scratch-3.bin"]
    assert rig.think() is None


def test_a_folder_that_is_not_there_is_empty(watch: Any, tmp_path: Path) -> None:
    rig = Rig(watch.Scratch(folder=tmp_path / "none"))
    assert rig.think() is None
