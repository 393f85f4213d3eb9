"""Each script does all or nothing, whatever Redis refuses of it.

An agent lives through everything there is while each call of a script is tried out first: with
another type in place of each key, with each command forbidden, and without memory. A call that
fails must have left every other key as it was.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest
import redis

from boyd import naming
from boyd.errors import StoreError
from boyd.models import (
    ActionResult,
    Budget,
    CallRequest,
    Compensation,
    Concurrency,
    Decision,
    EarnedAutonomy,
    EffectName,
    ExecutionTerms,
    Fence,
    JsonObject,
    LimitViolation,
    LoopResult,
    NotificationRecord,
    ProcedureRecord,
    ProcedureStep,
    Proposal,
    RunOutcome,
    RunRequest,
    RunResult,
    Sandbox,
    Situation,
    StepProgress,
    TargetState,
    Triple,
    VerificationPlan,
    utc_now,
)
from boyd.models.investigation import Asked, InvestigationRequest, Usage
from boyd.store import (
    AgentEntry,
    AgentStore,
    BatchEntry,
    ItemAnswer,
    LogChange,
    Lost,
    PhaseEnd,
    PhaseEntry,
    Retention,
    RunEnding,
    Store,
    StoredAnswer,
    StuckBatch,
    WorkerInfo,
    connect,
)
from boyd.store.executions import HeldOut
from boyd.store.holdouts import CaseDraw, Wait
from boyd.store.holds import NewHold
from boyd.store.investigations import Origin
from boyd.store.login_sessions import digest
from boyd.store.server.connection import Client
from boyd.store.server.scripts import Reads, ScriptCall, Scripts, source_of
from harness import patient_client
from kit import LAX, READS, execution_request, person, seen, slot_around
from lua_scripts import NAMES

pytestmark = [pytest.mark.real, pytest.mark.slow]

ANN = person("ann")
KEEP = Retention()
FOUND = RunResult(summary="s", findings=[], actions_performed=[], loop_iterations=1, duration=0.1)
#: A user who may do everything but what is taken away.
USER = "tried"

COMMAND = re.compile(r"redis\.p?call\('(\w+)'")

Snapshot = dict[str, tuple[bytes, bool]]


class Trial:
    """Tries out calls of scripts on the Redis of *admin*, and puts back what was there."""

    def __init__(self, admin: Client, raw: Client, tries: int) -> None:
        """Try out each script *tries* times, each time with other keys or arguments."""
        self._tries = tries
        self._admin = admin
        self._raw = raw
        self._seen: set[tuple[str, ...]] = set()
        self.tried: Counter[str] = Counter()
        self.faults = 0
        self.problems: list[str] = []
        self._busy = False

    def __call__(self, call: ScriptCall, run: Callable[[], Any]) -> Any:
        """Try *call* out with every fault, then make it."""
        if self._busy:
            return run()
        self._busy = True
        try:
            before = self._snapshot()
            shape = (
                call.name,
                *call.keys,
                *(str(argument)[:20] for argument in call.arguments[:6]),
            )
            new = shape not in self._seen and self.tried[call.name] < self._tries
            if new and self._succeeds(run):
                self._seen.add(shape)
                self.tried[call.name] += 1
                touched = self._changes(call, before)
                self._try(call, run, before, touched)
            self._restore(before)
            return run()
        finally:
            self._busy = False

    def _succeeds(self, run: Callable[[], Any]) -> bool:
        try:
            run()
        except StoreError:
            return False
        return True

    def _changes(self, call: ScriptCall, before: Snapshot) -> list[str]:
        after = self._snapshot()
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        return sorted({*call.keys, *changed})

    def _try(
        self, call: ScriptCall, run: Callable[[], Any], before: Snapshot, touched: list[str]
    ) -> None:
        self._restore(before)
        whole = self._values()
        for key in touched:
            strings = key in before and self._admin.type(key) == "string"
            self._restore(before)
            self._admin.delete(key)
            if strings:
                self._admin.rpush(key, "foreign")
            else:
                self._admin.set(key, "foreign")
            self._check(call, run, f"a foreign {key}", whole, key)
        for command in sorted(set(COMMAND.findall(source_of(call.name).text))):
            self._restore(before)
            self._admin.execute_command("ACL", "SETUSER", USER, f"-{command.lower()}")
            self._check(call, run, f"{command} forbidden", whole)
            self._admin.execute_command("ACL", "SETUSER", USER, f"+{command.lower()}")
        self._restore(before)
        self._admin.config_set("maxmemory", 1)
        self._check(call, run, "no memory", whole)
        self._admin.config_set("maxmemory", 0)

    def _check(
        self,
        call: ScriptCall,
        run: Callable[[], Any],
        fault: str,
        before: dict[str, Any],
        foreign: str = "",
    ) -> None:
        """A call that fails has changed nothing."""
        self.faults += 1
        if self._succeeds(run):
            return
        after = self._values()
        changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
        if changed - {foreign}:
            self.problems.append(f"{call.name}, {fault}: changed {', '.join(sorted(changed))}")

    def _snapshot(self) -> Snapshot:
        """The dump of each key, and its expiry."""
        keys = sorted(self._admin.keys("*"))
        pipe = self._raw.pipeline(transaction=False)
        for key in keys:
            pipe.dump(key)
            pipe.pttl(key)
        replies = pipe.execute()
        return {
            key: (dump, ttl > 0)
            for key, dump, ttl in zip(keys, replies[::2], replies[1::2], strict=True)
            if dump is not None
        }

    def _values(self) -> dict[str, Any]:
        """The value of each key; the dump of a hash depends on its past."""
        keys = self._admin.keys("*")
        pipe = self._admin.pipeline(transaction=False)
        for key in keys:
            pipe.type(key)
            pipe.pttl(key)
        replies = pipe.execute()
        for key, kind in zip(keys, replies[::2], strict=True):
            READS[kind](pipe, key)
        return {
            key: (value, ttl > 0)
            for key, value, ttl in zip(keys, pipe.execute(), replies[1::2], strict=True)
        }

    def _restore(self, snapshot: Snapshot) -> None:
        pipe = self._raw.pipeline(transaction=False)
        pipe.flushdb()
        for key, (dump, expires) in snapshot.items():
            pipe.restore(key, 3_600_000 if expires else 0, dump)
        pipe.execute()


@pytest.fixture
def trial(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tries: int
) -> Iterator[tuple[Trial, Store]]:
    """A store all of whose scripts are tried out."""
    admin, raw = patient_client(redis_url), redis.Redis.from_url(redis_url)
    admin.execute_command("ACL", "SETUSER", USER, "on", "nopass", "~boyd:*", "+@all")
    attempt = Trial(admin, raw, tries)
    run, run_and_read = Scripts.run, Scripts.run_and_read

    def try_run(self: Scripts, call: ScriptCall, pipe: Any = None) -> Any:
        if pipe is not None:
            attempt(call, lambda: run(self, call))
            return None
        return attempt(call, lambda: run(self, call))

    def try_each(self: Scripts, calls: list[ScriptCall]) -> list[Any]:
        return [try_run(self, call) for call in calls]

    def try_and_read(self: Scripts, call: ScriptCall, add_reads: Reads) -> Any:
        return attempt(call, lambda: run_and_read(self, call, add_reads))

    monkeypatch.setattr(Scripts, "run", try_run)
    monkeypatch.setattr(Scripts, "run_each", try_each)
    monkeypatch.setattr(Scripts, "run_and_read", try_and_read)
    url = redis_url.replace("redis://", f"redis://{USER}:x@")
    client = connect(url)
    yield attempt, Store(client, "w")
    for connection in (client, admin, raw):
        connection.close()


def live(store: Store) -> None:
    """Have an agent do all that scripts are for."""
    a = store.agent("a")
    deployment(store)
    continue_iterations(store.agent("b"))
    iterations(store, a)
    work(store, a)
    effects(store, a)
    procedures(a)
    questions(store, a)
    approvals(store, a)
    losses(store, a)


def deployment(store: Store) -> None:
    """Processes, agents, keys, freezes, answers, plugins."""
    entry = AgentEntry(
        id="a", name="A", mode="event-driven", loop_interval=1.0, plugins=[], fingerprint="f"
    )
    store.fleet.register(entry)
    info = WorkerInfo(
        name="w",
        role="worker",
        host="h",
        queues=["loop"],
        agents=["a"],
        pid=1,
        version="1",
        started_at=utc_now(),
    )
    store.freezes.freeze("maintenance", actor=ANN)
    store.fleet.beat(info)
    store.client.hdel("boyd:{*}:frozen", "*")
    store.fleet.beat(info)
    store.freezes.lift(actor=ANN)
    store.freezes.freeze("maintenance", "a", actor=ANN)
    store.freezes.lift("a", actor=ANN)
    store.throttle(["a"]).acquire(1.0)
    throttle = store.throttle(["a"])
    for _ in range(2):
        throttle.beat(info, 1.0)
    key, text = store.api_keys.create("k", "ann", ["read"], by=ANN)
    assert store.api_keys.admit(text, 10, 10).key
    assert store.storage_budget.take("ann", 10, 10) == 0
    assert store.storage_budget.take("ann", 10, 10) > 0
    secret = store.login_sessions.open(key, address=None, browser="b")
    assert store.login_sessions.admit(secret, 10, 10).key
    assert store.login_sessions.close(digest(secret), ANN)
    store.api_keys.revoke(key.id, by=ANN)
    token = store.idempotency.reserve("digest", "request", 10).token
    store.idempotency.renew("digest", token, 10)
    store.idempotency.keep("digest", token, StoredAnswer(200, {}, "{}"))
    store.idempotency.reserve("digest", "request", 10)
    token = store.idempotency.reserve("other", "request", 10).token
    store.idempotency.release("other", token)
    graph = store.agent("a").graph("notes")
    graph.add([Triple(subject="red planet", predicate="is", object="Mars")])
    graph.remove("red planet", "is", "Mars")
    store.agent("a").state("p").compare_and_set("x", None, 1)
    store.agent("a").model_usage.count("m", "answered", Usage(input_tokens=1, output_tokens=1), 1.0)


def continue_iterations(b: AgentStore) -> None:
    """An iteration whose worker enters each phase as it leaves the one before."""
    run = RunRequest(title="t", description="d")
    b.runs.submit(run, False, ANN, "run1")
    b.loop_control.intake([seen()], start=False, actor=ANN)
    b.loop_control.begin("test")
    entry = b.iterations.enter(1, 1, "start", "w/1", ["startedAt"])
    assert entry
    end = b.iterations.leave_start(entry, ["o"], ["{}"], {"build": "x"}, "w/2")
    assert end == PhaseEnd(BatchEntry(1, 1, 1, "w/2", "{}", ANY, "x"))
    assert end
    assert isinstance(end.entry, BatchEntry)
    last = b.observers.complete_batch(end.entry, {"seen:0": "[]"}, "w/3")
    assert last
    assert last.entry
    assert [run["id"] for run in last.entry.runs] == ["run1"]
    situation = Situation(summary="s")
    end = b.iterations.leave_orient(last.entry, situation, {}, {}, successor="w/4")
    entry = phase_of(end)
    end = b.iterations.leave(entry, "act", {}, successor="w/5")
    entry = phase_of(end)
    end = b.iterations.leave(entry, "complete", {}, successor="w/6")
    entry = phase_of(end)
    b.runs.submit(run, False, ANN, "run2")
    assert b.iterations.finish(entry.fence, result(1), [], FOUND, KEEP) == 2
    entry = b.iterations.enter(2, 1, "start", "w/1", ["startedAt"])
    assert entry
    end = b.iterations.leave_start(entry, [], [], {}, "w/2")
    entry = phase_of(end)
    assert [run["id"] for run in entry.runs] == ["run2"]


def phase_of(end: PhaseEnd | None) -> PhaseEntry:
    """The phase that was entered in the same step."""
    assert end
    assert isinstance(end.entry, PhaseEntry)
    return end.entry


def iterations(store: Store, a: AgentStore) -> None:
    """Two whole iterations, with observers, runs and observations from outside."""
    a.loop_control.pause("maintenance", ANN)
    observations = [seen(), seen("x", metadata={"eventId": "1"})]
    a.loop_control.intake(observations, start=True, actor=ANN, request="r1")
    run = RunRequest(title="t", description="d", callback_url="http://127.0.0.1:9/x")
    a.runs.submit(run, True, ANN, "run1")
    a.loop_control.look_again("test")
    a.loop_control.resume(ANN)
    a.loop_control.begin("test", slot_around(store.client.time()[0]), ANN, "r2")
    entry = a.iterations.enter(1, 1, "start", "w/1")
    assert entry
    a.iterations.put_back(entry, 0.1, {"unserved": ""})
    entry = a.iterations.enter(1, 1, "start", "w/2", ["trigger"])
    assert entry
    a.iterations.renew(1, 1, "w/2")
    assert a.iterations.leave_start(entry, ["o"], ["{}", "{}"], {})
    batch = a.observers.enter_batch(1, 1, 1, "w/3")
    assert batch
    a.observers.renew_batch(batch)
    a.observers.replace_batch(1, 2, 1, ["{}"])
    a.observers.complete_batch(batch, {"seen:0": "[]"})
    a.observers.give_up_batch(StuckBatch(1, 3, 2, "", "", False, 0, False), {})
    entry = a.iterations.enter_orient(1, 1, "w/4")
    assert entry
    assert [run["id"] for run in entry.runs] == ["run1"]
    situation = Situation(summary="s")
    a.iterations.leave_orient(entry, situation, {}, {"added": "[]"})
    entry = a.iterations.enter(1, 1, "decide", "w/5")
    assert entry
    wait(store, a, entry)
    a.iterations.leave(entry, "act", {"decision": "{}"}, "loop")
    entry = a.iterations.enter(1, 1, "act", "w/6")
    assert entry
    fence = Fence(1, 1, "w/6")
    assert claim(a, "loop:1", fence) == "claimed"
    a.executions.renew("loop:1", "token")
    a.executions.finish("loop:1", "token", success())
    a.executions.forgo("loop:2", fence)
    a.iterations.leave(entry, "complete", {})
    entry = a.iterations.enter(1, 1, "complete", "w/7")
    assert entry
    outcomes = [RunOutcome(run_id="run1", status="completed", result=FOUND, approval_id=None)]
    a.runs.submit(RunRequest(title="t", description="d"), False, ANN, "run2")
    assert a.iterations.finish(Fence(1, 1, "w/7"), result(1), outcomes, FOUND, KEEP) == 2
    a.runs.redeliver("run1", ANN)
    a.runs.page(10, status="completed")
    a.history.summaries()
    a.iterations.abandon("no longer wanted", ANN)
    a.iterations.enter(2, 2, "complete", "w/8")
    assert a.iterations.finish(Fence(2, 2, "w/8"), result(2), [], FOUND, KEEP) is not None
    store.seal(["a"])


def wait(store: Store, a: AgentStore, entry: PhaseEntry) -> None:
    """A case that waits before its action, in an iteration without runs."""
    fields_before = store.client.hgetall("boyd:{a}:iteration")
    store.client.hdel("boyd:{a}:iteration", "runs", "intake")
    case = CaseDraw("loop:1", "p:do", "w", DRAW)
    assert a.holdouts.draw(case, entry.fence)
    store.client.hset("boyd:{a}:iteration", mapping=fields_before)
    store.client.hset("boyd:{a}:wait:loop:1", "executionNotBefore", 1)
    fields = a.jobs.enter("wait:loop:1", 1, "w/9")
    assert fields
    fence = Fence("wait:loop:1", 1, "w/9")
    assert a.holdouts.end(Wait.of("loop:1", fields), fence, "well", "seen")
    assert a.jobs.leave(fence, "succeeded", {}, 0)


def work(store: Store, a: AgentStore) -> None:
    """Jobs, with and without trouble."""
    call = CallRequest(kind="execute", action="p:do", params={}, actor=ANN)
    a.calls.submit(call, None, "c1")
    name = "call:c1"
    assert a.jobs.enter(name, 1, "w/1")
    a.jobs.renew(Fence(name, 1, "w/1"))
    assert a.jobs.put_back(Fence(name, 1, "w/1"), 0) == 2
    assert a.jobs.enter(name, 2, "w/2")
    assert claim(a, name, Fence(name, 2, "w/2")) == "claimed"
    store.client.hset("boyd:{a}:execution:call:c1", "leaseUntil", 1)
    a.executions.settle(name)
    assert a.jobs.leave(Fence(name, 2, "w/2"), "succeeded", {"result": "{}"}, 60)
    a.calls.submit(call, None, "c2")
    assert a.jobs.enter("call:c2", 1, "w/3")
    assert a.jobs.leave(Fence("call:c2", 1, "w/3"), "failed", {}, 0)
    a.calls.submit(call, None, "c3")
    take(store, a, "call:c3", lambda proof: a.jobs.retry("call:c3", proof))
    a.calls.submit(call, None, "c9")
    queued = a.calls.get("c9")
    assert queued
    assert a.calls.cancel(queued, "p9", ANN, "not now").outcome == "cancelled"
    a.calls.submit(call, None, "c99")
    assert a.jobs.enter("call:c99", 1, "w/4")
    with pytest.raises(HeldOut):
        claim(a, "call:c99", Fence("call:c99", 1, "w/4"), trial=DRAW)
    assert a.jobs.leave(Fence("call:c99", 1, "w/4"), "failed", {}, 0)
    assert a.holds.lift("p:do", "t", ANN) == "lifted"


def effects(store: Store, a: AgentStore) -> None:
    """Verdicts on what was executed, and the holds and rollbacks that follow from them."""
    call = CallRequest(kind="execute", action="p:do", params={}, actor=ANN)
    verdicts: tuple[EffectName, ...] = ("worse", "effective")
    for number, verdict in enumerate(verdicts, 4):
        name = f"call:c{number}"
        a.calls.submit(call, None, f"c{number}")
        assert a.jobs.enter(name, 1, "w/1")
        assert claim(a, name, Fence(name, 1, "w/1"), verified=True) == "claimed"
        a.executions.finish(name, "token", success())
        store.client.hset(f"boyd:{{a}}:verify:{name}", "executionNotBefore", 1)
        fields = a.jobs.enter(f"verify:{name}", 1, "w/2")
        assert fields
        fence = Fence(f"verify:{name}", 1, "w/2")
        hold = NewHold("suspended") if verdict == "worse" else None
        if hold:
            store.client.hset("boyd:{a}:track:p:do", "s", '{"label": ""}')
            record = a.track_records.get("p:do", "s")
            assert record
            a.track_records.note_offer(record)
            rule = EarnedAutonomy(at_least=0.9, after=5, lasts=60, false_grants=0.05)
            assert a.track_records.grant(record, "g", ["ann"], rule, record.covers, fence)
        assert a.in_flight.find("p:do", "t", name)
        assert a.holds.judge(name, fence, verdict, "seen", 1, hold)
        if hold:
            assert a.holds.record_compensation(name, fence, Compensation(state="none"), hold)
            assert a.holds.lift("p:do", "t", ANN) == "lifted"
        assert a.jobs.leave(Fence(f"verify:{name}", 1, "w/2"), "succeeded", {}, 0)
        back = CallRequest(kind="rollback", action="p:do", undoes=name, actor=ANN)
        a.calls.submit(back, None, f"back{number}")
    store.client.hset("boyd:{a}:track:p:do", "s", GRANTED)
    a.calls.submit(call, None, "c6")
    assert a.jobs.enter("call:c6", 1, "w/1")
    assert claim(a, "call:c6", Fence("call:c6", 1, "w/1"), verified=True) == "claimed"
    a.executions.finish("call:c6", "token", success().patched({"success": False}))
    assert a.holds.lift("p:do", "t", ANN) == "lifted"
    store.client.hset("boyd:{a}:track:p:do", "s", GRANTED)
    assert a.track_records.revoke("p:do", "", ANN) == 1
    a.calls.submit(call, None, "c7")
    assert a.jobs.enter("call:c7", 1, "w/1")
    assert claim(a, "call:c7", Fence("call:c7", 1, "w/1"), boxed=True) == "claimed"
    a.executions.finish("call:c7", "token", success().patched({"violation": BLOCKED}))
    assert a.holds.lift("p:do", "", ANN) == "lifted"


def procedures(a: AgentStore) -> None:
    """A procedure that begins, is stopped, resumed, and cancelled at its end."""
    call = CallRequest(kind="execute", action="p:do", params={}, actor=ANN)
    a.calls.submit(call, None, "c8")
    assert a.jobs.enter("call:c8", 1, "w/1")
    assert claim(a, "call:c8", Fence("call:c8", 1, "w/1")) == "claimed"
    now = utc_now()
    record = ProcedureRecord(
        id="call:c8",
        action="p:do",
        params={},
        target="t",
        state="running",
        steps=[ProcedureStep(id="one", action="p:one")],
        progress=[StepProgress()],
        started_at=now,
        until=now + timedelta(seconds=60),
    )
    assert a.procedures.begin("token", record, success())
    assert a.jobs.enter("procedure:call:c8", 1, "w/2")
    fence = Fence("procedure:call:c8", 1, "w/2")
    stop = {"state": "stopped", "stoppedAt": "1", "tell": ""}
    assert a.procedures.record(record, fence, stop, "stopped", "frozen")
    assert a.procedures.resume("call:c8", "go on", ANN) == "ok"
    assert a.procedures.cancel("call:c8", ANN) == "ok"
    assert a.procedures.end(record, fence, "failed", success(), "why", 60)
    assert a.holds.lift("p:do", "t", ANN) == "lifted"
    assert a.jobs.leave(Fence("procedure:call:c8", 1, "w/2"), "failed", {}, 60)
    waves(a)


def waves(a: AgentStore) -> None:
    """A step over three targets: one fails, is repeated, and the others are undone."""
    call = CallRequest(kind="execute", action="p:do", params={}, actor=ANN)
    a.calls.submit(call, None, "c10")
    assert a.jobs.enter("call:c10", 1, "w/1")
    assert claim(a, "call:c10", Fence("call:c10", 1, "w/1")) == "claimed"
    step = ProcedureStep(id="one", action="p:one", for_each=["x", "y", "z"])
    now = utc_now()
    record = ProcedureRecord(
        id="call:c10",
        action="p:do",
        params={},
        target="t",
        state="running",
        steps=[step],
        progress=[StepProgress()],
        started_at=now,
        until=now + timedelta(seconds=60),
    )
    assert a.procedures.begin("token", record, success())
    assert a.jobs.enter("procedure:call:c10", 1, "w/2")
    fence, wave = Fence("procedure:call:c10", 1, "w/2"), "call:c10:one"
    limits = {"atOnce": 1, "stopAt": 1, "queue": "act", "idempotent": 0}
    forth = {**limits, "mode": "forth", "limit": 3}
    assert a.waves.open(wave, fence, forth) == [naming.target(wave, 0)]
    assert move(a, wave, 0, "done") == [naming.target(wave, 1)]
    assert move(a, wave, 1, "failed") == []
    assert a.waves.repeat(wave, fence, back=False)
    assert a.waves.open(wave, fence, forth, resumed=True) == [naming.target(wave, 1)]
    assert a.procedures.record(record, fence, {"wave": "one"})
    assert a.procedures.cancel("call:c10", ANN) == "ok"
    assert move(a, wave, 1, "pending") == []
    assert a.waves.halt(wave, fence, "cancelled")
    assert a.waves.open(wave, fence, {**limits, "mode": "back"}) == [naming.target(wave, 0)]
    assert move(a, wave, 0, "stuck") == []
    assert a.procedures.end(record, fence, "failed", success(), "why", 60)


def move(a: AgentStore, wave: str, number: int, state: TargetState) -> list[str] | None:
    """Let a worker end a target."""
    name = naming.target(wave, number)
    assert a.jobs.enter(name, 1, "w/3")
    fence = Fence(name, 1, "w/3")
    target = a.waves.get(wave, number)
    assert target
    names = a.waves.move(wave, fence, target.patched({"state": state, "detail": "why"}))
    assert a.jobs.leave(fence, "succeeded", {}, 0)
    return names


def questions(store: Store, a: AgentStore) -> None:
    """Investigations and the runs that they are for."""
    request = InvestigationRequest(question="why?")
    run = RunRequest(title="t", description="d")
    id, _ = a.investigations.ask(
        request, "llm", KEEP, id=str(uuid.UUID(int=1)), origin=Origin(actor=ANN), run=run
    )
    name = f"investigation:{id}"
    assert a.jobs.enter(name, 1, "w/1")
    fence = Fence(name, 1, "w/1")
    change = LogChange(entries=[Asked(text="x", by="ann")], fields={"text": "x"}, step="decides")
    written = a.investigations.write(id, fence, 1, change)
    assert written
    ending = LogChange(
        fields={"ending": "final_answer", "status": "ended"}, keep=1000, event="ended"
    )
    assert a.investigations.write(id, fence, written.version, ending)
    run_ends: list[RunEnding] = [(id, "completed", FOUND)]
    assert a.jobs.leave(Fence(name, 1, "w/1"), "succeeded", {}, 60, run_ends, KEEP)
    assert a.trace_progress.take("t1") is not None
    assert a.trace_progress.note("t1", {"at:iteration": "1", "since": ""})
    a.investigations.go_on(id, Asked(text="and?", by="ann"), "llm", ANN)
    a.investigations.cancel(id, ANN)
    a.investigations.page(5)


def approvals(store: Store, a: AgentStore) -> None:
    """Items that are approved, denied, joined, shown anew, cancelled and forgotten."""
    a.runs.submit(RunRequest(title="t", description="d"), False, ANN, "run3")
    first = a.approvals.enqueue(proposal(1, run_ids=["run3"]), KEEP, "loop:1", notify=True)
    assert a.approvals.enqueue(proposal(1), KEEP, "loop:2") == first
    a.approvals.refresh(first, success())
    assert a.acknowledgements.acknowledge_approval(first, ANN) == "done"
    assert a.acknowledgements.release_approval(first, ANN) == "done"
    row = ["p", "web is down", "web", "down", "high", "", 1]
    store.client.set("boyd:{a}:symptoms", json.dumps({"open": [row], "more": 0, "blind": []}))
    [anomaly] = a.acknowledgements.anomalies()
    assert a.acknowledgements.acknowledge_anomaly(anomaly, ANN) == "done"
    assert a.acknowledgements.release_anomaly(anomaly, ANN) == "done"
    record = NotificationRecord(
        stage="waiting", plugin="notifier", recipient="ops", group="ops", kind="mailto"
    )
    [job] = a.notification_records.plan(first, {record.name: record}, {}, [])
    assert a.jobs.enter(job, 1, "w/1")
    sent = record.patched({"state": "succeeded", "attempts": 1})
    assert a.notification_records.store(first, sent, Fence(job, 1, "w/1"))
    policy = LAX.patched({"min_approvals": 2})
    revoked = person("cid").patched({"key": "0123456789ab"})
    a.approvals.resolve(first, ItemAnswer("approved", revoked), policy, KEEP)
    voted = a.approvals.get(first)
    assert voted is not None
    assert a.approvals.drop_votes(first, [(voted.approvals[0], "revoked")])
    a.approvals.resolve(first, ItemAnswer("approved", ANN), policy, KEEP)
    a.approvals.resolve(first, ItemAnswer("approved", person("bob")), policy, KEEP)
    terms = proposal(2, run_ids=["run3"], wakes=["call:c3"])
    second = a.approvals.enqueue(terms, KEEP, "loop:3")
    a.approvals.resolve(second, ItemAnswer("denied", ANN, "no"), LAX, KEEP)
    assert "denied" in [hold.kind for hold in a.holds.all()]
    third = a.approvals.enqueue(proposal(3, run_ids=["run3"]), KEEP)
    store.client.hset("boyd:{a}:run:run3", "status", "investigating")
    a.runs.cancel("run3", ANN, KEEP, "not wanted")
    assert a.approvals.get(third)
    a.runs.submit(RunRequest(title="t", description="d"), False, ANN, "run4")
    store.client.hset("boyd:{a}:run:run4", "status", "investigating")
    fourth = a.approvals.enqueue(proposal(4, run_ids=["run4"], wakes=["call:c3"]), KEEP)
    store.client.zadd("boyd:{a}:approvals:pending", {fourth: 1})
    a.approvals.expire(KEEP)
    a.approvals.set_deadlines(Retention(ttl=3600))
    fifth = a.approvals.enqueue(proposal(5), KEEP)
    a.approvals.resolve(fifth, ItemAnswer("approved", ANN, result=success()), LAX, KEEP)
    a.approvals.page(10)


def losses(store: Store, a: AgentStore) -> None:
    """Let a phase and a batch lapse, and repair a loop that lost its keys."""
    a.loop_control.begin("test", actor=ANN)
    n = a.loop_control.iteration()
    take(store, a, "phase", a.iterations.retry)
    entry = a.iterations.enter(n, 1, "start", "w/1")
    assert entry
    take(store, a, "phase", a.iterations.retry)
    entry = a.iterations.enter(n, 2, "start", "w/2")
    assert entry
    a.iterations.leave_start(entry, ["o"], ["{}"], {})
    take(store, a, "batch:1", lambda proof: a.observers.retry_batch(1, proof))
    take(store, a, "phase", a.iterations.retry)
    store.client.hset("boyd:{a}:iteration", "phase", "act")
    a.iterations.settle_act(n, 2, "nobody serves it", "loop:2", 30.0)
    store.client.delete("boyd:{a}:iteration", "boyd:{a}:due")
    store.take_due(["a"])
    a.iterations.repair_agent()
    a.iterations.repair_agent(Lost(n, "its record is gone"))


def take(store: Store, a: AgentStore, member: str, retry: Callable[[str], Any]) -> None:
    """Let a deadline pass and look after it."""
    store.client.zadd("boyd:{a}:due", {member: 1})
    store.client.hset("boyd:{a}:loop", "sweptAt", int(store.client.time()[0] * 1000))
    proof = a.due.take()[member]
    retry(proof)


#: A grant that one more failure ends.
GRANTED = json.dumps({"label": "", "drop": 2.9, "grant": {"id": "g", "until": 2e12, "by": ["ann"]}})
DRAW: JsonObject = {
    "share": 0.1,
    "draw": 0.05,
    "class": "s",
    "label": "",
    "params": "{}",
    "within": 60000,
    "every": 1000,
    "queue": "",
}
COUNTING: JsonObject = {
    "class": "s",
    "label": "",
    "confidence": 0.5,
    "prior": 5,
    "queue": "",
    "success": -0.2,
    "failure": 1.4,
    "limit": 3.0,
}


def claim(
    a: AgentStore,
    execution: str,
    fence: Fence,
    verified: bool = False,
    boxed: bool = False,
    trial: JsonObject | None = None,
) -> str:
    """Claim an execution."""
    verification = VerificationPlan(within=5, every=1, hold=True, repeat_after=60, roll_back=False)
    terms = ExecutionTerms(
        budget=Budget(limit=5, window=60),
        verification=verification if verified else None,
        situation="s",
        held=verified,
        counting=COUNTING if verified else None,
        trial=trial,
        concurrency=Concurrency(1, waits=True),
        sandbox=Sandbox(violations=1, window=60) if boxed else None,
    )
    request = execution_request(execution, target="t", terms=terms, fence=fence)
    return a.executions.claim(request, "token").outcome


BLOCKED = LimitViolation(limit="network", detail="x:1 is not a destination")


def success() -> ActionResult:
    """A successful action result."""
    return ActionResult(action="p:do", success=True, duration=0.1)


def result(number: int) -> LoopResult:
    """The result of an iteration."""
    now = utc_now()
    return LoopResult(
        id=f"a-{number}",
        agent_id="a",
        iteration=number,
        trigger="test",
        started_at=now,
        duration=0.1,
        ended_at=now,
        success=True,
    )


def proposal(number: int, **fields: Any) -> Proposal:
    """A proposal unlike all others."""
    decision = Decision(action="p:do", params={"n": number}, rationale="r", confidence=1.0)
    return Proposal(
        decision=decision, action_id="p:do", params={"n": number}, loop_iteration=1, **fields
    )


@pytest.mark.long
@pytest.mark.parametrize("tries", [1, 3])
def test_each_script_does_all_or_nothing(trial: tuple[Trial, Store], tries: int) -> None:
    attempts, store = trial
    live(store)

    assert not attempts.problems, "\n".join(attempts.problems)
    assert set(NAMES) - attempts.tried.keys() == set()
    assert attempts.faults > 400 * tries
