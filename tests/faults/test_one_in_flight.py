"""P19 on real processes: however it is asked for, one execution at a time acts on one target."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import pytest

from boyd import naming
from boyd.models import Actor, CallRequest
from boyd.store import AgentStore
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

ANN, EVE = Actor(principal="ann", person=True), Actor(principal="eve", person=True)
AGENT = "agents.single:agent"


class Crowd:
    """Callers that ask for the same action on the same target, each in its own way."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.store: AgentStore = deployment.agent("single")
        self._launcher = deployment.launcher("single")
        self._resolver = deployment.resolver("single")
        self.calls: list[str] = []
        self.approvals: list[str] = []

    def ways(self) -> list[Callable[[int], None]]:
        """Each way in which an action comes about."""
        return [self.loop, self.hand, self.approval, self.procedure, self.rollback, self.assistant]

    def loop(self, number: int) -> None:
        """Have an iteration decide on it."""
        self._launcher.trigger("test")

    def hand(self, number: int) -> None:
        """Call it."""
        self._call(number)

    def approval(self, number: int) -> None:
        """Ask for an approval, and give it."""
        self._approve(self._call(number, requires_approval=True))

    def assistant(self, number: int) -> None:
        """Propose it as an assistant does over MCP, which takes a person."""
        self._approve(self._call(number, by_person=True))

    def procedure(self, number: int) -> None:
        """Start a procedure with a step that executes it."""
        self._call(number, action="single:renew")

    def rollback(self, number: int) -> None:
        """Execute it, and undo that."""
        done = self._call(number)
        wait_until(lambda: self._has_end(done), 120)
        entry = self.store.executions.get(naming.call(done))
        if entry is not None and entry.state == "succeeded":
            self._call(number, kind="rollback", undoes=naming.call(done))

    def _call(self, number: int, **fields: object) -> str:
        call_fields = {"kind": "execute", "action": "single:restart", **fields}
        params = {} if fields.get("undoes") else {"host": "web1", "number": number}
        request = CallRequest.model_validate({**call_fields, "params": params, "actor": ANN})
        call = self._launcher.call(request, None)
        self.calls.append(call)
        return call

    def _approve(self, call: str) -> None:
        waits = wait_until(lambda: self._waits_for(call), 60)
        answer = self._resolver.answer(waits, "approved", EVE)
        assert answer.counts, answer.outcome
        self.approvals.append(waits)

    def _waits_for(self, call: str) -> str | None:
        record = self.store.calls.get(call)
        return record.result.waits_for if record is not None and record.result is not None else None

    def _has_end(self, call: str) -> bool:
        record = self.store.calls.get(call)
        return record is not None and record.result is not None

    def is_done(self) -> bool:
        """Check that every call and approval has an outcome, and that no procedure is running."""
        items = [self.store.approvals.get(id) for id in self.approvals]
        approved = all(item is not None and item.result is not None for item in items)
        # A procedure stops for a person when the worker that undid its step was killed.
        all_over = all(
            record.has_ended or record.state == "stopped" for record in self.store.procedures.all()
        )
        return approved and all_over and all(self._has_end(call) for call in self.calls)


def overlaps(effects: list[str]) -> list[str]:
    """The executions that began during another one, which ends at the latest with its worker."""
    overlaps_found, running = [], ""
    for line in effects:
        kind, _, execution = line.partition(":")
        if kind == "start" and running:
            overlaps_found.append(f"{execution} during {running}")
        if kind == "start":
            running = execution
        elif execution == running or (kind == "killed" and f"end:{running}" not in effects):
            running = ""
    return overlaps_found


def crowd(deployment: Deployment, callers: int, kills: int) -> list[str]:
    """Have so many callers ask, kill workers meanwhile, and return the effects."""
    deployment.environment["BOYD_TIMING__SWEEP"] = "0.1"
    for name in ("one", "two"):
        deployment.worker(name, AGENT)
    asking = Crowd(deployment)
    asking.loop(0)
    wait_until(deployment.effects)
    with ThreadPoolExecutor(min(callers, 40)) as pool:
        ways = islice(cycle(asking.ways()), callers)
        futures = [pool.submit(way, number) for number, way in enumerate(ways)]
        for number in range(kills):
            size = len(deployment.effects())
            wait_until(lambda size=size: len(deployment.effects()) > size + 4, 60)  # type: ignore[misc]
            name = ("one", "two")[number % 2]
            deployment.kill(name)
            with deployment.effects_file.open("a") as file:
                file.write(f"killed:{name}\n")
            deployment.worker(name, AGENT)
        for future in futures:
            future.result()
    wait_until(asking.is_done, 120)
    return deployment.effects()


def test_one_execution_at_a_time_acts_on_a_target(deployment: Deployment) -> None:
    effects = crowd(deployment, 24, 0)
    started = [line for line in effects if line.startswith("start:")]

    assert overlaps(effects) == []
    assert len(started) == len(set(started))
    kinds = {naming.parts(line.removeprefix("start:"))[0] for line in started}
    assert kinds == {"loop", "call", "approval", "step", "rollback"}


@pytest.mark.long
def test_two_hundred_callers_and_killed_workers_never_overlap(deployment: Deployment) -> None:
    effects = crowd(deployment, 200, 6)
    started = [line for line in effects if line.startswith("start:")]

    assert overlaps(effects) == []
    assert len(started) == len(set(started))
