"""Settings of other packages: found by entry points, and read like all others."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from boyd.errors import ConfigError
from boyd.settings import process_settings
from boyd.settings.process_settings import environment_names, load_settings, settings_model
from boyd.text.redaction import clean
from boyd_slack.slack_settings import slack_settings

SECRET, NEXT = "a-signing-secret-of-slack", "the-next-one-of-them"
VARIABLES = {
    "BOYD_SLACK__WORKSPACE": "T0123ABCD",
    "BOYD_SLACK__APP": "A0123ABCD",
    "BOYD_SLACK__TOKEN": "xoxb-0123456789",
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    settings_model.cache_clear()
    yield
    settings_model.cache_clear()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("boyd.text.redaction._registered", set())
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BOYD_SLACK__SIGNING_SECRET", f"{SECRET} {NEXT}")
    return monkeypatch


def test_a_group_is_read_from_the_environment_and_its_secrets_are_redacted(
    environment: pytest.MonkeyPatch,
) -> None:
    settings = load_settings()
    group = slack_settings(settings)

    assert (group.workspace, group.signing_secrets) == ("T0123ABCD", [SECRET, NEXT])
    assert SECRET not in repr(settings)
    assert clean(f"{SECRET} or {NEXT}") == "[redacted] or [redacted]"


def test_a_group_that_is_not_complete_stops_the_process(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("BOYD_SLACK__TOKEN")
    with pytest.raises(ConfigError, match="slack: workspace, app, signing_secret and token need"):
        load_settings()


def test_a_package_that_is_missing_has_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("gone", "no_such_package.settings:Group", process_settings.GROUP)]
    monkeypatch.setattr(process_settings, "entry_points", lambda *, group: points)

    assert not any(name.startswith("BOYD_SLACK") for name in environment_names())
    assert not slack_settings(load_settings()).is_set
