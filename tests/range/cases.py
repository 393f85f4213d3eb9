"""The cases of a run: which fault, which mistake, and when a worker is killed; all by the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from range.lines import Step

#: By lane and fault: the action that is right, and the mistakes that it may make.
COURSE: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "database": {
        "locked table": ("terminate", ("terminates nothing", "terminates another session")),
        "exhausted connections": ("raise_limit", ("raises nothing", "lowers the limit")),
    },
    "proxy": {
        "wrong config": (
            "restore",
            ("reloads the wrong config", "loses a page", "helps and loses a page"),
        ),
    },
    "service": {
        "killed service": ("restart", ("restarts nothing", "stops another service")),
        "hung service": ("restart", ("restarts nothing", "stops another service")),
        "slow service": ("restart", ("restarts nothing", "stops another service")),
    },
    "disk": {
        "full disk": ("clean", ("cleans nothing", "cleans another folder")),
        "leaked file": ("restart", ("restarts nothing", "loses the ledger")),
    },
}
#: The actions that can be undone.
UNDOABLE = {"raise_limit", "restore", "clean", "service:restart"}
#: When a worker is killed: at which line of a case, if it comes to that; mostly at none.
KILLS: tuple[Step | None, ...] = (
    *((None,) * 6 + ("look",) * 3 + ("act", "acted", "undo", "undone")),
)


@dataclass(frozen=True)
class Case:
    """A fault, or none, and a mistake that the first remedy makes, or none."""

    lane: str
    fault: str = ""
    mistake: str = ""
    kill: Step | None = None

    @property
    def action(self) -> str:
        """The action that is right; empty: none."""
        return COURSE[self.lane][self.fault][0] if self.fault else ""

    @property
    def name(self) -> str:
        """A name for people."""
        return ", ".join(filter(None, (self.fault or f"no fault ({self.lane})", self.mistake)))


def make_cases(seed: int, rounds: int) -> dict[str, list[Case]]:
    """The cases of each lane; a round has each fault without and with each mistake, and none."""
    return {lane: _shuffle(lane, seed, rounds) for lane in COURSE}


def is_undoable(lane: str, action: str) -> bool:
    """Check that an action has a rollback."""
    return action in UNDOABLE or f"{lane}:{action}" in UNDOABLE


def _shuffle(lane: str, seed: int, rounds: int) -> list[Case]:
    dice = random.Random(f"{seed}/cases/{lane}")
    cases: list[Case] = []
    for _ in range(rounds):
        course = COURSE[lane]
        faults = [(fault, mistake) for fault in course for mistake in ("", *course[fault][1])]
        once = [Case(lane, fault, wrong, dice.choice(KILLS)) for fault, wrong in faults]
        once.append(Case(lane))
        dice.shuffle(once)
        cases += once
    return cases
