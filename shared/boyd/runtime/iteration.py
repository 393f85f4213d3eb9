"""Runs the steps of an iteration.

A step enters its phase with one script, runs the phase function, and leaves with one script that
stores the outcome and makes the next phase due. A worker that goes on with that phase enters it in
the same script; otherwise a message is sent. A repeated or late message finds nothing to enter.
The sweeper finds a step whose worker died, and one that nobody took.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from boyd import naming
from boyd.errors import StoreUnavailable
from boyd.messaging.dispatcher import FOLLOWS, BatchHint
from boyd.models import (
    NO_SITUATION,
    ActionResult,
    Decision,
    DecisionTrace,
    Gate,
    Holdout,
    ObserverHealth,
    Phase,
    Prevention,
    Problem,
)
from boyd.phases import act, action_call, decide, observe, orient
from boyd.phases.act_request import ActRequest, ProposalTerms, Requester
from boyd.phases.gate import annotate, conclude, judge, refuse
from boyd.phases.observe import Batch, ObserverResult
from boyd.phases.phase_context import HOOK_TIMEOUT, PastActions, PhaseContext, describe
from boyd.plugin import Action
from boyd.plugin.plugin_boundary import contain
from boyd.runtime import ending
from boyd.runtime.autonomy.case_draws import CaseDraws
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import HANDOVERS, SEARCH, Elsewhere, leave_to_others
from boyd.runtime.leases import PUT_BACK_MARGIN
from boyd.runtime.triggers import TICK
from boyd.store import (
    BatchEntry,
    BatchRun,
    PhaseEnd,
    PhaseEntry,
    Record,
    Stale,
    StillRunning,
    build_fields,
    dump_blocks,
    dump_changes,
    dump_not_due,
    dump_problems,
    dump_reads,
    dump_results,
)
from boyd.store.runs import read_run
from boyd.text import queues

log = logging.getLogger("boyd.runtime")

#: Fields of an iteration's record that decide needs; not its observations.
_TO_DECIDE = ("iteration", "timeline", "runs", "notDue", "situation", "problems", "blocks", "build")
#: Fields that phases need; orient and complete need the whole record.
_FIELDS: dict[Phase, tuple[str, ...]] = {
    "start": ("iteration", "timeline", "startedAt", "trigger"),
    "decide": _TO_DECIDE,
    "act": (*_TO_DECIDE, "decision", "trace", "unserved", "holdout", "gate", "queue", HANDOVERS),
}


@dataclass(frozen=True)
class NextStep:
    """A phase that is due under an epoch: entered by this worker, or to be sent to a queue."""

    phase: Phase
    iteration: int
    epoch: int
    queue: str = queues.LOOP
    entry: PhaseEntry | BatchEntry | None = None


#: Runs a phase and leaves it; returns what follows, unless messages were sent or nothing does.
Work = Callable[[PhaseEntry, PhaseContext], NextStep | None]


@dataclass(frozen=True)
class _Destination:
    """The place where a decision is executed.

    Attributes:
        queue: of the act phase; empty: there is no act phase.
        refusal: the result of a decision that is not executed.
        obstacle: the reason why that queue can only propose the action, not execute it.
        gate: the verdict, unless the act phase is to judge when the action starts.
        holdout: the draw by which its case need not wait, if there was one.
    """

    queue: str = ""
    refusal: ActionResult | None = None
    obstacle: str = ""
    gate: Gate | None = None
    holdout: Holdout | None = None


def _refuse(result: ActionResult, gate: Gate | None = None) -> _Destination:
    """The end of a decision without an act phase."""
    return _Destination(refusal=result, gate=gate or refuse(result))


class IterationSteps:
    """The steps of one agent's iterations on one worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._agent = engine.agent
        self._store = engine.store
        self._iterations = engine.store.iterations
        self._settings = engine.settings
        self._draws = CaseDraws(engine)
        self._works: dict[Phase, Work] = {
            "start": self._start,
            "orient": self._orient,
            "decide": self._decide,
            "act": self._act,
            "complete": self._complete,
        }

    def run(self, phase: Phase, *ids: int) -> bool:
        """Run the step of a message, and those that follow it as long as this worker takes them.

        A step that is left to others is sent to its queue, unless the chain of *phase* sends it.

        Returns:
            Whether that chain goes on.
        """
        entry = self._enter(phase, *ids)
        step = self._go_on(entry) if entry else None
        goes_on = step is not None and step.entry is None and FOLLOWS.get(phase) == step.phase
        while step and step.entry:
            step = self._go_on(step.entry)
        if step and not goes_on:
            self._engine.dispatcher.send(
                self._agent.id, step.iteration, step.epoch, step.phase, step.queue
            )
        return goes_on

    def _enter(self, phase: Phase, *ids: int) -> PhaseEntry | BatchEntry | None:
        """Enter what a message names: a phase by iteration and epoch, or a batch."""
        worker = self._engine.attempt_name()
        if phase == "observe":
            iteration, batch, attempt = ids
            return self._store.observers.enter_batch(iteration, batch, attempt, worker)
        iteration, epoch = ids
        if phase == "orient":
            return self._iterations.enter_orient(iteration, epoch, worker)
        return self._iterations.enter(iteration, epoch, phase, worker, _FIELDS.get(phase, ()))

    def _go_on(self, entry: PhaseEntry | BatchEntry) -> NextStep | None:
        if isinstance(entry, BatchEntry):
            return self._observe(entry)
        return self._run_under_lease(entry, self._works[entry.phase])

    def _successor(self, queue: str) -> str:
        """Name the attempt of this worker at the next step; empty leaves that to *queue*."""
        return self._engine.attempt_name() if self._settings.may_take(queue) else ""

    def _run_under_lease(self, entry: PhaseEntry, work: Work) -> NextStep | None:
        """Run an entered phase under its lease; an error fails the iteration."""
        record = entry.record
        ctx = PhaseContext(
            self._agent,
            entry.phase,
            self._engine.context,
            entry.iteration,
            PastActions(self._store.holds.get, self._store.track_records.get),
            self._engine.confiner,
        )
        ctx.problems += record.problems
        ctx.blocks += record.blocks
        ctx.not_due = record.not_due

        def renew() -> bool:
            return self._iterations.renew(entry.iteration, entry.epoch, entry.worker)

        with self._engine.leases.renewing(renew, self._phase_limit(entry.phase, record)):
            try:
                return contain(lambda: work(entry, ctx))
            except StillRunning as running:
                self._iterations.put_back(entry, running.seconds + PUT_BACK_MARGIN)
                return None
            except Elsewhere as other:
                noted = other.note(entry.fields, self._settings.worker)
                self._iterations.put_back(entry, SEARCH, noted)
                return None
            except (StoreUnavailable, Stale):
                raise  # not the phase's fault: the sweeper sends it again, or already has
            except Exception as error:
                log.exception("%s failed", entry.phase, extra={"iteration": entry.iteration})
                return self._fail(entry, ctx, error)

    def _start(self, entry: PhaseEntry, ctx: PhaseContext) -> NextStep | None:
        ctx.run_hooks("on_loop_start")
        tick = entry.record.trigger == TICK
        due = observe.due(ctx, *self._last_runs(), entry.now, tick)
        settings = self._settings
        plan = observe.plan(ctx, due, self._engine.fleet, queues.OBSERVE, settings.bundle_size)
        payloads = [batch.to_json() for batch in plan.batches]
        queue = plan.batches[0].queue if plan.batches else queues.LOOP
        failures = {f"fail:{index}": p.to_json() for index, p in plan.failures.items()}
        end = self._iterations.leave_start(
            entry,
            plan.observers,
            payloads,
            {
                **failures,
                **_problems(ctx),
                "notDue": dump_not_due(ctx.not_due),
                **build_fields(self._engine.build),
            },
            self._successor(queue),
        )
        if not end:
            return None
        if end.entry or not payloads:
            return _after(entry, "observe" if payloads else "orient", end)
        hints = [BatchHint(k, 1, batch.queue) for k, batch in enumerate(plan.batches, 1)]
        self._engine.dispatcher.fan_out(self._agent.id, entry.iteration, hints)
        return None

    def _observe(self, entry: BatchEntry) -> NextStep | None:
        """Run a batch of the observe phase; orient follows the last one to complete."""
        work = Batch.from_json(entry.payload)
        ctx = PhaseContext(self._agent, "observe", self._engine.context, entry.iteration)

        def renew() -> bool:
            return self._store.observers.renew_batch(entry)

        with self._engine.leases.renewing(renew, self._limit(work)):
            results = observe.observe(
                ctx, work, self._engine.isolate, self._settings.max_bytes, self._settings.width
            )
        fields = dict(_result_field(item, self._settings.host) for item in results)
        tasks = {item.task.index: (item.count, round(item.duration, 1)) for item in results}
        offsets = [round(entry.offset + item.offset) for item in results]
        build = self._engine.build
        other = build.id if build.id != entry.build else ""
        host, worker = self._settings.host, self._settings.worker
        fields |= BatchRun(host, worker, tasks, entry.attempt, offsets, other).fields(entry.batch)
        if other:
            fields[f"build:{build.id}"] = build.to_json()
        successor = self._successor(queues.LOOP)
        end = self._store.observers.complete_batch(entry, fields, successor)
        if not end or end.open_batches > 0:
            return None
        return NextStep("orient", entry.iteration, end.epoch, entry=end.entry)

    def _orient(self, entry: PhaseEntry, ctx: PhaseContext) -> NextStep | None:
        record = entry.record
        runs = [observe.observation_of_run(read_run(fields)) for fields in entry.runs]
        extra = [*observe.mark_forged(ctx, record.intake), *runs]
        # Hooks add observations: their problems are those of the observe phase.
        ctx.phase = "observe"
        observations, added = observe.assemble(ctx, record.observation_texts, extra)
        ctx.phase = "orient"
        situation = orient.orient(ctx, observations)
        fields = {"added": observe.dump(added), **_problems(ctx), **self._tape(entry, ctx)}
        end = self._iterations.leave_orient(
            entry,
            situation,
            self._health_after(record, entry.now),
            fields,
            orient.blind_plugins(ctx, record.observer_errors),
            self._successor(queues.LOOP),
        )
        return _after(entry, "decide", end)

    def _decide(self, entry: PhaseEntry, ctx: PhaseContext) -> NextStep | None:
        situation = entry.record.situation
        assert situation is not None, "orient stores a situation before decide is due"
        decision, trace = decide.decide(ctx, situation)
        where = self._destination(entry, ctx, decision, trace)
        following: Phase = "act" if where.queue else "complete"
        fields = {
            "decision": decision.to_json(),
            "trace": trace.to_json(),
            "results": dump_results([where.refusal] if where.refusal else []),
            "unserved": where.obstacle,
            "holdout": where.holdout.to_json() if where.holdout else "",
            **_gate(where.gate),
            **_problems(ctx),
            **self._tape(entry, ctx),
        }
        return self._leave(entry, following, fields, where.queue)

    def _destination(
        self, entry: PhaseEntry, ctx: PhaseContext, decision: Decision, trace: DecisionTrace
    ) -> _Destination:
        if trace.invalid:
            reason = f"Invalid decision: {trace.invalid.reason}"
            return _refuse(action_call.failure(trace.invalid.action, reason))
        if decision.is_no_op:
            return _Destination()
        action = self._agent.host.actions.get(decision.action)
        if action is None:
            return _refuse(action_call.no_such_action(decision.action))
        queue = action.queue or queues.ACT
        circumstances = ctx.circumstances(action, decision, entry.record.situation or NO_SITUATION)
        verdict = judge(self._agent, circumstances, trace.approval_required_by)
        if self._agent.rules.earning_rule(action.id):
            verdict = self._draws.draw(entry, circumstances, verdict)
        if verdict.outcome == "asked":
            return self._proposing(action, annotate(self._agent, circumstances, verdict))
        if verdict.outcome == "refused":
            is_waiting = verdict.holdout is not None
            kind: Prevention = "held" if is_waiting else "closed"
            refusal = action_call.failure(action.id, verdict.reason, prevented=kind)
        elif self._engine.fleet.serving(queue):
            return _Destination(queue, holdout=verdict.holdout)
        else:
            reason = queues.no_worker_message(queue)
            refusal = action_call.failure(action.id, reason, prevented="unserved")
        return _refuse(refusal, conclude(self._agent, circumstances, verdict, refusal))

    def _proposing(self, action: Action, gate: Gate) -> _Destination:
        """The place where an approval is proposed: only a dry run needs a worker that acts."""
        if not action.has("dry_run"):
            obstacle = "Not executed: it needs an approval"
        elif self._engine.fleet.serving(queues.ACT):
            return _Destination(queues.ACT, gate=gate)
        else:
            obstacle = queues.no_worker_message(queues.ACT)
        return _Destination(queues.LOOP, obstacle=obstacle, gate=gate)

    def _act(self, entry: PhaseEntry, ctx: PhaseContext) -> NextStep | None:
        record = entry.record
        decision = record.decision
        assert decision is not None, "decide stores a decision before act is due"
        execution = naming.iteration_execution(record.id)
        if decision.action not in self._engine.agent.host.actions:
            leave_to_others(self._engine, decision.action, entry.fields)
            # The last worker with the action may have been lost after it had begun it.
            if outcome := self._store.executions.settle(execution):
                lost = ending.action_fields(self._engine, record, outcome)
                return self._leave(entry, "complete", lost)
        request = ActRequest(
            execution_id=execution,
            decision=decision,
            situation=record.situation,
            proposal=ProposalTerms(
                run_ids=tuple(record.runs),
                instead_of=tuple(h.reason for h in record.trace.held) if record.trace else (),
            ),
            retry=entry.epoch > 1,
            asked_by=record.trace.approval_required_by if record.trace else None,
            obstacle=entry.fields.get("unserved", ""),
            gate=record.gate,
            fence=entry.fence,
            requester=Requester(writer=(record.trace and record.trace.chosen) or ""),
        )
        result, gate = act.act(ctx, request, self._engine.ledger(), self._engine.approvals)
        if gate and (text := entry.fields.get("holdout")):
            gate = gate.patched({"holdout": Holdout.from_json(text)})
        fields = {
            "results": dump_results([result]),
            **_gate(gate),
            **_problems(ctx),
            **self._tape(entry, ctx),
        }
        return self._leave(entry, "complete", fields)

    def _complete(self, entry: PhaseEntry, ctx: PhaseContext) -> None:
        result = entry.record.result(self._agent.id, entry.now)
        ctx.run_hooks("on_loop_complete", result=result)
        result = ending.with_known_outcome(self._store, entry.record, result)
        result = result.patched({"problems": ctx.problems})
        ending.withdraw_cleared(self._engine, entry.record, result)
        store_results = entry.record.abandoned_phase is not None
        ending.end(self._engine, entry.fence, result, store_results)

    def _fail(self, entry: PhaseEntry, ctx: PhaseContext, error: Exception) -> NextStep | None:
        reason = f"{entry.phase} failed: {describe(error)}"
        if entry.phase == "complete":
            reason = entry.record.error or reason
            result = ending.failure_of(self._agent.id, entry.record, entry.now, reason)
            ending.end(self._engine, entry.fence, result)
            return None
        fields = {"error": reason, **_problems(ctx), **self._tape(entry, ctx)}
        # A started action has had its effect, whatever failed after it.
        done = entry.phase == "act" and self._store.executions.settle(
            naming.iteration_execution(entry.record.id)
        )
        if done:
            fields |= ending.action_fields(self._engine, entry.record, done)
        return self._leave(entry, "complete", fields)

    def _leave(
        self, entry: PhaseEntry, following: Phase, fields: dict[str, str], queue: str = ""
    ) -> NextStep | None:
        successor = self._successor(queue or queues.LOOP)
        end = self._iterations.leave(entry, following, fields, queue, successor)
        return _after(entry, following, end, queue or queues.LOOP)

    def _tape(self, entry: PhaseEntry, ctx: PhaseContext) -> dict[str, str]:
        """Return the fields for what the phase depended on."""
        build = self._engine.build
        return build_fields(build, entry.record.build, entry.phase) | _tape_fields(ctx)

    def _last_runs(self) -> tuple[dict[str, float], dict[str, ObserverHealth]]:
        # A manual agent always runs every observer.
        manual = self._agent.settings.mode == "manual"
        return ({}, {}) if manual else self._store.observers.last_runs()

    def _health_after(self, record: Record, now: datetime) -> dict[str, ObserverHealth]:
        names = record.observers
        saw = {names[index] for index in record.observation_texts}
        # A single failed shard or host does not make the observer unhealthy.
        failed = {p.id: p for p in record.observer_errors if p.id not in saw}
        ran = dict.fromkeys(names)
        before = self._store.observers.health(list(failed))
        interval = self._agent.settings.loop_interval
        return observe.health_after(before, ran, failed, now, interval)

    def _limit(self, batch: Batch) -> float:
        observers = self._agent.host.observers
        longest = max(
            (o.timeout for t in batch.tasks if (o := observers.get(t.observer))), default=1.0
        )
        waves = -(-len(batch.tasks) // self._settings.width)
        return longest * waves + HOOK_TIMEOUT

    def _phase_limit(self, phase: Phase, record: Record) -> float:
        if phase != "act" or record.decision is None:
            return self._settings.phase_limit
        return self._engine.action_limit(record.decision.action)


def _after(
    entry: PhaseEntry, phase: Phase, end: PhaseEnd | None, queue: str = queues.LOOP
) -> NextStep | None:
    """The step after a phase; none when that was lost."""
    if end is None:
        return None
    return NextStep(phase, entry.iteration, entry.epoch, queue, end.entry)


def _result_field(result: ObserverResult, host: str) -> tuple[str, str]:
    if result.observations is not None:
        return f"seen:{result.task.index}", result.observations
    problem = Problem(
        id=result.task.observer,
        phase="observe",
        error=result.error or "unknown error",
        duration=round(result.duration, 3),
        host=host,
    )
    return f"fail:{result.task.index}", problem.to_json()


def _tape_fields(ctx: PhaseContext) -> dict[str, str]:
    """Return the fields for what a phase recorded: reads, and changes of the situation."""
    changes = {"situationChanges": dump_changes(ctx.changes)} if ctx.changes else {}
    reads = ctx.reads()
    fields = {f"reads:{ctx.phase}": dump_reads(reads)} if reads else {}
    return changes | fields


def _gate(gate: Gate | None) -> dict[str, str]:
    return {"gate": gate.to_json()} if gate else {}


def _problems(ctx: PhaseContext) -> dict[str, str]:
    return {"problems": dump_problems(ctx.problems), "blocks": dump_blocks(ctx.blocks)}
