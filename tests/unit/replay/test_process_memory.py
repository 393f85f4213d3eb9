"""Memory of plugins outside the state is never taken for what it held when it was recorded."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from boyd import Agent, Context, Decision, LoopResult, Plugin
from boyd.agent import agent_from_file
from boyd.plugin import Strategy
from boyd.replay.differences import judge
from boyd.replay.recordings import FileOfRecords
from boyd.replay.replay_run import ShadowPool
from boyd.replay.shadow import Shadow
from boyd.replay.shadow_process import ShadowTask
from boyd.testing import Lab
from kit import Recorder, choice, seen, sees
from replay_kit import AGENT, PLUGIN, record, write_agent, write_records

COUNT = 0
NAMES: dict[str, int] = {}
VARIABLE: ContextVar[int] = ContextVar("VARIABLE", default=0)
LOCAL = threading.local()


class Unbound:
    """A proxy for nothing, such as `flask.request` outside of a request."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("nothing is bound")


UNBOUND = Unbound()


class Slots:
    """An object without a dict."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Keeping(Plugin):
    """A plugin with places to keep something in."""

    id = "p"
    total = 0

    def __init__(self, keep: Callable[[Keeping], object] = lambda self: None) -> None:
        super().__init__()
        self.keep = keep
        self.count = 0
        self.last: float | None = None
        self.items: list[int] = []
        self.recent: deque[int] = deque(maxlen=3)
        self.kinds: set[str] = set()
        self.times: Counter[str] = Counter()
        self.numbers = itertools.count()
        self.steps = (n for n in range(99))
        # From 3.14 on, Python does not say where a cycle stands.
        cycle = itertools.cycle if sys.version_info < (3, 14) else iter
        self.around = cycle(["a", "b"])
        self.queue: SimpleQueue[int] = SimpleQueue()
        self.buffer = bytearray(b"x")
        self.inner = SimpleNamespace(deep={"a": [1]})
        self.slots = Slots()
        self.components = (
            sees("o", seen()),
            Strategy(name="s", decide=self.decide),
            Recorder().action(),
        )

    def decide(self, ctx: Context) -> Decision:
        """Keep something."""
        self.keep(self)
        return choice()

    @functools.cached_property
    def squares(self) -> list[int]:
        """Something that is computed once."""
        return [1]


def keep_in_module(_plugin: Keeping) -> None:
    global COUNT
    COUNT += 1


def keep_in_closure() -> Callable[[Keeping], None]:
    n = 0

    def keep(_plugin: Keeping) -> None:
        nonlocal n
        n += 1

    return keep


def keep_in_default(_plugin: Keeping, past: list[int] = []) -> None:  # noqa: B006 - what plugins do
    past.append(1)


def keep_on_function(_plugin: Keeping) -> None:
    keep_on_function.n = getattr(keep_on_function, "n", 0) + 1  # type: ignore[attr-defined]


@functools.cache
def square(n: int) -> int:
    return n * n


#: Places in which a plugin keeps something.
MEMORIES: dict[str, Callable[[Keeping], object]] = {
    "an attribute": lambda plugin: setattr(plugin, "count", plugin.count + 1),
    "a new attribute": lambda plugin: setattr(plugin, "fresh", 1),
    "the last value": lambda plugin: setattr(plugin, "last", 0.5),
    "a class": lambda plugin: setattr(Keeping, "total", Keeping.total + 1),
    "a list": lambda plugin: plugin.items.append(1),
    "a bounded deque": lambda plugin: plugin.recent.append(1),
    "a set": lambda plugin: plugin.kinds.add("x"),
    "a counter": lambda plugin: plugin.times.update(["x"]),
    "a count": lambda plugin: next(plugin.numbers),
    "a generator": lambda plugin: next(plugin.steps),
    "a cycle": lambda plugin: next(plugin.around),
    "a queue": lambda plugin: plugin.queue.put(1),
    "a buffer": lambda plugin: plugin.buffer.append(1),
    "something deep inside": lambda plugin: plugin.inner.deep["a"].append(2),
    "a slot": lambda plugin: setattr(plugin.slots, "n", 1),
    "a variable of the module": keep_in_module,
    "a dict of the module": lambda _plugin: NAMES.update(x=len(NAMES)),
    "a closure": keep_in_closure(),
    "a default": keep_in_default,
    "a function": keep_on_function,
    "a variable of the context": lambda _plugin: VARIABLE.set(VARIABLE.get() + 1),
    "a variable of the thread": lambda _plugin: setattr(LOCAL, "n", 1),
}

#: What leaves nothing behind that could make a difference.
HARMLESS: dict[str, Callable[[Keeping], object]] = {
    "nothing": lambda plugin: None,
    "a cached property": lambda plugin: plugin.squares,
    "a cached function": lambda _plugin: square(7),
    "the same value again": lambda plugin: setattr(plugin, "count", 0),
    "a local list": lambda plugin: [*plugin.items, 1].append(2),
    "a read": lambda plugin: (plugin.times["y"], plugin.inner.deep["a"][0]),
}


@pytest.fixture(scope="module")
def iteration() -> LoopResult:
    """A recorded iteration of a plugin that keeps nothing."""
    return LoopResult.from_json(Lab(Agent("test", plugins=[Keeping()])).run().to_json())


def shadow_of(keep: Callable[[Keeping], object]) -> Shadow:
    """A shadow of an agent with that plugin."""
    return Shadow(Agent("test", plugins=[Keeping(keep)]))


@pytest.mark.parametrize("name", MEMORIES)
def test_an_iteration_in_which_a_plugin_keeps_something_cannot_be_judged(
    name: str, iteration: LoopResult
) -> None:
    shadow = shadow_of(MEMORIES[name])

    judgement = judge(shadow, iteration)

    assert judgement.differences == ["cannot tell"]
    assert str(judgement.why).endswith("and nothing tells what it held then: use ctx.state")
    assert shadow.has_memory


@pytest.mark.parametrize("name", HARMLESS)
def test_an_iteration_that_leaves_nothing_behind_is_judged(
    name: str, iteration: LoopResult
) -> None:
    assert judge(shadow_of(HARMLESS[name]), iteration).differences == []


#: Lines of a module that tell nothing of an iteration.
LINES = """
from random import SystemRandom, uniform
from secrets import choice

DICE = SystemRandom()
VIEW = memoryview(b"x")
VIEW.release()
"""


def test_chance_that_only_others_use_makes_no_iteration_untellable(tmp_path: Path) -> None:
    records = record(agent_from_file(write_agent(tmp_path / "then")), 3)
    plugin = PLUGIN.replace("LIMIT = 60", f"{LINES}LIMIT = 60")
    task = ShadowTask(agent=str(write_agent(tmp_path / "now", AGENT, plugin)), paths=sys.path)
    file = FileOfRecords(write_records(tmp_path / "records", records), lambda _number: True)

    with ShadowPool(task, 1) as pool:
        judgements = [item for portion in pool.judge(file.portions()) for item in portion]

    assert [item.differences for item in judgements] == [[], [], []]


@pytest.mark.parametrize("package", ["tallies", "boyd_tallies"])
def test_an_iteration_in_which_own_code_beside_a_plugin_keeps_something_cannot_be_judged(
    tmp_path: Path, package: str
) -> None:
    records = record(agent_from_file(write_agent(tmp_path / "then")), 3)
    plugin = PLUGIN.replace("LIMIT = 60", f"from {package}.tally import add\n\nLIMIT = 60")
    plugin = plugin.replace("at = ctx.now()", "at = ctx.now(); add()")
    path = write_agent(tmp_path / "now", AGENT, plugin)
    (tmp_path / package).mkdir()
    (tmp_path / package / "tally.py").write_text(
        "SEEN = {'times': 0}\ndef add():\n    SEEN['times'] += 1\n"
    )
    task = ShadowTask(agent=str(path), paths=[*sys.path, str(tmp_path)])
    file = FileOfRecords(write_records(tmp_path / "records", records), lambda _number: True)

    with ShadowPool(task, 1) as pool:
        judgements = [item for portion in pool.judge(file.portions()) for item in portion]

    assert [item.differences for item in judgements] == [["cannot tell"]] * 3
    assert f"{package}.tally.SEEN.times changes" in str(judgements[0].why)


#: A plugin that counts beside the state, where nothing of Python tells it.
COUNTING = PLUGIN.replace(
    "LIMIT = 60",
    """LIMIT = 60
HIDDEN = type("Hidden", (), {"__module__": "threading", "n": 0})()
""",
).replace(
    "at = ctx.now()",
    "at = ctx.now(); self.n = getattr(self, 'n', 0) + (load > 90); HIDDEN.n += 1; load += HIDDEN.n",
)


@pytest.mark.long
@pytest.mark.parametrize("plugin", [PLUGIN, COUNTING])
def test_any_number_of_processes_finds_the_same(plugin: str, tmp_path: Path) -> None:
    records = record(agent_from_file(write_agent(tmp_path / "then")), 150)
    path = write_agent(tmp_path / "now", AGENT, plugin)
    file = FileOfRecords(write_records(tmp_path / "records", records), lambda _number: True)

    def judgements(jobs: int) -> list[Any]:
        with ShadowPool(ShadowTask(agent=str(path), paths=sys.path), jobs) as pool:
            return [item.to_json() for portion in pool.judge(file.portions()) for item in portion]

    first = judgements(1)
    others = [judgements(jobs) for jobs in (1, 2, 4)]
    assert [
        pair for each in others for pair in zip(first, each, strict=True) if len({*pair}) > 1
    ] == []
    assert len(first) == 150
    assert any("shop.n changes" in text for text in first) == (plugin is COUNTING)


@pytest.mark.long
@pytest.mark.parametrize(
    "host",
    [
        '"".join({"a", "b", "c", "d", "e"})',
        'set("abcdefgh").pop()',
        'f"{ctx.now().astimezone():%H}"',
        'str(hash("a"))[:9]',
    ],
)
def test_a_difference_that_another_process_does_not_find_cannot_be_judged(
    host: str, tmp_path: Path
) -> None:
    records = record(agent_from_file(write_agent(tmp_path / "then")), 12)
    plugin = PLUGIN.replace("def restart(self,", "def restart(self, ctx: Context,")
    plugin = plugin.replace('{"host": known["host"]}', f'{{"host": {host}}}')
    task = ShadowTask(agent=str(write_agent(tmp_path / "now", AGENT, plugin)), paths=sys.path)
    file = FileOfRecords(write_records(tmp_path / "records", records), lambda _number: True)

    with ShadowPool(task, 1) as pool:
        judgements = [item for portion in pool.judge(file.portions()) for item in portion]

    differing = [item for item in judgements if item.differences]
    assert differing
    assert all(item.differences == ["cannot tell"] for item in differing)
    assert all(str(item.why).startswith("it depends on the order of a set") for item in differing)
