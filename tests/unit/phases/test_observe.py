"""The observe phase: observers, their intervals, limits and failures."""

from __future__ import annotations

import contextvars
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boyd import Agent, Decision, Observation
from boyd.models import ObserverHealth
from boyd.phases import observe, time_limit
from boyd.phases.phase_context import PhaseContext
from boyd.plugin import Action, Context, Observer, Orienter, Strategy
from boyd.testing import Lab
from harness import wait_until
from kit import Recorder, agent, choice, chooses, fails, plugin, seen, sees

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_observations_are_in_the_order_of_registration() -> None:
    first_may_end = threading.Event()

    def slow() -> list[Observation]:
        assert first_may_end.wait(120)
        return [seen("slow")]

    def quick() -> list[Observation]:
        first_may_end.set()
        return [seen("quick")]

    observers = [Observer(name="slow", observe=slow), Observer(name="quick", observe=quick)]
    result = Lab(agent(*observers)).run()

    assert [o.source for o in result.observations] == ["slow", "quick"]


def test_observers_of_one_bundle_run_side_by_side() -> None:
    together = threading.Barrier(3, timeout=60)

    def observe() -> list[Observation]:
        together.wait()
        return []

    observers = [Observer(name=f"o{i}", observe=observe) for i in range(3)]

    assert Lab(agent(*observers)).run().observer_errors == []


def test_bundles_are_shared_among_the_workers_that_live() -> None:
    lab = Lab(agent(*[sees(f"o{i}") for i in range(9)]), hosts=("a", "b", "c"))
    lab.launcher.trigger("test")
    lab.step()

    assert len(lab.dispatcher.hints) == 3


@pytest.mark.parametrize(("mode", "runs"), [("continuous", 1), ("manual", 2), ("event-driven", 2)])
def test_an_interval_is_honoured_only_in_continuous_mode(mode: Any, runs: int) -> None:
    lab = Lab(agent(sees("slow", seen(), interval=3600), mode=mode))
    results = [lab.run(), lab.run()]

    assert runs == sum(len(result.observations) for result in results)


@pytest.mark.parametrize(
    ("since", "due"),
    [(59.0, True), (58.0, False), (60.0, True), (0.0, False), (-3600.0, True)],
    ids=["with jitter", "early", "in time", "just now", "before the clock stepped back"],
)
def test_an_interval_forgives_the_jitter_of_ticks(since: float, due: bool) -> None:
    """Ticks every 10 s may come a little early; a tenth of that is forgiven."""
    continuous = agent(sees("o", interval=60), mode="continuous", loop_interval=10)
    ctx = PhaseContext(continuous, "start", Lab(continuous).engine.context)
    last = {"p:o": NOW.timestamp() - since}

    assert due == bool(observe.due(ctx, last, {}, NOW))


class Ticks:
    """The ticks of an agent that looks at *intervals*, by what the Redis server's clock says."""

    def __init__(self, loop_interval: float, offset: float = 0, **intervals: float) -> None:
        observers = [sees(name, interval=value) for name, value in intervals.items()]
        self.made = agent(
            *observers, mode="continuous", loop_interval=loop_interval, loop_offset=offset
        )
        self.lab = Lab(self.made)
        self.last: dict[str, float] = {}
        self.not_due: dict[str, float] = {}

    def at(self, seconds: float, tick: bool = True, late: float = 0.0) -> list[str]:
        """The observers that are due at that time; they run *late* seconds after it."""
        ctx = PhaseContext(self.made, "start", self.lab.engine.context)
        now = NOW + timedelta(seconds=seconds)
        names = [o.name for o in observe.due(ctx, self.last, {}, now, tick)]
        ran = NOW.timestamp() + seconds + late
        self.last |= dict.fromkeys((f"p:{name}" for name in names), ran)
        self.not_due = {
            observer_state.id: round((observer_state.due_at - now).total_seconds(), 3)
            for observer_state in ctx.not_due
        }
        return names


def test_an_interval_equal_to_the_loops_is_every_tick_the_second_one_too() -> None:
    """The first iteration begins when beat does, in the middle of a slot."""
    ticks = Ticks(10, every=10, less=3, some=15)

    assert ticks.at(17.3) == ["every", "less", "some"]
    assert ticks.at(20.004) == ["every", "less"]
    assert ticks.not_due == {"p:some": 9.996}
    assert ticks.at(30.0) == ["every", "less", "some"]


def test_a_tick_that_was_slow_to_begin_does_not_cost_the_next_one() -> None:
    """Hooks and waiting for a worker take time, and may take longer than the slot."""
    ticks = Ticks(10, every=10)

    assert ticks.at(20.0, late=4.0) == ["every"]
    assert ticks.at(30.0, late=10.5) == ["every"]
    assert ticks.at(50.0) == ["every"]


@pytest.mark.parametrize("offset", [0, 3.5, 9.9])
def test_a_longer_interval_keeps_to_its_own_number_of_ticks(offset: float) -> None:
    """Runs come late, one in the next multiple of the interval but still in its slot."""
    ticks = Ticks(10, offset, minute=60)
    seen_at = [at for at in range(20, 200, 10) if ticks.at(at + offset + 0.02, late=0.3)]

    assert seen_at == [20, 80, 140]
    assert ticks.at(190 + offset + 0.02) == []
    assert ticks.not_due == {"p:minute": 9.98}


def test_an_interval_between_two_ticks_has_passed_at_the_later_one() -> None:
    ticks = Ticks(2, odd=2.2)
    seen_at = [at for at in range(20, 34, 2) if ticks.at(at + 0.01)]

    assert seen_at == [20, 24, 28, 32]


def test_an_iteration_between_ticks_counts_seconds_and_takes_no_tick_away() -> None:
    ticks = Ticks(10, every=10)

    assert ticks.at(20.0) == ["every"]
    assert ticks.at(23.0, tick=False) == []
    assert ticks.not_due == {"p:every": 6.0}
    assert ticks.at(29.5, tick=False) == ["every"]
    assert ticks.at(30.0) == ["every"]


def test_an_iteration_tells_which_observers_were_not_due() -> None:
    not_due_sets: list[Any] = []

    def orient(observations: list[Observation], ctx: Context) -> Any:
        not_due_sets.append(set(ctx.not_due))
        return {"source": "p:mind", "findings": [], "confidence": 1.0}

    def decide(ctx: Context) -> Decision:
        not_due_sets.append(set(ctx.not_due))
        return choice()

    def execute(ctx: Context) -> None:
        not_due_sets.append(set(ctx.not_due))

    slow, quick = sees("slow", seen(), interval=3600), sees("quick", seen())
    mind = Orienter(name="mind", orient=orient)
    parts = (mind, Strategy(name="s", decide=decide), Action(name="do", execute=execute))
    lab = Lab(agent(slow, quick, *parts, mode="continuous", loop_interval=60))
    first, second = lab.run(), lab.run()

    assert (first.not_due, not_due_sets) == ([], [set()] * 3 + [{"p:slow"}] * 3)
    [left_out] = second.not_due
    assert left_out.id == "p:slow"
    assert 3000 < (left_out.due_at - second.started_at).total_seconds() <= 3600


def test_the_last_run_is_recorded_also_when_the_observer_raised() -> None:
    lab = Lab(agent(fails(interval=3600), mode="continuous"))
    first, second = lab.run(), lab.run()

    assert (len(first.observer_errors), len(second.observer_errors)) == (1, 0)


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (None, "must return a list of Observation, not NoneType"),
        ("text", "must return a list of Observation, not str"),
        ([{"source": "x", "type": "metric", "data": {"n": float("nan")}}], "data.n"),
        ([{"source": "x", "type": "metric", "data": {"n": object()}}], "valid JSON"),
        ([{"source": "x", "type": "metric", "data": {"n": {1}}}], "data.n: set is not valid JSON"),
        ([{"source": "x", "type": "metric", "data": {"n": {1}}}], "; use a list"),
        (seen(), "returned one Observation; return a list of them"),
        ([{"source": "x", "type": "wish", "data": {}}], "type"),
        ([{"source": "x", "type": "metric", "data": {}, "severity": "fatal"}], "severity"),
        ([42], "should be a valid dictionary"),
    ],
)
def test_an_observer_that_returns_rubbish_is_left_out_and_the_error_says_why(
    returned: Any, error: str
) -> None:
    wrong = Observer(name="wrong", observe=lambda: returned)
    result = Lab(agent(wrong, sees("good", seen("good")))).run()

    assert [o.source for o in result.observations] == ["good"]
    assert result.observer_errors[0].id == "p:wrong"
    assert error in result.observer_errors[0].error
    assert result.success


class Fast(datetime):
    """The clock of a host that is two hours ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(hours=2)


def test_an_observation_without_a_time_bears_that_of_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(observations: list[Observation]) -> list[Observation]:
        return [*observations, seen("judge")]

    def observe() -> list[Any]:
        raw = {"source": "raw", "type": "metric", "data": {}}
        return [seen("model"), raw, seen("own").patched({"timestamp": NOW})]

    monkeypatch.setattr("boyd.models.base.datetime", Fast)
    observer = Observer(name="o", observe=observe, judge=judge)
    judged = plugin(observer, on_observe=lambda: [seen("hook")])
    result = Lab(Agent("test", plugins=[judged])).run()

    times = {o.source: o.timestamp for o in result.observations}
    assert times.pop("own") == NOW
    assert times.keys() == {"model", "raw", "judge", "hook"}
    for at in times.values():
        assert abs(at - result.started_at) < timedelta(hours=1)


def test_an_invalid_observation_is_reported_in_one_line() -> None:
    def observe() -> list[Observation]:
        return [Observation(source="x", type="metric", data={"tags": {"a", "b"}})]  # type: ignore[dict-item]

    result = Lab(agent(Observer(name="wrong", observe=observe))).run()

    [error] = result.observer_errors
    assert (
        error.error == "ValidationError: Observation: data.tags: set is not valid JSON; use a list"
    )


def test_an_observer_that_raises_is_recorded_and_the_others_count() -> None:
    result = Lab(agent(fails(), sees("good", seen("good")))).run()

    assert [(e.id, e.error) for e in result.observer_errors] == [("p:fails", "RuntimeError: boom")]
    assert len(result.observations) == 1


def test_an_observer_that_overruns_its_time_limit_costs_only_itself() -> None:
    end = threading.Event()
    hangs = Observer(name="hangs", observe=lambda: end.wait(30), timeout=0.05)
    try:
        result = Lab(agent(hangs, sees("good", seen()))).run()

        assert "took longer than 0.05 s" in result.observer_errors[0].error
        assert len(result.observations) == 1
        assert time_limit.abandoned.alive() >= 1
    finally:
        end.set()


def test_an_observer_that_returns_too_much_is_left_out() -> None:
    much = sees("much", seen(data={"text": "x" * 1_100_000}))
    result = Lab(agent(much, sees("good", seen()))).run()

    assert "the limit is 1000000" in result.observer_errors[0].error
    assert len(result.observations) == 1


def test_an_observer_that_calls_exit_costs_only_itself() -> None:
    def leave() -> None:
        raise SystemExit(3)

    result = Lab(agent(Observer(name="leaves", observe=leave), sees("good", seen()))).run()

    assert [error.id for error in result.observer_errors] == ["p:leaves"]


def test_an_observer_splits_its_work_into_shards() -> None:
    def observe(shard: Any) -> list[Observation]:
        return [seen(f"url{n}") for n in shard]

    split = Observer(name="split", observe=observe, partition=lambda: [[1, 2], [3]])
    result = Lab(agent(split)).run()

    assert [o.source for o in result.observations] == ["url1", "url2", "url3"]


@pytest.mark.parametrize("shards", ["text", [object()], [float("nan")]])
def test_a_partition_that_is_no_list_of_json_is_an_error(shards: Any) -> None:
    split = Observer(name="split", observe=lambda: [seen()], partition=lambda: shards)
    result = Lab(agent(split)).run()

    assert [error.id for error in result.observer_errors] == ["p:split"]
    assert result.observations == []


def test_every_host_runs_once_on_each_live_host() -> None:
    lab = Lab(agent(sees("all", seen(), scope="every_host")), hosts=("a", "b", "c"))
    lab.launcher.trigger("test")
    lab.step()
    queues = {batch for kind, _, batch, _ in lab.dispatcher.hints if kind == "observe"}
    lab.deliver()
    result = lab.store.history.get(1)

    assert len(queues) == 3
    assert result is not None
    assert len(result.observations) == 3


def test_an_observer_knows_the_host_that_it_runs_on() -> None:
    def tell(ctx: Context) -> list[Observation]:
        return [seen(ctx.host)]

    lab = Lab(agent(Observer(name="all", observe=tell, scope="every_host")), hosts=("a", "b", "c"))

    assert {o.source for o in lab.run().observations} == {"a", "b", "c"}


def test_history_tells_where_each_observer_ran_and_where_the_action_was_executed() -> None:
    everywhere = sees("all", seen(), seen(), scope="every_host")
    parts = [everywhere, fails("bad"), chooses(choice("p:do")), Recorder().action()]
    lab = Lab(agent(*parts), hosts=("a", "b"))
    lab.run()
    result = lab.store.history.get(1)

    assert result is not None
    runs = [(run.id, run.host, run.worker, run.observations) for run in result.observer_runs]
    assert runs == [("p:all", "a", "lab", 2), ("p:all", "b", "lab", 2), ("p:bad", "a", "lab", 0)]
    assert [error.host for error in result.observer_errors] == ["a"]
    [done] = result.action_results
    assert (done.host, done.worker) == ("a", "lab")
    [outline] = lab.store.history.summaries().iterations
    assert outline.results[0].host == "a"


def test_a_queue_that_nobody_serves_is_reported_not_waited_for() -> None:
    result = Lab(agent(sees("far", seen(), queue="eu1"), sees("near", seen("near")))).run()

    assert (
        result.observer_errors[0].error
    ) == "no live worker consumes queue 'eu1'; start one with -Q eu1"
    assert [o.source for o in result.observations] == ["near"]


def test_a_queue_that_a_worker_serves_is_used() -> None:
    result = Lab(agent(sees("far", seen(), queue="eu1")), queues=["eu1"]).run()

    assert len(result.observations) == 1


@pytest.mark.parametrize(
    ("priority", "severity"),
    [("low", "info"), ("medium", "warning"), ("high", "error"), ("critical", "critical")],
)
def test_a_run_becomes_an_alert_of_its_priority(priority: Any, severity: str) -> None:
    lab = Lab(agent())
    lab.submit("Slow site", "since noon", priority=priority, source="pager", context={"a": 1})
    lab.deliver()
    result = lab.store.history.get(1)

    assert result is not None
    seen_run = result.observations[0]
    assert ("run:pager", "alert", severity) == (seen_run.source, seen_run.type, seen_run.severity)
    assert {"a": 1, "title": "Slow site", "description": "since noon"}.items() <= (
        seen_run.data.items()
    )
    assert {"isRun": True, "runId": result.runs[0]} == seen_run.metadata


def test_a_runs_context_never_replaces_what_says_which_run_it_is() -> None:
    lab = Lab(agent())
    forged = {"runId": "other", "title": "x", "description": "x", "priority": "x", "source": "x"}
    run = lab.submit("Mine", context=forged).run
    lab.deliver()
    result = lab.store.history.get(1)

    assert result is not None
    assert (run.id, "Mine") == (
        result.observations[0].data["runId"],
        result.observations[0].data["title"],
    )


def test_runs_are_claimed_most_urgent_first_then_oldest() -> None:
    lab = Lab(agent(mode="continuous"))
    titles = [("a", "low"), ("b", "critical"), ("c", "high"), ("d", "critical")]
    for title, priority in titles:
        lab.submit(title, priority=priority)
    result = lab.run()

    assert [o.data["title"] for o in result.observations] == ["b", "d", "c", "a"]


def test_a_claimed_run_is_investigating_and_names_its_iteration() -> None:
    states: list[Any] = []
    lab = Lab(Agent("test", plugins=[plugin(on_observe=lambda: states.append(current()))]))

    def current() -> Any:
        run = lab.store.runs.get(run_id)
        assert run is not None
        return run.status, run.iteration

    run_id = lab.submit("look").run.id
    lab.deliver()

    assert states == [("investigating", 1)]


def test_on_observe_sees_all_observations_and_may_add_some() -> None:
    counts: list[int] = []

    def first(observations: list[Observation]) -> list[Observation]:
        counts.append(len(observations))
        return [seen("added")]

    hooks = plugin(id="h", on_observe=first)
    result = Lab(Agent("test", plugins=[plugin(sees("a", seen("a"))), hooks])).run()

    assert counts == [1]
    assert [o.source for o in result.observations] == ["a", "added"]


def test_health_counts_failures_and_remembers_the_last_error_and_success() -> None:
    broken = {"now": True}

    def observe() -> list[Observation]:
        if broken["now"]:
            raise OSError("unreachable")
        return []

    lab = Lab(agent(Observer(name="o", observe=observe)))
    lab.run()
    lab.run()
    health = lab.store.observers.health(["p:o"])["p:o"]

    assert (health.failures, health.last_error) == (2, "OSError: unreachable")
    assert health.last_success_at is None

    broken["now"] = False
    lab.run()
    health = lab.store.observers.health(["p:o"])["p:o"]

    assert health.failures == 0
    assert health.last_success_at is not None


def test_an_observer_that_fails_repeatedly_backs_off() -> None:
    lab = Lab(agent(fails(), mode="continuous", loop_interval=3600))
    errors = [len(lab.run().observer_errors) for _ in range(5)]
    health = lab.store.observers.health(["p:fails"])["p:fails"]

    assert errors == [1, 1, 1, 0, 0]
    assert health.backoff_until is not None


@pytest.mark.parametrize(("ahead", "due"), [(299, False), (301, True), (3600, True), (-1, True)])
def test_no_pause_from_before_the_clock_stepped_back_lasts(ahead: float, due: bool) -> None:
    """A pause lasts five minutes at most."""
    continuous = agent(sees("o"), mode="continuous", loop_interval=10)
    ctx = PhaseContext(continuous, "start", Lab(continuous).engine.context)
    health = ObserverHealth(failures=9, backoff_until=NOW + timedelta(seconds=ahead))

    assert due == bool(observe.due(ctx, {}, {"p:o": health}, NOW))


def test_a_manual_trigger_runs_an_observer_that_failed_before() -> None:
    lab = Lab(agent(fails()))

    assert [len(lab.run().observer_errors) for _ in range(5)] == [1] * 5


def test_a_bounded_call_never_waits_longer_than_its_limit() -> None:
    end = threading.Event()
    began = time.monotonic()
    calls = [time_limit.TimedCall(lambda: end.wait(60), 0.05), time_limit.TimedCall(lambda: 7, 5)]
    outcomes = time_limit.call_all(calls)
    end.set()

    assert "0.05" in str(outcomes[0].error)
    assert outcomes[1].value == 7
    assert time.monotonic() - began < 50


def test_calls_beyond_the_width_wait_for_their_turn() -> None:
    running: list[int] = []
    most: list[int] = []

    def work() -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.001)
        running.pop()

    time_limit.call_all([time_limit.TimedCall(work, 5)] * 20, width=4)

    assert max(most) <= 4


def test_a_crew_replaces_the_threads_that_it_gives_up() -> None:
    end = threading.Event()
    hang = time_limit.TimedCall(lambda: end.wait(30), 0.02)
    calls = [hang, hang, *[time_limit.TimedCall(lambda: 7, 5)] * 50]
    outcomes = time_limit.call_all(calls, width=2)
    end.set()

    assert [outcome.value for outcome in outcomes[2:]] == [7] * 50
    assert all("longer than 0.02 s" in str(outcome.error) for outcome in outcomes[:2])


def test_a_crew_never_has_more_threads_than_its_width() -> None:
    names: set[int] = set()

    def work() -> None:
        names.add(threading.get_ident())
        time.sleep(0.005)

    time_limit.call_all([time_limit.TimedCall(work, 5)] * 100, width=5)

    assert len(names) <= 5


def test_threads_of_bounded_calls_are_used_again_without_what_calls_have_set() -> None:
    setting = contextvars.ContextVar("setting", default="none")
    threads: set[threading.Thread] = set()

    def work() -> str:
        threads.add(threading.current_thread())
        value = setting.get()
        setting.set("set")
        return value

    call = time_limit.TimedCall(work, 5)
    values = {time_limit.call_all([call])[0].value for _ in range(50)}

    assert len(threads) < 50
    assert values == {"none"}


def test_a_thread_that_was_given_up_ends_with_its_call() -> None:
    end = threading.Event()
    hanging: list[threading.Thread] = []

    def hang() -> None:
        hanging.append(threading.current_thread())
        end.wait(30)

    time_limit.call_all([time_limit.TimedCall(hang, 0.02)])
    end.set()
    wait_until(lambda: hanging)  # it may have been given up before it began
    hanging[0].join(120)

    assert not hanging[0].is_alive()


def test_an_observation_made_without_validation_is_validated() -> None:
    wrong = Observation.model_construct(source="x", type="bogus", data={})  # type: ignore[arg-type]
    spoilt = seen()
    spoilt.data["n"] = float("nan")
    result = Lab(agent(sees("wrong", wrong), sees("spoilt", spoilt), sees("good", seen()))).run()

    assert result.success
    assert [error.id for error in result.observer_errors] == ["p:wrong", "p:spoilt"]


def test_an_error_that_utf8_cannot_hold_costs_only_its_observer() -> None:
    def observe() -> None:
        raise OSError("no file \udcff")

    result = Lab(agent(Observer(name="o", observe=observe), sees("good", seen()))).run()

    assert [error.error for error in result.observer_errors] == ["OSError: no file \\udcff"]
    assert len(result.observations) == 1


def test_every_host_without_a_host_is_reported() -> None:
    result = Lab(agent(sees("all", seen(), scope="every_host")), hosts=()).run()

    assert [error.id for error in result.observer_errors] == ["p:all"]


def test_late_beats_of_all_workers_are_no_reason_to_leave_their_work_out() -> None:
    """After Redis was away, everybody is late."""
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    beats = lab.client.zrange("boyd:{*}:workers", 0, -1, withscores=True)
    lab.client.zadd("boyd:{*}:workers", {name: beat - 60_000 for name, beat in beats})
    lab._beat = lambda: None  # type: ignore[method-assign]
    lab.deliver()

    assert len(lab.store.history.results()[0].observations) == 1


def test_one_shard_that_fails_does_not_make_the_observer_fail() -> None:
    def observe(shard: int) -> list[Observation]:
        if shard == 2:
            raise OSError("no route")
        return [seen()]

    split = Observer(name="o", observe=observe, partition=lambda: [1, 2, 3])
    lab = Lab(agent(split, mode="continuous"))
    results = [lab.run() for _ in range(5)]

    assert [len(result.observations) for result in results] == [2] * 5
    assert lab.store.observers.health(["p:o"])["p:o"].failures == 0


def test_an_observer_that_is_left_out_is_named_in_the_iteration() -> None:
    lab = Lab(agent(fails(), mode="continuous", loop_interval=3600))
    problems = [lab.run().problems for _ in range(4)][3]

    assert problems[0].id == "p:fails"
    assert "because it keeps failing" in problems[0].error


def test_fields_of_another_release_are_passed_over() -> None:
    lab = Lab(agent(sees("o", seen())))
    names = lab.client.hkeys("boyd:{*}:workers:info")
    lab._beat = lambda: None  # type: ignore[method-assign]
    for name in names:
        info = json.loads(lab.client.hget("boyd:{*}:workers:info", name))
        lab.client.hset("boyd:{*}:workers:info", name, json.dumps({**info, "zone": "b"}))

    assert {worker.name for worker in lab.whole.fleet.workers()} == {*names}
    assert lab.run().success


@pytest.mark.long
def test_a_thousand_events_and_more_are_taken_in_at_once() -> None:
    lab = Lab(agent())
    lab.intake(*[seen()] * 9_000)

    assert len(lab.run().observations) == 1000


def test_observations_with_unknown_fields_of_a_later_release_are_read() -> None:
    lab = Lab(agent(sees("o", seen("disk"))))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "orient")
    [stored] = json.loads(lab.client.hget("boyd:{test}:iteration", "seen:0"))
    lab.client.hset("boyd:{test}:iteration", "seen:0", json.dumps([{**stored, "zone": "b"}]))
    lab.deliver()
    result = lab.store.history.results()[0]

    assert result.success
    assert [o.source for o in result.observations] == ["disk"]
