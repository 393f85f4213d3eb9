"""Clients that never give up: what was acknowledged to them must be true for ever."""

from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import requests

from faults.world import World

#: Seconds between two jobs of one client, on average.
PAUSE = 0.15
#: What happens to an approval that was asked for.
ANSWERS = ("approve", "approve", "approve", "deny", "withdraw")
#: The hosts on which something is restarted, so few that most approvals come while one runs.
HOSTS = ("web1", "web2")


@dataclass
class Acknowledged:
    """Acknowledged requests, by agent and id; of approvals the line that they write."""

    runs: list[tuple[str, str]] = field(default_factory=list)
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    items: dict[tuple[str, str], str] = field(default_factory=dict)
    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    refused: int = 0
    repeated: int = 0


class Load:
    """Clients of each kind, in threads."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._seed = seed
        self._stopping = threading.Event()
        self._numbers = count(1)
        self._asks = world.deployment.key("client", "admin")
        self._answers = world.deployment.key("operator", "approvals", "read")
        self.acknowledged = Acknowledged()
        self._threads = [
            threading.Thread(target=self._client, args=(kind, seed), daemon=True)
            for seed, kind in enumerate(
                (self._run, self._run, self._call, self._item, self._item, self._restart)
            )
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, when what was begun has been acknowledged."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client was never answered"

    def _client(self, work: Any, number: int) -> None:
        dice = random.Random(f"{self._seed}/{number}")
        while not self._stopping.is_set():
            work(dice, dice.choice(self._world.agents))
            time.sleep(dice.uniform(0, 2 * PAUSE))

    def _run(self, dice: random.Random, agent: str) -> None:
        priority = dice.choice(["low", "medium", "high", "critical"])
        body = {"title": "storm", "description": "storm", "priority": priority}
        response = self._post(dice, f"/agents/{agent}/runs", body, self._asks)
        self.acknowledged.runs.append((agent, response.json()["id"]))

    def _call(self, dice: random.Random, agent: str) -> None:
        number = next(self._numbers)
        path = f"/agents/{agent}/actions/storm:call?wait=0"
        response = self._post(dice, path, {"params": {"number": number}}, self._asks)
        self.acknowledged.calls.append((agent, response.json()["executionId"], number))

    def _item(self, dice: random.Random, agent: str) -> None:
        number = next(self._numbers)
        approval = self._ask(dice, agent, "write", number=number)
        if approval:
            self._answer(dice, agent, approval, f"item:{agent}:{number}", dice.choice(ANSWERS))

    def _restart(self, dice: random.Random, agent: str) -> None:
        host = dice.choice(HOSTS)
        approval = self._ask(dice, agent, "restart", number=next(self._numbers), host=host)
        if approval:
            self._answer(dice, agent, approval, f"begin:{agent}:approval:{approval}", "approve")

    def _ask(self, dice: random.Random, agent: str, action: str, **params: Any) -> str | None:
        """Ask for the action; return its approval, or None when it needs none."""
        path = f"/agents/{agent}/actions/storm:{action}?wait=20"
        body = self._post(dice, path, {"params": params}, self._asks).json()
        return body["approvalId"] if body.get("queued") else None

    def _answer(
        self, dice: random.Random, agent: str, approval: str, line: str, answer: str
    ) -> None:
        self.acknowledged.items[agent, approval] = line
        path = f"/agents/{agent}/approvals/{approval}/{answer}?wait=0"
        answered = self._post(dice, path, None, self._answers)
        if answered.ok:
            self.acknowledged.answers[agent, approval] = answer
        else:
            self.acknowledged.refused += 1

    def _post(
        self, dice: random.Random, path: str, body: Any, headers: dict[str, str]
    ) -> requests.Response:
        """Post until somebody answers for good; the same request however often."""
        key = {**headers, "Idempotency-Key": str(uuid.UUID(int=dice.getrandbits(128)))}
        while True:
            api = dice.choice(self._world.apis)
            url, trust = self._world.url(api), self._world.trust(api)
            try:
                response = requests.post(
                    f"{url}/api/v0{path}", json=body, headers=key, verify=trust, timeout=60
                )
                if response.ok or response.status_code == 404:
                    return response
                retry = response.status_code == 409 or response.status_code >= 500
                assert retry, (response.status_code, response.text)
            except requests.RequestException:
                pass
            self.acknowledged.repeated += 1
            time.sleep(0.1)
