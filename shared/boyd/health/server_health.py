"""The fields of a Redis server's health, each declared once, and the masters of a cluster.

Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS

from boyd.health.declaration import build, declare, gauge, gauge_of_kind, health_fields
from boyd.store.server.cluster_client import ClusterClient
from boyd.store.server.connection import Client, read_int, translate_errors
from boyd.store.server.server_release import Release
from boyd.store.server.slot_map import Server

_WRITES = ("boyd_redis_persistence", "1 if Redis writes to disk in this way.")
_WRITES_OK = ("boyd_redis_persistence_ok", "1 if the last write to disk succeeded.")


@dataclass(frozen=True)
class _ServerReplies:
    """The replies to INFO and CONFIG GET save, which some users may not ask for."""

    info: Mapping[str, Any]
    rules: Mapping[str, str] | None

    def snapshot_rules(self) -> tuple[tuple[int, int], ...] | None:
        """The setting `save`: pairs of seconds and changes."""
        if self.rules is None:
            return None
        numbers = [int(number) for number in self.rules.get("save", "").split()]
        return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _info(name: str, default: object, parse: Callable[[Any], Any]) -> Callable[..., Any]:
    """The source of a field: a line of the reply to INFO, as *parse* reads it."""
    return lambda replies: parse(replies.info.get(name, default))


def _is_ok(text: str) -> bool:
    return text == "ok"


def _unless_none(value: Any, number: Callable[[Any], float]) -> float | None:
    return None if value is None else number(value)


@health_fields
class ServerHealth:
    """The state of a Redis server."""

    release: Release = declare("Product and version.", lambda replies: Release.of(replies.info))
    role: str = declare("`master`, or the role of a replica.", _info("role", "master", str))
    used: int = declare(
        "Memory in use.", _info("used_memory", 0, int), gauge("boyd_redis_memory_bytes")
    )
    limit: int = declare(
        "Memory limit of Redis; 0: none.",
        _info("maxmemory", 0, int),
        gauge("boyd_redis_memory_limit_bytes"),
    )
    aof: bool = declare(
        "Whether it writes an append-only file.",
        _info("aof_enabled", 0, lambda flag: flag == 1),
        gauge_of_kind(*_WRITES, "aof"),
    )
    rdb: tuple[tuple[int, int], ...] | None = declare(
        "Its snapshot rules as (seconds, changes); None without permission to ask.",
        _ServerReplies.snapshot_rules,
        gauge_of_kind(*_WRITES, "rdb", lambda rules, _: _unless_none(rules, bool)),
    )
    aof_ok: bool = declare(
        "Whether the last write of the append-only file succeeded.",
        _info("aof_last_write_status", "ok", _is_ok),
        gauge_of_kind(*_WRITES_OK, "aof"),
    )
    rdb_ok: bool = declare(
        "Whether the last snapshot succeeded.",
        _info("rdb_last_bgsave_status", "ok", _is_ok),
        gauge_of_kind(*_WRITES_OK, "rdb"),
    )
    unsaved: int = declare(
        "Changes since the last snapshot.", _info("rdb_changes_since_last_save", 0, int)
    )
    saved_at: float = declare(
        "The time of the last snapshot.", _info("rdb_last_save_time", 0, float)
    )
    policy: str | None = declare(
        "The eviction policy, if known.",
        _info("maxmemory_policy", None, lambda policy: policy),
        gauge(
            "boyd_redis_evicts",
            "1 if a full Redis may evict keys.",
            lambda policy, _: _unless_none(policy, lambda name: name != "noeviction"),
        ),
    )

    clients: int = declare(
        "Connections to Redis.", _info("connected_clients", 0, int), gauge("boyd_redis_clients")
    )
    most_clients: int = declare(
        "The most connections that Redis takes.",
        _info("maxclients", 0, int),
        gauge("boyd_redis_clients_limit", number=lambda most, _: most or None),
    )

    @classmethod
    def of(cls, info: Mapping[str, Any], rules: Mapping[str, str] | None) -> ServerHealth:
        """Read the replies to INFO and CONFIG GET save."""
        replies = _ServerReplies(info, rules)
        return build(cls, lambda source: source(replies))

    @property
    def fullness(self) -> float:
        """The part of its memory that is in use; without a limit, in terabytes."""
        return self.used / (self.limit or 1e12)


@dataclass(frozen=True)
class MasterHealth:
    """A master of a cluster.

    Attributes:
        name: its host and port.
        server: its state; None when it does not answer.
        replicas: the number of its connected replicas.
        unserved: the number of slots that nobody serves, as it knows.
        node_timeout: seconds of silence after which it calls another server down, if known.
        full_coverage: whether it stops when a slot is not served.
    """

    name: str
    server: ServerHealth | None = None
    replicas: int = 0
    unserved: int = 0
    node_timeout: float | None = None
    full_coverage: bool = False


def read_cluster(client: Client) -> list[MasterHealth]:
    """The masters, in order; empty when *client* is not that of a cluster.

    Raises:
        StoreUnavailable: none of them answers.
    """
    if not isinstance(client, ClusterClient):
        return []
    with translate_errors():
        masters = client.slots.masters()
        return [_read(client, master) for master in sorted(masters, key=str)]


def _read(client: ClusterClient, master: Server) -> MasterHealth:
    try:
        master.check()
        info = master.client.info()
        state = master.client.cluster("INFO")
        rules = _settings(master, "save")
        settings = _settings(master, "cluster-*") or {}
    except (redis.ConnectionError, redis.TimeoutError) as error:
        client.note(master, error)
        return MasterHealth(str(master))
    timeout = read_int(settings.get("cluster-node-timeout"))
    return MasterHealth(
        name=str(master),
        server=ServerHealth.of(info, rules),
        replicas=int(info.get("connected_slaves", 0)),
        unserved=REDIS_CLUSTER_HASH_SLOTS - int(state["cluster_slots_ok"]),
        node_timeout=timeout / 1000 if timeout is not None else None,
        full_coverage=settings.get("cluster-require-full-coverage") == "yes",
    )


def _settings(master: Server, pattern: str) -> Mapping[str, Any] | None:
    """Some of its settings; None without permission to ask."""
    try:
        settings: Mapping[str, Any] = master.client.config_get(pattern)
    except redis.ResponseError:
        return None
    return settings
