"""A Redis for measurements, and what comes over its wire."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import redis


@contextlib.contextmanager
def record_commands(url: str) -> Iterator[list[str]]:
    """Record commands on the wire, without those inside of scripts and our own reads."""
    client: Any = redis.Redis.from_url(url, decode_responses=True, socket_timeout=None)
    # Connected before: only what others send is seen.
    teller: Any = redis.Redis.from_url(url)
    teller.ping()
    commands: list[str] = []

    def listen(monitor: Any) -> None:
        for entry in monitor.listen():
            if entry["command"] == "PING the end":
                return
            if entry["client_type"] != "lua" and not entry["command"].startswith("XRE"):
                commands.append(entry["command"])

    with client.monitor() as monitor:
        thread = threading.Thread(target=listen, args=(monitor,))
        thread.start()
        yield commands
        teller.execute_command("PING", "the end")
        thread.join(120)
    client.close()
    teller.close()
