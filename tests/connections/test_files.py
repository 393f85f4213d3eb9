"""The connector `files` with real file systems, processes that are killed, and real agents."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boyd_connectors.files.file_set import MAX_ENTRIES, FilesError
from boyd_connectors.files.plugin import DiskFiles
from connection_kit import ConnectedAgent
from faults.small_disk import SmallDisk, missing
from harness import PYTHONPATH, Deployment, wait_until
from plugin_kit import Rig, data_of

pytestmark = [pytest.mark.real, pytest.mark.long]

ALL: dict[str, Any] = {"rotate": {}, "trash_old": {}, "delete_old": {}, "empty_trash": {}}
NOBODY = 65_534


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of eight megabytes."""
    if reason := missing():
        pytest.skip(reason)
    small_disk = SmallDisk(tmp_path / "disk", 8)
    yield small_disk
    if small_disk.folder.is_mount():
        small_disk.unmount()


def rig(folder: Path, **more: Any) -> Rig:
    options = {"name": "logs", "root": folder, "patterns": ["*.log", "*.log-*"], **more}
    return Rig(
        DiskFiles(mounts=[str(folder)], interval=60, window=3600, sets=[options], actions=ALL)
    )


def old(path: Path, text: str = "x" * 5000) -> Path:
    path.write_text(text)
    at = time.time() - 30 * 86_400
    os.utime(path, (at, at))
    return path


def test_a_disk_that_fills_is_foreseen_seen_and_emptied_although_nothing_fits(
    disk: SmallDisk,
) -> None:
    on, params = rig(disk.folder), {"set": "logs"}
    for number in range(20):
        old(disk.folder / f"{number:02}.log", "x" * 200_000)
        on.clock.forward(60)
        observations = on.observe()
    [filling] = [row for row in data_of(observations, "filling") if row["of"] == "space"]
    assert filling["fullInHours"] == 0.4
    disk.fill()
    on.observe()
    [full] = data_of(on.observe(), "full")
    assert (full["of"], full["usedPercent"]) == ("space", 100)

    rotating = rig(disk.folder, rotation={"copy_truncate": True})
    path = {"path": f"{disk.folder}/00.log"}
    with pytest.raises(FilesError, match=r"nothing was changed: .*No space left"):
        rotating.act("rotate", path)
    assert len((disk.folder / "00.log").read_bytes()) == 200_000
    rotating = rig(disk.folder, rotation={})
    output = rotating.act("rotate", path)
    assert "was not compressed: " in output["notes"][0]
    assert Path(output["rotated"]).stat().st_size == 200_000

    output = on.act("delete_old", params)
    assert output["freeAfter"] - output["freeBefore"] == output["bytes"] >= 4_000_000
    assert f"{output['freeAfter']} bytes are free, 0 were" in (
        on.verify("delete_old", params, output).evidence
    )
    on.observe()
    assert data_of(on.observe(), "full") == []


def test_a_file_system_that_is_taken_away_is_no_success(disk: SmallDisk) -> None:
    on, params = rig(disk.folder), {"set": "logs"}
    files = [old(disk.folder / f"{name}.log") for name in "abc"]
    agreed = on.act("delete_old", params, "dry_run")["files"]
    disk.unmount()
    assert "nothing is mounted there" in data_of(on.observe(), "mount")[0]["error"]
    with pytest.raises(FilesError, match="not on the file system"):
        on.verify("delete_old", params, {"files": agreed})
    with pytest.raises(FilesError, match="there is none"):
        on.act("delete_old", params)
    disk.folder.rmdir()
    assert "No such file" in data_of(on.observe(), "unreadable")[0]["error"]
    assert not any(file.exists() for file in files)


def test_files_without_write_permission_are_kept_and_reported() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="boyd-files-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        old(folder / "a.log").chmod(0o644)
        (folder / "secret").mkdir(0o700)
        on, params = rig(folder, depth=1, rotation={}), {"set": "logs"}
        os.seteuid(NOBODY)
        try:
            preview = on.act("delete_old", params, "dry_run")
            assert preview["all open files were seen"] is False
            for action in ("delete_old", "trash_old"):
                with pytest.raises(FilesError, match=r"a\.log: Permission denied"):
                    on.act(action, params)
            with pytest.raises(FilesError, match="Permission denied"):
                on.act("rotate", {"path": f"{folder}/a.log"})
            [counts] = data_of(on.observe(), "incomplete")
        finally:
            os.seteuid(0)
        assert counts["unreadableFolders"] == 1
        assert [path.name for path in folder.iterdir() if path.is_file()] == ["a.log"]


def test_hundreds_of_thousands_of_files_are_too_many_for_one_look(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    disk = SmallDisk(tmp_path / "disk", 500)
    try:
        folder = os.open(disk.folder, os.O_RDONLY)
        for number in range(MAX_ENTRIES + 10_000):
            os.mknod(f"{number}.log", dir_fd=folder)
        os.utime(f"{number}.log", (1, 1), dir_fd=folder)
        os.close(folder)
        on, params = rig(disk.folder, old_after=1), {"set": "logs", "at_most": 1000}
        assert data_of(on.observe(), "incomplete")[0]["cut"] is True
        preview = on.act("delete_old", params, "dry_run")
        assert preview["cut"] is True
        assert len(preview["files"]) == 1000
        assert len(on.act("delete_old", params)["files"]) == 1000
    finally:
        disk.unmount()


def kill_during(folder: Path, code: str) -> None:
    """Run *code* in a process of its own, which kills itself."""
    text = """
    import os, signal, sys
    from boyd_connectors.files import log_rotation
    from boyd_connectors.files.plugin import DiskFiles
    from plugin_kit import Rig
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    folder = sys.argv[1]
    """
    script = textwrap.dedent(text) + textwrap.dedent(code)
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    result = subprocess.run([sys.executable, "-c", script, str(folder)], env=environment)
    assert result.returncode == -signal.SIGKILL


def test_a_worker_killed_while_it_compresses_loses_nothing(tmp_path: Path) -> None:
    text = "line\n" * 1000
    (tmp_path / "app.log").write_text(text)
    kill_during(
        tmp_path,
        """
        log_rotation.rename_no_replace = die
        sets = [{"name": "logs", "root": folder, "patterns": ["*.log"], "rotation": {}}]
        on = Rig(DiskFiles(sets=sets, actions={"rotate": {}}))
        on.act("rotate", {"path": folder + "/app.log"})
        """,
    )
    [rotated] = tmp_path.glob("app.log-*Z")
    assert rotated.read_text() == text
    (tmp_path / "app.log").write_text("more\n")
    wait_until(lambda: rotated.name != time.strftime("app.log-%Y%m%dT%H%M%SZ", time.gmtime()))
    on = rig(tmp_path, rotation={})
    output = on.act("rotate", {"path": f"{tmp_path}/app.log"})
    assert len(output["compressed"]) == 2
    assert gzip.decompress(Path(f"{rotated}.gz").read_bytes()) == text.encode()
    assert not list(tmp_path.glob(".boyd-*"))


WRITER = """
import signal, sys
def reopen(*_):
    global file
    file = open(sys.argv[1], "a", buffering=1)
    print("open", file=file)
signal.signal(signal.SIGHUP, reopen)
reopen()
while True:
    signal.pause()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes to logs/app.log, and opens it anew on HUP."""
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "app.log"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    wait_until(lambda: path.exists() and path.read_text())
    (tmp_path / "pid").write_text(str(process.pid))
    yield process
    process.kill()
    process.wait()


def test_a_worker_killed_before_the_signal_leaves_a_true_record(
    tmp_path: Path, writer: subprocess.Popen[bytes]
) -> None:
    name = Path(f"/proc/{writer.pid}/comm").read_text().strip()
    rotation = {"pid_file": str(tmp_path / "pid"), "process": name}
    on, path = rig(tmp_path / "logs", rotation=rotation), tmp_path / "logs" / "app.log"
    params = {"path": str(path)}
    planned = on.act("rotate", params, "dry_run")
    kill_during(
        tmp_path / "logs",
        f"""
        import psutil
        psutil.Process.send_signal = die
        sets = [dict(name="logs", root=folder, patterns=["*.log"], rotation={rotation!r})]
        Rig(DiskFiles(sets=sets, actions=dict(rotate=dict()))).act("rotate", {params!r})
        """,
    )
    verification = on.verify("rotate", params, planned)
    assert verification.verdict == "no effect"
    assert f"({writer.pid}) still has it open" in verification.evidence
    with pytest.raises(FilesError, match="No such file"):
        on.act("rotate", params)
    writer.send_signal(signal.SIGHUP)
    wait_until(lambda: on.verify("rotate", params, planned).verdict == "effective")
    assert len(list(path.parent.iterdir())) == 2


GATED = '''
"""The plugin `files`, which waits before the second file while there is a file `gate`."""

import time
from pathlib import Path

from boyd_connectors.files import removal
from boyd_connectors.files.plugin import DiskFiles

GATE, move_unchanged, calls = Path("{gate}"), removal.move_unchanged, []


def wait(*arguments):
    calls.append(arguments)
    if len(calls) == 2:
        GATE.with_name("waits").touch()
        while GATE.exists():
            time.sleep(0.05)
    move_unchanged(*arguments)


removal.move_unchanged = wait


class Gated(DiskFiles):
    """DiskFiles."""

    id = "gated"
'''


def agent_text(use: str, folder: Path, more: str = "") -> str:
    return f"""
    id = "disks"
    {more}
    [[plugins]]
    use = "{use}"
    [plugins.options]
    mounts = []
    [[plugins.options.sets]]
    name = "logs"
    root = "{folder}"
    patterns = ["*.log", "*.log-*"]
    max_bytes = 4
    rotation = {{ copy_truncate = true }}
    [plugins.options.actions]
    rotate = {{}}
    delete_old = {{}}
    trash_old = {{}}
    """


def test_an_agent_trashes_rotates_and_deletes_only_approved_files(
    tmp_path: Path, deployment: Deployment
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    old(logs / "a\n\udcff.log", "a")
    agent = ConnectedAgent(deployment, agent_text("files", logs))
    old_files = agent.observed("files/old")
    assert (old_files["set"], old_files["files"]) == ("logs", 1)
    old_set = {"set": old_files["set"], "host": old_files["host"]}

    item, execution = agent.perform("files:trash_old", **old_set)
    [file] = item["preview"]["output"]["files"]
    assert file["path"] == f"{logs}/a\\x0a\\xff.log"
    verified = agent.verified(execution)
    assert verified["verdict"] == "effective"
    assert "no space is free until the trash is emptied" in verified["evidence"]
    assert agent.undo(execution)["state"] == "succeeded"
    assert (logs / "a\n\udcff.log").read_text() == "a"

    (logs / "app.log").write_text("first\n")
    assert agent.observed("files/big")["path"] == f"{logs}/app.log"
    item, execution = agent.perform("files:rotate", path=f"{logs}/app.log", host=old_files["host"])
    assert "-bytes: 6" in item["preview"]["output"]["would change"]
    assert agent.verified(execution)["verdict"] == "effective"
    assert (logs / "app.log").read_text() == ""
    assert agent.undo(execution)["state"] == "succeeded"
    assert (logs / "app.log").read_text() == "first\n"

    called = agent.ask("POST", "/actions/files:delete_old?wait=60", {"params": old_set})
    old(logs / "later.log")
    _, execution = agent.approve(called)
    assert agent.verified(execution)["verdict"] == "effective"
    assert {path.name for path in logs.iterdir() if path.is_file()} == {"app.log", "later.log"}


def test_a_worker_killed_between_two_deletions_leaves_a_true_record(
    tmp_path: Path, deployment: Deployment
) -> None:
    logs, gate, plugins = tmp_path / "logs", tmp_path / "gate", tmp_path / "plugins"
    logs.mkdir()
    plugins.mkdir()
    gate.touch()
    (plugins / "gated.py").write_text(GATED.replace("{gate}", str(gate)))
    for name in "abc":
        old(logs / f"{name}.log")
    text = agent_text("gated", logs, f'plugins_dir = "{plugins}"')
    agent = ConnectedAgent(deployment, text)
    called = agent.ask("POST", "/actions/gated:delete_old?wait=60", {"params": {"set": "logs"}})
    path = f"/approvals/{called['approvalId']}"
    version = {"If-Match": f'"{agent.ask("GET", path)["version"]}"'}
    agent.ask("POST", f"{path}/approve", {}, **version)
    wait_until((tmp_path / "waits").exists)
    deployment.kill("worker")
    gate.unlink()
    deployment.worker("another", str(deployment.folder / "agent.toml"))

    execution = {"id": f"approval:{called['approvalId']}"}
    verified = agent.verified(execution)
    assert verified["verdict"] == "no effect"
    assert verified["evidence"].startswith("1 of 3 files are gone; ")
    assert agent.ask("GET", f"/executions/{execution['id']}")["state"] == "unknown"
    assert len(list(logs.iterdir())) == 2
