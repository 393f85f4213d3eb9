"""Hosts with a Redis on one of them, and Boyd's processes on the others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from harness import PYTHONPATH, Deployment, server_program, wait_until
from hosts.network import Host, Network, missing


class Hosts(Deployment):
    """A deployment whose processes run on hosts of their own."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self._helpers: list[subprocess.Popen[bytes]] = []
        self.redis_host = network.host("redis")
        command = [str(server_program()), "--port", "6379", "--save", "", "--dir", str(folder)]
        self._spawn(self.redis_host, [*command, "--bind", "0.0.0.0", "--protected-mode", "no"])
        url = f"redis://{self.redis_host.address}:6379/0"
        wait_until(lambda: _answers(url), 15)
        super().__init__(url, folder)

    def host(self, name: str) -> Host:
        """Add a host."""
        return self.network.host(name)

    def worker_on(self, host: Host, agent: str, *arguments: str, slow: float = 0.0) -> None:
        """Start a worker for *agent* on *host*, on a line that takes *slow* seconds each way."""
        url = self.redis_url
        if slow:
            there = (self.redis_host.address, "6379")
            relay = [sys.executable, "-m", "hosts.slow_line", "6380", *there]
            self._spawn(host, [*relay, str(slow)])
            url = "redis://127.0.0.1:6380/0"
        self.prefix = host.command
        self.environment.update({"BOYD_WORKER__HOST": host.name, "BOYD_REDIS_URL": url})
        try:
            self.worker(host.name, agent, *arguments)
        finally:
            self.prefix = []
            del self.environment["BOYD_REDIS_URL"], self.environment["BOYD_WORKER__HOST"]

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for helper in self._helpers:
            helper.kill()
            helper.wait()

    def _spawn(self, host: Host, command: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
        process = subprocess.Popen(
            [*host.command, *command], stdout=subprocess.DEVNULL, env=environment
        )
        self._helpers.append(process)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """A network with Redis on a host of its own; here without root it is skipped."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    network = Network()
    try:
        with Hosts(network, tmp_path) as network_hosts:
            yield network_hosts
    finally:
        network.close()


def _answers(url: str) -> bool:
    with redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
