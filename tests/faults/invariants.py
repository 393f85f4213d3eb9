"""Invariants after any storm; each violation is a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from boyd.models import ActionResult, ApprovalItem, ExecutionEntry, LoopResult
from boyd.store import AgentStore
from boyd.store.keys import Keys
from clusters import every_key
from faults.load import Acknowledged
from faults.world import World

#: What may lie in Redis for good, per agent; everything else has a time to live.
BOUNDED = (
    *("loop", "due", "jobs", "events", "frozen", "history", "intake", "iteration"),
    *("audit", "audit:head", "audit:open"),
    *("runs", "runs:pending", "runs:finished", "observers:ran", "observers:health"),
    *("approvals:pending", "approvals:history", "approvals:fingerprints"),
)


class Invariants:
    """Compares what was done outside Redis with what Redis and the clients say."""

    def __init__(self, world: World, acknowledged: Acknowledged) -> None:
        self._world = world
        self._said = acknowledged
        self._store = world.deployment.store
        self._effects = Counter(world.deployment.effects())

    def check(self) -> list[str]:
        """Everything that is not as promised."""
        violations = list(self._duplicates())
        for agent in self._world.agents:
            store = self._store.agent(agent)
            violations += self._iterations(agent, store)
            violations += self._keys_without_end(agent)
            violations += self._audit(store)
            violations += self._overlaps(agent)
        return [*violations, *self._runs(), *self._calls(), *self._items()]

    def _duplicates(self) -> Iterator[str]:
        """P1: nothing is done twice."""
        for line, times in self._effects.items():
            if times > 1:
                yield f"P1: {line} was done {times} times"

    def _overlaps(self, agent: str) -> Iterator[str]:
        """P19: nothing begins on a host between the beginning and the end of another execution.

        Of an execution that never came to its end, or whose outcome is unknown because its worker
        was stopped beyond its lease, nobody can tell until when it ran.
        """
        running: dict[str, str] = {}
        for line in self._world.deployment.effects():
            kind, _, execution = line.partition(f":{agent}:")
            entry = self._entry(agent, line, kind, execution)
            if entry is None:
                continue
            target = str(entry.target)
            if kind == "end":
                running.pop(target, None)
            elif target in running:
                yield f"P19: {execution} began on {target} while {running[target]} ran"
            else:
                running[target] = execution

    def _entry(self, agent: str, line: str, kind: str, execution: str) -> ExecutionEntry | None:
        """The entry of an execution that is known to have begun and ended."""
        if kind not in ("begin", "end") or not self._effects[line.replace("begin", "end", 1)]:
            return None
        entry = self._store.agent(agent).executions.get(execution)
        return entry if entry is not None and entry.state != "unknown" else None

    def _iterations(self, agent: str, store: AgentStore) -> Iterator[str]:
        """P2: every iteration that began has ended and is in history; its result is true."""
        status = store.loop_control.status()
        if status.phase != "idle":
            yield f"P2: {agent} #{status.iteration} is still in {status.phase}"
        for number in range(1, status.iteration + 1):
            result = store.history.get(number)
            if result is None:
                yield f"P2: {agent} #{number} is not in history"
            else:
                yield from self._check_actions(result)

    def _check_actions(self, result: LoopResult) -> Iterator[str]:
        line = f"loop:{result.id}"
        own = result.action_results[0] if result.action_results else None
        yield from self._agrees(line, own)

    def _agrees(self, line: str, result: ActionResult | None) -> Iterator[str]:
        """Compare a result with the effects of its action."""
        times = self._effects[line]
        if result is not None and result.unknown:
            return  # that is what it says
        if result is not None and result.success and times != 1:
            yield f"P1: {line} is said to have succeeded and was done {times} times"
        if (result is None or not result.success) and times:
            reason = result.error if result else "no result"
            yield f"P1: {line} is said not to have been done ({reason}), and was"

    def _runs(self) -> Iterator[str]:
        """P5: every acknowledged run has ended."""
        for agent, run_id in self._said.runs:
            run = self._store.agent(agent).runs.get(run_id)
            if run is None:
                yield f"P5: run {run_id} of {agent} was acknowledged and is gone"
            elif run.status not in ("completed", "failed"):
                yield f"P2: run {run_id} of {agent} is {run.status}"

    def _calls(self) -> Iterator[str]:
        for agent, execution, number in self._said.calls:
            call = self._store.agent(agent).calls.get(execution.removeprefix("call:"))
            if call is None or call.execution is None:
                yield f"P5: {execution} of {agent} was acknowledged and is gone"
            elif call.execution.state in ("queued", "running"):
                yield f"P3: {execution} of {agent} is {call.execution.state}"
            else:
                yield from self._agrees(f"call:{agent}:{number}", call.result)

    def _items(self) -> Iterator[str]:
        """P6: every approval has one outcome, which is what its answerer was told."""
        ends = {"approve": "approved", "deny": "denied", "withdraw": "withdrawn"}
        for (agent, approval), line in self._said.items.items():
            item = self._store.agent(agent).approvals.get(approval)
            answer = self._said.answers.get((agent, approval))
            if item is None:
                yield f"P5: approval {approval} of {agent} was acknowledged and is gone"
                continue
            if answer and item.status != ends[answer]:
                yield f"P6: {approval} is {item.status}, and {answer} was acknowledged"
            if item.status == "approved" and item.result is None:
                yield f"P2: {approval} of {agent} is approved and has no result"
            yield from self._agrees(line, item.result)

    def _audit(self, store: AgentStore) -> Iterator[str]:
        """The chain of audit entries fits."""
        store.audit_trail.seal()
        verified = store.audit_trail.verify()
        if not verified.ok and verified.misfit:
            yield f"audit: {verified.misfit.detail}"

    def _keys_without_end(self, agent: str) -> Iterator[str]:
        """P12: what lies in Redis has a time to live, or is one of few."""
        client = self._store.client
        prefix = Keys(agent).prefix
        waiting = {f"approval:{item.id}" for item in self._pending(agent)}
        for key in every_key(client, f"{prefix}*"):
            name = key.removeprefix(prefix)
            if name not in BOUNDED and name not in waiting and client.ttl(key) < 0:
                yield f"P12: {key} has no time to live"

    def _pending(self, agent: str) -> list[ApprovalItem]:
        return list(self._store.agent(agent).approvals.page(500, history=False).pending)
