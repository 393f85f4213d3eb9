"""Everybody answers at once, on a real Redis."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from boyd.models import ApprovalItem, ApprovalPolicy, Autonomy, Decision, Proposal, RunRequest
from boyd.models.actor import GroupRights
from boyd.runtime import Resolver
from boyd.store import AgentStore, ItemAnswer, Resolution, Retention, Store
from boyd.testing import TESTER, Lab, ManualDispatcher
from harness import patient_client
from kit import LAX, Recorder, agent, choice, chooses, person

pytestmark = pytest.mark.real

ITEMS = 50
THREADS = 200
#: Each with connections of its own, as processes of the API have.
DOORS = 4
GATED = Autonomy(mode="approval-required")


class Counting(ManualDispatcher):
    """Counts the jobs that are sent, from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: Counter[str] = Counter()
        self._lock = threading.Lock()

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Count a job."""
        with self._lock:
            self.jobs[name] += 1
        super().job(agent_id, name, attempt, queue)


@pytest.fixture
def lab(redis_url: str) -> Iterator[Lab]:
    """A lab whose action waits for three people."""
    client = patient_client(redis_url)
    action = Recorder().action(autonomy=GATED)
    yield Lab(agent(action), client=client)
    client.close()


@pytest.fixture
def doors(redis_url: str) -> Iterator[list[AgentStore]]:
    """The store as several processes see it."""
    clients = [patient_client(redis_url) for _ in range(DOORS)]
    yield [Store(client, "test").agent("test") for client in clients]
    for client in clients:
        client.close()


def proposal(number: int) -> Proposal:
    """One of many that differ."""
    return Proposal(
        decision=Decision(action="p:do", rationale="x", confidence=1.0),
        action_id="p:do",
        params={"n": number},
        loop_iteration=0,
        required=ApprovalPolicy(min_approvals=3),
    )


def enqueue_items(lab: Lab) -> list[str]:
    """Items that wait."""
    approvals, retention = lab.store.approvals, lab.engine.retention
    return [approvals.enqueue(proposal(number), retention) for number in range(ITEMS)]


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Do *work* in 200 threads that start together; what each came to."""
    gate = threading.Barrier(THREADS)

    def run(number: int) -> Any:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def kinds(lab: Lab, item_id: str) -> list[str]:
    """The kinds of an item's audit entries, without votes."""
    entries = lab.client.xrange("boyd:{test}:audit:open")
    ours = [fields["kind"] for _, fields in entries if fields.get("approval") == item_id]
    return [kind for kind in ours if kind not in ("approval.pending", "approval.vote")]


@pytest.mark.long
def test_racing_answers_have_one_outcome_that_everyone_learns(
    lab: Lab, doors: list[AgentStore]
) -> None:
    """Eight threads to a principal, so that votes of one principal race, too."""
    items = enqueue_items(lab)
    dispatcher = Counting()
    resolvers = [
        Resolver(door, dispatcher, lab.engine.retention, rights=GroupRights()) for door in doors
    ]
    pending = "boyd:{test}:approvals:pending"

    def work(number: int) -> list[tuple[str, Resolution]]:
        answers = []
        resolver = resolvers[number // 8 % DOORS]
        for step in range(ITEMS):
            # Everybody comes by every item, from different sides.
            item_id = items[(step + number) % ITEMS]
            actor = person(f"p{number // 8}")
            if number % 16 == 1:
                answers.append((item_id, resolver.answer(item_id, "denied", actor)))
            elif number % 16 == 3:
                answers.append((item_id, resolver.answer(item_id, "withdrawn", actor)))
            elif number % 16 == 5:
                lab.client.zadd(pending, {item_id: 1}, xx=True)
                doors[number // 8 % DOORS].approvals.expire(lab.engine.retention)
            else:
                answers.append((item_id, resolver.answer(item_id, "approved", actor)))
        return answers

    resolutions = [pair for pairs in at_once(work) for pair in pairs]
    final = {item.id: item for item in lab.store.approvals.page(ITEMS).history}

    assert sorted(final) == sorted(items)
    assert lab.store.approvals.page(ITEMS).pending == []
    for item_id in items:
        item = final[item_id]
        ours = [resolution for name, resolution in resolutions if name == item_id]
        won = [r for r in ours if r.outcome in ("approved", "denied", "withdrawn")]
        assert [r.outcome for r in won] == ([] if item.status == "expired" else [item.status])
        assert kinds(lab, item_id) == [f"approval.{item.status}"]
        assert dispatcher.jobs[f"approval:{item_id}"] == (item.status == "approved")
        statuses = {r.item.status for r in ours if r.outcome == "not-pending" and r.item}
        assert statuses <= {item.status}
        check_votes(item, ours)
    assert sum(dispatcher.jobs.values()) == sum(i.status == "approved" for i in final.values())


def check_votes(item: ApprovalItem, resolutions: list[Resolution]) -> None:
    """Every vote that was counted is on the item, once for each principal, and enough of them."""
    voters = [vote.by for vote in item.approvals]
    counted = sum(r.outcome in ("counted", "approved") for r in resolutions)
    assert len(voters) == len(set(voters)) == counted
    assert (counted == 3) == (item.status == "approved")
    assert counted <= 3


@pytest.mark.long
def test_a_quorum_of_three_is_three_principals_however_many_threads_each_has(
    lab: Lab, doors: list[AgentStore]
) -> None:
    [item_id, *_] = enqueue_items(lab)
    dispatcher = Counting()
    resolvers = [
        Resolver(door, dispatcher, lab.engine.retention, rights=GroupRights()) for door in doors
    ]

    def approve(number: int, principal: str) -> str:
        return resolvers[number % DOORS].answer(item_id, "approved", person(principal)).outcome

    two = at_once(lambda n: approve(n, f"p{n // 2 % 2}"))
    item = lab.store.approvals.get(item_id)

    assert Counter(two) == {"counted": 2, "already-approved": THREADS - 2}
    assert item is not None
    assert (item.status, len(item.approvals)) == ("pending", 2)
    more = at_once(lambda n: approve(n, f"q{n}"))
    assert Counter(more) == {"approved": 1, "not-pending": THREADS - 1}
    assert dispatcher.jobs == {f"approval:{item_id}": 1}


def test_two_hundred_proposals_of_the_same_make_one_item(lab: Lab, doors: list[AgentStore]) -> None:
    retention = lab.engine.retention
    ids = at_once(lambda n: doors[n % DOORS].approvals.enqueue(proposal(1), retention, f"call:{n}"))
    [item] = lab.store.approvals.page(50).pending

    assert {item.id} == set(ids)
    assert item.seen == THREADS


@pytest.mark.long
def test_a_thousand_iterations_over_one_lasting_fault_leave_one_item(redis_url: str) -> None:
    client = patient_client(redis_url)
    lab = Lab(agent(chooses(choice()), Recorder().action(autonomy=GATED)), client=client)
    for _ in range(1000):
        lab.run()
    [item] = lab.store.approvals.page(50).pending

    assert (item.seen, lab.store.approvals.page(50).history) == (1000, [])
    client.close()


@pytest.mark.long
def test_a_run_that_is_cancelled_and_approved_at_once_is_not_acted_on(
    redis_url: str, doors: list[AgentStore]
) -> None:
    client = patient_client(redis_url)
    recorder = Recorder()
    lab = Lab(agent(chooses(choice()), recorder.action(autonomy=GATED)), client=client)
    retention = lab.engine.retention
    dispatcher = Counting()
    resolvers = [Resolver(door, dispatcher, retention, rights=GroupRights()) for door in doors]
    for _ in range(20):
        run_id = lab.launcher.submit_run(RunRequest(title="x", description="x"), TESTER).run.id
        lab.deliver()
        [item] = lab.store.approvals.page(50).pending

        def work(number: int, run: str = run_id, item_id: str = item.id) -> str:
            door = number // 2 % DOORS
            if number % 2:
                return resolvers[door].answer(item_id, "approved", person(f"p{number}")).outcome
            return doors[door].runs.cancel(run, TESTER, retention, "no") or "run cancelled"

        counts = Counter(at_once(work))
        lab.dispatcher.hints.extend(dispatcher.hints)
        dispatcher.hints.clear()
        lab.deliver()
        record = lab.store.runs.get(run_id)
        final = lab.store.approvals.get(item.id)
        assert record is not None
        assert final is not None
        assert (record.status, counts["run cancelled"]) == ("cancelled", 1)
        assert final.status == ("approved" if counts["approved"] else "withdrawn")
        assert recorder.calls == []
    client.close()


def test_pages_hold_everything_once_while_others_resolve(store: Store) -> None:
    """Whatever waits all the time is on exactly one page."""
    approvals = store.agent("test").approvals
    retention = Retention(ttl=None)
    ids = [approvals.enqueue(proposal(number), retention) for number in range(300)]
    stays = set(ids[::2])
    stop = threading.Event()

    def resolve() -> None:
        for name in ids[1::2]:
            if not stop.is_set():
                approvals.resolve(name, ItemAnswer("denied", TESTER), LAX, retention)

    thread = threading.Thread(target=resolve)
    thread.start()
    met: list[str] = []
    cursor = None
    while True:
        page = approvals.page(7, cursor, history=False)
        met += [item.id for item in page.pending]
        cursor = page.next_cursor
        if cursor is None:
            break
    stop.set()
    thread.join()

    assert len(met) == len(set(met))
    assert stays <= set(met)
