"""Few executions of an action may wait for their verdict at a time; harm stops all others."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import Agent, Procedure, ProcedureStep, naming
from boyd.models import (
    ActionResult,
    Autonomy,
    CallRequest,
    ClaimOutcome,
    Concurrency,
    ExecutionRequest,
    ExecutionTerms,
    Hold,
)
from boyd.models.effect import EffectChecks, VerificationPlan
from boyd.phases.act_request import ActRequest, Requester
from boyd.plugin import Action, Strategy
from boyd.runtime.jobs.action_jobs import run_action
from boyd.store import Store
from boyd.store.executions import WaitsForTurn
from boyd.testing import Lab
from kit import choice, overdue, person, plugin

ACTION = "p:restart"
DUE = "boyd:{test}:due"
ANN, JANE = person("ann"), person("jane")


class Where(BaseModel):
    """The params of the action of these tests."""

    host: str


class Fleet:
    """Hosts that are restarted, and what a look at each then says."""

    def __init__(self, limit: int = 3, **settings: Any) -> None:
        self.next = "a"
        self.restarted: list[str] = []
        self.verdicts: dict[str, Any] = {}
        self.undone: list[str] = []
        checks = EffectChecks(before=False, in_flight=limit)
        self.settings: dict[str, Any] = {"verify": self._verify, "checks": checks, **settings}

    def lab(self, *parts: Any, rollback: bool = False, **agent: Any) -> Lab:
        """A lab whose loop wants to restart the next host."""
        extra = {"rollback": self._undo} if rollback else {}
        action = Action(
            name="restart",
            params=Where,
            target="host",
            execute=self._restart,
            **{**extra, **self.settings},
        )
        decide = Strategy(name="s", decide=lambda: choice(ACTION, params={"host": self.next}))
        return Lab(Agent("test", plugins=[plugin(decide, action, *parts)], **agent))

    def _restart(self, params: Where) -> str:
        self.restarted.append(params.host)
        return "restarted"

    def _verify(self, params: Where) -> Any:
        return self.verdicts.get(params.host)

    def _undo(self, params: Where) -> str:
        self.undone.append(params.host)
        return "undone"


def loop(lab: Lab, fleet: Fleet, *hosts: str) -> str:
    """Let the loop restart each of the hosts; the rationale or the error of the last."""
    text = ""
    for host in hosts:
        fleet.next = host
        iteration = lab.run()
        assert iteration.decision is not None
        errors = [str(result.error) for result in iteration.action_results if result.error]
        text = errors[0] if errors else iteration.decision.rationale
    return text


def order(lab: Lab, host: str, **fields: Any) -> str:
    """Call for a restart by hand; the name of its execution."""
    request = {"kind": "execute", "action": ACTION, "params": {"host": host}, **fields}
    name = naming.call(lab.launcher.call(CallRequest(**request, actor=ANN), None))
    lab.deliver()
    return name


def approve(lab: Lab) -> list[str]:
    """Approve all that is pending; the names of the executions."""
    pending = lab.store.approvals.page(50).pending
    for item in pending:
        lab.resolver.answer(item.id, "approved", JANE)
    lab.deliver()
    return [naming.approval(item.id) for item in pending]


def check(lab: Lab, *hosts: str) -> None:
    """Let the time of the next check pass on these hosts, or on all, and do what then is due."""
    for name in lab.client.zrange(DUE, 0, -1):
        entry = lab.store.executions.get(naming.parts(name)[1])
        if name.startswith("verify:") and entry and (not hosts or entry.target in hosts):
            overdue(lab, name)
    lab.sweeper.sweep()
    lab.deliver()


def result_of(lab: Lab, execution: str) -> ActionResult | None:
    """The result of a call or an approved action, if there is one."""
    kind, id = naming.parts(execution)
    job = lab.store.calls.get(id) if kind == "call" else lab.store.approvals.get(id)
    assert job is not None
    return job.result


def hold_of(lab: Lab, kind: str) -> Hold:
    """The only hold of that kind."""
    [hold] = [hold for hold in lab.store.holds.all() if hold.kind == kind]
    return hold


def test_the_loop_waits_when_as_many_as_may_be_are_in_flight_on_other_targets() -> None:
    fleet = Fleet()
    lab = fleet.lab()
    loop(lab, fleet, "a", "b", "c")
    reason = loop(lab, fleet, "d")

    assert fleet.restarted == ["a", "b", "c"]
    assert reason == (
        "p:restart on d waits until a verdict is there: "
        "3 are in flight, and no more may be: a, b, c"
    )
    hold = hold_of(lab, "limit")
    assert (hold.action, hold.target, hold.in_flight) == (ACTION, "", True)
    assert lab.store.holds.lift(ACTION, "", ANN) == "running"
    fleet.verdicts["b"] = True
    check(lab, "b")
    loop(lab, fleet, "d", "e")
    assert fleet.restarted == ["a", "b", "c", "d"]


@pytest.mark.parametrize("by", ["action", "agent"])
def test_the_action_or_the_agent_file_sets_the_limit(by: str) -> None:
    fleet = Fleet(limit=1 if by == "action" else 9)
    lab = fleet.lab(verification={ACTION: {"in_flight": 1}} if by == "agent" else {})
    loop(lab, fleet, "a", "b")

    assert fleet.restarted == ["a"]


def test_an_action_without_verification_is_not_limited() -> None:
    fleet = Fleet()
    del fleet.settings["verify"]
    lab = fleet.lab()
    loop(lab, fleet, *"abcde")

    assert fleet.restarted == [*"abcde"]


def test_the_limit_counts_verdicts_that_do_not_hold_the_action_on_its_target() -> None:
    fleet = Fleet()
    lab = fleet.lab(verification={ACTION: {"hold": False}})
    loop(lab, fleet, *"aaaa")

    assert fleet.restarted == ["a", "a", "a"]


def test_approved_actions_wait_in_order_and_go_on_with_each_verdict() -> None:
    fleet = Fleet(limit=1, autonomy=Autonomy(mode="approval-required"))
    lab = fleet.lab()
    loop(lab, fleet, "a", "b", "c")
    names = approve(lab)
    assert fleet.restarted == ["a"]
    waiting = lab.store.approvals.get(naming.parts(names[1])[1])
    assert waiting is not None
    assert [hold.target for hold in waiting.in_flight][:1] == ["a"]

    for host in "abc":
        fleet.verdicts[host] = True
        check(lab, host)
    assert fleet.restarted == ["a", "b", "c"]
    assert lab.store.holds.all() == []


def test_a_call_waits_and_a_cancelled_one_makes_room() -> None:
    fleet = Fleet(limit=1)
    lab = fleet.lab()
    first, second, third = (order(lab, host) for host in "abc")
    assert [hold.execution for hold in lab.store.in_flight.ahead_of(second)] == [first]
    waiting = lab.store.calls.get(naming.parts(second)[1])
    assert waiting is not None
    assert lab.store.calls.cancel(waiting, "none", ANN).outcome == "cancelled"
    fleet.verdicts["a"] = True
    check(lab, "a")

    assert fleet.restarted == ["a", "c"]
    assert result_of(lab, third) is not None


def test_a_model_is_refused_with_the_execution_in_its_way() -> None:
    fleet = Fleet(limit=1)
    lab = fleet.lab()
    order(lab, "a")
    request = ActRequest(
        "investigation:i:1",
        choice(ACTION, params={"host": "b"}),
        requester=Requester(for_model=True),
    )
    result = run_action(lab.engine, lab.engine.ledger(), request)

    assert result.prevented == "held"
    assert "waits until a verdict is there" in str(result.error)
    assert str(result.error).endswith(" on a")


def test_a_step_of_a_procedure_waits_for_its_turn() -> None:
    steps = [ProcedureStep(id="go", action=ACTION, params={"host": "b"}, verify=False)]
    fleet = Fleet(limit=1)
    lab = fleet.lab(Procedure(name="tour", steps=steps))
    order(lab, "a")
    order(lab, "", action="p:tour", params={})
    lab.sweeper.sweep()
    assert fleet.restarted == ["a"]
    fleet.verdicts["a"] = True
    check(lab, "a")

    assert fleet.restarted == ["a", "b"]


def test_a_rollback_is_neither_limited_nor_counted() -> None:
    fleet = Fleet(limit=1)
    lab = fleet.lab(rollback=True)
    fleet.verdicts["a"] = True
    first = order(lab, "a")
    check(lab, "a")
    order(lab, "b")
    order(lab, "a", kind="rollback", undoes=first)

    assert fleet.undone == ["a"]


def harm(lab: Lab, fleet: Fleet, host: str = "a") -> None:
    """Let the check of a host say that it is worse."""
    fleet.verdicts[host] = "worse"
    check(lab, host)


@pytest.mark.parametrize("rollback", [False, True])
def test_harm_stops_what_was_approved_before_on_other_targets(rollback: bool) -> None:
    fleet = Fleet(limit=1, autonomy=Autonomy(mode="approval-required"))
    lab = fleet.lab(rollback=rollback)
    loop(lab, fleet, "a", "b")
    first, second = approve(lab)
    harm(lab, fleet)
    lab.sweeper.sweep()
    lab.deliver()

    result = result_of(lab, second)
    assert fleet.restarted == ["a"]
    assert result is not None
    assert result.prevented == "held"
    assert result.error == (f"p:restart is stopped on all targets: {first} made it worse on a")
    hold = hold_of(lab, "stopped")
    assert (hold.target, hold.execution) == ("", first)
    assert hold.until is not None


def test_the_loop_and_procedures_are_stopped_until_somebody_lifts_that() -> None:
    steps = [ProcedureStep(id="go", action=ACTION, params={"host": "c"})]
    fleet = Fleet()
    lab = fleet.lab(Procedure(name="tour", steps=steps))
    loop(lab, fleet, "a")
    harm(lab, fleet)
    assert loop(lab, fleet, "b").startswith("p:restart is stopped on all targets: loop:1 made")
    order(lab, "", action="p:tour", params={})
    lab.sweeper.sweep()
    lab.deliver()
    [record] = lab.store.procedures.all()
    assert record.state == "stopped"

    assert lab.store.holds.lift(ACTION, "", ANN) == "lifted"
    loop(lab, fleet, "b")
    assert fleet.restarted == ["a", "b"]


def test_an_approval_after_the_harm_is_executed() -> None:
    fleet = Fleet()
    lab = fleet.lab()
    loop(lab, fleet, "a")
    harm(lab, fleet)
    order(lab, "b", requires_approval=True)
    approve(lab)

    assert fleet.restarted == ["a", "b"]


def test_harm_stops_an_older_approval_on_the_same_target_as_well() -> None:
    fleet = Fleet()
    lab = fleet.lab(rollback=True)
    order(lab, "a")
    order(lab, "a", rationale="second", requires_approval=True)
    [second] = approve(lab)
    harm(lab, fleet)
    lab.sweeper.sweep()
    lab.deliver()

    result = result_of(lab, second)
    assert (fleet.restarted, fleet.undone) == (["a"], ["a"])
    assert result is not None
    assert result.prevented == "held"


def test_harm_without_a_target_stops_nothing_else() -> None:
    fleet = Fleet()
    action = Action(name="all", execute=lambda: "done", verify=lambda result: "worse")
    lab = fleet.lab(action)
    order(lab, "", action="p:all", params={})
    check(lab)

    assert [hold.kind for hold in lab.store.holds.all()] == ["suspended"]


TRACKS = f"boyd:{{test}}:track:{ACTION}"


def grant(lab: Lab, situation: str) -> None:
    """Grant that class as an approved offer does."""
    now = lab.store.clock.now().timestamp() * 1000
    entry = {"id": "g", "atLeast": 0.5, "since": now, "until": now + 1e9, "by": ["ann"]}
    entry["covers"] = {"parameter": "host", "targets": ["h1", "h2", "h3"]}
    track = {"label": "s", "effective": 99, "grant": {**entry, "inFlight": 1, "proven": 0}}
    lab.client.hset(TRACKS, situation, json.dumps(track))


def earning_lab(fleet: Fleet) -> Lab:
    """A lab in which the action has a fresh grant."""
    rule = {"mode": "earned", "at_least": 0.5, "after": 5, "holdout": 0, "require_uplift": False}
    lab = fleet.lab(autonomy={ACTION: rule})
    fleet.next = "h0"
    iteration = lab.run()
    assert iteration.gate is not None
    assert iteration.gate.record is not None
    [item] = lab.store.approvals.page(5).pending
    lab.resolver.answer(item.id, "denied", JANE)
    grant(lab, iteration.gate.record.situation)
    return lab


def width(lab: Lab) -> tuple[int | None, int | None]:
    """The number in flight that the grant allows, and the effective ones in a row since then."""
    [record] = lab.store.track_records.all([ACTION])
    assert record.grant is not None
    return record.grant.in_flight, record.grant.proven


def test_a_fresh_grant_doubles_what_may_be_in_flight_with_each_effective_batch() -> None:
    fleet = Fleet(limit=3)
    lab = earning_lab(fleet)
    hosts = iter(f"h{number}" for number in range(99))
    batches = []
    for _ in range(4):
        before = len(fleet.restarted)
        loop(lab, fleet, *(next(hosts) for _ in range(6)))
        batches.append(len(fleet.restarted) - before)
        for host in fleet.restarted:
            fleet.verdicts[host] = True
        check(lab)

    assert batches == [1, 2, 3, 3]
    assert width(lab) == (3, 0)


def test_a_limit_of_one_is_in_the_singular() -> None:
    fleet = Fleet(limit=1)
    lab = fleet.lab()
    loop(lab, fleet, "a")

    assert loop(lab, fleet, "b").endswith(": 1 is in flight, and no more may be: a")


def test_a_failure_begins_the_batch_again() -> None:
    fleet = Fleet(limit=4)
    lab = earning_lab(fleet)
    fleet.verdicts |= {"h1": True, "h2": True, "h3": "no effect"}
    for host in fleet.verdicts:
        loop(lab, fleet, host)
        check(lab, host)

    assert width(lab) == (2, 0)


def test_a_canary_that_does_harm_ends_the_grant_and_stops_the_others() -> None:
    fleet = Fleet()
    lab = earning_lab(fleet)
    reason = loop(lab, fleet, "h1", "h2")
    assert reason.startswith("p:restart on h2 waits until a verdict is there: loop:2 is being")
    harm(lab, fleet, "h1")
    reason = loop(lab, fleet, "h2", "h3")

    assert fleet.restarted == ["h1"]
    assert reason.startswith("p:restart is stopped on all targets: loop:2 made it worse on h1")


def test_an_older_grant_is_limited_like_everything_else() -> None:
    fleet = Fleet(limit=2)
    lab = earning_lab(fleet)
    for situation, text in lab.client.hgetall(TRACKS).items():
        track = json.loads(text)
        del track["grant"]["inFlight"], track["grant"]["proven"]
        lab.client.hset(TRACKS, situation, json.dumps(track))
    loop(lab, fleet, "h1", "h2", "h3")

    assert fleet.restarted == ["h1", "h2"]
    assert width(lab) == (None, None)


PLAN = VerificationPlan(within=60, every=5, hold=True, repeat_after=60, roll_back=True)


@pytest.mark.real
def test_claims_of_many_workers_at_once_keep_to_the_limit(store: Store) -> None:
    Lab(Agent("test"), client=store.client)  # registers it
    ledger = store.agent("test").executions

    def claim(number: int) -> str:
        terms = ExecutionTerms(verification=PLAN, concurrency=Concurrency(1, 3, waits=True))
        request = ExecutionRequest(
            id=f"x:{number}", action=ACTION, params={}, target=f"t{number}", terms=terms
        )
        try:
            return ledger.claim(request, str(number)).outcome
        except WaitsForTurn:
            return "waits"

    with ThreadPoolExecutor(16) as pool:
        outcomes = [*pool.map(claim, range(64))]

    assert outcomes.count(ClaimOutcome.CLAIMED) == 3
    assert outcomes.count("waits") == 61
