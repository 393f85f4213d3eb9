"""The steps of an iteration, as workers take them.

Each step enters its phase with one script, runs the phase function, and leaves with one script
that stores the outcome and makes the next phase due. A step whose message came twice or late finds
nothing to enter. A step whose worker dies is found by the sweeper.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from boyd import queues
from boyd.agent import Agent
from boyd.engine import clearing
from boyd.engine.courier import Courier, UnitHint
from boyd.engine.leases import Leases
from boyd.engine.ledger import LeasedLedger, Waiting
from boyd.errors import BoydError, PluginError, StoreUnavailable
from boyd.loop import act, complete, decide, observe, orient
from boyd.loop.context import HOOK_TIMEOUT, PhaseContext, describe
from boyd.loop.observe import Seen, Unit
from boyd.models import (
    ActionPerformed,
    ActionResult,
    ApprovalItem,
    Decision,
    DecisionTrace,
    LoopResult,
    ObserverHealth,
    Phase,
    Problem,
)
from boyd.outbound import Delivery, post_callback
from boyd.plugin import Context, Llm
from boyd.store import (
    AgentEntry,
    AgentFleet,
    AgentStore,
    Entry,
    Fence,
    Record,
    Retention,
    RunEnd,
    Stale,
    StillRunning,
    dump_blocks,
    dump_problems,
    dump_results,
)
from boyd.store.runs import read_run

log = logging.getLogger("boyd.engine")

#: Seconds beyond another worker's claim after which its phase is looked at again.
PUT_BACK_MARGIN = 1.0
#: What decide and act need of an iteration's record; the observations are not among it.
_TO_DECIDE = ("iteration", "situation", "problems", "blocks")
_TO_ACT = (*_TO_DECIDE, "decision", "trace", "runs")

#: What a phase function is given; it says whether the chain goes on to the next phase.
Work = Callable[[Entry, PhaseContext], bool]

#: Sends a callback: URL, body, an id that stays the same when it is repeated, and the time.
Post = Callable[[str, bytes, str, datetime], Delivery]


def post_unsigned(url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
    """Send a callback without a signature, to public addresses only."""
    return post_callback(
        url, body, webhook_id=webhook_id, at=at, secrets=(), allow_private=False, timeout=10.0
    )


@dataclass(frozen=True)
class EngineSettings:
    """How a worker takes its steps.

    Attributes:
        worker: names this process in leases and claims.
        bundle_size: how many observers travel in one message.
        width: how many observers of a bundle run at the same time.
        max_bytes: the most JSON that one observer may return.
        phase_limit: seconds after which a control phase that hangs loses its lease.
        post: sends the callbacks of runs.
        thinking: how many threads may wait for a model at the same time.
    """

    worker: str
    bundle_size: int = 32
    width: int = 64
    max_bytes: int = 1_000_000
    phase_limit: float = 120.0
    post: Post = post_unsigned
    thinking: int = 4


class Engine:
    """One agent on one worker."""

    def __init__(
        self,
        agent: Agent,
        store: AgentStore,
        fleet: AgentFleet,
        courier: Courier,
        leases: Leases,
        settings: EngineSettings,
        isolate: observe.Isolate | None = None,
    ) -> None:
        self.agent = agent
        self.store = store
        self.fleet = fleet
        self.courier = courier
        self.settings = settings
        self._iterations = store.iterations
        self.leases = leases
        self._isolate = isolate

    def context(self, plugin_id: str, iteration: int | None = None) -> Context:
        """The `ctx` of a plugin."""
        store = self.store
        state = store.state(plugin_id)
        model = self._model if self.agent.settings.llm else None
        agent = self.agent
        now, catalog = store.clock.now, agent.host.catalog
        return Context(
            *(agent.info, plugin_id, state, iteration, now, model, catalog),
            *(self._playbooks, store.graph),
        )

    def _playbooks(self) -> dict[str, list[str]]:
        plugins = self.agent.host.plugins.values()
        return {plugin.id: list(plugin.playbooks(self.context(plugin.id))) for plugin in plugins}

    def _model(self, plugin_id: str) -> Llm:
        from boyd.engine.investigation import Thinking  # an agent without a model does without it

        assert self.agent.settings.llm is not None
        llm = self.agent.settings.llm
        return Thinking(llm, self.store, self.courier, self.retention, plugin_id)

    def init_plugins(self) -> None:
        """Let every plugin prepare, in order.

        Raises:
            PluginError: one cannot; the agent must not start.
        """
        for plugin in self.agent.host.plugins.values():
            try:
                plugin.init(self.context(plugin.id))
            except BoydError:
                raise
            except Exception as error:
                raise PluginError(plugin.id, f"init failed: {describe(error)}") from error

    def entry(self) -> AgentEntry:
        """How the agent is announced to the deployment."""
        settings = self.agent.settings
        return AgentEntry(
            id=self.agent.id,
            name=self.agent.info.name,
            mode=settings.mode,
            loop_interval=settings.loop_interval,
            plugins=list(self.agent.host.plugins),
            fingerprint=self.agent.fingerprint,
            model=settings.llm.model if settings.llm else None,
            catalog=self.agent.host.catalog,
            retention=self.retention,
        )

    def start(self, iteration: int, epoch: int) -> bool:
        """Take the start step: purge, hooks, and the plan of the observe phase (L7-L12)."""
        entry = self._iterations.enter(iteration, epoch, "start", self._token())
        return self._take(entry, self._start)

    def observe(self, iteration: int, unit: int, attempt: int) -> None:
        """Take one unit of the observe phase; whoever signs off last sends orient (L9)."""
        token = self._token()
        payload = self._iterations.enter_unit(iteration, unit, attempt, token)
        if payload is None:
            return
        work = Unit.from_json(payload)
        ctx = PhaseContext(self.agent, "observe", self.context, iteration)

        def renew() -> bool:
            return self._iterations.renew(iteration, f"unit:{unit}", attempt, token)

        with self.leases.hold(renew, self._limit(work)):
            seen = observe.observe(
                ctx, work, self._isolate, self.settings.max_bytes, self.settings.width
            )
        fields = dict(_stored(item) for item in seen)
        signed = self._iterations.sign_off(iteration, unit, attempt, token, fields)
        if signed and signed[0] == 0:
            self.courier.send(self.agent.id, iteration, signed[1], "orient")

    def orient(self, iteration: int, epoch: int) -> bool:
        """Take the orient step: what was seen, with runs and intake, becomes a situation."""
        entry = self._iterations.enter_orient(iteration, epoch, self._token())
        return self._take(entry, self._orient)

    def decide(self, iteration: int, epoch: int) -> bool:
        """Take the decide step and send what it leads to: act, or complete for a no-op."""
        entry = self._iterations.enter(iteration, epoch, "decide", self._token(), _TO_DECIDE)
        return self._take(entry, self._decide)

    def act(self, iteration: int, epoch: int) -> bool:
        """Take the act step: execute the action, or queue it for approval (L28-L34)."""
        entry = self._iterations.enter(iteration, epoch, "act", self._token(), _TO_ACT)
        return self._take(entry, self._act)

    def complete(self, iteration: int, epoch: int) -> bool:
        """Take the last step: hooks, runs, history, and the follow-up if work waits (L35-L38)."""
        entry = self._iterations.enter(iteration, epoch, "complete", self._token())
        return self._take(entry, self._complete)

    def purge_approvals(self) -> list[ApprovalItem]:
        """Move expired approvals to history, with the runs that waited for them (L7, A2)."""
        return self.store.approvals.purge(self.retention)

    @property
    def retention(self) -> Retention:
        """How long the agent's approvals wait, and what it keeps (A1, A14, L37, R6)."""
        settings = self.agent.settings
        approvals = settings.approvals
        waits = approvals.auto_expire and approvals.ttl > 0
        return Retention(
            ttl=approvals.ttl if waits else None,
            max_age=approvals.max_age,
            max_count=approvals.max_history,
            runs_max_age=settings.runs.retention,
            runs_max_count=settings.runs.max_finished,
            iterations_max_age=settings.history.max_age,
            iterations_max_count=settings.history.max_count,
        )

    @property
    def waiting(self) -> Waiting:
        """Where the agent's gated actions wait."""
        notify = bool(self.agent.host.hooks("on_approval"))
        return Waiting(self.store, self.retention, notify)

    def action_limit(self, action_id: str | None) -> float:
        """Seconds after which a step that executes that action counts as hanging."""
        action = self.agent.host.actions.get(action_id or "")
        return self.settings.phase_limit + (action.timeout if action else 0.0)

    def finish(
        self, iteration: int, epoch: int, worker: str, result: LoopResult, runs: list[RunEnd]
    ) -> None:
        """End the iteration and send the follow-up that the end may have started."""
        unheard = complete.run_result(result)
        follow_up = self._iterations.finish(
            iteration, epoch, worker, result, runs, unheard, self.retention
        )
        if follow_up:
            self.courier.send(self.agent.id, follow_up, 1, "start")

    def run_ends(self, result: LoopResult) -> list[RunEnd]:
        """What the iteration's result means for the runs it was investigating."""
        outcomes = [complete.run_outcome(run_id, result) for run_id in result.runs]
        waits_for = next((o.approval_id for o in outcomes if o.approval_id), None)
        item = self.store.approvals.get(waits_for) if waits_for else None
        # A person may have been quicker than this iteration: then the action is done already.
        done = item.result if item else None
        return [_run_end(outcome, done) for outcome in outcomes]

    def _take(self, entry: Entry | None, work: Work) -> bool:
        """Run a phase that was entered, holding its lease; whatever it raises fails it (L38)."""
        if entry is None:
            return False
        record = entry.record
        ctx = PhaseContext(self.agent, entry.phase, self.context, entry.iteration)
        ctx.problems += record.problems
        ctx.blocks += record.blocks

        def renew() -> bool:
            return self._iterations.renew(entry.iteration, "phase", entry.epoch, entry.worker)

        with self.leases.hold(renew, self._phase_limit(entry.phase, record)):
            try:
                return work(entry, ctx)
            except StillRunning as running:
                self._iterations.put_back(entry, running.seconds + PUT_BACK_MARGIN)
                return False
            except (StoreUnavailable, Stale):
                raise  # not the phase's fault: the sweeper sends it again, or has done so
            except Exception as error:
                log.exception("%s failed", entry.phase, extra={"iteration": entry.iteration})
                self._fail(entry, ctx, error)
                return False

    def _start(self, entry: Entry, ctx: PhaseContext) -> bool:
        self.purge_approvals()
        ctx.run_hooks("on_loop_start")
        due = observe.due(ctx, *self._last_runs(), entry.now)
        settings = self.settings
        plan = observe.plan(ctx, due, self.fleet, queues.OBSERVE, settings.bundle_size)
        payloads = [unit.to_json() for unit in plan.units]
        failures = {f"fail:{index}": p.to_json() for index, p in plan.failures.items()}
        planned = self._iterations.plan(
            entry, plan.observers, payloads, failures, ctx.problems, ctx.blocks
        )
        if planned:
            hints = [UnitHint(k, 1, unit.queue) for k, unit in enumerate(plan.units, 1)]
            if hints:
                self.courier.fan_out(self.agent.id, entry.iteration, hints)
            else:
                self._send(entry, "orient")
        return False

    def _orient(self, entry: Entry, ctx: PhaseContext) -> bool:
        record = entry.record
        runs = [complete.run_observation(read_run(fields)) for fields in entry.runs]
        extra = [*record.intake, *runs]
        ctx.phase = "observe"
        observations, added = observe.assemble(ctx, record.seen, extra)
        ctx.phase = "orient"
        situation = orient.orient(ctx, observations)
        health = self._health_after(record, entry.now)
        return self._iterations.leave_orient(
            entry, situation, observe.dump(added), ctx.problems, ctx.blocks, health
        )

    def _decide(self, entry: Entry, ctx: PhaseContext) -> bool:
        situation = entry.record.situation
        assert situation is not None, "orient stores a situation before decide is due"
        decision, trace = decide.decide(ctx, situation)
        queue, refusal = self._destination(decision, trace)
        results = [refusal] if refusal else []
        following: Phase = "complete" if decision.is_no_op or results else "act"
        fields = {
            "decision": decision.to_json(),
            "trace": trace.to_json(),
            "results": dump_results(results),
            "queue": queue if following == "act" else "",
            **_problems(ctx),
        }
        if self._iterations.leave(entry, following, fields):
            self._send(entry, following, queue if following == "act" else None)
        return False

    def _destination(
        self, decision: Decision, trace: DecisionTrace
    ) -> tuple[str, ActionResult | None]:
        """The queue on which the decision is acted on, or the result that says why it is not."""
        if trace.invalid:
            reason = f"Invalid decision: {trace.invalid.reason}"
            return queues.ACT, act.failed(trace.invalid.action, reason)
        if decision.is_no_op:
            return queues.ACT, None
        action = self.agent.host.actions.get(decision.action)
        if action is None:
            return queues.ACT, act.unknown(decision.action)
        # To ask for an approval, any worker that acts will do.
        gated = act.gate(action, decision)
        queue = queues.ACT if gated else action.queue or queues.ACT
        if self.fleet.serving(queue):
            return queue, None
        reason = f"No live worker consumes queue {queue!r}; start one with -Q {queue}"
        return queue, act.failed(action.id, reason)

    def _act(self, entry: Entry, ctx: PhaseContext) -> bool:
        record = entry.record
        decision = record.decision
        assert decision is not None, "decide stores a decision before act is due"
        request = act.Request(
            execution_id=f"loop:{entry.iteration}",
            decision=decision,
            situation_summary=record.situation.summary if record.situation else None,
            run_ids=tuple(record.runs),
            retry=entry.epoch > 1,
            asked_by=record.trace.asked_by if record.trace else None,
        )
        fence = Fence(entry.iteration, entry.epoch, entry.worker)
        ledger = LeasedLedger(self.store, self.leases, fence)
        result = act.act(ctx, request, ledger, self.waiting)
        fields = {"results": dump_results([result]), **_problems(ctx)}
        return self._iterations.leave(entry, "complete", fields)

    def _complete(self, entry: Entry, ctx: PhaseContext) -> bool:
        result = entry.record.result(self.agent.id, entry.now)
        ctx.run_hooks("on_loop_complete", result=result)
        result = result.patched({"problems": ctx.problems})
        clearing.follow(self.agent, self.store, self.retention, entry.record, result)
        runs = self.run_ends(result)
        self.finish(entry.iteration, entry.epoch, entry.worker, result, runs)
        return False

    def ruined(self, record: Record, ended_at: datetime, why: str) -> LoopResult:
        """The result of an iteration that cannot be completed: as much as can be read of it."""
        try:
            result = record.result(self.agent.id, ended_at)
        except ValidationError:
            return record.ruined(self.agent.id, ended_at, why)
        return result.patched({"success": False, "error": why})

    def _fail(self, entry: Entry, ctx: PhaseContext, error: Exception) -> None:
        why = f"{entry.phase} failed: {describe(error)}"
        if entry.phase == "complete":
            result = self.ruined(entry.record, entry.now, entry.record.error or why)
            self.finish(entry.iteration, entry.epoch, entry.worker, result, self.run_ends(result))
        elif self._iterations.leave(entry, "complete", {"error": why, **_problems(ctx)}):
            self._send(entry, "complete")

    def _send(self, entry: Entry, phase: Phase, queue: str | None = None) -> None:
        self.courier.send(self.agent.id, entry.iteration, entry.epoch, phase, queue)

    def _last_runs(self) -> tuple[dict[str, float], dict[str, ObserverHealth]]:
        # A manual agent runs every observer every time, so there is nothing to look up (L10).
        return ({}, {}) if self.agent.settings.mode == "manual" else self._iterations.last_runs()

    def _health_after(self, record: Record, now: datetime) -> dict[str, ObserverHealth]:
        names = record.observers
        saw = {names[index] for index in record.seen}
        # One shard or host that fails is an error of the iteration, not of the observer (L15).
        failed = {p.id: p for p in record.observer_errors if p.id not in saw}
        ran = dict.fromkeys(names)
        before = self._iterations.health(list(failed))
        interval = self.agent.settings.loop_interval
        return observe.health_after(before, ran, failed, now, interval)

    def _limit(self, unit: Unit) -> float:
        observers = self.agent.host.observers
        longest = max(
            (o.timeout for t in unit.tasks if (o := observers.get(t.observer))), default=1.0
        )
        waves = -(-len(unit.tasks) // self.settings.width)
        return longest * waves + HOOK_TIMEOUT

    def _phase_limit(self, phase: Phase, record: Record) -> float:
        if phase != "act" or record.decision is None:
            return self.settings.phase_limit
        return self.action_limit(record.decision.action)

    def _token(self) -> str:
        return f"{self.settings.worker}/{uuid.uuid4().hex[:8]}"


def _run_end(outcome: complete.RunOutcome, done: ActionResult | None) -> RunEnd:
    if outcome.approval_id is None or done is None:
        return RunEnd(outcome.run_id, outcome.status, outcome.result, outcome.approval_id)
    result = outcome.result.patched({"actions_performed": [ActionPerformed.of(done)]})
    status = "completed" if done.success else "failed"
    return RunEnd(outcome.run_id, status, result, outcome.approval_id)


def _stored(seen: Seen) -> tuple[str, str]:
    if seen.observations is not None:
        return f"seen:{seen.task.index}", seen.observations
    problem = Problem(
        id=seen.task.observer,
        phase="observe",
        error=seen.error or "no reason known",
        duration=round(seen.duration, 3),
    )
    return f"fail:{seen.task.index}", problem.to_json()


def _problems(ctx: PhaseContext) -> dict[str, str]:
    return {"problems": dump_problems(ctx.problems), "blocks": dump_blocks(ctx.blocks)}
