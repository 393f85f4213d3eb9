"""Approvals, from the proposal to the executed action."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from boyd import ActionResult, Agent, Veto
from boyd.models import ApprovalItem, Autonomy, Fence
from boyd.plugin import Action, Strategy
from boyd.store import Retention, Stale, Verdict
from boyd.testing import Lab
from kit import (
    Recorder,
    agent,
    choice,
    chooses,
    execution_request,
    pending_item,
    person,
    plugin,
    reads,
)

GATED = Autonomy(mode="approval-required")


def propose_gated(recorder: Recorder, **settings: Any) -> Lab:
    """A lab whose agent has proposed its action."""
    action = recorder.action(autonomy=GATED, **settings)
    lab = Lab(agent(chooses(choice(params={"size": 1})), action))
    lab.run()
    return lab


def expiring(**approvals: Any) -> Lab:
    """The same, with these settings for approvals."""
    action = Recorder().action(autonomy=GATED)
    lab = Lab(agent(chooses(choice()), action, approvals=approvals))
    lab.run()
    return lab


def now(lab: Lab, item: ApprovalItem) -> ApprovalItem:
    """The item as it is now."""
    approval = lab.store.approvals.get(item.id)
    assert approval is not None
    return approval


def key(item: ApprovalItem) -> str:
    """The Redis key of an item."""
    return f"boyd:{{test}}:approval:{item.id}"


def name(item: ApprovalItem) -> str:
    """The name of an item's execution."""
    return f"approval:{item.id}"


def test_an_approved_action_is_executed_and_the_result_is_on_the_item() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    approved = lab.resolver.answer(item.id, "approved", person("ann"), "go ahead")
    lab.deliver()
    done = now(lab, item)

    assert approved.outcome == "approved"
    assert (done.status, done.acted_by, done.note) == ("approved", "ann", "go ahead")
    assert recorder.calls == [{"size": 1}]
    assert done.result is not None
    assert done.result.output == "done"
    assert done.execution is not None
    assert (done.execution.state, done.execution.worker) == ("succeeded", "lab")
    assert [done] == lab.store.approvals.page(50).history


def test_a_failing_action_leaves_the_item_approved_with_the_failed_result() -> None:
    lab = propose_gated(Recorder(error=OSError("no route")))
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()
    done = now(lab, item)

    assert done.execution is not None
    assert done.result is not None
    assert (
        done.status,
        done.execution.state,
        done.result.error,
    ) == ("approved", "failed", "OSError: no route")


def test_hooks_and_params_apply_to_an_approved_action_as_to_any_other() -> None:
    actions: list[str] = []

    def veto() -> None:
        raise Veto("not now")

    recorder = Recorder()
    own = plugin(
        chooses(choice()),
        recorder.action(autonomy=GATED),
        on_before_act=veto,
        on_after_act=lambda result: actions.append(result.action),
    )
    lab = Lab(Agent("test", plugins=[own]))
    lab.run()
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()
    result = now(lab, item).result

    assert result is not None
    assert result.error == "Vetoed by p: not now"
    assert (recorder.calls, actions) == ([], ["p:do"])


@pytest.mark.parametrize("verdict", ["denied", "withdrawn"])
def test_a_denied_or_withdrawn_action_never_runs(verdict: Verdict) -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, verdict, person("ann"), "no")
    lab.deliver()
    done = now(lab, item)

    assert done.status == verdict
    assert (done.acted_by, done.note, done.result, done.execution) == ("ann", "no", None, None)
    assert recorder.calls == []


def test_only_the_first_to_resolve_an_item_does() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    resolver = lab.resolver
    resolutions = [
        resolver.answer(item.id, "denied", person("ann")),
        resolver.answer(item.id, "approved", person("bob")),
        resolver.answer(item.id, "withdrawn", person("eve")),
        resolver.answer("unknown", "approved", person("bob")),
    ]
    lab.deliver()

    outcomes = ["denied", "not-pending", "not-pending", "not-pending"]
    assert [resolution.outcome for resolution in resolutions] == outcomes
    assert (now(lab, item).status, now(lab, item).acted_by) == ("denied", "ann")
    assert recorder.calls == []


def test_an_item_past_its_deadline_cannot_be_approved_although_nobody_purged() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})

    assert lab.resolver.answer(item.id, "approved", person("ann")).outcome == "not-pending"
    assert now(lab, item).status == "expired"
    lab.deliver()
    assert recorder.calls == []


def test_params_changed_after_the_approval_are_not_executed() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.client.hset(key(item), "params", '{"size": 1000}')
    lab.deliver()
    result = now(lab, item).result

    assert result is not None
    assert "differ from those that were approved" in (result.error or "")
    assert recorder.calls == []


class Fixed(BaseModel):
    """Params with a fixed default, and an empty one."""

    host: str
    grace: int = Field(default=5, alias="graceSeconds")
    note: str | None = None


class Random(Fixed):
    """The same with a default that is another each time."""

    token: str = Field(default_factory=lambda: uuid.uuid4().hex)


@pytest.mark.parametrize("more", [{}, {"graceSeconds": 5}])
def test_params_with_their_defaults_written_out_are_the_same(more: dict[str, Any]) -> None:
    params: list[dict[str, Any]] = [{"host": "web"}, {"host": "web", **more}]
    drain = Recorder().action(autonomy=GATED, params=Fixed)
    lab = Lab(agent(Strategy(name="s", decide=lambda: choice(params=params.pop(0))), drain))
    lab.run()
    lab.run()
    [item] = lab.store.approvals.page(10).pending

    assert (item.params, item.seen) == ({"host": "web", "graceSeconds": 5}, 2)


def test_an_approved_action_keeps_the_default_that_was_approved() -> None:
    recorder = Recorder()
    lab = Lab(
        agent(
            chooses(choice(params={"host": "web"})),
            recorder.action(autonomy=GATED, params=Fixed),
        )
    )
    lab.run()
    item = pending_item(lab)

    class Later(Fixed):
        grace: int = Field(default=5000, alias="graceSeconds")

    later = Lab(agent(recorder.action(autonomy=GATED, params=Later)), client=lab.client)
    later.resolver.answer(item.id, "approved", person("ann"))
    later.deliver()
    [called] = recorder.calls
    assert called.grace == 5


class Strict(Fixed):
    """The same, which takes names and aliases, but not both, and refuses what it does not know."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")


class Either(BaseModel):
    """Params that have to be left out rather than to be zero."""

    host: str
    size: int = 0

    @field_validator("size")
    @classmethod
    def _check(cls, size: int) -> int:
        if size == 0:
            raise ValueError("zero is no size")
        return size


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (Random, {"host": "web"}),
        (Strict, {"host": "web", "grace": 7}),
        (Either, {"host": "web"}),
    ],
)
def test_params_whose_defaults_cannot_be_written_out_are_proposed_as_they_are(
    kind: type[BaseModel], params: dict[str, Any]
) -> None:
    drain = Recorder().action(autonomy=GATED, params=kind)
    lab = Lab(agent(chooses(choice(params=params)), drain))
    lab.run()
    assert pending_item(lab).params == params


def test_a_freeze_refuses_what_was_approved_before() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.whole.freezes.freeze("incident")
    lab.deliver()
    result = now(lab, item).result

    assert result is not None
    assert result.error == "Actions are frozen: incident"
    assert recorder.calls == []


def test_a_message_that_was_lost_is_sent_again() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.dispatcher.hints.clear()
    assert lab.client.zscore("boyd:{test}:due", f"approval:{item.id}")
    lab.client.zadd("boyd:{test}:due", {f"approval:{item.id}": 1})
    lab.sweeper.sweep()
    lab.deliver()

    assert len(recorder.calls) == 1


def test_a_message_that_comes_twice_executes_once() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.dispatcher.hints.extend(list(lab.dispatcher.hints) * 3)
    lab.deliver()

    assert len(recorder.calls) == 1


def test_a_worker_lost_before_executing_costs_only_time() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.dispatcher.hints.clear()
    assert lab.store.jobs.enter(name(item), 1, "lost/1")
    lab.client.zadd("boyd:{test}:due", {f"approval:{item.id}": 1})
    lab.sweeper.sweep()
    lab.deliver()

    assert len(recorder.calls) == 1
    assert not lab.store.jobs.renew(Fence(name(item), 1, "lost/1"))


def test_a_worker_lost_while_executing_leaves_the_outcome_unknown() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.dispatcher.hints.clear()
    assert lab.store.jobs.enter(name(item), 1, "lost/1")
    execution = name(item)
    lab.store.executions.claim(execution_request(execution), "token")
    lab.client.hset(f"boyd:{{test}}:execution:{execution}", "leaseUntil", 1)
    lab.client.zadd("boyd:{test}:due", {execution: 1})
    lab.sweeper.sweep()
    lab.deliver()
    done = now(lab, item)

    assert done.execution is not None
    assert (done.status, done.execution.state, recorder.calls) == ("approved", "unknown", [])


def test_an_execution_that_loses_every_worker_ends() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    for attempt in (1, 2, 3):
        assert lab.store.jobs.enter(name(item), attempt, f"lost/{attempt}")
        lab.client.zadd("boyd:{test}:due", {f"approval:{item.id}": 1})
        lab.sweeper.sweep()
    lab.deliver()
    done = now(lab, item)

    assert done.result is not None
    assert "its workers were lost before it started, the last one was lost" in (
        done.result.error or ""
    )
    assert done.result.unknown is None
    assert recorder.calls == []
    assert lab.client.zcard("boyd:{test}:due") == 0


def test_a_worker_that_lost_the_execution_cannot_claim_it() -> None:
    recorder = Recorder()
    lab: Lab
    item: ApprovalItem

    def overtake() -> None:
        lab.client.hset(key(item), "executionAttempt", 2)

    own = plugin(
        chooses(choice()), recorder.action(autonomy=GATED), on_before_act=lambda: overtake()
    )
    lab = Lab(Agent("test", plugins=[own]))
    lab.run()
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    with pytest.raises(Stale):
        lab.deliver()

    assert recorder.calls == []


def test_while_it_still_runs_elsewhere_an_execution_is_put_back() -> None:
    lab: Lab
    item: ApprovalItem
    executions: list[Any] = []

    def execute() -> str:
        lab.client.hset(key(item), mapping={"executionAttempt": 2, "executionState": "queued"})
        lab.jobs.execute(name(item), 2)
        executions.append(now(lab, item).execution)
        assert lab.client.zscore("boyd:{test}:due", name(item)) > 0
        return "done"

    lab = Lab(agent(chooses(choice()), Action(name="do", execute=execute, autonomy=GATED)))
    lab.run()
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()

    assert [execution.state for execution in executions] == ["queued"]
    lab.client.hset(key(item), "executionNotBefore", 1)
    lab.jobs.execute(name(item), 3)
    done = now(lab, item)
    assert done.result is not None
    assert done.result.output == "done"


def test_the_runs_that_waited_end_with_the_execution() -> None:
    recorder = Recorder("freed 3 GB")
    lab = propose_gated(recorder)
    runs = []
    for title in ("disk full", "disk still full"):
        runs.append(lab.submit(title).run.id)
        lab.deliver()
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()
    runs_after = [lab.store.runs.get(run_id) for run_id in runs]

    assert runs == now(lab, item).run_ids
    for run in runs_after:
        assert run is not None
        assert run.result is not None
        assert run.status == "completed"
        assert [a.description for a in run.result.actions_performed] == ["freed 3 GB"]


def test_a_worker_that_comes_back_after_the_sweeper_gave_up_is_refused() -> None:
    """Its outcome was told; a second truth about the same item would be one too many."""
    lab = propose_gated(Recorder())
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    for attempt in (1, 2, 3):
        assert lab.store.jobs.enter(name(item), attempt, f"slow/{attempt}")
        lab.client.zadd("boyd:{test}:due", {f"approval:{item.id}": 1})
        if attempt < 3:
            lab.sweeper.sweep()
    proof = lab.store.due.take()[name(item)]
    stuck = lab.store.jobs.retry(name(item), proof)

    assert stuck is not None
    assert stuck.give_up
    assert not lab.store.jobs.leave(Fence(name(item), 3, "slow/3"), "succeeded", {}, 60.0)
    assert lab.store.jobs.leave(Fence(name(item), stuck.attempt, ""), "failed", {}, 60.0)


def test_an_approved_action_that_no_worker_takes_ends_as_not_executed() -> None:
    lab = propose_gated(Recorder())
    item = pending_item(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.client.hset(key(item), "queuedAt", 1)
    lab.client.zadd("boyd:{test}:due", {f"approval:{item.id}": 1})
    lab.sweeper.sweep()
    lab.deliver()
    done = now(lab, item)

    assert done.result is not None
    assert done.result.error == "Not executed: no worker took it from queue 'act'"


def test_an_approved_action_that_was_given_to_other_workers_goes_to_their_queue() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder)
    item = pending_item(lab)
    lab.engine.agent.host.actions[item.action_id].queue = "act.db"
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.jobs.execute(name(item), 1)

    assert recorder.calls == []
    assert lab.client.hget(key(item), "queue") == "act.db"
    lab.deliver()
    assert len(recorder.calls) == 1


def test_an_approved_action_whose_target_is_another_now_is_refused() -> None:
    recorder = Recorder()
    lab = propose_gated(recorder, target="size")
    item = pending_item(lab)
    lab.engine.agent.host.actions[item.action_id].target = "other"
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()
    result = now(lab, item).result

    assert result is not None
    assert result.error == "Refused: its target is '' now; '1' was approved"
    assert recorder.calls == []


def test_an_approved_item_is_kept_until_it_is_executed() -> None:
    recorder = Recorder()
    action = recorder.action(autonomy=GATED, concurrency=2)
    size = {"now": 0}

    def decide() -> Any:
        size["now"] += 1
        return choice(params={"size": size["now"]})

    strategy = Strategy(name="s", decide=decide)
    lab = Lab(agent(strategy, action, approvals={"max_history": 2}))
    lab.run()
    first = pending_item(lab)
    lab.resolver.answer(first.id, "approved", person("ann"))
    job = lab.dispatcher.hints.popleft()
    for _ in range(6):
        lab.run()
        lab.resolver.answer(pending_item(lab).id, "denied", person("ann"))
    lab.dispatcher.hints.append(job)
    lab.deliver()

    assert recorder.calls == [{"size": 1}]
    assert lab.client.ttl(key(first)) > 0


def test_an_approved_execution_that_breaks_says_how() -> None:
    broken: list[bool] = []

    class Odd(BaseModel):
        """Parameters whose check breaks at some time."""

        size: int

        @model_validator(mode="before")
        @classmethod
        def check(cls, values: Any) -> Any:
            if broken:
                raise KeyError("a bug")
            return values

    lab = propose_gated(Recorder(), params=Odd)
    item = pending_item(lab)
    broken.append(True)
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()
    done = now(lab, item)

    assert done.execution is not None
    assert done.result is not None
    assert done.execution.state == "failed"
    assert done.result.error == "Params could not be checked: KeyError: 'a bug'"


def test_an_action_that_calls_exit_has_failed() -> None:
    def leave() -> None:
        raise SystemExit(3)

    lab = Lab(agent(chooses(choice()), Action(name="do", execute=leave)))

    assert [result.error for result in lab.run().action_results] == ["SystemExit: 3"]


def test_an_action_cannot_return_a_result_that_waits_for_an_approval() -> None:
    wrapped = ActionResult(
        action="x", success=False, error="Approval required", duration=0, metrics={"tries": 1}
    )
    lab = Lab(agent(chooses(choice()), Recorder(output=wrapped).action()))
    run_id = lab.submit("look").run.id
    lab.deliver()
    run = lab.store.runs.get(run_id)

    assert run is not None
    assert run.status == "failed"


def test_one_execution_finds_the_item_that_it_joined_whatever_became_of_it() -> None:
    lab = propose_gated(Recorder())
    item = pending_item(lab)
    joined = lab.store.approvals.enqueue(item, lab.engine.retention, "loop:2")
    lab.resolver.answer(item.id, "denied", person("ann"))
    again = lab.store.approvals.enqueue(item, lab.engine.retention, "loop:2")

    assert item.id == joined == again == lab.store.approvals.item_proposed_by("loop:2")
    assert lab.store.approvals.page(50).pending == []


def test_an_approval_quicker_than_its_iteration_loses_no_findings() -> None:
    action = Recorder("freed 3 GB").action(autonomy=GATED)
    lab = Lab(agent(reads("o", "the disk is full"), chooses(choice()), action))
    run_id = lab.submit("look").run.id
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "complete")
    lab.resolver.answer(pending_item(lab).id, "approved", person("ann"))
    lab.dispatcher.hints.rotate(1)
    lab.deliver()
    run = lab.store.runs.get(run_id)

    assert run is not None
    assert run.result is not None
    assert (
        run.status,
        run.result.findings,
        [done.description for done in run.result.actions_performed],
    ) == ("completed", ["the disk is full"], ["freed 3 GB"])


def test_a_new_proposal_may_follow_one_that_was_resolved() -> None:
    lab = propose_gated(Recorder())
    first = pending_item(lab)
    lab.resolver.answer(first.id, "denied", person("ann"))
    lab.run()

    assert first.id != pending_item(lab).id


def test_redis_keeps_a_pending_item_until_its_deadline_plus_the_retention() -> None:
    lab = expiring(ttl=60, max_age=600)
    item = pending_item(lab)
    assert item.expires_at is not None
    # PEXPIRETIME is of Redis 7; the clock of the server goes on between both commands.
    left = item.expires_at - lab.store.clock.now()
    assert 0 <= left.total_seconds() + 600 - lab.client.pttl(key(item)) / 1000 + 1 <= 2

    lab.resolver.answer(item.id, "approved", person("ann"))
    assert lab.client.ttl(key(item)) == -1
    lab.deliver()
    assert 0 < lab.client.ttl(key(item)) <= 600


def test_an_item_without_a_deadline_gets_one_when_its_agent_lets_approvals_expire() -> None:
    lab = expiring(auto_expire=False)
    item = pending_item(lab)
    assert item.expires_at is None
    lab.store.approvals.set_deadlines(Retention(ttl=3600))
    dated = now(lab, item)
    assert dated.expires_at == item.created_at + timedelta(hours=1)
    assert dated.status == "pending"

    lab.client.hset(key(item), "createdAt", 1)
    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 4e12 + 1})
    lab.store.approvals.set_deadlines(Retention(ttl=3600))
    lab.sweeper.sweep()
    assert now(lab, item).status == "expired"


def test_items_keep_their_deadlines_when_a_worker_starts() -> None:
    lab = expiring(ttl=60)
    item = pending_item(lab)
    lab.store.approvals.set_deadlines(Retention(ttl=3600))
    lab.store.approvals.set_deadlines(Retention(ttl=None))

    assert now(lab, item).expires_at == item.expires_at
