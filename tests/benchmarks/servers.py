"""A Redis for measurements, and what comes over its wire."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from harness import free_port, server_program, wait_until


@contextlib.contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[str]:
    """A Redis of its own, without persistence unless *options* say otherwise; its URL."""
    port = free_port()
    command = [str(server_program()), "--port", str(port), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    try:
        wait_until(lambda: answers(client), 10)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        client.close()
        process.kill()
        process.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False


@contextlib.contextmanager
def monitored(url: str) -> Iterator[list[str]]:
    """Record commands on the wire, without those inside of scripts and our own reads."""
    client: Any = redis.Redis.from_url(url, decode_responses=True, socket_timeout=None)
    # Connected before: only what others send is seen.
    teller: Any = redis.Redis.from_url(url)
    teller.ping()
    seen: list[str] = []

    def listen(monitor: Any) -> None:
        for entry in monitor.listen():
            if entry["command"] == "PING the end":
                return
            if entry["client_type"] != "lua" and not entry["command"].startswith("XRE"):
                seen.append(entry["command"])

    with client.monitor() as monitor:
        thread = threading.Thread(target=listen, args=(monitor,))
        thread.start()
        yield seen
        teller.execute_command("PING", "the end")
        thread.join(120)
    client.close()
    teller.close()
