"""Fixtures for the console's tests."""

from __future__ import annotations

import pytest

from api_kit import Site
from console_kit import Browser


@pytest.fixture
def alice(desk: Site) -> Browser:
    """The browser of a person who may do everything."""
    return Browser(desk, desk.key("admin", person=True))


@pytest.fixture
def bob(desk: Site) -> Browser:
    """The browser of a person who may read and answer."""
    return Browser(desk, desk.key("read", "approvals", principal="bob", person=True))


@pytest.fixture
def guest(desk: Site) -> Browser:
    """The browser of a person who may only read."""
    return Browser(desk, desk.key("read", principal="guest", person=True))
