"""Agents whose cost is measured: by the number of their observers and what these see."""

from __future__ import annotations

from benchmarks.agents import Many, Trivial
from boyd import Agent, Observation

COUNTS = (1, 10, 100, 1000)
#: Bytes that a wide observer sees.
WIDE = 8000


class Wide(Trivial):
    """Sees a lot."""

    def observe(self) -> list[Observation]:
        """See one long text."""
        return [Observation(source=self.id, type="log", data={"text": "x" * WIDE})]


for _count in COUNTS:
    globals()[f"seen{_count}"] = Agent(f"seen{_count}", plugins=[Many(Trivial, _count)])
wide10 = Agent("wide10", plugins=[Many(Wide, 10)])
wide100 = Agent("wide100", plugins=[Many(Wide, 100)])
#: Many agents for one worker.
for _number in range(100):
    globals()[f"one{_number}"] = Agent(f"one{_number}", plugins=[Many(Trivial, 1)])
