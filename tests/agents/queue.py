"""An agent that does nothing by itself, and what it is approved to do leaves a line."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import BaseModel

from boyd import Agent, Plugin, action

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Item(BaseModel):
    """Which line to write, and how many seconds that takes."""

    number: int
    seconds: float = 0.0


class Queue(Plugin):
    """One action, which a person has to allow."""

    id = "queue"

    @action(autonomy="approval-required", risk="medium")
    def write(self, params: Item) -> str:
        """Write a line."""
        with EFFECTS.open("a") as file:
            file.write(f"{params.number}\n")
        time.sleep(params.seconds)
        return f"wrote {params.number}"


agent = Agent("queue", plugins=[Queue()])
