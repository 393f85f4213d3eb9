"""`boyd upgrade --check` says whether and how this release can take over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import fakeredis
import pytest
from click.testing import CliRunner, Result

from boyd.embedded.state_folder import (
    RunningDeployment,
    archive_of,
    publish_runtime,
    state_lock,
)
from boyd.export.archive.database import Database
from boyd.health.reader import read_health
from boyd.models import utc_now
from boyd.store import AgentEntry, Store, WorkerInfo
from boyd.store.keys import AGENTS, Keys
from boyd.text.version import VERSION
from boyd_cli.commands import upgrade_command
from guide_kit import Guide, shows, steps

ENTRY = AgentEntry(id="a", name="a", mode="manual", loop_interval=60, plugins=[], fingerprint="f")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of a deployment with one agent, which the command reads."""
    client = fakeredis.FakeRedis(decode_responses=True)
    monkeypatch.setattr(upgrade_command, "connect", lambda *_, **__: client)
    store = Store(client, "test")
    store.fleet.register(ENTRY)
    return store


def run(*arguments: str, **environment: str) -> Result:
    """The result of the command."""
    around = {"BOYD_REDIS_URL": "redis://127.0.0.1:9/0", **environment}
    return CliRunner().invoke(upgrade_command.upgrade, arguments, env=around)


def check(status: int = 0, **environment: str) -> Any:
    """The JSON document that the command prints."""
    done = run("--check", "-o", "json", **environment)
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def texts(result: Any, level: str) -> list[str]:
    """The findings of a level."""
    return [row["what"] for row in result["findings"] if row["level"] == level]


def beat(store: Store, name: str, version: str, role: Literal["worker", "beat"] = "worker") -> None:
    """Announce a worker or a beat of a version."""
    worker = WorkerInfo(
        name=name,
        role=role,
        host="h",
        pid=1,
        queues=["loop"],
        agents=["a"],
        version=version,
        started_at=utc_now(),
        last_beat=utc_now(),
    )
    store.fleet.beat(worker)


def test_an_older_worker_is_named_with_the_order_of_the_upgrade(store: Store) -> None:
    beat(store, "w1", "0.0.9")
    result = check()
    table = run("--check").stdout

    assert (result["state"], texts(result, "warning")) == ("ready", ["0.0.9 runs: worker w1"])
    assert [step.split()[1].rstrip(":,") for step in result["steps"]] == [
        "archive",
        "then",
        "API",
    ]
    assert f"Replace these by {VERSION}" in table
    assert max(map(len, table.splitlines())) <= 80


def test_two_releases_side_by_side_are_an_upgrade_under_way(store: Store) -> None:
    beat(store, "w1", VERSION)
    beat(store, "w2", "999.10")
    result = check()

    assert result["state"] == "mixed"
    assert texts(result, "warning") == [f"999.10 is newer than {VERSION}: worker w2"]
    assert result["steps"][0].startswith("the API"), "going back begins there"


def test_nothing_is_left_to_do_where_only_this_release_runs(store: Store) -> None:
    beat(store, "w1", VERSION)
    result = check()

    assert (result["state"], result["steps"], texts(result, "warning")) == ("done", [], [])


def test_the_page_shows_an_upgrade_under_way(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(command, example)] = steps(Guide("operations.md").block("Upgrade and roll back", "--check"))
    monkeypatch.setattr(upgrade_command, "VERSION", "0.2.0")
    monkeypatch.chdir(tmp_path)
    Path("agent.toml").write_text('id = "shop"\n')
    database = Database(url := f"sqlite:///{tmp_path}/archive.db", writes=True)
    database.upgrade()
    database.close()
    beat(store, "web1.900.77a1", "0.2.0")
    beat(store, "web1.812.4f2a", "0.1.0")
    beat(store, "web2.97.b01c", "0.1.0", role="beat")

    done = run(*command.split()[2:], BOYD_ARCHIVE_URL=url, BOYD_AGENTS="agent.toml")

    assert shows(done.stdout, example), done.output


def test_data_in_a_newer_format_block_the_upgrade(store: Store) -> None:
    store.client.hset(Keys("a").loop, mapping={"iteration": 1, "formatVersion": 2})
    result = check(status=1)

    assert result["state"] == "blocked"
    assert texts(result, "error") == ["agent a is kept in format 2; this release reads up to 1"]


def test_an_agent_file_that_this_release_refuses_blocks_the_upgrade(
    store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('id = "a"\ngone = 1\n')
    result = check(status=1, BOYD_AGENTS=str(file))

    assert result["state"] == "blocked"
    assert "gone" in texts(result, "error")[0]


@pytest.mark.parametrize(
    ("version", "state", "status"), [("", "done", 0), ("0000", "ready", 0), ("9999", "blocked", 1)]
)
def test_the_tables_of_the_archive_are_compared(
    store: Store, tmp_path: Path, version: str, state: str, status: int
) -> None:
    url = f"sqlite:///{tmp_path}/archive.db"
    database = Database(url, writes=True)
    if version:
        database.upgrade()
        with database.begin() as connection:
            connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")
    database.close()

    assert check(status=status, BOYD_ARCHIVE_URL=url)["state"] == state


def test_the_tables_of_the_archive_beside_boyd_up_are_compared(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOYD_REDIS_URL", raising=False)
    monkeypatch.setenv("BOYD_STATE_DIR", str(tmp_path))
    database = Database(archive_of(tmp_path), writes=True)
    database.upgrade()
    with database.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    runtime = RunningDeployment(redis_url="redis://127.0.0.1:9/0")

    with state_lock(tmp_path), publish_runtime(tmp_path, runtime):
        done = CliRunner().invoke(upgrade_command.upgrade, ["--check", "-o", "json"])
    result = json.loads(done.stdout)

    assert result["state"] == "blocked"
    assert "version 9999" in texts(result, "error")[0]


def test_agents_that_cannot_be_read_block_the_upgrade(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = replace(read_health(store.client), agents=[], unreached=["a"])
    with monkeypatch.context() as patch:
        patch.setattr(upgrade_command, "read_health", lambda _: away)
        assert texts(check(status=1), "error") == [
            "the server with the state of agent a does not answer"
        ]

    store.client.set(AGENTS, "of another program")
    assert texts(check(status=1), "error") == [f"{AGENTS} holds something else than a hash"]


def test_it_changes_nothing_by_itself(store: Store) -> None:
    done = run()

    assert done.exit_code == 2
    assert "--check" in done.output
