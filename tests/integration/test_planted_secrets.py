"""Fifty planted secrets through a day's work: none of them is left in what others can read."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
import string
import zlib
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
import requests

from archive_kit import wait_for_copies
from boyd.testing import ScriptedModel
from boyd.testing.model_server import call, say
from cli_kit import Cli
from harness import Deployment, wait_until
from kit import READS
from plugin_kit import Site, site
from secret_kit import EmulatedVault, secret_server
from tracing_kit import Sink

pytestmark = [pytest.mark.real, pytest.mark.long]

AGENT = "agents.keeper:agent"
FIFTY = range(50)


def reference(number: int) -> str:
    return f"secret://vault/planted/{number}#password"


def plant(vault: EmulatedVault) -> dict[int, str]:
    """Fifty secrets that no pattern takes for one; some have what encodings change."""
    dice = random.Random(7)
    letters = string.ascii_letters
    values = {
        number: "".join(dice.choices(letters + ' "\\/+&äß' * (number % 2), k=24)).strip() + "end"
        for number in FIFTY
    }
    for number, value in values.items():
        vault.secrets[f"planted/{number}"] = {"password": value}
    return values


def forms(value: str) -> dict[str, bytes]:
    """The forms of a value that must not be found, and its first half."""
    plain = value.encode()
    return {
        "plain": plain,
        "json": json.dumps(value)[1:-1].encode(),
        "quoted": quote(value).encode(),
        "hex": plain.hex().encode(),
        "base64": base64.b64encode(b"me:" + plain)[4:28],
        "half": value[: len(value) // 2 + 1].encode(),
    }


class World:
    """The deployment, and all that it says to others."""

    def __init__(
        self, deployment: Deployment, hook: Site, model: ScriptedModel, sink: Sink
    ) -> None:
        self.deployment = deployment
        self.hook = hook
        self.model = model
        self.sink = sink
        self.answers: list[str] = []
        self.url = deployment.api("api")
        self.key = deployment.key("ann", "admin")
        self.approver = deployment.key("bob", "admin")

    def ask(self, method: str, path: str, body: Any = None, key: Any = None) -> Any:
        """Send a request to the API, and keep the answer."""
        response = requests.request(
            method, f"{self.url}/api/v0{path}", headers=key or self.key, json=body, timeout=60
        )
        self.answers.append(f"{response.headers}\n{response.text}")
        assert response.status_code < 400, (path, response.text)
        return response.json()

    def execute(self, action: str, number: int, **params: Any) -> Any:
        """Execute an action with a secret that the settings permit."""
        body = {"params": {"host": f"h{number}", "password": reference(number), **params}}
        return self.ask("POST", f"/actions/{action}?wait=30", body)


@pytest.fixture
def vault() -> Iterator[EmulatedVault]:
    with secret_server(EmulatedVault) as vault:
        yield vault


@pytest.fixture
def world(deployment: Deployment, vault: EmulatedVault, tmp_path: Path) -> Iterator[World]:
    (tmp_path / "token").write_text("root-token-of-tests")
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f'[secrets]\ncache = 0.5\n[secrets.providers.vault]\naddress = "{vault.url}"\n'
        f'token = {{ file = "{tmp_path / "token"}" }}\n'
    )
    replies = [
        call("login", {"host": "h40", "password": reference(40)}),
        call("login", {"host": "h5", "password": reference(5)}),
        say("Done."),
    ]
    with site() as hook, ScriptedModel(replies, forever=True) as model, Sink() as sink:
        deployment.environment |= {
            "BOYD_CONFIG": str(settings),
            "BOYD_ARCHIVE_URL": f"sqlite:///{tmp_path / 'archive.db'}",
            "BOYD_TRACES__ENDPOINT": sink.url,
            "BOYD_CALLBACKS__ALLOW_PRIVATE": "true",
            "HOOK": f"{hook.url}/hook",
            "MODEL": model.url,
        }
        deployment.worker("loop", AGENT, "--queues", "loop,observe,callback,think")
        deployment.worker("act", AGENT, "--queues", "act", "--pool", "prefork")
        deployment.start("archive", "archive", ready=False)
        deployment.start("traces", "traces", ready=False)
        world = World(deployment, hook, model, sink)
        yield world


def work(world: World) -> None:
    """A day of the loop, clients, models, procedures, approvals, rollbacks and crashes."""
    for number in range(10, 20):
        alert = {"source": f"alert-{number}", "type": "alert", "severity": "critical", "data": {}}
        world.ask("POST", "/intake/json", [alert])
        world.ask("POST", "/loop/trigger?wait=30", {})
    for number in range(30, 36):
        world.execute("keeper:login", number, fail=number % 2 == 1)
    confined = world.execute("keeper:confined", 36)
    assert confined["success"], confined
    done = world.execute("keeper:login", 37)
    world.ask("POST", f"/executions/{done['executionId']}/rollback?wait=30", {})
    world.execute("keeper:gated", 38)
    body = {"params": {"host": "h39", "password": reference(39)}}
    world.ask("POST", "/actions/keeper:gated/dry-run?wait=30", body)
    for item in world.ask("GET", "/approvals?limit=100")["pending"]:
        world.ask("POST", f"/approvals/{item['id']}/approve?wait=30", {}, world.approver)
    world.ask("POST", "/actions/procedures:many?wait=30", {"params": {"host": "web"}})
    started = world.ask("POST", "/investigations", {"question": "Can we log in?"})
    path = f"/investigations/{started['id']}"
    wait_until(lambda: world.ask("GET", path)["status"] == "ended", 60)
    world.ask("GET", f"{path}/log")
    world.ask("GET", "/plugins/keeper/leak")
    for number in range(41, 49):
        world.execute("keeper:login", number)
    wait_until(lambda: world.ask("GET", "/procedures")["procedures"][0]["state"] != "running", 120)
    world.execute("keeper:crash", 49)


def uses(deployment: Deployment, action: str) -> set[str]:
    """The digests of the values that actions got."""
    lines = [line.partition(":") for line in deployment.effects()]
    return {digest for kind, _, digest in lines if kind == action}


def read_all(world: World) -> None:
    """Read by API, console, MCP and command line what the day has left."""
    for path in (
        *("/loop/history?limit=100", "/approvals?limit=100", "/executions?limit=100", "/actions"),
        *("/procedures", "/loop/status", "/investigations"),
    ):
        world.ask("GET", path)
    world.answers.append(requests.get(f"{world.url}/metrics", headers=world.key, timeout=60).text)
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "boyd_propose_action",
            "arguments": {
                "agent": "keeper",
                "action": "keeper:login",
                "params": {"host": "h1", "password": reference(1)},
                "rationale": "r",
            },
        },
    }
    robot = world.deployment.key("robot", "admin", person=False)
    headers = {**robot, "Accept": "application/json, text/event-stream"}
    answer = requests.post(f"{world.url}/mcp", json=message, headers=headers, timeout=60)
    assert "may not use secret://" in answer.text, answer.text
    world.answers.append(answer.text)
    deployment = world.deployment
    key = world.key["Authorization"].removeprefix("Bearer ")
    around = {
        **deployment.environment,
        "BOYD_REDIS_URL": deployment.redis_url,
        "BOYD_URL": world.url,
        "BOYD_API_KEY": key,
        "PYTHONPATH": deployment.surroundings()["PYTHONPATH"],
    }
    cli = Cli(deployment.folder, **around)
    for command in (
        ("doctor", "--agent", AGENT),
        ("check", AGENT, "--print"),
        ("history", "--limit", "100", "-o", "json"),
        ("replay", "--agent", AGENT),
    ):
        process = cli.process(*command)
        world.answers.append(f"{command} {process.stdout} {process.stderr}")


def values_in_redis(url: str) -> Iterator[bytes]:
    """Every key and value, and its serialized form, as a backup has it."""
    client: Any = redis.Redis.from_url(url)

    def flatten(value: Any) -> Iterator[bytes]:
        if isinstance(value, bytes):
            yield value
        elif isinstance(value, dict):
            yield from flatten([*value, *value.values()])
        elif isinstance(value, list | tuple | set):
            for item in value:
                yield from flatten(item)

    for key in client.scan_iter():
        yield key
        yield from flatten(READS[client.type(key).decode()](client, key))
        yield client.dump(key) or b""
    client.close()


def values_in_archive(path: Path) -> Iterator[bytes]:
    """Every value of the archive, with the compressed ones as text."""
    with closing(sqlite3.connect(path)) as archive:
        tables = archive.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in archive.execute(f'SELECT * FROM "{table}"'):
                yield repr(row).encode()
                yield from (zlib.decompress(cell) for cell in row if isinstance(cell, bytes))


def everything(world: World) -> Iterator[tuple[str, bytes]]:
    """All that anybody but the worker can read, with where it is."""
    redis_values = values_in_redis(world.deployment.redis_url)
    yield from (("redis", value) for value in redis_values)
    archive = world.deployment.folder / "archive.db"
    yield from (("archive", value) for value in values_in_archive(archive))
    for path in world.deployment.folder.rglob("*"):
        if path.is_file():
            yield path.name, path.read_bytes()
    yield from (("answers", answer.encode()) for answer in world.answers)
    yield from (("messages", request[3]) for request in world.hook.requests)
    assert world.sink.bodies, "no traces were exported"
    yield from (("traces", body) for body in world.sink.bodies)
    for received in world.model.requests:
        yield "prompts", repr(received).encode()


def test_fifty_secrets_are_used_and_none_is_left(world: World, vault: EmulatedVault) -> None:
    values = plant(vault)
    digests = {n: sha256(value.encode()).hexdigest() for n, value in values.items()}
    work(world)
    read_all(world)
    deployment = world.deployment
    wait_for_copies(deployment.store)
    for name in ("archive", "traces", "loop", "act", "api"):
        deployment.stop(name, 30)

    used = uses(deployment, "login")
    assert {digests[n] for n in (*range(20, 36), 37, *range(40, 49))} <= used
    assert used & {digests[n] for n in range(10, 20)}
    assert {digests[n] for n in (11, 13, 38)} <= uses(deployment, "gated")
    assert digests[37] in uses(deployment, "rollback")
    assert digests[49] in uses(deployment, "crash")
    unused = {digests[n] for n in (1, 5)}
    assert unused.isdisjoint(uses(deployment, "login"))
    whole = list(everything(world))
    leaks = {
        (number, form, where)
        for where, data in whole
        for number, value in values.items()
        for form, text in forms(value).items()
        if text in data
    }
    assert leaks == set()
    for where in ("redis", "answers", "archive", "prompts"):
        assert any(w == where and b"secret://" in data for w, data in whole), where
    assert any(w == "messages" and b"keeper:gated" in data for w, data in whole)
    for where in ("redis", "answers", "archive", "loop.log", "act.log"):
        assert any(w == where and b"[redacted]" in data for w, data in whole), where
