"""Some schedules of the whole protocol, and what the simulator itself promises."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis

from boyd.export.archive import copier
from boyd.store import Store
from boyd.store.server.connection import Client
from faults.protections import Copy
from simulation import judge
from simulation.judge import Judge
from simulation.protections import search, select
from simulation.scenarios import SCENARIOS
from simulation.simulate import ERRORS, run, shrink
from simulation.store import SimulatedClient, SimulatedRedis
from simulation.world import Fault, FaultKind

#: Schedules of each scenario: about a second of processor time.
SCHEDULES = 10


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_violates_an_invariant(name: str) -> None:
    outcomes = [run(SCENARIOS[name], seed) for seed in range(SCHEDULES)]

    assert [(f"{name}:{o.seed}", o.violations) for o in outcomes if o.violations] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "title",
    [
        "only what is pending can be resolved",
        "leases are renewed while the work goes on",
        "what a person has approved is not executed while its case waits",
    ],
)
def test_schedules_without_a_protection_violate_an_invariant(title: str, tmp_path: Path) -> None:
    [protections] = select(title)
    violated, report = search(Copy.into(tmp_path), protections, seconds=60)

    assert violated, report


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_gives_the_same_timeline_again(name: str) -> None:
    assert run(SCENARIOS[name], 5) == run(SCENARIOS[name], 5)


def test_the_timeline_shows_the_faults_of_a_schedule() -> None:
    crash = Fault("crash after", "claim_execution", 1, 5.0)
    outcome = run(SCENARIOS["effect"], 1, [crash])

    assert outcome.violations == ()
    assert [line for line in outcome.timeline if f"*** {crash}" in line]


#: The claim of what is executed first is lost, and then the worker.
_LOST_CLAIM = [Fault("fail over", "begin", 1, 0.5, lost=1), Fault("crash before", "end", 1, 0.3)]


def _errors(first: int) -> list[Fault]:
    """Errors that stop a procedure in the middle of what it is about to record."""
    return [Fault("error", "record_procedure", first + n) for n in range(ERRORS)]


def _outages(point: str, first: int) -> list[Fault]:
    """Outages that each take what somebody does at a point for the third time in vain."""
    return [Fault("outage", point, first + n, (24.0, 5.7, 5.7)[n]) for n in range(3)]


def test_a_worker_drains_before_it_ends_and_its_work_is_reported() -> None:
    outcome = run(SCENARIOS["effect"], 0, [Fault("terminate", "begin", 1, 1.0)])
    at = partial(_line_of, outcome.timeline, "worker-1")

    assert outcome.violations == ()
    assert at("*** terminate") < at("!!! end") < at("finish_execution") < at("has drained")
    assert at("has drained") < at("starts", life=2)


def _line_of(timeline: Sequence[str], process: str, text: str, life: int = 1) -> int:
    """The number of the first line about that life of a process with *text*."""
    return _index_of(timeline, f"{process}.{life} ", text)


def _index_of(timeline: Sequence[str], *texts: str) -> int:
    """The number of the first line with all these *texts*."""
    return next(i for i, line in enumerate(timeline) if all(text in line for text in texts))


@pytest.mark.parametrize(
    ("name", "seed", "faults"),
    [
        ("effect", 12, [Fault("outage", "begin", 1, 8.0)]),
        ("proposers", 1795710166894, [Fault("outage", "begin", 2, 3.074)]),
        ("effect", 12, [Fault("outage", "begin", 1, 60.0)]),
        ("proposers", 1795763108220, [Fault("outage", "begin", each, 5.615) for each in (1, 2)]),
        (
            "procedure",
            1795770899003,
            [
                Fault("stall", "begin_procedure", 1, 12.653),
                Fault("clock", "leave_job", 1, -3408.07),
            ],
        ),
        ("effect", 1795772051955, [Fault("outage", "renew_job", each, 1.138) for each in (2, 3)]),
        ("effect", 779961, [Fault("outage", "renew_lease", 4, 2.364)]),
        (
            "procedure",
            1795789094057,
            [
                *(Fault("refuse", "settle_execution", each) for each in (1, 2)),
                Fault("cut off", "begin", 2, 11.012),
            ],
        ),
        (
            "procedure",
            14,
            [Fault("crash before", "begin", each, 0.325) for each in (1, 2)],
        ),
        *(("waves", seed, _outages("move_target", 1)) for seed in (0, 6)),
        ("waves", 5, _outages("move_target", 4)),
        ("waves", 1795835556039, _outages("leave_job", 2)),
        ("waves", 22, _outages("leave_job", 2)),
        ("waves", 13, [Fault("stall", "leave_job", 5, 2.9)]),
        ("consent", 17, [Fault("crash after", "propose_action", 1, 0.361)]),
        ("consent", 0, _errors(10)),
        ("failover", 8, _LOST_CLAIM),
        ("failover", 12, _LOST_CLAIM),
    ],
    ids=[
        "a result is kept in an outage within an iteration",
        "and in one without any",
        "and in one of a minute",
        "and in two",
        "a procedure ends after a step of the clock",
        "leases hold over two outages",
        "and over one that is most of a lease",
        "a procedure that is given up says that its step was done",
        "a step is repeated as often as a person orders it",
        "a target that is given up after it was done is done",
        "and not repeated",
        "and undone if it was",
        "what is over is not given up",
        "a target that was cancelled is undone although its job has not ended",
        "and repeated when a person orders it at once",
        "and undone if it was approved before that, although the worker that asked was lost",
        "what a step has done is known although errors have kept it out of the record",
        "a call whose claim was lost, and that is refused, may have been executed",
        "and so may the decision of an iteration",
    ],
)
def test_schedules_that_once_violated_an_invariant_violate_none(
    name: str, seed: int, faults: list[Fault]
) -> None:
    outcome = run(SCENARIOS[name], seed, faults)

    assert outcome.violations == ()
    for fault in faults:
        assert [line for line in outcome.timeline if f"*** {fault}" in line]


def test_a_step_that_is_approved_after_a_cancellation_is_not_executed() -> None:
    outcome = run(SCENARIOS["consent"], 38, [])
    scripts = [line.split()[-1] for line in outcome.timeline]
    results = [line for line in outcome.timeline if "??? result approval:" in line]

    assert outcome.violations == ()
    assert scripts.index("cancel_procedure") < scripts.index("resolve_approval")
    assert results
    assert all(line.endswith(": failed") for line in results)


@pytest.mark.parametrize("name", ["procedure", "waves"])
@pytest.mark.parametrize("kind", ["crash before", "crash after"])
def test_a_client_hears_of_a_procedure_whose_worker_was_lost_as_it_began(
    name: str, kind: FaultKind
) -> None:
    outcome = run(SCENARIOS[name], 1, [Fault(kind, "begin_procedure", 1, 0.3)])
    end = next(line for line in outcome.timeline if "??? procedure call:" in line)

    assert outcome.violations == ()
    assert end.endswith("never begun") == (kind == "crash before")


def test_a_procedure_that_errors_stop_while_it_asks_for_a_compensation_is_cancelled_again() -> None:
    outcome = run(SCENARIOS["consent"], 145, _errors(11))
    at = partial(_index_of, outcome.timeline)

    assert outcome.violations == ()
    assert at("procedure-cancel") < at("farming:undo") < at("*** error") < at("??? stopped")
    assert at("??? stopped") < at("decides call:") < at("??? procedure call:")
    assert outcome.timeline[at("??? procedure call:")].endswith("cancelled")


def test_a_verification_that_is_given_up_is_known_from_its_verdict() -> None:
    losses = [Fault("crash before", "look", number, 0.3) for number in (1, 2, 3)]
    outcome = run(SCENARIOS["effect"], 1, losses)

    assert outcome.violations == ()
    assert sum("***" in line for line in outcome.timeline) == len(losses)
    assert [line for line in outcome.timeline if "??? verdict" in line and "cannot tell" in line]


def test_harm_on_a_target_is_undone_once_before_another_begins() -> None:
    outcome = run(SCENARIOS["harmful-waves"], 3, ())
    harm = next(line for line in outcome.timeline if "!!! look worse" in line).split()[-1]
    undone = [line for line in outcome.timeline if "!!! begin rollback:" in line]

    assert outcome.violations == ()
    assert sum(line.endswith(f" {harm}") for line in undone) == 1


@pytest.mark.parametrize(
    ("bound", "fault", "name"),
    [
        ("RESEND", Fault("drop", "boyd.start", 1), "boyd.start"),
        ("REPORT", Fault("crash before", "begin", 1, 40.0), "lost its worker"),
    ],
    ids=["a message", "an action"],
)
def test_going_on_after_the_bound_violates_an_invariant(
    bound: str, fault: Fault, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(SCENARIOS["effect"], 0, [fault]).violations == ()

    monkeypatch.setattr(judge, bound, 0.5)
    [violation] = run(SCENARIOS["effect"], 0, [fault]).violations
    assert name in violation


def test_a_verdict_that_the_archive_has_late_violates_an_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(SCENARIOS["archive"], 2, ()).violations == ()

    monkeypatch.setattr(copier, "_NEWS", {})
    [violation] = run(SCENARIOS["archive"], 2, ()).violations
    assert violation.startswith("execution loop:")
    assert "after it had ended" in violation


def test_a_claim_that_a_failover_loses_is_unknown_and_not_executed_again() -> None:
    outcome = run(SCENARIOS["failover"], 6, _LOST_CLAIM)
    begin = next(line for line in outcome.timeline if "!!! begin" in line)
    result = f"??? result {begin.split()[4]}: unknown"

    assert outcome.violations == ()
    assert [line for line in outcome.timeline if result in line]


def test_a_call_that_a_failover_loses_may_be_ordered_and_executed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failover = Fault("fail over", "begin", 1, 1.0, lost=10**6)
    outcome = run(SCENARIOS["failover"], 26, [failover])
    first, second = [line.split()[4] for line in outcome.timeline if "!!! begin" in line]

    assert outcome.violations == ()
    assert first == second

    monkeypatch.setattr(judge, "LASTING", {"result"})
    assert f"{first} was executed 2 times" in run(SCENARIOS["failover"], 26, [failover]).violations


def test_steps_that_are_not_undone_in_reverse_violate_an_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(SCENARIOS["procedure"], 15, ()).violations == ()

    monkeypatch.setattr(judge, "STEPS", ("fill", "renew", "drain"))
    violation = run(SCENARIOS["procedure"], 15, ()).violations[0]
    assert "['renew', 'drain']" in violation


def test_a_schedule_is_shrunk_to_the_faults_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    guilty = Fault("crash before", "leave_start", 1, 1.0)
    innocent = [Fault("drop", "boyd.decide", 1), Fault("lose answer", "claim_execution", 1)]

    def violations(judge: Judge) -> list[str]:
        return [text for _, _, text in judge.world.timeline if "crash before" in text]

    monkeypatch.setattr(Judge, "violations", violations)
    outcome = run(SCENARIOS["effect"], 1, [innocent[0], guilty, innocent[1]])

    assert shrink(SCENARIOS["effect"], outcome).faults == (guilty,)


#: Commands with arguments to choose from; `k` is a key of the kind that the command takes.
COMMANDS: dict[str, list[str]] = {
    "hash": [
        "HSET k {f} {v}",
        "HSET k {f} {v} {g} {v}",
        "HSETNX k {f} {v}",
        "HGET k {f}",
        "HMGET k {f} {g}",
        "HDEL k {f} {g}",
        "HEXISTS k {f}",
        "HINCRBY k count {n}",
        "HLEN k",
    ],
    "zset": [
        "ZADD k {n} {f}",
        "ZADD k XX {n} {f}",
        "ZADD k {n}.5 {f} {n} {g}",
        "ZREM k {f}",
        "ZSCORE k {f}",
        "ZMSCORE k {f} {g}",
        "ZCARD k",
        "ZCOUNT k -inf ({n}",
        "ZRANGE k 0 -1",
        "ZRANGE k -2 -1",
        "ZRANGE k {n} -inf BYSCORE REV LIMIT 0 2",
        "ZRANGE k {n} -inf BYSCORE REV LIMIT 0 0",
        "ZREVRANGE k 0 1",
        "ZRANGEBYSCORE k ({n} +inf LIMIT 0 2",
        "ZREMRANGEBYSCORE k -inf ({n}",
    ],
    "string": ["SET k {v}", "SET k {v} NX", "SET k {v} PX 100000", "GET k", "TYPE k"],
    "set": ["SADD k {f} {g}", "SREM k {f}", "SCARD k"],
    "stream": [
        "XADD k {i}-1 {f} {v}",
        "XADD k MAXLEN = 3 {i}-2 {f} {v}",
        "XLEN k",
        "XRANGE k - +",
        "XRANGE k ({n} + COUNT 2",
        "XREVRANGE k + {n}",
        "XDEL k {n}-1",
        "XTRIM k MINID {n}",
        "XREAD COUNT 2 STREAMS k {n}-1",
    ],
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_replica_that_lacks_the_last_writes_has_all_that_came_before(kind: str) -> None:
    commands, server = _sequence(kind, seed=8)[:-2], SimulatedRedis()
    server.reset("1", journals=True)
    _execute(server, commands, since=0)
    first = server.fail_over("2", lost=40)
    assert first is not None
    rest = commands[int(first) :]
    again = _execute(server, rest, since=int(first))

    server.reset("3")
    assert len(rest) > 40
    assert _execute(server, commands, since=0)[int(first) :] == again


def _execute(server: SimulatedRedis, commands: Sequence[list[str]], since: int) -> list[Any]:
    """The replies to commands, each of which comes a second after the last."""
    simulated, replies = SimulatedClient.of(server, lambda _, execute: execute()), []
    for number, command in enumerate(commands, since):
        server.set_time(1_800_000_000_000_000 + number * 1_000_000, number)
        replies.append(_reply(simulated, command))
    return replies


def _sequence(kind: str, seed: int, length: int = 200) -> list[list[str]]:
    dice = Random(seed)
    commands = []
    for i in range(1, length):
        texts = {"f": dice.choice("abc"), "g": dice.choice("cde"), "v": dice.choice(["1", "zwölf"])}
        text = dice.choice([*COMMANDS[kind], "EXISTS k", "PERSIST k"]).format(
            **texts, n=dice.randint(1, 9), i=i
        )
        commands.append(["sim" + word if word == "k" else word for word in text.split()])
    return [*commands, ["HGET", "simk", "a"], ["ZADD", "simk", "1", "a"], ["DEL", "simk"]]


@pytest.mark.parametrize("kind", COMMANDS)
def test_the_simulated_redis_answers_as_a_real_one(kind: str, store: Store) -> None:
    server = SimulatedRedis()
    server.set_time(1_800_000_000_000_000, 0)
    simulated = SimulatedClient.of(server, lambda _, execute: execute())
    replies = [
        (command, _reply(store.client, command), _reply(simulated, command))
        for command in _sequence(kind, seed=7)
    ]

    assert [entry for entry in replies if entry[1] != entry[2]] == []


def _reply(client: Client, command: list[str]) -> Any:
    try:
        return client.execute_command(*command)
    except redis.ResponseError as error:
        return type(error).__name__
