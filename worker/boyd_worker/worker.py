"""Starts a Celery worker that takes the steps of iterations."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from typing import Any

from celery import signals
from celery.apps import worker as celery_worker
from celery.exceptions import SecurityWarning
from kombu import Exchange, Queue

from boyd import queues
from boyd.phases.phase_context import HOOK_TIMEOUT
from boyd.plugin.hooks import SPECIFICATIONS
from boyd.subprocess_call import follow_parent
from boyd_worker.agent_host import AgentHost
from boyd_worker.maintenance import Maintenance
from boyd_worker.tasks import register

log = logging.getLogger("boyd.worker")

#: Seconds that Celery lets a task run beyond its own time limit before it kills the process.
HARD_LIMIT_GRACE = 15.0


def run_worker(runtime: AgentHost) -> int:
    """Work until SIGTERM; the exit status.

    SIGTERM lets running tasks finish; a second one, or SIGQUIT, ends the process at once.
    """
    _hush()
    runtime.prepare()
    register(runtime.app, runtime.engines)
    runtime.app.conf.task_queues = _queues(runtime)
    runtime.app.conf.task_time_limit = _hard_limit(runtime)
    pulse = Maintenance(runtime)
    _connect(runtime, pulse)
    worker = runtime.app.Worker(
        hostname=f"boyd@{runtime.name}",
        pool_cls=runtime.settings.worker.pool,
        concurrency=runtime.settings.worker.concurrency,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _hush() -> None:
    """Say in our log what Celery prints beside it, or names options for that we have not."""
    celery_worker.safe_say = lambda *_: None
    warnings.simplefilter("ignore", SecurityWarning)
    logging.getLogger("celery.worker.consumer.consumer").addFilter(_without_traceback)
    if os.geteuid() == 0:
        log.warning("this worker runs as root, and so do all plugins: give it a user of its own")


def _without_traceback(record: logging.LogRecord) -> bool:
    """Drop the traceback of a lost connection: the message has the error, and nothing is broken."""
    record.exc_info = None
    return True


def _queues(runtime: AgentHost) -> list[Queue]:
    names = [
        queues.full_name(queue, agent_id) for agent_id in runtime.agents for queue in runtime.queues
    ]
    return [Queue(name, Exchange(""), routing_key=name) for name in names]


def _hard_limit(runtime: AgentHost) -> float | None:
    """What an action may take at most; only prefork enforces it, for what ignores an alarm."""
    if runtime.settings.worker.pool != "prefork":
        return None
    hosts = [agent.host for agent in runtime.agents.values()]
    parts = [part for h in hosts for part in (*h.actions.values(), *h.observers.values())]
    longest = max((part.timeout for part in parts), default=60.0)
    hooks = max(sum(len(host.hooks(name)) for name in SPECIFICATIONS) for host in hosts)
    return longest + hooks * HOOK_TIMEOUT + HARD_LIMIT_GRACE


def _connect(runtime: AgentHost, pulse: Maintenance) -> None:
    """Follow the worker's life: announce it when it consumes, take it back when it stops."""

    def ready(**_: Any) -> None:
        pulse.start()
        names = ", ".join(runtime.agents)
        log.info("worker %s ready: agents %s, queues %s", runtime.name, names, runtime.queues)

    def stopping(**_: Any) -> None:
        pulse.stop()
        log.info("worker %s stops", runtime.name)

    def child(**_: Any) -> None:
        # A pool process must not outlive a worker that was killed.
        follow_parent(signal.SIGKILL, os.getppid())

    def logging_is_ours(**_: Any) -> None:
        """Celery leaves logging alone when somebody listens to this signal."""

    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutdown.connect(stopping, weak=False)
    signals.worker_process_init.connect(child, weak=False)
    signals.setup_logging.connect(logging_is_ours, weak=False)
