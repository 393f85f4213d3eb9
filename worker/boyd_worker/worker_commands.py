"""The commands `boyd worker` and `boyd beat`.

A Celery worker consumes from one broker, so a worker of several brokers is a process for each. They
start and end together, and a broker that is away stops only the one that needs it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from types import FrameType

import click

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError
from boyd.export.work_follower import run_beside
from boyd.sandbox.subprocess_call import follow_parent
from boyd.settings.logs import clean_prints, setup_logging
from boyd.settings.process_settings import Settings
from boyd.text import queues
from boyd_cli import end
from boyd_cli.commands.export_commands import FOLLOWERS
from boyd_cli.options import Whole, agents_option, settings_options, with_agents

#: Signals that are passed on; a terminal sends its own to all of them.
_PASSED = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


def run_group(brokers: int) -> int:
    """Run this command once for each broker, and return the first exit status that is not 0.

    A process without agents ends at once. When one fails, the others are terminated, too, so that
    the supervisor of this one restarts all of them.
    """
    group = _Group()
    for broker in range(1, brokers + 1):
        group.start([*sys.argv[1:], "--broker", str(broker)])
    return group.wait()


class _Group:
    """The processes; a signal to this process reaches all of them."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._ended_by: int | None = None
        for number in _PASSED:
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGINT, lambda *_: None)

    def start(self, arguments: list[str]) -> None:
        command = [sys.executable, "-P", "-m", "boyd_cli", *arguments]
        follow = partial(follow_parent, signal.SIGTERM, os.getpid())
        child = subprocess.Popen(command, preexec_fn=follow)  # noqa: S603 - our own arguments
        self._children[child.pid] = child
        if self._ended_by is not None:  # meanwhile
            _send_signal(child.pid, self._ended_by)

    def wait(self) -> int:
        status = 0
        while self._children:
            pid, raw = os.wait()
            child = self._children.pop(pid, None)
            if child is None:  # an orphan: process 1 of a container adopts them
                continue
            child.returncode = os.waitstatus_to_exitcode(raw)
            if child.returncode != 0 and status == 0:
                status = child.returncode if child.returncode > 0 else 128 - child.returncode
                self._pass_on(signal.SIGTERM)
        return status

    def _pass_on(self, number: int, _: FrameType | None = None) -> None:
        self._ended_by = number
        for pid in list(self._children):
            _send_signal(pid, number)


def _send_signal(pid: int, number: int) -> None:
    """Signal a child, whose exit status stays there for `wait`: `Popen.send_signal` may take it."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


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
        sys.exit(run_group(brokers))
    if broker is not None and broker > brokers:
        raise ConfigError(f"--broker {broker}: broker_url names only {brokers}")

    from boyd_worker.agent_host import AgentHost
    from boyd_worker.worker import run_worker

    options = {"concurrency": concurrency, "pool": pool}
    changes = {key: value for key, value in options.items() if value is not None}
    worker_settings = settings.worker.model_copy(update=changes)
    settings = with_redis(with_agents(settings, agents))
    settings = settings.model_copy(update={"worker": worker_settings})
    setup_logging(settings.log_level, settings.log_format)
    clean_prints()
    consumes = [name.strip() for name in names.split(",") if name.strip()]
    host = AgentHost(settings, "worker", consumes, None if broker is None else broker - 1)
    if not host.agents:
        log.info("broker %d has the messages of none of these agents", broker)
        return
    end(run_worker(host))


@click.command()
@agents_option
@click.option(
    "--also",
    type=click.Choice(list(FOLLOWERS)),
    multiple=True,
    help="Run this command in a thread of this process, too; may be repeated.",
)
@settings_options
def beat(settings: Settings, agents: tuple[str, ...], also: tuple[str, ...]) -> None:
    """Tick at the interval of each continuous agent until SIGTERM; several may run."""
    from boyd_worker.agent_host import AgentHost
    from boyd_worker.beat import run_beat

    settings = with_redis(with_agents(settings, agents))
    setup_logging(settings.log_level, settings.log_format)
    clean_prints()
    followers = [FOLLOWERS[name](settings) for name in also]
    host = AgentHost(settings, "beat")
    with run_beside(followers):
        status = run_beat(host)
    end(status)
