"""Fixtures for all tests: a clean environment, and a real Redis when a test asks for one."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import signal
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import settings

from boyd.errors import ConfigError
from boyd.store import Store, connect
from browser_kit import ARGUMENTS, browser_program
from clusters import CLUSTERS, RedisCluster
from harness import Deployment, nursery, server_program
from measuring import Measure
from parallel import Parallel, longest_first
from progress import add_progress
from redis_kit import RedisServer
from slots import watch_slots

# Started from a script in the background, this process ignores Ctrl-C, and so would all that the
# tests start; programs with a handler start with the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Each client of Redis asks for the version of its library, which reads the same file again.
importlib.metadata.version = cache(importlib.metadata.version)

# No test depends on how fast the machine is, nor on chance.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=25)


def pytest_configure(config: pytest.Config) -> None:
    """Clean the environment, show progress, and distribute tests over several processes."""
    for name in [name for name in os.environ if name.startswith("BOYD_")]:
        del os.environ[name]
    settings.load_profile("quick" if config.option.markexpr == "not long" else "suite")
    add_progress(config)
    watch_slots()
    Deployment.forks = True
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(Parallel(), "parallel")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest."""
    longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage only when tests run, and then not in what was made before them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Redis server; missing: skipped here, failed in CI.

    `TEST_REDIS_MASTERS=3` makes it a cluster of three masters with a replica each.
    """
    try:
        server_program()
    except ConfigError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    if masters := int(os.environ.get("TEST_REDIS_MASTERS", "0")):
        with RedisCluster(tmp_path_factory.mktemp("redis"), masters) as cluster:
            CLUSTERS[cluster.url] = cluster
            yield cluster.url
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def redis_url(redis_server: str) -> str:
    """The URL of an empty real Redis."""
    if cluster := CLUSTERS.get(redis_server):
        cluster.flush()
        return redis_server
    client = redis.Redis.from_url(redis_server)
    client.flushall()
    client.close()
    return redis_server


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """A store on an empty real Redis."""
    client = connect(redis_url)
    yield Store(client, "test")
    client.close()


@pytest.fixture
def deployment(redis_url: str, tmp_path: Path) -> Iterator[Deployment]:
    """Real processes against an empty real Redis; all are killed at the end."""
    with Deployment(redis_url, tmp_path) as running:
        yield running


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser of this machine; missing: skipped here, failed in CI."""
    program = browser_program()
    if program is None:
        reason = "no Chromium here: install the package chromium"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    # Imported only here: it takes a while, and most tests need no browser.
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
    yield browser
    browser.close()
    playwright.stop()


@pytest.fixture
def measure(pytestconfig: pytest.Config) -> Measure:
    """Takes down figures, which are told when all tests have run."""
    return Measure(pytestconfig)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what processes were forked from, and hand on what was measured."""
    if nursery.cache_info().currsize:
        nursery().close()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["measured"] = Measure(session.config).dump()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process has measured, unless it has crashed."""
    measured = getattr(node, "workeroutput", {}).get("measured")
    if measured:
        Measure(node.config).add(measured)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell what was measured."""
    if lines := Measure(config).lines:
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join(lines))
