"""The store on a real Redis: races with many callers, and a census of what is left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from boyd import Agent
from boyd.errors import RollbackRefused, StoreError
from boyd.models import (
    ActionResult,
    Autonomy,
    Budget,
    CallRequest,
    Delivery,
    ExecutionTerms,
    RunRequest,
    utc_now,
)
from boyd.store import ActionLedger, AgentEntry, ItemAnswer, Slot, Store
from boyd.testing import Lab
from clusters import every_key
from harness import patient_client
from kit import (
    LAX,
    Recorder,
    agent,
    choice,
    chooses,
    execution_request,
    overdue,
    person,
    plugin,
    seen,
    sees,
    slot_around,
)

pytestmark = pytest.mark.real


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Do *work* in *count* threads that start together; what each came to."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_a_hundred_triggers_begin_one_iteration(store: Store) -> None:
    loop = store.agent("a").loop_control
    triggers = at_once(100, lambda n: loop.begin(f"caller {n}"))

    assert Counter(trigger.outcome for trigger in triggers) == {"started": 1, "joined": 99}
    assert {1} == {trigger.iteration for trigger in triggers}


def test_a_hundred_ticks_of_ten_slots_begin_no_slot_twice(store: Store) -> None:
    loop = store.agent("a").loop_control
    now = slot_around(store.client.time()[0])
    slots = [Slot(now.begins + n, now.length) for n in range(10)]
    triggers = at_once(100, lambda n: loop.begin("beat", slots[n % 10]))

    assert sum(trigger.new for trigger in triggers) == 1
    assert {"started", "joined", "duplicate"} >= {trigger.outcome for trigger in triggers}


def test_a_hundred_workers_enter_a_phase_once(store: Store) -> None:
    agent = store.agent("a")
    agent.loop_control.begin("test")
    entries = at_once(100, lambda n: agent.iterations.enter(1, 1, "start", f"w{n}"))

    assert sum(entry is not None for entry in entries) == 1


def test_a_server_that_has_forgotten_the_scripts_gets_them_again(store: Store) -> None:
    iterations = store.agent("a").iterations
    store.agent("a").loop_control.begin("test")
    store.client.script_flush()
    entry = iterations.enter(1, 1, "start", "w")

    assert entry is not None
    assert entry.record.trigger == "test"
    assert iterations.enter(1, 1, "start", "w") is None
    store.client.zadd("boyd:{a}:due", {"phase": 1})
    store.client.script_flush()
    first, second = store.take_due(["a", "b"])
    assert isinstance(first, dict)
    assert list(first) == ["phase"]
    assert second == {}


def test_one_of_a_hundred_processes_acquires_the_throttle(redis_url: str) -> None:
    stores = [Store(patient_client(redis_url), f"w{n}") for n in range(10)]
    throttles = [store.throttle(["a"]) for store in stores]
    results = at_once(100, lambda n: throttles[n % 10].acquire(60))

    assert sum(results) == 1


def test_the_last_of_a_hundred_batches_closes_the_phase_once(store: Store) -> None:
    agent = store.agent("a")
    agent.loop_control.begin("test")
    entry = agent.iterations.enter(1, 1, "start", "w")
    assert entry is not None
    agent.iterations.leave_start(entry, ["o"] * 100, ['{"queue":"q"}'] * 100, {})
    entries = [agent.observers.enter_batch(1, batch, 1, f"w{batch}") for batch in range(1, 101)]
    entered = [entry for entry in entries if entry]
    assert len(entered) == 100
    ends = at_once(100, lambda n: agent.observers.complete_batch(entered[n], {}))

    assert sum(end is not None and end.open_batches == 0 for end in ends) == 1
    assert agent.loop_control.status().phase == "orient"


def ledger_of(store: Store) -> ActionLedger:
    """The ledger of a registered agent: others may not act."""
    entry = AgentEntry(
        id="a", name="a", mode="manual", loop_interval=60, plugins=[], fingerprint="x"
    )
    store.fleet.register(entry)
    return store.agent("a").executions


def test_a_hundred_claims_give_one_right_to_execute(store: Store) -> None:
    ledger = ledger_of(store)

    def claim(number: int) -> str:
        try:
            return ledger.claim(execution_request("x"), f"token{number}").outcome
        except StoreError as error:
            return type(error).__name__

    assert Counter(at_once(100, claim)) == {"claimed": 1, "StillRunning": 99}


def test_a_budget_is_never_exceeded(store: Store) -> None:
    ledger = ledger_of(store)
    budget = Budget(limit=7, window=60)

    def claim(number: int) -> str:
        return ledger.claim(
            execution_request(f"x{number}", target="target", terms=ExecutionTerms(budget=budget)),
            f"t{number}",
        ).outcome

    assert Counter(at_once(100, claim)) == {"claimed": 7, "over": 93}


def test_a_claim_repeated_with_its_token_stays_claimed(store: Store) -> None:
    ledger = ledger_of(store)
    outcomes = [ledger.claim(execution_request("x"), "t").outcome for _ in range(2)]
    result = ActionResult(action="p:do", success=True, duration=1)

    assert outcomes == ["claimed", "claimed"]
    assert [ledger.finish("x", "t", result) for _ in range(2)] == [True, True]
    assert not ledger.finish("x", "another", result)


def test_compare_and_set_loses_no_update(store: Store) -> None:
    state = store.agent("a").state("p")
    at_once(20, lambda _: [state.update("n", lambda n: (n or 0) + 1) for _ in range(10)])

    assert state.get("n") == 200


def test_state_that_is_no_json_is_refused(store: Store) -> None:
    state = store.agent("a").state("p")
    for value in (object(), float("nan"), {1, 2}):
        with pytest.raises(Exception, match="plugin 'p': state 'k' is not JSON"):
            state.set("k", value)

    assert state.get("k") is None


def test_a_hundred_resolvers_have_one_winner(redis_url: str) -> None:
    client = patient_client(redis_url)
    action = Recorder().action(autonomy=Autonomy(mode="human-only"))
    lab = Lab(agent(chooses(choice()), action), client=client)
    lab.run()
    item = lab.store.approvals.page(50).pending[0]
    approvals, retention = lab.store.approvals, lab.engine.retention

    def resolve(number: int) -> bool:
        status: Any = ("approved", "denied", "withdrawn")[number % 3]
        actor = person(f"p{number}")
        return approvals.resolve(item.id, ItemAnswer(status, actor), LAX, retention).counts

    assert sum(at_once(100, resolve)) == 1
    assert (approvals.page(50).pending, len(approvals.page(50).history)) == ([], 1)
    client.close()


def test_runs_submitted_by_many_are_all_looked_into_once(redis_url: str) -> None:
    client = patient_client(redis_url)
    lab = Lab(agent(sees("o", seen())), client=client)
    request = RunRequest(title="look", description="x")
    submitted = at_once(50, lambda _: lab.launcher.submit_run(request, person("ann")))
    lab.deliver()
    runs = [lab.store.runs.get(s.run.id) for s in submitted]

    assert [run.status for run in runs if run] == ["completed"] * 50
    assert sum(s.iteration > 0 for s in submitted) == 1
    client.close()


def test_nothing_stays_without_a_bound(redis_url: str) -> None:
    """Every key has a time to live, or is one of those whose size is bounded."""
    client = patient_client(redis_url)
    action = Recorder().action(budget=Budget(limit=1, window=60))
    lab = Lab(agent(sees("o", seen()), chooses(choice()), action), client=client)
    for _ in range(3):
        lab.submit("look")
        lab.deliver()
    bounded = {
        *("loop", "due", "events", "frozen", "history", "intake", "iteration"),
        *("runs", "runs:pending", "runs:finished"),
        *("approvals:pending", "approvals:history", "approvals:fingerprints", "audit:open"),
    }
    pending = {item.id for item in lab.store.approvals.page(50).pending}
    for key in every_key(client, "boyd:{test}:*"):
        name = key.removeprefix("boyd:{test}:")
        waits = name.removeprefix("approval:") in pending or _waits(client, key)
        assert name in bounded or client.ttl(key) > 0 or waits, name
    client.close()


def test_nothing_stays_of_what_people_clients_and_notifiers_had_to_do(redis_url: str) -> None:
    """Notices, callbacks, joined proposals, watched items and calls."""
    client = patient_client(redis_url)
    full = {"now": True}
    strategy = chooses(choice(), applicable_when=lambda: full["now"], withdraw_when_clear=True)
    gated = Recorder().action(autonomy=Autonomy(mode="approval-required"), dry_run=lambda: "x")
    parts = plugin(sees("o", seen()), strategy, gated, on_approval=lambda: None)
    keep = {"max_history": 3}
    forgetful = Agent("test", plugins=[parts], approvals=keep, runs={"max_finished": 3})
    lab = Lab(
        forgetful, client=client, post=lambda *_: Delivery(at=utc_now(), ok=False, duration=1)
    )
    call = CallRequest(kind="execute", action="p:do", actor=person("ann"))
    for number in range(8):
        full["now"] = True
        lab.run()
        lab.launcher.call(call, None)
        lab.submit("look", callback_url="https://example.com/")
        lab.deliver()
        [item] = lab.store.approvals.page(5).pending
        if number % 2:
            lab.resolver.answer(item.id, "approved", person("bob"))
            lab.deliver()
        full["now"] = False
        lab.run()
    for name in client.zrange("boyd:{test}:due", 0, -1):
        for _ in range(12):
            overdue(lab, name)
    bounded = {"loop", "events", "frozen", "history", "runs", "runs:finished", "approvals:history"}
    names = {key.removeprefix("boyd:{test}:") for key in every_key(client, "boyd:{test}:*")}
    endless = {name for name in names if client.ttl("boyd:{test}:" + name) == -1}

    assert lab.store.approvals.page(5).pending == []
    assert endless <= {*bounded, "audit:open"}
    assert not [name for name in names if name.startswith(("notice:", "delivery:"))]
    assert "approvals:clearing" not in names
    assert sum(name.startswith("run:") for name in names) == 3
    client.close()


def test_history_costs_the_same_however_long_it_is(redis_url: str) -> None:
    """History is capped, in keys too."""
    client = patient_client(redis_url)
    lab = Lab(agent(sees("o", seen()), history={"max_count": 5}), client=client)
    for _ in range(10):
        lab.run()
    after_ten = client.dbsize()
    for _ in range(40):
        lab.run()

    assert after_ten == client.dbsize()
    client.close()


def _waits(client: Any, key: str) -> bool:
    """Check that a run waits for something: it is live, and never pruned."""
    return ":run:" in key and client.hget(key, "status") in ("pending", "investigating")


def test_the_stream_of_events_is_trimmed(store: Store) -> None:
    loop = store.agent("a").loop_control
    for _ in range(1500):
        loop.pause("why")

    assert 1000 <= store.client.xlen("boyd:{a}:events") < 1500


def test_of_many_who_request_a_rollback_at_once_one_gets_it(redis_url: str) -> None:
    undone: list[str] = []
    action = Recorder().action(rollback=lambda: undone.append("x"))
    lab = Lab(Agent("test", plugins=[plugin(action)]), client=patient_client(redis_url))
    id = lab.launcher.call(CallRequest(kind="execute", action="p:do", actor=person("ann")), None)
    lab.deliver()

    def request(number: int) -> bool:
        who = person(f"caller{number}")
        rollback = CallRequest(kind="rollback", action="p:do", undoes=f"call:{id}", actor=who)
        try:
            return lab.store.calls.submit(rollback, None)[1]
        except RollbackRefused:
            return False

    assert sum(at_once(20, request)) == 1


def test_agents_are_frozen_also_when_redis_is_full(store: Store) -> None:
    store.agent("a").loop_control.intake([seen()], start=False)
    store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreError):
            store.agent("a").loop_control.intake([seen()], start=False)
        store.freezes.freeze("full", "a")
        store.freezes.freeze("all full", "*")
        assert store.freezes.everywhere() == "all full"
        assert store.agent("a").loop_control.status().frozen
        assert store.client.xlen("boyd:{a}:audit:open") >= 1
    finally:
        store.client.config_set("maxmemory", 0)
