"""The commands `boyd worker` and `boyd beat`, which start one process each."""

from __future__ import annotations

import logging
import sys

import click

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError
from boyd.settings.logs import clean_prints, setup_logging
from boyd.settings.process_settings import Settings
from boyd.text import queues
from boyd_cli.options import agents_option, settings_options, with_agents
from boyd_cli.parameter_types import Whole

log = logging.getLogger("boyd.worker")


@click.command()
@agents_option
@click.option(
    "-Q",
    "--queues",
    "names",
    default=",".join(queues.DEFAULT),
    show_default=True,
    help="Queues to consume, by their short names, separated by commas.",
)
@click.option("--concurrency", type=Whole(1), help="Number of tasks at the same time.")
@click.option("--pool", type=click.Choice(["threads", "prefork"]), help="How tasks run.")
@click.option(
    "--broker",
    type=Whole(1),
    help="Which one of several brokers to consume from; default: each, in its own process.",
)
@settings_options
def worker(
    settings: Settings,
    agents: tuple[str, ...],
    names: str,
    concurrency: int | None,
    pool: str | None,
    broker: int | None,
) -> None:
    """Run the steps of iterations until SIGTERM."""
    brokers = max(1, len(settings.broker_urls))
    if broker is None and brokers > 1:
        from boyd_worker.worker_group import run_group

        sys.exit(run_group(brokers))
    if broker is not None and broker > brokers:
        raise ConfigError(f"--broker {broker}: broker_url names only {brokers}")

    from boyd_worker.agent_host import AgentHost
    from boyd_worker.worker import run_worker

    given = {"concurrency": concurrency, "pool": pool}
    changes = {key: value for key, value in given.items() if value is not None}
    how = settings.worker.model_copy(update=changes)
    settings = with_redis(with_agents(settings, agents)).model_copy(update={"worker": how})
    setup_logging(settings.log_level, settings.log_format)
    clean_prints()
    consumes = [name.strip() for name in names.split(",") if name.strip()]
    host = AgentHost(settings, "worker", consumes, None if broker is None else broker - 1)
    if not host.agents:
        log.info("broker %d has the messages of none of these agents", broker)
        return
    sys.exit(run_worker(host))


@click.command()
@agents_option
@settings_options
def beat(settings: Settings, agents: tuple[str, ...]) -> None:
    """Tick at the interval of each continuous agent until SIGTERM; several may run."""
    from boyd_worker.agent_host import AgentHost
    from boyd_worker.beat import run_beat

    settings = with_redis(with_agents(settings, agents))
    setup_logging(settings.log_level, settings.log_format)
    sys.exit(run_beat(AgentHost(settings, "beat")))
