"""`make simulate`: runs schedules until one violates an invariant, or the time is over.

make simulate SEED=approval:17     repeats one, and prints its timeline
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import count

from simulation.scenarios import HARM, SCENARIOS, Scenario
from simulation.simulate import Outcome, run, run_all, shrink

#: Schedules without faults to vary, each with the most preemptions: two people approve what one
#: worker executes; what does harm is verified and undone.
SMALL = {(SCENARIOS["approval"], 7): 3, (HARM, 1): 3}


def main() -> None:
    """Run them; the exit status is 1 after a violation."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seed", help="the schedule to repeat, as `scenario:number`")
    parser.add_argument("--minutes", type=float, default=5, help="of processor time to go on")
    parser.add_argument("--scenario", choices=SCENARIOS, help="the only one to run")
    parser.add_argument("--first", type=int, help="the number of the first schedule")
    parser.add_argument("--all", action="store_true", help="run small sets of schedules completely")
    options = parser.parse_args()
    if options.all:
        sys.exit(_exhaust())
    if options.seed:
        name, _, number = options.seed.rpartition(":")
        if name not in SCENARIOS or not number.isdecimal():
            parser.error(f"--seed {options.seed}: give one of {', '.join(SCENARIOS)}, and a number")
        outcome = run(SCENARIOS[name], int(number))
        _report(SCENARIOS[name], outcome)
        sys.exit(bool(outcome.violations))
    first = time.time_ns() // 1_000_000 if options.first is None else options.first
    scenarios = [SCENARIOS[options.scenario]] if options.scenario else [*SCENARIOS.values()]
    sys.exit(_explore(scenarios, first, 60 * options.minutes))


def _explore(scenarios: Sequence[Scenario], first: int, seconds: float) -> int:
    """Run schedule after schedule, of each of the *scenarios* in turn."""
    began, commands, schedules = time.process_time(), 0, 0
    print(f"schedules from {first} on, for {seconds / 60:g} min of processor time", flush=True)
    for number in count(first):
        for scenario in scenarios:
            if number % scenario.every:
                continue
            outcome = run(scenario, number // scenario.every)
            schedules += 1
            commands += outcome.steps
            if outcome.violations:
                took = time.process_time() - began
                _report(scenario, outcome)
                print(f"found after {schedules} schedules in {took:.0f} s")
                return 1
        if time.process_time() - began > seconds:
            break
    took = time.process_time() - began
    print(f"{schedules} schedules in {took:.0f} s with {commands} steps, and no violation")
    return 0


def _exhaust() -> int:
    """Run all schedules of the small cases that differ in a few preemptions and one crash."""
    for (scenario, seed), preemptions in SMALL.items():
        began, schedules = time.process_time(), 0
        for outcome in run_all(scenario, seed, preemptions):
            schedules += 1
            if outcome.violations:
                _report(scenario, outcome)
                return 1
        took = time.process_time() - began
        print(f"{scenario.name}: {schedules} schedules in {took:.0f} s, and no violation")
    return 0


def _report(scenario: Scenario, outcome: Outcome) -> None:
    """Print a schedule; one with a violation with no more faults than it takes."""
    smallest = shrink(scenario, outcome) if outcome.violations else outcome
    print("\n".join(smallest.timeline))
    print(f"\nmake simulate SEED={scenario.name}:{outcome.seed}")
    for title, lines in (
        ("faults", map(str, outcome.faults)),
        ("that suffice", map(str, smallest.faults)),
        ("violations", smallest.violations),
    ):
        print(f"{title}: {'; '.join(lines) or 'none'}")


if __name__ == "__main__":
    main()
