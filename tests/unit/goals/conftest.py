"""An empty profile for commands of these tests, which run in login shells."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def bare_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A home without a profile."""
    return str(tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True)
def _no_profile(bare_home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", bare_home)
