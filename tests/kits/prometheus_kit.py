"""A real Prometheus, which scrapes what a test says every fifth of a second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import requests

from connection_kit import program
from harness import free_port, wait_until

RULES = {
    "groups": [
        {
            "name": "tests",
            "rules": [
                {
                    "alert": "QueueLong",
                    "expr": "queue_length > 100",
                    "labels": {"severity": "critical"},
                    "annotations": {"summary": "the queue is long"},
                }
            ],
        }
    ]
}


class PrometheusServer:
    """A Prometheus with a folder of its own, which scrapes *targets* as one job."""

    def __init__(
        self,
        folder: Path,
        targets: Sequence[str],
        alertmanager: str = "",
        *,
        job: str = "shop",
        rules: Any = RULES,
        **scraping: Any,
    ) -> None:
        self._folder = folder
        self._program = program("prometheus", "prometheus")
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        often = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
        host = alertmanager.removeprefix("http://")
        alerting = {"alertmanagers": [{"static_configs": [{"targets": [host]}]}]}
        configuration: dict[str, Any] = {
            "global": {**often, "evaluation_interval": "200ms"},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [*targets]}], **scraping}
            ],
        }
        if host:
            configuration["alerting"] = alerting
        # The part of YAML that is JSON.
        (folder / "rules.yml").write_text(json.dumps(rules))
        (folder / "prometheus.yml").write_text(json.dumps(configuration))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, with the data that it had."""
        command = [
            *(self._program, "--config.file", str(self._folder / "prometheus.yml")),
            *("--storage.tsdb.path", str(self._folder / "data")),
            "--rules.alert.resend-delay=1s",
            *("--web.listen-address", f"127.0.0.1:{self._port}"),
        ]
        with (self._folder / "prometheus.log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._is_ready)

    def kill(self) -> None:
        """Kill it."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def query(self, expr: str) -> list[Any]:
        """The series of an instant query."""
        result: list[Any] = self.get("query", query=expr)["result"]
        return result

    def get(self, path: str, **params: Any) -> Any:
        """The data of an answer of its API."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=params, timeout=30)
        assert answer.ok, f"{params}: {answer.text}"
        return answer.json()["data"]

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        try:
            return requests.get(f"{self.url}/-/ready", timeout=10).ok
        except requests.RequestException:
            return False
