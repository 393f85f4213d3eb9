"""Starts iterations: triggers, ticks, runs and events from outside (L2-L5)."""

from __future__ import annotations

from collections.abc import Sequence

from boyd import naming, queues
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import Actor, CallRequest, Mode, Observation, RunRequest
from boyd.models.investigation import Asked, InvestigationRequest
from boyd.store import AgentStore, Begun, Retention, Room, Slot, Submitted

#: What triggers the iterations that the ticks of beat begin.
TICK = "beat"


class Launcher:
    """Starts iterations of one agent, from any process; needs no plugins."""

    def __init__(self, store: AgentStore, dispatcher: Dispatcher, mode: Mode) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._mode = mode

    def trigger(self, by: str, actor: Actor | None = None, request: str | None = None) -> Begun:
        """Start an iteration, or join the one in flight; the audit names the *actor*.

        The same *request* joins what it has led to before.

        Raises:
            AgentPaused: the agent takes no triggers.
        """
        return self._sent(self._store.loop.begin(by, None, actor, request))

    def tick(self, slot: Slot) -> Begun:
        """Start the iteration of a beat slot, unless another beat did or it is over."""
        return self._sent(self._store.loop.begin(TICK, slot))

    def submit_run(self, request: RunRequest, actor: Actor, run_id: str | None = None) -> Submitted:
        """Store a run; unless the agent is continuous, it starts an iteration (R1).

        The same *run_id* is the same run, however often it is submitted.
        """
        start = self._mode != "continuous"
        submitted = self._store.runs.submit(request, start, actor, run_id)
        self._start(submitted.iteration)
        return submitted

    def call(self, request: CallRequest, queue: str | None, call_id: str | None = None) -> str:
        """Have a worker do something now; the call's id, to look up what comes of it."""
        if request.undoes:
            request = request.patched({"undoes": self._store.ledger.whole(request.undoes)})
        call_id, new = self._store.calls.submit(request, queue, call_id)
        if new:
            self._dispatcher.job(self._store.agent_id, naming.call(call_id), 1, queue)
        return call_id

    def ask(
        self,
        request: InvestigationRequest,
        actor: Actor,
        retention: Retention,
        id: str | None = None,
        run: RunRequest | None = None,
    ) -> str:
        """Begin an investigation, with the run that it is for if there is one; its id.

        The same *id* is the same one, however often it is asked for.

        Raises:
            QueueFull: there are too many already.
        """
        source = "run" if run else "api"
        id, new = self._store.investigations.ask(
            request, queues.THINK, retention, id=id, source=source, actor=actor, run=run
        )
        if new:
            self._dispatcher.job(self._store.agent_id, naming.investigation(id), 1, queues.THINK)
        return id

    def go_on(self, id: str, text: str, actor: Actor, request: str | None = None) -> bool:
        """Say something more in a conversation; False while the last question is not answered.

        The same *request* says it once.

        Raises:
            KeyError: there is no such investigation.
        """
        entry = Asked(text=text, by=actor.principal)
        attempt = self._store.investigations.go_on(id, entry, queues.THINK, actor, request)
        if attempt is not None:
            name = naming.investigation(id)
            self._dispatcher.job(self._store.agent_id, name, attempt, queues.THINK)
        return attempt is not None

    def intake(
        self,
        observations: Sequence[Observation],
        actor: Actor | None = None,
        request: str | None = None,
        room: Room | None = None,
    ) -> int:
        """Hand over observations; an event-driven agent begins at once (L2).

        The audit names the *actor*; the same *request* is taken once.

        Returns:
            The iteration that began, 0, or -1 when there is no *room* and none was taken.
        """
        start = self._mode == "event-driven"
        iteration = self._store.loop.intake(observations, start, actor, request, room)
        self._start(iteration)
        return iteration

    def look_again(self, trigger: str) -> None:
        """Have an iteration look at what has come: now, or once the one in flight has ended."""
        self._start(self._store.loop.look_again(trigger))

    def resume(self, actor: Actor | None = None) -> None:
        """Let a paused agent go on."""
        self._start(self._store.loop.resume(actor))

    def _sent(self, begun: Begun) -> Begun:
        if begun.new:
            self._start(begun.iteration)
        return begun

    def _start(self, iteration: int) -> None:
        if iteration > 0:
            self._dispatcher.send(self._store.agent_id, iteration, 1, "start")
