"""A Redis Cluster with replicas, and a Redis for messages, as processes of their own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import redis
from redis.crc import key_slot

from boyd.embedded.redis_cluster import have_met, is_whole, meet, replicate
from boyd.store.keys import Keys
from boyd.store.server.cluster_client import ClusterClient
from harness import BROKERS, free_port, server_program, wait_until
from signals import signal_process

HOST = "127.0.0.1"
#: The clusters of fixtures, by URL.
CLUSTERS: dict[str, RedisCluster] = {}
#: Milliseconds of silence after which servers call another one down.
DOWN_AFTER = 2000
#: Added to a port: where servers talk to each other.
_BUS = 10_000


def stop_writes(master: Any, replicas: int) -> None:
    """Let a master take no writes, and wait until all its *replicas* have what it has confirmed.

    One that has lost its master or is in the middle of a full resync may be promoted as well, and
    would take its place without what it lacks.
    """

    def has_copies() -> bool:
        # Each time, because a busy machine may take longer than one pause.
        master.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        return is_copied(master.info("replication"), replicas)

    wait_until(has_copies)


def is_copied(state: dict[str, Any], replicas: int) -> bool:
    """Report whether so many replicas are online and have all that the master has written.

    *state* is what the master says of its replication; those that it does not name are away.
    """
    replica_states = [replica for name, replica in state.items() if re.fullmatch(r"slave\d+", name)]
    complete = [
        replica
        for replica in replica_states
        if replica["state"] == "online" and replica["offset"] == state["master_repl_offset"]
    ]
    return len(complete) >= max(1, replicas)


class RedisCluster:
    """Masters with one replica each, and a plain Redis for messages."""

    def __init__(
        self,
        folder: Path,
        masters: int = 3,
        fsync: str = "everysec",
        prefix: Sequence[str] = (),
    ) -> None:
        """Start them; *prefix* is put in front of the command of each server."""
        self._folder = folder
        self._prefix = prefix
        self._fsync = fsync
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = [_port() for _ in range(2 * masters)]
        self.broker = free_port()
        self.url = "cluster://" + ",".join(f"{HOST}:{port}" for port in self.servers)
        self.broker_url = f"redis://{HOST}:{self.broker}/0"
        BROKERS[self.url] = self.broker_url
        try:
            self._form()
        except BaseException:
            self.signal(signal.SIGKILL)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)

    def ask(self, port: int) -> Any:
        """A client for one server."""
        return redis.Redis(HOST, port, decode_responses=True, socket_timeout=2)

    def masters(self) -> list[int]:
        """The ports of the masters, as the first server that answers says."""
        return sorted({port for *_, port in self._slots()})

    def master_of(self, agent_id: str) -> int:
        """The port of the master with that agent's state."""
        return _owner(self._slots(), key_slot(Keys(agent_id).loop.encode()))

    def kill(self, port: int) -> None:
        """Kill a server."""
        self._processes[port].kill()
        self._processes[port].wait()

    def kill_copied(self, port: int) -> None:
        """Kill a master whose replicas have all that it has confirmed."""
        with self.ask(port) as server:
            stop_writes(server, len(self._replicas(port)))
        self.kill(port)

    def hand_over(self, port: int) -> None:
        """Let the replica of a master take its place, as an operator does; nothing is lost."""
        for replica in self._replicas(port):
            with self.ask(replica) as client:
                client.execute_command("CLUSTER FAILOVER")
        wait_until(lambda: port not in self.masters(), 20)

    def pause(self, port: int) -> None:
        """Let a server do nothing."""
        signal_process(self._processes[port].pid, signal.SIGSTOP)

    def resume(self, port: int) -> None:
        """Let a server go on."""
        signal_process(self._processes[port].pid, signal.SIGCONT)

    def start(self, port: int) -> None:
        """Start a server, again with its data."""
        options = {
            "port": port,
            "bind": HOST,
            "dir": self._data(port),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._fsync,
        }
        if port != self.broker:
            options |= {
                "cluster-enabled": "yes",
                "cluster-node-timeout": DOWN_AFTER,
                "cluster-require-full-coverage": "no",
                "cluster-replica-validity-factor": 0,
                "repl-diskless-sync-delay": 0,
            }
        command = [*self._prefix, str(server_program())]
        command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
        with (self._folder / f"redis-{port}.log").open("ab") as log:
            self._processes[port] = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: self._answers(port), 20)

    def signal(self, number: int) -> None:
        """Send a signal to all; they are gone afterwards if that kills."""
        for process in self._processes.values():
            if process.poll() is None:
                signal_process(process.pid, number)
            if number == signal.SIGKILL:
                process.wait()

    def flush(self) -> None:
        """Forget everything."""
        for port in (*self.masters(), self.broker):
            with self.ask(port) as client:
                client.flushall()

    def whole(self) -> bool:
        """Check that every slot has a master, and every master an up-to-date replica."""
        with ExitStack() as stack:
            return is_whole([stack.enter_context(self.ask(port)) for port in self._living()])

    @contextmanager
    def moving(self, slot: int, target: int) -> Iterator[None]:
        """Move a slot to the master on port *target*, with its keys half way inside the block.

        Afterwards every server knows: those that take no part hear of it from the others.
        """
        source = _owner(self._slots(), slot)
        with self.ask(source) as giver, self.ask(target) as taker:
            ids = giver.cluster("MYID"), taker.cluster("MYID")
            taker.cluster("SETSLOT", slot, "IMPORTING", ids[0])
            giver.cluster("SETSLOT", slot, "MIGRATING", ids[1])
            self._migrate(giver, slot, target, half=True)
            yield
            self._migrate(giver, slot, target)
            taker.cluster("SETSLOT", slot, "NODE", ids[1])
            giver.cluster("SETSLOT", slot, "NODE", ids[1])
        wait_until(lambda: self._owners(slot) == {target}, 20)

    def _migrate(self, giver: Any, slot: int, target: int, half: bool = False) -> None:
        stays = giver.cluster("COUNTKEYSINSLOT", slot) // 2 if half else 0
        while giver.cluster("COUNTKEYSINSLOT", slot) > stays:
            keys = giver.cluster("GETKEYSINSLOT", slot, 10)
            # An attempt that took too long may have left copies of keys that are still here.
            giver.execute_command("MIGRATE", HOST, target, "", 0, 60_000, "REPLACE", "KEYS", *keys)

    def _slots(self) -> list[tuple[int, int, int]]:
        """First and last slot, and the port of their master."""
        for slots in self._views():
            return slots
        raise AssertionError("no server of the cluster answers")

    def _owners(self, slot: int) -> set[int]:
        """The masters of a slot, as all servers that answer say: several while it moves."""
        return {_owner(slots, slot) for slots in self._views()}

    def _views(self) -> Iterator[list[tuple[int, int, int]]]:
        """The slots as seen by each server that answers."""
        for port in self._living():
            with self.ask(port) as client:
                try:
                    rows = client.execute_command("CLUSTER SLOTS")
                except redis.RedisError:
                    continue
                yield [(first, last, int(master[1])) for first, last, master, *_ in rows]

    def _replicas(self, master: int) -> list[int]:
        """The ports of the replicas of a master that answer, also of those that have lost it."""
        replicas = []
        for port in self._living():
            with self.ask(port) as client, suppress(redis.RedisError):
                if client.info("replication").get("master_port") == master:
                    replicas.append(port)
        return replicas

    def _living(self) -> list[int]:
        return [port for port in self.servers if self._processes[port].poll() is None]

    def _form(self) -> None:
        for port in (*self.servers, self.broker):
            self.start(port)
        with ExitStack() as stack:
            clients = [stack.enter_context(self.ask(port)) for port in self.servers]
            meet(clients)
            wait_until(lambda: have_met(clients), 20)
            replicate(clients)
        wait_until(self.whole, 30)

    def _data(self, port: int) -> Path:
        folder = self._folder / f"redis-{port}"
        folder.mkdir(exist_ok=True)
        return folder

    def _answers(self, port: int) -> bool:
        with self.ask(port) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False


def every_key(client: Any, pattern: str) -> Iterator[str]:
    """The keys of a Redis, or of all masters of a cluster, that fit."""
    masters = client.slots.masters() if isinstance(client, ClusterClient) else None
    for node in [master.client for master in masters] if masters else [client]:
        yield from node.scan_iter(pattern, count=1000)


def _owner(slots: list[tuple[int, int, int]], slot: int) -> int:
    """The port of the master of one slot."""
    return next(port for first, last, port in slots if first <= slot <= last)


def _port() -> int:
    """A free port, with a free one above it for what servers tell each other."""
    while True:
        port = free_port()
        try:
            socket.create_server((HOST, port + _BUS)).close()
        except OSError:
            continue
        return port
