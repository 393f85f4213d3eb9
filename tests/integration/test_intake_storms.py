"""Storms of alerts against real processes: what a sender may send again is not lost."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from alertmanager_kit import alertmanager
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

INTAKE = "/api/v0/agents/inbox/intake/alertmanager"


class Sender:
    """Sends like Alertmanager: again after 5xx and lost connections, never after 4xx."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url + INTAKE
        self._headers = headers
        self.answers: Counter[int] = Counter()

    def send(self, *fingerprints: str) -> None:
        """Send a group of alerts until it is taken; fail when it never will be."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            answer = requests.post(
                self._url, json=group(*fingerprints), headers=self._headers, timeout=60
            )
            self.answers[answer.status_code] += 1
            if answer.status_code == 202:
                return
            assert answer.status_code == 503, answer.text
            time.sleep(float(answer.headers["Retry-After"]))
        raise AssertionError("it was never taken")


def group(*fingerprints: str) -> dict[str, Any]:
    """A notification of firing alerts."""
    alerts = [
        {
            "status": "firing",
            "labels": {"alertname": "Down", "host": fingerprint},
            "fingerprint": fingerprint,
        }
        for fingerprint in fingerprints
    ]
    return {"version": "4", "groupKey": fingerprints[0], "alerts": alerts}


@pytest.fixture
def sender(deployment: Deployment, request: pytest.FixtureRequest) -> Sender:
    """A sender to an agent that is worked for, with a small allowance a second."""
    rate = getattr(request, "param", "100")
    deployment.environment |= {"BOYD_INTAKE__RATE": rate, "BOYD_INTAKE__BURST": "50"}
    deployment.worker("worker", "agents.inbox:inbox")
    return Sender(deployment.api("api"), deployment.key("alertmanager", "trigger"))


# Less than even a busy machine sends.
@pytest.mark.parametrize("sender", ["20"], indirect=True)
@pytest.mark.long
def test_many_groups_at_once_are_all_observed_though_more_come_than_are_taken(
    deployment: Deployment, sender: Sender
) -> None:
    groups = [f"g{number}" for number in range(300)]
    with ThreadPoolExecutor(50) as pool:
        list(pool.map(sender.send, groups))

    assert sender.answers[503] > 0
    wait_until(lambda: len(deployment.effects()) >= len(groups), 60)
    assert sorted(deployment.effects()) == sorted(groups)


def test_1500_alerts_in_one_group_are_all_observed_in_order(
    deployment: Deployment, sender: Sender
) -> None:
    alerts = [f"a{number}" for number in range(1500)]
    sender.send(*alerts)

    wait_until(lambda: len(deployment.effects()) >= len(alerts), 60)
    assert deployment.effects() == alerts


@pytest.mark.long
def test_a_real_alertmanager_brings_every_group_of_a_storm_beyond_the_allowance(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.environment |= {"BOYD_INTAKE__RATE": "30", "BOYD_INTAKE__BURST": "30"}
    deployment.worker("worker", "agents.inbox:inbox")
    url = deployment.api("api")
    key = deployment.key("alertmanager", "trigger")["Authorization"].removeprefix("Bearer ")
    labels = [{"alertname": "Down", "host": f"h{number}"} for number in range(300)]

    with alertmanager(tmp_path, url + INTAKE, key, ["..."]) as sender:
        sender.fire_all(labels)
        wait_until(lambda: len(set(deployment.effects())) == len(labels), 120)

    admin = deployment.key("admin", "admin")
    text = requests.get(f"{url}/metrics", headers=admin, timeout=60).text
    [refused] = [
        line
        for line in text.splitlines()
        if line.startswith('boyd_intake_refused_total{format="alertmanager",reason="overloaded"}')
    ]
    assert float(refused.split()[-1]) > 0
