"""Fixtures for tests in real browsers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from browser_kit import ARGUMENTS, Console, browser_program
from harness import Deployment


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser of this machine; missing: skipped here, failed in CI."""
    program = browser_program()
    if program is None:
        why = "no Chromium here: install the package chromium"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    # Imported only here: it takes a while, and most tests need no browser.
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
    yield browser
    browser.close()
    playwright.stop()


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
    given = os.environ.get("PICTURES")
    folder: Path = request.getfixturevalue("tmp_path")
    return Path(given) if given else folder
