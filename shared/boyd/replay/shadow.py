"""The shadow: an agent that decides on a recorded iteration, and can neither read nor act."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from boyd.agent import Agent
from boyd.agent.agent_rules import Circumstances
from boyd.models import (
    ActionResult,
    Actor,
    ApprovalItem,
    Budget,
    Claim,
    ClaimOutcome,
    Decision,
    DecisionTrace,
    ExecutionEntry,
    ExecutionRequest,
    Fence,
    Gate,
    Hold,
    JsonObject,
    LoopResult,
    Observation,
    ObserverRun,
    Phase,
    PhaseRun,
    PluginReads,
    Problem,
    ProcedureRecord,
    Proposal,
    Read,
    Refusal,
    Situation,
    TapedPhase,
    TrackRecord,
    utc_now,
)
from boyd.models.tape import Course
from boyd.phases import act, decide, observe, orient, time_limit
from boyd.phases.act_request import ActRequest, Requester
from boyd.phases.phase_context import PhaseContext, describe
from boyd.phases.phase_tape import short_key
from boyd.plugin import Action, Context, Observer, Plugin
from boyd.plugin.plugin_boundary import read_all
from boyd.replay.carried_past import CarriedPast, digests_by_plugin
from boyd.replay.playback import Gaps, Playback, StateWrite, UnrecordedRead, WrittenState
from boyd.replay.process_memory import ProcessMemory
from boyd.replay.world_watch import WorldWatch


def target_of(agent: Agent | None, action: str, params: JsonObject) -> str:
    """The target of an action; empty if it has none or is not known."""
    definition = agent.host.actions.get(action) if agent else None
    return definition.final_target(params) if definition else ""


class ShadowLedger:
    """Claims nothing; knows how much of a budget was used then. Implements `Ledger`."""

    def __init__(
        self, agent: Agent, record: LoopResult, gaps: Gaps, past: CarriedPast | None
    ) -> None:
        self._agent = agent
        self._record = record
        self._gaps = gaps
        self._past = past

    def result(self, execution_id: str) -> ActionResult | None:
        """None: nothing was executed."""
        return None

    def get(self, execution_id: str) -> ExecutionEntry | None:
        """None, likewise."""
        return None

    def claim(self, execution: ExecutionRequest) -> Claim:
        """A claim that ends before the action, as its budget was used then."""
        budget = execution.terms.budget
        used = self._use(execution, budget) if budget else None
        if budget and used is None:
            self._gaps.note(f"the use of the budget of {execution.action} was not recorded")
        elif budget and used is not None and used >= budget.limit:
            return Claim(ClaimOutcome.OVER_BUDGET, used=used)
        passed = ActionResult(action=execution.action, success=True, duration=0.0, host="shadow")
        return Claim(ClaimOutcome.DONE, result=passed, used=used)

    def shorten(self, result: ActionResult, principal: str) -> ActionResult:
        """The result; nothing is kept."""
        return result

    def forgo(self, execution_id: str, fence: Fence) -> Claim:
        """No earlier attempt."""
        return Claim(ClaimOutcome.FORGONE)

    def finish(self, execution_id: str, token: str, result: ActionResult) -> bool:
        """True; nothing is recorded."""
        return True

    def begin(self, token: str, record: ProcedureRecord, result: ActionResult) -> bool:
        """True; nothing is started."""
        return True

    def _use(self, execution: ExecutionRequest, budget: Budget) -> int | None:
        """The use of its *budget* by then; None if nothing tells it."""
        gate = self._gate_then(execution)
        if self._past is not None:
            return self._past.budget_use(execution.action, execution.target, budget, gate)
        return _use_in_window(budget, gate) if gate else None

    def _gate_then(self, execution: ExecutionRequest) -> Gate | None:
        """The recorded gate, if it was asked about that action and target."""
        then = self._record.decision
        if then is None or then.action != execution.action:
            return None
        target = target_of(self._agent, then.action, then.params)
        return self._record.gate if target == execution.target else None


def _use_in_window(budget: Budget, gate: Gate) -> int | None:
    """The use of a budget; of another window than then, only bounds are known."""
    then, used = gate.budget, gate.used
    if then is None or used is None or then.window == budget.window:
        return used
    if (budget.window < then.window and used < budget.limit) or (
        budget.window > then.window and used >= budget.limit
    ):
        return used
    return None


class ShadowApprovals:
    """Queues nothing; implements `ApprovalGateway`."""

    def propose(self, proposal: Proposal, execution_id: str, by_machine: bool = False) -> str:
        """A name for an approval that nobody sees."""
        return "shadow"

    def waits(self, proposal: Proposal) -> bool:
        """True, so that no dry run is made."""
        return True

    def approval_of(self, execution_id: str) -> str | None:
        """None: nothing was proposed."""
        return None


#: The beginning of the error of a component that exceeded its time limit.
_OVERRUN = "took longer than"
#: That of the error of one that read what was not recorded.
_UNRECORDED = f"{UnrecordedRead.__name__}: "
_TAPED: tuple[TapedPhase, ...] = ("orient", "decide", "act")
_BEFORE = ("start", "observe")
#: The hooks that are replayed.
_HOOKS = ("on_orient", "on_decide", "on_before_act")


class CannotTell(Exception):
    """Something that the decision depends on was not recorded."""


@dataclass(frozen=True)
class ReplayedDecision:
    """The decision of a shadow with its trace, and the gate's answer if it was asked.

    With a *doubt*, it cannot be told whether something besides the gate stops the action.
    *problems* are the components and hooks that failed.
    """

    decision: Decision
    trace: DecisionTrace
    gate: Gate | None
    doubt: str | None = None
    problems: Sequence[Problem] = ()


class Shadow:
    """One agent, replayed in this process, which should be confined.

    Attributes:
        agent: the agent.
        has_memory: whether a plugin has kept something in this process, which cannot go on then.
        situation: that of the last iteration, unless it depends on something that was not recorded;
            it may be there although the decision cannot be told.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.has_memory = False
        self.situation: Situation | None = None
        self._gaps = Gaps()
        self._dice = random.getstate()
        self._watch = WorldWatch(self._gaps.needs)
        self._functions: list[Callable[..., Any]] = []
        self._memory: ProcessMemory | None = None
        host = agent.host
        components = chain(
            host.observers.values(), host.orienters.values(), host.strategies.values()
        )
        for component in components:
            component.wrap(partial(self._wrap, component.id))
        for hook in chain.from_iterable(map(agent.host.hooks, _HOOKS)):
            by = f"{hook.plugin_id}.{hook.name}"
            hook.taker.function = self._wrap(by, hook.taker.function)

    def _wrap(self, by: str, function: Callable[..., Any]) -> Callable[..., Any]:
        self._functions.append(function)
        return self._watch.wrap(by, function)

    def init_plugins(self) -> None:
        """Initialize every plugin, in order.

        Its `init` sees the playbooks of now, as far as they are known here: those of then are
        recorded with the phases.

        Raises:
            CannotTell: one failed, or read something else.
        """
        for plugin in self.agent.host.plugins.values():
            try:
                plugin.init(self._init_context(plugin.id, self._gaps))
            except Exception as error:
                reasons = self._gaps.found or [f"{plugin.id}.init failed: {describe(error)}"]
                raise CannotTell(reasons[0]) from error
        self._remember()

    def _remember(self) -> ProcessMemory:
        """Remember what plugins hold before the first iteration."""
        self._memory = ProcessMemory(self.agent.host.plugins.values(), self._functions)
        return self._memory

    def _init_context(self, plugin_id: str, gaps: Gaps) -> Context:
        written, now = WrittenState(), utc_now()
        playback = Playback(plugin_id, f"{plugin_id}.init", None, now, gaps, written)
        return _context(self.agent, plugin_id, None, playback, None, self._playbooks)

    def _playbooks(self) -> dict[str, list[str]]:
        plugins = self.agent.host.plugins.values()
        return {plugin.id: self._playbooks_of(plugin) for plugin in plugins}

    def _playbooks_of(self, plugin: Plugin) -> list[str]:
        """The playbooks of a plugin; none if it makes them from what is out of reach here."""
        gaps = Gaps()
        try:
            return read_all(plugin.playbooks(self._init_context(plugin.id, gaps)))
        except Exception:
            if gaps.found:
                return []
            raise

    def replay(self, record: LoopResult, past: CarriedPast | None = None) -> ReplayedDecision:
        """Decide on a recorded iteration, with the *past* or else the recorded one.

        Raises:
            CannotTell: something was not recorded.
        """
        self._gaps.clear()
        self.situation = None
        self._dice = random.getstate()
        memory = self._memory or self._remember()
        self._watch.is_on = True
        phases = _Phases(self.agent, record, self._gaps, past)
        try:
            decision = self._decide(record, phases)
        except BaseException as error:  # whatever a plugin raises ends that iteration only
            gaps = [*self._gaps.found, *self._gaps.late, f"the replay failed: {describe(error)}"]
            raise CannotTell(gaps[0]) from error
        finally:
            self._watch.is_on = False
            if past is not None:
                past.carry_state(record, phases.writes)
        if random.getstate() != self._dice:
            self._gaps.note("a plugin uses random numbers, which are not recorded")
        if change := memory.find_change():
            self.has_memory = True
            self.situation = None
            self._gaps.found.append(
                f"{change} changes, and nothing tells what it held then: use ctx.state"
            )
        if self._gaps.found:
            raise CannotTell(self._gaps.found[0])
        return decision

    def needs(self, action: str) -> NoReturn:
        """Stop a plugin that does *action*, which was not recorded.

        Raises:
            UnrecordedRead: always.
        """
        self._gaps.needs(action)

    def _decide(self, record: LoopResult, phases: _Phases) -> ReplayedDecision:
        for problem in record.problems:
            if problem.phase in _TAPED and problem.error.startswith(_OVERRUN):
                self._gaps.note(f"{problem.id} {problem.error} then")
        orienting = phases.begin("orient")
        orienting.blocks += self._blocks(record)
        situation = orient.orient(orienting, phases.observations(orienting))
        orienting.note_foreign_changes()
        if not self._gaps.found and random.getstate() == self._dice:
            self.situation = situation
        deciding = phases.begin("decide", orienting)
        decision, trace = decide.decide(deciding, situation)
        gate = None
        if not decision.is_no_op:
            gate = phases.gate(deciding, decision, trace, situation)
        phases.note_foreign_changes()
        for problem in phases.problems:
            if problem.error.startswith(_OVERRUN):
                self._gaps.note(f"{problem.id} {problem.error} in the replay")
        doubt = next(iter(self._gaps.late), None)
        failed = [
            problem for problem in phases.problems if not problem.error.startswith(_UNRECORDED)
        ]
        return ReplayedDecision(decision, trace, gate, doubt, failed)

    def _blocks(self, record: LoopResult) -> Iterator[Refusal]:
        """The guards that failed before the phases that are replayed."""
        failed = {
            problem.id: problem.error for problem in record.problems if problem.phase in _BEFORE
        }
        for name in ("on_loop_start", "on_observe"):
            for hook in self.agent.host.hooks(name):
                guard = f"{hook.plugin_id}.{name}"
                if hook.fail_closed and guard in failed:
                    reason = f"guard {guard} failed: {failed[guard]}"
                    yield Refusal(by=hook.plugin_id, reason=reason, action="")


def course(
    agent: Agent | None, decision: Decision, trace: DecisionTrace | None, gate: Gate | None
) -> Course:
    """The course of a decision, with its target if the *agent* is known."""
    stopped = trace and (trace.invalid or trace.vetoed)
    if trace and stopped:
        proposed = trace.proposed
        params = proposed.params if proposed else {}
        action = proposed.action if proposed else stopped.action
        target = target_of(agent, action, params)
        reason = stopped.reason
        return Course(action=action, params=params, target=target, fate="refused", reason=reason)
    if decision.is_no_op or gate is None:
        return Course(action=decision.action, fate="none", reason=decision.rationale)
    return Course(
        action=decision.action,
        params=decision.params,
        target=target_of(agent, decision.action, decision.params),
        fate=gate.outcome,
        reason=gate.reason,
        required=gate.required,
    )


class _Phases:
    """The phases of one recorded iteration."""

    def __init__(
        self, agent: Agent, record: LoopResult, gaps: Gaps, past: CarriedPast | None
    ) -> None:
        self._agent = agent
        self._record = record
        self._gaps = gaps
        self._past = past
        self._written = WrittenState(past, digests_by_plugin(record))
        self._begun: list[_ShadowPhase] = []
        self.problems: list[Problem] = []

    @property
    def writes(self) -> Mapping[tuple[str, str], StateWrite]:
        """The last write to each key of the state."""
        return self._written.all

    def begin(self, phase: TapedPhase, after: PhaseContext | None = None) -> _ShadowPhase:
        """The context of a phase, with the failed guards of the one before."""
        context = _ShadowPhase(self._agent, phase, self._record, self._gaps, self._written)
        context.carried = self._past
        context.problems = self.problems
        context.blocks += after.blocks if after else []
        self._begun.append(context)
        return context

    def observations(self, context: _ShadowPhase) -> list[Observation]:
        """The recorded observations, as their judges see them now."""
        recorded, place, judged = list(self._record.observations), 0, []
        for run in self._record.observer_runs:
            part = recorded[place : place + run.observations]
            judged += self._judge(run, part, context)
            place += run.observations
        return [*judged, *recorded[place:]]

    def _judge(
        self, run: ObserverRun, observations: list[Observation], context: _ShadowPhase
    ) -> list[Observation]:
        """The observations of a run; a judge that remembers something needs a closed loop."""
        observer = self._agent.host.observers.get(run.id)
        if observer is None or not observations:
            return observations
        if observer.judges_by_state and not self._is_judged_anew(observer):
            return observations
        context.observing_on = run.host
        try:
            return observe.judge(observer, observations, context)
        except Exception as error:  # noqa: BLE001 - as where it runs
            context.report(observer.id, error)
            return []

    def _is_judged_anew(self, observer: Observer) -> bool:
        """Report whether a closed loop sees another judge than the recorded one."""
        if self._past is None:
            return False
        builds = (self._agent.build, *self._record.builds)
        plugins = (plugin for build in builds for plugin in build.plugins)
        return len({p.judges for p in plugins if p.id == observer.plugin_id}) > 1

    def note_foreign_changes(self) -> None:
        """Note the state that others changed while a component read it."""
        for phase in self._begun:
            phase.note_foreign_changes()

    def gate(
        self,
        after: PhaseContext,
        decision: Decision,
        trace: DecisionTrace,
        situation: Situation,
    ) -> Gate | None:
        """The gate's answer to a decision; nothing is executed or proposed."""
        acting = self.begin("act", after)
        request = ActRequest(
            "replay",
            decision,
            asked_by=trace.approval_required_by,
            situation=situation,
            requester=Requester(writer=trace.chosen or ""),
        )
        ledger = ShadowLedger(self._agent, self._record, self._gaps, self._past)
        earlier = len(self._gaps.late)
        self._gaps.is_late = True
        _, gate = act.act(acting, request, ledger, ShadowApprovals())
        self._gaps.is_late = False
        late = self._gaps.late[earlier:]
        if gate is None or not late:
            return gate
        reason = f"it would pass the gate; the rest is unknown: {late[0]}"
        return gate.patched({"outcome": "automatic", "reason": reason})


class _ShadowPhase(PhaseContext):
    """A phase whose plugins get what was recorded."""

    def __init__(
        self, agent: Agent, phase: TapedPhase, record: LoopResult, gaps: Gaps, written: WrittenState
    ) -> None:
        super().__init__(agent, phase, _no_context, record.iteration)
        self._taped: TapedPhase = phase
        self._record = record
        self._start = _start_of(record, phase)
        self._ran = _run_of(record, phase)
        self._gaps = gaps
        self._written = written
        self._last = ""
        self._playbacks: dict[str, Playback] = {}
        self.carried: CarriedPast | None = None
        #: The host of the observer whose observations are judged.
        self.observing_on = ""
        self.not_due = list(record.not_due)

    def now(self, plugin_id: str) -> datetime:
        """The time at which windows and conditions were evaluated, or would have been."""
        gate = self._record.gate
        return (gate.at if gate else None) or self._start

    def hold(self, action: Action, target: str) -> Hold | None:
        """The hold of an action on a target, as recorded unless its cause never happened."""
        recorded = self._read_hold(action, target)
        if self.carried is None:
            return recorded
        return self.carried.hold(action.id, target, recorded)

    def _read_hold(self, action: Action, target: str) -> Hold | None:
        """The recorded hold; without a record an action that can be held may have been, or not."""
        taped = _reads_of(self._record, self.phase, action.id)
        for read in taped.reads if taped else ():
            if (
                read.of == "holds"
                and read.key == short_key(target)
                and read.note in (None, "absent")
            ):
                return Hold.from_json(json.dumps(read.value)) if read.value else None
        if self.agent.may_hold(action):
            self._gaps.late.append(f"whether {action.id} was held was not recorded")
        return None

    def record(self, circumstances: Circumstances) -> TrackRecord | None:
        """The track record of an action as the gate saw it then."""
        then = self._record.gate.record if self._record.gate else None
        action = circumstances.action
        if then and (then.action, then.situation) == (action.id, circumstances.situation_class.key):
            return then
        rules = self.agent.rules
        if rules.earning_rule(action.id) or rules.calibrates(action.id):
            self._gaps.note(f"the track record of {action.id} in such situations was not recorded")
        return None

    def call_all(self, calls: Sequence[time_limit.TimedCall]) -> list[time_limit.CallOutcome]:
        """Run all *calls* in turn, so that the outcome does not depend on threads."""
        return time_limit.call_in_turn(calls)

    def context(self, plugin_id: str, by: str = "") -> Context:
        """The `ctx` of a component or hook, which gives it what it read then."""
        if by != self._last and not self._is_side_by_side(by):
            self._written.next_stage()
        self._last = by
        if by not in self._playbacks:
            taped = self._reads(plugin_id, by)
            self._playbacks[by] = Playback(
                plugin_id, by or plugin_id, taped, self._start, self._gaps, self._written
            )
            self._playbacks[by].starts_empty = by in self.host.observers
        context = _context(self.agent, plugin_id, self._record, self._playbacks[by], self._ran)
        return replace(context, host=self.observing_on) if by in self.host.observers else context

    def prefetch_state(self) -> None:
        """Leave it: state comes from the tape."""

    def learn_state_keys(self) -> None:
        """Leave it, likewise."""

    def _reads(self, plugin_id: str, by: str) -> PluginReads | None:
        """The recorded reads of *by*; a strategy can also read what others of its plugin did."""
        own = _reads_of(self._record, self._taped, by)
        if self._taped != "decide" or by not in self.host.strategies:
            return own
        reads = own or PluginReads(by=by, phase=self._taped)
        own_keys = {read.key for read in reads.reads}
        others = (
            other
            for other in self._record.reads
            if other.phase == self._taped and other.by.partition(":")[0] == plugin_id
        )
        spare: dict[str, Read] = {}
        for read in (read for other in others for read in other.reads if read.of == "state"):
            if read.key not in own_keys:
                spare.setdefault(read.key, read)
        if not spare:
            return own
        return reads.patched({"reads": [*reads.reads, *spare.values()]})

    def note_foreign_changes(self) -> None:
        """Note the state that others changed while a component read it."""
        for playback in self._playbacks.values():
            playback.note_foreign_changes()

    def _is_side_by_side(self, by: str) -> bool:
        """Report whether *by* and the last one are orienters, which may run at the same time."""
        return by in self.host.orienters and (not self._last or self._last in self.host.orienters)


def _no_context(_plugin_id: str, _iteration: int | None) -> NoReturn:
    raise AssertionError("a shadow makes its own contexts")


def _reads_of(record: LoopResult, phase: Phase, by: str) -> PluginReads | None:
    return next((reads for reads in record.reads if reads.by == by and reads.phase == phase), None)


def _start_of(record: LoopResult, phase: TapedPhase) -> datetime:
    """The time at which a phase began, or the last one before it."""
    for name in _TAPED[_TAPED.index(phase) :: -1]:
        if ran := _run_of(record, name):
            return record.started_at + timedelta(milliseconds=ran.offset)
    return record.ended_at


def _run_of(record: LoopResult, phase: Phase) -> PhaseRun | None:
    runs = [run for run in record.phase_runs if run.phase == phase and not run.lost]
    return runs[-1] if runs else None


def _context(
    agent: Agent,
    plugin_id: str,
    record: LoopResult | None,
    playback: Playback,
    ran: PhaseRun | None,
    playbooks: Callable[[], Mapping[str, Sequence[str]]] | None = None,
) -> Context:
    def no_link(_item: ApprovalItem, _to: Actor | None, _at: datetime) -> NoReturn:
        playback.refuse("makes links to approvals, which are not recorded")

    nothing: Any = None
    return Context(
        agent=agent.info,
        plugin_id=plugin_id,
        state=playback.state(nothing),
        iteration=record.iteration if record else None,
        now=playback.clock(utc_now),
        catalog=agent.catalog,
        _llm=(lambda _plugin_id: nothing) if agent.settings.llm else None,
        _playbooks=playbooks or playback.playbooks,
        _graph=lambda _name, _of: nothing,
        _approvals=_Nothing(),
        _link=no_link,
        host=(ran.host if ran else None) or "",
        worker=(ran.worker if ran else None) or "",
        not_due={item.id: item.due_at for item in record.not_due} if record else {},
        _watch=playback,
    )


class _Nothing:
    """In place of approvals, which the playback replaces; implements `ApprovalReader`."""

    def get(self, approval_id: str) -> ApprovalItem | None:
        raise NotImplementedError

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        raise NotImplementedError
