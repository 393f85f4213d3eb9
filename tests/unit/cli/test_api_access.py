"""Sources of the URL and the key of the API."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import click
import pytest

from boyd.embedded.state_folder import RunningDeployment, key_file
from boyd.errors import ConfigError
from boyd.models import RunPage
from boyd.settings.process_settings import load_settings
from boyd.settings.traces_settings import TracesSettings
from boyd_cli import api_access
from boyd_cli.api_access import Api, Flags, find_api, open_api, resolve_prefix

#: What was opened: URL, key and agent.
Opened = list[tuple[str, str | None, str | None]]

PROFILES = """
[default]
url = "https://default.example"
key = "key of default"
agent = "office"

[work]
url = "https://work.example/"
key_file = "work.key"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything in it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BOYD_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "boyd").mkdir()
    (tmp_path / "state").mkdir()
    return tmp_path


@pytest.fixture
def profiles(home: Path) -> Path:
    """The file with the profiles."""
    path = home / "boyd" / "profiles.toml"
    path.write_text(PROFILES)
    (home / "boyd" / "work.key").write_text("key of work\n")
    for file in (path, home / "boyd" / "work.key"):
        file.chmod(0o600)
    return path


@pytest.fixture
def running(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A `boyd up` that runs here; the URL of its API."""
    url = "http://127.0.0.1:8700"
    runtime = RunningDeployment(redis_url="redis://x", api_url=url)
    monkeypatch.setattr(api_access, "read_runtime", lambda _: runtime)
    key_file(home / "state").write_text("key of up\n")
    return url


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The opened APIs: URL, key and agent."""
    calls: Opened = []
    begin = Api.__init__

    def note_access(
        self: Api, url: str, key: str | None, agent: str | None, traces: TracesSettings
    ) -> None:
        calls.append((url, key, agent))
        begin(self, url, key, agent, traces)

    monkeypatch.setattr(Api, "__init__", note_access)
    return calls


def test_the_deployment_that_runs_here_is_the_default(running: str, opened: Opened) -> None:
    open_api(load_settings(), Flags())
    assert opened == [(running, "key of up", None)]


def test_a_profile_is_asked_before_that(running: str, profiles: Path, opened: Opened) -> None:
    open_api(load_settings(), Flags())
    open_api(load_settings(), Flags(profile="work", agent="lab"))
    assert opened == [
        ("https://default.example", "key of default", "office"),
        ("https://work.example/", "key of work", "lab"),
    ]


def test_the_environment_is_believed_before_profiles(
    profiles: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOYD_PROFILE", "work")
    open_api(load_settings(), Flags())
    monkeypatch.setenv("BOYD_URL", "https://env.example")
    monkeypatch.setenv("BOYD_API_KEY", "key of env")
    monkeypatch.setenv("BOYD_AGENT", "lab")
    open_api(load_settings(), Flags())
    open_api(load_settings(), Flags(url="https://flag.example", key="key of flag"))
    open_api(load_settings(), Flags(profile="work"))
    assert opened == [
        ("https://work.example/", "key of work", None),
        ("https://env.example", "key of env", "lab"),
        ("https://flag.example", "key of flag", "lab"),
        ("https://work.example/", "key of work", "lab"),
    ]


def test_a_key_can_be_in_a_file_that_the_environment_names(
    home: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "key").write_text("key of file\n")
    monkeypatch.setenv("BOYD_API_KEY", "")
    monkeypatch.delenv("BOYD_API_KEY")
    monkeypatch.setenv("BOYD_API_KEY_FILE", str(home / "key"))
    open_api(load_settings(), Flags(url="https://flag.example"))
    assert opened == [("https://flag.example", "key of file", None)]


def test_a_key_is_shown_to_nobody_but_the_api_that_it_came_with(
    running: str, profiles: Path, opened: Opened
) -> None:
    open_api(load_settings(), Flags(url="https://elsewhere.example"))
    open_api(load_settings(), Flags(url="https://default.example/"))
    open_api(load_settings(), Flags(url=running))
    assert [key for _, key, _ in opened] == [None, "key of default", "key of up"]


def test_without_a_deployment_the_error_lists_every_way_to_name_one(home: Path) -> None:
    assert find_api(load_settings(), Flags()) is None
    with pytest.raises(ConfigError) as caught:
        open_api(load_settings(), Flags())
    for way in ("--url", "BOYD_URL", "profiles.toml", "boyd up"):
        assert way in str(caught.value)


@pytest.mark.parametrize("name", ["profiles.toml", "work.key"])
def test_a_key_that_others_can_read_is_refused(profiles: Path, name: str) -> None:
    path = profiles.parent / name
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        open_api(load_settings(), Flags(profile="work"))


def test_a_profile_without_a_file_of_profiles_is_missed_by_its_name(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"no profile 'work': .*profiles.toml does not exist"):
        open_api(load_settings(), Flags(profile="work"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[other]\nurl = 'http://x'", "has no profile 'work'; known: other"),
        ("[work]\nkey = 'x'", "profile 'work': url: Field required"),
        ("[work]\nurl = 'http://x'\nkye = 'x'", "profile 'work': kye: Extra inputs"),
        ("[work]\nurl = 'http://x'\nkey = 'x'\nkey_file = 'y'", "not both"),
        ("[work]\nurl = 'http://x'\nkey_file = 'none'", "key_file .*/none: No such file"),
        ("work = 1", "profile 'work'"),
        ("[work", "not valid TOML"),
    ],
)
def test_an_invalid_profile_is_refused_with_the_reason(
    profiles: Path, text: str, message: str
) -> None:
    profiles.write_text(text)
    with pytest.raises(ConfigError, match=message):
        open_api(load_settings(), Flags(profile="work"))


def test_an_ambiguous_prefix_names_what_was_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit):
        resolve_prefix("approval or anomaly", "a", ["ab", "ac"])
    problem = capsys.readouterr().err
    assert problem == "boyd: approval or anomaly 'a' is ambiguous, 2 ids begin so: ab, ac\n"


def test_a_list_says_once_why_the_archive_is_not_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    api_access.note_missing.cache_clear()
    page = RunPage(runs=[], total=0, missing="the archive does not answer")
    api = mock.Mock(**{"agent.get.return_value": page})
    for _ in range(2):
        assert api_access.runs(api) == []

    assert capsys.readouterr().err == "boyd: older items are missing: the archive does not answer\n"
