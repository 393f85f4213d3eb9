"""Functions of plugins in processes of their own: isolated observers, and actions in sandboxes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from boyd.errors import ConfigError
from boyd.models import ActionResult, Sandbox
from boyd.phases.action_call import ConfinedCall
from boyd.phases.observe import Isolate, dump, load, validate_observations
from boyd.sandbox import confined_call, host_means, subprocess_call
from boyd.settings.process_settings import Settings
from boyd.settings.secret_references import SecretReader, SuppliedSecrets, use_reader


class ActionConfiner:
    """Runs functions of one agent's actions in sandboxes, each in its own process.

    The process loads the agent like a worker, but has no access to Redis: an action in a sandbox
    gets its parameters, and no state, graph, model or approvals.
    """

    def __init__(self, settings: Settings, worker: str, agent_id: str) -> None:
        # Of the settings it needs no secrets, and no more than this.
        self._place = {
            "agents": list(settings.agents),
            "agent": agent_id,
            "host": settings.worker.host,
            "worker": worker,
        }

    def find_limit_problem(self, sandbox: Sandbox) -> str | None:
        """The limit that this host cannot enforce, with the cause, if there is one."""
        return host_means.find_limit_problem(sandbox)

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
    from boyd.phases.verify import check_in_sandbox
    from boyd.plugin import Context

    fields = json.loads(request)
    use_reader(SuppliedSecrets(fields["secrets"]))
    agent = load_agents(fields["agents"])[fields["agent"]]
    before = fields["result"]
    call = ConfinedCall(
        fields["action"],
        fields["function"],
        fields["params"],
        fields["iteration"],
        fields["execution_id"],
        ActionResult.from_json(before) if before else None,
    )
    action = agent.host.actions[call.action]
    plugin = agent.host.plugins[action.plugin_id]
    context = Context(
        agent.info,
        plugin.id,
        NoState(),
        call.iteration,
        host=fields["host"],
        worker=fields["worker"],
        catalog=agent.catalog,
        execution_id=call.execution_id,
        _destinations=fields["destinations"],
    )
    plugin.init(context)
    run = check_in_sandbox if call.function == "verify" else perform
    return run(action, call, context)


class Isolation:
    """Runs isolated observers, each in its own process, which is killed after the time limit.

    The parent sends the request as JSON; the log receives what the observer prints.
    """

    def __init__(self, settings: Settings, worker: str) -> None:
        self._worker = worker
        # An observer needs none of these secrets, nor the settings of installed packages.
        keys = {"audit_key", "approval_private_key", "identity_key"}
        secret = {*keys, "approval_secret", "callbacks"}
        self._settings = settings.model_dump_json(include=Settings.model_fields.keys() - secret)

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
                "boyd_worker.plugin_processes:observe", json.dumps(request), timeout
            )
            return list(load(answer))

        return run


def observe(text: str) -> str:
    """Run the observer of a request in this process and return its observations."""
    from boyd.agent import load_agents
    from boyd.plugin import Context
    from boyd.store import Store, connect

    request = json.loads(text)
    settings = Settings.model_validate_json(request["settings"])
    use_reader(SecretReader(settings.secrets))
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
    answer = observer.call("observe", ctx=ctx, shard=request["shard"])
    return dump(validate_observations(answer, ctx.now))
