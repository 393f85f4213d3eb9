"""Fixtures for tests in real browsers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from browser_kit import Console
from harness import Deployment


@pytest.fixture(scope="module")
def console(
    redis_server: str, chromium: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A console over the agent `desk`, whose worker runs; shared by the tests of a file."""
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()
    with Deployment(redis_server, tmp_path_factory.mktemp("desk")) as deployment:
        deployment.worker("worker", "agents.desk:agent")
        yield Console(deployment, chromium)


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path:
    """The folder for screenshots: `PICTURES`, or one that is not kept."""
    folder_name = os.environ.get("PICTURES")
    folder: Path = request.getfixturevalue("tmp_path")
    return Path(folder_name) if folder_name else folder
