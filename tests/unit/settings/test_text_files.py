"""Files of settings and secrets are read as editors and shells of Windows write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boyd.agent import load_agent
from boyd.errors import ConfigError
from boyd.intake.sender_checks import read_secrets
from boyd.llm.playbook import load_folder
from boyd.plugin.plugin_base import Secret
from boyd.settings.model import ModelSettings
from boyd.settings.process_settings import load_settings
from boyd.settings.validation import read_text
from cli_kit import Cli

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16"]
SECRET = "a secret of Zoë that nobody guesses\r\n"
LATIN = "a secret of Zoë".encode("latin-1")
UNMARKED = "a secret".encode("utf-16-le")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading settings moves secrets of files into the environment: into one of the test."""
    monkeypatch.setattr(os, "environ", {**os.environ})


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_secret_is_the_same_in_every_encoding(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET.encode(encoding))
    os.environ["BOYD_APPROVAL_SECRET_FILE"] = str(file)
    model = ModelSettings(base_url="http://127.0.0.1:1/v1", model="m", api_key_file=file)

    approval, key = load_settings().approval_secret, model.api_key()
    assert approval
    assert key
    secrets = {approval.get_secret_value(), key.get_secret_value(), Secret(file=file).read()}
    assert secrets == {*read_secrets(tmp_path, "secret")} == {SECRET.strip()}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_settings_and_agents_are_read_in_every_encoding(encoding: str, tmp_path: Path) -> None:
    settings, agent = tmp_path / "boyd.toml", tmp_path / "agent.toml"
    settings.write_bytes("[api]\r\nburst = 11\r\n".encode(encoding))
    agent.write_bytes('id = "shop"\r\nname = "Zoë"\r\n'.encode(encoding))

    assert load_settings(None, settings).api.burst == 11
    assert load_agent(str(agent)).settings.name == "Zoë"


@pytest.mark.parametrize("raw", [LATIN, UNMARKED, b"\xff\xfea"])
def test_a_file_that_is_no_text_is_refused_in_one_line(raw: bytes, tmp_path: Path) -> None:
    file = tmp_path / "text.toml"
    file.write_bytes(raw)
    os.environ["BOYD_REDIS_URL_FILE"] = str(file)

    for read in (load_settings, Secret(file=file).read, lambda: read_text(file)):
        with pytest.raises(ConfigError, match=r"text\.toml: is not text in UTF-8"):
            read()
    with pytest.raises(ConfigError, match=r"text\.toml: is not text in UTF-8"):
        load_agent(str(file))


@pytest.mark.parametrize("raw", [LATIN, UNMARKED])
def test_an_unreadable_api_key_is_an_error_of_one_line(raw: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(raw)
    for name, value, reason in (
        ("BOYD_API_KEY_FILE", str(file), "is not text in UTF-8"),
        ("BOYD_API_KEY", "\N{LEFT DOUBLE QUOTATION MARK}boyd_key", "characters that are in no key"),
    ):
        cli = Cli(tmp_path, BOYD_URL="http://127.0.0.1:1", **{name: value})
        error = cli.result("status").exception
        assert isinstance(error, ConfigError)
        assert reason in str(error)


def test_a_variable_of_a_file_with_lines_of_windows_has_no_carriage_return() -> None:
    os.environ["BOYD_APPROVAL_SECRET"] = SECRET.removesuffix("\n")
    secret_read = load_settings().approval_secret

    assert secret_read
    assert secret_read.get_secret_value() == SECRET.strip()


def test_a_playbook_may_begin_with_a_mark(tmp_path: Path) -> None:
    head = "id: disk\nname: Full disk\ndescription: A full disk"
    text = f"---\n{head}\n---\nLook at it.\n"
    (tmp_path / "disk.md").write_bytes(text.encode("utf-8-sig"))

    playbooks, problems = load_folder(tmp_path)
    assert ([playbook.id for playbook in playbooks], problems) == (["disk"], [])
