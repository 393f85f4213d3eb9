"""Lines that `boyd up` prints besides those of iterations."""

from __future__ import annotations

import sys
from pathlib import Path

import fakeredis
import pytest
import redis

from api_kit import Site
from boyd.embedded.redis_cluster import have_met, is_whole
from boyd.models import Event, utc_now
from boyd.settings.process_settings import load_settings
from boyd.store import Store, WorkerInfo
from boyd.text.version import VERSION
from boyd_cli.commands.up_command import (
    AgentFiles,
    DeploymentWatch,
    _inspect_agents,
    _preload,
    _workers_ready,
    is_news,
)


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    """An agent file with a folder of plugins."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "hello.py").write_text("")
    (tmp_path / "agent.toml").write_text('plugins_dir = "plugins"')
    return tmp_path / "agent.toml"


def test_up_says_once_that_an_edit_does_not_count_before_it_is_started_again(
    agent_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = AgentFiles([str(agent_file), "module:agent"])
    files.look()
    assert capsys.readouterr().out == ""

    agent_file.write_text("broken = [")
    files.look()
    files.look()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{agent_file} has changed: what runs is as before, until you stop")


def test_up_notices_plugins_that_come_change_or_go(
    agent_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = AgentFiles([str(agent_file)])
    plugin = agent_file.parent / "plugins" / "hello.py"
    plugin.write_text("changed")
    files.look()
    assert f"{plugin} has changed" in capsys.readouterr().out
    plugin.rename(plugin.with_name("other.py"))
    files.look()
    assert f"other.py and {plugin} have changed" in capsys.readouterr().out


def test_up_notices_that_an_agent_file_is_gone(
    agent_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = AgentFiles([str(agent_file)])
    agent_file.unlink()
    files.look()
    assert f"{agent_file} has changed" in capsys.readouterr().out


def test_up_learns_which_built_in_plugins_agents_use_and_loads_none_of_their_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "measures.py").write_text(
        "from boyd.plugins.host_metrics import HostMetrics\n\n"
        'class Measures(HostMetrics):\n    id = "measures"\n'
    )
    file = tmp_path / "agent.toml"
    file.write_text('id = "here"\nplugins_dir = "plugins"\n[[plugins]]\nuse = "measures"\n')
    before = set(sys.modules)

    names, modules = _inspect_agents([str(file)])

    assert names == ["here"]
    assert "boyd.plugins.host_metrics" in modules
    assert all(name.startswith("boyd.plugins.") for name in modules)
    assert not [name for name in sys.modules.keys() - before if "measures" in name]


def test_up_imports_what_is_there_when_a_guest_is_missing() -> None:
    sys.modules.pop("colorsys", None)
    _preload(["boyd_missing.page", "colorsys"])

    assert "colorsys" in sys.modules


def test_of_a_procedure_up_tells_that_it_is_stopped_and_its_end() -> None:
    def event(kind: str, **data: str) -> Event:
        return Event(id="1-0", kind=kind, at=utc_now(), data={"procedure": "call:1", **data})

    assert not is_news(event("procedure.changed", progress="running, step 1 of 2"))
    assert is_news(event("procedure.changed", progress="stopped, step 1 of 2"))
    assert is_news(event("procedure.executed", state="succeeded"))


def test_up_tells_a_dry_run_and_a_question_from_an_execution(
    desk: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = DeploymentWatch(desk.store, ["desk"], load_settings({"state_dir": tmp_path}))
    watch.look()
    body = {"params": {"text": "x"}}
    called = [
        desk.post("/actions/desk:write/dry-run", body).json,
        desk.post("/actions/desk:publish", body).json,
    ]
    watch.look()
    dry_run, question = [
        line for line in capsys.readouterr().out.splitlines() if "  desk  call " in line
    ]

    assert "executed" not in dry_run + question
    assert dry_run.endswith(" ended state=succeeded kind=dry-run action=desk:write")
    assert question.endswith(
        f" kind=execute action=desk:publish approval={called[1]['approvalId']}"
    )


class BusyServer:
    """A server of a new cluster that answers a number of times, and then takes too long."""

    def __init__(self, answers: int) -> None:
        self._answers = answers

    def info(self, _: str) -> dict[str, str]:
        """Its link to the others."""
        return {"master_link_status": "up"}

    def cluster(self, _: str) -> dict[str, str]:
        """The cluster, as it knows it."""
        if self._answers == 0:
            raise redis.TimeoutError("Timeout reading from socket")
        self._answers -= 1
        return {"cluster_state": "ok", "cluster_slots_ok": "16384", "cluster_known_nodes": "1"}


def test_a_cluster_whose_server_does_not_answer_in_time_is_waited_for() -> None:
    assert not have_met([BusyServer(0)])
    assert not is_whole([BusyServer(0)])
    assert not is_whole([BusyServer(1)])
    assert is_whole([BusyServer(2)])


def test_workers_of_others_do_not_count_as_those_that_up_has_started() -> None:
    store = Store(fakeredis.FakeRedis(decode_responses=True))

    def start_worker(name: str) -> None:
        store.fleet.beat(
            WorkerInfo(
                name=name,
                role="worker",
                host="h",
                pid=1,
                queues=["loop", "observe", "act"],
                agents=["a"],
                version=VERSION,
                started_at=utc_now(),
                last_beat=utc_now(),
            )
        )

    start_worker("other.1")
    before = {worker.name for worker in store.fleet.workers()}
    assert not _workers_ready(store, before)

    start_worker("own.2")
    assert _workers_ready(store, before)
