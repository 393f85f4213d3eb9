"""Takes out one protection at a time and runs schedules until one shows that it is missing.

python tests/simulation/protections.py [--seconds 60] [TEXT]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from faults.protections import PROTECTIONS, SOURCES, Copy, Protection

#: Processor time, in seconds, for the schedules without one protection.
SECONDS = 60.0


def select(text: str = "") -> list[tuple[Protection, ...]]:
    """The protections to take out, each together with the one that backs it.

    They are those that interleavings put to the test, and whose description has *text*.
    """
    table = {protection.what: protection for protection in PROTECTIONS}
    chosen = [p for p in PROTECTIONS if p.scenario and text in p.what]
    return [(p, table[p.backed_by]) if p.backed_by else (p,) for p in chosen]


def search(copy: Copy, chosen: Sequence[Protection], seconds: float) -> tuple[bool, str]:
    """Run schedules without them; whether one violates an invariant, and how."""
    whole = {path: path.read_text() for path in (copy.root / p.file for p in chosen)}
    for protection in chosen:
        path = copy.root / protection.file
        path.write_text(path.read_text().replace(protection.old, protection.new))
    limits = ("--first", "0", "--minutes", str(seconds / 60))
    paths = os.pathsep.join(str(copy.root / source) for source in SOURCES)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "simulation", "--scenario", chosen[0].scenario, *limits],
            cwd=copy.root,
            env=os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for path, text in whole.items():
            path.write_text(text)
    if done.returncode not in (0, 1) or done.stderr:
        raise RuntimeError(f"the schedules cannot be run: {done.stderr[-2000:]}")
    return bool(done.returncode), _summary(done.stdout)


def _summary(output: str) -> str:
    """The schedules and seconds that it took, the seed, and what was violated."""
    [took] = re.findall(r"^(?:found after )?(\d+ schedules.*)$", output, re.MULTILINE)
    rest = re.findall(r"^make simulate SEED=(.*)$|^violations: (.*)$", output, re.MULTILINE)
    return "; ".join([took, *("".join(groups) for groups in rest)])


def report(each: Sequence[Sequence[Protection]], seconds: float) -> int:
    """Print what is found without each; the number of those that are not missed."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy.into(Path(folder))
        for chosen in each:
            violated, line = search(copy, chosen, seconds)
            missed += not violated
            titles = ", and ".join(protection.what for protection in chosen)
            print(f"{'found' if violated else 'NOT':5}  {titles}: {line}", flush=True)
    print(f"{len(each) - missed} of {len(each)} are missed")
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="of the protections to take out")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of processor time for each")
    options = parser.parse_args()
    sys.exit(bool(report(select(options.text), options.seconds)))
