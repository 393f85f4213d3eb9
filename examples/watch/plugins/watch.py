"""The plugins of this example: the service as a supervised process, and its scratch folder.

Boyd loads the files of `plugins_dir` as modules named `boyd_plugin_<file>`, so the agent file can
name the function below as `boyd_plugin_watch:restart_service`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from boyd import (
    Anomaly,
    Context,
    Decision,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
)
from boyd.models import Model
from boyd.plugins.process import ProcessControl, Program, Supervised
from boyd.text.formatting import counted

MB = 1_000_000

SERVICE = Path(__file__).resolve().parent.parent / "service.py"
STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "boyd-watch"
SCRATCH = STATE / "scratch"
#: Change it together with the URL in the agent file.
PORT = os.environ.get("WATCH_PORT", "8765")

PROGRAM = Program(
    argv=[sys.executable, str(SERVICE), PORT, "--scratch", str(SCRATCH)],
    pidfile=STATE / "service.pid",
    log=STATE / "service.log",
)


def restart_service(endpoint_id: str) -> str:
    """Stop the service if it still runs and start it; the http-monitor calls this."""
    return f"{endpoint_id} runs with process id {Supervised(PROGRAM).restart()}"


class Service(ProcessControl):
    """The plugin `process` with our one program; its paths do not depend on where Boyd runs."""

    id = "service"

    def __init__(self, **options: Any) -> None:
        super().__init__(processes={"web": PROGRAM.model_dump()}, **options)


class CleanParams(Model):
    """The megabytes to keep; the oldest files are deleted first."""

    keep_mb: float = Field(default=0.0, ge=0)


class Scratch(Plugin):
    """Watches the scratch folder and proposes to clean it up; a person has to approve that."""

    id = "scratch"

    class Options(Plugin.Options):
        """The folder, and how many megabytes it may hold."""

        folder: Path = SCRATCH
        limit_mb: float = Field(default=5.0, gt=0)

    options: Options

    @observer()
    def size(self) -> list[Observation]:
        """Measure the folder."""
        files = self._files()
        megabytes = round(sum(size for _, size in files) / MB, 1)
        return [
            Observation(
                source=self.id,
                type="metric",
                severity="warning" if megabytes > self.options.limit_mb else "info",
                data={"folder": str(self.options.folder), "files": len(files), "mb": megabytes},
            )
        ]

    @orienter()
    def judge(self, observations: list[Observation]) -> SituationAssessment:
        """Find out whether the folder is too full."""
        own = [o for o in observations if o.source == self.id]
        full = any(o.severity == "warning" for o in own)
        findings = [
            f"The scratch folder holds {o.data['mb']} MB, the limit is {self.options.limit_mb:g}"
            for o in own
        ]
        return SituationAssessment(
            source=f"{self.id}:judge",
            findings=findings,
            confidence=0.9,
            data={"full": full},
            anomalies=[Anomaly(type="folder-full", description=findings[0], severity="medium")]
            if full
            else None,
        )

    @strategy()
    def propose_clean(self) -> Decision:
        """Propose to clean up."""
        # The same params every time: proposals that are equal become one approval.
        return Decision(
            action=f"{self.id}:clean",
            params={"keepMb": 1.0},
            rationale=f"The scratch folder holds more than {self.options.limit_mb:g} MB",
            confidence=0.9,
            risk="medium",
        )

    @propose_clean.applicable_when
    def _full(self, situation: Situation) -> bool:
        return situation.evidence(f"{self.id}:judge").get("full") is True

    @action(risk="medium", autonomy="approval-required")
    def clean(self, params: CleanParams, ctx: Context) -> str:
        """Delete the oldest files."""
        doomed = self._doomed(params)
        for path, _ in doomed:
            path.unlink(missing_ok=True)
        ctx.logger.info("deleted %d scratch files", len(doomed))
        return f"Deleted {_told(doomed)}"

    @clean.dry_run
    def _would_clean(self, params: CleanParams) -> str:
        return f"Would delete {_told(self._doomed(params))}"

    def _doomed(self, params: CleanParams) -> list[tuple[Path, int]]:
        files, left = self._files(), params.keep_mb * MB
        kept = 0
        for _, size in reversed(files):
            if size > left:
                break
            left -= size
            kept += 1
        return files[: len(files) - kept]

    def _files(self) -> list[tuple[Path, int]]:
        """The service's own files with their sizes, oldest first; nothing else is touched."""
        found = []
        for path in sorted(self.options.folder.glob("scratch-*.bin")):
            try:
                found.append((path, path.lstat().st_size))
            except FileNotFoundError:
                continue
        return found


def _told(files: list[tuple[Path, int]]) -> str:
    return f"{counted(len(files), 'file')}, {sum(size for _, size in files) / MB:.1f} MB"
