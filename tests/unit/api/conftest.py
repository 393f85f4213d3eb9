"""Fixtures for the API's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api_kit import Site, make_lab


@pytest.fixture
def site(server: Any) -> Iterator[Site]:
    """An API over the agent `test`."""
    new_site = Site(make_lab(server), server)
    yield new_site
    new_site.services.stop()


@pytest.fixture
def open_site(server: Any) -> Iterator[Site]:
    """The same, where no key is needed."""
    new_site = Site(make_lab(server), server, allow_unauthenticated=True)
    yield new_site
    new_site.services.stop()
