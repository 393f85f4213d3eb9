"""Runs functions of actions in sandboxes, each in its own process.

The process loads the agent like a worker, but has no access to Redis: an action in a sandbox gets
its parameters, and no state, graph, model or approvals.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from boyd.errors import ConfigError
from boyd.models import ActionResult, Sandbox
from boyd.phases.action_call import ConfinedCall
from boyd.sandbox import confined_call, host_means
from boyd.settings.process_settings import Settings


class ActionConfiner:
    """Makes the sandboxes of one agent's actions."""

    def __init__(self, settings: Settings, worker: str, agent_id: str) -> None:
        # Of the settings it needs no secrets, and no more than this.
        self._place = {
            "agents": list(settings.agents),
            "agent": agent_id,
            "host": settings.worker.host,
            "worker": worker,
        }

    def missing(self, sandbox: Sandbox) -> str | None:
        """The limit that this host cannot enforce, and why; None: it enforces all."""
        return host_means.missing(sandbox)

    def call(
        self, sandbox: Sandbox, call: ConfinedCall, timeout: float
    ) -> confined_call.ConfinedAnswer:
        """Call the function, at most *timeout* seconds.

        Raises:
            CannotConfine: the sandbox cannot be made; nothing was started.
            Overrun: it took longer, and was killed.
        """
        before = call.result.to_json() if call.result else None
        network = None if sandbox.network == "any" else sandbox.network
        request = {**self._place, **asdict(call), "result": before, "destinations": network}
        argument = json.dumps(request)
        function = f"{__name__}:{perform_action.__name__}"
        return confined_call.call(sandbox, host_means.isolation(), function, argument, timeout)


class NoState:
    """Stands for the state of a plugin in a sandbox, which has none."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise ConfigError("an action in a sandbox has no state; pass what it needs as parameters")


def perform_action(request: str) -> str:
    """Call one function of an action in this process; its result as JSON."""
    from boyd.agent import load_agents
    from boyd.phases.action_call import perform
    from boyd.phases.verify import look_confined
    from boyd.plugin import Context

    given = json.loads(request)
    agent = load_agents(given["agents"])[given["agent"]]
    before = given["result"]
    call = ConfinedCall(
        given["action"],
        given["function"],
        given["params"],
        given["iteration"],
        given["execution_id"],
        ActionResult.from_json(before) if before else None,
    )
    action = agent.host.actions[call.action]
    plugin = agent.host.plugins[action.plugin_id]
    context = Context(
        agent.info,
        plugin.id,
        NoState(),
        call.iteration,
        host=given["host"],
        worker=given["worker"],
        catalog=agent.catalog,
        execution_id=call.execution_id,
        _destinations=given["destinations"],
    )
    plugin.init(context)
    run = look_confined if call.function == "verify" else perform
    return run(action, call, context)
