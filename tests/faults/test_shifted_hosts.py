"""Hosts whose clocks are an hour off: times reported and expiry follow the clock of Redis."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import redis
import requests
from standardwebhooks import Webhook

from faults.clocks import Clock, missing, tidy
from harness import Deployment, wait_until
from http_kit import Handler, serve

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.long]

HOUR = 3600.0
SHIFTS = {"ahead": HOUR, "behind": -HOUR}
#: Seconds that a reported time may differ from now, on a busy machine.
NEAR = HOUR / 4
SECRET = "whsec_" + base64.b64encode(b"clocks" * 4).decode()


@pytest.fixture(scope="module", name="shifted")
def _shifted(
    redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, str, str]]:
    """A worker an hour ahead, a beat an hour behind, an API process of either kind."""
    if reason := missing():
        pytest.skip(reason)
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()
    folder = tmp_path_factory.mktemp("shifted")
    ahead, behind = (Clock(folder / name, by, late=True) for name, by in SHIFTS.items())
    with Deployment(redis_server, folder) as deployment:
        deployment.environment |= {
            "BOYD_CALLBACKS__ALLOW_PRIVATE": "true",
            "BOYD_CALLBACKS__SECRETS": SECRET,
        }
        deployment.prefix = ahead.command
        deployment.worker("w0", "agents.clocked:clocked")
        first = deployment.api("a0")
        deployment.prefix = behind.command
        deployment.beat("b0", "agents.clocked:clocked")
        second = deployment.api("a1")
        yield deployment, f"{first}/api/v0", f"{second}/api/v0"
    tidy()


def _now(deployment: Deployment) -> float:
    seconds, micros = deployment.store.client.time()
    return float(seconds + micros / 1e6)


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_reported_times_follow_the_clock_of_redis(shifted: tuple[Deployment, str, str]) -> None:
    deployment, *bases = shifted
    headers = deployment.key("client", "admin")
    result = deployment.ended("clocked", deployment.launcher("clocked").trigger("test").iteration)
    [watched] = result.observations
    data: dict[str, Any] = dict(watched.data)

    assert data["machine"] - _now(deployment) > HOUR / 2, "the clock was not shifted"
    for reported in (
        data["deployment"],
        watched.timestamp.timestamp(),
        result.started_at.timestamp(),
        result.ended_at.timestamp(),
    ):
        assert abs(reported - _now(deployment)) < NEAR
    for base in bases:
        body = {"title": "when", "description": "is it"}
        response = requests.post(f"{base}/runs", json=body, headers=headers, timeout=60)
        for reported in (_at(response.json()["createdAt"]), _date(response)):
            assert abs(reported - _now(deployment)) < NEAR
    for process in deployment.store.fleet.workers():
        assert 0 <= _now(deployment) - process.started_at.timestamp() < NEAR


def _date(answer: requests.Response) -> float:
    return parsedate_to_datetime(answer.headers["Date"]).timestamp()


def test_approvals_expire_neither_early_nor_late(shifted: tuple[Deployment, str, str]) -> None:
    deployment, ahead, behind = shifted
    asks, answers = deployment.key("client", "admin"), deployment.key("bob", "approvals", "read")

    def ask_and_answer(number: int, base: str) -> dict[str, Any]:
        body = requests.post(
            f"{base}/actions/clocked:write",
            json={"params": {"number": number}},
            headers=asks,
            timeout=60,
        ).json()
        return _item(behind, body["approvalId"], answers)

    first = ask_and_answer(0, ahead)
    early = requests.post(f"{ahead}/approvals/{first['id']}/approve", headers=answers, timeout=60)
    items = [first, ask_and_answer(1, behind), ask_and_answer(2, ahead)]
    *_, last = items
    before = _item(ahead, last["id"], answers)
    wait_until(lambda: _now(deployment) > _at(last["expiresAt"]), 20)
    late = requests.post(f"{behind}/approvals/{last['id']}/approve", headers=answers, timeout=60)

    assert [round(_at(i["expiresAt"]) - _at(i["createdAt"]), 1) for i in items] == [8.0] * 3
    assert early.json()["success"]
    [vote] = _item(behind, first["id"], answers)["approvals"]
    assert abs(_at(vote["at"]) - _at(first["createdAt"])) < NEAR
    assert before["status"] == "pending"
    assert (late.status_code, late.json()["type"]) == (404, "/problems/not-pending")
    assert _item(ahead, last["id"], answers)["status"] == "expired"


def _item(base: str, approval: str, headers: dict[str, str]) -> dict[str, Any]:
    response = requests.get(f"{base}/approvals/{approval}", headers=headers, timeout=60)
    return dict(response.json())


def test_a_request_is_known_again_and_a_key_expires_on_the_clock_of_redis(
    shifted: tuple[Deployment, str, str],
) -> None:
    deployment, ahead, behind = shifted
    asks = deployment.key("client", "admin") | {"Idempotency-Key": "once"}
    body = {"title": "once", "description": "only"}
    first = requests.post(f"{ahead}/runs", json=body, headers=asks, timeout=60)
    again = requests.post(f"{behind}/runs", json=body, headers=asks, timeout=60)
    brief = deployment.key("guest", "read", expires_in=12.0)
    until = _now(deployment) + 12.0
    codes = [_state(base, brief) for base in (ahead, behind)]
    wait_until(lambda: _now(deployment) > until + 0.1)
    after = [_state(base, brief) for base in (ahead, behind)]

    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (codes, after) == ([200, 200], [401, 401])


def test_a_command_on_a_host_that_is_behind_sees_that_a_key_has_expired(
    shifted: tuple[Deployment, str, str],
) -> None:
    deployment, ahead, _ = shifted
    admin = deployment.key("client", "admin")["Authorization"].removeprefix("Bearer ")
    guest = deployment.key("short", "read", expires_in=0.1)
    wait_until(lambda: _state(ahead, guest) == 401)
    environment = {**os.environ, "BOYD_API_KEY": admin, "BOYD_URL": ahead.removesuffix("/api/v0")}
    command = [*deployment.prefix, sys.executable, "-m", "boyd_cli", "keys", "list"]
    listed = subprocess.run(
        command, env=environment, cwd=deployment.folder, capture_output=True, text=True, check=True
    )

    [row] = [line for line in listed.stdout.splitlines() if " short " in line]
    assert row.endswith("expired")


def _state(base: str, headers: dict[str, str]) -> int:
    return requests.get(f"{base}/state", headers=headers, timeout=60).status_code


def test_a_callback_is_repeated_when_it_is_due_and_its_signature_is_in_time(
    shifted: tuple[Deployment, str, str],
) -> None:
    deployment, ahead, _ = shifted
    headers = deployment.key("client", "admin")
    with receiver() as (url, requests_taken):
        body = {"title": "call", "description": "back", "callbackUrl": url}
        run = requests.post(f"{ahead}/runs", json=body, headers=headers, timeout=60).json()
        wait_until(lambda: len(requests_taken) == 2, 20)
        wait_until(lambda: _is_delivered(ahead, run["id"], headers), 10)
        response = requests.get(f"{ahead}/runs/{run['id']}/callback", headers=headers, timeout=60)
    [first, second] = requests_taken

    assert 4.4 < second.at - first.at < NEAR
    for delivered, delivery in zip(requests_taken, response.json()["deliveries"], strict=True):
        assert Webhook(SECRET).verify(delivered.body, delivered.headers)["runId"] == run["id"]
        assert abs(_at(delivery["at"]) - int(delivered.headers["webhook-timestamp"])) < NEAR


def _is_delivered(base: str, run: str, headers: dict[str, str]) -> bool:
    body = requests.get(f"{base}/runs/{run}/callback", headers=headers, timeout=60).json()
    return len(body["deliveries"]) == 2


class Taken:
    """One callback, and when it came."""

    def __init__(self, headers: dict[str, str], body: str) -> None:
        self.headers = headers
        self.body = body
        self.at = time.monotonic()


@contextmanager
def receiver() -> Iterator[tuple[str, list[Taken]]]:
    """Refuses the first callback, and takes the second; its own clock is the true one."""
    requests_taken: list[Taken] = []

    class Receiver(Handler):
        def answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            requests_taken.append(Taken(headers, self.read_body().decode()))
            self.reply(503 if len(requests_taken) == 1 else 204)

    with serve(Receiver) as url:
        yield f"{url}/hook", requests_taken
