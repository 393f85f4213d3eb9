"""Takes out one protection at a time and runs schedules until one shows that it is missing.

python tests/simulation/protections.py [--seconds 60] [TEXT]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from faults.protections import PROTECTIONS, SOURCES, Copy, Protection

#: What holds with the protections that interleavings and crashes put to the test, by scenario.
INTERLEAVED = {
    "approval": (
        "only the worker that holds its job may claim",
        "the message of a job is sent again",
        "a job that lost its worker while executing needs no other worker to end",
        "after a silence the living keep what they hold",
        "an approval is due in the step that acknowledges it",
        "only what is pending can be resolved",
        "the clock of Redis expires it, though nobody has looked",
        "cancelling its run does not withdraw what has expired",
        "one principal counts once",
        "a job that was given to another cannot be ended late",
        "a claim reads the freeze of the deployment, not only that of its agent",
    ),
    "effect": (
        "only the worker that holds its act phase may claim",
        "a claim is exclusive while it is renewed",
        "what has ended is in the ledger and not executed again",
        "what was started and lost is unknown, not executed again",
        "what begins is due for the sweeper in the same step",
        "the next phase is due in the step that leaves the last",
        "the message of a phase is sent again",
        "an act phase that lost its worker while executing needs no other worker to end",
        "leases are renewed while the work goes on",
        "a lease is renewed again after an outage",
        "the epoch of a phase fences who was taken for lost",
        "only who has entered a phase may leave it",
        "a phase is entered once under each epoch",
        "a late result does not change the ledger",
        "what still runs elsewhere is put back",
    ),
    "proposers": (
        "a job is taken once, however often its message comes",
        "an execution begins only when it is its turn, in whatever way it was ordered",
        "what is being verified is in flight",
        "what did harm is in flight until that is undone",
    ),
    "slots": (
        "a slot is claimed once",
        "a slot that is over starts nothing",
        "the pulse of a worker outlives an outage",
        "a batch is completed under its attempt only",
    ),
}
#: Those that another one backs, with which they are taken out once more.
BACKED = {
    "what begins is due for the sweeper in the same step": (
        "each sweep compares what is in flight with what is due"
    ),
    "the epoch of a phase fences who was taken for lost": (
        "only who has entered a phase may leave it"
    ),
}


def select(text: str = "") -> list[tuple[str, tuple[Protection, ...]]]:
    """A scenario with what is taken out together, of those whose description has *text*."""
    table = {protection.what: protection for protection in PROTECTIONS}
    every = [(name, title) for name, titles in INTERLEAVED.items() for title in titles]
    alone = [(name, (table[title],)) for name, title in every]
    pairs = [
        (name, (table[title], table[BACKED[title]])) for name, title in every if title in BACKED
    ]
    return [(name, chosen) for name, chosen in alone + pairs if text in chosen[0].what]


def search(
    copy: Copy, scenario: str, chosen: Sequence[Protection], seconds: float
) -> tuple[bool, str]:
    """Run schedules without them; whether one violates an invariant, and the last lines."""
    whole = {path: path.read_text() for path in (copy.root / p.file for p in chosen)}
    for protection in chosen:
        path = copy.root / protection.file
        path.write_text(path.read_text().replace(protection.old, protection.new))
    limits = ("--scenario", scenario, "--first", "0", "--minutes", str(seconds / 60))
    paths = os.pathsep.join(str(copy.root / source) for source in SOURCES)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "simulation", *limits],
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
    lines = done.stdout.splitlines()
    return bool(done.returncode), "; ".join(lines[-2:] if done.returncode else lines[-1:])


def report(each: Sequence[tuple[str, Sequence[Protection]]], seconds: float) -> int:
    """Print what is found without each; the number of those that are not missed."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy.into(Path(folder))
        for scenario, chosen in each:
            violated, line = search(copy, scenario, chosen, seconds)
            missed += not violated
            titles = ", and ".join(protection.what for protection in chosen)
            print(f"{'found' if violated else 'NOT':5}  {titles}: {line}", flush=True)
    print(f"{len(each) - missed} of {len(each)} are missed")
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="of the protections to take out")
    parser.add_argument("--seconds", type=float, default=60, help="of processor time for each")
    options = parser.parse_args()
    sys.exit(bool(report(select(options.text), options.seconds)))
