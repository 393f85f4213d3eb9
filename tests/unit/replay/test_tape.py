"""The record of an iteration has everything its decision depended on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

import kit
from boyd import Agent, Context, LoopResult, Plugin, Veto, naming
from boyd.agent import agent_from_file
from boyd.llm.model_errors import ModelError
from boyd.models import Actor, AgentBuild, Autonomy, Budget, Fence, Read, Triple, digest_of
from boyd.phases.phase_tape import MAX_CLOCK_READS, MAX_PHASE, MAX_READS
from boyd.plugin import Action, ApprovalReader, Llm, Observer, Orienter, Strategy
from boyd.plugins.example import Example
from boyd.runtime.ending import Abandoner
from boyd.store.keys import Keys
from boyd.testing import Lab
from boyd.text.version import VERSION
from kit import (
    Recorder,
    agent,
    choice,
    chooses,
    execution_request,
    overdue,
    plugin,
    reads,
    seen,
    sees,
)

KEYS = Keys("test")


def first(lab: Lab) -> LoopResult:
    """The record of iteration 1, as clients read it."""
    result = lab.store.history.get(1)
    assert result is not None
    return LoopResult.from_json(result.to_json())


def acting(*more: Any) -> Lab:
    """A lab with an agent that executes an action in each iteration."""
    parts = [sees("o", seen()), reads("r", "x"), chooses(choice()), Recorder().action()]
    return Lab(agent(*parts, *more))


# Who ran what, and when


def test_every_phase_has_its_worker_its_start_and_its_duration() -> None:
    runs = acting().run().phase_runs

    assert [run.phase for run in runs] == [
        *("start", "observe", "orient", "decide", "act", "complete"),
    ]
    assert {(run.worker, run.attempt, run.lost) for run in runs if run.phase != "observe"} == {
        ("lab", 1, False)
    }
    offsets = [run.offset for run in runs]
    assert offsets == sorted(offsets)
    assert all(run.duration >= 0 for run in runs)


def test_every_run_of_an_observer_has_its_batch_attempt_and_start() -> None:
    (run,) = acting().run().observer_runs

    assert (run.batch, run.attempt) == (1, 1)
    assert run.offset is not None
    assert run.offset >= 0


def test_an_attempt_whose_worker_was_lost_is_recorded_once_with_the_worker() -> None:
    lab = acting()
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "decide")
    for epoch in (1, 2):
        lab.dispatcher.hints.clear()
        assert lab.store.iterations.enter(1, epoch, "decide", f"far.away.{epoch}.abcd/1")
        lab.client.zadd(KEYS.due, {"phase": 1})
        lab.sweeper.sweep()
    lab.deliver()
    runs = [run for run in first(lab).phase_runs if run.phase == "decide"]

    assert [(run.attempt, run.lost, run.host) for run in runs] == [
        *((1, True, "far.away"), (2, True, "far.away"), (3, False, None)),
    ]
    assert runs[0].worker == "far.away.1.abcd"


def test_a_batch_whose_worker_was_lost_is_recorded_once_and_its_observers_have_attempt_2() -> None:
    lab = Lab(agent(*[sees(f"o{i}", seen()) for i in range(2)]))
    lab.launcher.trigger("test")
    lab.step()
    lab.dispatcher.hints.clear()
    assert lab.store.observers.enter_batch(1, 1, 1, "h.1.abcd/1")
    overdue(lab, "batch:1")
    result = first(lab)

    assert [(run.batch, run.attempt, run.host) for run in result.phase_runs if run.lost] == [
        (1, 1, "h")
    ]
    assert [(run.batch, run.attempt) for run in result.observer_runs] == [(2, 2), (3, 2)]


def test_a_batch_that_is_given_up_is_recorded_with_each_lost_worker() -> None:
    lab = Lab(agent(sees("bad")))
    lab.launcher.trigger("test")
    lab.step()
    for batch, attempt in ((1, 1), (2, 2)):
        lab.dispatcher.hints.clear()
        assert lab.store.observers.enter_batch(1, batch, attempt, "h.1.abcd/1")
        lab.client.zadd(KEYS.due, {f"batch:{batch}": 1})
        lab.sweeper.sweep()
    lab.deliver()
    result = first(lab)

    assert [(run.batch, run.attempt) for run in result.phase_runs if run.lost] == [(1, 1), (2, 2)]
    assert [problem.id for problem in result.observer_errors] == ["p:bad"]


def test_an_attempt_that_somebody_abandoned_does_not_count() -> None:
    lab = acting()
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "orient")
    assert lab.store.iterations.enter_orient(1, 1, "h.1.abcd/1")
    Abandoner(lab.store, lab.dispatcher, lab.engine.retention).abandon("stop", Actor(principal="a"))
    runs = first(lab).phase_runs

    assert [(run.phase, run.lost) for run in runs] == [
        *(("start", False), ("observe", False), ("orient", True)),
    ]


def test_a_record_of_an_earlier_release_is_read_without_what_it_lacks() -> None:
    lab = acting()
    lab.run()
    lab.client.hdel(KEYS.past_iteration(1), "steps", "at:1")
    result = first(lab)

    assert result.phase_runs == []
    assert [(run.offset, run.batch, run.attempt) for run in result.observer_runs] == [
        (None, 1, None)
    ]
    assert result.phases["orient"] >= 0


# The agent and its plugins


class Dated(Plugin):
    """A plugin that says its version."""

    id = "dated"
    version = "2026.11"


def test_the_agents_settings_and_plugins_are_recorded_with_their_versions() -> None:
    lab = Lab(Agent("test", plugins=[Dated(), Example(), plugin()], loop_interval=7))
    (build,) = lab.run().builds
    own = digest_of(Path(kit.__file__).read_text())

    assert build == lab.agent.build
    assert (build.settings, build.boyd) == (lab.agent.fingerprint, VERSION)
    assert [plugin.observers is not None for plugin in build.plugins] == [False, False, True, False]
    assert [plugin.patched({"observers": None}).to_wire() for plugin in build.plugins] == [
        {"id": "situation-priority", "version": VERSION},
        {"id": "dated", "version": "2026.11"},
        {"id": "example", "version": VERSION},
        {"id": "p", "digest": own},
    ]


def test_a_local_plugin_is_recorded_with_the_digest_of_its_file(tmp_path: Path) -> None:
    text = 'from boyd import Plugin\n\n\nclass Own(Plugin):\n    id = "own-{}"\n'
    file = 'id = "a"\nplugins_dir = "."\n[[plugins]]\nuse = "own-{}"\n'
    builds = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(text.format(name))
        (tmp_path / f"{name}.toml").write_text(file.format(name))
        builds.append(agent_from_file(tmp_path / f"{name}.toml").build)

    assert builds[0].plugins[-1].digest == digest_of(text.format("one"))
    assert builds[0].plugins[-1].digest != builds[1].plugins[-1].digest
    assert builds[0].id != builds[1].id


def test_a_build_changes_with_each_setting_and_option_and_holds_no_secret() -> None:
    class Keyed(Plugin):
        id = "keyed"

        class Options(Plugin.Options):
            password: SecretStr
            level: int = 1

    def build(level: int, **settings: Any) -> AgentBuild:
        return Agent("a", plugins=[Keyed(password="hunter22", level=level)], **settings).build

    assert build(1) == build(1)
    assert len({build(1).id, build(2).id, build(1, loop_interval=7).id}) == 3
    assert "hunter22" not in build(1).to_json()


def test_a_phase_and_an_observer_of_another_build_are_recorded_with_it() -> None:
    lab = acting()
    other = Lab(agent(sees("o", seen()), loop_interval=7), client=lab.client)
    lab.launcher.trigger("test")
    lab.step()
    other.steps.run("observe", *lab.dispatcher.hints.popleft()[1:])
    other.steps.run("orient", 1, 1)
    lab.steps.run("decide", 1, 1)
    lab.deliver()
    result = first(lab)

    assert result.builds == [lab.agent.build, other.agent.build]
    assert {run.phase: run.build for run in result.phase_runs if run.build} == {
        "orient": other.agent.build.id
    }
    assert [run.build for run in result.observer_runs] == [other.agent.build.id]


# How it decided


def test_every_strategy_has_its_verdict_and_the_reason() -> None:
    def broken() -> Any:
        raise RuntimeError("no data")

    result = Lab(
        agent(
            chooses(choice(), "calm", applicable_when=lambda: False),
            chooses(choice(), "torn", applicable_when=broken),
            chooses(choice("p:a"), "first"),
            chooses(choice("p:b"), "second"),
        )
    ).run()
    assert result.trace is not None

    assert [
        (verdict.strategy, verdict.verdict, verdict.why) for verdict in result.trace.verdicts
    ] == [
        ("p:calm", "not applicable", "its predicate is false in this situation"),
        ("p:torn", "not applicable", "its predicate failed: RuntimeError: no data"),
        ("p:first", "chosen", "it is the first that applies"),
        ("p:second", "passed over", "p:first applies and comes first"),
    ]


def test_a_strategy_that_cannot_decide_has_failed() -> None:
    def broken() -> Any:
        raise RuntimeError("no data")

    result = Lab(agent(Strategy(name="bad", decide=broken))).run()
    assert result.trace is not None
    (verdict,) = result.trace.verdicts

    assert (verdict.verdict, verdict.why) == ("failed", "RuntimeError: no data")


def test_assessments_that_disagree_are_all_recorded() -> None:
    result = Lab(agent(reads("one", "all is well"), reads("two", "all is lost"))).run()
    assert result.situation is not None

    assert [assessment.findings for assessment in result.situation.assessments] == [
        ["all is well"],
        ["all is lost"],
    ]


def test_changes_by_hooks_are_recorded_with_before_and_after() -> None:
    hooks: dict[str, Any] = {
        "on_orient": lambda: {"priority": "high"},
        "on_decide": lambda: {"requires_approval": True, "params": {"n": 2}},
    }
    own = plugin(chooses(choice(params={"n": 1})), Recorder().action(), **hooks)
    result = Lab(Agent("test", plugins=[own], default_plugins=[])).run()
    assert result.trace is not None

    assert [change.to_wire() for change in result.situation_changes] == [
        {"plugin": "p", "fields": ["priority"], "before": {"priority": "low"}}
        | {"after": {"priority": "high"}}
    ]
    assert [(change.before, change.after) for change in result.trace.changes] == [
        (
            {"params": {"n": 1}, "requiresApproval": False},
            {"params": {"n": 2}, "requiresApproval": True},
        )
    ]
    assert result.trace.approval_required_by == "p"


def test_a_changed_value_that_is_too_large_is_named_and_not_kept() -> None:
    large = {"x": "x" * 10_000}
    own = plugin(chooses(choice()), Recorder().action(), on_decide=lambda: {"params": large})
    result = Lab(Agent("test", plugins=[own])).run()
    assert result.trace is not None
    (change,) = result.trace.changes

    assert (change.fields, change.before, change.after) == (["params"], {"params": {}}, {})


def test_the_decision_that_a_veto_stopped_is_recorded() -> None:
    def veto() -> None:
        raise Veto("not now")

    own = plugin(chooses(choice(params={"n": 1})), Recorder().action(), on_decide=veto)
    trace = Lab(Agent("test", plugins=[own])).run().trace
    assert trace is not None
    assert trace.proposed is not None

    assert (trace.proposed.action, trace.proposed.params) == ("p:do", {"n": 1})


# The gate


def run_gate(decision: Any = None, **settings: Any) -> tuple[Lab, LoopResult]:
    """Run a decision for an action with those settings."""
    parts = [chooses(decision or choice()), Recorder().action(**settings)]
    lab = Lab(agent(*parts))
    return lab, lab.run()


@pytest.mark.parametrize(
    ("settings", "decision", "outcome", "reason"),
    [
        ({}, {}, "automatic", "the action is auto"),
        (
            {"autonomy": Autonomy(min_confidence=0.5)},
            {},
            "automatic",
            "the action is auto, and confidence 0.9 reaches 0.5",
        ),
        (
            {"autonomy": Autonomy(min_confidence=0.95)},
            {},
            "asked",
            "confidence 0.9 is below 0.95",
        ),
        ({"autonomy": Autonomy(mode="human-only")}, {}, "asked", "the action is human-only"),
        ({}, {"requires_approval": True}, "asked", "the decision asked for an approval"),
        ({}, {"action": "p:none"}, "refused", "Unknown action 'p:none'"),
    ],
)
def test_the_gate_says_what_became_of_an_action_and_why(
    settings: dict[str, Any], decision: dict[str, Any], outcome: str, reason: str
) -> None:
    _, result = run_gate(choice(**decision), **settings)
    assert result.gate is not None

    assert (result.gate.outcome, result.gate.reason) == (outcome, reason)
    assert (result.gate.required is not None) == (outcome == "asked")


def test_the_gate_tells_how_much_of_a_budget_was_used() -> None:
    lab, first_result = run_gate(budget=Budget(limit=1, window=60))
    second = lab.run()
    gates = [first_result.gate, second.gate]

    assert [(gate.outcome, gate.used) for gate in gates if gate] == [("automatic", 0), ("asked", 1)]
    assert second.gate is not None
    assert second.gate.reason == "budget for this action is used up"


def test_a_freeze_is_the_reason_of_a_refusal() -> None:
    lab = acting()
    lab.whole.freezes.freeze("an incident", "test")
    result = lab.run()
    assert result.gate is not None

    assert result.gate.outcome == "refused"
    assert "an incident" in result.gate.reason


def test_an_action_whose_worker_died_has_passed_the_gate() -> None:
    lab = acting()
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    lab.dispatcher.hints.clear()
    assert lab.store.iterations.enter(1, 1, "act", "h.1.abcd/1")
    name = naming.iteration_execution(
        naming.iteration(1, lab.client.hget(KEYS.iteration, "timeline"))
    )
    fence = Fence(1, 1, "h.1.abcd/1")
    lab.store.executions.claim(execution_request(name, fence=fence), "t")
    lab.client.hset(KEYS.execution(name), "leaseUntil", 1)
    overdue(lab, "phase")
    result = first(lab)
    assert result.gate is not None

    assert result.action_results[0].unknown
    assert (result.gate.outcome, result.gate.reason) == ("automatic", "the action is auto")


def test_nothing_passes_the_gate_after_a_no_op() -> None:
    assert Lab(agent()).run().gate is None


# What plugins read


def looks(look: Callable[[Context], Any], *more: Any, **hooks: Any) -> Lab:
    """A lab with an agent whose orienter does *look* before it finds something."""

    def orient(ctx: Context) -> Any:
        look(ctx)
        return kit.assessed("x")

    own = plugin(Orienter(name="r", orient=orient), *more, **hooks)
    return Lab(Agent("test", plugins=[own]))


def reads_by(result: LoopResult) -> dict[str, list[Read]]:
    """The reads by component or hook."""
    return {read.by: read.reads for read in result.reads}


def test_state_reads_of_orienters_strategies_and_hooks_are_recorded() -> None:
    def decide(ctx: Context) -> Any:
        return choice(params={"seen": ctx.state.get_many(["seen", "none"])})

    def change(ctx: Context) -> None:
        ctx.state.update("count", lambda count: (count or 0) + 1)

    lab = looks(
        lambda ctx: ctx.state.get("seen", 7),
        Strategy(name="s", decide=decide, applicable_when=lambda ctx: ctx.state.get("on", True)),
        on_orient=lambda ctx: {"priority": ctx.state.get("level", "low")},
        on_decide=change,
    )
    state = lab.store.state("p")
    state.set("seen", {"load": [1, 2]})
    state.set("count", 4)
    lab.run()
    result = first(lab)

    assert reads_by(result) == {
        "p:r": [Read(of="state", key="seen", value={"load": [1, 2]})],
        "p.on_orient": [Read(of="state", key="level", note="absent")],
        "p:s": [
            Read(of="state", key="on", note="absent"),
            Read(of="state", key="seen", value={"load": [1, 2]}),
            Read(of="state", key="none", note="absent"),
        ],
        "p.on_decide": [Read(of="state", key="count", value=4)],
    }
    assert [read.phase for read in result.reads] == ["orient", "orient", "decide", "decide"]


def test_the_clock_that_plugins_saw_is_recorded() -> None:
    seen_at: list[datetime] = []
    lab = looks(lambda ctx: seen_at.append(ctx.now()))
    lab.run()
    (reads,) = first(lab).reads

    assert (reads.by, reads.clock) == ("p:r", seen_at)


def test_reads_of_graphs_and_approvals_are_recorded() -> None:
    fact = Triple(subject="web", predicate="runs on", object="h1")

    def look(ctx: Context) -> None:
        assert ctx.graph().out("web") == [fact]
        assert list(ctx.graph().all()) == [fact]
        assert ctx.approvals.get("none") is None
        assert ctx.approvals.waiting(["b", "a"]) == set()

    lab = looks(look)
    lab.store.graph("facts").add([fact])
    lab.run()
    reads_recorded = [(read.of, read.key) for read in reads_by(first(lab))["p:r"]]

    assert reads_recorded == [
        ("graph", 'facts out ["web"]'),
        ("graph", "facts all"),
        ("approvals", 'get ["none"]'),
        ("approvals", 'waiting [["b","a"]]'),
    ]
    assert reads_by(first(lab))["p:r"][0].value == [fact.to_wire()]


def test_a_plugin_that_used_http_is_recorded_as_one_that_read_something_unknown() -> None:
    lab = looks(lambda ctx: ctx.http)
    lab.run()

    assert [read.of for read in reads_by(first(lab))["p:r"]] == ["http"]


def test_turns_of_the_model_are_recorded_with_a_digest_of_the_request() -> None:
    class Model:
        def ask(self, prompt: str, *, instructions: str = "") -> str:
            if prompt == "broken":
                raise ModelError("no answer")
            return f"about {prompt}"

    def look(ctx: Context) -> None:
        ctx.llm.ask("disks", instructions="be brief")
        ctx.llm.ask("disks")
        with pytest.raises(ModelError):
            ctx.llm.ask("broken")

    lab = looks(look)
    lab.engine.llm = lambda plugin_id: cast(Llm, Model())
    lab.run()
    reads = reads_by(first(lab))["p:r"]

    assert [read.value for read in reads] == [
        *("about disks", "about disks", {"error": "ModelError: no answer"}),
    ]
    assert [read.key.split()[0] for read in reads] == ["ask"] * 3
    assert len({read.key for read in reads}) == 3


def test_nothing_is_recorded_of_observers_actions_and_plugins_that_read_nothing() -> None:
    def observe(ctx: Context) -> list[Any]:
        ctx.state.get("x")
        return [seen(timestamp=ctx.now())]

    def execute(ctx: Context) -> None:
        ctx.state.get("y")

    acts = Action(name="do", execute=execute)
    lab = Lab(agent(Observer(name="o", observe=observe), chooses(choice()), acts))
    lab.run()

    assert first(lab).reads == []
    assert not [name for name in lab.client.hgetall(KEYS.past_iteration(1)) if "reads" in name]


def test_a_secret_that_was_read_is_not_in_the_record() -> None:
    secret = "hunter2hunter2"
    lab = looks(lambda ctx: ctx.state.get(f"password={secret}") or ctx.state.get("token"))
    lab.store.state("p").set("token", {"password": secret, "user": "ann"})
    lab.run()
    reads = reads_by(first(lab))["p:r"]

    assert secret not in json.dumps(lab.client.hgetall(KEYS.past_iteration(1)))
    assert [(read.value, read.note) for read in reads] == [
        (None, "absent"),
        ({"password": "[redacted]", "user": "ann"}, "redacted"),
    ]


def test_a_large_value_is_recorded_by_its_digest() -> None:
    large = ["x" * 100] * 1000
    lab = looks(lambda ctx: ctx.state.get("large"))
    lab.store.state("p").set("large", large)
    lab.run()
    (read,) = reads_by(first(lab))["p:r"]

    assert (read.value, read.note) == (None, "too large")
    assert read.digest == digest_of(json.dumps(large, separators=(",", ":")))


def test_a_plugin_that_reads_without_end_fills_only_its_part_of_the_record() -> None:
    def look(ctx: Context) -> None:
        for number in range(500):
            ctx.now()
            ctx.state.get(f"key {number}")
        for number in range(50):
            ctx.graph().out("y" * 700 + str(number))

    lab = looks(look)
    lab.run()
    (reads,) = first(lab).reads

    assert (len(reads.reads), len(reads.clock)) == (MAX_READS, MAX_CLOCK_READS)
    assert reads.omitted == 500 + 500 + 50 - MAX_READS - MAX_CLOCK_READS
    assert len(lab.client.hget(KEYS.past_iteration(1), "reads:orient")) < 2 * MAX_PHASE


def test_many_large_values_do_not_exceed_the_limit_of_a_phase() -> None:
    lab = looks(lambda ctx: [ctx.state.get(f"k{number}") for number in range(20)])
    for number in range(20):
        lab.store.state("p").set(f"k{number}", "x" * 7000)
    lab.run()
    reads = reads_by(first(lab))["p:r"]

    assert len(lab.client.hget(KEYS.past_iteration(1), "reads:orient")) < 1.1 * MAX_PHASE
    assert {read.note for read in reads} == {None, "too large"}
    assert len(reads) == 20


def test_values_that_are_no_json_are_named_and_harm_nobody() -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("boom")

    class Approvals:
        def get(self, approval_id: Any) -> Any:
            return Odd()

        def waiting(self, approval_ids: Any) -> Any:
            loop: list[Any] = []
            loop.append(loop)
            return loop

    def look(ctx: Context) -> None:
        assert isinstance(ctx.approvals.get(cast(str, Odd())), Odd)
        assert ctx.approvals.waiting([])

    lab = looks(look)
    context = lab.engine.context
    replaced = cast(ApprovalReader, Approvals())
    lab.engine.context = lambda *args: replace(  # type: ignore[method-assign]
        context(*args), _approvals=replaced
    )
    lab.run()
    result = first(lab)

    assert (result.success, result.problems) == (True, [])
    assert [read.note for read in reads_by(result)["p:r"]] == ["not JSON", "not JSON"]


def test_a_state_that_fails_fails_as_without_the_tape() -> None:
    lab = looks(lambda ctx: ctx.state.set("x", object()))
    (problem,) = lab.run().problems

    assert "is not JSON" in problem.error


def test_the_reads_of_an_attempt_that_was_lost_do_not_count() -> None:
    lab = looks(lambda ctx: ctx.state.get("seen"))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "orient")
    lab.dispatcher.hints.clear()
    assert lab.store.iterations.enter_orient(1, 1, "h.1.abcd/1")
    overdue(lab, "phase")

    assert reads_by(first(lab)) == {"p:r": [Read(of="state", key="seen", note="absent")]}


def test_a_failed_phase_keeps_what_it_had_read() -> None:
    lab = looks(lambda ctx: ctx.state.get("seen"))
    lab.store.iterations.leave_orient = None  # type: ignore[method-assign, assignment]
    lab.run()
    result = first(lab)

    assert not result.success
    assert list(reads_by(result)) == ["p:r"]


def test_decide_stores_the_verdict_that_act_completes_with_the_policy() -> None:
    lab = Lab(agent(chooses(choice()), Recorder().action(autonomy=Autonomy(mode="human-only"))))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    record = lab.store.iterations.current()
    assert record is not None
    verdict = record.gate
    lab.deliver()
    gate = first(lab).gate
    assert gate is not None

    assert gate.required is not None
    assert verdict == gate.patched({"required": None})
