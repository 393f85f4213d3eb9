"""Runs isolated observers, each in its own process, which is killed after the time limit.

The parent sends the request as JSON; the log receives what the observer prints.
"""

from __future__ import annotations

import json
from typing import Any

from boyd.phases.observe import Isolate, dump, load, validated
from boyd.sandbox import subprocess_call
from boyd.settings.process_settings import Settings


class Isolation:
    """Starts processes of isolated observers."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._worker = worker
        # An observer needs none of these secrets.
        keys = {"audit_key", "approval_private_key", "identity_key"}
        secret = {*keys, "approval_secret", "callbacks"}
        self._settings = settings.model_dump_json(exclude=secret)

    def of(self, agent_id: str) -> Isolate:
        """The function that runs isolated observers of one agent."""

        def run(observer: str, shard: Any, iteration: int | None, timeout: float) -> list[Any]:
            request = {
                "settings": self._settings,
                "worker": self._worker,
                "agent": agent_id,
                "observer": observer,
                "shard": shard,
                "iteration": iteration,
            }
            answer = subprocess_call.call(
                "boyd_worker.observer_process:observe", json.dumps(request), timeout
            )
            return list(load(answer))

        return run


def observe(request: str) -> str:
    """Run one observer in this process and return its observations."""
    return _observe(json.loads(request))


def _observe(request: dict[str, Any]) -> str:
    from boyd.agent import load_agents
    from boyd.plugin import Context
    from boyd.store import Store, connect

    settings = Settings.model_validate_json(request["settings"])
    agent = load_agents(settings.agents)[request["agent"]]
    assert settings.redis_url is not None
    store = Store(connect(settings.redis_url)).agent(agent.id)
    observer = agent.host.observers[request["observer"]]
    plugin = agent.host.plugins[observer.plugin_id]
    ctx = Context(
        agent.info,
        plugin.id,
        store.state(plugin.id),
        request["iteration"],
        store.clock.now,
        host=settings.worker.host,
        worker=request["worker"],
    )
    plugin.init(ctx)
    return dump(validated(observer.call("observe", ctx=ctx, shard=request["shard"])))
