"""The plugin `files` with files in a folder of the test."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boyd.models import ActionResult
from boyd.plugin import Context
from boyd_connectors.files import disk_forecast, file_set, plugin, removal
from boyd_connectors.files.disk_forecast import DiskUsage, forecast
from boyd_connectors.files.file_set import FilesError, escape, path_of
from boyd_connectors.files.plugin import DiskFiles
from harness import wait_until
from plugin_kit import Rig, data_of
from signals import signal_process

DAY = 86_400
GIB = 2**30
ALL: dict[str, Any] = {"rotate": {}, "trash_old": {}, "delete_old": {}, "empty_trash": {}}
MOUNT = "/data"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def rig(folder: Path, **more: Any) -> Rig:
    options = {"name": "logs", "root": folder, "patterns": ["*.log", "*.log-*"], "depth": 1}
    return Rig(DiskFiles(mounts=[], sets=[{**options, **more}], actions=ALL))


def old(path: Path, days: float = 30, text: str = "x" * 5000) -> Path:
    path.write_text(text)
    at = time.time() - days * DAY
    os.utime(path, (at, at))
    return path


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# Forecasts


def forecast_of(uses: list[float], every: float = 600, size: int = 100 * GIB) -> Any:
    samples = [(n * every, use * GIB) for n, use in enumerate(uses)]
    now = DiskUsage(used=round(uses[-1] * GIB), free=round(size - uses[-1] * GIB), size=size)
    return forecast(samples, now, 21_600)


def noisy(number: int) -> float:
    return (number * 7919 % 13 - 6) / 10


@pytest.mark.parametrize(
    ("uses", "hours"),
    [
        ([40 + n for n in range(37)], 4.0),
        ([40 + n + noisy(n) for n in range(37)], 4.0),
        ([*(60 + n for n in range(10)), *(40 + n for n in range(27))], 34 / 6),
    ],
    ids=["steady", "with noise", "since a deletion"],
)
def test_a_steady_growth_tells_when_it_is_full(uses: list[float], hours: float) -> None:
    assert forecast_of(uses).seconds == pytest.approx(hours * 3600, rel=0.1)


@pytest.mark.parametrize(
    ("uses", "reason"),
    [
        ([40, 41, 42, 43, 44], "too little is known"),
        ([*(40 + 2 * n for n in range(30)), 40, 42, 44], "too little is known"),
        ([50] * 37, "does not grow"),
        ([50 + noisy(n) for n in range(37)], "not grow"),
        ([*[50] * 18, *[70] * 19], "not grow steadily"),
        ([50 + (n / 10) ** 4 / 5 for n in range(37)], "not grow steadily"),
        ([50 + n / 200 for n in range(37)], "too slowly"),
    ],
    ids=["few", "just deleted", "flat", "noise", "one step", "a burst", "slow"],
)
def test_there_is_no_forecast_rather_than_a_guess(uses: list[float], reason: str) -> None:
    guess = forecast_of(uses)
    assert guess.seconds is None
    assert reason in guess.reason


class Disk:
    """The file system that the plugin sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used, self.size = 40 * GIB, 100 * GIB
        self.gone = False
        monkeypatch.setattr(disk_forecast, "usage", self._usage)

    def _usage(self, path: Path) -> dict[str, DiskUsage]:
        if self.gone:
            raise FilesError(f"{path}: nothing is mounted there")
        return {
            "space": DiskUsage(self.used, self.size - self.used, self.size),
            "inodes": DiskUsage(960, 40, 1000),
        }


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_filling_disk_is_observed_until_it_is_emptied(disk: Disk) -> None:
    watching = Rig(DiskFiles(mounts=[MOUNT], interval=600))
    hours = []
    for number in range(30):
        disk.used += GIB
        observations = watching.observe()
        filling = data_of(observations, "filling")
        hours.append([data["fullInHours"] for data in filling if data["of"] == "space"])
        watching.clock.forward(600)
        if number == 24:
            disk.used = 20 * GIB
    assert hours[:8] == [*[[]] * 7, [9.0]]
    assert hours[24] == [6.0]
    assert hours[25:] == [[]] * 5
    [full] = data_of(observations, "full")
    assert full == {"mount": MOUNT, "of": "inodes", "usedPercent": 96, "host": "here"}
    assert len(watching.state.get("usage/here")[MOUNT]["samples"]) <= disk_forecast.SAMPLES


def test_a_disk_that_could_not_be_asked_once_stays_in_alarm(disk: Disk) -> None:
    watching = Rig(DiskFiles(mounts=[MOUNT], interval=600))
    filling = []
    for number in range(12):
        disk.used, disk.gone = disk.used + GIB, number == 10
        filling.append([row["of"] for row in data_of(watching.observe(), "filling")])
        watching.clock.forward(600)

    assert filling[8:] == [["space"], ["space"], [], ["space"]]


def test_an_unmounted_disk_is_trouble_and_not_a_full_one(disk: Disk) -> None:
    watching = Rig(DiskFiles(mounts=[MOUNT]))
    disk.gone = True
    assert "nothing is mounted" in data_of(watching.observe(), "mount")[0]["error"]
    assert data_of(watching.observe(), "space") == []
    tool = watching.host.tools["files:show_space"]
    disk.gone = False
    assert tool.call("run", ctx=watching.ctx)["/data space"]["noForecast"].startswith("too little")


def test_a_folder_is_no_mount(tmp_path: Path) -> None:
    with pytest.raises(FilesError, match="nothing is mounted there"):
        disk_forecast.usage(tmp_path)


# Sets


@pytest.mark.parametrize(
    "name", ["a b", "ä", "a\nb", "\udcff\udc80", "a\\x0a", "\x1b[31m", "\u202e"]
)
def test_every_name_becomes_a_text_that_can_be_stored_and_read_back(name: str) -> None:
    text = escape(name)
    assert text.isprintable()
    assert text.encode()
    assert path_of(text) == name


@pytest.mark.parametrize("text", ["a\\", "a\\n", "\\x61", "a\nb", "\udcff"])
def test_a_text_that_names_no_path_is_refused(text: str) -> None:
    with pytest.raises(FilesError, match="no path"):
        path_of(text)


def test_old_and_big_files_are_seen_and_nothing_else(logs: Path) -> None:
    (logs / "below").mkdir()
    (logs / "below" / "deeper").mkdir()
    old(logs / "a.log")
    old(logs / "below" / "b.log")
    old(logs / "below" / "deeper" / "c.log")
    old(logs / "other.txt")
    old(logs / "new.log", 0.1, "y" * 9000)
    (logs / "link.log").symlink_to(logs / "a.log")
    (logs / "folder.log").mkdir()
    os.mkfifo(logs / "pipe.log")
    observations = rig(logs, max_bytes=8000).observe()
    [old_set] = data_of(observations, "old")
    assert (old_set["set"], old_set["files"], old_set["host"]) == ("logs", 2, "here")
    [big] = data_of(observations, "big")
    assert (big["path"], big["bytes"]) == (f"{logs}/new.log", 9000)


def test_a_set_that_hangs_hides_no_other(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old(logs / "a.log")
    is_over, look = threading.Event(), removal.old_files

    def hangs(total: Any, most: int) -> Any:
        if total.name == "dead":
            is_over.wait(60)
        return look(total, most)

    monkeypatch.setattr(plugin, "old_files", hangs)
    monkeypatch.setattr(plugin, "SET_TIME", 0.2)
    both = [{"name": name, "root": logs, "patterns": ["*.log"]} for name in ("dead", "logs")]
    watching = Rig(DiskFiles(mounts=[], sets=both))
    observations = [watching.observe() for _ in range(2)]
    is_over.set()

    errors = [row["error"] for looked in observations for row in data_of(looked, "unreadable")]
    assert errors == ["no answer within 0.2 s", "the previous call still hangs"]
    assert [row["set"] for looked in observations for row in data_of(looked, "old")] == ["logs"] * 2


def test_a_scan_that_is_cut_or_must_not_look_says_so(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        old(logs / f"{number}.log")
    monkeypatch.setattr(file_set, "MAX_ENTRIES", 10)
    observations = rig(logs).observe()
    assert data_of(observations, "incomplete") == [
        {"set": "logs", "cut": True, "unreadableFolders": 0, "host": "here"}
    ]
    assert data_of(observations, "old")[0]["files"] == 10
    logs.rename(logs.with_name("away"))
    assert "No such file" in data_of(rig(logs).observe(), "unreadable")[0]["error"]
    logs.symlink_to(logs.with_name("away"))
    assert "a link" in data_of(rig(logs).observe(), "unreadable")[0]["error"]


# Old files


def test_previewed_files_are_deleted_oldest_first(logs: Path) -> None:
    names = ["a\nb.log", "\udcff.log", "c.log", "new.log"]
    for days, name in zip((40, 30, 20, 1), names, strict=True):
        old(logs / name, days)
    params = {"set": "logs", "at_most": 2}
    on = rig(logs)
    preview = on.act("delete_old", params, "dry_run")
    assert [file["path"] for file in preview["files"]] == [
        f"{logs}/a\\x0ab.log",
        f"{logs}/\\xff.log",
    ]
    assert preview["more old files"] == 1
    output = on.act("delete_old", params)
    assert output["files"] == preview["files"]
    assert tree(logs) == {"c.log", "new.log"}
    verification = on.verify("delete_old", params, output)
    assert verification.verdict == "effective"
    assert verification.evidence.startswith("2 of 2 files are gone; ")


def change(path: Path) -> None:
    path.write_text("other")


def touch(path: Path) -> None:
    os.utime(path)


def replace_file(path: Path) -> None:
    path.unlink()
    old(path)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".txt"))
    path.symlink_to(path.with_suffix(".txt"))


@pytest.mark.parametrize("action", ["delete_old", "trash_old"])
@pytest.mark.parametrize("meddle", [change, touch, replace_file, link, Path.unlink])
def test_files_changed_since_the_preview_are_kept(
    logs: Path, meddle: Callable[[Path], None], action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old(logs / "a.log")
    old(logs / "b.log", 20)
    on, params = rig(logs), {"set": "logs"}
    agreed = on.act(action, params, "dry_run")
    meddle(path)
    monkeypatch.setattr(plugin, "common_preview", lambda _: agreed)
    output = on.act(action, params)
    assert [file["path"] for file in output["files"]] == [f"{logs}/b.log"]
    assert output["stayed"] == 1
    assert not (logs / "b.log").exists()
    assert meddle is Path.unlink or path.exists()


@pytest.mark.parametrize("action", ["delete_old", "trash_old"])
def test_a_file_replaced_at_the_last_moment_is_kept(
    logs: Path, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, on = old(logs / "a.log"), rig(logs)
    rename = os.rename

    def late(*names: Any, **folders: Any) -> None:
        monkeypatch.setattr(os, "rename", rename)
        path.unlink()
        path.write_text("precious")
        rename(*names, **folders)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(FilesError, match="at the last moment"):
        on.act(action, {"set": "logs"})
    assert path.read_text() == "precious"
    assert tree(logs) == {"a.log"}


def test_a_folder_that_becomes_a_link_leads_nowhere(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "below").mkdir()
    path = old(logs / "below" / "a.log")
    on, params = rig(logs), {"set": "logs"}
    agreed = on.act("delete_old", params, "dry_run")
    (logs / "below").rename(tmp_path / "elsewhere")
    (logs / "below").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(plugin, "common_preview", lambda _: agreed)
    with pytest.raises(FilesError, match="a link"):
        on.act("delete_old", params)
    assert path.exists()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{logs}/../x.log", "{logs}/x.txt", "{logs}/a/b/c.log", "{logs}//x.log"]
)
def test_a_list_with_other_files_touches_none_of_them(
    logs: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = rig(logs)
    entry = {"path": path.format(logs=logs), "bytes": 1, "modified": "", "inode": "1:1"}
    monkeypatch.setattr(plugin, "common_preview", lambda _: {"files": [entry]})
    with pytest.raises(FilesError, match=r"not among the files|deeper"):
        on.act("delete_old", {"set": "logs"})


def test_an_open_file_stays_and_a_deleted_one_that_is_open_takes_space(logs: Path) -> None:
    on, params = rig(logs), {"set": "logs"}
    with old(logs / "a.log").open():
        old(logs / "b.log")
        preview = on.act("delete_old", params, "dry_run")
        assert f"{logs}/a.log: " in preview["stay, as they are open"][0]
        output = on.act("delete_old", params)
        assert output["left"][0].startswith(f"{logs}/a.log: ")
        (logs / "a.log").unlink()
        files = {"files": preview["files"]}
        assert "1 still take space" in on.verify("delete_old", params, files).evidence


def test_files_left_by_an_interrupted_deletion_are_deleted_the_next_time(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old(logs / "a.log")
    on, params = rig(logs), {"set": "logs"}

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", interrupt)
        with pytest.raises(KeyboardInterrupt):
            on.act("delete_old", params)
    assert [name[:6] for name in tree(logs)] == [file_set.OWN]
    assert data_of(on.observe(), "old")[0]["files"] == 1
    on.act("delete_old", params)
    assert tree(logs) == set()


def test_only_enabled_sets_of_this_host_are_touched(logs: Path) -> None:
    options = {"name": "logs", "root": logs, "patterns": ["*"]}
    other = {**options, "name": "other"}
    on = Rig(DiskFiles(sets=[options, other], actions={"delete_old": {"sets": ["other"]}}))
    old(logs / "a")
    for function in ("execute", "dry_run"):
        with pytest.raises(FilesError, match="delete_old has no set 'logs'"):
            on.act("delete_old", {"set": "logs"}, function)
        with pytest.raises(FilesError, match=r"queue = 'host\.there'"):
            on.act("delete_old", {"set": "other", "host": "there"}, function)
    assert tree(logs) == {"a"}
    with pytest.raises(Exception, match="there is no set 'else'"):
        DiskFiles(sets=[options], actions={"delete_old": {"sets": ["else"]}})


# The trash


def test_undoing_restores_files_from_the_trash(logs: Path) -> None:
    (logs / "below").mkdir()
    old(logs / "a.log", text="a")
    old(logs / "below" / "b.log", text="b")
    on, params = rig(logs), {"set": "logs"}
    output = on.act("trash_old", params)
    assert all(name.startswith(".boyd-trash/") for name in tree(logs))
    verification = on.verify("trash_old", params, output)
    assert verification.verdict == "effective"
    assert "no space is free" in verification.evidence
    [trash] = data_of(on.observe(), "trash")
    assert (trash["batches"], trash["due"]) == (1, 0)
    with pytest.raises(FilesError, match="holds nothing"):
        on.act("empty_trash", params)

    (logs / "a.log").write_text("new")
    back = on.roll_back("trash_old", params, output)
    assert back["left"] == [f"{logs}/a.log: File exists"]
    assert (logs / "a.log").read_text() == "new"
    assert (logs / "below" / "b.log").read_text() == "b"


def test_the_trash_is_emptied_of_the_batches_that_were_previewed(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on, params = rig(logs, trash_keep=0), {"set": "logs"}
    old(logs / "a.log")
    output = on.act("trash_old", params)
    precious = old(tmp_path / "precious")
    (logs / ".boyd-trash" / output["batch"] / "link").symlink_to(tmp_path)
    agreed = on.act("empty_trash", params, "dry_run")
    old(logs / "b.log")
    on.act("trash_old", params)
    monkeypatch.setattr(plugin, "common_preview", lambda _: agreed)
    emptied = on.act("empty_trash", params)
    assert [batch["batch"] for batch in emptied["batches"]] == [output["batch"]]
    assert on.verify("empty_trash", params, emptied).verdict == "effective"
    assert {name.rpartition("/")[2] for name in tree(logs)} == {"b.log"}
    assert precious.exists()
    with pytest.raises(FilesError, match="has changed since"):
        on.act("empty_trash", params)
    with pytest.raises(FilesError, match="No such file"):
        on.roll_back("trash_old", params, output)


# Rotation


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
def writer(logs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes to app.log, and opens it anew on HUP."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(logs / "app.log")])
    wait_until(lambda: (logs / "app.log").exists() and (logs / "app.log").read_text())
    (logs / "pid").write_text(f"{process.pid}\n")
    yield process
    process.kill()
    process.wait()


def signal_rotation(logs: Path, **more: Any) -> dict[str, Any]:
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    name = Path(sys.executable).resolve().name if name != Path(sys.executable).name else name
    return {"rotation": {"pid_file": logs / "pid", "process": name, **more}}


def test_a_file_is_rotated_compressed_and_put_back(
    logs: Path, writer: subprocess.Popen[bytes]
) -> None:
    on, path = rig(logs, **signal_rotation(logs)), logs / "app.log"
    params = {"path": str(path)}
    preview = on.act("rotate", params, "dry_run")
    assert str(writer.pid) in preview["would signal"]
    assert "-bytes: 5" in preview["would change"]
    output = on.act("rotate", params)
    wait_until(lambda: on.verify("rotate", params, output).verdict == "effective")
    [name] = [compressed for compressed in tree(logs) if compressed.endswith(".gz")]
    assert output["rotated"] == f"{logs}/{name}"
    assert gzip.decompress((logs / name).read_bytes()) == b"open\n"
    wait_until(lambda: path.exists() and path.read_text() == "open\n")
    path.write_text("since\n")

    back = on.roll_back("rotate", params, output)
    assert back["notes"] == []
    assert Path(back["aside"]).read_text() == "since\n"
    wait_until(lambda: path.read_text() == "open\nopen\n")
    assert not (logs / name).exists()


def test_a_rotation_has_no_effect_while_a_process_keeps_the_old_file_open(
    logs: Path, writer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from boyd_connectors.files import log_rotation

    monkeypatch.setattr(log_rotation, "REOPEN", 0.1)
    signal_process(writer.pid, signal.SIGSTOP)
    on, params = rig(logs, **signal_rotation(logs)), {"path": f"{logs}/app.log"}
    output = on.act("rotate", params)
    assert "compressed with the next rotation" in output["notes"][0]
    verification = on.verify("rotate", params, output)
    assert verification.verdict == "no effect"
    assert f"({writer.pid}) still has it open" in verification.evidence
    signal_process(writer.pid, signal.SIGCONT)
    wait_until(lambda: on.verify("rotate", params, output).verdict == "effective")


@pytest.mark.parametrize("function", ["execute", "dry_run"])
def test_another_process_than_the_one_that_writes_gets_no_signal(
    logs: Path, writer: subprocess.Popen[bytes], function: str
) -> None:
    params, options = {"path": f"{logs}/app.log"}, signal_rotation(logs)
    other = {"rotation": {**options["rotation"], "process": "nginx"}}
    with pytest.raises(FilesError, match="not 'nginx'"):
        rig(logs, **other).act("rotate", params, function)
    os.utime(logs / "pid", (1, 1))
    with pytest.raises(FilesError, match="older than the process"):
        rig(logs, **options).act("rotate", params, function)
    (logs / "pid").write_text("999999999")
    with pytest.raises(FilesError, match="names no process"):
        rig(logs, **options).act("rotate", params, function)
    assert tree(logs) == {"app.log", "pid"}


def test_a_copy_is_made_and_the_file_emptied_in_place(logs: Path) -> None:
    path = logs / "app.log"
    on, params = rig(logs, rotation={"copy_truncate": True}), {"path": str(path)}
    with path.open("a") as file:
        print("first", file=file, flush=True)
        output = on.act("rotate", params)
        assert on.verify("rotate", params, output).verdict == "effective"
        assert path.read_text() == ""
        on.roll_back("rotate", params, output)
        print("second", file=file, flush=True)
        assert path.read_text() == "first\nsecond\n"
        output = on.act("rotate", params)
        print("third", file=file, flush=True)
    with pytest.raises(FilesError, match="written to since"):
        on.roll_back("rotate", params, output)
    assert gzip.decompress(Path(output["rotated"]).read_bytes()) == b"first\nsecond\n"


def test_rotated_files_beyond_those_to_keep_go_to_the_trash_and_come_back(logs: Path) -> None:
    for day in (1, 2, 3):
        (logs / f"app.log-2026010{day}T000000Z").write_text(str(day))
    (logs / "app.log-notes").write_text("kept")
    (logs / "app.log").write_text("now")
    on = rig(logs, rotation={"keep": 2, "compress": False})
    params = {"path": f"{logs}/app.log"}
    preview = on.act("rotate", params, "dry_run")
    dropped = [f"{logs}/app.log-2026010{day}T000000Z" for day in (1, 2)]
    assert preview["would move to the trash"] == dropped
    output = on.act("rotate", params)
    assert [row["path"] for row in output["dropped"]] == dropped
    assert len([name for name in tree(logs) if not name.startswith(".boyd")]) == 3
    on.roll_back("rotate", params, output)
    assert {name for name in tree(logs) if not name.startswith(".boyd")} == {
        *(Path(path).name for path in dropped),
        "app.log-20260103T000000Z",
        "app.log-notes",
        "app.log",
    }


@pytest.mark.parametrize(
    ("name", "error"),
    [("none.log", "No such file"), ("empty.log", "is empty"), ("link.log", "no regular file"),
     ("a.txt", "not among the files")],
)  # fmt: skip
@pytest.mark.parametrize("function", ["execute", "dry_run"])
def test_rotating_an_unsuitable_file_is_refused(
    logs: Path, name: str, error: str, function: str
) -> None:
    (logs / "empty.log").touch()
    (logs / "a.txt").write_text("a")
    (logs / "link.log").symlink_to("a.txt")
    before = tree(logs)
    with pytest.raises(FilesError, match=error):
        rig(logs, rotation={}).act("rotate", {"path": f"{logs}/{name}"}, function)
    assert tree(logs) == before


def test_a_file_that_was_rotated_since_the_preview_is_left_alone(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "app.log").write_text("old")
    on, params = rig(logs, rotation={}), {"path": f"{logs}/app.log"}
    agreed = on.act("rotate", params, "dry_run")
    (logs / "app.log").rename(logs / "app.log.1")
    (logs / "app.log").write_text("new")
    monkeypatch.setattr(plugin, "common_preview", lambda _: agreed)
    with pytest.raises(FilesError, match="another file than was agreed to"):
        on.act("rotate", params)
    assert tree(logs) == {"app.log", "app.log.1"}


def approve_execution(on: Rig, **more: Any) -> Context:
    """The context of an approved execution, whose approval has these fields."""
    item = SimpleNamespace(**{"first_preview": None, "preview_at": None, "approvals": [], **more})
    approvals = SimpleNamespace(get=lambda _: item)
    return replace(on.ctx, execution_id="approval:one", _approvals=approvals)


def list_files(*files: Path) -> ActionResult:
    approval_entries = [
        file_set.file_at(-1, str(file), str(file)).approval_entry() for file in files
    ]
    return ActionResult(
        action="", success=True, duration=1, output={"files": list(approval_entries)}
    )


def test_only_files_are_deleted_that_all_approvers_have_seen(logs: Path) -> None:
    a, b, c = (old(logs / f"{name}.log") for name in "abc")
    on, at = rig(logs), datetime(2026, 1, 1, tzinfo=UTC)
    votes = [SimpleNamespace(at=at), SimpleNamespace(at=at + timedelta(seconds=2))]
    lists = {"first_preview": list_files(a, b), "preview": list_files(b, c)}
    ctx = approve_execution(on, **lists, preview_at=at + timedelta(seconds=1), approvals=votes)
    action = on.host.actions["files:delete_old"]
    assert action.params is not None
    params = action.params.model_validate({"set": "logs"})
    action.call("execute", params=params, ctx=ctx)
    assert tree(logs) == {"a.log", "c.log"}
    with pytest.raises(FilesError, match="shows no preview"):
        action.call("execute", params=params, ctx=approve_execution(on, preview=None))
    assert tree(logs) == {"a.log", "c.log"}
