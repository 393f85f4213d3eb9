from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from boyd.agent import load_agent
from boyd.errors import ConfigError
from boyd_cli import boyd, output


def init(*arguments: str, answers: str = "") -> str:
    done = CliRunner().invoke(boyd, ["init", *arguments], input=answers)
    assert done.exit_code == 0, done.output
    return done.output


def test_options_name_what_the_agent_watches_and_whom_it_tells(tmp_path: Path) -> None:
    init(
        str(tmp_path / "first"),
        *("--name", 'The "shop"'),
        *("--watch", f"https://me:secret@shop.example:8443/health,nginx,{tmp_path}"),
        *("--notify", "https://chat.example/hook"),
    )

    file = tmp_path / "first" / "agent.toml"
    agent = load_agent(str(file))
    options = {name: plugin.options for name, plugin in agent.host.plugins.items()}
    assert (agent.info.id, agent.info.name) == ("the-shop", 'The "shop"')
    assert options["host-metrics"].mounts == ["/", str(tmp_path)]
    assert [each.id for each in options["http-monitor"].endpoints] == ["shop.example-8443-health"]
    assert options["systemd"].units == ["nginx.service"]
    assert len(options["notifier"].groups[0].recipients) == 1


def test_names_in_any_script_and_addresses_of_one_path_are_kept_apart(tmp_path: Path) -> None:
    urls = ["https://shop.example/🚀", "http://shop.example/🚀", "https://shop.example/🚀?x=2"]
    init(str(tmp_path / "first"), "--name", "Shop 🚀", "--watch", ",".join(urls))

    agent = load_agent(str(tmp_path / "first" / "agent.toml"))
    endpoints = agent.host.plugins["http-monitor"].options.endpoints
    assert agent.info.name == "Shop 🚀"
    assert [each.url for each in endpoints] == urls
    assert [each.id for each in endpoints] == [
        "shop.example",
        "shop.example-2",
        "shop.example-3",
    ]


@pytest.mark.parametrize("name", ["web", "a\x7fb", "C:\\web"])
def test_a_given_name_may_differ_from_any_name_of_a_folder(tmp_path: Path, name: str) -> None:
    init(str(tmp_path / "my agent"), "--name", name)

    assert load_agent(str(tmp_path / "my agent" / "agent.toml")).info.name == name


def test_a_name_that_is_not_utf_8_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(boyd, ["init", str(tmp_path / "first"), "--name", "\udcff"])

    assert isinstance(done.exception, ConfigError)
    assert "is not UTF-8" in str(done.exception)
    assert not (tmp_path / "first").exists()


def test_without_options_the_agent_observes_this_host(tmp_path: Path) -> None:
    init(str(tmp_path / "first"))

    agent = load_agent(str(tmp_path / "first" / "agent.toml"))
    assert "host-metrics:measure" in agent.host.observers
    assert agent.host.plugins.keys().isdisjoint({"http-monitor", "systemd", "notifier"})


def test_a_terminal_asks_what_no_option_gives_until_the_answer_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "can_ask", lambda: True)
    printed = init(
        str(tmp_path / "first"),
        *("--notify", "https://chat.example/hook"),
        answers="\nhtp://nowhere\nnginx.service, https://shop.example\n",
    )

    assert "'htp://nowhere' is not an http or https address with a host" in printed
    assert "Who is told?" not in printed
    agent = load_agent(str(tmp_path / "first" / "agent.toml"))
    assert agent.info.name == "First"
    assert agent.host.plugins.keys() >= {"http-monitor", "systemd", "notifier"}


@pytest.mark.parametrize(
    ("option", "word", "problem"),
    [
        ("--watch", "ftp://shop.example", "not an http or https address"),
        ("--watch", "some/folder", "not the absolute path of a folder"),
        ("--watch", "ng inx", "not the name of a systemd unit"),
        ("--notify", "ops@shop.example", "must begin with https://"),
    ],
)
def test_a_wrong_word_is_refused_and_nothing_is_written(
    tmp_path: Path, option: str, word: str, problem: str
) -> None:
    done = CliRunner().invoke(boyd, ["init", str(tmp_path / "first"), option, word])

    assert done.exit_code == 2
    assert problem in done.output
    assert not (tmp_path / "first").exists()
