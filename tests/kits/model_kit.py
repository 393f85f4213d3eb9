"""An agent with tools and a scripted model, for tests of investigations."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from boyd import Agent, Plugin, Veto, action, tool
from boyd.models import Actor
from boyd.models.investigation import Entry, Investigation, InvestigationRequest, Result
from boyd.testing import TESTER, Lab, ScriptedModel
from boyd.testing.model_server import Received, call, say

BOB = Actor(principal="bob", person=True)
#: Says whatever it is asked; a word that no pattern takes for a secret unless it is registered.
SECRET = "correct-horse-battery-staple"


class Word(BaseModel):
    """Params of the tools of these tests."""

    word: str = ""


class Tools(Plugin):
    """Tools that note what they were asked."""

    id = "tools"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ran: list[str] = []

    @tool()
    def look(self, params: Word, ctx: Any) -> str:
        """Look at something."""
        self.ran.append(f"look {params.word}")
        return f"saw {params.word}"

    @tool()
    def leak(self, params: Word) -> str:
        """Say a secret."""
        return f"the key is {SECRET}"

    @tool()
    def fail(self, params: Word) -> str:
        """Fail."""
        self.ran.append(f"fail {params.word}")
        raise RuntimeError("no such host")

    @tool(timeout=0.05)
    def hang(self, params: Word, ctx: Any) -> str:
        """Take too long."""
        time.sleep(1)
        return "late"

    @tool(poll=True)
    def wait(self, params: Word) -> str:
        """Ask whether it is done."""
        self.ran.append("wait")
        return "done" if len(self.ran) > 8 else f"{len(self.ran)} of 9"

    @tool()
    def long(self, params: Word) -> str:
        """Say a lot."""
        return "x" * 200_000

    @action(tool=True)
    def note(self, params: Word) -> str:
        """Write something down."""
        self.ran.append(f"note {params.word}")
        return "noted"

    @action(tool=True, autonomy="approval-required")
    def restart(self, params: Word) -> str:
        """Restart something."""
        self.ran.append(f"restart {params.word}")
        return "restarted"

    @action(tool=True, min_confidence=0.5)
    def sure(self, params: Word) -> str:
        """Do what wants confidence."""
        self.ran.append("sure")
        return "done"

    @action()
    def secret_door(self, params: Word) -> None:
        """Be no tool."""

    def on_before_act(self, params: Any) -> None:
        """Forbid what is forbidden."""
        if params.get("word") == "forbidden":
            raise Veto("not here")


@dataclass
class Scene:
    """An agent with a scripted model."""

    lab: Lab
    model: ScriptedModel
    plugin: Any
    id: str = ""

    def ask(self, question: str = "Why?", **more: Any) -> Investigation:
        """Ask, and let everything happen."""
        request = InvestigationRequest(question=question, **more)
        self.id = self.lab.launcher.ask(request, TESTER, self.lab.engine.retention)
        return self.settle()

    def settle(self) -> Investigation:
        """Let everything happen that is due."""
        self.lab.deliver()
        self.lab.sweeper.sweep()
        self.lab.deliver()
        return self.found

    @property
    def found(self) -> Investigation:
        """The investigation as stored."""
        investigation = self.lab.store.investigations.get(self.id)
        assert investigation is not None
        return investigation

    @property
    def log(self) -> list[Entry]:
        """Everything that was written."""
        logged = self.lab.store.investigations.log(self.id)
        return [record.entry for record in logged if record.entry is not None]

    def entries(self, kind: type[Any]) -> list[Any]:
        """The entries of one kind."""
        return [entry for entry in self.log if isinstance(entry, kind)]

    @property
    def results(self) -> list[tuple[str, str]]:
        """Tool and status of each result."""
        return [(e.observation.tool, e.observation.status) for e in self.entries(Result)]


@contextmanager
def scene(
    *script: Any, forever: bool = True, wire: str = "openai", plugin: Any = None, **llm: Any
) -> Iterator[Scene]:
    """An agent whose model follows a script; the last reply is repeated."""
    plugin = plugin or Tools()
    with ScriptedModel(list(script), forever=forever) as model:
        url = f"{model.url}/v1" if wire == "openai" else model.url
        settings = {"base_url": url, "model": "scripted", "wire": wire, **llm}
        lab = Lab(Agent("detective", plugins=[plugin], llm=settings))
        yield Scene(lab, model, plugin)


def changing(tool_name: str = "look") -> Callable[[Received], Any]:
    """A model that never asks for the same thing twice, and answers when it has no tools."""
    numbers = itertools.count()

    def reply(request: Received) -> Any:
        if not request.body.get("tools"):
            return say("All in all it was the disk.")
        return call(tool_name, {"word": f"w{next(numbers)}"})

    return reply
