"""celery-exporter, which makes metrics for Prometheus of the events of Celery's workers.

`python tests/kits/celery_exporter_kit.py` installs it: it needs an older redis-py than Boyd, and
therefore an older Celery.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pip_kit import PipParts

PACKAGES = (
    *("prometheus-exporter-celery==0.11.2", "celery==5.5.3", "kombu==5.5.4", "redis==5.3.1"),
    "packaging==26.2",  # kombu needs it, and does not say so
)
#: What Python runs.
RUN = "from src.cli import cli; cli()"

PARTS = PipParts("celery-exporter", PACKAGES)


@contextmanager
def celery_exporter(broker: str, port: int, log: Path) -> Iterator[str]:
    """The URL of the metrics of a broker; without the packages the test is skipped, not in CI."""
    folder = PARTS.require()
    options = ("--broker-url", broker, "--host", "127.0.0.1", "--port", str(port))
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, *options],
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdout=output,
            stderr=output,
        )
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    PARTS.install()
