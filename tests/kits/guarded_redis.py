"""A Redis with the settings, users and secrets of `deploy/redis`."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import redis

from boyd.store import connect
from harness import free_port, server_program, wait_until
from signals import signal_process

REDIS = Path(__file__).parents[2] / "deploy" / "redis"
ROLES = ("admin", "api", "worker", "beat", "archive", "traces", "metrics")


class Guarded:
    """A Redis with the settings, users and secrets of `deploy/redis`, as they are deployed.

    Attributes:
        secrets: the folder of its secrets.
        urls: the URL of each user that has one.
    """

    def __init__(self, folder: Path) -> None:
        port = free_port()
        address = f"redis://127.0.0.1:{port}/0"
        self.secrets = secrets = folder / "secrets"
        subprocess.run([REDIS / "make-secrets", address, secrets], check=True, capture_output=True)
        self.urls = {role: (secrets / f"redis-url-{role}").read_text().strip() for role in ROLES}
        self.probe = (secrets / "redis-password-probe").read_text().strip()
        self.port = port
        self._folder = folder
        self.admin = connect(self.url)
        self.start()

    @property
    def url(self) -> str:
        """The URL of its administrator."""
        return self.urls["admin"]

    def start(self) -> None:
        """Start it, also after its end, and wait until it answers."""
        acl = str(self.secrets / "users.acl")
        argv = [str(server_program()), str(REDIS / "redis.conf"), "--dir", str(self._folder)]
        argv += ["--port", str(self.port), "--bind", "127.0.0.1", "--aclfile", acl]
        with (self._folder / "redis.log").open("a") as log:
            self._process = subprocess.Popen(argv, stdout=log)
        wait_until(self._answers, 10)

    def signal(self, number: int) -> None:
        """Send it a signal; it is gone afterwards if that kills."""
        if self._process.poll() is None:
            signal_process(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()

    def refusals(self) -> list[str]:
        """The refused commands of each user, in the words of `ACL LOG`.

        Without what redis-py tells of itself when it connects: it goes on when that is refused, and
        no rule allows it that both Redis 6.2 and 7.0 understand.
        """
        return [
            f"{entry['username']}: {entry['reason']} {entry['object']} ({entry['context']})"
            for entry in self.admin.acl_log(count=100)
            if not entry["object"].startswith("client")
        ]

    def end(self) -> None:
        """Stop it."""
        self.admin.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self.admin.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False
