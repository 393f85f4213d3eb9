"""An agent with a procedure of three steps, the first two of which can be undone.

It writes what it does into `EFFECTS`. While a file `<EFFECTS>.<point>` exists, it waits at that
point: `before`, `in` or `after` an action, as `before-two`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from boyd import Agent, Plugin, Procedure, ProcedureStep, action
from boyd.models import ActionResult
from boyd.plugin import Action

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


def _pass(point: str) -> None:
    gate = EFFECTS.with_name(f"{EFFECTS.name}.{point}")
    if gate.exists():
        EFFECTS.with_name(f"{EFFECTS.name}.reached").write_text(point, encoding="utf-8")
    while gate.exists():
        time.sleep(0.02)


def _do(step: str) -> str:
    with EFFECTS.open("a", encoding="utf-8") as file:
        file.write(f"{step}\n")
    _pass(f"in-{step}")
    return step


class Stepped(Plugin):
    """Does things one after the other."""

    id = "stepped"
    components = (
        Procedure(
            name="all",
            steps=[ProcedureStep(id=name, action=f"stepped:{name}") for name in ("one", "two")]
            + [ProcedureStep(id="three", action="stepped:three")],
        ),
    )

    @action()
    def one(self) -> str:
        """Do the first thing."""
        return _do("one")

    @one.rollback
    def undo_one(self) -> str:
        """Undo the first thing."""
        return _do("undo-one")

    @action()
    def two(self) -> str:
        """Do the second thing."""
        return _do("two")

    @two.rollback
    def undo_two(self) -> str:
        """Undo the second thing."""
        return _do("undo-two")

    @action()
    def three(self) -> str:
        """Do the third thing; it fails while a file `<EFFECTS>.broken` exists."""
        _do("three")
        if EFFECTS.with_name(f"{EFFECTS.name}.broken").exists():
            raise RuntimeError("it is broken")
        return "three"

    def on_before_act(self, action: Action) -> None:
        """Wait before an action."""
        _pass(f"before-{action.name}")

    def on_after_act(self, result: ActionResult) -> None:
        """Wait after an action."""
        _pass(f"after-{result.action.partition(':')[2]}")

    def on_procedure(self, procedure: Any) -> None:
        """Note what people are told."""
        with EFFECTS.with_name(f"{EFFECTS.name}.told").open("a", encoding="utf-8") as file:
            file.write(f"{procedure.state}\n")


agent = Agent("stepped", plugins=[Stepped()])
