"""docs/security.md, tried: its commands, settings and code, and its user of Redis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import redis
from joserfc import jwt
from joserfc.jwk import ECKey

from boyd import Agent
from boyd.models import Actor, CallRequest
from boyd.security.identity_tokens import IdentityTokens
from boyd.settings.process_settings import load_settings
from boyd.store import Store, connect
from boyd.testing import Lab
from guide_kit import Guide, Reader, steps
from harness import Deployment, wait_until
from http_kit import Handler, serve

pytestmark = pytest.mark.real

GUIDE = Guide("security.md")
_SESSIONS = "tests/integration/test_security_guide.py::test_the_sessions_print_what_they_show"
_SETTINGS = (
    "tests/unit/project/test_docs.py::"
    "test_every_toml_block_is_an_agent_settings_or_a_part_of_a_pyproject"
)
_USER = "tests/integration/test_security_guide.py::test_the_user_of_the_guide_is_enough"
_IDENTITY = "tests/integration/test_security_guide.py::test_the_key_proves_who_calls"
_OIDC = "tests/integration/test_security_guide.py::test_the_secret_of_openid_connect_is_read"
#: Every block of the page, and what runs it.
RUNS = {
    ("Keys", "256 random bits"): _SESSIONS,
    ("Keys", "keys rotate"): _SESSIONS,
    ("Rights per action", "keys create"): _SESSIONS,
    ("Rights per action", "[rights]"): _SETTINGS,
    ("Rights per action", "boyd can"): _SESSIONS,
    ("Sign in with OpenID Connect", "[oidc]"): _OIDC,
    ("Sign in with OpenID Connect", "export"): _OIDC,
    ("Redis", "user boyd"): _USER,
    ("Delegation between agents", "[delegation]"): _SETTINGS,
    ("Identity of agents", "ctx.identity_token"): _IDENTITY,
    ("Identity of agents", "openssl"): _IDENTITY,
    ("The audit trail", "audit show"): _SESSIONS,
    ("What it proves", "urandom"): _SESSIONS,
    ("What it proves", "--expect"): _SESSIONS,
}
#: The agent of its examples.
OFFICE = 'id = "office"\nplugins_dir = "plugins"\n[[plugins]]\nuse = "restart"\n'
RESTART = """
from boyd import Plugin, action
from boyd.models import Model


class Params(Model):
    host: str


class Restart(Plugin):
    id = "restart"

    @action(risk="high", target="host")
    def nginx(self, params: Params) -> str:
        return "restarted"
"""

#: What is around the code of the page.
HEAD = """
from boyd import Context, Plugin, action
from boyd.models import Model


class Params(Model):
    host: str


class Servers(Plugin):
    id = "servers"

"""


def test_something_runs_every_block_of_the_page() -> None:
    GUIDE.check_runs(RUNS)


@pytest.mark.long
def test_the_sessions_print_what_they_show(deployment: Deployment, tmp_path: Path) -> None:
    reader = Reader(tmp_path, deployment.surroundings())
    _open_the_office(deployment, reader, tmp_path)

    printed = reader.follow(GUIDE.block("Rights per action", "keys create"))
    [key] = re.findall(r"\bboyd_([a-z0-9]{12})_[\w-]{43}\b", printed)
    can = GUIDE.block("Rights per action", "boyd can")
    assert key in reader.follow(can.replace("5rmvlduddkcg", key))
    reader.follow(GUIDE.block("Keys", "keys rotate").replace("a1b2c3d4e5f6", key))
    assert key not in reader.follow(can.replace("5rmvlduddkcg", "…"))

    reader.type("boyd pause --reason maintenance; boyd resume")
    trail = GUIDE.block("The audit trail").replace("ann@", "admin@")
    reader.follow(trail.replace("17:9f4c…", "17:…"))
    notes = GUIDE.block("What it proves", "--expect").replace("/mnt/elsewhere", str(tmp_path))
    reader.follow(notes.splitlines(keepends=True)[0])
    [head] = re.findall(r"\b\d+:[0-9a-f]{64}\b", (tmp_path / "heads").read_text())
    reader.follow(notes.replace("17:9f4c…", head))


def _open_the_office(deployment: Deployment, reader: Reader, folder: Path) -> None:
    """Start the agent of the page with the key that it makes for the audit trail."""
    reader.follow(GUIDE.block("What it proves", "urandom").replace("/etc/boyd", str(folder)))
    key = reader.type("printenv BOYD_AUDIT_KEY_FILE").strip()
    deployment.environment["BOYD_AUDIT_KEY_FILE"] = key
    (folder / "plugins").mkdir()
    (folder / "plugins" / "restart.py").write_text(RESTART)
    (folder / "agent.toml").write_text(OFFICE)
    deployment.worker("worker", str(folder / "agent.toml"))
    bearer = deployment.key("admin@example.com", "admin")["Authorization"]
    reader.type(f"export TZ=UTC BOYD_URL={deployment.api('api')} BOYD_API_KEY={bearer.split()[1]}")


def test_the_secret_of_openid_connect_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "oidc-secret").write_text("of the client\n")
    (tmp_path / "boyd.toml").write_text(GUIDE.block("Sign in with OpenID Connect", "[oidc]"))
    [(export, _)] = steps(GUIDE.block("Sign in with OpenID Connect", "export"))
    name, _, file = export.removeprefix("export ").partition("=")
    monkeypatch.setenv(name, file.replace("/etc/boyd", str(tmp_path)))

    secret = load_settings(file=tmp_path / "boyd.toml").oidc.client_secret

    assert secret is not None
    assert secret.get_secret_value() == "of the client"


def test_the_key_proves_who_calls(tmp_path: Path) -> None:
    received: list[str] = []

    class Inventory(Handler):
        """The other system."""

        def answer(self) -> None:
            """Note who calls."""
            received.append(self.headers["Authorization"].removeprefix("Bearer "))
            self.reply(200)

    Reader(tmp_path, os.environ).type(GUIDE.block("Identity of agents", "openssl"))
    code = textwrap.indent(GUIDE.block("Identity of agents", "identity_token"), "    ")
    with serve(Inventory) as url:
        names: dict[str, Any] = {"URL": url, "__name__": "example"}
        exec(f"{HEAD}{code}", names)
        lab = Lab(Agent("shop", plugins=[names["Servers"]()]))
        key = (tmp_path / "identity.key").read_text()
        tokens = IdentityTokens(key, "boyd", "host-a:1", time.time)
        lab.engine.settings = replace(lab.engine.settings, identity=tokens.sign)
        work = CallRequest(
            kind="execute",
            action="servers:drain",
            params={"host": "web-1"},
            actor=Actor(principal="ann"),
        )
        lab.launcher.call(work, None, "1")
        lab.deliver()

    [token] = received
    public = ECKey.import_key((tmp_path / "identity.pub").read_text())
    assert jwt.decode(token, public, algorithms=["ES256"]).claims["sub"] == "ann"


@pytest.fixture
def limited_url(redis_url: str) -> Iterator[str]:
    """The URL of Redis for the user that the guide shows."""
    _, _, *rules = GUIDE.block("Redis", "user boyd").replace(">PASSWORD", ">secret").split()
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    client.execute_command("ACL", "SETUSER", "boyd", "reset", *rules)  # type: ignore[no-untyped-call]
    client.acl_log_reset()
    yield redis_url.replace("redis://", "redis://boyd:secret@")
    client.acl_deluser("boyd")
    client.close()


@pytest.mark.long
def test_the_user_of_the_guide_is_enough(limited_url: str, redis_url: str, tmp_path: Path) -> None:
    with Deployment(limited_url, tmp_path) as deployment:
        deployment.worker("w", "agents.traced:careful")
        deployment.beat("b", "agents.traced:careful")
        _iterate_and_approve(deployment)
        _look_over_the_api(deployment)
        for command in (["doctor"], ["audit", "verify"]):
            done = subprocess.run(
                [sys.executable, "-m", "boyd_cli", *command, "--redis-url", limited_url],
                capture_output=True,
                text=True,
            )
            assert "NOPERM" not in done.stdout + done.stderr
        for name in ("w", "b", "api"):
            deployment.stop(name)

    client = redis.Redis.from_url(redis_url, decode_responses=True)
    refused = {entry["object"] for entry in client.acl_log() if entry["username"] == "boyd"}
    client.close()
    assert refused <= {"client"}, "introducing itself is all that it may not"


def test_it_cannot_do_what_is_not_needed(limited_url: str) -> None:
    client = redis.Redis.from_url(limited_url)
    for command in ("FLUSHALL", "KEYS *", "CONFIG SET save x", "GET other", "SHUTDOWN", "ACL LIST"):
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())  # type: ignore[no-untyped-call]
    client.close()


def _iterate_and_approve(deployment: Deployment) -> None:
    trigger = deployment.launcher("careful").trigger("test")
    deployment.ended("careful", trigger.iteration)
    approvals = deployment.agent("careful").approvals
    [item] = approvals.page(1).pending
    deployment.resolver("careful").answer(item.id, "approved", Actor(principal="ann", person=True))
    wait_until(lambda: (approval := approvals.get(item.id)) and approval.result)


def _look_over_the_api(deployment: Deployment) -> None:
    deployment.start("api", "api", "--port", "0", ready=False)
    match = wait_until(lambda: re.search(r"API on (\S+)", deployment.log("api")))
    with connect(deployment.redis_url) as client:
        _, key = Store(client).api_keys.create(
            "test", "tester", ["admin"], by=Actor(principal="maker")
        )
    for path in ("/api/v0/approvals", "/api/v0/runs", "/api/v0/audit", "/metrics", "/readyz"):
        request = Request(f"{match[1]}{path}", headers={"Authorization": f"Bearer {key}"})
        with urlopen(request, timeout=60) as answer:
            assert answer.status == 200, path
