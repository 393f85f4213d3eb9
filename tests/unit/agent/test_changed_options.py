"""An agent file with other options of its plugins, as a replay tries them."""

from __future__ import annotations

from pathlib import Path

import pytest

from boyd.agent import load_agent
from boyd.errors import ConfigError, PluginError

AGENT = """
id = "shop"

[[plugins]]
use = "host-metrics"
options = { interval = 5 }

[[plugins]]
use = "example"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "agent.toml"
    path.write_text(AGENT)
    return str(path)


def test_other_options_replace_those_of_the_file_and_leave_the_rest(file: str) -> None:
    plain = load_agent(file)
    changed = load_agent(file, options={"host-metrics": {"cpu": {"warning": 70, "error": 95}}})

    options = changed.host.plugins["host-metrics"].options
    assert (options.cpu.warning, options.interval) == (70, 5)
    assert changed.build.id != plain.build.id


def test_options_that_are_invalid_are_refused_as_in_the_file(file: str) -> None:
    with pytest.raises(PluginError, match="error must not be below warning"):
        load_agent(file, options={"host-metrics": {"cpu": {"warning": 99, "error": 95}}})


def test_an_agent_in_a_module_takes_no_other_options() -> None:
    with pytest.raises(ConfigError, match="only an agent file can take other plugins or options"):
        load_agent("shop:agent", options={"example": {}})
