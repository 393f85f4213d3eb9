"""A private Redis Cluster as child processes: masters with a replica each, and a broker.

The servers keep their ports from start to start, because each remembers where the others are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS

from boyd.embedded.redis_server import (
    HOST,
    PING_SECONDS,
    START_SECONDS,
    Fsync,
    RedisServer,
    ServerOptions,
    find_program,
    prepare_server,
)
from boyd.embedded.state_folder import private_folder, write_private
from boyd.embedded.supervisor import Supervisor

#: The file in the state folder with the number of masters, once there is a cluster.
FORMED = "redis-cluster"
#: Below the ports that systems give away, as are those 10 000 above, where servers meet.
_PORTS = range(20_000, 22_768)
_SETTINGS = (
    "cluster-enabled yes",
    # Long enough for a busy machine; a failover takes about a second more.
    "cluster-node-timeout 3000",
    # A master that is down is no reason for the others to stop.
    "cluster-require-full-coverage no",
)


@dataclass(frozen=True)
class RedisCluster:
    """Servers that are ready to start: masters, then as many replicas; and the broker."""

    state: Path
    servers: tuple[RedisServer, ...]
    broker: RedisServer

    @property
    def url(self) -> str:
        """Its URL, which contains the password: do not print or log it."""
        places = ",".join(f"{HOST}:{server.access.port}" for server in self.servers)
        return f"cluster://:{self.broker.access.password}@{places}"

    def start(self, supervisor: Supervisor, timeout: float = START_SECONDS) -> bool:
        """Start all and wait until they are one cluster; return False if a stop was requested.

        Raises:
            ChildStartFailed: a server does not start; the message quotes its log.
        """
        for server in (*self.servers, self.broker):
            supervisor.start(server.child)
        for server in (*self.servers, self.broker):
            if not supervisor.wait_until(server.child.name, server.answers, timeout):
                return False
        with ExitStack() as stack:
            clients = [stack.enter_context(_client(server)) for server in self.servers]
            first = self.servers[0].child.name
            wait = partial(supervisor.wait_until, first, timeout=timeout)
            if not (self.state / FORMED).exists():
                meet(clients)
                if not wait(partial(have_met, clients)):
                    return False
                replicate(clients)
            if not wait(partial(is_whole, clients)):
                return False
        write_private(self.state / FORMED, f"{len(self.servers) // 2}\n")
        return True


@contextmanager
def redis_cluster(
    state: Path, masters: int, fsync: Fsync = "everysec", program_name: str | None = None
) -> Iterator[RedisCluster]:
    """Prepare a cluster with its data in the state folder, locked while the block runs.

    Raises:
        ConfigError: as for `redis_server`.
    """
    program = find_program(program_name)
    new = masters_in(private_folder(state)) is None
    with ExitStack() as stack:
        broker = stack.enter_context(prepare_server(state, "redis-broker", fsync, program))
        password = broker.access.password
        node = ServerOptions(password, (*_SETTINGS, f"masterauth {password}"), _PORTS)
        servers = []
        for number in range(1, 2 * masters + 1):
            name = f"redis-{number}"
            if new:  # an earlier start did not get as far as to have data
                (state / name / "nodes.conf").unlink(missing_ok=True)
            server = prepare_server(state, name, fsync, program, node)
            servers.append(stack.enter_context(server))
        yield RedisCluster(state, tuple(servers), broker)


def masters_in(state: Path) -> int | None:
    """The number of masters of the cluster in a state folder; None without one."""
    try:
        return int((state / FORMED).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def meet(clients: Sequence[Any]) -> None:
    """Let new servers know each other, and give the first half of them all slots."""
    ports = [client.connection_pool.connection_kwargs["port"] for client in clients]
    each = REDIS_CLUSTER_HASH_SLOTS / (len(clients) // 2)
    for number, client in enumerate(clients):
        client.cluster("SET-CONFIG-EPOCH", number + 1)
        if number < len(clients) // 2:
            slots = range(round(number * each), round((number + 1) * each))
            client.cluster("ADDSLOTS", *slots)
        for port in ports[:number]:
            client.cluster("MEET", HOST, port)


def have_met(clients: Sequence[Any]) -> bool:
    """Report whether all servers answer, and know all others."""
    try:
        counts = [int(client.cluster("INFO")["cluster_known_nodes"]) for client in clients]
    except redis.RedisError:
        return False
    return all(number == len(clients) for number in counts)


def replicate(clients: Sequence[Any]) -> None:
    """Make each server of the second half the replica of one of the first half."""
    half = len(clients) // 2
    for master, replica in zip(clients[:half], clients[half:], strict=True):
        replica.cluster("REPLICATE", master.cluster("MYID"))


def is_whole(clients: Sequence[Any]) -> bool:
    """Report whether every slot has a master, and every master a replica in sync with it."""
    try:
        for client in clients:
            link = client.info("replication")
            linked = link.get("master_link_status") == "up" or link.get("connected_slaves")
            state = client.cluster("INFO")
            # A cluster that goes on without some slots is "ok" also before it has them all.
            every_slot = int(state["cluster_slots_ok"]) == REDIS_CLUSTER_HASH_SLOTS
            if state["cluster_state"] != "ok" or not every_slot or not linked:
                return False
    except redis.RedisError:
        return False
    return have_met(clients)


def _client(server: RedisServer) -> Any:
    return redis.Redis(
        host=HOST,
        port=server.access.port,
        password=server.access.password,
        socket_timeout=PING_SECONDS,
        decode_responses=True,
    )
