"""Commands and grace periods that the tests of deployment files compare."""

from __future__ import annotations

from pathlib import Path

import click
from billiard import pool

from boyd.phases.phase_context import HOOK_TIMEOUT
from boyd.plugin import Action
from boyd.runtime import EngineSettings
from boyd.settings.process_settings import environment_names
from boyd_api.http.server import DRAIN
from boyd_cli.group import boyd
from boyd_worker.worker import HARD_LIMIT_GRACE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: What the environment may set: Boyd's settings, and what OpenTelemetry sends to a collector.
VARIABLES = {
    *environment_names(),
    *(f"{name}_FILE" for name in environment_names()),
    "OTEL_EXPORTER_OTLP_HEADERS",
}

#: Seconds in which a process takes leave of a Redis that is away: four threads and one answer.
_GOODBYE = 25.0
#: Seconds that a prefork pool may wait for its children to take note of the end.
_CHILDREN = (
    pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT
    * pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_INTERVAL
)
#: Seconds that processes need at most to end after SIGTERM, by what they do.
LEAST_GRACE = {
    "worker": EngineSettings.phase_limit + _GOODBYE,
    "act": Action.timeout + HOOK_TIMEOUT + HARD_LIMIT_GRACE + _CHILDREN,
    "beat": _GOODBYE,
    "api": DRAIN + 3,
    "archive": _GOODBYE,
    "traces": _GOODBYE,
}


def parses(arguments: list[str]) -> bool:
    """Parse arguments of `boyd` without starting anything."""
    command: click.Command = boyd
    while isinstance(command, click.Group):
        name, *arguments = arguments
        subcommand = command.get_command(click.Context(command), name)
        assert subcommand is not None, f"no command {name!r}"
        command = subcommand
    command.make_context(command.name, list(arguments))
    return True


def kind_of(arguments: list[str]) -> str:
    """The kind of a process: `worker`, `act`, `beat`, `api`, `archive` or `traces`."""
    return "act" if queues_of(arguments) == ["act"] else arguments[0]


def queues_of(arguments: list[str]) -> list[str]:
    """The queues that a worker is told to consume."""
    if "--queues" not in arguments:
        return []
    return arguments[arguments.index("--queues") + 1].split(",")
