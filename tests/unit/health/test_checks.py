"""Findings about a deployment, from its health."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import fakeredis
import pytest

from boyd import Agent
from boyd.health.agent_health import AgentHealth, Backlog
from boyd.health.agent_replies import WaitingWork
from boyd.health.checks import examine
from boyd.health.declaration import declarations
from boyd.health.finding import Finding, span
from boyd.health.reader import read_health, read_roster
from boyd.health.server_health import ServerHealth
from boyd.health.snapshot import RETIRED, HealthSnapshot, Roster
from boyd.models import Autonomy
from boyd.models.investigation import ModelTotals
from boyd.models.loop import ArchiveStatus
from boyd.store import AgentEntry, Store, WorkerInfo, connect
from boyd.store.fleet import Role
from boyd.store.keys import AGENTS, ARCHIVE, FREEZES, TRACES
from boyd.store.server.server_release import Release
from boyd.testing import Lab
from boyd.text import queues
from boyd.text.version import VERSION
from kit import Recorder, agent, choice, chooses, fails, seen, sees

NOW = 1_800_000_000.0
TOPIC = "arn:aws:sns:eu-west-1:0:alarms"
SERVER = ServerHealth(
    release=Release("Valkey", "9.1.2"),
    role="master",
    aof=True,
    aof_ok=True,
    rdb=(),
    rdb_ok=True,
    unsaved=0,
    saved_at=NOW - 60,
    used=1_000_000,
    limit=0,
    policy="noeviction",
    clients=1,
    most_clients=0,
)
ENTRY = AgentEntry(
    id="a", name="a", mode="manual", loop_interval=60.0, plugins=[], fingerprint="f1"
)
CONTINUOUS = ENTRY.patched({"mode": "continuous"})


def process(name: str = "w", role: Role = "worker", *, silent: float = 0.0, **more: Any) -> Any:
    """A process that runs agent `a` and started an hour ago."""
    defaults: dict[str, Any] = {
        "host": "here",
        "pid": 1,
        "queues": ["loop", "observe", "act"] if role == "worker" else [],
        "agents": ["a"],
        "version": VERSION,
        "started_at": datetime.fromtimestamp(NOW, UTC) - timedelta(hours=1),
        "last_beat": datetime.fromtimestamp(NOW - silent, UTC),
        "approval_key": "abcdefgh" if role == "worker" else None,
    }
    return WorkerInfo(name=name, role=role, **{**defaults, **more})


def idle_agent() -> AgentHealth:
    """An agent that has been registered, and has done nothing yet."""
    store = Store(fakeredis.FakeRedis(decode_responses=True))
    store.fleet.register(ENTRY)
    return read_health(store.client).agents[0]


IDLE = idle_agent()


def agent_health(entry: AgentEntry = ENTRY, **values: Any) -> AgentHealth:
    """An agent whose fields have these values, whatever group they are in, and else is idle."""
    groups: dict[str, Any] = {}
    for name, declaration in declarations(AgentHealth).items():
        if declaration.group is not None:
            fields = values.keys() & declarations(declaration.group).keys()
            changes = {field: values.pop(field) for field in fields}
            groups[name] = replace(getattr(IDLE, name), **changes)
    return replace(IDLE, entry=entry, **groups, **values)


def health(*agents: AgentHealth, processes: Any = None, **more: Any) -> HealthSnapshot:
    """A deployment in which all is well but for what is given."""
    there = agents or (IDLE,)
    roster = Roster(
        now=NOW,
        agents={agent.entry.id: agent.entry for agent in there},
        processes=[process()] if processes is None else processes,
        unreadable=more.pop("unreadable", []),
        swept=more.pop("swept", {}),
    )
    defaults: dict[str, Any] = {
        "server": SERVER,
        "skew": 0.0,
        "latency": 0.001,
        "frozen": None,
        "messages": {},
        "broker_error": None,
        "archive": None,
        "traces": None,
        "cluster": (),
        "unread": (),
        "unreached": (),
    }
    return HealthSnapshot(roster=roster, agents=list(there), **{**defaults, **more})


def server(**changes: Any) -> HealthSnapshot:
    """A deployment on such a Redis."""
    return health(server=replace(SERVER, **changes))


def bad(snapshot: HealthSnapshot, needs: Any = None) -> list[str]:
    """The findings that are not ok, without the advice."""
    return [f"{f.level}: {f.what}" for f in examine(snapshot, needs) if f.level != "ok"]


def about(snapshot: HealthSnapshot, subject: str) -> Finding:
    """The only finding on a subject."""
    (matching,) = [finding for finding in examine(snapshot) if finding.subject == subject]
    return matching


def test_all_is_well_when_all_is_well() -> None:
    assert bad(health()) == []


@pytest.mark.parametrize(
    ("machines", "wrong"),
    [
        (["b1.s1", "b1.s1"], False),
        (["b1.s1", "b2.s1"], True),  # a copy of a machine
        (["b1.s1", "b1.s2"], True),  # two containers with systems of their own
        (["b1.s1", "b1."], False),  # a container beside its host
        (["b1.", "b1."], False),
        ([".s1", "b1.s1"], False),
        (["b1.s1", "b1.s1", "b2.s2"], True),
        ([None, "b1.s1"], False),
        ([None, "b1.s1", "b2.s1"], True),
        ([None, None], False),
    ],
)
def test_machines_with_one_name_are_reported(machines: list[str | None], wrong: bool) -> None:
    served = ["loop", "observe", "act", "host.here"]
    snapshot = health(
        processes=[
            process(f"w{n}", machine=machine, queues=served) for n, machine in enumerate(machines)
        ]
    )
    names = ", ".join(f"w{n}" for n in range(len(machines)))
    problem = f"error: several machines have this name, so only one of them is observed: {names}"
    assert bad(snapshot) == ([problem] if wrong else [])


def test_machines_of_which_only_one_looks_at_its_host_may_have_one_name() -> None:
    looks = process("looks", machine="b1.s1", queues=["loop", "observe", "act", "host.here"])
    others = [process("works", machine="b2.s1"), process("beat", "beat", machine="b3.s1")]
    silent_process = process("gone", machine="b4.s1", queues=looks.queues, silent=600)
    assert "several machines" not in " ".join(
        bad(health(processes=[looks, *others, silent_process]))
    )


def test_intakes_without_their_library_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    intakes = [
        {"name": "datadog"},
        {"name": "sns", "use": "cloudwatch", "auth": {"method": "sns", "topics": [TOPIC]}},
    ]
    declared = Agent("a", intakes=intakes).settings.intakes
    watched = agent_health(ENTRY.model_copy(update={"intakes": declared}))
    assert bad(health(watched)) == []

    for library in ("jmespath", "cryptography"):
        monkeypatch.setitem(sys.modules, library, None)
    assert bad(health(watched)) == [
        "warning: those of a need jmespath, which is not installed here",
        "warning: those of a need cryptography, which is not installed here",
    ]


def test_every_finding_that_is_not_ok_has_advice() -> None:
    stuck = agent_health(CONTINUOUS, frozen="why", paused="why", deadline=NOW - 60, expired=1)
    snapshot = health(stuck, processes=[], server=None, skew=9.0, frozen="why", broker_error="away")

    assert all(finding.what_to_do for finding in examine(snapshot) if finding.level != "ok")


# Redis


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"release": Release("Redis", "6.0.16")}, "error: Redis 6.0.16"),
        ({"release": Release("Redis", "")}, "error: Redis of an unknown version"),
        (
            {"release": Release("Redis", "6.2.14")},
            "warning: Redis 6.2.14 lets clients execute code (CVE-2025-49844)",
        ),
        ({"role": "slave"}, "error: slave"),
        ({"aof_ok": False}, "error: the append-only file cannot be written"),
        (
            {"aof": False},
            "warning: nothing is written to disk: a Redis restart loses all state",
        ),
        (
            {"aof": False, "rdb": ((3600, 1), (60, 10_000))},
            "warning: snapshots only: a crash may lose up to the last 60 min",
        ),
        (
            {"aof": False, "rdb": None},
            "warning: no append-only file; no permission to check for snapshots",
        ),
        ({"rdb_ok": False}, "error: the last snapshot failed"),
        ({"policy": "allkeys-lru"}, "warning: allkeys-lru, no memory limit yet"),
        (
            {"policy": "volatile-ttl", "limit": 100_000_000},
            "error: volatile-ttl: Redis evicts keys when its memory is full",
        ),
        ({"policy": None}, "warning: permission denied"),
        ({"limit": 1_200_000}, "warning: 1.0 MB of 1.2 MB used"),
        ({"limit": 1_000_001}, "error: 1.0 MB of 1.0 MB used"),
        ({"clients": 80, "most_clients": 100}, "warning: 80 of 100 used"),
        ({"clients": 95, "most_clients": 100}, "error: 95 of 100 used"),
    ],
)
def test_a_redis_that_may_lose_state_is_reported(changes: Any, expected: str) -> None:
    assert bad(server(**changes)) == [expected]


def test_the_finding_on_snapshots_counts_the_changes_since_the_last() -> None:
    snapshot = server(aof=False, rdb=((3600, 1),), unsaved=12, saved_at=NOW - 42)

    assert about(snapshot, "snapshots").what == "the last one was 42 s ago, 12 changes since"


def test_a_redis_that_may_not_be_asked_is_no_error() -> None:
    assert bad(health(server=None)) == ["warning: permission denied"]


def test_clock_skew_is_reported() -> None:
    assert bad(health(skew=-3.25)) == ["warning: Redis is 3.2 s behind this host"]


def test_hosts_of_workers_whose_clocks_differ_are_reported() -> None:
    clocks = {"w1": ("here", 0.2), "w2": ("there", 0.2), "w3": ("there", -40.0)}
    live = [process(name, host=host, clock_skew=skew) for name, (host, skew) in clocks.items()]
    silent_process = process("gone", host="elsewhere", clock_skew=90.0, silent=600)

    findings = [
        f for f in examine(health(processes=[*live, silent_process])) if "clock of" in f.subject
    ]
    assert [(f.subject, f.what) for f in findings] == [
        ("clock of there", "Redis is 40 s behind it")
    ]


@pytest.mark.parametrize("changes", [{"aof_ok": False}, {"rdb_ok": False}, {"limit": 1_000_000}])
def test_while_redis_cannot_write_no_process_counts_as_dead(changes: dict[str, Any]) -> None:
    full = replace(SERVER, **changes)
    silent = health(agent_health(CONTINUOUS), server=full, processes=[process(silent=60)])
    live = health(server=full)

    assert [line.partition(":")[0] for line in bad(silent)] == ["error", "warning"]
    assert "Redis may refuse to record any" in bad(silent)[1]
    assert "heartbeat" not in " ".join(bad(live))


def test_a_broker_that_does_not_answer_is_an_error() -> None:
    assert bad(health(messages=None, broker_error="away")) == ["error: away"]


# Archive and traces


def follower_status(seconds_silent: float) -> ArchiveStatus:
    """An archive whose database went down an hour ago, and that has been silent for so long."""
    return ArchiveStatus(
        name="archive.1",
        at=datetime.fromtimestamp(NOW - seconds_silent, UTC),
        down_since=datetime.fromtimestamp(NOW - 3600, UTC),
        error="connection refused",
    )


def test_an_archive_that_ended_while_its_database_was_down_is_silent() -> None:
    now = datetime.fromtimestamp(NOW, UTC)
    down = about(health(archive=follower_status(1)), "archive")
    silent = about(health(archive=follower_status(600)), "archive")

    assert down.text(now) == "down for 60 min: connection refused"
    assert silent.text(now) == "silent for 10 min"
    assert "start `boyd archive` again" in silent.what_to_do


@pytest.mark.parametrize(("key", "subject"), [(ARCHIVE, "archive"), (TRACES, "traces")])
def test_an_announcement_that_cannot_be_read_is_reported(key: str, subject: str) -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    client.set(key, '{"of": "a later release"}')
    later = about(read_health(client), subject)
    client.delete(key)
    client.lpush(key, "of another program")
    foreign = about(read_health(client), subject)

    assert later == foreign
    assert (later.level, later.what) == ("warning", "its announcement cannot be read")


# Workers and queues


def test_lengths_of_queues_are_those_of_the_brokers_that_answer() -> None:
    lab = Lab(agent())
    away = connect("redis://127.0.0.1:1")
    here = fakeredis.FakeRedis(decode_responses=True)
    here.lpush(queues.full_name("loop", "test"), "a", "b")
    brokers = [here, away] if queues.broker_of("test", 2) == 0 else [away, here]

    snapshot = read_health(lab.client, brokers)
    assert snapshot.messages is not None
    assert snapshot.messages["test", "loop"] == 2
    assert str(snapshot.broker_error).startswith(f"broker {brokers.index(away) + 1}: ")
    assert read_health(lab.client, [away, away]).messages is None


def test_processes_with_different_numbers_of_brokers_are_reported() -> None:
    first, other = process("one"), process("other")
    findings = examine(health(processes=[first, other.model_copy(update={"brokers": 3})]))

    assert "processes spread messages over 1 and 3 brokers" in [each.what for each in findings]


def test_an_agent_without_a_worker_is_reported_with_the_time_since_it_last_had_one() -> None:
    elsewhere = process(agents=["other"])

    assert bad(health(processes=[elsewhere], swept={"a": NOW - 300})) == [
        "warning: no live worker runs it; unused for 5 min"
    ]


def test_a_retired_agent_is_not_complained_about() -> None:
    elsewhere = process(agents=["other"])
    snapshot = health(
        agent_health(CONTINUOUS), processes=[elsewhere], swept={"a": NOW - 3 * RETIRED}
    )

    assert bad(snapshot) == []
    assert about(snapshot, "agent a").what == "retired: unused for 3 d"


def test_a_queue_of_the_loop_without_a_worker_is_an_error() -> None:
    snapshot = health(processes=[process(queues=["loop", "observe"])])

    assert bad(snapshot) == ["error: no live worker consumes queue 'act'"]


def test_a_queue_without_a_worker_is_reported_with_the_components_that_need_it() -> None:
    assert bad(health(), {"a": {"far": ["p:look"]}}) == [
        "error: no live worker consumes queue 'far', needed by p:look"
    ]


def test_a_queue_that_an_action_names_is_known_without_the_agent_file() -> None:
    lab = Lab(agent(Recorder().action(queue="far")))
    snapshot = read_health(lab.client)

    assert "error: no live worker consumes queue 'far', needed by p:do" in bad(snapshot)
    assert snapshot.messages is not None
    assert snapshot.messages["test", "far"] == 0


def test_an_agent_that_was_never_started_is_reported() -> None:
    assert bad(health(), {"b": {"far": ["p:look", "p:go"]}}) == [
        "warning: it has never been started against this Redis",
        "error: no live worker consumes queue 'far', needed by p:look, p:go",
    ]


def test_a_queue_with_messages_and_no_worker_is_an_error() -> None:
    assert bad(health(messages={("a", "far"): 2, ("a", "act"): 5, ("a", "host.gone"): 1})) == [
        "error: no live worker consumes queue 'far', which holds 2 messages"
    ]


def test_work_that_waits_in_a_queue_without_a_worker_is_an_error() -> None:
    waits = agent_health(ENTRY, waiting=(WaitingWork("act", "far", NOW - 20),))

    assert bad(health(waits)) == [
        "error: no live worker consumes queue 'far'; work has been waiting for 20 s"
    ]


def test_work_that_waits_for_busy_workers_is_a_warning() -> None:
    steps = (WaitingWork("observe", "observe", NOW - 12), WaitingWork("a call", "act", NOW - 30))

    assert bad(health(agent_health(ENTRY, waiting=steps))) == [
        "warning: a call has been waiting for 30 s in queue 'act'"
    ]


def test_processes_of_different_versions_are_reported() -> None:
    pair = [process("w1"), process("w2", version="0.0.9")]

    assert bad(health(processes=pair)) == [
        f"warning: 0.0.9 (worker w2) and {VERSION} (worker w1) run side by side"
    ]


def test_processes_with_different_agent_files_are_reported_with_their_age() -> None:
    young = datetime.fromtimestamp(NOW, UTC) - timedelta(seconds=20)
    old = [process(f"w{n}", fingerprints={"a": "old"}) for n in range(3)]
    new = process("w3", fingerprints={"a": "new"}, started_at=young)

    [finding] = bad(health(processes=[new, *old]))
    assert finding == (
        "warning: its processes run 2 different agent files or plugins:"
        " file 1: worker w2 (started 60 min ago) and 2 others;"
        " file 2: worker w3 (started 20 s ago)"
    )


def test_a_silent_process_is_reported_until_another_has_taken_its_place() -> None:
    lost = process("w1", silent=40.0)
    other = process("w2", host="there")
    successor = process("w3", started_at=datetime.fromtimestamp(NOW, UTC))

    assert bad(health(processes=[lost, other])) == ["warning: no heartbeat for 40 s"]
    assert bad(health(processes=[lost, other, successor])) == []


def test_the_problem_of_a_process_is_reported() -> None:
    assert bad(health(processes=[process(problem="3 observers hang")])) == [
        "warning: 3 observers hang"
    ]


def test_an_unreadable_process_record_is_reported() -> None:
    assert bad(health(unreadable=["w9"])) == ["warning: its record cannot be read"]


# Beats


BEAT = process("b", "beat")


def test_a_continuous_agent_without_a_beat_is_an_error() -> None:
    assert bad(health(agent_health(CONTINUOUS))) == ["error: no live beat runs for it"]


@pytest.mark.parametrize("mode", ["manual", "event-driven"])
def test_other_agents_need_no_beat(mode: str) -> None:
    assert bad(health(agent_health(ENTRY.patched({"mode": mode})))) == []


@pytest.mark.parametrize(
    ("state", "still"),
    [
        ({"slot": NOW - 100}, False),
        ({"slot": NOW - 151}, True),
        ({}, True),
        ({"slot": NOW - 900, "resumed_at": NOW - 20}, False),
    ],
)
def test_a_beat_stands_still_after_two_and_a_half_intervals(state: Any, still: bool) -> None:
    snapshot = health(agent_health(CONTINUOUS, **state), processes=[process(), BEAT])

    assert any("beat has stalled" in text for text in bad(snapshot)) == still


def test_a_stalled_beat_is_reported_with_the_time_since_its_last_tick() -> None:
    snapshot = health(agent_health(CONTINUOUS, slot=NOW - 200), processes=[process(), BEAT])

    assert bad(snapshot) == [
        "error: beat has stalled: no tick for 3 min, although one is due every 60 s"
    ]


def test_a_beat_that_has_just_started_may_take_its_time() -> None:
    fresh = process("b", "beat", started_at=datetime.fromtimestamp(NOW - 5, UTC))

    assert bad(health(agent_health(CONTINUOUS), processes=[process(), fresh])) == []


SCHEDULED = ENTRY.patched({"schedule": ["*/10 * * * *"]})
#: The last start by that schedule, in seconds.
DUE = NOW // 600 * 600


def test_an_agent_with_a_schedule_needs_a_beat() -> None:
    assert bad(health(agent_health(SCHEDULED))) == ["error: no live beat runs for it"]


@pytest.mark.parametrize(
    ("scheduled", "still"), [(DUE, False), (DUE - 600, DUE < NOW - 60), (DUE - 1200, True)]
)
def test_a_start_by_the_schedule_that_is_missing_is_an_error(scheduled: float, still: bool) -> None:
    late = agent_health(SCHEDULED, scheduled=scheduled)
    findings = bad(health(late, processes=[process(), BEAT]))

    assert any("beat has stalled: the start by the schedule" in text for text in findings) == still


def test_a_start_before_the_beat_is_not_missing() -> None:
    fresh = process("b", "beat", started_at=datetime.fromtimestamp(NOW - 30, UTC))

    assert bad(health(agent_health(SCHEDULED), processes=[process(), fresh])) == []


def test_no_ticks_are_expected_of_a_paused_agent() -> None:
    held = agent_health(CONTINUOUS, slot=NOW - 900, paused="holidays")

    assert bad(health(held, processes=[process(), BEAT])) == ["warning: paused: holidays"]


# What is in flight


def test_an_iteration_that_nobody_looks_after_is_an_error() -> None:
    stuck = agent_health(ENTRY, iterations=7, phase="orient", deadline=NOW - 30)

    assert bad(health(stuck, processes=[])) == [
        "error: none is alive",
        "warning: no live worker runs it",
        "error: iteration 7 in phase orient has stalled: no process has handled it for 30 s",
    ]


def test_a_phase_that_lasts_is_a_warning() -> None:
    slow = agent_health(ENTRY, iterations=7, phase="act", phase_since=NOW - 1500, worker="w")

    assert bad(health(slow)) == [
        "warning: iteration 7 in phase act has been running for 25 min on w"
    ]


def test_an_approval_that_nobody_expires_is_a_warning() -> None:
    late = agent_health(ENTRY, approvals=3, expired=2, next_deadline=NOW - 300)
    fresh = agent_health(ENTRY, approvals=3, expired=2, next_deadline=NOW - 5)

    assert bad(health(late)) == ["warning: 2 approvals still pending 5 min after the deadline"]
    assert bad(health(fresh)) == []


def test_freezes_are_reported_with_their_reason() -> None:
    held = agent_health(ENTRY, frozen="moving (by jo)")

    assert bad(health(held, frozen="moving house")) == [
        "warning: actions of all agents are frozen: moving house",
        "warning: frozen: moving (by jo)",
    ]


def test_a_freeze_of_all_is_not_reported_for_each_agent() -> None:
    held = agent_health(ENTRY, frozen="moving house")

    assert bad(health(held, frozen="moving house")) == [
        "warning: actions of all agents are frozen: moving house",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0 s"), (1.26, "1.3 s"), (42.4, "42 s"), (119, "119 s"), (7300, "2 h"), (2e5, "2 d")],
)
def test_durations_are_formatted_for_people(seconds: float, text: str) -> None:
    assert span(seconds) == text


# How the health are read


def health_of(lab: Lab) -> tuple[HealthSnapshot, AgentHealth]:
    """The health of a lab, and those of its agent."""
    snapshot = read_health(lab.client)
    return snapshot, snapshot.agents[0]


def test_an_agent_that_has_never_run_is_idle() -> None:
    _, measured_health = health_of(Lab(agent()))

    progress = measured_health.progress
    assert (progress.iterations, progress.phase, progress.last) == (0, "idle", None)
    assert progress.flight_since is None
    assert measured_health.backlog == Backlog((), 0, 0, None, 0, 0, None, None, 0, None)


def test_health_has_the_end_of_the_last_iteration() -> None:
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    result = [lab.run(), lab.run()][-1]
    progress = health_of(lab)[1].progress

    assert progress.last is not None
    assert (progress.last.iteration, progress.last.success) == (2, True)
    assert progress.last.at == pytest.approx(result.ended_at.timestamp(), abs=0.01)
    assert (progress.iterations, progress.phase) == (2, "idle")


def test_a_phase_in_flight_waits_until_a_worker_enters_it() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    all_of_it, measured_health = health_of(lab)
    entered = lab.store.iterations.enter(1, 1, "start", "lab/1")
    _, later = health_of(lab)

    assert entered is not None
    assert [(step.what, step.queue) for step in measured_health.backlog.waiting] == [
        ("start", "loop")
    ]
    assert (measured_health.progress.phase, measured_health.progress.worker) == ("start", None)
    assert measured_health.progress.flight_since == pytest.approx(all_of_it.roster.now, abs=1)
    assert (later.backlog.waiting, later.progress.worker) == ((), "lab")


def test_batches_wait_in_the_queue_of_their_observers() -> None:
    parts = [sees("o", seen()), sees("far", seen(), queue="far")]
    lab = Lab(agent(*parts), queues=["far"])
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: len(lab.dispatcher.hints) == 2)
    _, measured_health = health_of(lab)

    assert sorted(measured_health.oldest) == ["far", "observe"]


def test_health_counts_pending_runs_of_every_priority_and_dates_the_oldest() -> None:
    lab = Lab(agent(mode="continuous"))
    first = lab.submit("first", priority="low")
    lab.submit("second", priority="critical")
    lab.store.loop_control.pause("test")
    _, measured_health = health_of(lab)

    assert measured_health.backlog.runs == 2
    assert measured_health.backlog.oldest_run == pytest.approx(
        first.run.created_at.timestamp(), abs=0.001
    )


def test_health_counts_pending_approvals_and_has_the_next_deadline() -> None:
    act = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(sees("o", seen()), chooses(choice()), act))
    lab.run()
    everything, measured_health = health_of(lab)

    assert (measured_health.backlog.approvals, measured_health.backlog.expired) == (1, 0)
    assert measured_health.backlog.next_deadline == pytest.approx(
        everything.roster.now + 3600, abs=5
    )


def test_health_counts_the_failures_of_an_observer() -> None:
    lab = Lab(agent(fails("bad")))
    lab.run()
    _, measured_health = health_of(lab)

    assert measured_health.observers["p:bad"].failures == 1


def test_health_tells_when_an_agent_was_resumed_whatever_happens_afterwards() -> None:
    lab = Lab(agent())
    lab.store.loop_control.resume()
    _, running = health_of(lab)
    lab.store.loop_control.pause("holidays")
    _, paused = health_of(lab)
    lab.store.loop_control.resume()
    _, resumed = health_of(lab)
    lab.run()
    _, later = health_of(lab)

    assert (running.stops.resumed_at, paused.stops.resumed_at) == (None, None)
    assert paused.stops.paused == "holidays"
    assert resumed.stops.paused is None
    assert resumed.stops.resumed_at is not None
    assert later.stops.resumed_at == resumed.stops.resumed_at


def test_messages_are_counted_by_queue() -> None:
    lab = Lab(agent(), queues=["far"])
    lab.client.rpush("boyd.far.test", "one", "two")
    measured_health, _ = health_of(lab)

    assert measured_health.messages is not None
    assert (measured_health.messages["test", "far"], measured_health.messages["test", "loop"]) == (
        2,
        0,
    )


def test_an_announcement_of_another_version_is_passed_over() -> None:
    lab = Lab(agent())
    lab.client.hset("boyd:{*}:agents", "later", '{"id": "later"}')

    assert read_roster(lab.client).unreadable == ["agent later"]


def test_the_cost_does_not_grow_with_history(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(agent(sees("o", seen())))
    sent: list[int] = []
    pipeline = lab.client.pipeline

    def counting(*args: Any, **more: Any) -> Any:
        pipe = pipeline(*args, **more)
        execute = pipe.execute

        def run(*rest: Any, **options: Any) -> Any:
            sent.append(len(pipe.command_stack))
            return execute(*rest, **options)

        pipe.execute = run
        return pipe

    def cost() -> list[int]:
        with monkeypatch.context() as patched:
            patched.setattr(lab.client, "pipeline", counting)
            sent.clear()
            read_health(lab.client)
        return list(sent)

    lab.run()
    before = cost()
    for _ in range(5):
        lab.run()

    assert (len(before), cost()) == (4, before)


def test_an_iteration_in_flight_that_no_sweeper_will_come_to_is_an_error() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    lab.client.hset("boyd:{test}:iteration", "phaseAt", 1)
    _, looked_after = health_of(lab)
    lab.client.delete("boyd:{test}:due")
    everything, measured_health = health_of(lab)
    texts = [f"{f.level}: {f.what}" for f in examine(everything) if f.subject == "agent test"]

    assert looked_after.progress.flight is not None
    assert not looked_after.progress.flight.is_stuck(everything.roster.now)
    assert measured_health.progress.flight is not None
    assert measured_health.progress.flight.is_stuck(everything.roster.now)
    assert "error: iteration 1 in phase start has stalled: no process will pick it up" in texts


def test_an_iteration_that_has_just_begun_does_not_stand_still() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    lab.client.delete("boyd:{test}:due")
    everything, measured_health = health_of(lab)

    assert measured_health.progress.flight is not None
    assert not measured_health.progress.flight.is_stuck(everything.roster.now)


def test_a_continuous_agent_without_new_observations_is_reported_with_its_phase() -> None:
    held, observing = (
        agent_health(
            CONTINUOUS, iterations=7, phase="act", observed=at, slot=NOW - 1, deadline=NOW + 1
        )
        for at in (NOW - 600, NOW - 30)
    )
    texts = bad(health(held, processes=[process(), BEAT]))
    fresh = bad(health(observing, processes=[process(), BEAT]))

    assert texts == ["warning: it has made no observations for 10 min: iteration 7 in phase act"]
    assert fresh == []


@pytest.mark.parametrize(("resumed_at", "is_reported"), [(NOW - 20, False), (NOW - 1000, True)])
def test_a_resumed_agent_has_time_for_its_first_observations(
    resumed_at: float, is_reported: bool
) -> None:
    held = agent_health(CONTINUOUS, observed=NOW - 9000, slot=NOW - 1, resumed_at=resumed_at)
    texts = bad(health(held, processes=[process(), BEAT]))

    assert any("no observations" in text for text in texts) == is_reported


@pytest.mark.parametrize("key", [AGENTS, FREEZES])
def test_a_key_of_the_deployment_of_another_type_is_an_error_that_names_it(key: str) -> None:
    lab = Lab(agent())
    lab.client.delete(key)
    lab.client.set(key, "garbage")
    errors = [f for f in examine(read_health(lab.client)) if f.level == "error"]

    assert [(f.subject, f.what) for f in errors] == [(key, "it holds something else than a hash")]
    assert "delete it, or restore it" in errors[0].what_to_do


def test_tool_calls_returned_as_text_are_reported_for_a_day() -> None:
    spoke = agent_health(ENTRY, model=ModelTotals(spoken_at=NOW - 60))
    texts = bad(health(spoke, processes=[process()]))
    earlier = agent_health(ENTRY, model=ModelTotals(spoken_at=NOW - 90_000))

    assert texts == ["warning: its model server returned a tool call as plain text 60 s ago"]
    assert bad(health(earlier, processes=[process()])) == []


def test_an_event_that_could_not_be_written_is_reported_for_an_hour() -> None:
    lost, lost_before = (
        agent_health(ENTRY, events_lost=at, events_error="WRONGTYPE")
        for at in (NOW - 60, NOW - 7200)
    )
    texts = bad(health(lost, processes=[process()]))
    later = bad(health(lost_before, processes=[process()]))

    assert texts == ["warning: an event could not be written 60 s ago: WRONGTYPE"]
    assert later == []


def test_workers_that_do_not_verify_approvals_are_reported() -> None:
    lax = [process("w", approval_key=None)]
    mixed = [process("v"), process("w", approval_key=None)]

    assert bad(health(processes=lax)) == [
        "warning: they are not signed: whoever can write to Redis can approve"
    ]
    assert bad(health(processes=mixed)) == [
        "error: workers check them with different secrets or keys: abcdefgh and none"
    ]
