"""A real Alertmanager, which tells a webhook of the alerts that it is sent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests

from harness import free_port, wait_until
from signals import signal_process


def alertmanager_program() -> str:
    """The Alertmanager of this machine; missing: skipped here, failed in CI."""
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is not None:
        return program
    reason = "no Alertmanager here: install the package prometheus-alertmanager"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Alertmanager:
    """An Alertmanager with its data in a folder."""

    def __init__(self, url: str, command: list[str], log: Path) -> None:
        self.url = url
        self._command = command
        self._log = log

    def start(self) -> None:
        """Start it, with the data that it had."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(lambda: _is_ready(self.url))

    def send(self, number: int) -> None:
        """Send its process a signal; after SIGKILL, wait for its end."""
        if self._process.poll() is None:
            signal_process(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()

    def fire(self, name: str, **labels: str) -> None:
        """Send it an alert, as Prometheus does."""
        self.fire_all([{"alertname": name, **labels}])

    def resolve(self, name: str, **labels: str) -> None:
        """End an alert."""
        self.fire_all([{"alertname": name, **labels}], resolved=True)

    def fire_all(self, alerts: Sequence[dict[str, str]], resolved: bool = False) -> None:
        """Send it alerts with these labels at once; those that have *ended* are over."""
        now = datetime.now(UTC).isoformat()
        sent = [
            {
                "labels": labels,
                "annotations": {"summary": f"{labels['alertname']} fires"},
                **({"endsAt": now} if resolved else {"startsAt": now}),
            }
            for labels in alerts
        ]
        requests.post(f"{self.url}/api/v2/alerts", json=sent, timeout=30).raise_for_status()


@contextmanager
def alertmanager(
    folder: Path,
    webhook: str,
    key: str,
    group_by: Sequence[str] = (),
    group_wait: int = 0,
    others: Mapping[str, str] | None = None,
) -> Iterator[Alertmanager]:
    """An Alertmanager with a folder of its own, which shows *key* to *webhook*.

    It sends a group *group_wait* seconds after the first alert. Alerts with a label `agent` that
    is among *others* go to the webhook there.
    """
    program, port = alertmanager_program(), free_port()
    (folder / "boyd.key").write_text(key)
    (folder / "alertmanager.yml").write_text(
        _configuration({"": webhook, **(others or {})}, folder / "boyd.key", group_by, group_wait)
    )
    command = [
        *(program, "--config.file", str(folder / "alertmanager.yml")),
        *("--storage.path", str(folder / "data"), "--cluster.listen-address="),
        *("--web.listen-address", f"127.0.0.1:{port}"),
    ]
    manager = Alertmanager(f"http://127.0.0.1:{port}", command, folder / "alertmanager.log")
    manager.start()
    try:
        yield manager
    finally:
        manager.send(signal.SIGKILL)


def _configuration(
    webhooks: Mapping[str, str], key_file: Path, group_by: Sequence[str], group_wait: int
) -> str:
    """The configuration, in the part of YAML that is JSON, for webhooks by the label `agent`."""
    receivers = [
        {
            "name": f"boyd {name}",
            "webhook_configs": [
                {
                    "url": url,
                    "max_alerts": 5000,
                    "send_resolved": True,
                    "http_config": {"authorization": {"credentials_file": str(key_file)}},
                }
            ],
        }
        for name, url in webhooks.items()
    ]
    routes = [
        {"receiver": f"boyd {name}", "matchers": [f'agent="{name}"']} for name in webhooks if name
    ]
    times = {"group_wait": f"{group_wait}s", "group_interval": "1s"}
    route = {"receiver": "boyd ", "group_by": list(group_by), "routes": routes, **times}
    return json.dumps({"route": route, "receivers": receivers})


def _is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=10).ok
    except requests.RequestException:
        return False
