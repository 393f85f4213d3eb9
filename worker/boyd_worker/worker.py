"""Runs a Celery worker: its tasks, queues and life cycle."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.process import current_process
from typing import Any

import redis
from billiard.common import terminate_handler_fired
from celery import Celery, current_task, signals
from celery.apps import worker as celery_worker
from celery.exceptions import CPendingDeprecationWarning, Ignore, SecurityWarning
from celery.worker import control
from celery.worker.autoscale import Autoscaler
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError
from redis.exceptions import NoPermissionError

from boyd.errors import ConfigError, StoreError
from boyd.messaging.celery_app import FORMAT, JOB, TASKS, WATCHED
from boyd.messaging.dispatcher import FOLLOWS
from boyd.models import Phase
from boyd.phases.phase_context import HOOK_TIMEOUT
from boyd.plugin import plugin_boundary
from boyd.plugin.hooks import SPECIFICATIONS
from boyd.runtime import Engine, IterationSteps, JobRunner, job_runner
from boyd.sandbox.subprocess_call import follow_parent
from boyd.settings.process_settings import WorkerSettings
from boyd.text import queues
from boyd_worker.agent_host import AgentHost
from boyd_worker.maintenance import BreakdownWatch, Maintenance

log = logging.getLogger("boyd.worker")

#: Seconds that Celery lets a task run beyond its own time limit before it kills the process.
HARD_LIMIT_GRACE = 15.0
#: Where Linux keeps the semaphores of a pool of processes.
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - nothing is written there by a guessable name
#: The commands of Celery's remote control that only look, by their names and aliases.
_OBEYED = {
    *("ping", "clock", "stats", "report", "conf", "dump_conf", "heartbeat"),
    *("active", "dump_active", "reserved", "dump_reserved", "scheduled", "dump_schedule"),
    *("registered", "dump_tasks", "active_queues", "revoked", "dump_revoked", "query_task"),
    "enable_events",
}


def register(app: Celery, engines: Mapping[str, Engine]) -> None:
    """Register the tasks of those *engines*, by agent id, on *app*."""
    watch = BreakdownWatch().around
    steps = {agent_id: IterationSteps(engine) for agent_id, engine in engines.items()}
    for phase, name in TASKS.items():
        app.task(watch(_task(phase, steps)), name=name, shared=False)
    jobs = {agent_id: job_runner(engine) for agent_id, engine in engines.items()}
    app.task(watch(_job(jobs)), name=JOB, shared=False)


def _task(phase: Phase, steps: Mapping[str, IterationSteps]) -> Callable[..., None]:
    chained = phase in FOLLOWS

    def run(*message: Any) -> None:
        _check_format()
        try:
            agent_id, ids = _validate(message)
            if agent_id not in steps:
                raise ValueError(f"agent {agent_id!r} does not run on this worker")
        except ValueError as error:
            log.error("ignoring a message: %s", error)
            raise Ignore from None
        try:
            goes_on = steps[agent_id].run(phase, *ids)
        except StoreError as error:
            log.warning("a step failed and will be resent: %s", error, extra={"agent": agent_id})
            goes_on = False
        if chained and not goes_on:
            raise Ignore  # ends the chain: nothing is left for the next task to do

    return run


def _job(jobs: Mapping[str, JobRunner]) -> Callable[..., None]:
    def run(agent_id: Any = None, name: Any = None, attempt: Any = None) -> None:
        _check_format()
        names_job = isinstance(name, str) and _is_number(attempt)
        if not names_job or agent_id not in jobs:
            log.error("ignoring a message: it names no job of an agent on this worker")
            return
        try:
            jobs[agent_id].execute(name, attempt)
        except StoreError as error:
            log.warning("a job failed and will be resent: %s", error)

    return run


def _check_format() -> None:
    """Leave a message alone that a newer release has sent: its workers get it from their sweeper.

    Raises:
        Ignore: it is such a message.
    """
    version = current_task.request.get("formatVersion") if current_task else None
    if isinstance(version, int) and version > FORMAT:
        log.warning("a message of format version %d is left to newer workers", version)
        raise Ignore


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**53


def _validate(message: tuple[Any, ...]) -> tuple[str, tuple[int, ...]]:
    """Validate and split a message, which anybody with access to the broker can write.

    Raises:
        ValueError: it does not hold an agent's id and one to three numbers.
    """
    if not 2 <= len(message) <= 4 or not isinstance(message[0], str):
        raise ValueError("it names no agent and iteration")
    if not all(map(_is_number, message[1:])):
        raise ValueError("its ids are not numbers")
    return message[0], message[1:]


def run_worker(host: AgentHost) -> int:
    """Work until SIGTERM and return the exit status.

    SIGTERM lets running tasks finish; a second one, or SIGQUIT, ends the process at once.

    Raises:
        ConfigError: this host cannot have processes in a pool.
    """
    _check_pool(host.settings.worker.pool)
    _hush()
    # Children of the pool end like that when SIGTERM comes to the whole group.
    plugin_boundary.is_process_ending = terminate_handler_fired
    host.prepare()
    register(host.app, host.engines)
    host.app.conf.task_queues = _queues(host)
    host.app.conf.task_time_limit = _hard_limit(host)
    maintenance = Maintenance(host)
    _connect(host, maintenance)
    watched = host.settings.celery.events and _may_listen(host.app)
    host.app.conf.update(dict.fromkeys(WATCHED, watched))
    only_inspect()
    gc.freeze()  # so that processes of the pool share the memory of what is loaded by now
    worker = host.app.Worker(
        hostname=f"boyd@{host.name}",
        pool_cls=host.settings.worker.pool,
        concurrency=host.settings.worker.concurrency,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=not watched,
        quiet=True,
        **_elasticity(host.settings.worker),
    )
    # Celery has just turned it on: after each lost connection it would announce a new default.
    warnings.simplefilter("ignore", CPendingDeprecationWarning)
    worker.start()
    return int(worker.exitcode or 0)


def _elasticity(settings: WorkerSettings) -> dict[str, Any]:
    """Let a pool of processes start with none, grow as actions come, and shrink when idle."""
    if settings.pool != "prefork" or settings.idle_timeout is None:
        return {}
    autoscaler = partial(Autoscaler, keepalive=settings.idle_timeout)
    return {"autoscale": (settings.concurrency, 0), "autoscaler_cls": autoscaler}


def _may_listen(app: Celery) -> bool:
    """Check the permission for remote control, which a worker without it would try for ever."""
    with app.connection_for_read() as connection, suppress(*connection.connection_errors):
        channel = connection.default_channel
        with channel.client.pubsub() as listener:  # a client completes the prefix
            listener.psubscribe(f"{channel.keyprefix_fanout}{app.control.mailbox.exchange.name}")
            try:
                listener.parse_response()
            except NoPermissionError as error:
                log.error("celery.events has no effect, see deploy/redis: %s", error)
                return False
    return True


def only_inspect() -> None:
    """Refuse commands that change something, as anybody with access to the broker can send them.

    Events are on from the start, so `enable_events`, which Flower sends, changes nothing.
    """
    commands = control.Panel.data
    commands.update(dict.fromkeys(commands.keys() - _OBEYED, _refuse_command))
    commands["stats"] = _stats


def _stats(state: Any, **_: Any) -> dict[str, Any]:
    """Celery's statistics without the passwords that it leaves in the parts about the broker."""
    stats: dict[str, Any] = control.stats(state)
    for part in ("alternates", "transport_options"):
        stats["broker"].pop(part, None)
    return stats


def _refuse_command(*_: Any, **__: Any) -> dict[str, str]:
    return {"error": "Boyd's workers only answer `inspect`"}


def _check_pool(pool: str) -> None:
    shared = pool == "prefork" and sys.platform == "linux"
    if shared and not os.access(SHARED_MEMORY, os.W_OK):
        raise ConfigError(
            f"the pool prefork needs {SHARED_MEMORY}, in which this process cannot write: mount a "
            "tmpfs there with mode 1777, or start this worker with --pool threads"
        )


def _hush() -> None:
    """Silence what Celery prints itself; the same is in our log."""
    celery_worker.safe_say = lambda *_: None
    warnings.simplefilter("ignore", SecurityWarning)
    logging.getLogger("celery.worker.consumer.consumer").addFilter(_drop_traceback)
    for name in ("celery.app.trace", "celery.worker.request"):
        logging.getLogger(name).addFilter(_drop_traceback_of_refusal)
    if os.geteuid() == 0:
        log.warning("this worker and its plugins run as root: use a dedicated user")


def _drop_traceback(record: logging.LogRecord) -> bool:
    """Drop the traceback of a lost connection: the message has the error, and nothing is broken."""
    record.exc_info = None
    return True


def _drop_traceback_of_refusal(record: logging.LogRecord) -> bool:
    """Drop the traceback of a message that Redis refused to take or to acknowledge.

    The first is sent again by the sweeper, the second is delivered again and then ignored.
    """
    if record.exc_info and isinstance(record.exc_info[1], (OperationalError, redis.RedisError)):
        record.exc_info = None
    return True


def _queues(host: AgentHost) -> list[Queue]:
    names = [queues.full_name(queue, agent_id) for agent_id in host.agents for queue in host.queues]
    return [Queue(name, Exchange(""), routing_key=name) for name in names]


def _hard_limit(host: AgentHost) -> float | None:
    """The longest a task may take; only prefork can kill one that ignores its alarm."""
    if host.settings.worker.pool != "prefork":
        return None
    plugin_hosts = [agent.host for agent in host.agents.values()]
    parts = [
        part
        for plugins in plugin_hosts
        for part in (*plugins.actions.values(), *plugins.observers.values())
    ]
    longest = max((part.timeout for part in parts), default=60.0)
    hooks = max(
        sum(len(plugins.hooks(name)) for name in SPECIFICATIONS) for plugins in plugin_hosts
    )
    return longest + hooks * HOOK_TIMEOUT + HARD_LIMIT_GRACE


def _let_start_processes() -> None:
    """Let functions use `multiprocessing`, which takes this process of a pool for a daemonic one.

    It belongs to Celery's own edition of that module, whose keys the standard one does not pass on.
    """
    process = current_process()
    key = bytes(process.authkey)
    process._config.update(daemon=False, authkey=key)  # type: ignore[attr-defined] # noqa: SLF001


def _connect(host: AgentHost, maintenance: Maintenance) -> None:
    """Start maintenance when the worker consumes, and stop it when the worker stops."""

    def ready(**_: Any) -> None:
        maintenance.start()
        names = ", ".join(host.agents)
        log.info("worker %s ready: agents %s, queues %s", host.name, names, host.queues)

    def draining(**_: Any) -> None:
        host.is_draining = True

    def stopping(**_: Any) -> None:
        maintenance.stop()
        log.info("worker %s is stopping", host.name)

    def child(**_: Any) -> None:
        # A pool process must not outlive a worker that was killed.
        follow_parent(signal.SIGKILL, os.getppid())
        _let_start_processes()

    def logging_is_ours(**_: Any) -> None:
        """Keep Celery from configuring logging, as any receiver of this signal does."""

    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(draining, weak=False)
    signals.worker_shutdown.connect(stopping, weak=False)
    signals.worker_process_init.connect(child, weak=False)
    signals.setup_logging.connect(logging_is_ours, weak=False)
