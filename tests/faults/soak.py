"""`make soak`: thousands of iterations, and days for Redis; what lies there must stay the same.

make soak ARGS="--iterations 10000"

Whatever has a time to live must get the time to end: between two rounds the clock of Redis is put
ahead by a day.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from plugin_kit import site

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kits"))

import psutil
import requests

from boyd.errors import ConfigError
from faults.clocks import Clock, missing, tidy
from faults.world import RedisProcess
from harness import Deployment, wait_until

#: Seconds for Redis between two rounds.
STEP = 86_400.0
#: Rounds until what has no cap is as much as it will ever be: the ledger is kept for a week.
WARM = 9
#: One iteration in so many comes with a run, a call, an action that waits for an answer.
RUNS, CALLS, ITEMS = 4, 5, 6
#: How much more there may be at the end: of memory, of a kind of key, of a kind of entry. A few
#: hashes of a kind, of some twenty fields each, come and go.
MEMORY, MORE, FEW = 0.05, 0.10, 60
#: The bytes of those few.
SLACK = 65_536
_NUMBER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{32,}\b|\b[a-z0-9]{12}$|\d+")
_LENGTH = {
    "hash": "HLEN",
    "list": "LLEN",
    "set": "SCARD",
    "stream": "XLEN",
    "zset": "ZCARD",
}


@dataclass(frozen=True)
class Census:
    """A census: keys and entries by kind, bytes of Redis, bytes of each process.

    `stored` are the bytes of all keys; `memory` has the buffers of clients, too, and what else
    comes and goes.
    """

    iterations: int
    keys: Counter[str]
    entries: Counter[str]
    stored: int
    memory: int
    resident: dict[str, int]

    def differences(self, before: Census) -> list[str]:
        """Everything that grew beyond the usual variation."""
        most = before.stored * (1 + MEMORY) + SLACK
        growth = [f"{self.stored} bytes, and {before.stored} before"] if self.stored > most else []
        for kind_of_thing, now, then in (
            ("keys", self.keys, before.keys),
            ("entries", self.entries, before.entries),
        ):
            for kind, number in now.items():
                if number > then[kind] * (1 + MORE) + FEW:
                    growth.append(f"{number} {kind_of_thing} {kind}, and {then[kind]} before")
        return growth

    def growing_processes(self, before: Census) -> list[str]:
        """Processes that have grown."""
        then = before.resident
        bound = 1 + 2 * MEMORY
        return [name for name, size in self.resident.items() if size > then[name] * bound]


class Soak:
    """A Redis with a clock of its own, two workers, a beat, an API process, a client."""

    def __init__(self, folder: Path, each: int) -> None:
        """Iterations come in rounds of *each*."""
        self._each = each
        self._clock = Clock(folder / "clock", late=True)
        self._redis = RedisProcess(folder, fsync="everysec", clock=self._clock)
        self._deployment = Deployment(self._redis.url, folder)
        self._deployment.environment |= {
            "BOYD_API__RATE": "100000",
            "BOYD_PRINCIPAL_BYTES": str(2**30),
            "BOYD_API__BURST": "100000",
            "BOYD_AUDIT_KEEP": "100",
            "BOYD_CALLBACKS__ALLOW_PRIVATE": "true",
        }
        self._stack = ExitStack()
        self._receiver = self._stack.enter_context(site())
        self._receiver.status = 204
        self._session = requests.Session()
        self._store = self._deployment.agent("soak")
        self._launcher = self._deployment.launcher("soak", "event-driven")
        self._done = 0

    def __enter__(self) -> Self:
        for name in ("w0", "w1"):
            self._deployment.worker(name, "agents.soak:soak", "--concurrency", "4")
        self._deployment.beat("b0", "agents.soak:soak")
        self._url = f"{self._deployment.api('a0')}/api/v0"
        self._asks = self._deployment.key("client", "admin")
        self._answers = self._deployment.key("operator", "approvals")
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()
        self._deployment.__exit__()
        self._redis.signal(9)
        self._stack.close()
        tidy()

    def run(self, iterations: int) -> Census:
        """Go on until there were so many *iterations* in all."""
        while self._iteration() < iterations:
            until = self._iteration() + self._each
            while self._iteration() < until:
                self._one()
            self._pass_time()
        return self._census()

    def _one(self) -> None:
        self._done += 1
        if self._done % RUNS == 0:
            body = {"title": "soak", "description": "soak", "callbackUrl": self._receiver.url}
            self._post("/runs", body)
        if self._done % CALLS == 0:
            self._post("/actions/soak:act", {"params": {"number": self._done}})
        if self._done % ITEMS == 0:
            self._item()
        trigger = self._launcher.trigger("soak")
        wait_until(lambda: self._has_end(trigger.iteration), 60)

    def _item(self) -> None:
        """Ask for an action, and answer in one of the ways, or not at all."""
        reply = self._post("/actions/soak:write", {"params": {"number": -self._done}})
        answer = ("approve", "deny", "withdraw", None)[self._done // ITEMS % 4]
        if answer:
            self._post(f"/approvals/{reply['approvalId']}/{answer}?wait=5", None, self._answers)

    def _post(self, path: str, body: Any, who: dict[str, str] | None = None) -> Any:
        headers = {**(who or self._asks), "Idempotency-Key": f"{path} {self._done}"}
        response = self._session.post(f"{self._url}{path}", json=body, headers=headers, timeout=60)
        assert response.ok, (response.status_code, response.text)
        return response.json()

    def _pass_time(self) -> None:
        """Let a day go by for Redis, once nothing is in flight and every callback has arrived."""
        client = self._deployment.store.client
        wait_until(lambda: self._store.loop_control.status().phase == "idle", 30)
        wait_until(lambda: not _jobs(client), 30)
        before, _ = client.time()
        self._clock.shift(self._clock.seconds + STEP)
        wait_until(lambda: client.time()[0] > before + STEP / 2, 10)
        wait_until(lambda: len(self._deployment.store.fleet.workers()) == 3, 30)

    def _census(self) -> Census:
        client = self._deployment.store.client
        wait_until(lambda: not client.zcard("boyd:{soak}:due"), 60)
        wait_until(lambda: not client.xlen("boyd:{soak}:audit:open"), 30)
        client.execute_command("MEMORY", "PURGE")
        keys: Counter[str] = Counter()
        entries: Counter[str] = Counter()
        stored = 0
        for key in client.scan_iter(count=1000):
            kind = _NUMBER.sub("#", key)
            keys[kind] += 1
            command = _LENGTH.get(client.type(key))
            entries[kind] += client.execute_command(command, key) if command else 1
            stored += client.memory_usage(key, samples=0) or 0
        processes = self._deployment.processes
        return Census(
            iterations=self._iteration(),
            keys=keys,
            entries=entries,
            stored=stored,
            memory=client.info("memory")["used_memory"],
            resident={name: _resident(process.pid) for name, process in processes.items()},
        )

    def _iteration(self) -> int:
        return self._store.loop_control.status().iteration

    def _has_end(self, number: int) -> bool:
        return bool(self._deployment.store.client.exists(f"boyd:{{soak}}:iteration:{number}"))


def _jobs(client: Any) -> list[str]:
    """The jobs that are due now; notices wait for their time."""
    due = client.zrange("boyd:{soak}:due", 0, -1)
    return [name for name in due if not name.startswith(("notice:", "delivery:"))]


def _resident(pid: int) -> int:
    process = psutil.Process(pid)
    return sum(member.memory_info().rss for member in (process, *process.children(recursive=True)))


def table(before: Census, after: Census) -> str:
    """Both, side by side, for people."""
    lines = [f"| after iterations | {before.iterations} | {after.iterations} |", "|---|---|---|"]
    for kind in sorted(after.keys | before.keys):
        then, now = (f"{c.keys[kind]} ({c.entries[kind]})" for c in (before, after))
        lines.append(f"| {kind} | {then} | {now} |")
    lines.append(f"| all keys | {before.keys.total()} | {after.keys.total()} |")
    lines.append(f"| bytes of all keys | {_mb(before.stored)} | {_mb(after.stored)} |")
    lines.append(f"| used_memory | {_mb(before.memory)} | {_mb(after.memory)} |")
    for name, size in after.resident.items():
        lines.append(f"| resident {name} | {_mb(before.resident[name])} | {_mb(size)} |")
    return "\n".join(lines)


def _mb(size: int) -> str:
    return f"{size / 1e6:.2f} MB"


def main() -> None:
    """Soak, and compare; the exit status is 1 when something has grown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10_000, help="how many in all")
    parser.add_argument("--round", type=int, default=100, help="iterations between two steps")
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        raise ConfigError(reason)
    for name in [name for name in os.environ if name.startswith("BOYD_")]:
        del os.environ[name]
    first = max(arguments.iterations // 5, WARM * arguments.round)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="boyd-soak-") as folder,
        Soak(Path(folder), arguments.round) as soak,
    ):
        before = after = soak.run(first)
        while after.iterations < arguments.iterations:
            after = soak.run(min(arguments.iterations, after.iterations + 1000))
            summary = f"{after.keys.total()} keys, {_mb(after.memory)}"
            print(f"{time.monotonic() - began:.0f} s: {after.iterations}, {summary}", flush=True)
    print(f"\n{table(before, after)}\n")
    grown = after.differences(before) + after.growing_processes(before)
    print("\n".join(grown) or "flat")
    sys.exit(bool(grown))


if __name__ == "__main__":
    main()
