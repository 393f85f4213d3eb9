"""The health of a Redis Cluster: its masters, their replicas, and how failures are handled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS

from boyd.health.snapshot import MasterHealth, ServerHealth
from boyd.store.server.cluster_client import ClusterClient
from boyd.store.server.connection import Client, stored_int, translated
from boyd.store.server.slot_map import Server


def read_cluster(client: Client) -> list[MasterHealth]:
    """The masters, in order; empty when *client* is not that of a cluster.

    Raises:
        StoreUnavailable: none of them answers.
    """
    if not isinstance(client, ClusterClient):
        return []
    with translated():
        masters = client.slots.masters()
        return [_read(client, master) for master in sorted(masters, key=str)]


def _read(client: ClusterClient, master: Server) -> MasterHealth:
    try:
        master.check()
        info = master.client.info()
        state = master.client.cluster("INFO")
        rules = _settings(master, "save")
        ways = _settings(master, "cluster-*") or {}
    except (redis.ConnectionError, redis.TimeoutError) as error:
        client.note(master, error)
        return MasterHealth(str(master))
    timeout = stored_int(ways.get("cluster-node-timeout"))
    return MasterHealth(
        name=str(master),
        server=ServerHealth.of(info, rules),
        replicas=int(info.get("connected_slaves", 0)),
        unserved=REDIS_CLUSTER_HASH_SLOTS - int(state["cluster_slots_ok"]),
        node_timeout=timeout / 1000 if timeout is not None else None,
        full_coverage=ways.get("cluster-require-full-coverage") == "yes",
    )


def _settings(master: Server, pattern: str) -> Mapping[str, Any] | None:
    """Some of its settings; None without permission to ask."""
    try:
        found: Mapping[str, Any] = master.client.config_get(pattern)
    except redis.ResponseError:
        return None
    return found
