"""Real workers count each outcome once, also when killed, and use no grant that has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from boyd import naming
from boyd.models import (
    ActionResult,
    ApprovalItem,
    ExecutionTerms,
    Fence,
    JsonObject,
    TrackRecord,
    VerificationPlan,
)
from boyd.store import AgentEntry, Store
from harness import Deployment, wait_until
from kit import execution_request, person

pytestmark = [pytest.mark.real, pytest.mark.slow]

MODULE = "agents.earner:agent"
ACTION = "earner:do"
STRAIGHT = 6
WORKERS = 8


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """A deployment whose processes look often for what is due."""
    deployment.environment["BOYD_TIMING__SWEEP"] = "0.2"
    return deployment


@contextmanager
def waiting_at(deployment: Deployment, step: str) -> Iterator[Path]:
    """Let a step wait in the body."""
    path = deployment.effects_file.with_name(f"{deployment.effects_file.name}.{step}")
    path.touch()
    yield path
    path.unlink(missing_ok=True)


def records(deployment: Deployment) -> list[TrackRecord]:
    """All track records of the agent."""
    return deployment.agent("earner").track_records.all([ACTION])


def outcomes(deployment: Deployment) -> int:
    """The outcomes counted."""
    return sum(record.outcomes for record in records(deployment))


def _has_counted(deployment: Deployment, number: int) -> bool:
    return outcomes(deployment) == number


def waiting(deployment: Deployment, action: str) -> ApprovalItem | None:
    """The pending approval of an action."""
    pending = deployment.agent("earner").approvals.page(20, history=False).pending
    return next((item for item in pending if item.action_id == action), None)


def approve(deployment: Deployment, action: str) -> None:
    """Approve what waits, as a person, and wait until it was executed."""
    item = wait_until(lambda: waiting(deployment, action))
    deployment.resolver("earner").answer(item.id, "approved", person("ann"))
    approvals = deployment.agent("earner").approvals
    wait_until(lambda: (approval := approvals.get(item.id)) and approval.result)


def act(deployment: Deployment) -> int:
    """Have the agent decide; the number of the iteration."""
    trigger = deployment.launcher("earner").trigger("test")
    deployment.ended("earner", trigger.iteration)
    return trigger.iteration


def grant(deployment: Deployment) -> None:
    """Let the action run alone."""
    act(deployment)
    approve(deployment, ACTION)
    wait_until(lambda: outcomes(deployment) == 1)
    change(deployment, {"effective": STRAIGHT - 1})
    act(deployment)
    approve(deployment, ACTION)
    approve(deployment, naming.GRANT)
    wait_until(lambda: records(deployment)[0].grant)


def change(deployment: Deployment, changes: JsonObject) -> None:
    """Change the only track record."""
    client, tracks = deployment.store.client, f"boyd:{{earner}}:track:{ACTION}"
    [(classed, text)] = [row for row in client.hgetall(tracks).items() if row[0] != "*"]
    client.hset(tracks, classed, json.dumps(json.loads(text) | changes))


def test_two_workers_count_each_outcome_once_and_ask_for_one_grant(deployment: Deployment) -> None:
    for name in ("w0", "w1"):
        deployment.worker(name, MODULE)
    for number in range(1, STRAIGHT + 1):
        act(deployment)
        approve(deployment, ACTION)
        wait_until(partial(_has_counted, deployment, number))
    offer = wait_until(lambda: waiting(deployment, naming.GRANT))

    assert offer.seen == 1
    approve(deployment, naming.GRANT)
    before = deployment.effects().count("do")
    act(deployment)
    assert deployment.effects().count("do") == before + 1
    assert waiting(deployment, ACTION) is None


def test_an_outcome_is_counted_once_when_the_worker_is_killed_at_the_check(
    deployment: Deployment,
) -> None:
    with waiting_at(deployment, "look"):
        deployment.worker("w0", MODULE)
        act(deployment)
        approve(deployment, ACTION)
        wait_until(lambda: "look" in deployment.effects())
        deployment.kill("w0")
    deployment.worker("w1", MODULE)

    wait_until(lambda: outcomes(deployment) > 0)
    wait_until(lambda: not deployment.store.client.smembers("boyd:{earner}:jobs"))
    assert outcomes(deployment) == 1


def test_a_withdrawal_is_counted_once_when_the_worker_is_killed_after_the_verdict(
    deployment: Deployment,
) -> None:
    deployment.worker("w0", MODULE)
    grant(deployment)
    change(deployment, {"drop": 2.9})
    with waiting_at(deployment, "bad"):
        with waiting_at(deployment, "tell"):
            act(deployment)
            wait_until(lambda: "tell:True" in deployment.effects())
            deployment.kill("w0")
        deployment.worker("w1", MODULE)
        wait_until(lambda: deployment.effects().count("tell:True") == 2)
        wait_until(lambda: not deployment.store.client.smembers("boyd:{earner}:jobs"))

    [record] = records(deployment)
    assert (record.withdrawn, record.grant, record.outcomes) == (1, None, 0)
    deployment.store.seal(["earner"])
    kinds = [entry.kind for entry in deployment.agent("earner").audit_trail.entries()]
    assert kinds.count("autonomy.withdrawn") == 1


def test_a_grant_that_is_revoked_between_decide_and_act_is_not_used(
    deployment: Deployment,
) -> None:
    deployment.worker("w0", MODULE)
    grant(deployment)
    done = deployment.effects().count("do")
    tried = deployment.effects().count("before")
    with waiting_at(deployment, "before"):
        trigger = deployment.launcher("earner").trigger("test")
        wait_until(lambda: deployment.effects().count("before") > tried)
        revoked = deployment.agent("earner").track_records.revoke(ACTION, "", person("bob"))
    result = deployment.ended("earner", trigger.iteration)

    assert revoked == 1
    assert result.gate is not None
    assert (result.gate.outcome, result.gate.grant) == ("asked", None)
    assert waiting(deployment, ACTION) is not None
    assert deployment.effects().count("do") == done


def test_racing_verdicts_are_counted_once_for_each_execution(store: Store) -> None:
    agent = store.agent("race")
    store.fleet.register(
        AgentEntry(
            id="race", name="R", mode="manual", loop_interval=1.0, plugins=[], fingerprint="f"
        )
    )
    counting: JsonObject = {"class": "s", "label": "", "confidence": 0.5, "prior": 5, "queue": ""}
    plan = VerificationPlan(within=60, every=1, hold=False, repeat_after=60, roll_back=False)
    terms = ExecutionTerms(verification=plan, counting=counting)
    names = [f"call:{number}" for number in range(20)]
    for name in names:
        claimed = agent.executions.claim(execution_request(name, terms=terms), "t")
        assert claimed.outcome == "claimed"
        assert agent.executions.finish(
            name, "t", ActionResult(action="p:do", success=True, duration=0)
        )
        job = {"executionState": "running", "executionAttempt": 1, "executionBy": "w/1"}
        store.client.hset(f"boyd:{{race}}:verify:{name}", mapping=job)

    def judge(name: str) -> bool:
        fence = Fence(naming.verification(name), 1, "w/1")
        return agent.holds.judge(name, fence, "effective", "", 1, None) == "effective"

    with ThreadPoolExecutor(WORKERS) as pool:
        assert all(pool.map(judge, names * 5))

    [record] = agent.track_records.all(["p:do"])
    assert (record.effective, record.scored) == (20, 20)
