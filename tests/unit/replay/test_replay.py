"""A replay reports every change of what an agent decides, and nothing else; it never guesses."""

from __future__ import annotations

import json
import os
import platform
import random
import resource
import secrets
import shutil
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, Field, field_validator

from boyd import (
    Agent,
    Context,
    Decision,
    LoopResult,
    Observation,
    Plugin,
    Situation,
    Veto,
    hook,
    observer,
)
from boyd.agent import agent_from_file
from boyd.errors import ConfigError
from boyd.models import Anomaly, Autonomy, Budget, Triple, utc_now
from boyd.models.base import Model
from boyd.models.tape import ReplayedIteration
from boyd.phases.phase_tape import MAX_VALUE
from boyd.plugin import Orienter, Strategy
from boyd.replay import recordings
from boyd.replay.differences import judge, report
from boyd.replay.recordings import FileOfRecords, ObservationFile
from boyd.replay.shadow import Shadow
from boyd.settings.validation import MAX_LINE
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, fails, plugin, reads, seen, sees
from replay_kit import (
    AGENT,
    PLUGIN,
    REORDERED,
    STRATEGIES,
    differing,
    record,
    replay_with,
    write_agent,
    write_records,
)

ITERATIONS = 30

#: Changes of the plugin or the agent file that change what is decided, and what is reported.
MUTANTS: dict[str, tuple[str, str, str]] = {
    "a threshold": ("LIMIT = 60", "LIMIT = 90", "flipped"),
    "a comparison": ("load > LIMIT", "load < LIMIT", "flipped"),
    "a limit of errors": ('["errors"] > 4', '["errors"] > 5', "flipped"),
    "an inclusive limit": ('["errors"] > 4', '["errors"] >= 4', "flipped"),
    "the priority": ('["errors"] >= 5', '["errors"] >= 7', "newly automatic"),
    "a lower confidence": ("0.9 if known", "0.5 if known", "newly asked"),
    "a higher confidence": ("else 0.5", "else 0.7", "newly automatic"),
    "the least confidence": ("min_confidence=0.6", "min_confidence=0.95", "newly asked"),
    "an autonomy that is wider": ('autonomy="approval-required"', "", "newly automatic"),
    "an autonomy for people": ('"approval-required"', '"human-only"', "other approval"),
    "a veto of less": ('["load"] > 80', '["load"] > 98', "newly asked"),
    "a veto of more": ('["load"] > 80', '["load"] > 5', "newly refused"),
    "no veto": ('raise Veto("too busy to restart")', "return None", "newly asked"),
    "no approval": ('{"requires_approval": True}', "{}", "newly automatic"),
    "a parameter": ('{"by": streak}', '{"by": streak + 1}', "flipped"),
    "a target": ('{"host": known["host"]}', '{"host": "h9"}', "newly automatic"),
    "a default of the state": ('"protected", "h0"', '"protected", "h2"', "newly refused"),
    "what the state counts": ("streak + 1 if busy", "streak + 2 if busy", "flipped"),
    "a condition that never holds": ("in (1, 2)", "in (9,)", "flipped"),
    "parameters that do not fit": ("max_length=10", "max_length=1", "newly refused"),
    "an option": ("patience = 2", "patience = 3", "flipped"),
    "the policy": ("min_approvals = 2", "min_approvals = 1", "other approval"),
    "whom the policy asks": ("min_approvals = 2", 'groups = ["ops"]', "other approval"),
    "a larger budget": ("limit = 3", "limit = 50", "newly automatic"),
    "a smaller budget": ("limit = 3", "limit = 1", "newly asked"),
    "a hook before the action": ('raise Veto("protected")', "pass", "newly automatic"),
    "the order of strategies": (STRATEGIES, REORDERED, "flipped"),
}

LOOK = PLUGIN.partition("ctx: Context) -> list[Observation]:")[2].partition("return")[0]
#: Changes that change nothing.
REFACTORINGS: dict[str, tuple[str, str]] = {
    "a local name": ("streak = streak + 1 if busy", "run = streak; streak = run + 1 if busy"),
    "another call": ("at = ctx.now()", "at = (lambda: ctx.now())()"),
    "a line of the log": ("at = ctx.now()", 'at = ctx.now(); ctx.logger.warning("x")'),
    "a printed line": ("at = ctx.now()", 'at = ctx.now(); print("x")'),
    "a docstring": ('"""Keeps a shop in order."""', '"""Watches a shop, and keeps it tidy."""'),
    "a comment": ("LIMIT = 60", "LIMIT = 60  # percent"),
    "a constant by another way": ("LIMIT = 60", "LIMIT = 6 * 10"),
    "an equal comparison": ("load > LIMIT", "not load <= LIMIT"),
    "an equal condition": ("in (1, 2)", "in {2, 1}"),
    "bounds": ('["errors"] > 4', '["errors"] >= 5'),
    "an equal expression": (
        'return known["busy"] and known["streak"] >= self.options.patience',
        'return all([known["busy"], known["streak"] >= self.options.patience])',
    ),
    "a loop": (
        'next(one for one in observations if one.source == "shop")',
        '[one for one in observations if one.source == "shop"][0]',
    ),
    "another order of data": (
        '{"busy": busy, "streak": streak, **seen.data}',
        '{**seen.data, "streak": streak, "busy": busy}',
    ),
    "another order of statements": (
        "at = ctx.now()\n        return Sit",
        "at, _ = ctx.now(), ctx.agent\n        return Sit",
    ),
    "another rationale": ('rationale="busy"', 'rationale="there is much to do"'),
    "a text by another way": ("f\"{known['errors']} errors\"", 'str(known["errors"]) + "!"'),
    "a local name of an observer": (
        LOOK,
        LOOK.replace("number", "count"),
    ),
    "what the action does": ('return "restarted"', 'return "begun again"'),
    "a time limit": ("min_confidence=0.6, target", "min_confidence=0.6, timeout=5, target"),
    "a title": ('name="scale", autonomy', 'name="scale", title="Scale out", autonomy'),
    "a library inside a function": ("at = ctx.now()", "import colorsys; at = ctx.now()"),
    "one more action": (
        "    @action()\n",
        "    @action()\n    def idle(self): ...\n\n    @action()\n",
    ),
    "spaces in the agent file": ("[budgets]", "\n\n[budgets]"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[LoopResult]:
    """The recorded iterations of the agent."""
    return record(agent_from_file(write_agent(tmp_path_factory.mktemp("shop"))), ITERATIONS)


def write_changed(folder: Path, old: str, new: str) -> Path:
    """The agent, with one text replaced in the plugin or in the agent file."""
    if old in AGENT:
        return write_agent(folder, agent=AGENT.replace(old, new))
    assert old in PLUGIN
    return write_agent(folder, plugin=PLUGIN.replace(old, new))


def test_the_recorded_iterations_are_of_every_kind(records: list[LoopResult]) -> None:
    assert {item.gate.outcome for item in records if item.gate} == {"automatic", "asked", "refused"}
    assert any(item.trace and item.trace.vetoed for item in records)
    assert any(item.gate and "budget" in item.gate.reason for item in records)


def test_an_unchanged_agent_decides_as_recorded(tmp_path: Path, records: list[LoopResult]) -> None:
    judgement = replay_with(write_agent(tmp_path), records)

    assert [item for item in judgement if item.differences] == []
    assert len(judgement) == ITERATIONS


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_changed_decision_is_reported(
    name: str, tmp_path: Path, records: list[LoopResult]
) -> None:
    old, new, kind = MUTANTS[name]

    assert kind in differing(replay_with(write_changed(tmp_path, old, new), records))


@pytest.mark.long
@pytest.mark.parametrize("name", REFACTORINGS)
def test_a_refactoring_raises_no_alarm(
    name: str, tmp_path: Path, records: list[LoopResult]
) -> None:
    old, new = REFACTORINGS[name]

    assert differing(replay_with(write_changed(tmp_path, old, new), records)) == set()


# What was not recorded


def lab_with(strategy: Callable[..., Any], **hooks: Any) -> Agent:
    """An agent whose strategy is that function of the context."""
    part = Strategy(name="chooses", decide=strategy)
    own_plugin = plugin(sees("o", seen()), reads("r", "x"), part, Recorder().action(), **hooks)
    return Agent("test", plugins=[own_plugin])


def only(then: Agent, now: Agent) -> ReplayedIteration:
    """Replay the only iteration of one agent with another."""
    return judge(Shadow(now), LoopResult.from_json(Lab(then).run().to_json()))


def quiet(ctx: Context) -> Decision:
    """A strategy that reads nothing."""
    return choice()


def swaps(ctx: Context) -> Decision:
    ctx.state.compare_and_set("a", None, 1)
    return choice(params={"a": ctx.state.get("a")})


def counts(ctx: Context) -> Decision:
    times = [ctx.state.update("n", lambda n: (n or 0) + 1) for _ in range(2)]
    return choice(params={"times": times, "many": ctx.state.get_many(["n", "m"])})


def looks_up(ctx: Context) -> Decision:
    graph = ctx.graph()
    graph.add([Triple(subject="a", predicate="b", object="c")])
    return choice(
        params={"out": [triple.object for triple in graph.out("a")], "size": graph.size()}
    )


def waits(ctx: Context) -> Decision:
    return choice(params={"waiting": sorted(ctx.approvals.waiting(["x"])), "at": f"{ctx.now()}"})


def deletes(ctx: Context) -> Decision:
    ctx.state.set("gone", 1)
    ctx.state.delete("gone")
    return choice(params={"gone": ctx.state.get("gone", "absent")})


def where(ctx: Context) -> Decision:
    return choice(params={"worker": ctx.worker, "due": sorted(ctx.not_due)})


@pytest.mark.parametrize("strategy", [swaps, counts, looks_up, waits, deletes, where])
def test_a_replayed_strategy_reads_the_recorded_values(strategy: Callable[..., Any]) -> None:
    judgement = only(lab_with(strategy), lab_with(strategy))

    assert (judgement.differences, judgement.why) == ([], None)
    assert judgement.after == judgement.before


def http(ctx: Context) -> Decision:
    assert ctx.http
    return choice()


def dice(ctx: Context) -> Decision:
    return choice(params={"n": random.randrange(2)})


def swallows(ctx: Context) -> Decision:
    try:
        ctx.state.get("other")
    except Exception:  # noqa: BLE001 - what plugins do
        return choice()
    return choice()


def all_facts(ctx: Context) -> Decision:
    return choice(params={"facts": len(list(ctx.graph().all()))})


@pytest.mark.parametrize(
    ("then", "now", "reason"),
    [
        (quiet, swallows, "p:chooses reads state other, which it did not read then"),
        (quiet, waits, 'p:chooses reads approvals waiting [["x"]], which it did not read then'),
        (http, http, "p:chooses uses HTTP, whose answers are not recorded"),
        (dice, dice, "p:chooses uses random numbers, of which nothing was recorded"),
        (all_facts, all_facts, "p:chooses reads all of graph facts"),
    ],
)
def test_a_decision_on_unrecorded_input_cannot_be_judged(
    then: Callable[..., Any], now: Callable[..., Any], reason: str
) -> None:
    judgement = only(lab_with(then), lab_with(now))

    assert judgement.differences == ["cannot tell"]
    assert judgement.after is None
    assert judgement.why is not None
    assert judgement.why.startswith(reason)


def twofold(limit: int, state: tuple[str, ...] = ()) -> Agent:
    """An agent that counts, and decides by the count from *limit* iterations on."""

    def decide(ctx: Context) -> Decision:
        return choice(params={"n": ctx.state.get("n", 0), "m": ctx.state.get("m", 0)})

    class Counting(Plugin):
        id = "p"
        components = (
            sees("o", seen()),
            Strategy(
                name="s",
                decide=decide,
                applicable_when=lambda ctx: (ctx.iteration or 0) >= limit,
                state=state,
            ),
            Recorder().action(),
        )

        def on_loop_start(self, ctx: Context) -> None:
            ctx.state.update("n", lambda n: (n or 0) + 1)

    return Agent("test", plugins=[Counting()])


def test_a_strategy_that_was_not_chosen_reads_the_state_that_it_declares() -> None:
    lab = Lab(twofold(9, state=("n", "m")))
    records = [LoopResult.from_json(lab.run().to_json()) for _ in range(3)]
    judgements = [judge(Shadow(twofold(0)), record) for record in records]

    assert [item.differences for item in judgements] == [["flipped", "newly automatic"]] * 3
    assert [item.after and item.after.params for item in judgements] == [
        {"n": number, "m": 0} for number in (1, 2, 3)
    ]
    assert differing([judge(Shadow(twofold(9)), record) for record in records]) == set()


def test_the_state_that_a_strategy_has_read_once_is_recorded_from_then_on() -> None:
    def sometimes(ctx: Context) -> Decision:
        return choice(params={"n": ctx.state.get("n", 0)})

    def odd(ctx: Context) -> bool:
        return (ctx.iteration or 0) % 2 == 1

    def agent_with(**settings: Any) -> Agent:
        strategy = Strategy(name="s", decide=sometimes, **settings)
        return agent(sees("o", seen()), strategy, Recorder().action())

    lab = Lab(agent_with(applicable_when=odd))
    first, idle = (LoopResult.from_json(lab.run().to_json()) for _ in range(2))

    assert [reads.by for reads in first.reads if reads.phase == "decide"] == ["p:s"]
    assert [reads.by for reads in idle.reads if reads.phase == "decide"] == ["p"]
    assert judge(Shadow(agent_with()), idle).differences == ["flipped", "newly automatic"]


def test_recording_the_state_takes_as_many_commands_for_many_strategies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def commands(strategies: int) -> Counter[str]:
        idle = [
            Strategy(name=f"s{n}", decide=quiet, applicable_when=lambda: False, state=(f"k{n}",))
            for n in range(strategies)
        ]
        lab = Lab(agent(sees("o", seen()), *idle, Recorder().action()))
        lab.run()
        sent: Counter[str] = Counter()
        execute = lab.client.execute_command

        def count(*args: Any, **options: Any) -> Any:
            sent[str(args[0])] += 1
            return execute(*args, **options)

        monkeypatch.setattr(lab.client, "execute_command", count)
        lab.run()
        return sent

    assert commands(1) == commands(15)
    assert sum(commands(1).values()) <= sum(commands(0).values()) + 1


class Stamp(BaseModel):
    """A model whose default is the present time."""

    at: datetime = Field(default_factory=utc_now)


class Ticket(BaseModel):
    """A model whose default is random."""

    number: uuid.UUID = Field(default_factory=uuid.uuid4)


#: Reads of the world by a strategy, and how they are named.
WORLD: dict[str, tuple[Callable[[], object], str]] = {
    "time": (lambda: time.time(), "time.time"),
    "monotonic": (lambda: time.monotonic(), "time.monotonic"),
    "local time": (lambda: time.localtime(), "time.localtime"),
    "formatted time": (lambda: time.strftime("%H"), "time.strftime"),
    "now": (lambda: datetime.now(UTC), "datetime.now"),
    "today": (lambda: date.today(), "date.today"),
    "a default": (lambda: Stamp(), "datetime.now"),
    "a default that is random": (lambda: Ticket(), "os.urandom"),
    "the host": (lambda: socket.gethostname(), "socket.gethostname"),
    "the host again": (lambda: (platform.node(), platform.node()), "platform.uname"),
    "memory": (lambda: resource.getrusage(resource.RUSAGE_SELF), "resource.getrusage"),
    "the user": (lambda: os.getuid(), "os.getuid"),
    "the library's clock": (lambda: utc_now(), "datetime.now"),
    "a generator": (lambda: random.Random().random(), "random numbers"),
    "chance": (lambda: random.choice([1, 2]), "random numbers"),
    "bytes": (lambda: os.urandom(4), "os.urandom"),
    "a uuid": (lambda: uuid.uuid4(), "os.urandom"),
    "a secret": (lambda: secrets.token_hex(4), "os.urandom"),
    "a file": (lambda: Path("maintenance").exists(), "os.stat"),
    "a modification": (lambda: Path("/").stat().st_mtime, "os.stat"),
    "a disk": (lambda: shutil.disk_usage("/"), "os.statvfs"),
    "the load": (lambda: os.getloadavg(), "os.getloadavg"),
    "a variable": (lambda: os.environ.get("HOME"), "the environment"),
    "another variable": (lambda: os.getenv("HOME"), "the environment"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WORLD)
def test_an_iteration_in_which_a_strategy_reads_the_world_cannot_be_judged(name: str) -> None:
    read, text = WORLD[name]

    def curious(ctx: Context) -> Decision:
        read()
        return choice()

    judgement = only(lab_with(curious), lab_with(curious))

    assert judgement.differences == ["cannot tell"]
    assert judgement.why == f"p:chooses uses {text}, of which nothing was recorded"
    # The situation does not depend on what a strategy reads.
    assert judgement.anomalies == []


REPEATABLE: list[Callable[[], object]] = [
    lambda: random.Random(7).random(),
    lambda: time.gmtime(0).tm_year,
    lambda: time.strftime("%H", (2026, 1, 1, 0, 0, 0, 0, 1, 0)),
    lambda: datetime.fromtimestamp(0, UTC).year,
    lambda: f"{ZoneInfo('Europe/Vienna')}",
    lambda: uuid.uuid5(uuid.NAMESPACE_URL, "x").hex,
]


@pytest.mark.parametrize("compute", REPEATABLE)
def test_a_value_that_depends_on_arguments_alone_is_replayed(
    compute: Callable[[], object],
) -> None:
    def computes(ctx: Context) -> Decision:
        return choice(params={"value": compute()})

    assert only(lab_with(computes), lab_with(computes)).differences == []


def test_an_agent_that_was_replayed_reads_the_world_again_when_it_runs() -> None:
    clock = lab_with(lambda ctx: choice(params={"now": time.time() > 0}))
    Shadow(clock)
    result = Lab(clock).run()

    assert result.decision is not None
    assert result.decision.params == {"now": True}


def test_an_unrecorded_clock_shows_the_time_of_the_phase() -> None:
    record = Lab(lab_with(quiet)).run()
    judgement = judge(
        Shadow(lab_with(lambda ctx: choice(params={"at": ctx.now().isoformat()}))), record
    )
    (ran,) = [phase_run for phase_run in record.phase_runs if phase_run.phase == "decide"]

    assert judgement.after is not None
    at = record.started_at + timedelta(milliseconds=ran.offset)
    assert judgement.after.params == {"at": at.isoformat()}


def test_a_value_that_was_too_large_or_secret_is_not_guessed() -> None:
    def large(ctx: Context) -> Decision:
        return choice(params={"size": len(ctx.state.get("big", ""))})

    then = lab_with(large)
    lab = Lab(then)
    lab.store.state("p").set("big", "x" * (MAX_VALUE + 1))
    judgement = judge(Shadow(lab_with(large)), lab.run())

    assert judgement.why == "p:chooses reads state big, which was too large to be recorded"


def test_state_that_others_changed_meanwhile_is_not_guessed() -> None:
    def twice(ctx: Context) -> Decision:
        first = ctx.state.get("n")
        if ctx.worker:
            lab.store.state("p").set("n", 7)
        return choice(params={"n": [first, ctx.state.get("n")]})

    lab = Lab(lab_with(twice))
    judgement = judge(Shadow(lab_with(lambda ctx: choice(params={"n": [ctx.state.get("n")] * 2}))),
                  lab.run())  # fmt: skip
    again = judge(Shadow(lab_with(_reads_twice)), lab.store.history.get(1) or lab.run())

    assert judgement.differences == ["flipped", "other params"]
    assert again.why == "p:chooses reads state n again, which changed meanwhile"


def _reads_twice(ctx: Context) -> Decision:
    return choice(params={"n": [ctx.state.get("n"), ctx.state.get("n")]})


def test_a_state_value_that_the_agent_alone_writes_is_followed() -> None:
    def agent_that_writes(value: int) -> Agent:
        def on_orient(ctx: Context) -> None:
            ctx.state.set("n", value)

        return lab_with(lambda ctx: choice(params={"n": ctx.state.get("n")}), on_orient=on_orient)

    record = Lab(agent_that_writes(1)).run()

    assert judge(Shadow(agent_that_writes(1)), record).differences == []
    judgement = judge(Shadow(agent_that_writes(2)), record)
    assert (judgement.after and judgement.after.params) == {"n": 2}
    untold = record.patched({"reads": [reads.patched({"writes": {}}) for reads in record.reads]})
    judgement = judge(Shadow(agent_that_writes(2)), untold)
    assert judgement.why == "p:chooses reads state n, which held something else then"


OTHER_OBSERVERS = (
    "the observers of shop have other code or options now, and what they would have observed was "
    "not recorded"
)


def test_iterations_of_a_changed_observer_cannot_be_judged(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    old, new = '"load": number * 13 % 101', '"load": number'
    judgements = replay_with(write_changed(tmp_path, old, new), records)

    assert {(*item.differences, item.why) for item in judgements} == {
        ("cannot tell", OTHER_OBSERVERS)
    }
    assert {item.anomalies is None for item in judgements} == {True}


class Threshold(Plugin):
    """Observes with an option, and decides with another one."""

    id = "p"

    class Options(Plugin.Options):
        warning: int = 90
        streak: int = 1

    options: Options

    @observer()
    def look(self) -> list[Observation]:
        return [seen()] if self._is_high(50) else []

    def _is_high(self, value: int) -> bool:
        return value >= self.options.warning

    def observer_options(self) -> str:
        return str(self.options.warning)


@pytest.mark.parametrize(
    ("options", "differences"),
    [({}, []), ({"streak": 2}, []), ({"warning": 40}, ["cannot tell"])],
)
def test_iterations_under_other_options_of_an_observer_cannot_be_judged(
    options: dict[str, int], differences: list[str]
) -> None:
    before, after = (Agent("test", plugins=[Threshold(**values)]) for values in ({}, options))

    assert only(before, after).differences == differences


def test_a_record_of_an_earlier_release_cannot_be_judged() -> None:
    old = Lab(lab_with(quiet)).run().patched({"builds": [], "reads": [], "phase_runs": []})
    judgement = judge(Shadow(lab_with(quiet)), old)

    assert judgement.why == "an earlier release recorded it, without what plugins read"
    assert judgement.anomalies is None


def test_a_replay_reports_the_anomalies_that_it_finds() -> None:
    broken = Anomaly(type="p-down", description="it is down", severity="high")
    finds, no_strategy = agent(reads("finds", anomalies=[broken])), agent(reads("well"))

    judgement = only(no_strategy, finds)

    assert judgement.anomalies == [broken]


def test_a_component_that_timed_out_in_the_recording_cannot_be_judged() -> None:
    def slow() -> Decision:
        time.sleep(1)
        return choice()

    then = agent(sees("o", seen()), Strategy(name="s", decide=slow, timeout=0.05), chooses(None))
    judgement = judge(Shadow(then), Lab(then).run())

    assert judgement.why == "p:s took longer than 0.05 s then"


# The gate


def acting(confidence: float = 0.9, budget: Budget | None = None, **settings: Any) -> Agent:
    """An agent that decides on an action with those settings."""
    parts = [sees("o", seen()), chooses(choice(confidence=confidence))]
    return agent(*parts, Recorder().action(budget=budget, **settings))


def test_a_freeze_then_is_not_part_of_the_gate() -> None:
    lab = Lab(acting())
    lab.whole.freezes.freeze("incident")
    frozen = lab.run()

    assert frozen.action_results[0].prevented == "frozen"
    assert judge(Shadow(acting()), frozen).differences == []


def test_an_action_that_no_worker_serves_is_not_another_decision() -> None:
    record = Lab(acting(queue="nowhere")).run()

    assert record.action_results[0].prevented == "unserved"
    assert judge(Shadow(acting(queue="nowhere")), record).differences == []


def test_the_budget_counts_as_it_was_used_then() -> None:
    lab = Lab(acting(budget=Budget(limit=2, window=60)))
    records = [lab.run() for _ in range(3)]

    def differences_of(budget: Budget | None) -> list[list[str]]:
        shadow = Shadow(acting(budget=budget))
        return [list(judge(shadow, recorded).differences) for recorded in records]

    assert differences_of(Budget(limit=2, window=60)) == [[], [], []]
    assert differences_of(Budget(limit=1, window=60)) == [[], ["newly asked"], []]
    assert differences_of(Budget(limit=3, window=60)) == [[], [], ["newly automatic"]]
    assert differences_of(None) == [[], [], ["newly automatic"]]
    # Of another window only bounds are known.
    assert differences_of(Budget(limit=2, window=30)) == [[], [], ["newly automatic"]]
    assert differences_of(Budget(limit=1, window=30)) == [[], ["cannot tell"], ["newly automatic"]]


def test_a_budget_whose_use_was_not_recorded_cannot_be_judged() -> None:
    judgement = only(acting(), acting(budget=Budget(limit=1, window=60)))

    assert judgement.differences == ["cannot tell"]
    assert judgement.why == "the use of the budget of p:do was not recorded"


def test_a_newly_automatic_action_is_reported_although_a_hook_may_veto_it() -> None:
    def cautious(mode: str) -> Agent:
        def on_before_act(ctx: Context) -> None:
            if ctx.state.get("stop"):
                raise Veto("stop")

        parts = [sees("o", seen()), chooses(choice()),
                 Recorder().action(autonomy=Autonomy(mode=mode))]  # type: ignore[arg-type]  # fmt: skip
        return Agent("test", plugins=[plugin(*parts, on_before_act=on_before_act)])

    judgement = only(cautious("approval-required"), cautious("auto"))

    assert judgement.differences == ["newly automatic"]
    assert judgement.after is not None
    assert "p.on_before_act reads state stop" in judgement.after.reason
    assert only(cautious("auto"), cautious("auto")).differences == []


def test_an_action_that_was_held_then_is_held_now() -> None:
    def agent_with_verify(action: str = "p:do") -> Agent:
        acts = [
            Recorder().action(name, verify=lambda result: "cannot tell") for name in ("do", "other")
        ]
        return agent(sees("o", seen()), chooses(choice(action)), *acts)

    lab = Lab(agent_with_verify())
    records = [LoopResult.from_json(lab.run().to_json()) for _ in range(2)]

    def differences_at(now: Agent) -> list[list[str]]:
        return [list(judge(Shadow(now), recorded).differences) for recorded in records]

    assert [recorded.decision and recorded.decision.action for recorded in records] == [
        "p:do",
        "no-op",
    ]
    assert differences_at(agent_with_verify()) == [[], []]
    # Nobody asked then whether the other action was held.
    assert differences_at(agent_with_verify("p:other")) == [["flipped", "newly automatic"]] * 2


def test_a_failed_guard_blocks_now_as_it_did_then() -> None:
    def guarding_agent() -> Agent:
        class Guarded(Plugin):
            id = "g"

            @hook(fail_closed=True)
            def on_loop_start(self) -> None:
                raise RuntimeError("no token")

        own_plugin = plugin(sees("o", seen()), chooses(choice()), Recorder().action())
        return Agent("test", plugins=[own_plugin, Guarded()])

    judgement = only(guarding_agent(), guarding_agent())

    assert judgement.differences == []
    assert judgement.before is not None
    assert judgement.before.fate == "refused"


def test_a_failed_observer_is_taken_as_recorded() -> None:
    failing_agent = agent(fails(), sees("o", seen()), chooses(choice()), Recorder().action())

    assert only(failing_agent, failing_agent).differences == []


class Sound(Model):
    """Params that name a host."""

    host: str


class Ending(Sound):
    """Params whose check ends the process."""

    @field_validator("host")
    @classmethod
    def _end(cls, host: str) -> str:
        raise SystemExit(3)


def test_params_whose_check_ends_the_process_do_not_end_the_replay() -> None:
    def agent_for(params: type[Model]) -> Agent:
        decides = chooses(choice(params={"host": "h"}))
        return agent(sees("o", seen()), decides, Recorder().action(params=params))

    judgement = only(agent_for(Sound), agent_for(Ending))

    assert judgement.differences == ["newly refused"]
    assert judgement.after is not None
    assert judgement.after.reason == "Params could not be checked: SystemExit: 3"


# Errors, missing actions, params, and less


def raise_key_error(situation: Situation) -> Decision:
    raise KeyError("host")


def test_an_exception_of_the_changed_plugin_is_an_error() -> None:
    judgement = only(lab_with(quiet), lab_with(raise_key_error))

    assert judgement.differences == ["flipped", "acts less", "error"]
    assert judgement.why == "p:chooses failed: KeyError: 'host'"


def test_an_exception_that_changes_no_decision_is_an_error_too() -> None:
    def breaks(observations: Any) -> Any:
        raise KeyError("load")

    def agent_with(*more: Orienter) -> Agent:
        return agent(sees("o", seen()), *more, chooses(choice()), Recorder().action())

    sound, broken = agent_with(reads("r", "x")), agent_with(Orienter(name="r", orient=breaks))

    assert only(sound, broken).differences == ["error"]
    assert only(broken, broken).differences == []
    assert only(broken, sound).differences == []


def test_an_action_that_was_renamed_is_missing() -> None:
    def agent_with(name: str) -> Agent:
        return agent(sees("o", seen()), chooses(choice("p:do")), Recorder().action(name))

    same, renamed = agent_with("do"), agent_with("other")

    assert only(same, renamed).differences == ["newly refused", "missing action"]
    assert only(renamed, renamed).differences == []


def test_other_params_on_the_same_target_differ_from_another_target() -> None:
    def agent_for(host: str, by: int) -> Agent:
        decides = chooses(choice(params={"host": host, "by": by}))
        return agent(sees("o", seen()), decides, Recorder().action(target="host"))

    assert only(agent_for("a", 1), agent_for("a", 2)).differences == ["flipped", "other params"]
    assert only(agent_for("a", 1), agent_for("b", 1)).differences == ["flipped", "newly automatic"]


def test_an_agent_that_does_nothing_instead_acts_less() -> None:
    active, idle = acting(), agent(sees("o", seen()), Recorder().action())

    assert only(active, idle).differences == ["flipped", "acts less"]
    assert only(idle, active).differences == ["flipped", "newly automatic"]


# The report, and other sources


def test_the_report_counts_by_action_and_says_how_each_one_ended(tmp_path: Path) -> None:
    records = [Lab(acting(autonomy=Autonomy(mode="approval-required"))).run(), Lab(acting()).run()]
    judgements = [judge(Shadow(acting(confidence=0.8)), recorded) for recorded in records]
    counted = report("test", "b", judgements, ["landlock"])

    assert (counted.iterations, counted.unchanged) == (2, 1)
    assert [(row.action, row.counts) for row in counted.actions] == [
        ("p:do", {"newly automatic": 1})
    ]
    assert counted.findings[0].ended.startswith("approval ")


def test_records_are_read_from_lines_from_one_document_or_from_a_list(tmp_path: Path) -> None:
    record = Lab(acting()).run()
    wire = record.to_wire()
    lines = write_records(tmp_path / "lines", [record, record])
    (tmp_path / "one").write_text(json.dumps(wire, indent=2))
    (tmp_path / "list").write_text(json.dumps([wire, wire], indent=2))

    def count(path: Path, first: int = 1) -> int:
        return FileOfRecords(path, lambda number: number >= first).count

    assert [count(lines), count(tmp_path / "one"), count(tmp_path / "list")] == [2, 1, 2]
    assert count(lines, first=2) == 0


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '{"a": 1}'])
def test_a_file_without_records_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    if not text:
        assert FileOfRecords(tmp_path / "file", lambda _number: True).count == 0
        return
    with pytest.raises(ConfigError, match="file: "):
        FileOfRecords(tmp_path / "file", lambda _number: True)


AT = "2026-11-01T12:00:00Z"
CSV = f"""iteration,timestamp,source,severity,host,load
1,{AT},a,warning,h1,70
1,{AT},b,,h2,0.5
2,{AT},a,critical,h1,90
"""


def observe_file(path: Path) -> list[LoopResult]:
    file = ObservationFile(path, "test")
    return [LoopResult.from_json(text) for portion in file.portions() for text in portion]


def test_observations_in_csv_with_one_number_are_one_iteration(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text(CSV)
    first, second = observe_file(tmp_path / "o.csv")

    assert [observation.data for observation in first.observations] == [
        {"host": "h1", "load": 70},
        {"host": "h2", "load": 0.5},
    ]
    assert [observation.severity for observation in first.observations] == ["warning", None]
    assert second.ended_at - first.ended_at == timedelta()


def test_observations_recorded_elsewhere_show_what_would_be_done(tmp_path: Path) -> None:
    lines = [{"timestamp": AT, "source": "a", "data": {"load": load}} for load in (10, 90)]
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def decide(situation: Any, ctx: Context) -> Decision:
        return choice(params={"at": ctx.now().isoformat()})

    def orient(observations: Any) -> Any:
        return {"source": "p:r", "findings": [], "data": observations[0].data}

    def is_loaded(situation: Situation) -> bool:
        load = situation.evidence("p:r")["load"]
        return isinstance(load, int) and load > 50

    strategy = Strategy(name="s", decide=decide, applicable_when=is_loaded)
    shadow = Shadow(agent(Orienter(name="r", orient=orient), strategy, Recorder().action()))
    judgement = [
        judge(shadow, result, is_recorded=False) for result in observe_file(tmp_path / "o.jsonl")
    ]

    assert [iteration.differences for iteration in judgement] == [
        [],
        ["flipped", "newly automatic"],
    ]
    assert judgement[1].after is not None
    assert judgement[1].after.params == {"at": "2026-11-01T12:00:00+00:00"}


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("o.csv", "timestamp,source\n,a\n", "line 2: it has no timestamp"),
        ("o.csv", f"timestamp,source\n{AT},a,b\n", "line 2: it has more or fewer cells"),
        ("o.csv", f"timestamp,load\n{AT},1\n", "line 2: source: "),
        ("o.jsonl", "{}\n[]", "line 2: not an observation"),
        ("o.jsonl", "x", "line 1: not JSON"),
        ("o.jsonl", f"{{}}\n{' ' * MAX_LINE}{{}}", "line 2: more than 1048576 characters"),
        ("o.csv", "timestamp,source," * 70_000, "line 1: more than 1048576 characters"),
        ("o.jsonl", "{}\n\0{}", "line 2: it has zero bytes"),
        ("o.jsonl", json.dumps({"timestamp": "noon", "source": "a"}), "line 1: timestamp: "),
        (
            "o.jsonl",
            json.dumps({"timestamp": AT, "source": "a", "data": 1}),
            "data is not an object",
        ),
    ],
)
def test_a_line_that_is_no_observation_is_named(
    name: str, text: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(ConfigError, match=complaint):
        ObservationFile(tmp_path / name, "test")


def test_a_line_of_records_without_end_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "MAX_RECORD", 100)
    file = tmp_path / "records.jsonl"
    file.write_text('{"iteration": 1}\n[' + '{"iteration": 2}, ' * 100)

    with pytest.raises(ConfigError, match=r"records.jsonl: line 2: more than 100 characters"):
        FileOfRecords(file, lambda _number: True)


@pytest.mark.parametrize(
    "text", ['{"iteration": 1}\r\n\r\n{"iteration": 2}', '[{"iteration": 1},\n\n{"iteration": 2}]']
)
def test_records_are_read_one_a_line_or_as_a_list(text: str, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_text(text, newline="")

    assert FileOfRecords(file, lambda _number: True).count == 2
