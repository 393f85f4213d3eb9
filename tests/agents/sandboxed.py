"""An agent whose actions run in sandboxes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from pydantic import BaseModel

from boyd import Agent, Context, Plugin, Sandbox, action

FOLDER = str(Path(os.environ.get("EFFECTS", "/dev/null")).parent)


class Page(BaseModel):
    """The address to read."""

    url: str


class Where(BaseModel):
    """The file to write to: a sandbox does not have the variables of its worker."""

    path: Path


class Boxed(Plugin):
    """Does what a sandbox lets it do."""

    id = "boxed"

    @action(sandbox=Sandbox(files=[FOLDER]))
    def sleep(self, params: Where) -> str:
        """Start a program that sleeps, and say so."""
        with subprocess.Popen(["sleep", "4321"]):
            with params.path.open("a") as file:
                file.write("asleep\n")
            time.sleep(4321)
        return "slept"

    @action(sandbox=Sandbox(violations=2))
    def fetch(self, params: Page, ctx: Context) -> str:
        """Read a page."""
        return ctx.http.get(params.url).text

    @action(sandbox=Sandbox())
    def remember(self, ctx: Context) -> str:
        """Use what a sandbox lacks."""
        return str(ctx.state.get("x"))


agent = Agent("sandboxed", plugins=[Boxed()])
