"""Starts iterations: triggers, ticks, runs and events from outside (L2-L5)."""

from __future__ import annotations

from boyd.engine.courier import Courier
from boyd.models import Mode, Observation, RunRequest
from boyd.store import AgentStore, Begun, Slot, Submitted


class Launcher:
    """Starts iterations of one agent, from any process; needs no plugins."""

    def __init__(self, store: AgentStore, courier: Courier, mode: Mode) -> None:
        self._store = store
        self._courier = courier
        self._mode = mode

    def trigger(self, by: str) -> Begun:
        """Start an iteration, or join the one in flight.

        Raises:
            AgentPaused: the agent takes no triggers.
        """
        return self._sent(self._store.iterations.begin(by))

    def tick(self, slot: Slot) -> Begun:
        """Start the iteration of a beat slot, unless another beat did or it is over."""
        return self._sent(self._store.iterations.begin("beat", slot))

    def submit_run(self, request: RunRequest) -> Submitted:
        """Store a run; unless the agent is continuous, it starts an iteration (R1)."""
        submitted = self._store.runs.submit(request, start=self._mode != "continuous")
        self._start(submitted.iteration)
        return submitted

    def intake(self, observations: list[Observation]) -> int:
        """Hand over observations; an event-driven agent begins at once (L2).

        Returns:
            The iteration that began, 0, or -1 when too many wait already and none was taken.
        """
        start = self._mode == "event-driven"
        iteration = self._store.iterations.intake(observations, start)
        self._start(iteration)
        return iteration

    def resume(self) -> None:
        """Let a paused agent go on."""
        self._start(self._store.iterations.resume())

    def _sent(self, begun: Begun) -> Begun:
        if begun.new:
            self._start(begun.iteration)
        return begun

    def _start(self, iteration: int) -> None:
        if iteration > 0:
            self._courier.send(self._store.agent_id, iteration, 1, "start")
