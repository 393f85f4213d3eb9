"""An agent that looks at every host, and acts on the hosts that its queue names."""

from __future__ import annotations

import subprocess

from pydantic import JsonValue

from boyd import Agent, Context, Decision, Observation, Plugin, action, observer, strategy


class Spread(Plugin):
    """One observer for every host, and one action for the host `graz`."""

    id = "spread"

    @observer(scope="every_host")
    def look(self, ctx: Context) -> list[Observation]:
        """Tell the host and its address."""
        output = subprocess.run(
            ["ip", "-4", "-o", "addr", "show", "scope", "global"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        address = output.split()[3].partition("/")[0] if output else "?"
        data: dict[str, JsonValue] = {"host": ctx.host, "address": address}
        return [Observation(source="look", type="state", data=data)]

    @strategy()
    def choose(self) -> Decision:
        """Act always."""
        return Decision(action="spread:act", rationale="always", confidence=1.0)

    @action(queue="act.graz")
    def act(self, ctx: Context) -> str:
        """Tell the host."""
        return ctx.host


spread = Agent("spread", plugins=[Spread()])
