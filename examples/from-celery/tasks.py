"""Celery tasks that keep a spool folder small: what docs/migrate-from-celery.md starts from."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

app = Celery("spool", broker=os.environ.get("BROKER_URL", "redis://127.0.0.1:6379/0"))
app.conf.beat_schedule = {"check": {"task": "tasks.check_spool", "schedule": 60.0}}

SPOOL = Path("spool")
LIMIT, KEEP = 3, 1


def rejected() -> list[Path]:
    """The rejected files, the oldest first."""
    return sorted(SPOOL.glob("*.rejected"), key=lambda file: file.stat().st_mtime)


@app.task  # type: ignore[untyped-decorator]
def check_spool() -> None:
    """Purge the spool when too many files were rejected."""
    if len(rejected()) > LIMIT:
        purge.delay(KEEP)


@app.task(autoretry_for=(OSError,), max_retries=3, time_limit=30)  # type: ignore[untyped-decorator]
def purge(keep: int) -> int:
    """Delete rejected files, except the newest."""
    files = rejected()[:-keep]
    for file in files:
        file.unlink()
    return len(files)
