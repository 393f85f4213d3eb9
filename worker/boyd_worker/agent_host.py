"""The agents of a worker or beat process, their engines, the store they share, and its machine."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from celery import Celery

from boyd import naming
from boyd.agent import load_agents
from boyd.errors import StoreUnavailable
from boyd.messaging.celery_app import CeleryDispatcher, make_app
from boyd.messaging.dispatcher import SpreadDispatcher
from boyd.outbound import CallbackSender
from boyd.plugin.context import IdentitySigner
from boyd.runtime import Engine, EngineSettings, Leases, Processes, Sweeper, job_runner
from boyd.sandbox import host_means
from boyd.security.approval_signatures import read_signer
from boyd.security.identity_tokens import IdentityTokens
from boyd.security.links import LinkBuilder, LinkSigner
from boyd.settings.logs import keep_logging
from boyd.settings.process_settings import Settings
from boyd.store import Sealing, ServerClock, Store, Timing, WorkerInfo, connect, translate_errors
from boyd.store.fleet import Role
from boyd.text import queues
from boyd.text.version import VERSION
from boyd_worker.plugin_processes import ActionConfiner, Isolation

#: Differs between machines also when one is a copy of the other.
BOOT = Path("/proc/sys/kernel/random/boot_id")
#: Differs between containers with a system of their own on one kernel; others have none.
SYSTEM = Path("/etc/machine-id")


def machine() -> str | None:
    """Digests of the boot and the system, as `boot.system`; an unknown one is empty.

    The ids themselves stay secret. None if neither is known.
    """
    digests = [_digest(path) for path in (BOOT, SYSTEM)]
    return ".".join(digests) if any(digests) else None


def _digest(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(f"boyd {text}".encode()).hexdigest()[:12] if text else ""


log = logging.getLogger("boyd.worker")

#: Seconds between attempts to reach a Redis that does not answer yet.
REDIS_RETRY = 1.0


class AgentHost:
    """Everything a worker or beat process needs, built from its settings."""

    def __init__(
        self,
        settings: Settings,
        role: Role,
        consumes: Sequence[str] = (),
        broker: int | None = None,
    ) -> None:
        """Connect and build the engines.

        *consumes* has short names of queues. With *broker*, the position of a broker from 0, the
        process has only the agents whose messages are there.

        Raises:
            ConfigError: there is no agent, or one cannot be used.
            StoreUnavailable: Redis does not answer.
        """
        assert settings.redis_url is not None
        self.settings = settings
        self.name = naming.worker(settings.worker.host, os.getpid())
        self.role = role
        self.queues = _resolve_queues(consumes, settings.worker.host)
        self.is_draining = False
        urls = settings.broker_urls or [settings.redis_url]
        self.agents = {
            name: agent
            for name, agent in load_agents(settings.agents).items()
            if broker in (None, queues.broker_of(name, len(urls)))
        }
        sealing = Sealing.of(settings.audit_key, settings.audit_keep)
        self.store = Store(connect(settings.redis_url), self.name, timing(settings), sealing)
        apps = [make_app(url, settings.celery.events) for url in urls]
        self.app: Celery = apps[broker or 0]
        self.dispatcher = SpreadDispatcher([CeleryDispatcher(app) for app in apps])
        key = settings.approval_public_key or settings.approval_private_key
        self._signer = read_signer(key, settings.approval_secret)
        self.engines = self._engines()
        self.sweepers = [
            Sweeper(engine, job_runner(engine), settings.timing.queue_timeout)
            for engine in self.engines.values()
        ]
        self._unenforced: list[str] = []
        self._fingerprints = {agent.id: agent.fingerprint for agent in self.agents.values()}

    def prepare(self) -> None:
        """Wait for Redis, announce the agents and initialize their plugins.

        Raises:
            StoreError: Redis refuses the process.
            PluginError: a plugin failed to initialize.
        """
        self._await_redis()
        self._started_at = self.store.clock.now()
        self._unenforced = list(self._try_sandboxes())
        for problem in self._unenforced:
            log.warning("%s", problem)
        for engine in self.engines.values():
            self.store.fleet.register(engine.entry())
            engine.store.approvals.set_deadlines(engine.retention)
            engine.init_plugins()
        keep_logging()

    def _await_redis(self) -> None:
        """Wait until Redis answers, so that processes may start in any order."""
        logged = False
        while True:
            try:
                with translate_errors():
                    self.store.client.ping()
                return
            except StoreUnavailable as error:
                if not logged:
                    log.warning("%s; waiting for it: %s", error, error.advice)
                logged = True
                time.sleep(REDIS_RETRY)

    def info(self, problem: str | None = None) -> WorkerInfo:
        """The announcement of this process."""
        return WorkerInfo(
            name=self.name,
            role=self.role,
            host=self.settings.worker.host,
            pid=os.getpid(),
            queues=self.queues,
            agents=list(self.agents),
            version=VERSION,
            started_at=self._started_at,
            fingerprints=self._fingerprints,
            problem=problem,
            brokers=max(1, len(self.settings.broker_urls)),
            approval_key=self._signer.key_id if self._signer else None,
            machine=machine(),
        )

    def problem(self) -> str | None:
        """The calendars and sandboxes of its agents that it cannot use, if there are any."""
        problems = [
            f"agent {agent.id}: {problem}"
            for agent in self.agents.values()
            for problem in agent.rules.problems()
        ]
        return "; ".join([*problems, *self._unenforced]) or None

    def _try_sandboxes(self) -> Iterator[str]:
        """Try out the sandboxes of the actions that this process may execute."""
        for agent in self.agents.values():
            for action in agent.host.actions.values():
                sandbox = agent.sandbox(action.id)
                if sandbox is None or (action.queue or queues.ACT) not in self.queues:
                    continue
                if problem := host_means.find_limit_problem(sandbox):
                    yield (
                        f"agent {agent.id}: {action.id} does not run here: its sandbox cannot be "
                        f"enforced: {problem}"
                    )

    def _may_take(self, queue: str) -> bool:
        """Check whether a thread that has ended a step may go on with the next, of that queue.

        Processes of a pool do not: their time limit is that of one step, and they do not notice
        that the worker stops.
        """
        if self.settings.worker.pool != "threads" or self.is_draining:
            return False
        return queue in self.queues

    def _engines(self) -> dict[str, Engine]:
        worker, callbacks = self.settings.worker, self.settings.callbacks
        sender = CallbackSender(callbacks.secrets, callbacks.allow_private, callbacks.timeout)
        engine_settings = EngineSettings(
            self.name,
            worker.host,
            worker.bundle_size,
            worker.width,
            worker.max_bytes,
            post=sender.post,
            links=_links(self.settings),
            signer=self._signer,
            thinking=max(1, worker.concurrency // 2),
            identity=_identity(self.settings, self.name, self.store.clock),
            principal_bytes=self.settings.principal_bytes,
            may_take=self._may_take,
        )
        leases = Leases(self.settings.timing.lease / 3)
        isolate = Isolation(self.settings, self.name)
        return {
            agent.id: Engine(
                agent,
                self.store.agent(agent.id),
                self.dispatcher,
                leases,
                engine_settings,
                Processes(isolate.of(agent.id), ActionConfiner(self.settings, self.name, agent.id)),
            )
            for agent in self.agents.values()
        }


def _links(settings: Settings) -> LinkBuilder:
    """Builds links as the settings say."""
    secret = settings.approval_secret
    signer = LinkSigner(secret.get_secret_value()) if secret else None
    return LinkBuilder(settings.api.url or "", signer)


def _identity(settings: Settings, name: str, clock: ServerClock) -> IdentitySigner | None:
    """Signs the identity tokens of this worker's agents, if it has a key."""
    if settings.identity_key is None:
        return None
    key, issuer = settings.identity_key.get_secret_value(), settings.api.url or "boyd"
    return IdentityTokens(key, issuer, name, clock.seconds).sign


def timing(settings: Settings) -> Timing:
    """The store's timing, from the settings of the process."""
    seconds = settings.timing
    return Timing(seconds.resend_after, seconds.lease, seconds.queue_timeout, seconds.attempts)


def _resolve_queues(consumes: Iterable[str], host: str) -> list[str]:
    return [queues.of_host(host) if name == queues.HOST else name for name in consumes]
