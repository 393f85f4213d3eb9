"""Jobs that are handed over to the queue of their action, by workers that disagree about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boyd import Agent, Autonomy, Procedure, ProcedureStep, naming
from boyd.models import ApprovalItem, CallRequest, utc_now
from boyd.runtime.jobs.job_runner import MAX_HANDOVERS, MAX_SEARCHES
from boyd.store import WorkerInfo
from boyd.testing import Lab
from kit import (
    Recorder,
    call_result,
    choice,
    chooses,
    execution_request,
    pending_item,
    person,
    plugin,
)


class Fleet:
    """A worker of the queue `old` and one of `new`, each of which gives the action to the other."""

    def __init__(self, *components: Any, **action: Any) -> None:
        self.recorder = Recorder()
        self._components, self._action = components, action
        self.workers: dict[str, Lab] = {}
        self.seconds: list[float] = []
        self.first = self.start("old", "new")
        self.start("new", "old")

    def start(self, own: str, believes: str) -> Lab:
        """Start the worker of the queue *own*, which *believes* that another has the action."""
        recorded_action = self.recorder.action(queue=believes, **self._action)
        agent = Agent("test", plugins=[plugin(*self._components, recorded_action)])
        client = self.first.client if self.workers else None
        lab = self.workers[own] = Lab(agent, client=client, queues=["old", "new"])
        lab.engine.settings = replace(lab.engine.settings, worker=f"worker-{own}")
        return lab

    def carry(self, name: str) -> int:
        """Bring each message of a job to the worker of its queue, until none is sent at once.

        Returns:
            The number of messages.
        """
        job, before = f"boyd:{{test}}:{name}", ""
        for messages in range(3 * MAX_HANDOVERS):
            queue, attempt, waits = self.first.client.hmget(
                job, "queue", "executionAttempt", "executionNotBefore"
            )
            if attempt == before or waits:
                return messages
            before = attempt
            self.workers.get(queue, self.first).jobs.execute(name, int(attempt))
        raise AssertionError("it is handed over for ever")

    def wait(self, name: str) -> int:
        """Let the moment come until which a job waits."""
        job = f"boyd:{{test}}:{name}"
        if self.first.client.hdel(job, "executionNotBefore"):
            self.seconds.append(int(self.first.client.hget(job, "executionWait")) / 1000)
        return self.carry(name)

    def wait_for_end(self, name: str) -> None:
        """Let a job wait as often as it does."""
        while self.first.client.hget(f"boyd:{{test}}:{name}", "executionState") == "queued":
            self.wait(name)


BELIEFS = "'new' on worker-old, 'old' on worker-new"


def approve_item(fleet: Fleet) -> ApprovalItem:
    """The approval of an action that its workers disagree about, which a person has given."""
    fleet.first.run()
    item = pending_item(fleet.first)
    fleet.first.resolver.answer(item.id, "approved", person("ann"))
    return item


def test_an_approved_action_waits_for_an_upgrade_to_reach_the_workers_of_its_queue() -> None:
    fleet = Fleet(chooses(choice()), autonomy=Autonomy(mode="approval-required"))
    name = f"approval:{approve_item(fleet).id}"
    assert fleet.carry(name) == 2, "the first handover is at once"
    for _ in range(5):
        assert fleet.wait(name) == 1
    fleet.start("old", "old")
    fleet.wait(name)
    fleet.wait(name)

    assert len(fleet.recorder.calls) == 1


def test_workers_disagree_for_a_minute_before_an_approved_action_fails() -> None:
    fleet = Fleet(chooses(choice()), autonomy=Autonomy(mode="approval-required"))
    name = f"approval:{approve_item(fleet).id}"
    fleet.carry(name)
    fleet.wait_for_end(name)

    assert 45 <= sum(fleet.seconds) <= 75
    assert max(fleet.seconds) <= 10


def test_an_approved_action_whose_queue_its_workers_disagree_about_fails_and_says_so() -> None:
    fleet = Fleet(chooses(choice()), autonomy=Autonomy(mode="approval-required"))
    item = approve_item(fleet)
    fleet.carry(f"approval:{item.id}")
    fleet.wait_for_end(f"approval:{item.id}")

    done = fleet.first.store.approvals.get(item.id)
    assert done is not None
    assert done.result is not None
    error = done.result.error or ""
    assert error.startswith("Not executed: the workers disagree about the queue of p:")
    assert BELIEFS in error
    assert fleet.recorder.calls == []


def test_a_procedure_that_its_workers_only_hand_over_stops_for_a_person_after_some_tries() -> None:
    step = ProcedureStep(id="fix", action="p:do")
    fleet = Fleet(Procedure(name="renew", steps=[step]))
    call_result(fleet.first, action="p:renew")
    [record] = fleet.first.store.procedures.all()
    name = naming.procedure(record.id)
    fleet.carry(name)
    while fleet.first.store.procedures.all()[0].state == "running":
        fleet.wait(name)
        assert len(fleet.seconds) <= 6 * MAX_HANDOVERS

    [stopped] = fleet.first.store.procedures.all()
    assert stopped.state == "stopped"
    assert BELIEFS in (stopped.reason or "")
    assert fleet.recorder.calls == []


class Upgrade:
    """A worker whose plugin has the action, or procedure, and an older one without it."""

    def __init__(self, *components: Any, **action: Any) -> None:
        self.recorder = Recorder()
        recorded_action = self.recorder.action(**action)
        self.new = Lab(Agent("test", plugins=[plugin(*components, recorded_action)]))
        self.old = Lab(Agent("test", plugins=[]), client=self.new.client)
        self.announce(self.new)

    def announce(self, lab: Lab) -> None:
        """Have a live worker say what it has."""
        info = WorkerInfo(
            name="other",
            role="worker",
            host="there",
            pid=2,
            queues=["act"],
            agents=["test"],
            version="test",
            started_at=utc_now(),
            fingerprints={"test": lab.engine.agent.fingerprint},
        )
        lab.whole.fleet.beat(info)

    def deliver(self, name: str, lab: Lab) -> None:
        """Bring the message of a job to a worker, once the job may go on."""
        job = f"boyd:{{test}}:{name}"
        self.new.client.hdel(job, "executionNotBefore")
        lab.jobs.execute(name, int(self.new.client.hget(job, "executionAttempt") or 1))

    def approve(self) -> str:
        """The name of the job of the one approval, which a person has just given."""
        item = pending_item(self.new)
        self.new.resolver.answer(item.id, "approved", person("ann"))
        return f"approval:{item.id}"

    def lose(self, execution: str) -> None:
        """Have the last worker with the action begin it, which may run again, and die."""
        lab = self.new
        lab.store.executions.claim(execution_request(execution, idempotent=True), "t")
        lab.client.hset(f"boyd:{{test}}:execution:{execution}", "leaseUntil", 1)
        self.announce(self.old)


def test_an_older_worker_leaves_an_approved_action_that_it_lacks_to_another() -> None:
    upgrade = Upgrade(chooses(choice()), autonomy=Autonomy(mode="approval-required"))
    upgrade.new.run()
    job = upgrade.approve()
    for _ in range(MAX_HANDOVERS + 1):
        upgrade.deliver(job, upgrade.old)
    assert upgrade.recorder.calls == []

    upgrade.deliver(job, upgrade.new)
    item = upgrade.new.store.approvals.get(naming.parts(job)[1])
    assert item is not None
    assert item.result is not None
    assert item.result.success
    assert len(upgrade.recorder.calls) == 1


def test_an_approved_action_that_no_worker_has_fails_in_the_end() -> None:
    upgrade = Upgrade(chooses(choice()), autonomy=Autonomy(mode="approval-required"))
    upgrade.new.run()
    job = upgrade.approve()
    for _ in range(MAX_SEARCHES + 1):
        upgrade.deliver(job, upgrade.old)

    item = upgrade.new.store.approvals.get(naming.parts(job)[1])
    assert item is not None
    assert item.result is not None
    assert item.result.error == "Unknown action 'p:do'"


def test_an_older_worker_leaves_steps_and_questions_that_it_lacks_to_another() -> None:
    step = ProcedureStep(id="fix", action="p:do")
    upgrade = Upgrade(Procedure(name="renew", steps=[step, ProcedureStep(id="q", ask="And now?")]))
    call_result(upgrade.new, action="p:renew")
    [record] = upgrade.new.store.procedures.all()
    name = naming.procedure(record.id)
    upgrade.deliver(name, upgrade.new)
    upgrade.deliver(name, upgrade.old)
    assert upgrade.new.store.procedures.all()[0].state == "running"

    upgrade.deliver(name, upgrade.new)
    for _ in range(3):
        upgrade.deliver(name, upgrade.old)
    [record] = upgrade.new.store.procedures.all()
    assert [part.state for part in record.progress] == ["done", "running"]
    assert len(upgrade.recorder.calls) == 1


def test_an_older_worker_gives_no_verdict_on_an_action_that_it_lacks() -> None:
    upgrade = Upgrade(chooses(choice()), verify=lambda result: "effective")
    upgrade.new.run()
    [entry] = upgrade.new.store.executions.page().executions
    name = naming.verification(entry.id)
    upgrade.deliver(name, upgrade.old)
    held = upgrade.new.store.executions.get(entry.id)
    assert held is not None
    assert held.verification is not None
    assert held.verification.verdict is None

    upgrade.deliver(name, upgrade.new)
    judged = upgrade.new.store.executions.get(entry.id)
    assert judged is not None
    assert judged.verification is not None
    assert judged.verification.verdict == "effective"


def test_an_older_worker_leaves_an_order_of_an_action_that_it_lacks_to_another() -> None:
    upgrade = Upgrade()
    request = CallRequest(kind="execute", action="p:do", params={}, actor=person("ann"))
    name = naming.call(upgrade.new.launcher.call(request, None))
    upgrade.deliver(name, upgrade.old)
    upgrade.deliver(name, upgrade.new)
    call = upgrade.new.store.calls.get(naming.parts(name)[1])
    assert call is not None
    assert call.result is not None
    assert call.result.success


def decide_iteration(upgrade: Upgrade) -> None:
    """Bring an iteration to its act phase, which no worker has entered."""
    lab = upgrade.new
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")


def test_an_older_worker_leaves_an_act_phase_whose_action_it_lacks_to_another() -> None:
    upgrade = Upgrade(chooses(choice()))
    decide_iteration(upgrade)
    for _ in range(3):
        assert not upgrade.old.steps.run("act", 1, 1)
    assert upgrade.recorder.calls == []

    upgrade.new.deliver()
    [result] = upgrade.new.store.history.results()
    assert result.success
    assert len(upgrade.recorder.calls) == 1


def test_an_act_phase_whose_action_no_worker_has_says_so_in_the_end() -> None:
    upgrade = Upgrade(chooses(choice()))
    decide_iteration(upgrade)
    searches = 0
    while not upgrade.old.steps.run("act", 1, 1):
        searches += 1
    assert searches == MAX_SEARCHES

    upgrade.old.dispatcher.send("test", 1, 1, "complete")
    upgrade.old.deliver()
    [result] = upgrade.new.store.history.results()
    assert [r.error for r in result.action_results] == ["Unknown action 'p:do'"]
    assert upgrade.recorder.calls == []


def test_an_act_phase_is_not_left_to_workers_with_the_same_plugins() -> None:
    upgrade = Upgrade(chooses(choice()))
    decide_iteration(upgrade)
    upgrade.announce(upgrade.old)
    assert upgrade.old.steps.run("act", 1, 1)


LOST = "Outcome unknown: worker lab was lost while executing it"


def test_an_act_phase_that_lost_the_last_worker_with_its_action_is_not_called_unbegun() -> None:
    upgrade = Upgrade(chooses(choice()))
    decide_iteration(upgrade)
    record = upgrade.new.store.iterations.current()
    assert record is not None
    upgrade.lose(naming.iteration_execution(record.id))
    upgrade.new.client.hset("boyd:{test}:iteration", "epoch", 2)
    assert upgrade.old.steps.run("act", 1, 2)
    upgrade.old.dispatcher.send("test", 1, 2, "complete")
    upgrade.old.deliver()
    [result] = upgrade.new.store.history.results()
    assert [r.error for r in result.action_results] == [LOST]


def test_a_job_that_lost_the_last_worker_with_its_action_is_not_called_unbegun() -> None:
    upgrade = Upgrade(chooses(choice()), autonomy=Autonomy(mode="approval-required"))
    upgrade.new.run()
    job = upgrade.approve()
    upgrade.lose(job)
    upgrade.deliver(job, upgrade.old)
    item = upgrade.new.store.approvals.get(naming.parts(job)[1])
    assert item is not None
    assert item.result is not None
    assert item.result.error == LOST


def test_an_order_that_lost_the_last_worker_with_its_action_is_not_called_unbegun() -> None:
    upgrade = Upgrade()
    request = CallRequest(kind="execute", action="p:do", params={}, actor=person("ann"))
    name = naming.call(upgrade.new.launcher.call(request, None))
    upgrade.lose(name)
    upgrade.deliver(name, upgrade.old)
    call = upgrade.new.store.calls.get(naming.parts(name)[1])
    assert call is not None
    assert call.result is not None
    assert call.result.error == LOST
