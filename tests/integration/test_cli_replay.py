"""`boyd cases add` and `boyd replay --publish` against a real Redis and an API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from boyd.agent import agent_from_file
from boyd.store import Store
from boyd.testing import Lab
from cli_kit import Cli, new_key, serving
from harness import patient_client
from replay_kit import PLUGIN, write_agent

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture
def place(redis_url: str, tmp_path: Path) -> Path:
    """The folder of an agent with ten iterations."""
    path = write_agent(tmp_path / "shop")
    client = patient_client(redis_url)
    lab = Lab(agent_from_file(path), client=client)
    for _ in range(10):
        lab.run()
    client.close()
    return path.parent


@pytest.fixture
def cli(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    """`boyd` with a key of somebody who reads."""
    with serving(redis_url) as served:
        key = new_key(redis_url, "ann", "read")
        yield Cli(tmp_path, BOYD_URL=served.url, BOYD_API_KEY=key, BOYD_REDIS_URL=redis_url)


def test_a_case_is_what_was_decided_or_what_somebody_expects(cli: Cli, place: Path) -> None:
    folder = place / "cases"
    cli("cases", "add", "1", "--folder", str(folder), "--name", "first")
    expected = ("--expect", "no-op", "--fate", "none", "--name", "second")
    cli("cases", "add", "2", "--folder", str(folder), *expected)
    again = cli.result("cases", "add", "2", "--folder", str(folder), *expected)
    strange = cli("cases", "add", "2", "--params", "{}", "--fate", "none", status=2)

    first, second = (
        yaml.safe_load((folder / f"{n}.yaml").read_text()) for n in ("first", "second")
    )
    assert first["record"]["iteration"] == 1
    assert second["expect"] == {"action": "no-op", "fate": "none"}
    assert "exists already" in str(again.exception)
    assert "need --expect" in strange


def test_a_published_replay_is_the_latest_one(cli: Cli, place: Path, redis_url: str) -> None:
    wider = write_agent(place / "wider", plugin=PLUGIN.replace('autonomy="approval-required"', ""))
    done = cli.process("replay", "--agent", str(wider), "--publish", "--iterations", "1-5,7-10")
    client = patient_client(redis_url)
    latest = Store(client).agent("shop").latest_replay.read()
    client.close()

    assert done.returncode == 2, done.stderr
    assert latest is not None
    assert latest.report.iterations == 9
    assert latest.report.count("newly automatic") > 0
    assert latest.by.startswith("cli:")
