"""Agents whose cost is measured: by how much their one observer has to do and what it sees.

Shards stand for the hosts of an observer with `every_host`: the work is split in the same way, and
the agent stays small.
"""

from __future__ import annotations

from benchmarks.agents import Many, Trivial
from boyd import Agent, Observation, Plugin
from boyd.plugin import Observer

COUNTS = (1, 10, 100, 1000)
#: As with 20 observers on 1 000 hosts, to see how far the model holds.
LARGEST = 20_000
#: Observers of an agent that run on each of many hosts.
HOST_OBSERVERS = 20
#: Bytes that a wide shard sees.
WIDE = 8000


class Split(Trivial):
    """So many shards that each see next to nothing."""

    count = 1

    def partition(self) -> list[int]:
        """Number them."""
        return list(range(self.count))


class Wide(Split):
    """Each shard sees a lot."""

    def observe(self) -> list[Observation]:
        """See one long text."""
        return [Observation(source=self.id, type="log", data={"text": "x" * WIDE})]


class One(Plugin):
    """One observer with that many shards."""

    id = "one"

    def __init__(self, kind: type[Split], count: int) -> None:
        super().__init__()
        observer = kind(name="o")
        observer.count = count
        self.components = [observer]


for _count in (*COUNTS, LARGEST):
    globals()[f"split{_count}"] = Agent(f"split{_count}", plugins=[One(Split, _count)])
for _count in (10, 100):
    globals()[f"wide{_count}"] = Agent(f"wide{_count}", plugins=[One(Wide, _count)])
#: The same with as many observers instead of shards.
whole1000 = Agent("whole1000", plugins=[Many(Trivial, 1000)])
#: Many agents for one worker.
for _number in range(100):
    globals()[f"one{_number}"] = Agent(f"one{_number}", plugins=[Many(Trivial, 1)])


class Local(Observer):
    """Sees 200 bytes on every host."""

    scope = "every_host"

    def observe(self) -> list[Observation]:
        """See something of this host."""
        return [Observation(source=self.id, type="metric", data={"text": "x" * 200})]


#: An agent on a thousand hosts. Its beat waits until midnight, so that it disturbs no measurement.
thousand = Agent(
    "thousand", mode="continuous", loop_interval=86400, plugins=[Many(Local, HOST_OBSERVERS)]
)
#: Agents that tick every second.
for _number in range(20):
    globals()[f"ticking{_number}"] = Agent(
        f"ticking{_number}", mode="continuous", loop_interval=1, plugins=[Many(Trivial, 1)]
    )
