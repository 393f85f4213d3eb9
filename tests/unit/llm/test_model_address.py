"""Permitted addresses of a model (docs/models.md), and errors for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pydantic import ValidationError

from boyd import Agent, ConfigError
from boyd.settings.model import ModelSettings
from boyd_cli.commands.check_commands import check

OTHERS = ["model.example", "10.0.0.1", "0.0.0.0", "host.docker.internal", "ollama"]


def model_settings(url: str, **fields: Any) -> ModelSettings:
    return ModelSettings(base_url=url, model="m", **fields)


def refusal(url: str, **fields: Any) -> str:
    with pytest.raises(ConfigError, match=r"llm\.base_url: ") as caught:
        Agent("d", llm={"base_url": url, "model": "m", **fields})
    return str(caught.value)


def run_check(tmp_path: Path, url: str, *options: str) -> Result:
    file = tmp_path / "agent.toml"
    file.write_text(f'id = "d"\n[llm]\nbase_url = "{url}"\nmodel = "m"\n')
    return CliRunner().invoke(check, [str(file), *options])


@pytest.mark.parametrize("host", OTHERS)
def test_nothing_goes_unencrypted_to_other_hosts(host: str) -> None:
    error = refusal(f"http://{host}:1/v1")

    assert f"{host} is a remote host" in error
    assert "llm.allow_http = true" in error


@pytest.mark.parametrize("host", OTHERS)
def test_to_other_hosts_one_goes_encrypted_or_with_leave(host: str) -> None:
    assert not model_settings(f"https://{host}:1/v1").is_here
    assert not model_settings(f"http://{host}:1/v1", allow_http=True).is_here


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.2.1", "[::1]", "a.localhost"])
def test_this_host_may_be_talked_to_in_clear(host: str) -> None:
    assert model_settings(f"http://{host}:1/v1").is_here


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2@model.example/v1",
        "http://me:hunter2@127.0.0.1:8099/v1",
        "https://me:hun/hunter2@model.example/v1",
        "https://me:hunter2/x@model.example/v1",
        "https://me:hunter2#x@model.example/v1",
        "https://me:hunter2\u2100@model.example/v1",
        "redis://me:hunter2@model.example/v1",
    ],
)
def test_an_address_with_a_password_is_refused_without_telling_it(url: str) -> None:
    assert "hunter2" not in refusal(url)
    with pytest.raises(ValidationError) as caught:
        model_settings(url)
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize(
    ("path", "ending"),
    [
        ("/v1/chat/completions", "/chat/completions"),
        ("/chat/completions", "/chat/completions"),
        ("/v1/messages", "/v1/messages"),
    ],
)
def test_an_address_with_the_path_that_boyd_adds_is_refused(
    path: str, ending: str, slash: str
) -> None:
    error = refusal(f"https://model.example{path}{slash}")

    assert f"it ends in {ending}, which Boyd appends itself; leave that out" in error


@pytest.mark.parametrize(
    "url",
    [
        *("", "model.example/v1", "ftp://model.example", "https://", "https:///v1", "https://:80"),
        *("https://a b/v1", "https://model.example/v1?x=1", "https://model.example/#x"),
        *(
            "https://model.example:x/v1",
            "https://model.example:99999",
            "https://[::1",
            "http://a..b",
        ),
    ],
)
def test_an_invalid_address_is_refused_in_plain_words(url: str) -> None:
    error = refusal(url)

    assert "write http:// or https://, a host" in error
    assert "pattern" not in error


@pytest.mark.parametrize("url", ["https://höst.example/v1", "https://h/a@b"])
def test_unusual_addresses_are_fine(url: str) -> None:
    assert model_settings(url).base_url == url


def test_an_invalid_allow_http_is_the_only_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Agent("d", llm={"base_url": "http://ollama/v1", "model": "m", "allow_http": "perhaps"})

    assert "llm.allow_http: " in str(caught.value)
    assert "base_url" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:hunter2@127.0.0.1:8099/v1",
        "http://ollama:11434/v1",
        "http://127.0.0.1:8099/v1/chat/completions",
    ],
)
@pytest.mark.parametrize("options", [(), ("--print",)])
def test_the_check_fails_for_an_address_that_can_never_work(
    tmp_path: Path, url: str, options: tuple[str, ...]
) -> None:
    done = run_check(tmp_path, url, *options)

    assert done.exit_code == 1
    assert "llm.base_url: " in done.output
    assert "hunter2" not in done.output
