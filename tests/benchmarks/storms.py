"""A real Alertmanager that brings many alerts at once."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from alertmanager_kit import alertmanager
from benchmarks.report import Report
from harness import Deployment, wait_until

ALERTS = 1500
#: Seconds in which all of them are observed.
MOST = 30
#: How they are grouped, and the seconds until Alertmanager has all of a group.
GROUPS: dict[str, tuple[list[str], int]] = {
    f"{ALERTS} groups of alerts": (["..."], 0),
    f"{ALERTS} alerts in one group": ([], 3),
}


def measure(report: Report, url: str, folder: Path) -> None:
    """Storms of both kinds, until every alert was observed."""
    if not (shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")):
        report.miss("storms of alerts", "install the package prometheus-alertmanager")
        return
    with Deployment(url, folder) as deployment:
        deployment.worker("w", "agents.inbox:inbox")
        webhook = f"{deployment.api('api')}/api/v0/agents/inbox/intake/alertmanager"
        key = deployment.key("bench", "trigger")["Authorization"].removeprefix("Bearer ")
        for number, (label, (group_by, wait)) in enumerate(GROUPS.items()):
            own = folder / f"alertmanager{number}"
            own.mkdir()
            deployment.effects_file.write_text("")
            labels = [{"alertname": "Down", "host": f"h{number}-{n}"} for n in range(ALERTS)]
            with alertmanager(own, webhook, key, group_by, wait) as sender:
                began = time.monotonic()
                sender.fire_all(labels)
                wait_until(lambda: len(set(deployment.effects())) >= ALERTS, MOST)
                report.most(f"{label}, all observed after", time.monotonic() - began, "s", MOST)
