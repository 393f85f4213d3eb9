"""The actions of the pack: its scripts, with a dry run, a rollback and a verification."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pydantic import BaseModel, Field

from boyd import Plugin, action


class Queue(BaseModel):
    """A queue by its name, which is also that of a folder."""

    queue: str = Field(pattern=r"^[a-z][a-z0-9-]*$")


class QueueScripts(Plugin):
    """Runs the scripts of the pack."""

    id = "queue-scripts"

    class Options(Plugin.Options):
        """The folders of the scripts and of the queues."""

        scripts: str = "pack/actions"
        spool: str = "spool"

    options: Options

    def run(self, script: str, queue: str) -> str:
        """Run a script; what it writes to standard error is in the exception."""
        done = subprocess.run(  # noqa: S603 - no shell reads the name, and its pattern is checked
            ["/bin/sh", f"{self.options.scripts}/{script}.sh", queue],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{script}.sh exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    @action(target="queue", idempotent=True)
    def pause(self, params: Queue) -> str:
        """Take no new messages."""
        return self.run("pause", params.queue)

    @pause.rollback
    def _unpause(self, params: Queue) -> str:
        return self.run("resume", params.queue)

    @action(target="queue", risk="medium")
    def requeue(self, params: Queue) -> str:
        """Move stuck messages back to the ready ones."""
        return self.run("requeue", params.queue)

    @requeue.dry_run
    def _would_requeue(self, params: Queue) -> str:
        return f"would move {len(self.stuck(params.queue))} messages"

    @requeue.verify(within=10, every=2, before=False)
    def _is_moved(self, params: Queue) -> bool:
        return not self.stuck(params.queue)

    def stuck(self, queue: str) -> list[Path]:
        """The stuck messages."""
        return list(Path(self.options.spool, queue, "stuck").glob("*"))

    @action(target="queue", idempotent=True)
    def resume(self, params: Queue) -> str:
        """Take messages again."""
        return self.run("resume", params.queue)
