"""Agents whose work gets longer: one that investigates, and two that know more or less."""

from __future__ import annotations

import os

from pydantic import BaseModel

from boyd import Agent, Plugin, tool
from boyd.models.investigation import Limits
from boyd.settings.model import ModelSettings
from boyd_goals.plugin import Goals


class Word(BaseModel):
    """Params of the tool."""

    word: str


class Looking(Plugin):
    """A tool that returns at once."""

    id = "looking"

    @tool()
    def look(self, params: Word) -> str:
        """Look at something."""
        return f"saw {params.word}"


investigating = Agent(
    "investigating",
    plugins=[Looking()],
    llm=ModelSettings(
        base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:9/v1"),
        model="scripted",
        profile="off",
        limits=Limits(max_steps=1000, max_tool_calls=1000),
    ),
)


def _knowing(name: str) -> Agent:
    """An agent whose goal is never given up."""
    return Agent(name, plugins=[Goals(stall_threshold=1000, stagnation_threshold=1000)])


knows_little = _knowing("knows_little")
knows_much = _knowing("knows_much")
