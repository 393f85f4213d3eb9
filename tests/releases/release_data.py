"""The data of a release as texts: keys of Redis, and archives in SQLite and PostgreSQL."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from redis.crc import key_slot

import boyd
from archive_kit import PostgreSQL, postgresql_programs
from boyd.store.server.cluster_client import ClusterClient
from boyd.store.server.connection import Client
from boyd.text.version import VERSION
from clusters import every_key
from harness import Deployment, patient_client
from kit import READS

FOLDER = Path(__file__).parent
#: Stands for the address of the model and of the receiver of callbacks.
NOWHERE = "http://127.0.0.1:9"
#: Stands for the address of a receiver of notifications, who is not there while this is recorded.
NOBODY = "http://127.0.0.1:8"
#: Stands for the run of the Redis server.
RUN = "{run of the server}"
#: The header of each person with a key.
People = dict[str, dict[str, str]]
#: A function of a key and of its type, value and expiry, which returns another description.
Change = Callable[[str, dict[str, Any]], dict[str, Any]]


class Release:
    """The recorded deployment of a release."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = FOLDER / name

    def agents_in(self, folder: Path, url: str, hook: str = NOBODY) -> list[str]:
        """The agent files, copied to *folder*, with a model at *url*, and who is notified."""
        copy = folder / "agents"
        shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("*.json", "*.sql"))
        for path in copy.glob("*.toml"):
            path.write_text(path.read_text().replace(NOWHERE, url).replace(NOBODY, hook))
        return sorted(map(str, copy.glob("*.toml")))

    def write(
        self,
        deployment: Deployment,
        people: People,
        url: str,
        sqlite_file: Path,
        server: PostgreSQL,
    ) -> None:
        """Write what a deployment holds, whose model is at *url*."""
        client = patient_client(deployment.redis_url)
        seconds, _ = client.time()
        keys = {key: _describe(client, key) for key in sorted(every_key(client, "*"))}
        origin = {"version": VERSION, "commit": _commit(), "at": seconds, "people": people}
        text = _as_lines({**origin, "effects": deployment.effects(), "keys": keys})
        text = text.replace(client.info("server")["run_id"], RUN).replace(url, NOWHERE)
        (self.folder / "redis.json").write_text(f"{text}\n")
        with sqlite3.connect(sqlite_file) as database:
            (self.folder / "sqlite.sql").write_text("\n".join(database.iterdump()) + "\n")
        (self.folder / "postgresql.sql").write_text(_dump(server))
        client.close()

    @cached_property
    def recording(self) -> Any:
        """The keys of Redis, and when and by which code they were written."""
        return json.loads((self.folder / "redis.json").read_text())

    def load(self, client: Client, broker: Client, url: str, change: Change) -> None:
        """Put all keys, as *change* makes them, into an empty deployment; callbacks go to *url*."""
        for key, described in self.recording["keys"].items():
            is_message = not key.startswith("boyd:{")
            server = _server_of(broker if is_message else client, key)
            text = json.dumps(described).replace(RUN, server.info("server")["run_id"])
            store_key(server, key, change(key, json.loads(text.replace(NOWHERE, url))))

    def load_sqlite(self, path: Path) -> str:
        """The URL of an archive in a file."""
        with sqlite3.connect(path) as database:
            database.executescript((self.folder / "sqlite.sql").read_text())
        return f"sqlite:///{path}"

    def load_postgresql(self, url: str) -> str:
        """The same archive in an empty database of PostgreSQL."""
        with psycopg.connect(url) as connection:
            connection.execute((self.folder / "postgresql.sql").read_bytes())
        return url


def _server_of(client: Client, key: str) -> Any:
    """A client of the server with that key."""
    if not isinstance(client, ClusterClient):
        return client
    return client.slots.server(key_slot(key.encode())).client


def _commit() -> str:
    """The commit of the code that this process runs, which need not be that of the tests."""
    command = ["git", "-C", str(Path(boyd.__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _describe(client: Client, key: str) -> dict[str, Any]:
    kind, expires = client.type(key), client.pexpiretime(key)
    value = READS[kind](client, key)
    if kind in ("set", "zset"):
        value = sorted(value) if kind == "set" else dict(value)
    return {"type": kind, **({"expires": expires} if expires > 0 else {}), "value": value}


def _as_lines(recording: Mapping[str, Any]) -> str:
    """A recording as JSON, with a line for each key of Redis."""
    *others, (_, keys) = recording.items()
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in keys.items())
    return f'{json.dumps(dict(others))[:-1]}, "keys": {{\n{rows}\n}}}}'


def store_key(client: Any, key: str, described: Mapping[str, Any]) -> None:
    """Put a recorded value at a key."""
    value = described["value"]
    match described["type"]:
        case "string":
            client.set(key, value)
        case "hash":
            client.hset(key, mapping=value)
        case "list":
            client.rpush(key, *value)
        case "set":
            client.sadd(key, *value)
        case "zset":
            client.zadd(key, value)
        case "stream":
            for id, fields in value:
                client.xadd(key, fields, id=id)
    if described.get("expires"):
        client.pexpireat(key, described["expires"])


def _dump(server: PostgreSQL) -> str:
    programs = postgresql_programs()
    assert programs is not None
    options = ("--inserts", "--no-owner", "--no-privileges", "--dbname", server.url)
    command = [str(programs / "pg_dump"), *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # What older servers or clients do not know.
    return re.sub(r"(?m)^(\\(un)?restrict .*|SET transaction_timeout .*|--.*)\n", "", text)
