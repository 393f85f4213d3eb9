"""The digest of a plugin's observers differs if they may observe something else."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from boyd.agent import agent_from_file

AGENT = """
id = "shop"
plugins_dir = "plugins"

[[plugins]]
use = "watch"
"""
PLUGIN = '''
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache, partial, wraps
from types import SimpleNamespace

from boyd import Observation, Plugin, observer
from boyd.models import Model


class Box:
    """Holds a limit."""

    def __init__(self, limit=7):
        self.limit = limit
        self.inner = self


def over(limit, value):
    return value > limit


def above(limit):
    def decorate(function):
        @wraps(function)
        def call(value):
            return function(value) and value > limit

        return call

    return decorate


{module}


class Base(Plugin):
    def is_high(self, value):
        return value > {base}


class Watch(Base):
    id = "watch"

{members}

    def is_high(self, value):
        return super().is_high(value)

    def tidy(self):
        return {other}

    @observer()
    def look(self) -> list[Observation]:
        value = 60
        if not {condition}:
            return []
        return [Observation(source="watch", type="metric", data={{"value": value}})]
'''
INIT = "def __init__(self, **options):\n    super().__init__(**options)\n    "

#: In the module, in the class, and what is compared; `LIMIT` stands for a limit.
HIDDEN = {
    "default of a dataclass": (
        "@dataclass\nclass L:\n    high: int = LIMIT\n\n\nKEPT = L()",
        "",
        "value > KEPT.high",
    ),
    "default of a model": ("class L(Model):\n    high: int = LIMIT", "", "value > L().high"),
    "attribute set in __init__": ("", f"{INIT}self.limit = LIMIT", "value > self.limit"),
    "attribute set in init": (
        "",
        "def init(self, ctx):\n    self.limit = LIMIT",
        "value > self.limit",
    ),
    "attribute set by name": (
        "",
        f'{INIT}setattr(self, "limit", LIMIT)',
        "value > self.limit",
    ),
    "argument of a setter": (
        "",
        f"{INIT}self.take(LIMIT)\n\ndef take(self, limit):\n    self.limit = limit",
        "value > self.limit",
    ),
    "object made in __init__": ("", f"{INIT}self.box = Box(LIMIT)", "value > self.box.limit"),
    "attribute of an object": ("BOX = Box(LIMIT)", "", "value > BOX.limit"),
    "object in a table": ('BOXES = {"a": [Box(LIMIT)]}', "", 'value > BOXES["a"][0].limit'),
    "object of the class": ("", "box = Box(LIMIT)", "value > self.box.limit"),
    "bound method": ("is_over = partial(over, Box(LIMIT).limit)", "", "is_over(value)"),
    "namespace": ("SPACE = SimpleNamespace(limit=LIMIT)", "", "value > SPACE.limit"),
    "attribute of a function": ("over.limit = LIMIT", "", "value > over.limit"),
    "argument of a decorator": (
        "@above(LIMIT)\ndef high(value):\n    return True",
        "",
        "high(value)",
    ),
    "cached function": ("@lru_cache\ndef limit():\n    return LIMIT", "", "value > limit()"),
    "cached property": (
        "",
        "@cached_property\ndef limit(self):\n    return LIMIT",
        "value > self.limit",
    ),
    "name in a text": ("", "limit = LIMIT", 'value > getattr(self, "limit")'),
    "function of a base": ("", "", "self.is_high(value)"),
    "number of the library": ('KEPT = Decimal("LIMIT")', "", "value > KEPT"),
    "queue": ("KEPT = deque([LIMIT])", "", "value > KEPT[0]"),
}


def digest(folder: Path, hidden: tuple[str, str, str], limit: int, other: int = 1) -> str | None:
    """The digest of the observers of a plugin that hides a limit so."""
    module, members, condition = (text.replace("LIMIT", str(limit)) for text in hidden)
    plugins = folder / f"{limit}-{other}" / "plugins"
    plugins.mkdir(parents=True)
    source = PLUGIN.format(
        module=module,
        members=indent(members, "    "),
        condition=condition,
        base=limit,
        other=other,
    )
    (plugins / "watch.py").write_text(source)
    file = plugins.parent / "agent.toml"
    file.write_text(AGENT)
    build = agent_from_file(file).build
    return next(plugin.observers for plugin in build.plugins if plugin.id == "watch")


@pytest.mark.parametrize("place", HIDDEN)
def test_another_limit_is_another_digest_wherever_it_is(place: str, tmp_path: Path) -> None:
    before = digest(tmp_path, HIDDEN[place], 50)

    assert before != digest(tmp_path, HIDDEN[place], 70)
    assert before == digest(tmp_path, HIDDEN[place], 50, other=2)
