"""An agent in this process without Redis.

The phases, the store and its scripts are real; Redis is `fakeredis`, and messages are delivered by
hand. Install `boyd[testing]`.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import fakeredis
import redis

from boyd import runtime
from boyd.agent import Agent
from boyd.messaging.dispatcher import FOLLOWS
from boyd.models import (
    Actor,
    LoopResult,
    Observation,
    Phase,
    Place,
    RunRequest,
    Sandbox,
    Triple,
    utc_now,
)
from boyd.models.actor import GroupRights
from boyd.phases.action_call import ConfinedCall, perform
from boyd.phases.verify import check_in_sandbox
from boyd.sandbox.confined_call import ConfinedAnswer
from boyd.store import AgentStore, Store, Submitted, WorkerInfo
from boyd.store.fleet import ALIVE
from boyd.store.keys import Keys
from boyd.text.formatting import error_line
from boyd.text.queues import DEFAULT, of_host
from boyd.text.tokenizer import words as words_of

#: Redis separates the parts of a fact with it, so no label may contain it.
_SEPARATOR = "\x1f"


class MemoryGraph:
    """Implements `boyd.plugin.context.Graph` with dicts, for tests with a single thread.

    `calls` lists the names of called methods, to count round trips.
    """

    def __init__(self, triples: Iterable[Triple] = ()) -> None:
        self._facts: dict[Place, Triple] = {}
        self._revision = 0
        self.calls: list[str] = []
        self.add(triples)
        self.calls.clear()

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts; return the number that are new or have a higher confidence."""
        self.calls.append("add")
        added = 0
        for triple in list(triples):
            if any(_SEPARATOR in part for part in triple.place):
                raise ValueError("a label contains the control character 0x1f")
            old = self._facts.get(triple.place)
            if old is None or triple.confidence > old.confidence:
                self._facts[triple.place] = triple
                added += 1
        self._revision += added > 0
        return added

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; return True if it existed."""
        self.calls.append("remove")
        there = self._facts.pop((subject, predicate, object), None) is not None
        self._revision += there
        return there

    def out(self, symbol: str) -> list[Triple]:
        """The facts about a symbol."""
        return self.out_many([symbol])[symbol]

    def into(self, symbol: str) -> list[Triple]:
        """The facts that name a symbol as their object."""
        return self.into_many([symbol])[symbol]

    def out_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts about each of those symbols."""
        self.calls.append("out_many")
        facts: dict[str, list[Triple]] = {symbol: [] for symbol in symbols}
        for triple in self._sort_facts():
            if triple.subject in facts:
                facts[triple.subject].append(triple)
        return facts

    def into_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts that name each of those symbols as their object."""
        self.calls.append("into_many")
        facts: dict[str, list[Triple]] = {symbol: [] for symbol in symbols}
        for triple in self._sort_facts():
            if triple.object in facts:
                facts[triple.object].append(triple)
        return facts

    def with_predicate(self, predicate: str, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts with that predicate."""
        self.calls.append("with_predicate")
        return [triple for triple in self._sort_facts() if triple.predicate == predicate][:limit]

    def degrees(self, symbols: Sequence[str]) -> dict[str, int]:
        """The number of facts with each of those symbols as subject or object."""
        self.calls.append("degrees")
        ends = [end for triple in self._facts.values() for end in (triple.subject, triple.object)]
        return {symbol: ends.count(symbol) for symbol in symbols}

    def symbols_with(self, words: Collection[str], limit: int = 1000) -> dict[str, list[str]]:
        """For each of those words, up to *limit* labels of knowledge that contain it."""
        self.calls.append("symbols_with")
        holding: defaultdict[str, set[str]] = defaultdict(set)
        for triple in self._facts.values():
            for label in () if triple.is_metadata else triple.place:
                for word in words_of(label):
                    holding[word].add(label)
        ordered = {
            word: sorted(holding[word], key=lambda label: (len(words_of(label)), label))
            for word in words
        }
        return {word: labels[:limit] for word, labels in ordered.items()}

    def size(self) -> int:
        """The number of facts."""
        return len(self._facts)

    def revision(self) -> int:
        """The number of changes."""
        return self._revision

    def page(self, after: Place | None = None, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts in the order of their labels, behind *after*."""
        self.calls.append("page")
        return [fact for fact in self._sort_facts() if after is None or fact.place > after][:limit]

    def all(self) -> Iterator[Triple]:
        """Every fact, in the order of their labels."""
        self.calls.append("all")
        yield from self._sort_facts()

    def _sort_facts(self) -> list[Triple]:
        return [self._facts[key] for key in sorted(self._facts)]


_WORKER = "lab"

#: The submitter of runs.
TESTER = Actor(principal="tester", person=True)


class ManualDispatcher:
    """Keeps messages for delivery by hand; `queues` maps iteration and batch to a queue."""

    def __init__(self) -> None:
        self.hints: deque[tuple[Any, ...]] = deque()
        self.queues: dict[tuple[int, int], str] = {}

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Keep the message of a phase."""
        self.hints.append((phase, iteration, epoch))

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[runtime.BatchHint]) -> None:
        """Keep the message of each batch."""
        self.hints.extend(("observe", iteration, hint.batch, hint.attempt) for hint in batches)
        self.queues.update({(iteration, hint.batch): hint.queue for hint in batches})

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Keep the message of a job."""
        self.hints.append(("job", name, attempt))


class UnconfinedActions:
    """Runs actions that have a sandbox in this process: a lab tries out what they do, no limits."""

    def __init__(self, engine: runtime.Engine) -> None:
        self._engine = engine

    def find_limit_problem(self, sandbox: Sandbox) -> str | None:
        """None: nothing is enforced."""
        return None

    def call(self, sandbox: Sandbox, call: ConfinedCall, timeout: float) -> ConfinedAnswer:
        """Call the function here."""
        action = self._engine.agent.host.actions[call.action]
        here = replace(self._engine.context(action.plugin_id), execution_id=call.execution_id)
        run = check_in_sandbox if call.function == "verify" else perform
        try:
            return ConfinedAnswer(run(action, call, here))
        except Exception as error:  # noqa: BLE001 - as in a sandbox
            return ConfinedAnswer(error=error_line(error))


class _PromptSweeper(runtime.Sweeper):
    """Takes what is overdue however long ago the last sweep was, because tests may be slow.

    In a deployment, that much silence would leave everybody the time of a lease first.
    """

    client: Any

    def sweep(self) -> int:
        loop, now = Keys(self.agent_id).loop, self.client.time()[0] * 1000
        with suppress(redis.ResponseError):  # a key of another type
            swept = self.client.hget(loop, "sweptAt") or ""
            if swept.isdigit() and int(swept) < now:
                self.client.hset(loop, "sweptAt", now)
        return super().sweep()


class Lab:
    """One agent with imaginary workers and an empty store.

    Attributes:
        store: the store of the agent; `whole` is that of the deployment.
        dispatcher: the messages not yet delivered.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        client: Any = None,
        queues: Sequence[str] = (),
        hosts: Sequence[str] = ("here",),
        post: runtime.Post | None = None,
    ) -> None:
        """Build the lab and initialise the plugins.

        Args:
            agent: the agent to run.
            client: a Redis client with decoded replies; absent: a new `fakeredis`.
            queues: queues that the workers consume besides the default ones.
            hosts: one worker runs on each; the first one takes tasks for any host.
            post: sends callbacks; absent: the real sender.
        """
        self.agent = agent
        client = client or fakeredis.FakeRedis(decode_responses=True)
        self.client = client
        self.whole = whole = Store(client, _WORKER)
        self.leases = runtime.Leases(1.0)
        self._workers = [
            WorkerInfo(
                name=f"{_WORKER}@{host}",
                role="worker",
                host=host,
                pid=1,
                queues=[*DEFAULT, of_host(host), *queues],
                agents=[agent.id],
                version="test",
                started_at=utc_now(),
            )
            for host in hosts
        ]
        self._beat()
        self.store: AgentStore = whole.agent(agent.id)
        self.dispatcher = ManualDispatcher()
        self.launcher = runtime.Launcher(self.store, self.dispatcher, agent.settings.mode)
        engines = {host: self._engine(host, post) for host in hosts or ("here",)}
        self.engine = next(iter(engines.values()))
        self.steps = runtime.IterationSteps(self.engine)
        self._observing = {
            of_host(host): runtime.IterationSteps(engine) for host, engine in engines.items()
        }
        self.jobs = runtime.job_runner(self.engine)
        self.resolver = runtime.Resolver(
            self.store, self.dispatcher, self.engine.retention, rights=GroupRights()
        )
        self.sweeper = _PromptSweeper(self.engine, self.jobs, whole.timing.queue_timeout)
        self.sweeper.client = client
        whole.fleet.register(self.engine.entry())
        self.engine.init_plugins()

    def run(self, trigger: str = "test") -> LoopResult:
        """Run one iteration and return its result."""
        triggered = self.launcher.trigger(trigger)
        self.deliver()
        result = self.store.history.get(triggered.iteration)
        assert result is not None, "the iteration did not end"
        return result

    def submit(self, title: str, description: str = "from a test", **fields: Any) -> Submitted:
        """Submit a run; `deliver` executes it."""
        request = RunRequest(title=title, description=description, **fields)
        return self.launcher.submit_run(request, TESTER)

    def intake(self, *observations: Observation) -> int:
        """Submit observations from outside; `deliver` processes them."""
        return self.launcher.intake(list(observations))

    def deliver(self, until: Callable[[], bool] = lambda: False) -> None:
        """Deliver messages, including new ones, until none is left or *until* returns True."""
        self._beat()
        while self.dispatcher.hints and not until():
            self._deliver_one()

    def step(self) -> None:
        """Deliver the oldest message."""
        self._beat()
        self._deliver_one()

    def stay_alive(self) -> None:
        """Send the heartbeats of the workers if they are due, where a test delivers nothing."""
        if time.monotonic() >= self._next_beat:
            self._beat()

    def _deliver_one(self) -> None:
        self.stay_alive()
        phase, *ids = self.dispatcher.hints.popleft()
        if phase == "job":
            self.jobs.execute(*ids)
            return
        steps = self.steps
        if phase == "observe":  # the worker that consumes the queue of this batch
            queue = self.dispatcher.queues.get((ids[0], ids[1]), "")
            steps = self._observing.get(queue, self.steps)
        if steps.run(phase, *ids):
            self.dispatcher.hints.appendleft((FOLLOWS[phase], *ids))

    def _engine(self, host: str, post: runtime.Post | None) -> runtime.Engine:
        settings = runtime.EngineSettings(_WORKER, host)
        settings = replace(settings, post=post) if post else settings
        engine = runtime.Engine(self.agent, self.store, self.dispatcher, self.leases, settings)
        engine.confiner = UnconfinedActions(engine)
        return engine

    def _beat(self) -> None:
        self._next_beat = time.monotonic() + ALIVE / 3
        for worker in self._workers:
            self.whole.fleet.beat(worker)
