"""Fixtures for the tests of Slack: a workspace, and an office whose approvals are shown there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api_kit import Site
from boyd_slack.slack_settings import SlackSettings
from slack_kit import SETTINGS, Slack, slack_server


@pytest.fixture
def slack() -> Iterator[Slack]:
    """A workspace."""
    with slack_server() as server:
        yield server


@pytest.fixture
def site(desk: Site, slack: Slack) -> Site:
    """The API of the office, to which the workspace sends interactions."""
    api = desk.services.settings.api.model_copy(update={"url": "http://localhost"})
    group = SlackSettings.model_validate({**SETTINGS, "url": slack.url})
    desk.services.settings = desk.services.settings.model_copy(update={"slack": group, "api": api})
    return desk
