"""A master, its replicas and the sentinels that watch them, as processes of their own."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import redis

from boyd.embedded.redis_server import HOST, PORTS, find_program
from harness import wait_until

SERVICE = "boyd"
#: Milliseconds of silence after which a sentinel calls a server down.
DOWN_AFTER = 1000
SENTINELS = 3


class Watched:
    """One master, two replicas, three sentinels; a master without a replica takes no writes.

    With one replica alone nothing could be written after the master's death.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = [_port() for _ in range(3)]
        self.sentinels = [_port() for _ in range(SENTINELS)]
        hosts = ",".join(f"{HOST}:{port}" for port in self.sentinels)
        self.url = f"sentinel://{hosts}/{SERVICE}/0"
        self._start_all()

    def start(self, port: int, master: int | None = None) -> None:
        """Start a server, or start it again; it finds its part in its file."""
        file = self._folder / f"server-{port}.conf"
        if not file.exists():
            lines = [
                f"port {port}",
                f"bind {HOST}",
                f"dir {self._folder}",
                "min-replicas-to-write 1",
            ]
            lines += ["appendonly yes", 'save ""', f"appendfilename server-{port}.aof"]
            lines += [f"dbfilename server-{port}.rdb", "repl-diskless-sync-delay 0"]
            lines += [f"replicaof {HOST} {master}"] if master else []
            file.write_text("\n".join(lines))
        self._run(port, str(file))

    def ask(self, port: int) -> Any:
        """A client for one server or sentinel."""
        return redis.Redis(HOST, port, decode_responses=True, socket_timeout=2)

    def master(self) -> int:
        """The port of the master, as a sentinel says."""
        with self.ask(self.sentinels[0]) as sentinel:
            return int(sentinel.sentinel_get_master_addr_by_name(SERVICE)[1])

    def kill(self, port: int) -> None:
        """Kill one of them."""
        self._processes[port].kill()
        self._processes[port].wait()

    def hand_over(self) -> int:
        """Let another become the master, as an operator does; the port of the one that was."""
        before = self.master()
        with self.ask(before) as server, self.ask(self.sentinels[0]) as sentinel:
            # What the old master would still take while its replicas leave it would be lost.
            server.execute_command("CLIENT", "PAUSE", 4000, "WRITE")
            sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)
        return before

    def complete(self) -> bool:
        """Whether the master has both replicas, and every sentinel knows all."""
        with self.ask(self.master()) as server:
            found = server.info("replication")
        states = [found.get(f"slave{number}", {}).get("state") for number in range(2)]
        return states == ["online"] * 2 and all(self._knows(port) for port in self.sentinels)

    def signal(self, number: int) -> None:
        """Send a signal to all; they are gone afterwards if that kills."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(number)
            if number == signal.SIGKILL:
                process.wait()

    def _start_all(self) -> None:
        first, *others = self.servers
        self.start(first)
        for port in others:
            self.start(port, first)
        for port in self.sentinels:
            file = self._folder / f"sentinel-{port}.conf"
            rules = [f"monitor {SERVICE} {HOST} {first} 2", f"failover-timeout {SERVICE} 5000"]
            rules += [f"down-after-milliseconds {SERVICE} {DOWN_AFTER}"]
            lines = [f"port {port}", f"bind {HOST}", f"dir {self._folder}"]
            file.write_text("\n".join([*lines, *(f"sentinel {rule}" for rule in rules)]))
            self._run(port, str(file), "--sentinel")
        wait_until(self.complete, 30)

    def _run(self, port: int, *arguments: str) -> None:
        with (self._folder / f"redis-{port}.log").open("ab") as log:
            command = [str(find_program()), *arguments]
            self._processes[port] = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: self._answers(port), 20)

    def _answers(self, port: int) -> bool:
        with self.ask(port) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def _knows(self, port: int) -> bool:
        with self.ask(port) as sentinel:
            seen = sentinel.sentinel_masters()[SERVICE]
            replicas = sentinel.sentinel_slaves(SERVICE)
        healthy = [one for one in replicas if one["flags"] == "slave"]
        return seen["num-other-sentinels"] == SENTINELS - 1 and len(healthy) == 2


def _port() -> int:
    """A free port below those of outgoing connections: who reconnects there cannot meet itself."""
    while True:
        port = random.choice(PORTS)
        try:
            with socket.create_server((HOST, port)):
                return port
        except OSError:
            continue
