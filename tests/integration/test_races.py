"""Racing answers to an approval have one outcome, and every caller learns the same."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from boyd.models import ApprovalItem, Decision, JsonObject, Proposal
from boyd.runtime.approvals import enqueue_approval
from harness import Deployment, wait_until
from measuring import Measure

ITEMS = 20
ANSWERS = {"approve": "approved", "deny": "denied", "withdraw": "withdrawn"}

pytestmark = [pytest.mark.real, pytest.mark.slow]


@dataclass(frozen=True)
class Told:
    """The answer to a caller."""

    item: str
    caller: str
    answer: str
    status: int
    body: dict[str, Any]

    @property
    def is_winner(self) -> bool:
        """Check that this answer resolved the item."""
        return self.status in (200, 202)


def proposal(number: int, seconds: float = 0.0) -> Proposal:
    """One of many different items."""
    params: JsonObject = {"number": number, "seconds": seconds}
    decision = Decision(action="queue:write", params=params, rationale="a race", confidence=1.0)
    return Proposal(decision=decision, action_id="queue:write", params=params, loop_iteration=0)


def deploy(deployment: Deployment) -> list[str]:
    """Two workers and three API processes; their URLs."""
    deployment.environment.update({"BOYD_API__RATE": "100000", "BOYD_API__BURST": "100000"})
    for name in ("w1", "w2"):
        deployment.worker(name, "agents.queue:agent")
    return [deployment.api(f"api{number}") for number in range(3)]


def race(
    deployment: Deployment,
    urls: list[str],
    items: list[ApprovalItem],
    started: threading.Event,
    callers: int = 40,
) -> list[Told]:
    """Let all callers answer all items at once, each in an order of its own."""
    keys = [deployment.key(f"caller{n}", "approvals") for n in range(callers)]
    ready = threading.Barrier(callers)

    def call(number: int) -> list[Told]:
        dice = random.Random(number)
        answer = dice.choice(list(ANSWERS))
        mine = dice.sample(items, len(items))
        answers = []
        with requests.Session() as session:
            session.headers.update(keys[number])
            ready.wait()
            started.set()
            for item in mine:
                url = f"{dice.choice(urls)}/api/v0/approvals/{item.id}/{answer}?wait=0"
                try:
                    response = session.post(url, timeout=60)
                    if response.status_code == 503:  # a busy machine: ask once more, as clients do
                        response = session.post(url, timeout=60)
                except requests.RequestException:
                    continue
                answers.append(
                    Told(item.id, f"caller{number}", answer, response.status_code, response.json())
                )
        return answers

    with ThreadPoolExecutor(callers) as pool:
        return [answer for answers in pool.map(call, range(callers)) for answer in answers]


def settle(deployment: Deployment, items: list[ApprovalItem]) -> dict[str, ApprovalItem]:
    """The resolved items, once every approved action has been executed."""
    store = deployment.agent("queue")

    def over() -> dict[str, ApprovalItem]:
        store.approvals.expire(store.retention())
        approvals = {item.id: store.approvals.get(item.id) for item in items}
        resolved = {
            name: item
            for name, item in approvals.items()
            if item and item.status != "pending" and (item.status != "approved" or item.result)
        }
        return resolved if len(resolved) == len(items) else {}

    final_items: dict[str, ApprovalItem] = wait_until(over, 60)
    return final_items


def check_told(answers: list[Told], resolved: dict[str, ApprovalItem]) -> None:
    """Nobody was told anything that is not so."""
    for name, item in resolved.items():
        about = [answer for answer in answers if answer.item == name]
        winners = [answer for answer in about if answer.is_winner]
        assert len(winners) <= 1, f"{name} was resolved {len(winners)} times"
        for winner in winners:
            assert item.status == ANSWERS[winner.answer] == winner.body["approval"]["status"]
            assert item.acted_by == winner.caller == winner.body["approval"]["actedBy"]
        for winner in about:
            if not winner.is_winner:
                assert (winner.status, winner.body["type"]) == (404, "/problems/not-pending"), (
                    winner
                )
                assert winner.body["approval"]["status"] == item.status
                assert winner.body["approval"].get("actedBy") == item.acted_by


@pytest.mark.parametrize("callers", [10, pytest.param(200, marks=pytest.mark.long)])
def test_an_item_has_one_outcome_and_every_caller_hears_it(
    deployment: Deployment, measure: Measure, callers: int
) -> None:
    urls = deploy(deployment)
    store = deployment.agent("queue")
    # Some expire while they are raced for.
    items = [
        enqueue_approval(store, proposal(n), ttl=1.0 + n / 5 if n % 4 == 0 else 600)
        for n in range(ITEMS)
    ]
    answers = race(deployment, urls, items, threading.Event(), callers)
    resolved = settle(deployment, items)
    effects = Counter(deployment.effects())

    measure(
        6, f"{callers} callers race for {ITEMS} approvals: {len(answers)} answers, one outcome each"
    )
    assert len(answers) == callers * ITEMS
    check_told(answers, resolved)
    for number, item in enumerate(items):
        approved = resolved[item.id].status == "approved"
        assert effects[str(number)] == int(approved)
    # Chance decides which of the three answers win, but never only one of them.
    assert len({item.status for item in resolved.values()} & set(ANSWERS.values())) > 1


@pytest.mark.long
@pytest.mark.parametrize("victims", [("api0", "w1"), ("api0", "api1"), ("w1",)])
def test_a_kill_in_the_middle_leaves_a_state_that_says_what_happened(
    deployment: Deployment, victims: tuple[str, ...]
) -> None:
    urls = deploy(deployment)
    store = deployment.agent("queue")
    items = [enqueue_approval(store, proposal(n, 0.05), ttl=600) for n in range(ITEMS)]
    started = threading.Event()

    def kill() -> None:
        started.wait(60)
        for name in victims:
            deployment.kill(name)

    killer = threading.Thread(target=kill)
    killer.start()
    answers = race(deployment, urls, items, started)
    killer.join()
    check_told(answers, settle(deployment, items))
    resolved = settle(deployment, items)
    effects = Counter(deployment.effects())

    for number, item in enumerate(items):
        final = resolved[item.id]
        times = effects[str(number)]
        assert times <= 1
        if final.status != "approved":
            assert times == 0
            continue
        assert final.execution is not None
        assert final.execution.state in ("succeeded", "unknown")
        assert times == 1 or final.execution.state == "unknown"


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Do something in many threads, all begun together."""
    ready = threading.Barrier(count)

    def begin(number: int) -> Any:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_a_quorum_counts_everybody_once_across_processes(deployment: Deployment) -> None:
    urls = deploy(deployment)
    store = deployment.agent("queue")
    request = proposal(1).patched({"required": {"minApprovals": 3}})
    item = enqueue_approval(store, request)
    keys = [deployment.key(f"person{n}", "approvals") for n in range(5)]

    def approve(number: int) -> tuple[int, dict[str, Any]]:
        url = f"{urls[number % 3]}/api/v0/approvals/{item.id}/approve?wait=0"
        response = requests.post(url, headers=keys[number % 5], timeout=60)
        return response.status_code, response.json()

    answers = at_once(50, approve)
    [resolved] = settle(deployment, [item]).values()
    counts = Counter(status for status, _ in answers)

    # The third is answered 200 if it was executed at once.
    assert counts[200] + counts[202] == 3
    assert counts[404] + counts[409] == 47
    assert len({vote.by for vote in resolved.approvals}) == len(resolved.approvals) == 3
    assert deployment.effects() == ["1"]
