"""Every built-in plugin that needs no other one is initialized in a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from boyd import Agent
from boyd.agent import agent_from_file
from boyd.replay.shadow import Shadow

#: What plugins need besides their name.
OPTIONS = {
    "ansible": 'project = "{folder}"',
    "dns": 'names = [{{ name = "example.com" }}]',
    "github": 'repositories = ["o/r"]',
    "http-monitor": 'endpoints = [{{ id = "web", url = "http://127.0.0.1:9/" }}]',
    "loadbalancer": 'haproxy = {{ socket = "{folder}/socket" }}',
    "notifier": 'groups = [{{ name = "ops", recipients = ["https://chat.example.com/x"] }}]',
    "prometheus": 'url = "http://127.0.0.1:9"',
    "queues": 'redis = {{ host = "127.0.0.1", lists = ["q"] }}',
    "tls": 'endpoints = [{{ host = "127.0.0.1" }}]',
}
BARE = (
    *("approval-policy", "example", "files", "goals", "historian", "host-metrics"),
    *("investigation", "kubernetes", "mcp", "model-strategy", "postgres", "process", "reviewer"),
    *("shell", "systemd"),
)


def agent_with(folder: Path, plugin: str) -> Agent:
    """An agent with a model and that plugin."""
    options = OPTIONS.get(plugin, "").format(folder=folder)
    file = folder / "agent.toml"
    file.write_text(
        'id = "agent"\n[llm]\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
        f'[[plugins]]\nuse = "{plugin}"\n[plugins.options]\n{options}\n'
    )
    return agent_from_file(file)


@pytest.mark.parametrize("plugin", [*OPTIONS, *BARE])
def test_a_replay_initializes_every_plugin(plugin: str, tmp_path: Path) -> None:
    Shadow(agent_with(tmp_path, plugin)).init_plugins()
