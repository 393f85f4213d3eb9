"""`make chaos`: storms one after the other, with a report at the end.

make chaos ARGS="--minutes 30 --seed 7 --report chaos.md"
make chaos ARGS="--minutes 30 --cluster"
make chaos ARGS="--minutes 30 --production"
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kits"))

from faults.storm import Outcome, storm, table

#: Where else than on one Redis.
PLACES = {
    "cluster": "on a Redis Cluster",
    "production": "in the set-up of docs/deployment.md",
}


def main() -> None:
    """Run storms until the time is up; the exit status is 1 when anything was not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long in all")
    parser.add_argument("--each", type=float, default=120.0, help="seconds of one storm")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first storm")
    place = parser.add_mutually_exclusive_group()
    for name, text in PLACES.items():
        place.add_argument(f"--{name}", action="store_const", const=name, dest="where", help=text)
    parser.add_argument("--report", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("BOYD_")]:
        del os.environ[name]
    until = time.monotonic() + arguments.minutes * 60
    outcomes: list[Outcome] = []
    while time.monotonic() < until:
        seed = arguments.seed + len(outcomes)
        seconds = min(arguments.each, max(10.0, until - time.monotonic()))
        outcome = storm(seed, seconds, where=arguments.where or "redis")
        outcomes.append(outcome)
        summary = f"{len(outcome.faults)} faults, {len(outcome.violations)} violations"
        print(f"seed {seed}: {outcome.seconds:.0f} s, {summary}, {outcome.counts}", flush=True)
        for violation in outcome.violations:
            print(f"  {violation}", flush=True)
    report = table(outcomes)
    print(f"\n{report}")
    if arguments.report:
        arguments.report.write_text(f"{report}\n")
    sys.exit(any(outcome.violations for outcome in outcomes))


if __name__ == "__main__":
    main()
