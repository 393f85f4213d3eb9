"""An agent with any of the built-in plugins can be replayed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from boyd import Agent, Context, Plugin
from boyd.agent import agent_from_file
from boyd.models import LoopResult
from boyd.plugin.installed_plugins import installed_plugins
from boyd.plugin.plugin_boundary import MAX_VALUES
from boyd.replay.differences import judge
from boyd.replay.recordings import read_cases
from boyd.replay.replay_run import ShadowPool
from boyd.replay.shadow import CannotTell, Shadow
from boyd.replay.shadow_process import ShadowTask, code_of
from boyd.testing import Lab

#: What plugins need besides their name.
OPTIONS = {
    "ansible": 'project = "{folder}"',
    "dns": 'names = [{{ name = "localhost" }}]\nresolvers = ["127.0.0.1:9"]\ntimeout = 1',
    "github": 'repositories = ["o/r"]\nurl = "http://127.0.0.1:9"',
    "http-monitor": 'endpoints = [{{ id = "web", url = "http://127.0.0.1:9/" }}]',
    "loadbalancer": 'haproxy = {{ socket = "{folder}/socket" }}',
    "notifier": 'groups = [{{ name = "ops", recipients = ["https://chat.example.com/x"] }}]',
    "prometheus": 'url = "http://127.0.0.1:9"',
    "queues": 'redis = {{ host = "127.0.0.1", port = 9, lists = ["q"] }}',
    "rules": """
        [[plugins.options.rules]]
        name = "tidy"
        source = "x"
        action = "shell:run_command"
        params = {{ command = "true" }}
    """,
    "slack": (
        'token = {{ env = "SLACK_TOKEN" }}\ngroups = [{{ name = "ops", channel = "C0123456789" }}]'
    ),
    "tls": 'endpoints = [{{ host = "127.0.0.1", port = 9 }}]',
}
#: The plugins that others need.
NEEDED = {"rules": ["shell"]}
#: Every agent has that one without naming it.
BUNDLED = "situation-priority"
BUILT_IN = sorted(
    one.name for one in installed_plugins() if one.package == "boyd" and one.name != BUNDLED
)


def agent_with(folder: Path, *plugins: str) -> Agent:
    """An agent with a model that does not answer, and those plugins."""
    model = '[llm]\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    used = (
        f'[[plugins]]\nuse = "{name}"\n[plugins.options]\n{OPTIONS.get(name, "")}\n'.format(
            folder=folder
        )
        for name in plugins
    )
    file = folder / "agent.toml"
    file.write_text(f'id = "agent"\n{model}{"".join(used)}')
    return agent_from_file(file)


def record_iteration(agent: Agent) -> LoopResult:
    """The record of an iteration, as history keeps it."""
    return LoopResult.from_json(Lab(agent).run().to_json())


@pytest.mark.long
@pytest.mark.parametrize("plugin", BUILT_IN)
def test_an_iteration_with_any_plugin_is_replayed_as_recorded(plugin: str, tmp_path: Path) -> None:
    plugins = [*NEEDED.get(plugin, []), plugin]
    shadow = Shadow(agent_with(tmp_path, *plugins))
    shadow.init_plugins()

    judgement = judge(shadow, record_iteration(agent_with(tmp_path, *plugins)))

    assert (judgement.differences, judgement.why) == ([], None)


CALENDAR = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\n"
    "DTSTAMP:20200101T000000Z\r\nDTSTART:20200101T000000Z\r\nDTEND:20200102T000000Z\r\n"
    "END:VEVENT\r\nEND:VCALENDAR\r\n"
)
WINDOWS = """
[[windows]]
name = "freezes"
freezes = "freezes.ics"

[[windows]]
name = "nights"
open = ["* 0-1 * * *", "* 3-23 * * *"]

"""


@pytest.mark.long
def test_the_digests_of_observers_are_the_same_in_every_process(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, *BUILT_IN)
    path = tmp_path / "agent.toml"
    script = (
        "import sys; from boyd.agent import load_agent;"
        "from boyd.replay.world_watch import watch_calls_of_c;"
        "sys.argv[2] != '3' or watch_calls_of_c(); print(load_agent(sys.argv[1]).build.id)"
    )
    ids = {
        subprocess.check_output(
            [sys.executable, "-c", script, str(path), seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            text=True,
        ).strip()
        for seed in ("1", "2", "3")
    }

    assert ids == {agent.build.id}


@pytest.mark.long
def test_an_agent_with_calendars_windows_and_every_plugin_is_replayed_as_recorded(
    tmp_path: Path,
) -> None:
    (tmp_path / "freezes.ics").write_text(CALENDAR, newline="")
    agent_with(tmp_path, *BUILT_IN)
    file = tmp_path / "agent.toml"
    file.write_text(file.read_text().replace("[llm]", f"{WINDOWS}[llm]", 1))
    record = record_iteration(agent_from_file(file))
    with ShadowPool(ShadowTask(agent=str(file), paths=sys.path), 1) as pool:
        [judgements] = pool.judge([[record.to_json()]])

    assert [judgement.why for judgement in judgements] == [None]
    assert [judgement.differences for judgement in judgements] == [[]]


def test_an_investigation_of_a_failing_endpoint_is_replayed_as_recorded(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, "http-monitor", "investigation")
    shadow = Shadow(agent)
    shadow.init_plugins()

    assert judge(shadow, record_iteration(agent)).why is None


@pytest.mark.parametrize("reader", ["investigation", "model-strategy"])
def test_playbooks_that_are_made_from_state_are_left_out_of_init(
    reader: str, tmp_path: Path
) -> None:
    agent = agent_with(tmp_path, "historian", reader)
    shadow = Shadow(agent)
    shadow.init_plugins()

    assert judge(shadow, record_iteration(agent)).differences == []


class Keeper(Plugin):
    """Has a playbook, and keeps those that it sees in `init`."""

    id = "keeper"

    def init(self, ctx: Context) -> None:
        self.seen = dict(ctx.playbooks())

    def playbooks(self, ctx: Context) -> list[str]:
        return ["# Mine"]


class Rememberer(Plugin):
    """Makes playbooks from its state."""

    id = "rememberer"

    def playbooks(self, ctx: Context) -> list[str]:
        return [str(ctx.state.get("last"))]


class Broken(Plugin):
    """Fails to make playbooks."""

    id = "broken"

    def playbooks(self, ctx: Context) -> list[str]:
        raise ValueError("no such page")


class Endless(Plugin):
    """Makes playbooks without an end."""

    id = "endless"

    def playbooks(self, ctx: Context) -> Iterator[str]:
        return (str(number) for number in range(2 * MAX_VALUES))


class Curious(Plugin):
    """Reads its state in `init`."""

    id = "curious"

    def init(self, ctx: Context) -> None:
        ctx.state.get("last")


def test_init_sees_the_playbooks_of_now_that_need_no_state() -> None:
    keeper = Keeper()
    Shadow(Agent("test", plugins=[Rememberer(), keeper])).init_plugins()

    assert keeper.seen["keeper"] == ["# Mine"]
    assert keeper.seen["rememberer"] == []


def test_playbooks_that_fail_otherwise_keep_a_replay_from_starting() -> None:
    with pytest.raises(CannotTell, match=r"keeper.init failed: .*no such page"):
        Shadow(Agent("test", plugins=[Broken(), Keeper()])).init_plugins()


def test_playbooks_without_an_end_keep_a_replay_from_starting() -> None:
    with pytest.raises(CannotTell, match=f"gave more than {MAX_VALUES} values"):
        Shadow(Agent("test", plugins=[Endless(), Keeper()])).init_plugins()


def test_an_init_that_reads_state_keeps_a_replay_from_starting() -> None:
    with pytest.raises(CannotTell, match=r"curious.init reads state last"):
        Shadow(Agent("test", plugins=[Rememberer(), Keeper(), Curious()])).init_plugins()


def test_files_of_editors_beside_plugins_and_cases_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text(
        'from boyd import Plugin\n\nclass Idle(Plugin):\n    id = "idle"\n'
    )
    for name in (".#idle.py", ".#case.yaml"):
        (tmp_path / name).symlink_to("ann@host.4711:1764000000")
    file = tmp_path / "agent.toml"
    file.write_text('id = "agent"\nplugins_dir = "."\n[[plugins]]\nuse = "idle"\n')

    code_of(agent_from_file(file))
    assert read_cases(tmp_path) == {}
