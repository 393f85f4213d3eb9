"""During an upgrade two releases run side by side, on one Redis."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import requests

from boyd.health.checks import examine
from boyd.health.reader import read_health
from boyd.messaging.celery_app import TASKS, make_app
from boyd.models import Actor, RunRequest
from boyd.store.keys import Keys
from harness import Deployment, wait_until
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow]

SOMEBODY = Actor(principal="somebody", person=True)


@pytest.mark.long
def test_a_worker_of_the_next_release_and_one_of_this_share_every_iteration(
    deployment: Deployment, measure: Measure
) -> None:
    """Each release uses the fields that it knows of the other's records, and keeps the rest."""
    deployment.worker("now", "agents.storm:storm0", "--concurrency", "2")
    deployment.worker("next", "agents.future:storm0", "--concurrency", "2")
    url = deployment.api("api")
    store = deployment.agent("storm0")
    launcher = deployment.launcher("storm0", "event-driven")
    runs = []
    for number in range(25):
        request = RunRequest(title=f"run {number}", description="x")
        runs.append(launcher.submit_run(request, SOMEBODY).run.id)
        wait_until(lambda: store.loop_control.status().phase == "idle")
    headers = deployment.key("ann", "admin")
    base = f"{url}/api/v0/agents/storm0"
    for number in range(10):
        request_body = {"params": {"number": number}, "requiresApproval": True}
        body = requests.post(
            f"{base}/actions/storm:call", json=request_body, headers=headers, timeout=30
        ).json()
        assert body.get("queued"), (
            body,
            deployment.log("next")[-3000:],
            deployment.log("now")[-3000:],
        )
        approver = deployment.key(f"bob{number}", "approvals")
        reply = requests.post(
            f"{base}/approvals/{body['approvalId']}/approve", headers=approver, timeout=30
        ).json()
        assert reply.get("result", {}).get("output") == "done", (
            reply,
            deployment.log("next")[-3000:],
            deployment.log("now")[-3000:],
        )
    results = store.history.results(100)
    final_runs = [store.runs.get(run_id) for run_id in runs]
    measure(13, f"two releases: {len(results)} iterations, {len(final_runs)} runs, 10 approvals")
    logs = deployment.log("now") + deployment.log("next") + deployment.log("api")

    assert [run.status for run in final_runs if run] == ["completed"] * len(runs)
    assert all(result.success and not result.problems for result in results)
    assert max(Counter(deployment.effects()).values()) == 1
    assert "Traceback" not in logs


def test_a_message_and_an_job_of_a_later_release_are_left_alone(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.worker("now", "agents.storm:storm0")
    client = deployment.store.client
    client.zadd("boyd:{storm0}:due", {"dream:1": 1})
    app = make_app(deployment.environment.get("BOYD_BROKER_URL", deployment.redis_url))
    app.send_task("boyd.dream", ("storm0", 1, 1), queue="boyd.loop.storm0")
    wait_until(lambda: "boyd.dream" in deployment.log("now"))
    launcher = deployment.launcher("storm0")
    results = [deployment.ended("storm0", launcher.trigger("test").iteration) for _ in range(3)]
    wait_until(lambda: client.zscore("boyd:{storm0}:due", "dream:1") > 1)

    assert all(result.success for result in results)
    assert "Traceback" not in deployment.log("now")


def test_records_in_the_format_of_a_newer_release_are_reported_and_left_alone(
    deployment: Deployment, measure: Measure
) -> None:
    deployment.worker("now", "agents.storm:storm0")
    launcher = deployment.launcher("storm0")
    assert deployment.ended("storm0", launcher.trigger("test").iteration).success
    client, keys = deployment.store.client, Keys("storm0")
    fields = {"iteration": "7", "phase": "dream", "epoch": "1", "formatVersion": "2", "sentAt": "1"}
    client.hset(keys.loop, mapping={"iteration": 7, "active": 7})
    client.hset(keys.iteration, mapping=fields)
    client.zadd(keys.due, {"phase": 1})
    make_app(deployment.redis_url).send_task(
        TASKS["start"], ("storm0", 7, 1), queue="boyd.loop.storm0", headers={"formatVersion": 2}
    )
    wait_until(lambda: "has format version 2" in deployment.log("now"))
    wait_until(lambda: "a message of format version 2" in deployment.log("now"))
    messages = [finding.what for finding in examine(read_health(client))]
    measure(13, "a record and a message of format 2: reported and left alone")

    assert client.hgetall(keys.iteration) == fields
    assert any("a newer release keeps it in format 2" in text for text in messages)
    client.delete(keys.iteration)
    client.hdel(keys.loop, "active")
    wait_until(lambda: deployment.agent("storm0").loop_control.status().phase == "idle")
    assert deployment.ended("storm0", launcher.trigger("test").iteration).success
    assert "Traceback" not in deployment.log("now")
