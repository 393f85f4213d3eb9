"""Agents whose parts misbehave."""

from __future__ import annotations

import json
import os
import resource
import time
from typing import Any

from agents.traced import mark
from boyd import Agent, Context, Decision, Observation, Plugin, action, observer, strategy


def observe_process(name: str) -> list[Observation]:
    """One observation with the process it was made in."""
    return [Observation(source=name, type="metric", data={"pid": os.getpid()})]


class Isolated(Plugin):
    """Observers in processes of their own."""

    id = "isolated"

    @observer(isolated=True, timeout=120)
    def well(self, ctx: Context) -> list[Observation]:
        """See something, and remember it."""
        print("what an observer prints does no harm")
        ctx.state.set("seen", ctx.iteration)
        ctx.state.set("where", [ctx.host, ctx.worker.partition(".")[0]])
        return observe_process("well")

    @observer(isolated=True, timeout=1.5)
    def hangs(self) -> list[Observation]:
        """Never return, not even when asked to."""
        while True:
            time.sleep(60)

    @observer(isolated=True, timeout=120)
    def dies(self) -> list[Observation]:
        """End the process."""
        os._exit(3)

    @observer(isolated=True, timeout=120)
    def fails(self) -> list[Observation]:
        """Raise."""
        raise RuntimeError("boom")

    @observer()
    def usual(self) -> list[Observation]:
        """See something in the worker itself."""
        return observe_process("usual")


class Deadly(Plugin):
    """An observer that takes its worker with it, beside one that does not."""

    id = "deadly"

    @observer()
    def kills(self, ctx: Context) -> list[Observation]:
        """End the worker."""
        mark("kills", ctx)
        os._exit(9)

    @observer()
    def lives(self) -> list[Observation]:
        """See something."""
        return observe_process("lives")


class Hanging(Plugin):
    """Observers that hang for ever."""

    id = "hanging"

    def __init__(self) -> None:
        super().__init__()
        from boyd.plugin import Observer

        self.components = [
            Observer(name=f"o{i}", observe=self._hang, timeout=0.3) for i in range(3)
        ]

    def _hang(self) -> Any:
        while True:
            time.sleep(60)

    @observer()
    def lives(self) -> list[Observation]:
        """See something."""
        return observe_process("lives")


class Slow(Plugin):
    """An action that takes too long."""

    id = "slow"

    @strategy()
    def choose(self) -> Decision:
        """Act always."""
        return Decision(action="slow:act", rationale="always", confidence=1.0)

    @action(timeout=0.5)
    def act(self, ctx: Context) -> str:
        """Take too long, and say so if that was not prevented."""
        mark("begin", ctx)
        time.sleep(30)
        mark("end", ctx)
        return "late"


class Breaking(Plugin):
    """Actions that break what all code of their process shares."""

    id = "breaking"

    @action()
    def replace_json(self) -> None:
        """Let nothing become JSON any more."""

        def refuse(*_: Any, **__: Any) -> str:
            raise RuntimeError("replaced by a plugin")

        json.dumps = refuse

    @action()
    def leak_files(self) -> None:
        """Leave almost as many files open as the process may have."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        while os.open(os.devnull, os.O_RDONLY) < 0.95 * limit:
            pass

    @action()
    def work(self) -> str:
        """Do what it should."""
        return "done"


breaking = Agent("breaking", plugins=[Breaking()])
isolated = Agent("isolated", plugins=[Isolated()])
deadly = Agent("deadly", plugins=[Deadly()])
hanging = Agent("hanging", plugins=[Hanging()])
slow = Agent("slow", plugins=[Slow()])
