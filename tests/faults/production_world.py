"""A world as docs/deployment.md sets it up: users of Redis, PostgreSQL behind PgBouncer, TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import ClassVar

import redis
from pydantic import SecretStr
from sqlalchemy import text

from archive_kit import PostgreSQL, bouncer, postgresql, require_postgresql
from boyd.export.archive.database import Database
from boyd.store import Sealing, Store
from faults.injector import NEEDED, Injector
from faults.world import World
from guarded_redis import Guarded
from production_kit import Production, TlsProxy, location_block

#: Each fault and how often it comes, compared to the others.
FAULTS = {
    "kill worker": 5,
    "end worker": 3,
    "stop worker": 4,
    "kill beat": 2,
    "stop beat": 2,
    "kill api": 3,
    "stop api": 1,
    "kill archive": 2,
    "stop archive": 1,
    "pause redis": 2,
    "kill redis": 1,
    "drop connections": 2,
    "lose messages": 3,
    "forbid command": 3,
    "kill database": 2,
}
#: The users that are forbidden a command.
USERS = ("api", "worker", "beat")


class ProductionWorld(World):
    """A world whose processes are the users of the guide, with an archive and a proxy for each API.

    Attributes:
        database: the server of the archive.
        archive_url: the URL of the archive, at the bouncer.
        proxies: the TLS proxies, by the API that they are in front of.
        forbidden: the commands that users were forbidden for a while, as `Guarded.refusals` has it.
    """

    others = ("archive",)

    def __init__(self, folder: Path, server: Guarded, database: PostgreSQL, archive: str) -> None:
        super().__init__(folder, server)
        self.database = database
        self.archive_url = archive
        self.proxies: dict[str, TlsProxy] = {}
        self.forbidden: set[str] = set()
        self.deployment.environment["BOYD_ARCHIVE_URL"] = archive
        key = SecretStr((server.secrets / "audit-key").read_text().strip())
        client = self.deployment.store.client
        self.deployment.store = Store(client, "deployment", sealing=Sealing.of(key, 100_000))

    def start(self) -> None:
        """Start everything, and a proxy in front of each API."""
        for name, port in self.ports.items():
            folder = self.deployment.folder / f"proxy-{name}"
            folder.mkdir()
            self.proxies[name] = TlsProxy(folder, location_block(f"http://127.0.0.1:{port}"))
        super().start()

    def launch(self, name: str) -> None:
        """Start a process as its user, or start it again."""
        arguments = self._arguments(name)
        assert isinstance(self.deployment, Production)
        self.deployment.run(name, arguments[0], *arguments, ready=False)

    def end(self) -> None:
        """Kill everything."""
        for proxy in self.proxies.values():
            proxy.end()
        super().end()

    def url(self, name: str) -> str:
        """The address of an API process, at its proxy."""
        return self.proxies[name].url

    def trust(self, name: str) -> str:
        """The authority that has signed the certificate of that proxy."""
        return self.proxies[name].trust

    def check(self) -> list[str]:
        """Commands that were refused to users, and iterations that are not in the archive."""
        assert isinstance(self.deployment, Production)
        self.deployment.wait_for_archive()
        refused = [
            f"V2: Redis refused {entry}"
            for entry in self.redis.refusals()
            if entry.partition(" (")[0] not in self.forbidden
        ]
        store = self.deployment.store
        iterations = sum(store.agent(name).loop_control.status().iteration for name in self.agents)
        database = Database(self.archive_url, writes=False)
        with closing(database), database.begin() as connection:
            statement = text("SELECT count(*) FROM records WHERE kind = 'iteration'")
            archived = int(connection.execute(statement).scalar_one())
        lost = (
            [f"the archive has {archived} of {iterations} iterations"]
            if archived < iterations
            else []
        )
        return refused + lost

    def _deployment(self, folder: Path) -> Production:
        return Production(self.redis, folder)


@contextmanager
def production_world(folder: Path) -> Iterator[ProductionWorld]:
    """A world that is not started yet; everything is taken away at the end."""
    with ExitStack() as things:
        server = Guarded(folder)
        things.callback(server.end)
        database = things.enter_context(postgresql(require_postgresql()))
        archive = things.enter_context(bouncer(database))
        world = ProductionWorld(folder, server, database, archive)
        things.callback(world.end)
        yield world


class ProductionInjector(Injector):
    """Hurts processes, Redis and the database of the archive."""

    faults_of: ClassVar = FAULTS

    def __init__(self, world: ProductionWorld, seed: int, pause: float = 2.0) -> None:
        super().__init__(world, seed, pause)
        self._database = world.database
        self._forbidden = world.forbidden

    def _inject_other(self, kind: str, seconds: float) -> str:
        if kind == "kill database":
            self._database.stop()
            time.sleep(seconds / 4)
            self._database.start()
            return "database"
        if kind == "forbid command":
            return self._forbid(seconds)
        self._hurt_redis(kind, seconds)
        return "redis"

    def _forbid(self, seconds: float) -> str:
        """Forbid a user a command that it may use, for a moment."""
        user = self._dice.choice(USERS)
        with redis.Redis.from_url(self._world.redis.url, socket_timeout=5) as client:
            allowed = {rule.removeprefix("+") for rule in client.acl_getuser(user)["commands"]}
            command = self._dice.choice([name for name in NEEDED if name in allowed])
            self._forbidden.add(f"{user}: command {command}")
            client.execute_command("ACL", "SETUSER", user, f"-{command}")
            time.sleep(seconds / 8)
            client.execute_command("ACL", "SETUSER", user, f"+{command}")
        return f"{user}: {command}"
