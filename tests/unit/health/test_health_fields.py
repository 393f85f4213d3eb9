"""The declarations of the fields of health."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from boyd.health.agent_health import AgentHealth
from boyd.health.declaration import declarations, leaves
from boyd.health.server_health import ServerHealth
from boyd.health.snapshot import HealthSnapshot

CLASSES = [HealthSnapshot, ServerHealth, AgentHealth]


def groups(cls: type[Any]) -> list[type[Any]]:
    """A class and those of its groups."""
    return [cls, *(it.group for it in declarations(cls).values() if it.group is not None)]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_field_has_a_meaning(cls: type[Any]) -> None:
    for group in groups(cls):
        for name, declaration in declarations(group).items():
            assert declaration.meaning.strip().endswith("."), name


@pytest.mark.parametrize("cls", CLASSES)
def test_no_class_of_health_has_more_than_fifteen_fields(cls: type[Any]) -> None:
    for group in groups(cls):
        assert len(declarations(group)) <= 15, group


def test_no_two_groups_of_an_agent_have_a_field_of_one_name() -> None:
    names = Counter(name for group in groups(AgentHealth) for name in declarations(group))
    assert set(names.values()) == {1}


def test_the_reader_finds_every_field_of_agent_and_server() -> None:
    for cls in (AgentHealth, ServerHealth):
        assert all(declaration.source is not None for _, declaration in leaves(cls))


def test_fields_that_share_a_metric_give_it_one_meaning_and_one_set_of_labels() -> None:
    metrics: dict[str, tuple[str, tuple[str, ...], bool]] = {}
    for cls in CLASSES:
        for _, declaration in leaves(cls):
            for it in declaration.metrics:
                kind = (it.help, it.labels, it.counts)
                assert metrics.setdefault(it.name, kind) == kind
