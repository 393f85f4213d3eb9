"""The user of Redis in docs/security.md can do everything that Boyd needs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import redis

from boyd.models import Actor
from boyd.store import Store, connect
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

TEXT = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")


@pytest.fixture
def limited_url(redis_url: str) -> Iterator[str]:
    """The URL of Redis for the user that the guide shows."""
    found = re.search(r"^user boyd (.+)$", TEXT, re.MULTILINE)
    assert found
    rules = found[1].replace(">PASSWORD", ">secret").split()
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    client.execute_command("ACL", "SETUSER", "boyd", "reset", *rules)  # type: ignore[no-untyped-call]
    client.acl_log_reset()
    yield redis_url.replace("redis://", "redis://boyd:secret@")
    client.acl_deluser("boyd")
    client.close()


@pytest.mark.long
def test_the_user_of_the_guide_is_enough(limited_url: str, redis_url: str, tmp_path: Path) -> None:
    with Deployment(limited_url, tmp_path) as deployment:
        deployment.worker("w", "agents.traced:careful")
        deployment.beat("b", "agents.traced:careful")
        _iterate_and_approve(deployment)
        _look_over_the_api(deployment)
        for command in (["doctor"], ["audit", "verify"]):
            done = subprocess.run(
                [sys.executable, "-m", "boyd_cli", *command, "--redis-url", limited_url],
                capture_output=True,
                text=True,
            )
            assert "NOPERM" not in done.stdout + done.stderr
        for name in ("w", "b", "api"):
            deployment.stop(name)

    client = redis.Redis.from_url(redis_url, decode_responses=True)
    refused = {entry["object"] for entry in client.acl_log() if entry["username"] == "boyd"}
    client.close()
    assert refused <= {"client"}, "introducing itself is all that it may not"


def test_it_cannot_do_what_is_not_needed(limited_url: str) -> None:
    client = redis.Redis.from_url(limited_url)
    for command in ("FLUSHALL", "KEYS *", "CONFIG SET save x", "GET other", "SHUTDOWN", "ACL LIST"):
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())  # type: ignore[no-untyped-call]
    client.close()


def _iterate_and_approve(deployment: Deployment) -> None:
    begun = deployment.launcher("careful").trigger("test")
    deployment.ended("careful", begun.iteration)
    approvals = deployment.agent("careful").approvals
    [item] = approvals.page(1).pending
    deployment.resolver("careful").answer(item.id, "approved", Actor(principal="ann", person=True))
    wait_until(lambda: (found := approvals.get(item.id)) and found.result)


def _look_over_the_api(deployment: Deployment) -> None:
    deployment.start("api", "api", "--port", "0", ready=False)
    found = wait_until(lambda: re.search(r"API on (\S+)", deployment.log("api")))
    with connect(deployment.redis_url) as client:
        _, key = Store(client).api_keys.create(
            "test", "tester", ["admin"], by=Actor(principal="maker")
        )
    for path in ("/api/v0/approvals", "/api/v0/runs", "/api/v0/audit", "/metrics", "/readyz"):
        request = Request(f"{found[1]}{path}", headers={"Authorization": f"Bearer {key}"})
        with urlopen(request, timeout=60) as answer:
            assert answer.status == 200, path
