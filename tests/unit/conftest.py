"""Fixtures for tests of the API and of the console: an office with a desk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest

from api_kit import Desk, Site, make_desk


@pytest.fixture
def server() -> Any:
    """The state of an imaginary Redis."""
    return fakeredis.FakeServer()


@pytest.fixture
def office(server: Any) -> Iterator[tuple[Site, Desk]]:
    """An API over the agent `desk`, and its plugin."""
    lab, plugin = make_desk(server)
    made = Site(lab, server, max_wait=10)
    yield made, plugin
    made.services.stop()


@pytest.fixture
def desk(office: tuple[Site, Desk]) -> Site:
    """The API of the office."""
    return office[0]


@pytest.fixture
def done(office: tuple[Site, Desk]) -> list[str]:
    """What the plugin of the office has done."""
    return office[1].done
