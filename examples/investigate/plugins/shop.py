"""The plugins of this example: its programs, and what a model may use to look at them.

Everything here is confined to one folder, where the programs have their logs, lock and outbox.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import requests
from pydantic import Field

from boyd import (
    Context,
    Decision,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    orienter,
    strategy,
    tool,
)
from boyd.models import JsonObject, Model
from boyd.plugins.process import ProcessControl, Program
from boyd.text.formatting import counted

EXAMPLE = Path(__file__).resolve().parent.parent
STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "boyd-investigate"
#: Change them together with the URLs in the agent file.
SHOP_PORT = os.environ.get("SHOP_PORT", "8766")
MODEL_PORT = os.environ.get("MODEL_PORT", "8767")
#: Touched as long as the agent watches; the programs end by themselves a minute later.
WATCHED = STATE / "watched"
#: How many processes, and names of files, one answer has.
MOST = 50
#: Bytes at the end of a file that its last lines are taken from, and characters of a command line.
TAIL = 65_536
LONGEST = 500


def program(name: str, *arguments: str) -> Program:
    """One of the example's programs."""
    return Program(
        argv=[sys.executable, str(EXAMPLE / f"{name}.py"), *arguments, "--watched", str(WATCHED)],
        pidfile=STATE / f"{name}.pid",
        log=STATE / f"{name}.log",
    )


OUTBOX = ("--outbox", str(STATE / "outbox"))
PROGRAMS = {
    "shop": program("shop", SHOP_PORT, *OUTBOX),
    "courier": program("courier", *OUTBOX, "--lock", str(STATE / "courier.lock")),
    "model": program("model", MODEL_PORT),
}


class Programs(ProcessControl):
    """The plugin `process` with our programs, which starts those that are down."""

    id = "programs"

    def __init__(self, **options: Any) -> None:
        super().__init__(
            processes={name: one.model_dump() for name, one in PROGRAMS.items()}, **options
        )

    def alive(self, ctx: Context) -> list[Observation]:
        """Observe which programs are alive; they notice that they are monitored."""
        STATE.mkdir(parents=True, exist_ok=True)
        WATCHED.touch()
        return super().alive(ctx)

    @orienter()
    def judge(self, observations: list[Observation]) -> SituationAssessment:
        """Find the programs that are down."""
        own = [one for one in observations if one.source.startswith(f"{self.id}/")]
        down = ", ".join(str(one.data["name"]) for one in own if not one.data["alive"])
        said = (
            f"Down: {down}"
            if down
            else f"{counted(len(own), 'program was', 'programs were')} seen to run"
        )
        return SituationAssessment(
            source=f"{self.id}:judge", findings=[said], confidence=0.9, data={"down": down}
        )

    @strategy()
    def start_what_is_down(self, situation: Situation) -> Decision:
        """Start the first program that is down."""
        name = self._down(situation).split(", ")[0]
        return Decision(
            action=f"{self.id}:start",
            params={"name": name},
            rationale=f"{name} is down",
            confidence=0.9,
            risk="low",
        )

    @start_what_is_down.applicable_when
    def _is_something_down(self, situation: Situation) -> bool:
        return bool(self._down(situation))

    def _down(self, situation: Situation) -> str:
        return str(situation.evidence(f"{self.id}:judge").get("down", ""))


class FileParams(Model):
    """A file, and how much of it to read."""

    path: str = Field(description="in the shop's folder, such as shop.log")
    lines: int = Field(default=20, ge=1, le=500, description="how many, from its end")


class FolderParams(Model):
    """A folder."""

    path: str = Field(default=".", description="in the shop's folder; . is that folder itself")


class ProcessParams(Model):
    """The processes to list."""

    matching: str = Field(default="", description="what the command line contains")
    pid: int | None = Field(default=None, description="the process id")


class HealthParams(Model):
    """The time to wait."""

    patience: float = Field(
        default=0.0, ge=0, le=20, description="seconds to wait until it answers 200"
    )


class LockParams(Model):
    """A lock, and the reason to remove it."""

    path: str = Field(description="of the lock file, in the shop's folder")
    pid: int = Field(gt=0, description="the process that the lock names")
    reason: str = Field(
        min_length=1, max_length=500, description="why, for the person who is to allow it"
    )


class Shop(Plugin):
    """The tools of the model: they investigate the shop and repair it."""

    id = "shop"

    @tool(idempotent=True)
    def read_file(self, params: FileParams) -> str:
        """The last lines of a log or another file of text in the shop's folder."""
        path = inside(params.path)
        if not path.is_file():
            raise ValueError(f"{path} is no file")
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return b"".join(deque(file, params.lines)).decode("utf-8", "replace")

    @tool(idempotent=True)
    def list_folder(self, params: FolderParams) -> JsonObject:
        """Count the files in a folder of the shop, with their size and newest names."""
        path = inside(params.path)
        if not path.is_dir():
            raise ValueError(f"{path} is no folder")
        found = [(entry, status) for entry in path.iterdir() if (status := _status(entry))]
        found.sort(key=lambda one: one[1].st_mtime, reverse=True)
        return {
            "path": str(path),
            "entries": len(found),
            "bytes": sum(status.st_size for _, status in found),
            "newest": [entry.name for entry, _ in found[:MOST]],
        }

    @tool(idempotent=True)
    def processes(self, params: ProcessParams) -> list[dict[str, Any]]:
        """The processes of this machine, by a part of the command line or by their id."""
        fields = ["pid", "status", "create_time", "cmdline"]
        found = (_process(one.info) for one in psutil.process_iter(fields))
        return [
            one
            for one in found
            if params.pid in (None, one["pid"]) and params.matching in one["command"]
        ][:MOST]

    @tool(timeout=30.0, idempotent=True, poll=True)
    def health(self, params: HealthParams, ctx: Context) -> JsonObject:
        """Ask the shop for its health; 200 is healthy."""
        url = f"http://127.0.0.1:{SHOP_PORT}/health"
        until = time.monotonic() + params.patience
        while (seen := _asked(url, ctx))["status"] != 200 and time.monotonic() < until:
            time.sleep(0.1)
        return seen

    @action(
        title="Remove a stale lock",
        risk="medium",
        autonomy="approval-required",
        target="path",
        tool=True,
    )
    def remove_lock(self, params: LockParams) -> str:
        """Remove a lock file that was left behind by a process that is gone."""
        path = self._stale(params)
        path.unlink()
        return f"Removed {path}, which process {params.pid} has left behind"

    @remove_lock.dry_run
    def _would_remove(self, params: LockParams) -> str:
        return f"Would remove {self._stale(params)}: there is no process {params.pid}"

    def _stale(self, params: LockParams) -> Path:
        """The lock's path, once more looked at: much may happen until somebody approves."""
        path = inside(params.path)
        if path.suffix != ".lock" or not path.is_file():
            raise ValueError(f"{path} is no lock")
        holder = path.read_text().strip()
        if holder != str(params.pid):
            raise ValueError(f"{path} names process {holder}, and not {params.pid}")
        if _lives(params.pid):
            raise ValueError(f"process {params.pid} lives: its lock is not stale")
        return path


def inside(path: str) -> Path:
    """A path of the shop's folder, wherever links lead.

    Raises:
        ValueError: it is somewhere else.
    """
    folder = STATE.resolve()
    found = (folder / path).resolve()
    if not found.is_relative_to(folder):
        raise ValueError(f"{path} is not in {folder}")
    return found


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _process(info: dict[str, Any]) -> dict[str, Any]:
    command = " ".join(info["cmdline"] or ())
    return {
        "pid": info["pid"],
        "status": info["status"],
        "started": datetime.fromtimestamp(info["create_time"] or 0).isoformat(" ", "seconds"),
        "command": command[:LONGEST],
    }


def _lives(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _asked(url: str, ctx: Context) -> JsonObject:
    try:
        answer = ctx.http.get(url, timeout=2)
    except requests.RequestException as error:
        return {"url": url, "status": None, "said": type(error).__name__}
    return {"url": url, "status": answer.status_code, "said": answer.text.strip()[:LONGEST]}
