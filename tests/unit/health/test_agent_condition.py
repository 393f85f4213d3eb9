"""The condition of an agent: what matters most about it, why, and since when."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis

from boyd import Procedure, ProcedureStep
from boyd.health.agent_condition import condition_of
from boyd.health.agent_health import AgentHealth
from boyd.health.reader import read_agents
from boyd.models import ActionResult, Anomaly, Autonomy, utc_now
from boyd.models.responses import AgentCondition
from boyd.plugin import Action, Component, Observer, Orienter
from boyd.store import WorkerInfo
from boyd.testing import Lab
from kit import agent, assessed, call_result, choice, chooses, fails, overdue, person, seen, sees

DOWN = Anomaly(
    type="endpoint-down", description="web is down", severity="high", affected_resources=["web"]
)


class World:
    """An agent that finds the anomalies of a list, and its processes."""

    def __init__(self, *parts: Component, **settings: Any) -> None:
        self._anomalies: list[Anomaly] = []
        senses = [sees("cpu", seen("cpu")), Orienter(name="sense", orient=self._assess)]
        self.lab = Lab(agent(*senses, *parts, **settings))

    def look(self, *anomalies: Anomaly) -> AgentCondition:
        """Run an iteration that finds *anomalies*; return the condition after it."""
        self._anomalies = list(anomalies)
        self.lab.run()
        return condition(self.lab)

    def _assess(self) -> Any:
        return assessed("looked", source="p:sense", anomalies=self._anomalies or None)


def health(lab: Lab) -> AgentHealth:
    """The health of the lab's agent."""
    _, [health] = read_agents(lab.client)
    return health


def condition(lab: Lab) -> AgentCondition:
    """The condition of the lab's agent."""
    roster, [health] = read_agents(lab.client)
    return condition_of(roster, health)


def start_beat(lab: Lab) -> None:
    """Let a beat send a heartbeat."""
    lab.whole.fleet.beat(
        WorkerInfo(
            name="b",
            role="beat",
            host="here",
            pid=1,
            queues=[],
            agents=["test"],
            version="1",
            started_at=utc_now(),
        )
    )


def test_an_agent_that_sees_nothing_wrong_is_quiet() -> None:
    assert World().look().name == "quiet"


def test_an_open_anomaly_counts_from_when_it_began_whatever_its_severity() -> None:
    world = World()
    first = world.look(DOWN)
    worse = world.look(DOWN.patched({"severity": "critical", "type": "endpoint-dead"}))

    assert (first.name, first.reason) == ("open incident", "nothing is being done")
    assert first.since is not None
    assert worse.since == first.since
    assert world.look().name == "quiet"
    again = world.look(DOWN)
    assert again.since is not None
    assert again.since > first.since


def test_the_worst_open_anomaly_comes_first_and_the_oldest_of_equal_ones() -> None:
    world = World()
    disk = DOWN.patched({"type": "disk-full", "affected_resources": ["db"]})
    mild = DOWN.patched({"type": "latency-high", "severity": "low"})
    world.look(disk)
    time.sleep(0.002)
    world.look(mild, DOWN, disk)

    symptoms = [anomaly.symptom for anomaly in health(world.lab).trouble.anomalies]
    assert symptoms == ["disk on db", "endpoint on web", "latency on web"]


def test_an_anomaly_stays_open_while_its_plugin_cannot_look() -> None:
    replies: list[Any] = [[seen("cpu")], ConnectionError("refused")]
    anomalies: list[list[Anomaly]] = [[DOWN], []]

    def observe() -> Any:
        reply = replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    sense = Orienter(
        name="sense", orient=lambda: assessed(source="p:sense", anomalies=anomalies.pop(0) or None)
    )
    lab = Lab(agent(Observer(name="eye", observe=observe), sense))
    lab.run()
    lab.run()

    assert [anomaly.symptom for anomaly in health(lab).trouble.anomalies] == ["endpoint on web"]


def test_an_action_in_flight_is_work_and_its_harm_outlasts_it() -> None:
    verdicts: list[Any] = [None]
    action = Action(
        name="do",
        execute=lambda: "done",
        verify=lambda: verdicts[-1],
        rollback=lambda: "undone",
        target="host",
    )
    world = World(action, chooses(choice(params={"host": "web"})))
    at_work = world.look(DOWN)
    assert (at_work.name, at_work.reason) == ("at work", "p:do on web in flight")

    verdicts.append("worse")
    [check] = [
        it for it in world.lab.client.zrange("boyd:{test}:due", 0, -1) if it[:7] == "verify:"
    ]
    overdue(world.lab, check)
    after = condition(world.lab)
    assert after.name == "made worse"
    assert after.reason.startswith("p:do on web made it worse and was undone")


def test_a_pending_approval_comes_before_what_is_wrong() -> None:
    action = Action(name="do", execute=lambda: "done", autonomy=Autonomy(mode="approval-required"))
    world = World(action, chooses(choice()))
    condition = world.look(DOWN)
    assert (condition.name, condition.reason) == ("waits for you", "p:do waits for an answer")
    [pending] = world.lab.store.approvals.page(50).pending
    assert condition.approval == pending.id


def test_a_stopped_procedure_waits_for_a_person_whatever_is_in_flight() -> None:
    lost = ActionResult(action="p:do", success=False, unknown=True, duration=0, error="lost")
    renew = Procedure(name="renew", steps=[ProcedureStep(id="do", action="p:do")])
    world = World(Action(name="do", execute=lambda: lost), renew)
    call_result(world.lab, action="p:renew")
    for _ in range(4):
        for job in world.lab.client.zrange("boyd:{test}:due", 0, -1):
            overdue(world.lab, job)
    stopped = health(world.lab).backlog
    assert stopped.stopped == 1
    now = condition(world.lab)
    assert (now.name, now.approval) == ("waits for you", None)
    assert now.reason.startswith("p:renew is stopped: step do: ")
    assert now.since is not None

    assert stopped.first_stopped is not None
    world.lab.store.procedures.resume(stopped.first_stopped.id, "go on", person("ann"))
    assert condition(world.lab).name == "at work"
    assert health(world.lab).backlog.stopped == 0


def test_an_open_incident_tells_what_was_tried_in_vain() -> None:
    action = Action(
        name="do",
        execute=lambda: "done",
        verify=lambda: "no effect",
        target="host",
    )
    world = World(action, chooses(choice(params={"host": "web"})))
    world.look(DOWN)
    [check] = [it for it in world.lab.client.zrange("boyd:{test}:due", 0, -1) if "verify:" in it]
    overdue(world.lab, check)

    tried = world.look(DOWN)
    assert tried.name == "open incident"
    assert tried.reason == "p:do on web had no effect; nothing is being done"


def test_an_agent_without_a_worker_or_a_beat_does_not_watch() -> None:
    world = World(mode="continuous", loop_interval=5.0)
    without_beat = world.look(DOWN)
    assert without_beat.reason == "no beat starts its iterations"
    assert without_beat.command == "boyd beat"
    start_beat(world.lab)
    assert condition(world.lab).name == "open incident"
    world.lab.whole.fleet.leave("lab@here")
    assert condition(world.lab).reason == "no worker consumes the queue loop"


def test_an_agent_all_of_whose_observers_fail_does_not_watch() -> None:
    lab = Lab(agent(fails("eye"), fails("ear")))
    lab.run()

    blind = condition(lab)
    assert blind.name == "not watching"
    assert blind.reason == "all observers fail: p:eye: RuntimeError: boom"


def test_one_failing_observer_of_two_leaves_an_agent_watching() -> None:
    lab = Lab(agent(fails("eye"), sees("ear", seen("ear"))))
    lab.run()

    assert condition(lab).name == "quiet"


def test_an_agent_that_has_not_looked_for_long_does_not_watch() -> None:
    world = World(mode="continuous", loop_interval=1.0)
    start_beat(world.lab)
    world.look()
    roster, [health] = read_agents(world.lab.client)
    beat = {"last_beat": utc_now() + timedelta(hours=1)}
    processes = [process.patched(beat) for process in roster.processes]
    later = replace(roster, now=roster.now + 3600, processes=processes)

    assert condition_of(later, health).reason == "it has made no observations for 60 min"


@pytest.mark.parametrize("mode", ["continuous", "manual"])
def test_a_paused_agent_is_paused_whatever_is_wrong_with_its_processes(mode: Any) -> None:
    lab = World(mode=mode).lab
    lab.store.loop_control.pause("upgrade")

    paused = condition(lab)
    assert (paused.name, paused.reason) == ("paused", "upgrade")


def test_an_agent_whose_server_is_away_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lab = World().lab
    refusal = redis.ConnectionError("refused")
    replies = "boyd.health.reader.replies_of_some"
    monkeypatch.setattr(replies, lambda pipe: [refusal] * len(pipe.command_stack))
    _, agents = read_agents(lab.client)

    assert agents == []
    assert "the state of agent test is passed over: its Redis server does not answer" in caplog.text
