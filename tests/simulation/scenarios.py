"""Scenarios: an agent, its processes, and clients that want something at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from pydantic import BaseModel

from boyd import (
    Agent,
    Context,
    Decision,
    EffectVerdict,
    Observation,
    Plugin,
    Procedure,
    ProcedureStep,
    StepAction,
    action,
    endpoint,
    naming,
    observer,
    strategy,
)
from boyd.errors import RollbackRefused, StoreError, Veto
from boyd.models import (
    Actor,
    ApprovalItem,
    Autonomy,
    CallRequest,
    EffectName,
    EndpointRequest,
    JsonObject,
    LoopResult,
    ProcedureRecord,
    RunRequest,
    WaitingTrial,
)
from boyd.models.actor import GroupRights
from boyd.models.loop import Ticks
from boyd.runtime import Launcher, Resolver
from boyd.runtime.engine import retention_of
from boyd.store import AgentStore, Store, Verdict
from boyd.store.procedures import ResumeMode
from boyd.text import queues
from simulation.archive import empty_archive, read_archive, start_archive
from simulation.edges import SimulatedDispatcher, start_beat, start_worker
from simulation.world import EffectKind, FaultKind, World

_T = TypeVar("_T")
#: Seconds that an action takes; some outlast a lease, or several.
DURATIONS = (0.0, 0.05, 0.3, 4.0, 12.0)
#: Seconds that any other function of a plugin takes.
MOMENTS = (0.0, 0.0, 0.01, 0.2)
#: The verdicts on what an action has done.
EFFECTS: tuple[EffectName, ...] = ("effective", "worse")
#: Seconds of a slot in which beats start one iteration.
INTERVAL = 2.0
TICKS = Ticks.of("sim", INTERVAL)
#: The steps of the procedure, in order.
STEPS = ("drain", "renew", "fill")
#: Before the step in the target of an action that undoes it.
UNDOES = "-"
#: The targets of the procedure in waves, with the number of them after each wave, and its limits.
HOSTS = ("a", "b", "c", "d", "e")
WAVE_ENDS = (1, 4, 5)
AT_ONCE = STOP_AT = 2
#: Who means to cancel the procedure before that many seconds does so while it begins.
AS_IT_BEGINS = 0.1


class Outside:
    """The world outside, as functions of plugins reach it."""

    world: World

    def work(self, execution: str | None, target: str) -> None:
        """Do something that takes a moment."""
        self.note("begin", str(execution), target)
        self.world.sleep(self.world.random.choice(DURATIONS))
        self.note("end", str(execution), target)

    def call(self, name: str) -> None:
        """Do something once that changes nothing, and may take a moment."""
        self.note("call", name)
        self.world.sleep(self.world.random.choice(MOMENTS))

    def note(self, kind: EffectKind, execution: str, target: str = "") -> None:
        """Do something that takes no time."""
        self.world.effect(kind, execution, target)


OUTSIDE = Outside()


class Asking(Plugin):
    """Proposes to write."""

    id = "asking"

    @strategy()
    def propose(self, ctx: Context) -> Decision:
        """Always write."""
        OUTSIDE.call(f"strategy of {ctx.iteration}")
        return Decision(action="asking:write", rationale="it is time", confidence=1)

    @action(autonomy="approval-required", timeout=20)
    def write(self, params: Any, ctx: Context) -> str:
        """Write."""
        OUTSIDE.work(ctx.execution_id, "paper")
        return "written"


class Paging(Plugin):
    """Notifies people of approvals."""

    id = "paging"

    def on_approval(self, approval: ApprovalItem, stage: str) -> None:
        OUTSIDE.call(f"notice {stage} of {approval.id}")


class Way(BaseModel):
    """The params of a restart; a person needs none."""

    way: int = 0


class Restarting(Plugin):
    """Restarts something by itself, and undoes that if it has made things worse."""

    id = "restarting"

    def on_loop_start(self, ctx: Context) -> None:
        OUTSIDE.call(f"start of {ctx.iteration}")

    @strategy()
    def decide(self, ctx: Context) -> Decision:
        """Always restart, each time in another way."""
        OUTSIDE.call(f"strategy of {ctx.iteration}")
        way: JsonObject = {"way": OUTSIDE.world.random.getrandbits(32)}
        return Decision(
            action="restarting:restart", params=way, rationale="it is time", confidence=1
        )

    @action(timeout=20)
    def restart(self, params: Way, ctx: Context) -> str:
        """Restart."""
        OUTSIDE.note("way", str(ctx.execution_id), str(params.way))
        OUTSIDE.work(ctx.execution_id, "service")
        return "restarted"

    @restart.rollback
    def _stop(self, result: Any, ctx: Context) -> str:
        OUTSIDE.work(ctx.execution_id, "service")
        return "stopped"

    @restart.verify(within=4, every=1, before=False)
    def _look(self, params: Any) -> EffectVerdict:
        verdict = OUTSIDE.world.random.choice(EFFECTS)
        OUTSIDE.note("look", verdict, "service")
        return EffectVerdict(verdict=verdict, evidence="it was looked at")

    def on_before_act(self, ctx: Context) -> None:
        # Of two people who order the same, both hear what comes of it.
        if ctx.iteration and OUTSIDE.world.random.random() < 0.3:
            raise Veto("it is a bad moment")

    @endpoint("POST", "/knock")
    def knock(self) -> str:
        """Answer somebody who knocks."""
        OUTSIDE.note("begin", "call of knock", "door")
        return "who is there?"


class Healing(Plugin):
    """Restarts something with consent, which at times recovers by itself."""

    id = "healing"

    @strategy()
    def decide(self, ctx: Context) -> Decision:
        """Always restart."""
        return Decision(action="healing:restart", rationale="it is down", confidence=1)

    @action(timeout=20)
    def restart(self, ctx: Context) -> None:
        """Restart."""
        OUTSIDE.work(ctx.execution_id, "service")

    @restart.verify(within=4, every=1)
    def _look(self, ctx: Context) -> bool:
        is_well = OUTSIDE.world.random.random() < 0.3
        OUTSIDE.note("look", "well" if is_well else "down", f"case of {ctx.execution_id}")
        return is_well


class Step(BaseModel):
    """The params of what undoes a step by an action of its own."""

    step: str


class Farming(Plugin):
    """Renews a server in three steps, of which the second one may fail."""

    id = "farming"

    def __init__(self, *more: ProcedureStep, compensate: bool = False, **terms: Any) -> None:
        """With *more* steps after the first one; with *compensate*, people allow what undoes."""
        super().__init__()
        steps = [
            ProcedureStep(
                id=step,
                action=f"farming:{step}",
                compensate=StepAction(action="farming:undo", params={"step": step})
                if compensate
                else None,
            )
            for step in STEPS
        ]
        self.components = (Procedure(name="replace", steps=[steps[0], *more, *steps[1:]], **terms),)

    @action(timeout=20)
    def drain(self, ctx: Context) -> None:
        """Take it out of service."""
        OUTSIDE.work(ctx.execution_id, "drain")

    @drain.rollback
    def _refill(self, result: Any, ctx: Context) -> None:
        OUTSIDE.work(ctx.execution_id, "drain")

    @action(timeout=20)
    def renew(self, ctx: Context) -> None:
        """Replace it."""
        if OUTSIDE.world.random.random() < 0.3:
            raise ValueError("there is no new one")
        OUTSIDE.work(ctx.execution_id, "renew")

    @renew.rollback
    def _restore(self, result: Any, ctx: Context) -> None:
        OUTSIDE.work(ctx.execution_id, "renew")

    @action(timeout=20)
    def fill(self, ctx: Context) -> None:
        """Take it into service again."""
        OUTSIDE.work(ctx.execution_id, "fill")

    @fill.rollback
    def _empty(self, result: Any, ctx: Context) -> None:
        OUTSIDE.work(ctx.execution_id, "fill")

    @action(autonomy="approval-required", timeout=20)
    def undo(self, params: Step, ctx: Context) -> None:
        """Undo a step."""
        OUTSIDE.work(ctx.execution_id, UNDOES + params.step)


class Host(BaseModel):
    """The params of what is done to a host."""

    host: str


def _in_waves(action: str, **terms: Any) -> Procedure:
    """A procedure that executes an action on all hosts."""
    step = ProcedureStep(
        id="renew",
        action=action,
        params={"host": "${item}"},
        for_each=list(HOSTS),
        wave=[1, "60%"],
        at_once=AT_ONCE,
        stop_at=STOP_AT,
    )
    return Procedure(name="all", steps=[step], **terms)


class Rolling(Plugin):
    """Renews hosts in waves; each may fail."""

    id = "rolling"

    def __init__(self, *asking: str, **terms: Any) -> None:
        """People decide on the *asking* hosts, both to renew and to restore them."""
        super().__init__()
        self.asking = asking
        self.components = (_in_waves("rolling:renew", **terms),)

    def on_decide(self, decision: Decision) -> JsonObject | None:
        return {"requires_approval": True} if decision.params.get("host") in self.asking else None

    @action(target="host", timeout=20)
    def renew(self, params: Host, ctx: Context) -> None:
        """Replace one."""
        if OUTSIDE.world.random.random() < 0.3:
            OUTSIDE.note("call", f"failure of {ctx.execution_id}")
            raise ValueError("there is no new one")
        OUTSIDE.work(ctx.execution_id, params.host)

    @renew.rollback
    def _restore(self, params: Host, ctx: Context) -> None:
        OUTSIDE.work(ctx.execution_id, params.host)


class Testing(Plugin):
    """Renews hosts in waves, and tests each, which may do harm."""

    id = "testing"
    components = (_in_waves("testing:renew"),)

    @action(target="host", timeout=20)
    def renew(self, params: Host, ctx: Context) -> None:
        """Replace one."""
        OUTSIDE.work(ctx.execution_id, params.host)

    @renew.rollback
    def _restore(self, params: Host, ctx: Context) -> None:
        OUTSIDE.work(ctx.execution_id, params.host)

    @renew.verify(within=4, every=1, before=False)
    def _test(self, params: Host) -> EffectVerdict:
        verdict = OUTSIDE.world.random.choice((*EFFECTS, "effective", "effective"))
        OUTSIDE.note("look", verdict, params.host)
        return EffectVerdict(verdict=verdict, evidence="it was tested")


class Ticking(Plugin):
    """Observes two things in batches of their own, and does nothing."""

    id = "ticking"

    @observer(queue="act")
    def first(self, ctx: Context) -> list[Observation]:
        """Observe something."""
        OUTSIDE.call(f"first observer of {ctx.iteration}")
        return [Observation(source="a", type="state", data={})]

    @observer()
    def second(self, ctx: Context) -> list[Observation]:
        """Observe something else."""
        OUTSIDE.call(f"second observer of {ctx.iteration}")
        return [Observation(source="b", type="state", data={})]


class Glancing(Plugin):
    """Observes one thing, whose batch is also the last one, and does nothing."""

    id = "glancing"

    @observer()
    def only(self, ctx: Context) -> list[Observation]:
        """Observe something."""
        OUTSIDE.call(f"only observer of {ctx.iteration}")
        return [Observation(source="c", type="state", data={})]


@dataclass(frozen=True)
class Scenario:
    """Processes, and clients that do something to their agent.

    Attributes:
        agents: one of which the seed chooses.
        clients: starts them.
        beats: the number of beats, one of which the seed chooses.
        is_timeless: no client waits for a time that somebody gave, such as a deadline: it follows
            the clock of Redis when that steps.
        loses: Redis may fail over to a replica that lacks the last writes.
        every: it has one of so many schedules, as it takes longer than others.
        often: faults at points that matter only if a person does something just then.
    """

    name: str
    agents: Callable[[], tuple[Agent, ...]]
    clients: Callable[[World, Agent], None]
    beats: Sequence[int] = (1,)
    is_timeless: bool = True
    loses: bool = False
    every: int = 1
    often: Sequence[tuple[FaultKind, str]] = ()

    def has(self, kind: FaultKind) -> bool:
        """Report whether faults of a kind come."""
        return (kind != "clock" or self.is_timeless) and (kind != "fail over" or self.loses)

    def populate(self, world: World, agent: Agent) -> None:
        """Start the processes and clients; in some worlds only one worker executes actions."""
        OUTSIDE.world = world
        second = world.random.choice((queues.DEFAULT, queues.DEFAULT, (queues.LOOP,)))
        world.add("worker-1", partial(start_worker, world, queues.DEFAULT))
        world.add("worker-2", partial(start_worker, world, second))
        for number in range(1, world.random.choice(self.beats) + 1):
            world.add(f"beat-{number}", partial(start_beat, world))
        self.clients(world, agent)


class Client:
    """A client in a world: it repeats what was not answered, as clients of the API do."""

    def __init__(self, world: World, agent: Agent, name: str, principal: str = "") -> None:
        self.world = world
        self.agent = agent
        self.name = name
        self.retention = retention_of(agent)
        self.actor = Actor(principal=principal or name, person=True)
        self.deployment = Store(world.client(), name)
        self.store: AgentStore = self.deployment.agent(agent.id)
        dispatcher = SimulatedDispatcher(world)
        self.launcher = Launcher(self.store, dispatcher, agent.settings.mode)
        self.resolver = Resolver(self.store, dispatcher, self.retention, rights=GroupRights())

    def start(self, work: Callable[[Client], None]) -> None:
        """Do that in a task of its own."""
        self.world.add_client(self.name, partial(work, self))

    def hesitate(self, most: float) -> None:
        """Wait for up to that many seconds, often not at all."""
        self.world.sleep(max(0.0, self.world.random.uniform(-most, most)))

    def insist(self, ask: Callable[[], _T]) -> _T:
        """Ask until there is an answer."""
        while True:
            try:
                return ask()
            except StoreError:
                self.world.sleep(0.3)

    def poll(self, look: Callable[[], _T | None], every: float = 1.0) -> _T:
        """Look until there is something."""
        while (value := self.insist(look)) is None:
            self.world.sleep(every * self.world.random.uniform(0.5, 1.5))
        return value

    def tell(self, about: str, value: Any) -> None:
        """Record an answer."""
        self.world.answer(self.name, about, value)

    def watch(self, about: str, look: Callable[[], Any]) -> Any:
        """Look until there is something, and once more at the end of the world."""
        value = self.poll(look)
        self.tell(about, value)
        self.world.questions.append((about, look))
        return value

    def watch_execution(self, execution: str, look: Callable[[], Any]) -> Any:
        """Watch the result of an execution, and the entry of the ledger."""
        result = self.watch(f"result {execution}", look)
        self.world.questions.append(
            (f"result {execution}", lambda: self.store.executions.result(execution) or result)
        )
        self.ask_for_verdict(execution)
        return result

    def ask_for_verdict(self, execution: str) -> None:
        """Ask at the end of the world what an execution was judged to have done."""
        self.world.questions.append((f"verdict {execution}", partial(_verdict, self, execution)))


# An approval, and everything that may become of it.

RUN = "00000000-0000-4000-8000-000000000001"
TWO = {"required": {"min_approvals": 2}}
VERDICTS: tuple[Verdict, ...] = ("approved", "approved", "approved", "denied", "withdrawn")


@cache
def _asking_agents() -> tuple[Agent, ...]:
    return (
        Agent("sim", plugins=[Asking()]),
        Agent("sim", plugins=[Asking(), Paging()]),
        Agent("sim", plugins=[Asking()], approvals={"ttl": 6.0}),
        Agent("sim", plugins=[Asking()], approvals=TWO),
    )


def _approval_clients(world: World, agent: Agent) -> None:
    def respond(client: Client) -> None:
        item = client.poll(partial(_first_approval, client))
        if not isinstance(item, ApprovalItem):
            return
        left, late = 0.0, world.random.random() < 0.6
        devices = ["ann", "bob", "tablet of ann"]
        if agent.settings.approvals.required.min_approvals > 1:
            # Where nobody else completes it, it is withdrawn at last.
            Client(world, agent, "eve").start(partial(_respond, "withdrawn", item, 12.0))
        elif world.random.random() < 0.7:
            devices.pop()
        if item.expires_at is not None and agent.settings.approvals.ttl < 60:
            left = item.expires_at.timestamp() - world.now
            devices = devices[: world.random.choice((0, 1, 2, 3))]
        for name in devices:
            verdict = world.random.choice(VERDICTS) if name == "bob" else "approved"
            at = max(0.0, left * late + world.random.uniform(-0.5, 0.7))
            responder = Client(world, agent, name, name.rpartition(" ")[2])
            responder.start(partial(_respond, verdict, item, at))
        if "paging" in agent.host.plugins:
            Client(world, agent, "receiver").start(partial(_await_notices, item.id))
        if world.random.random() < 0.7:
            Client(world, agent, "carol").start(_freeze)
        if world.random.random() < 0.4:
            at = (left or 2.0) + world.random.uniform(-0.3, 0.6)
            Client(world, agent, "dave").start(partial(_cancel_run, at))

    Client(world, agent, "client").start(_submit)
    Client(world, agent, "phone").start(respond)


def _submit(client: Client) -> None:
    request = RunRequest(title="write", description="something")
    client.insist(lambda: client.launcher.submit_run(request, client.actor, RUN))
    client.watch(f"run {RUN}", partial(_end_of_run, client))


def _end_of_run(client: Client) -> str | None:
    run = client.store.runs.get(RUN)
    return run.status if run and run.status not in ("pending", "investigating") else None


def _first_approval(client: Client) -> ApprovalItem | str | None:
    """The item of the run, or how that ended without one."""
    pending = client.store.approvals.page(50).pending
    return pending[0] if pending else _end_of_run(client)


def _respond(verdict: Verdict, request: ApprovalItem, at: float, client: Client) -> None:
    """Answer at that time after it was requested, and wait for what becomes of it."""
    approval = request.id
    client.world.sleep(at)
    client.tell(f"asks {verdict} {approval}", client.actor.principal)

    def respond() -> str | None:
        answer = client.resolver.answer(
            approval, verdict, client.actor, request=f"request of {client.name}"
        )
        if answer.item is not None and answer.item.expires_at is not None:
            client.tell(f"deadline {approval}", answer.item.expires_at.timestamp())
        return None if answer.outcome == "frozen" else str(answer.outcome)

    client.tell(f"{verdict} {approval}", client.poll(respond))

    def end_of_item() -> ApprovalItem | None:
        item = client.store.approvals.get(approval)
        return item if item is not None and _has_ended(item) else None

    def status() -> Any:
        item = end_of_item()
        return item and (item.status, item.acted_by)

    def result() -> Any:
        item = end_of_item()
        return item and (item.result or "never executed")

    outcome, _ = client.watch(f"status {approval}", status)
    # After a refusal, another item may ask for the same undoing again.
    is_approved = outcome == "approved"
    execution = request.execution_id if is_approved else naming.approval(approval)
    client.watch_execution(execution, result)


def _has_ended(item: ApprovalItem) -> bool:
    """Report whether an item was refused, or executed, which a procedure is with its last step."""
    if item.status == "approved":
        return item.result is not None and item.result.procedure is None
    return item.status != "pending"


def _await_notices(approval: str, client: Client) -> None:
    def states() -> dict[str, str] | None:
        item = client.store.approvals.get(approval)
        if item is None or item.status == "pending":
            return None
        have_ended = all(notice.has_ended for notice in item.notifications)
        return {n.stage: n.state for n in item.notifications} if have_ended else None

    client.tell(f"notices {approval}", client.poll(lambda: states() or None))


def _cancel_run(at: float, client: Client) -> None:
    client.world.sleep(at)
    client.tell("asks cancel", RUN)

    def cancel() -> str:
        status = client.store.runs.cancel(RUN, client.actor, client.retention, "enough", "once")
        return status or "cancelled"

    client.tell(f"cancel {RUN}", client.insist(cancel))


def _freeze(client: Client) -> None:
    """Freeze the agent or the deployment, and lift that later."""
    freezes, agent_id = client.deployment.freezes, client.store.agent_id
    scope = client.world.random.choice((agent_id, None))
    client.world.sleep(client.world.random.choice((0.01, 0.5, 1.5, 3.0)))
    client.poll(lambda: None if freezes.freeze("stop", scope, client.actor) else True)
    client.tell("frozen", agent_id)
    client.world.sleep(client.world.random.choice((1.0, 6.0, 6.0)))
    client.tell("lifts", agent_id)
    client.insist(lambda: freezes.lift(scope, client.actor))


# An action that runs alone, its verification, and people who undo it or order it by hand.


@cache
def _restarting_agents() -> tuple[Agent, ...]:
    return (Agent("sim", plugins=[Restarting()]),)


def _effect_clients(world: World, agent: Agent) -> None:
    def undo(execution: str) -> None:
        for name in ("ann", "bob")[: world.random.choice((0, 1, 2, 2))]:
            Client(world, agent, name).start(partial(_undo, execution))

    Client(world, agent, "client-1").start(partial(_iterate, 2, undo))
    Client(world, agent, "client-2").start(partial(_iterate, 1, lambda _: None))


def _iterate(times: int, then: Callable[[str], None], client: Client) -> None:
    for number in range(times):
        client.hesitate(2.0)
        request = f"{client.name} {number}"
        iteration = client.insist(
            lambda: client.launcher.trigger("client", client.actor, request).iteration  # noqa: B023
        )

        def result(iteration: int = iteration) -> Any:
            outcome = client.store.history.get(iteration)
            return outcome and [*outcome.action_results, "never executed"][0]

        outcome = client.poll(lambda: client.store.history.get(iteration))  # noqa: B023
        execution = naming.iteration_execution(outcome.id.partition(":")[2])
        decision = outcome.decision
        client.tell(f"way {execution}", decision and str(decision.params.get("way")))
        if client.watch_execution(execution, result) != "never executed":
            then(execution)
            client.watch(f"verdict {execution}", partial(_verdict, client, execution))


def _verdict(client: Client, execution: str) -> str | None:
    entry = client.store.executions.get(execution)
    if entry is None or entry.verification is None:
        return "none"
    return entry.verification.verdict


def _call(client: Client, execution: str, request: CallRequest) -> None:
    """Have a worker do something, and wait for what comes of it."""
    id = naming.parts(execution)[1] if execution.startswith("call:") else None
    try:
        call_id = client.insist(lambda: client.launcher.call(request, None, id))
    except RollbackRefused:
        return  # somebody has done it

    def result() -> Any:
        call = client.store.calls.get(call_id)
        if call is None or call.execution is None or call.execution.state in ("queued", "running"):
            return None
        return call.result or call.reply or "never executed"

    client.watch_execution(execution, result)


def _undo(execution: str, client: Client) -> None:
    client.hesitate(4.0)
    request = CallRequest(
        kind="rollback", action="restarting:restart", undoes=execution, actor=client.actor
    )
    _call(client, naming.rollback(execution), request)


# One action that the loop, a person and an approval want on one target.


def _proposer_clients(world: World, agent: Agent) -> None:
    Client(world, agent, "loop").start(partial(_iterate, 1, lambda _: None))
    for number, name in enumerate(("hand", "assistant")):
        request = CallRequest(
            kind="execute",
            action="restarting:restart",
            requires_approval=name == "assistant",
            actor=Actor(principal=name, person=True),
        )
        id = f"00000000-0000-4000-8000-00000000001{number}"
        Client(world, agent, name).start(partial(_order, id, request))
    Client(world, agent, "approver").start(_approve_all)
    Client(world, agent, "guest").start(_knock)


def _order(id: str, request: CallRequest, client: Client) -> None:
    client.hesitate(2.0)
    if client.world.random.random() < 0.5:
        client.start(partial(_cancel_call, id))
    _call(client, naming.call(id), request)


def _knock(client: Client) -> None:
    client.hesitate(2.0)
    call = CallRequest(
        kind="endpoint",
        action="restarting:knock",
        endpoint=EndpointRequest(method="POST", actor=client.actor),
        actor=client.actor,
    )
    _call(client, "call:00000000-0000-4000-8000-000000000020", call)


def _cancel_call(id: str, client: Client) -> None:
    call = client.poll(lambda: client.store.calls.get(id), every=0.01)
    client.world.sleep(client.world.random.choice((0.0, 0.0, 0.01, 1.0, 4.0)))
    approval = client.store.approvals.id_for(naming.call(id))
    cancellation = client.insist(lambda: client.store.calls.cancel(call, approval, client.actor))
    client.tell(f"call-cancel {id}", cancellation.outcome)


def _approve_all(client: Client) -> None:
    pending: Sequence[ApprovalItem] = ()
    while pending or not client.world.is_quiet():
        pending = client.insist(lambda: client.store.approvals.page(50).pending)
        for item in pending:
            client.insist(
                lambda: client.resolver.answer(item.id, "approved", client.actor)  # noqa: B023
            )
            _await_item(client, item.id)
        client.world.sleep(1.0)


def _await_item(client: Client, approval: str) -> None:
    def result() -> Any:
        item = client.store.approvals.get(approval)
        return item and item.status != "pending" and (item.result or None)

    client.watch_execution(f"approval:{approval}", result)


# An action that earns to run alone: of the cases that people approve some are drawn to wait.


@cache
def _healing_agents() -> tuple[Agent, ...]:
    rule = {"healing:restart": {"mode": "earned", "holdout": 0.5}}
    return (Agent("sim", plugins=[Healing()], autonomy=rule),)


def _case_clients(world: World, agent: Agent) -> None:
    for name in ("client-1", "client-2"):
        Client(world, agent, name).start(partial(_iterate, 2, lambda _: None))
    Client(world, agent, "approver").start(_approve_all)
    Client(world, agent, "watcher").start(_watch_cases)


def _watch_cases(client: Client) -> None:
    """Look for a while what waits, and at the end how the cases were counted."""

    def trials() -> Sequence[WaitingTrial]:
        records = client.store.track_records.all(["healing:restart"])
        return [record.trial for record in records]

    client.world.questions.append(("trials of all", trials))
    for _ in range(20):
        for hold in client.insist(client.store.holds.all):
            if hold.kind == "held out" and hold.until is not None:
                client.tell(f"held {hold.execution}", hold.until.timestamp())
        client.world.sleep(1.0)


# A procedure, of steps or in waves, which a person cancels; a stopped one is resumed or cancelled.

ORDER = "00000000-0000-4000-8000-000000000030"


@cache
def _farming_agents() -> tuple[Agent, ...]:
    return (Agent("sim", plugins=[Farming()]),)


@cache
def _consent_agents() -> tuple[Agent, ...]:
    each: dict[str, Any] = {"approve": "each"}
    question = ProcedureStep(id="ask", ask="Is it empty?")
    whole: dict[str, Any] = {"autonomy": Autonomy(mode="approval-required")}
    return (
        Agent("sim", plugins=[Farming(**each)]),
        Agent("sim", plugins=[Farming(question)]),
        Agent("sim", plugins=[Farming(compensate=True, **each)]),
        Agent("sim", plugins=[Farming(**each)], approvals={"ttl": 6.0}),
        Agent("sim", plugins=[Farming(question, compensate=True, **each)], approvals=TWO),
        Agent("sim", plugins=[Farming(**whole)]),
        Agent("sim", plugins=[Rolling(*HOSTS[1:4:2], **whole)]),
    )


@cache
def _rolling_agents() -> tuple[Agent, ...]:
    return (Agent("sim", plugins=[Rolling()]),)


@cache
def _testing_agents() -> tuple[Agent, ...]:
    return (Agent("sim", plugins=[Testing()]),)


def _procedure_clients(world: World, agent: Agent) -> None:
    Client(world, agent, "operator").start(_order_procedure)
    if world.random.random() < 0.6:
        Client(world, agent, "canceller").start(_cancel_procedure)


def _consent_clients(world: World, agent: Agent) -> None:
    _procedure_clients(world, agent)
    Client(world, agent, "desk").start(_have_answered)


def _have_answered(client: Client) -> None:
    """Have people answer whatever asks, until nobody else wants anything."""
    known_ids: set[str] = set()
    while not client.world.is_quiet():
        for item in client.insist(lambda: client.store.approvals.page(50).pending):
            if item.id not in known_ids:
                client.tell(f"item {item.id}", item.undoes or item.action_id)
                _ask_people(client, item)
            known_ids.add(item.id)
        client.world.sleep(client.world.random.uniform(0.2, 1.0))


def _ask_people(client: Client, item: ApprovalItem) -> None:
    """Let one or two people answer; an item that expires perhaps late, or nobody at all."""
    world, approvals, dice = client.world, client.agent.settings.approvals, client.world.random
    names, late = ["ann", "bob"], 0.0
    if approvals.required.min_approvals > 1:
        # Where nobody else completes it, it is withdrawn at last.
        eve = Client(world, client.agent, "eve")
        eve.start(partial(_respond, "withdrawn", item, 6.0))
    elif approvals.ttl < 60:
        names = names[: dice.choice((0, 1, 1, 2))]
        late = dice.choice((0.0, 0.0, 0.0, approvals.ttl - 0.5))
    else:
        names = names[: dice.choice((1, 2))]
    for name in names:
        verdict = dice.choice((*VERDICTS, "approved", "approved"))
        at = late + dice.uniform(0.0, 1.0)
        Client(world, client.agent, name).start(partial(_respond, verdict, item, at))
    # Somebody else may cancel the whole at about the same time: with dice of their own, so that
    # the same seed gives the same schedule where they do not.
    other_dice = copy(dice)
    if other_dice.random() < 0.2:
        at = late + other_dice.uniform(0.0, 1.0)
        Client(world, client.agent, "boss").start(partial(_cancel_at, at))


def _action_of_procedure(client: Client) -> Procedure:
    actions = client.agent.host.actions.values()
    return next(action for action in actions if isinstance(action, Procedure))


def _find_procedure(client: Client) -> str:
    """The execution of the procedure: of the call, or of the approval that it asks for."""

    def execution() -> str | None:
        call = client.store.calls.get(ORDER)
        if call is None or call.result is None:
            return None
        approval = call.result.waits_for
        return naming.approval(approval) if approval else naming.call(ORDER)

    asks = _action_of_procedure(client).autonomy.mode == "approval-required"
    return client.poll(execution) if asks else naming.call(ORDER)


def _is_order_over(client: Client, procedure: str) -> bool:
    kind, id = naming.parts(procedure)
    if kind == "approval":
        item = client.store.approvals.get(id)
        return item is not None and _has_ended(item)
    call = client.store.calls.get(id)
    execution = call.execution if call is not None else None
    return execution is not None and execution.state not in ("queued", "running")


def _order_procedure(client: Client) -> None:
    action = _action_of_procedure(client).id
    request = CallRequest(kind="execute", action=action, actor=client.actor)
    client.insist(lambda: client.launcher.call(request, None, ORDER))
    procedure = _find_procedure(client)

    def end_of_procedure() -> ProcedureRecord | str | None:
        # Before the procedure: its order may begin it between the two.
        is_over = _is_order_over(client, procedure)
        record = client.store.procedures.get(procedure)
        if record is not None and record.state == "stopped":
            _decide_on(client, procedure)
        if record is not None:
            return record if record.has_ended else None
        return "never begun" if is_over else None

    client.watch(f"procedure {procedure}", end_of_procedure)

    def targets() -> list[str]:
        wave = naming.wave(procedure, "renew")
        each = [client.store.waves.get(wave, number) for number in range(len(HOSTS))]
        return [target.state for target in each if target is not None]

    client.watch(f"targets {procedure}", targets)
    for number in range(len(HOSTS)):
        execution = naming.step(procedure, naming.of_target("renew", number))
        client.ask_for_verdict(execution)


def _decide_on(client: Client, procedure: str) -> None:
    """Go on with a procedure that was stopped, or give it up."""
    client.tell(f"stopped {procedure}", "stopped")
    mode: ResumeMode | None = client.world.random.choice(("go on", "repeat", None))
    client.hesitate(2.0)
    client.tell(f"decides {procedure}", mode)
    if mode is None:
        client.tell("asks cancel", procedure)
        client.store.procedures.cancel(procedure, client.actor)
    else:
        client.store.procedures.resume(procedure, mode, client.actor)


def _cancel_procedure(client: Client) -> None:
    dice = client.world.random
    at = dice.uniform(0.0, dice.choice((0.5, 9.0)))
    client.world.sleep(at)
    procedure = _find_procedure(client)
    if at < AS_IT_BEGINS:
        client.poll(
            lambda: (
                client.store.procedures.get(procedure) or _is_order_over(client, procedure) or None
            ),
            every=0.01,
        )
        client.world.sleep(dice.uniform(0.0, 0.02))
    _cancel(client, procedure)


def _cancel_at(at: float, client: Client) -> None:
    client.world.sleep(at)
    _cancel(client, _find_procedure(client))


def _cancel(client: Client, procedure: str) -> None:
    client.tell("asks cancel", procedure)
    outcome = client.insist(lambda: client.store.procedures.cancel(procedure, client.actor))
    client.tell(f"procedure-cancel {procedure}", outcome)


# Beats that start iterations by the clock.


@cache
def _ticking_agents() -> tuple[Agent, ...]:
    plugins = (Ticking(), Ticking(), Glancing())
    return tuple(
        Agent("sim", mode="continuous", loop_interval=INTERVAL, plugins=[plugin])
        for plugin in plugins
    )


def _slot_clients(world: World, agent: Agent) -> None:
    Client(world, agent, "client").start(_wait_for_slots)


def _wait_for_slots(client: Client) -> None:
    client.world.sleep(4 * INTERVAL)
    last = client.insist(client.store.loop_control.iteration)
    client.poll(lambda: client.store.history.get(last + 1))
    for number in range(1, last + 2):
        result = client.poll(lambda: client.store.history.get(number))  # noqa: B023
        client.tell(f"iteration {number}", (result.trigger, result.started_at.timestamp()))
        failed = sorted({problem.id for problem in result.observer_errors})
        reported = [run.id for run in result.observer_runs] + [each.id for each in result.not_due]
        if result.error is None:
            client.tell(f"observers {number}", (failed, sorted({*failed, *reported})))


# What ends is copied into an archive, and compared with it.


@cache
def _archive_agents() -> tuple[Agent, ...]:
    return (*_asking_agents(), *_restarting_agents())


def _archive_clients(world: World, agent: Agent) -> None:
    empty_archive(world)
    for number in range(1, world.random.choice((1, 1, 2)) + 1):
        world.add(f"archive-{number}", partial(start_archive, world))
    does_itself = "restarting" in agent.host.plugins
    (_effect_clients if does_itself else _approval_clients)(world, agent)
    Client(world, agent, "reader").start(read_archive)


# Redis loses what it has acknowledged; clients order again what is gone.


def _failover_clients(world: World, agent: Agent) -> None:
    Client(world, agent, "loop").start(_iterate_again)
    Client(world, agent, "hand").start(_order_again)
    if world.random.random() < 0.5:
        Client(world, agent, "carol").start(_freeze)


def _order_once(
    client: Client, order_name: str, is_there: Callable[[], bool], order: Callable[[], object]
) -> None:
    """Order something, and again whenever Redis knows nothing of it."""
    if not is_there():
        client.tell(f"orders {order_name}", client.name)
        order()
        if is_there():
            client.tell(f"accepted {order_name}", client.name)


def _iterate_again(client: Client) -> None:
    for count in range(3):
        client.hesitate(2.0)
        outcome = client.poll(partial(_end_of_next, client, f"iteration {count}", numbers=[]))
        execution = naming.iteration_execution(outcome.id.partition(":")[2])
        client.tell(f"began {execution}", outcome.started_at.timestamp())
        result = next(iter(outcome.action_results), "never executed")
        _tell_result(client, execution, result)
        verdict = client.poll(partial(_verdict, client, execution))
        if verdict != "none":  # which may be that of an execution that was just forgotten
            client.tell(f"verdict {execution}", verdict)


def _end_of_next(client: Client, order_name: str, numbers: list[int]) -> LoopResult | None:
    """The end of the iteration that has the last of *numbers*; its order adds that."""
    _order_once(
        client,
        order_name,
        lambda: bool(numbers) and client.store.loop_control.iteration() >= numbers[-1],
        lambda: numbers.append(client.launcher.trigger("client", client.actor).iteration),
    )
    return client.store.history.get(numbers[-1])


def _order_again(client: Client) -> None:
    client.hesitate(4.0)
    request = CallRequest(kind="execute", action="restarting:restart", actor=client.actor)
    execution = naming.call(ORDER)

    def result() -> Any:
        _order_once(
            client,
            execution,
            lambda: client.store.calls.get(ORDER) is not None,
            lambda: client.launcher.call(request, None, ORDER),
        )
        call = client.store.calls.get(ORDER)
        has_ended = call and call.execution and call.execution.state not in ("queued", "running")
        return (call.result or "never executed") if call and has_ended else None

    _tell_result(client, execution, client.poll(result))


def _tell_result(client: Client, execution: str, result: Any) -> None:
    """Tell of a result, which another one replaces if it is lost."""
    about, find = f"result {execution}", partial(client.store.executions.result, execution)
    client.tell(about, result)
    others = [question for question in client.world.questions if question[0] != about]
    client.world.questions = [*others, (about, lambda: find() or result)]
    client.ask_for_verdict(execution)


# One action that waits for an approval, is verified and undone: small enough to try everything.


def _harm_clients(world: World, agent: Agent) -> None:
    Client(world, agent, "assistant").start(_propose)
    Client(world, agent, "approver").start(_approve_and_watch)


def _propose(client: Client) -> None:
    request = CallRequest(
        kind="execute",
        action="restarting:restart",
        requires_approval=True,
        actor=client.actor,
    )
    _call(client, naming.call(ORDER), request)


def _approve_and_watch(client: Client) -> None:
    item = client.poll(lambda: next(iter(client.store.approvals.page(50).pending), None))
    client.insist(lambda: client.resolver.answer(item.id, "approved", client.actor))
    _await_item(client, item.id)
    execution = naming.approval(item.id)
    verdict = client.watch(f"verdict {execution}", partial(_verdict, client, execution))
    entry = client.insist(lambda: client.store.executions.get(execution))
    if verdict == "worse" and entry is not None and entry.state == "succeeded":
        rollback = naming.rollback(execution)
        client.watch_execution(rollback, lambda: client.store.executions.result(rollback))


HARM = Scenario("harm", _restarting_agents, _harm_clients)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("approval", _asking_agents, _approval_clients, is_timeless=False),
        Scenario("effect", _restarting_agents, _effect_clients),
        Scenario("proposers", _restarting_agents, _proposer_clients),
        Scenario("procedure", _farming_agents, _procedure_clients),
        Scenario(
            *("consent", _consent_agents, _consent_clients),
            is_timeless=False,
            often=(("crash after", "propose_action"),),
        ),
        Scenario("waves", _rolling_agents, _procedure_clients),
        Scenario("harmful-waves", _testing_agents, _procedure_clients),
        Scenario("cases", _healing_agents, _case_clients),
        Scenario("slots", _ticking_agents, _slot_clients, beats=(1, 1, 2)),
        Scenario("failover", _restarting_agents, _failover_clients, loses=True),
        Scenario("archive", _archive_agents, _archive_clients, is_timeless=False, every=6),
    )
}
