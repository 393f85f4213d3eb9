"""A deployment as docs/deployment.md sets it up, with each process as its user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import requests

from archive_kit import bouncer, postgresql, require_postgresql, wait_for_copies
from boyd.testing.model_server import ScriptedModel
from guarded_redis import Guarded
from harness import Deployment, free_port, wait_until
from route_kit import Client, model_reply
from tls_kit import Authority
from tracing_kit import Sink

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "deployment.md"
#: The public name of the API, as users of the guide have one.
HOST = "boyd.example.com"
#: What runs: an agent with a model, one with procedures, one with goals, one that ships.
AGENTS = (
    "agents.routed:routed",
    "agents.stepped:agent",
    "agents.scholar:control",
    str(ROOT / "deploy" / "agent" / "agent.toml"),
)
#: An agent that is started only to be taken out of service.
LEAVING = "agents.scholar:plain"

_NGINX = """
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {certificate};
{location}
  }}
}}
"""


def location_block(upstream: str) -> str:
    """The block for nginx in the guide, with the address of another API in it."""
    match = re.search(r"```nginx\n(.+?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert match, f"{GUIDE.name} has no block for nginx"
    return match[1].replace("http://127.0.0.1:8700", upstream)


class TlsProxy:
    """An nginx that speaks HTTPS in front of an API.

    Attributes:
        url: its address.
        trust: a file with the authority that has signed its certificate.
    """

    def __init__(self, folder: Path, location: str) -> None:
        authority = Authority(folder)
        self.trust = str(authority.file)
        port = free_port()
        self.url = f"https://localhost:{port}"
        config = folder / "nginx.conf"
        config.write_text(
            _NGINX.format(
                user="user root;" if os.geteuid() == 0 else "",
                folder=folder,
                port=port,
                certificate=authority.issue("localhost"),
                location=location,
            )
        )
        argv = [_nginx(), "-c", str(config), "-g", "daemon off;", "-e", str(folder / "start.log")]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)

    def end(self) -> None:
        """Stop it and its workers."""
        self._process.terminate()
        self._process.wait()

    def answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", verify=self.trust, timeout=10).ok
        except requests.RequestException:
            return False


@contextmanager
def tls_proxy(location: str) -> Iterator[TlsProxy]:
    """A proxy with that location until the end of the block."""
    with TemporaryDirectory(prefix="boyd-nginx-") as folder:
        proxy = TlsProxy(Path(folder), location)
        try:
            wait_until(proxy.answers)
            yield proxy
        finally:
            proxy.end()


def _nginx() -> str:
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        reason = "nginx is not installed: install the package nginx-light"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return program


class Production(Deployment):
    """Every process with the files of secrets that the guide distributes, each as its user.

    Attributes:
        guarded: its Redis.
        started: the commands that its processes run.
    """

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        super().__init__(guarded.urls["admin"], folder)
        self.guarded = guarded
        self.started: set[str] = set()
        self._role = ""
        # The guide gives secrets in files.
        del self.environment["BOYD_APPROVAL_SECRET"]

    def as_user(self, role: str) -> dict[str, str]:
        """The settings of a host whose processes are that user of Redis."""
        secrets = self.guarded.secrets
        settings = {
            "BOYD_REDIS_URL_FILE": str(secrets / f"redis-url-{role}"),
            "BOYD_AUDIT_KEY_FILE": str(secrets / "audit-key"),
        }
        if role in ("worker", "api"):
            settings["BOYD_APPROVAL_SECRET_FILE"] = str(secrets / "approval-secret")
        return {**self.environment, **settings}

    def surroundings(self) -> dict[str, str]:
        """The environment of the process that is started."""
        around = {**super().surroundings(), **self.as_user(self._role)}
        del around["BOYD_REDIS_URL"]
        return around

    def run(self, name: str, role: str, *arguments: str, ready: bool = True) -> None:
        """Start a process as a user of Redis."""
        self._role = role
        self.started.add(arguments[0])
        self.start(name, *arguments, ready=ready)

    def run_everything(self) -> str:
        """Start each process of the guide; the address of the API."""
        queues = "loop,observe,host,callback,think"
        act = ("--queues", "act", "--pool", "prefork", "--concurrency", "1")
        self.run("worker", "worker", "worker", "--queues", queues)
        self.run("act", "worker", "worker", *act)
        self.run("beat", "beat", "beat")
        self.run("archive", "archive", "archive", ready=False)
        self.run("traces", "traces", "traces", ready=False)
        self._role = "api"
        self.started.add("api")
        return self.api("api")

    def wait_for_archive(self) -> None:
        """Wait until everything of now was archived."""
        wait_for_copies(self.store)


@dataclass(frozen=True)
class Site:
    """A deployment that runs, the address of its API, and the proxy in front."""

    running: Production
    api_url: str
    proxy: TlsProxy

    @cached_property
    def ask(self) -> Client:
        """Asks the API through the proxy."""
        return Client(self.running, self.proxy.url, self.proxy.trust)

    def leave(self) -> str:
        """Begin an iteration of an agent that no process runs any more; the agent's id."""
        self.running.run("leaving", "worker", "worker", "--agent", LEAVING)
        assert self.running.stop("leaving") == 0, self.running.log("leaving")
        agent = LEAVING.rpartition(":")[2]
        self.running.launcher(agent).trigger("test")
        state = f"{self.ask.base}/api/v0/agents/{agent}/state"
        wait_until(lambda: self.ask.send("GET", state, None, "ann").ok)
        return agent


@contextmanager
def production(folder: Path) -> Iterator[Site]:
    """Everything that the guide sets up, until the end of the block."""
    guarded = Guarded(folder)
    try:
        with (
            postgresql(require_postgresql()) as server,
            bouncer(server) as archive_url,
            ScriptedModel([model_reply], forever=True) as model,
            Sink() as sink,
            Production(guarded, folder) as running,
        ):
            running.environment |= {
                "BOYD_AGENTS": ",".join(AGENTS),
                "BOYD_AGENT": "routed",
                "BOYD_ARCHIVE_URL": archive_url,
                "BOYD_API__URL": f"https://{HOST}",
                "BOYD_CALLBACKS__ALLOW_PRIVATE": "true",
                "BOYD_TRACES__ENDPOINT": sink.url,
                "BOYD_LOG_FORMAT": "json",
                "MODEL_URL": f"{model.url}/v1",
            }
            api_url = running.run_everything()
            with tls_proxy(location_block(api_url)) as proxy:
                yield Site(running, api_url, proxy)
    finally:
        guarded.end()
