"""Starts work: iterations, runs, calls and investigations."""

from __future__ import annotations

from collections.abc import Sequence

from boyd import naming
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import Actor, CallRequest, Mode, Observation, RunRequest
from boyd.models.investigation import Asked, InvestigationRequest
from boyd.store import AgentStore, IntakeLimits, Retention, Slot, Submitted, TriggerOutcome
from boyd.store.investigations import Origin
from boyd.text import queues

#: Trigger of iterations that beat starts: by the interval, and by the schedule.
TICK, SCHEDULE = "beat", "schedule"


class Launcher:
    """Starts work of one agent, from any process; needs no plugins."""

    def __init__(self, store: AgentStore, dispatcher: Dispatcher, mode: Mode) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._mode = mode

    def trigger(
        self, by: str, actor: Actor | None = None, request: str | None = None
    ) -> TriggerOutcome:
        """Start an iteration, or join the one in flight; the audit names the *actor*.

        Repeating a *request* joins the iteration it started.

        Raises:
            AgentPaused: the agent accepts no triggers.
        """
        return self._send_first(self._store.loop_control.begin(by, None, actor, request))

    def tick(self, slot: Slot) -> TriggerOutcome:
        """Start the iteration of a beat slot, unless another beat started it or it has passed."""
        return self._send_first(self._store.loop_control.begin(TICK, slot))

    def start_scheduled(self, slot: Slot, first: bool) -> TriggerOutcome:
        """Start the iteration of a slot of the schedule; *first*: by the first try of a beat."""
        return self._send_first(self._store.loop_control.begin(SCHEDULE, slot, first=first))

    def submit_run(self, request: RunRequest, actor: Actor, run_id: str | None = None) -> Submitted:
        """Store a run; unless the agent is continuous, start an iteration.

        Submitting the same *run_id* again has no effect.
        """
        start = self._mode != "continuous"
        submitted = self._store.runs.submit(request, start, actor, run_id)
        self._start(submitted.iteration)
        return submitted

    def call(self, request: CallRequest, queue: str | None, call_id: str | None = None) -> str:
        """Submit a call to a worker; its id."""
        if request.undoes:
            request = request.patched({"undoes": self._store.executions.whole(request.undoes)})
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
        """Start an investigation, for *run* if given; its id. The same *id* starts it once.

        Raises:
            QueueFull: too many investigations are waiting.
        """
        origin = Origin("run" if run else "api", actor=actor)
        id, new = self._store.investigations.ask(
            request, queues.THINK, retention, id=id, origin=origin, run=run
        )
        if new:
            self._dispatcher.job(self._store.agent_id, naming.investigation(id), 1, queues.THINK)
        return id

    def go_on(self, id: str, text: str, actor: Actor, request: str | None = None) -> bool:
        """Continue a conversation; False while the last question is unanswered.

        The same *request* is accepted once.

        Raises:
            KeyError: the investigation does not exist.
        """
        entry = Asked(text=text, by=actor.principal, rights=actor.rights)
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
        limits: IntakeLimits | None = None,
    ) -> int:
        """Accept observations; an event-driven agent starts an iteration at once.

        The audit names the *actor*; the same *request* is accepted once.

        Returns:
            The iteration started, or 0 for none.

        Raises:
            QueueFull: *limits* leave no room for them; none was accepted.
        """
        start = self._mode == "event-driven"
        iteration = self._store.loop_control.intake(observations, start, actor, request, limits)
        self._start(iteration)
        return iteration

    def look_again(self, trigger: str) -> None:
        """Start an iteration now, or after the one in flight has ended."""
        self._start(self._store.loop_control.look_again(trigger))

    def resume(self, actor: Actor | None = None) -> None:
        """Resume a paused agent."""
        self._start(self._store.loop_control.resume(actor))

    def _send_first(self, outcome: TriggerOutcome) -> TriggerOutcome:
        if outcome.new:
            self._start(outcome.iteration)
        return outcome

    def _start(self, iteration: int) -> None:
        if iteration:
            self._dispatcher.send(self._store.agent_id, iteration, 1, "start")
