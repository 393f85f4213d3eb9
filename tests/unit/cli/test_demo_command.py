from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from boyd.agent import load_agent
from boyd.errors import ConfigError
from boyd.plugins.process import Program, Supervised
from boyd.settings.process_settings import Settings
from boyd_cli import boyd
from boyd_cli.commands import demo_command


class Demo:
    """`boyd demo` in a folder of the test, whose deployment is only looked at."""

    def __init__(self) -> None:
        self.settings: list[Settings] = []
        self.service = Supervised(
            Program(argv=[sys.executable, "-c", "import time; time.sleep(600)"], pidfile=Path("p"))
        )

    def deploy(self, settings: Settings, announce: Any) -> None:
        """Stand in for the deployment, in which the agent starts its service."""
        self.settings.append(settings)
        load_agent("agent.toml")
        pidfile = Path("state/boyd-watch/service.pid").absolute()
        self.service = Supervised(self.service.program.model_copy(update={"pidfile": pidfile}))
        self.service.start()
        announce(settings, "http://127.0.0.1:1", "http://127.0.0.1:1/console/open/x", "key")

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(boyd, ["demo", *arguments])


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Demo:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    demo = Demo()
    monkeypatch.setattr(demo_command, "run_deployment", demo.deploy)
    return demo


def test_everything_is_in_one_folder_and_the_service_ends_with_the_demo(
    demo: Demo, tmp_path: Path
) -> None:
    done = demo.run()

    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert demo.settings[0].state_dir == tmp_path / "boyd-demo" / "state"
    assert demo.service.find() is None
    assert [path.name for path in tmp_path.iterdir()] == ["boyd-demo"]
    assert Path.cwd() == tmp_path


def test_the_deployment_that_the_environment_names_is_not_touched(demo: Demo) -> None:
    os.environ["BOYD_REDIS_URL"] = "redis://production.example"
    os.environ["BOYD_API__HOST"] = "127.0.0.2"

    assert demo.run().exit_code == 0
    assert demo.settings[0].redis_url is None
    assert demo.settings[0].api.host == "127.0.0.2"


def test_ports_in_use_are_left_to_their_owners(demo: Demo, tmp_path: Path) -> None:
    with ExitStack() as servers:
        for port in (8700, 8765):
            with suppress(OSError):  # somebody else uses it, which is as good
                servers.enter_context(socket.create_server(("127.0.0.1", port)))
        assert demo.run().exit_code == 0

    assert demo.settings[0].api.port == 0
    assert ":8765/" not in (tmp_path / "boyd-demo" / "agent.toml").read_text("utf-8")


def test_changes_of_the_files_survive_a_restart(demo: Demo, tmp_path: Path) -> None:
    demo.run("mine")
    file = tmp_path / "mine" / "agent.toml"
    changed = file.read_text("utf-8").replace("loop_interval = 5", "loop_interval = 7")
    file.write_text(changed, "utf-8")

    assert demo.run("mine").exit_code == 0
    assert file.read_text("utf-8") == changed


def test_a_folder_with_other_files_is_refused(demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    refused = demo.run(str(tmp_path))

    assert isinstance(refused.exception, ConfigError)
    assert "has other files" in str(refused.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
