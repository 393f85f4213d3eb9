"""Judges a world by its effects and by what clients were told, without its state.

Each violation is a sentence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import Any

from boyd import Procedure, naming
from boyd.messaging.celery_app import JOB
from boyd.models import ActionResult, ExecutionEntry, ProcedureRecord
from boyd.plugin.composed_action import ASK
from simulation.scenarios import AT_ONCE, HOSTS, STEPS, STOP_AT, TICKS, UNDOES, WAVE_ENDS
from simulation.world import BEGIN, HARMLESS, OF_PROCESSES, Answer, Effect, World

#: Seconds within which an action whose only worker has crashed is reported: those that
#: docs/protocol.md derives, and those until the client asks again and the iteration is completed.
REPORT = 4.95 + 2.0
#: Seconds within which a lost message is sent again while all processes live, as docs/protocol.md
#: derives, and those that the commands of a sweep take.
RESEND = 3.2 + 0.1
#: What clients say they ask for, and what stays true although Redis has lost it.
LASTING = {"orders", "lifts", "asks", "began", "result"}
#: Seconds within which the archive has what a client knows to have ended, if it has not just begun:
#: "about a second", a pause for more, and the second after which the client looks again.
ARCHIVED = 2.5
#: Seconds by which the answer of Redis may come after its clock has decided.
MARGIN = 0.05
#: Seconds by which a beat that estimates the clock of Redis may be ahead of it.
AHEAD = 0.01


class Judge:
    """Compares what was done with what clients were told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._begins = Counter(e.execution for e in world.effects if e.kind == "begin")
        self._ends = Counter(e.execution for e in world.effects if e.kind == "end")
        self._kinds = {fault.kind for _, _, fault in world.past}
        #: The processes whose work may have been lost.
        self._struck = {who for _, who, fault in world.past if fault.kind in OF_PROCESSES}
        #: The targets on which something was seen to have done harm.
        self._harmed = {
            e.target for e in world.effects if (e.kind, e.execution) == ("look", "worse")
        }
        self._answers: defaultdict[str, list[tuple[str, Answer]]] = defaultdict(list)
        for answer in world.answers:
            kind, _, about = answer.about.partition(" ")
            if kind in LASTING or not self._is_forgotten(answer.at):
                self._answers[kind].append((about, answer))
        #: How often each was executed, for each time that it was ordered after a loss.
        self._executions = Counter(
            self._order_of(e.execution, e.at) for e in world.effects if e.kind == "begin"
        )
        self._items = {about: a.value for about, a in self._answers["item"]}
        #: The calls that do nothing by themselves, and may so be answered again and again.
        actions = world.agent.host.actions
        self._harmless = {_KNOCK} | {
            naming.approval(about)
            for about, subject in self._items.items()
            if subject == ASK or isinstance(actions.get(subject), Procedure)
        }
        #: The approvals whose action, or a step of which, was executed.
        self._acted = {naming.approval_in(execution) for execution in self._begins}
        #: The targets that a person has to decide on, and when one orders to repeat what failed.
        self._asking = getattr(world.agent.host.plugins.get("rolling"), "asking", ())
        decisions = [a.at for _, a in self._answers["decides"] if a.value == "repeat"]
        self._repeated_at = min(decisions, default=inf)

    def violations(self) -> list[str]:
        """Everything that must not be."""
        return [
            *self.world.problems,
            *self._repetitions(),
            *self._losses(),
            *self._results(),
            *self._records(),
            *self._changes(),
            *self._approvals(),
            *self._votes(),
            *self._overlaps(),
            *self._cases(),
            *self._cancellations(),
            *self._holds(),
            *self._freezes(),
            *self._notices(),
            *self._procedures(),
            *self._waves(),
            *self._slots(),
            *self._observers(),
            *self._late_reports(),
            *self._late_messages(),
            *self._archive(),
        ]

    def _is_forgotten(self, at: float, now: float = inf) -> bool:
        """Report whether Redis had lost by now what it wrote, and acknowledged, at a time."""
        return any(since <= at <= until + MARGIN < now for since, until in self.world.losses)

    def _order_of(self, execution: str, at: float) -> tuple[str, int]:
        """An execution, with the number of the order to which it belongs at a time.

        Who finds after a failover that Redis knows nothing of an order may give it again. Each
        may lead to one execution; what nobody has ordered again is executed once.
        """
        failovers = [until for _, until in self.world.losses]
        orders = {
            bisect_left(failovers, order.at)
            for about, order in self._answers["orders"]
            if about == execution
        }
        return execution, max(1, bisect_right(sorted(orders), bisect_left(failovers, at)))

    def _repetitions(self) -> Iterator[str]:
        for (execution, _), times in self._executions.items():
            if times > 1:
                yield f"{execution} was executed {times} times"
        if self._kinds <= HARMLESS:
            calls = Counter(e.execution for e in self.world.effects if e.kind == "call")
            for call, times in calls.items():
                if times > 1:
                    yield f"{call} was called {times} times, although no process was lost"

    def _losses(self) -> Iterator[str]:
        """Whatever a replica has, and Redis has acknowledged, is there after a failover."""
        for execution, accepted in self._answers["accepted"]:
            for about, order in self._answers["orders"]:
                if about == execution and order.at > accepted.at:
                    yield f"{execution} was accepted, and later nothing was known of it"

    def _results(self) -> Iterator[str]:
        """Results have to agree with the effects."""
        for execution, answer in self._answers["result"]:
            if execution in self._harmless:
                continue
            order = self._order_of(execution, answer.at)
            times, ends = self._executions[order], self._ends[execution]
            result = answer.value
            state = result.state if isinstance(result, ActionResult) else "never executed"
            if state == "unknown" and not self._is_in_doubt(execution, answer.at):
                yield f"the outcome of {execution} is unknown, although no process failed"
            elif state == "succeeded" and (times != 1 or not ends) and not _waits(result):
                yield f"{execution} succeeded, they say, and was executed {times} times"
            elif state == "never executed" and self._is_decided_anew(execution):
                continue
            elif times and (state in ("failed", "unneeded", "never executed") or _waits(result)):
                yield f"{execution} {state}, they say, and was executed {times} times"

    def _is_in_doubt(self, execution: str, at: float) -> bool:
        """Check for a fault that may leave an outcome unknown: a failover only if it came later."""
        kinds = self._kinds & OF_PROCESSES
        if kinds != {"fail over"} or "clock" in self._kinds:
            return bool(kinds)
        orders = (answer.at for about, answer in self._answers["orders"] if about == execution)
        begins = (answer.value for about, answer in self._answers["began"] if about == execution)
        start = max((time for time in (*orders, *begins) if time <= at), default=0.0)
        return any(
            fault.kind == "fail over" and start <= failover + MARGIN
            for failover, _, fault in self.world.past
        )

    def _is_decided_anew(self, execution: str) -> bool:
        """Check if an iteration has decided again, after its decision was lost with what it did."""
        decides = f"strategy of {naming.loop_number(execution.partition('.')[0])}"
        return any(
            self._is_forgotten(begin.at, strategy.at)
            for begin in self.world.effects
            for strategy in self.world.effects
            if (begin.kind, begin.execution) == ("begin", execution)
            and (strategy.kind, strategy.execution) == ("call", decides)
        )

    def _records(self) -> Iterator[str]:
        """The record of an iteration has the decision that was executed."""
        ways = {e.execution: e.target for e in self.world.effects if e.kind == "way"}
        for execution, answer in self._answers["way"]:
            if ways.get(execution, answer.value) != answer.value:
                yield f"{execution} was executed otherwise than its record says"

    def _changes(self) -> Iterator[str]:
        """An answer that was given once does not change."""
        for kind in ("result", "status", "verdict", "run", "procedure", "began", "held"):
            first: dict[str, Any] = {}
            for about, answer in self._answers[kind]:
                if kind == "result" and self._is_forgotten(answer.at):
                    continue
                if first.setdefault(about, answer.value) != answer.value:
                    values = [getattr(v, "state", v) for v in (first[about], answer.value)]
                    yield f"{kind} {about} was {values[0]}, and then {values[1]}"

    def _approvals(self) -> Iterator[str]:
        # A deadline is a time of the clock of Redis, which may have stepped back.
        answers = [] if "clock" in self._kinds else self._answers["deadline"]
        deadlines = {about: answer.value for about, answer in answers}
        accepted: defaultdict[str, set[str]] = defaultdict(set)
        for verdict in ("approved", "denied", "withdrawn"):
            for approval, answer in self._answers[verdict]:
                if answer.value == verdict:
                    accepted[approval].add(verdict)
        for approval, verdicts in accepted.items():
            if len(verdicts) > 1:
                yield f"approval {approval} was {' and '.join(sorted(verdicts))}"
            if "approved" not in verdicts and approval in self._acted:
                yield f"approval {approval} was {min(verdicts)}, and its action executed"
        for approval, answer in self._answers["status"]:
            status, _ = answer.value
            if status != "approved" and approval in self._acted:
                yield f"approval {approval} is {status}, and its action was executed"
            if accepted[approval] - {status}:
                yield f"approval {approval} was {min(accepted[approval])}, and is {status}"
            yield from self._answers_too_late(approval, status, deadlines.get(approval))

    def _answers_too_late(
        self, approval: str, status: str, deadline: float | None
    ) -> Iterator[str]:
        """An item that was only answered after its deadline has expired."""
        asks = [
            answer.at
            for about, answer in self._answers["asks"]
            if about == f"{status} {approval}" or (status, about) == ("withdrawn", "cancel")
        ]
        if deadline is not None and asks and min(asks) > deadline + MARGIN:
            yield f"approval {approval} was {status} after its deadline"

    def _votes(self) -> Iterator[str]:
        """An item that needs two approvals has them of two principals."""
        if self.world.agent.settings.approvals.required.min_approvals < 2:
            return
        for approval, answer in self._answers["approved"]:
            principals = {
                ask.value
                for about, ask in self._answers["asks"]
                if about == f"approved {approval}" and ask.at <= answer.at
            }
            if answer.value == "approved" and len(principals) < 2:
                yield f"approval {approval} was approved by {', '.join(principals)} alone"

    def _overlaps(self) -> Iterator[str]:
        """An execution whose outcome is known is alone on its target until its verdict."""
        unknown = {
            about
            for about, answer in self._answers["result"]
            if isinstance(answer.value, ActionResult) and answer.value.unknown
        }
        if unknown and self._kinds & OF_PROCESSES:
            return
        # A verification that loses three workers is given up, and holds the target no longer.
        verdicts = self._answers["verdict"]
        given_up = {about for about, answer in verdicts if answer.value == "cannot tell"}
        rolled_back = {e.execution for e in self.world.effects if e.kind == "begin"}
        busy: dict[str, Effect] = {}
        verified = {e.target for e in self.world.effects if e.kind == "look"}
        for effect in self.world.effects:
            earlier = busy.get(effect.target)
            if earlier is not None and self._is_forgotten(earlier.at, effect.at):
                earlier = None
            other = earlier.execution if earlier else ""
            undoes = effect.execution == f"rollback:{other}"
            # A person has ordered to repeat a step whose outcome is unknown.
            repeats = effect.execution.partition(".")[0] == other.partition(".")[0]
            if effect.kind == "begin" and other and not (undoes or repeats):
                yield f"{effect.execution} began while {other} was in flight"
                return
            if effect.kind == "begin":
                busy[effect.target] = effect
            over = effect.kind == "end" and (
                effect.target not in verified
                or effect.execution in given_up
                or effect.execution.startswith("rollback:")
            )
            over |= undoes and self._is_struck(effect)
            # A rollback that was claimed and lost before it began is over, too: nobody repeats it.
            lost = (
                effect.execution == "worse"
                and bool(self._kinds & OF_PROCESSES)
                and f"rollback:{other}" not in rolled_back
            )
            if over or lost or effect.execution == "effective":
                busy.pop(effect.target, None)

    def _cases(self) -> Iterator[str]:
        """A case waits as long as it is drawn to, unless it is seen well; it is counted once."""
        for execution, answer in self._answers["held"]:
            was_well = "clock" in self._kinds  # it waits by the clock of Redis
            for effect in self.world.effects:
                was_well |= (effect.execution, effect.target) == ("well", f"case of {execution}")
                begins = (effect.kind, effect.execution) == ("begin", execution)
                if begins and effect.at < answer.value - MARGIN and not was_well:
                    yield f"{execution} began while its case was held out"
        approved = {about for about, _ in self._answers["result"] if about.startswith("approval:")}
        for _, answer in self._answers["trials"]:
            for trial in answer.value:
                outcomes = trial.well_without + trial.needed
                is_true = outcomes <= trial.waited and trial.well_after <= trial.cases
                if not is_true or trial.cases + trial.waited > len(approved):
                    yield f"{len(approved)} cases were counted as {trial}"

    def _was_held_up(self, begin: Effect, at: float) -> bool:
        """Check if its process had claimed it by that time, and then stood still until it began."""
        ways = [e for e in self.world.effects if (e.kind, e.execution) == ("way", begin.execution)]
        return any(
            way.at <= min(at, since) and since <= begin.at
            for way in ways
            for since, who, fault in self.world.past
            if who == begin.process and fault.kind in OF_PROCESSES
        )

    def _is_struck(self, begin: Effect) -> bool:
        """Check for a fault of its process after a *begin*: its outcome may be unknown then."""
        ends = [
            effect.at
            for effect in self.world.effects
            if (effect.kind, effect.execution) == ("end", begin.execution)
        ]
        end = min(ends, default=inf)
        return any(
            begin.at <= at <= end
            and (process == begin.process or fault.kind == "fail over")
            and fault.kind in OF_PROCESSES
            for at, process, fault in self.world.past
        )

    def _cancellations(self) -> Iterator[str]:
        for id, answer in self._answers["call-cancel"]:
            if answer.value == "cancelled" and self._begins[f"call:{id}"]:
                yield f"call {id} was cancelled, and executed"
        for _, answer in self._answers["cancel"]:
            if answer.value == "cancelled":
                yield from self._begins_between(answer, None, "cancelled")

    def _holds(self) -> Iterator[str]:
        verdicts = self._answers["verdict"]
        # What a person orders in spite of a hold, and is effective, ends it.
        effective = [about for about, answer in verdicts if answer.value == "effective"]
        is_lifted = any(about.startswith("call:") for about in effective)
        for _, answer in verdicts:
            if answer.value == "worse" and not is_lifted:
                yield from self._begins_between(answer, None, "held", "loop:")

    def _freezes(self) -> Iterator[str]:
        lifted = [answer for _, answer in self._answers["lifts"]]
        for _, answer in self._answers["frozen"]:
            yield from self._begins_between(answer, lifted[0] if lifted else None, "frozen")

    def _begins_between(
        self, answer: Answer, end: Answer | None, state: str, prefix: str = ""
    ) -> Iterator[str]:
        until = end.at if end is not None else float("inf")
        for effect in self.world.effects:
            begins = effect.kind == "begin" and effect.execution.startswith(prefix)
            is_late = answer.at < effect.at < until and not self._was_held_up(effect, answer.at)
            if begins and is_late:
                yield f"{effect.execution} began after {answer.client} was told that it is {state}"

    def _slots(self) -> Iterator[str]:
        if "clock" in self._kinds:
            return  # after a step back, the same slots come again
        slots = Counter(
            TICKS.slot((answer.value[1] + AHEAD) * 1000)
            for _, answer in self._answers["iteration"]
            if answer.value[0] == "beat"
        )
        for slot, times in slots.items():
            if times > 1:
                yield f"beats started {times} iterations at {TICKS.begin(slot) / 1000 - BEGIN:g} s"

    def _observers(self) -> Iterator[str]:
        """An iteration says of each observer what it saw or why not, until it has once failed."""
        left = set(self.world.agent.host.observers)
        for iteration, answer in self._answers["observers"]:
            failed, ran = answer.value
            left -= set(failed)  # from now on it may be left alone for a while
            silent = left - set(ran)
            if silent:
                yield f"iteration {iteration} does not tell of {', '.join(sorted(silent))}"

    def _notices(self) -> Iterator[str]:
        calls = {effect.execution for effect in self.world.effects if effect.kind == "call"}
        for approval, answer in self._answers["notices"]:
            for stage, state in answer.value.items():
                if state == "succeeded" and f"notice {stage} of {approval}" not in calls:
                    yield f"the notice {stage} of {approval} was sent, they say, and was not"

    def _procedures(self) -> Iterator[str]:
        """Steps go forward, then back in reverse; the record of the procedure says which did."""
        for procedure, answer in self._answers["procedure"]:
            begins = [e for e in self.world.effects if e.kind == "begin"]
            forward = [e for e in begins if not _undoes(e)]
            # What did harm is undone at once, and a person may let the others go on.
            back = [e for e in begins if e not in forward and e.target not in self._harmed]
            if back and forward and back[0].at < forward[-1].at:
                yield f"{forward[-1].execution} began after {back[0].execution}"
            places = [STEPS.index(step) for e in back if (step := _step_of(e)) in STEPS]
            if places != sorted(places, reverse=True):
                yield f"{procedure} was undone in the order {[e.target for e in back]}"
            if isinstance(answer.value, ProcedureRecord):
                yield from self._record_of(answer.value)
                yield from self._consents(answer.value, begins)
            elif forward:
                yield f"{procedure} was never begun, they say, and {forward[0].execution} was"
            for about, cancel in self._answers["procedure-cancel"]:
                if about != procedure or cancel.value != "ok":
                    continue
                for effect in forward:
                    if effect.at > cancel.at and effect.process not in self._struck:
                        yield f"{effect.execution} began after its procedure was cancelled"

    def _record_of(self, record: ProcedureRecord) -> Iterator[str]:
        """Each step whose outcome is known was done or not, and undone or not, as is recorded."""
        for step, progress in zip(record.steps, record.progress, strict=True):
            if step.for_each is not None or step.ask is not None:
                continue
            name, undone = f"step {step.id}", progress.compensation
            ends = [e for e in self.world.effects if e.kind == "end" and _step_of(e) == step.id]
            times = sum(map(_undoes, ends))
            done = len(ends) - times
            doubtful = progress.tries or "a person says" in (progress.detail or "")
            if progress.state == "unknown" or doubtful:
                # A person may also repeat what was refused, if an error has stopped it then.
                if not self._kinds & (OF_PROCESSES | {"error"}):
                    yield f"the outcome of {name} was unknown, although no process failed"
                continue
            if done != (progress.state == "done"):
                yield f"{name} is {progress.state}, they say, and was done {done} times"
            if undone is not None and undone.state == "done" and not times:
                yield f"{name} is undone, they say, and was not"
            # After its workers were lost repeatedly, it says that once for all steps.
            if "nothing was undone" in (record.reason or ""):
                continue
            if undone is None and (times or (record.state != "succeeded" and done)):
                yield f"{name} was undone {times} times, of which {record.state} says nothing"

    def _consents(self, record: ProcedureRecord, begins: Sequence[Effect]) -> Iterator[str]:
        """A step that asks begins once it was approved; the record gives a refusal as reason."""
        approved = {
            approval: min(
                a.at for about, a in self._answers["asks"] if f"approved {approval}" == about
            )
            for approval, answer in self._answers["approved"]
            if answer.value == "approved"
        }
        asks = [step.id for step in record.steps if step.ask is not None]
        # The first approval counts of those that ask for the same again.
        last_first = sorted(approved.items(), key=itemgetter(1), reverse=True)
        by_subject = {self._items[id]: at for id, at in last_first if id in self._items}
        answered_at = by_subject.get(ASK, inf)
        whole = naming.approval_in(record.id)
        for effect in begins:
            kind, id = naming.parts(effect.execution)
            undoes = kind == "rollback"
            each = effect.target in self._asking or (record.approve == "each" and not undoes)
            at = by_subject.get(id, inf) if undoes else approved.get(id, inf)
            if (each or kind == "approval") and at > effect.at:
                yield f"{effect.execution} began before a person approved it"
            if whole and approved.get(whole, inf) > effect.at:
                yield f"{effect.execution} began before a person approved the procedure"
            is_after = not _undoes(effect) and _step_of(effect) in STEPS[1:]
            if asks and is_after and answered_at > effect.at:
                yield f"{effect.execution} began before a person approved {asks[0]}"
        yield from self._refusals(record)

    def _refusals(self, record: ProcedureRecord) -> Iterator[str]:
        reason = record.reason or ""
        statuses = {about: answer.value[0] for about, answer in self._answers["status"]}
        if record.cancelled_by or "nothing was undone" in reason:
            return
        for step, progress in zip(record.steps, record.progress, strict=True):
            refusal = _REFUSALS.get(statuses.get(progress.approval or "", ""))
            if refusal and (progress.state != "failed" or refusal not in reason):
                yield f"step {step.id} was refused, and is {progress.state}: {reason}"

    def _waves(self) -> Iterator[str]:
        """Targets begin wave by wave, a few at a time, and go back in reverse."""
        for procedure, answer in self._answers["targets"]:
            begins = [e for e in self.world.effects if e.kind == "begin" and e.target in HOSTS]
            forward = [e for e in begins if not _undoes(e)]
            undone = [e for e in begins if _undoes(e)]
            back = [e for e in undone if e.target not in self._harmed]
            for group in (forward, back):
                for effect in group:
                    if len(self._in_flight(group, effect.at)) > AT_ONCE:
                        yield f"{effect.execution} began beside {AT_ONCE} others"
            yield from self._order(forward, back)
            yield from self._begins_while_stopped(procedure, forward)
            yield from self._begins_after_harm(procedure, forward, undone)
            for host, state in zip(HOSTS, answer.value, strict=False):
                yield from self._target(procedure, host, state)

    def _order(self, forward: Sequence[Effect], back: Sequence[Effect]) -> Iterator[str]:
        """A wave begins when the last one has ended; later targets are undone before earlier."""
        for effect in forward:
            wave = bisect_right(WAVE_ENDS, HOSTS.index(effect.target))
            earlier = HOSTS[: (0, *WAVE_ENDS)[wave]]
            for other in self._in_flight(forward, effect.at):
                if other.target in earlier and not self._is_repeated(other):
                    yield f"{effect.execution} began before {other.execution} had ended"
        for effect in back:
            others = [e for e in self._in_flight(back, effect.at) if e.target > effect.target]
            others += [e for e in back if e.target > effect.target and e.at > effect.at]
            if sum(not self._is_repeated(other) for other in others) >= AT_ONCE:
                yield f"{effect.execution} began before {others[-1].execution}"

    def _is_repeated(self, begin: Effect) -> bool:
        """Check if a person has ordered it again; one that asks may have been denied before."""
        asks = begin.target in self._asking
        return "." in begin.execution or (asks and begin.at > self._repeated_at)

    def _in_flight(self, begins: Sequence[Effect], at: float) -> list[Effect]:
        """Those of *begins* that have not ended at a time, if their process was not struck."""
        ends = {e.execution: e.at for e in self.world.effects if e.kind == "end"}
        return [
            begin
            for begin in begins
            if begin.at <= at < ends.get(begin.execution, inf) and begin.process not in self._struck
        ]

    def _begins_while_stopped(self, procedure: str, forward: Sequence[Effect]) -> Iterator[str]:
        """While it waits for a person nothing begins; before that, not too much has failed."""
        stops = [answer.at for about, answer in self._answers["stopped"] if about == procedure]
        decisions = [answer.at for about, answer in self._answers["decides"] if about == procedure]
        failures = [e for e in self.world.effects if e.execution.startswith("failure of ")]
        for since, stop, decision in zip((0.0, *decisions), stops, decisions, strict=False):
            for effect in forward:
                if stop < effect.at < decision:
                    yield f"{effect.execution} began while {procedure} was stopped"
            failed = [e for e in failures if since < e.at < decision]
            if len(failed) >= STOP_AT + AT_ONCE:
                yield f"{len(failed)} targets of {procedure} failed before it was stopped"

    def _begins_after_harm(
        self, procedure: str, forward: Sequence[Effect], undone: Sequence[Effect]
    ) -> Iterator[str]:
        """From the undoing of harm until a person has decided, no target begins."""
        decisions = [answer.at for about, answer in self._answers["decides"] if about == procedure]
        for undo in undone:
            decision = min((at for at in decisions if at > undo.at), default=inf)
            for effect in forward:
                is_late = undo.at + MARGIN < effect.at < decision
                if undo.target in self._harmed and is_late and effect.process not in self._struck:
                    yield f"{effect.execution} began after harm on {undo.target}"

    def _target(self, procedure: str, host: str, state: str) -> Iterator[str]:
        """A target was executed, and undone, as its state says."""
        name = naming.step(procedure, naming.of_target("renew", HOSTS.index(host)))
        effects = [e for e in self.world.effects if e.target == host]
        if any(effect.process in self._struck for effect in effects):
            return
        ends = [effect for effect in effects if effect.kind == "end"]
        undone = [effect for effect in ends if effect.execution.startswith("rollback:")]
        counts = {"done": (1, 0), "undone": (1, 1), "failed": (0, 0), "pending": (0, 0)}
        # Where a worker was lost before it executed anything, harm by another may be seen.
        if host in self._harmed and ends:
            # A repetition after harm may be refused, and leaves what was done and undone before.
            counts |= {"worse": (1, 1)} | dict.fromkeys(("failed", "pending"), (1, 1))
        if any(about == name and a.value == "cannot tell" for about, a in self._answers["verdict"]):
            counts["not effective"] = (1, 0)  # its verification was given up
        if host in self._asking:
            counts |= dict.fromkeys(("left", "stuck"), (1, 0))  # nobody allowed to undo it
        times = (len(ends) - len(undone), len(undone))
        if state not in counts and not self._struck:
            yield f"{name} is {state} at the end, although no process failed"
        elif counts.get(state, times) != times:
            yield f"{name} is {state}, they say, was done {times[0]} times and undone {times[1]}"

    def _late_reports(self) -> Iterator[str]:
        """An action whose worker crashes in it is reported, although nobody else can execute it."""
        if [fault.kind for _, _, fault in self.world.past] != ["crash before"]:
            return
        [(crash, process, _)] = self.world.past
        for effect in self.world.effects:
            if effect.kind != "begin" or effect.process != process or effect.execution == _KNOCK:
                continue
            reports = [a.at for about, a in self._answers["result"] if about == effect.execution]
            delay = min(reports, default=crash) - crash
            if not self._ends[effect.execution] and delay > REPORT:
                yield f"{effect.execution} lost its worker, which is reported after {delay:.1f} s"

    def _late_messages(self) -> Iterator[str]:
        """A message that alone is lost is sent again in time."""
        if [fault.kind for _, _, fault in self.world.past] != ["drop"]:
            return
        [(lost_at, message)] = self.world.lost
        again = (
            at
            for at, other in self.world.sent
            if at > lost_at and (other.name, other.args[:-1]) == (message.name, message.args[:-1])
        )
        delay = min(next(again, inf), self.world.now) - lost_at
        if message.name != JOB and delay > RESEND:
            yield f"{message.name} {message.args} was lost, and came again after {delay:.1f} s"

    def _archive(self) -> Iterator[str]:
        """Check that the archive soon has the same as Redis, and as clients know it."""
        for where, answer in self._answers["list"]:
            lists, of_redis = answer.value
            for kind, names in lists.items():
                if names != of_redis[kind]:
                    yield f"{where} lists each {kind} as {names}, and redis as {of_redis[kind]}"
        archived: dict[str, str] = {}
        times: dict[tuple[str, str], float] = {}
        for about, answer in self._answers["archived"]:
            archived[about] = answer.value
            times.setdefault((about, answer.value), answer.at)
        for about, answer in self._answers["ended"]:
            delay = times.get((about, answer.value), answer.at) - answer.at
            if not self._kinds and delay > ARCHIVED and not about.startswith("audit "):
                yield f"{about} was archived {delay:.1f} s after it had ended"
        for execution, answer in self._answers["result"] if archived else ():
            entry = archived.get(f"execution {execution}")
            state = ExecutionEntry.from_json(entry).state if entry else None
            if isinstance(answer.value, ActionResult) and state not in (None, answer.value.state):
                yield f"{execution} {answer.value.state}, they say, and {state} in the archive"
            if entry is None and self._begins[execution]:
                yield f"{execution} was executed, and is not in the archive"


_KNOCK = "call of knock"
#: The reasons of a procedure that goes back because of what became of an approval.
_REFUSALS = {
    "denied": "a person denied it",
    "expired": "nobody answered in time",
    "withdrawn": "the approval request was withdrawn",
}


def _undoes(effect: Effect) -> bool:
    return naming.is_rollback(effect.execution) or effect.target.startswith(UNDOES)


def _step_of(effect: Effect) -> str:
    return effect.target.removeprefix(UNDOES)


def _waits(result: Any) -> bool:
    """Report whether an action waits for an approval, or only that is its success."""
    return isinstance(result, ActionResult) and result.waits_for is not None
