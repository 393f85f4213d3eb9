"""An agent that investigates with a model at `MODEL_URL`; its tools note each call in `EFFECTS`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import BaseModel

from boyd import Agent, Plugin, action, tool
from boyd.settings.model import ModelSettings

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


def note(mark_name: str) -> None:
    """Leave a line, in one write; then wait while a file of that name holds it up."""
    with EFFECTS.open("a") as file:
        file.write(f"{mark_name}\n")
    hold = Path(f"{EFFECTS}.hold.{mark_name.partition(' ')[0]}")
    while hold.exists():
        time.sleep(0.01)


class Word(BaseModel):
    """Params of the tools."""

    word: str


class Tools(Plugin):
    """Tools that take a while, so that there is time to kill who executes them."""

    id = "tools"

    @tool()
    def look(self, params: Word) -> str:
        """Look at something."""
        note(f"look {params.word}")
        return f"saw {params.word}"

    @tool(idempotent=True)
    def peek(self, params: Word) -> str:
        """Look at something, once more if need be."""
        note(f"peek {params.word}")
        return f"saw {params.word}"

    @action(tool=True)
    def move(self, params: Word) -> str:
        """Change something."""
        note(f"move {params.word}")
        return f"moved {params.word}"

    @action(tool=True, autonomy="approval-required")
    def restart(self, params: Word) -> str:
        """Change something that a person has to allow."""
        note(f"restart {params.word}")
        return f"restarted {params.word}"


detective = Agent(
    "detective",
    plugins=[Tools()],
    llm=ModelSettings(
        base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:9/v1"),
        model="scripted",
        profile="off",
    ),
)
