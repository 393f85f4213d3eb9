"""An agent whose actions use processes of the standard library."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from boyd import Agent, Decision, Plugin, action, strategy

#: The ways in which Python starts processes, but `fork`: it copies locks that threads hold.
METHODS = ("spawn", "forkserver")
NUMBERS = (1, 2, 3)


def double(number: int) -> int:
    """Runs in another process."""
    return 2 * number


class Parallel(Plugin):
    """Computes in several processes."""

    id = "parallel"

    @action(timeout=60)
    def compute(self) -> dict[str, Any]:
        """Compute the same in each way."""
        results = {}
        for method in METHODS:
            context = multiprocessing.get_context(method)
            with context.Pool(2) as pool:
                results[method] = pool.map(double, NUMBERS)
            with ProcessPoolExecutor(2, mp_context=context) as executor:
                results[f"{method} executor"] = list(executor.map(double, NUMBERS))
        return results

    @strategy()
    def choose(self) -> Decision:
        """Compute always."""
        return Decision(action="parallel:compute", rationale="always", confidence=1.0)


agent = Agent("parallel", plugins=[Parallel()])
