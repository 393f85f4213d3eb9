"""A master, its replicas and the sentinels that watch them, as processes of their own."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from boyd.embedded.redis_server import HOST, PORTS
from clusters import stop_writes
from harness import server_program, wait_until
from signals import signal_process

SERVICE = "boyd"
MAKE_SECRETS = Path(__file__).parents[2] / "deploy" / "redis" / "make-secrets"
#: Milliseconds of silence after which a sentinel calls a server down.
DOWN_AFTER = 3000
SENTINELS = 3


class Watched:
    """A master, its replicas, three sentinels; a master without a replica takes no writes.

    So there has to be one more replica than masters that are to fail.
    The users are those of `deploy/redis`.
    """

    def __init__(self, folder: Path, replicas: int) -> None:
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = [_port() for _ in range(1 + replicas)]
        self.sentinels = [_port() for _ in range(SENTINELS)]
        hosts = ",".join(f"{HOST}:{port}" for port in self.sentinels)
        address = f"sentinel://{hosts}/{SERVICE}/0"
        self._secrets = folder / "secrets"
        subprocess.run([MAKE_SECRETS, address, self._secrets], check=True, capture_output=True)
        self.url = self._secret("redis-url-admin")
        self._start_all()

    def ask(self, port: int) -> Any:
        """A client for one server, as its administrator, or for a sentinel."""
        user = urlsplit(self.url.partition(",")[0]) if port in self.servers else None
        return redis.Redis(
            HOST,
            port,
            username=user and user.username,
            password=user and user.password,
            decode_responses=True,
            socket_timeout=2,
        )

    def master(self) -> int:
        """The port of the master, as a sentinel says."""
        with self.ask(self.sentinels[0]) as sentinel:
            return int(sentinel.sentinel_get_master_addr_by_name(SERVICE)[1])

    def kill(self, port: int) -> None:
        """Kill one of them."""
        self._processes[port].kill()
        self._processes[port].wait()

    def kill_copied(self, port: int) -> None:
        """Kill a master whose replicas have all that it has confirmed."""
        with self.ask(port) as server:
            stop_writes(server, len(self._living()) - 1)
        self.kill(port)

    def hand_over(self) -> int:
        """Let another become the master, as an operator does; the port of the one that was."""
        before = self.master()
        with self.ask(before) as server, self.ask(self.sentinels[0]) as sentinel:
            # What the old master would still take while its replicas leave it would be lost.
            stop_writes(server, len(self._living()) - 1)
            sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)
        return before

    def settled(self, replicas: int) -> bool:
        """Check that so many replicas are in sync, and that every sentinel knows.

        The replicas are asked themselves. A sentinel tells what it heard up to ten seconds ago, and
        a replica in the middle of a full resync is empty: promoted then, it loses all data, and
        numbers of iterations begin again.
        """
        master = self.master()
        written = self._replication(master).get("master_repl_offset")
        if written is None:
            return False
        others = [port for port in self._living() if port != master]
        follow = sum(self._follows(port, master, written) for port in others)
        all_see = all(self._count_replicas(port, master) == replicas for port in self.sentinels)
        return follow == replicas and all_see

    def _living(self) -> list[int]:
        return [port for port in self.servers if self._processes[port].poll() is None]

    def _follows(self, port: int, master: int, written: int) -> bool:
        """Check that a replica has everything that the master had written."""
        state = self._replication(port)
        synced = {
            "role": "slave",
            "master_port": master,
            "master_link_status": "up",
            "master_sync_in_progress": 0,
        }
        return synced.items() <= state.items() and int(state["slave_repl_offset"]) >= written

    def _replication(self, port: int) -> dict[str, Any]:
        """The replication section of INFO; empty if the server does not answer."""
        try:
            with self.ask(port) as server:
                return dict(server.info("replication"))
        except redis.RedisError:
            return {}

    def signal(self, number: int) -> None:
        """Send a signal to all; they are gone afterwards if that kills."""
        for process in self._processes.values():
            if process.poll() is None:
                signal_process(process.pid, number)
            if number == signal.SIGKILL:
                process.wait()

    def _start_all(self) -> None:
        first, *others = self.servers
        self._start_server(first)
        for port in others:
            self._start_server(port, first)
        for port in self.sentinels:
            self._start_sentinel(port, first)
        wait_until(lambda: self.settled(len(others)), 30)

    def _start_server(self, port: int, master: int | None = None) -> None:
        lines = [
            "min-replicas-to-write 1",
            "repl-diskless-sync-delay 0",
            "appendonly yes",
            'save ""',
            f"aclfile {self._secrets / 'users.acl'}",
            "masteruser replica",
            f"masterauth {self._secret('redis-password-replica')}",
        ]
        lines += [f"appendfilename server-{port}.aof", f"dbfilename server-{port}.rdb"]
        lines += [f"replicaof {HOST} {master}"] if master else []
        self._start(port, lines)

    def _start_sentinel(self, port: int, master: int) -> None:
        rules = [f"monitor {SERVICE} {HOST} {master} 2", f"failover-timeout {SERVICE} 5000"]
        rules += [f"down-after-milliseconds {SERVICE} {DOWN_AFTER}"]
        rules += [f"auth-user {SERVICE} sentinel"]
        rules += [f"auth-pass {SERVICE} {self._secret('redis-password-sentinel')}"]
        self._start(port, [f"sentinel {rule}" for rule in rules], "--sentinel")

    def _secret(self, name: str) -> str:
        return (self._secrets / name).read_text().strip()

    def _start(self, port: int, lines: list[str], *arguments: str) -> None:
        file = self._folder / f"redis-{port}.conf"
        where = [f"port {port}", f"bind {HOST}", f"dir {self._folder}"]
        file.write_text("\n".join([*where, *lines]))
        with (self._folder / f"redis-{port}.log").open("ab") as log:
            command = [str(server_program()), str(file), *arguments]
            self._processes[port] = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: self._answers(port), 20)

    def _answers(self, port: int) -> bool:
        with self.ask(port) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def _count_replicas(self, port: int, master: int) -> int:
        """Count the healthy replicas of a sentinel, if it knows the others and the master."""
        with self.ask(port) as sentinel:
            state = sentinel.sentinel_masters()[SERVICE]
            replicas = sentinel.sentinel_slaves(SERVICE)
        knows = state["port"] == master and state["num-other-sentinels"] == SENTINELS - 1
        well = {"flags": "slave", "master-link-status": "ok", "master-port": str(master)}
        return sum(knows and all(str(r[k]) == v for k, v in well.items()) for r in replicas)


def _port() -> int:
    """A free port below those of outgoing connections: who reconnects there cannot meet itself."""
    while True:
        port = random.choice(PORTS)
        try:
            with socket.create_server((HOST, port)):
                return port
        except OSError:
            continue
