"""`make range`: real faults, right and wrong actions, and what Boyd makes of them.

make range ARGS="--rounds 4 --seed 7 --report range.md"
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kits"))

from faults import small_disk
from range.cases import Case, make_cases
from range.judging import judge
from range.report import Report
from range.runner import Runner
from range.site import Site
from range.world import World, make_world, missing


def run_range(cases: dict[str, list[Case]], seed: int, tell: Callable[[str], None]) -> Report:
    """Run all cases, the lanes at the same time, and *tell* how far it is."""
    report, lock, stopping = Report(), Lock(), Event()
    errors: list[BaseException] = []
    whole, began = sum(map(len, cases.values())), time.monotonic()

    def run_lane(world: World, site: Site) -> None:
        try:
            for course in Runner(world, site, stopping).run(cases[site.lane]):
                with lock:
                    report.add(course, judge(course))
                    tell(report.progress(course, whole, time.monotonic() - began))
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
            stopping.set()

    with make_world(seed, cases) as world:
        threads = [Thread(target=run_lane, args=(world, site)) for site in world.sites]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
        report.killed = world.killed
    if errors:
        raise errors[0]
    return report


def main() -> None:
    """Run the range; the exit status is 1 when anything was not as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="how often each case comes")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the cases")
    parser.add_argument("--report", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    if reason := missing():
        sys.exit(f"there can be no range here: {reason}")
    for name in [name for name in os.environ if name.startswith("BOYD_")]:
        del os.environ[name]
    cases = make_cases(arguments.seed, arguments.rounds)
    print(f"seed {arguments.seed}", flush=True)
    if reason := small_disk.missing():
        del cases["disk"]
        print(f"no faults of disks: {reason}", flush=True)
    report = run_range(cases, arguments.seed, _tell)
    print(f"\n{report.table}", flush=True)
    if arguments.report:
        arguments.report.write_text(f"{report.table}\n")
    sys.exit(bool(report.total.misses))


def _tell(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)
    else:
        print(text, flush=True)


if __name__ == "__main__":
    main()
