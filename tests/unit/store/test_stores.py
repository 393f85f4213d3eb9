"""The stores of a deployment and of an agent, whose nouns are built when first used."""

from __future__ import annotations

from functools import cached_property
from typing import get_type_hints

import fakeredis
import pytest

from boyd.store import AgentStore, Store


def nouns(kind: type) -> dict[str, type]:
    """The nouns of a store, with the class of each."""
    return {
        name: get_type_hints(attribute.func)["return"]
        for name, attribute in vars(kind).items()
        if isinstance(attribute, cached_property)
    }


@pytest.mark.parametrize("kind", [AgentStore, Store])
def test_each_noun_is_named_like_its_module(kind: type) -> None:
    modules = {name: noun.__module__ for name, noun in nouns(kind).items()}

    assert modules
    assert modules == {name: f"boyd.store.{name}" for name in modules}


def test_a_store_builds_nothing_before_its_first_use() -> None:
    store = Store(fakeredis.FakeRedis())
    agent = store.agent("a")

    assert vars(store).keys() & nouns(Store).keys() == set()
    assert vars(agent).keys() & nouns(AgentStore).keys() == set()


def test_a_noun_is_built_once() -> None:
    agent = Store(fakeredis.FakeRedis()).agent("a")

    assert agent.approvals is agent.approvals
    assert vars(agent).keys() & nouns(AgentStore).keys() == {"approvals", "in_flight"}
