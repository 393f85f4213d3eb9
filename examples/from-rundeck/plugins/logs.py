"""The job of job.yaml: its node filter, its option, and its script."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml
from pydantic import BaseModel, Field

from boyd import Decision, Observation, Plugin, action, observer, strategy


class Rotation(BaseModel):
    """A server, and how many of its old logs to keep."""

    server: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    keep: int = Field(ge=1, le=99)


class Logs(Plugin):
    """Rotates the access logs of the web servers."""

    id = "logs"

    class Options(Plugin.Options):
        """The nodes, and the default of the option."""

        nodes: str = "resources.yaml"
        tag: str = "web"
        keep: int = 7

    options: Options

    @observer()
    def inventory(self) -> list[Observation]:
        """List the nodes with the tag."""
        nodes = yaml.safe_load(Path(self.options.nodes).read_text(encoding="utf-8"))
        servers = [name for name, node in nodes.items() if self.options.tag in node["tags"]]
        return [Observation(source="logs/nodes", type="state", data={"servers": servers})]

    @strategy()
    def nightly(self) -> Decision:
        """Rotate them in each iteration: the schedule says when there is one."""
        return Decision(
            action="procedures:rotate",
            params={"keep": self.options.keep},
            rationale="it is time",
            confidence=1.0,
        )

    @action(target="server", timeout=120)
    def rotate(self, params: Rotation) -> str:
        """Rotate the access log of a server."""
        done = subprocess.run(  # noqa: S603 - no shell reads the name, and its pattern is checked
            ["/bin/sh", "scripts/rotate.sh", params.server, str(params.keep)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"rotate.sh exited with {done.returncode}: {done.stderr.strip()}")
        return f"rotated the log of {params.server}"

    @rotate.verify(within=10, every=2, before=False)
    def _is_empty(self, params: Rotation) -> bool:
        return Path("servers", params.server, "access.log").stat().st_size == 0
