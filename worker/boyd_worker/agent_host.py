"""A worker's inside: its agents, their engines, and the store they share."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from celery import Celery

from boyd import queues
from boyd.agent import load_agents
from boyd.errors import StoreUnavailable
from boyd.messaging.celery_app import CeleryDispatcher, make_app
from boyd.outbound import Delivery, post_callback
from boyd.runtime import Engine, EngineSettings, Leases, Post, Sweeper, jobs_of
from boyd.settings.process import CallbackSettings, Settings
from boyd.store import Sealing, Store, Timing, WorkerInfo, connect, translated
from boyd.store.fleet import Role
from boyd.version import VERSION
from boyd_worker.observer_process import Isolation

log = logging.getLogger("boyd.worker")

#: Seconds between two looks for a Redis that does not answer yet.
AWAIT = 1.0


class AgentHost:
    """Everything a worker or beat process needs, built from the settings and nothing else."""

    def __init__(self, settings: Settings, role: Role, consumes: Sequence[str] = ()) -> None:
        """Connect and build the engines.

        Args:
            settings: those of the process, with `redis_url` set.
            role: what the process is.
            consumes: short names of the queues it consumes.

        Raises:
            ConfigError: no agents, or one that cannot be used.
            StoreUnavailable: Redis does not answer.
        """
        assert settings.redis_url is not None
        self.settings = settings
        self.name = f"{settings.worker.host}.{os.getpid()}.{uuid.uuid4().hex[:4]}"
        self.role = role
        self.queues = _resolved(consumes, settings.worker.host)
        self.agents = load_agents(settings.agents)
        sealing = Sealing.of(settings.audit_key, settings.audit_keep)
        self.store = Store(connect(settings.redis_url), self.name, timing(settings), sealing)
        self.app: Celery = make_app(settings.broker_url or settings.redis_url)
        self.dispatcher = CeleryDispatcher(self.app)
        self.engines = self._engines()
        self.sweepers = [
            Sweeper(engine, jobs_of(engine), settings.timing.queue_timeout)
            for engine in self.engines.values()
        ]
        self._fingerprints = {agent.id: agent.fingerprint for agent in self.agents.values()}

    def prepare(self) -> None:
        """Wait for Redis, announce the agents and let their plugins prepare.

        Raises:
            StoreError: Redis refuses us.
            PluginError: a plugin cannot prepare.
        """
        self._await_redis()
        self._started_at = self.store.clock.now()
        for engine in self.engines.values():
            self.store.fleet.register(engine.entry())
            engine.init_plugins()

    def _await_redis(self) -> None:
        """Wait until Redis answers: whatever starts first, nothing has to be started again."""
        said = False
        while True:
            try:
                with translated():
                    self.store.client.ping()
                return
            except StoreUnavailable as error:
                if not said:
                    log.warning("%s; waiting for it", error)
                said = True
                time.sleep(AWAIT)

    def info(self, problem: str | None = None) -> WorkerInfo:
        """How this process announces itself."""
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
        )

    def _engines(self) -> dict[str, Engine]:
        worker = self.settings.worker
        how = EngineSettings(
            self.name,
            worker.host,
            worker.bundle_size,
            worker.width,
            worker.max_bytes,
            post=_post(self.settings.callbacks),
            thinking=max(1, worker.concurrency // 2),
        )
        leases = Leases(self.settings.timing.lease / 3)
        isolate = Isolation(self.settings, self.name)
        return {
            agent.id: Engine(
                agent,
                self.store.agent(agent.id),
                self.store.fleet.of(agent.id),
                self.dispatcher,
                leases,
                how,
                isolate.of(agent.id),
            )
            for agent in self.agents.values()
        }


def _post(settings: CallbackSettings) -> Post:
    """How callbacks are sent."""

    def post(url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
        return post_callback(
            url,
            body,
            webhook_id=webhook_id,
            at=at,
            secrets=settings.secrets,
            allow_private=settings.allow_private,
            timeout=settings.timeout,
        )

    return post


def timing(settings: Settings) -> Timing:
    """How patient the store is."""
    given = settings.timing
    return Timing(given.resend_after, given.lease, given.queue_timeout, given.attempts)


def _resolved(consumes: Iterable[str], host: str) -> list[str]:
    return [queues.of_host(host) if name == queues.HOST else name for name in consumes]
