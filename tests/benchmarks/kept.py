"""The cost of an iteration, a list and an answer with 10 and with 100 000 kept items."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from boyd.models import Actor, Decision, JsonObject, Proposal, RunRequest
from boyd.runtime.approvals import enqueue_approval
from boyd.store import AgentStore, ItemAnswer
from boyd.store.keys import Keys
from harness import Deployment
from kit import LAX

FEW, MANY = 10, 100_000
#: How many a list shows: as many are there in either case.
PAGE = 10
#: How often each is measured, in turns.
RUNS = 200
#: The agents that `agents.py` has for this: the same, but for what they keep.
AGENTS = {FEW: "kept_few", MANY: "kept_many"}

_SOMEBODY = Actor(principal="bench", person=True)
_numbers = count()

#: Copies a hash many times, and puts the copies in an index by time.
_COPY = """
for i = 2, tonumber(ARGV[2]) do
  redis.call('COPY', KEYS[1], ARGV[1] .. i)
  redis.call('ZADD', KEYS[2], ARGV[3] + i, ARGV[4] .. i)
end
"""


def fill(deployment: Deployment, store: AgentStore, items: int) -> None:
    """Keep *items* runs, resolved approvals and iterations, each a copy of a real one."""
    keys, client = Keys(store.agent_id), deployment.store.client
    launcher = deployment.launcher(store.agent_id)
    run = launcher.submit_run(RunRequest(title="kept", description="kept"), _SOMEBODY)
    deployment.ended(store.agent_id, run.iteration)
    item = propose(store)
    store.approvals.resolve(item, ItemAnswer("denied", _SOMEBODY), LAX, store.retention())
    began = (time.time() - 86_400) * 1000
    copied = (
        (keys.run(run.run.id), keys.run(""), keys.runs_finished),
        (keys.run(run.run.id), keys.run(""), keys.runs),
        (keys.approval(item), keys.approval(""), keys.approvals_history),
    )
    for source, prefix, index in copied:
        client.eval(_COPY, 2, source, index, f"{prefix}kept", items, began, "kept")
    # Iterations are found by number: the copies follow the first one.
    client.hincrby(keys.loop, "iteration", items)
    args = (
        keys.past_iteration(run.iteration),
        keys.history,
        keys.of("iteration", ""),
        items,
        began,
        "",
    )
    client.eval(_COPY, 2, *args)


def propose(store: AgentStore) -> str:
    """A new pending approval, unlike all others."""
    params: JsonObject = {"number": next(_numbers)}
    decision = Decision(action="kept:do", params=params, rationale="bench", confidence=1.0)
    proposal = Proposal(decision=decision, action_id="kept:do", params=params, loop_iteration=1)
    return enqueue_approval(store, proposal).id


def operations(deployment: Deployment, agent_id: str) -> dict[str, Callable[[], Any]]:
    """The measured operations, by name."""
    store = deployment.agent(agent_id)
    launcher = deployment.launcher(agent_id)
    retention = store.retention()

    def answer() -> None:
        store.approvals.resolve(propose(store), ItemAnswer("denied", _SOMEBODY), LAX, retention)

    def iterate() -> None:
        deployment.ended(agent_id, launcher.trigger("bench").iteration)

    return {
        "list approvals": lambda: store.approvals.page(PAGE),
        "list runs": lambda: store.runs.page(PAGE),
        "list runs with a filter": lambda: store.runs.page(PAGE, source="api"),
        "list iterations": lambda: store.history.results(PAGE),
        "propose and resolve": answer,
        "purge": lambda: store.approvals.expire(retention),
        "one iteration": iterate,
    }


def measure(deployment: Deployment) -> dict[str, float]:
    """The ratio of each operation's median cost, with many kept items to with few."""
    both = {}
    for items, agent_id in AGENTS.items():
        fill(deployment, deployment.agent(agent_id), items)
        both[items] = operations(deployment, agent_id)
    ratios = {}
    for name in both[FEW]:
        few, many = [], []
        for _ in range(RUNS):
            few.append(_time(both[FEW][name]))
            many.append(_time(both[MANY][name]))
        ratios[name] = statistics.median(many) / statistics.median(few)
    return ratios


def _time(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
