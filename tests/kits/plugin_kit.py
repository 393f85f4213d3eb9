"""State in memory, a clock, a web server and a plugin's phases, for tests of plugins."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from boyd.models import ActionResult, Decision, Observation, Situation
from boyd.phases.orient import merge
from boyd.plugin import AgentInfo, Context, News, Plugin, PluginHost
from http_kit import Handler, serve


class MemoryState:
    """A `State` in memory; values go through JSON, as in Redis."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._lock = threading.RLock()

    def get(self, key: str, default: Any = None) -> Any:
        with self._lock:
            return json.loads(self.values[key]) if key in self.values else default

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        with self._lock:
            return {key: self.get(key) for key in keys if key in self.values}

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        with self._lock:
            self.values[key] = json.dumps(value, allow_nan=False)

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        with self._lock:
            if self.get(key) != expected:
                return False
            self.set(key, value)
            return True

    def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        ttl: float | None = None,
        *,
        news: Callable[[], Sequence[News]] | None = None,
    ) -> Any:
        with self._lock:
            self.set(key, change(self.get(key)))
            return self.get(key)

    def delete(self, key: str) -> None:
        with self._lock:
            self.values.pop(key, None)


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self, now: datetime | None = None) -> None:
        self.time = now or datetime(2026, 1, 5, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def context(
    plugin_id: str = "test",
    *,
    state: MemoryState | None = None,
    iteration: int | None = 1,
    now: Callable[[], datetime] | None = None,
    host: str = "here",
    not_due: Mapping[str, datetime] | None = None,
) -> Context:
    """A `ctx` for a plugin."""
    info = AgentInfo("test", "Test", "manual")
    return Context(
        info,
        plugin_id,
        state or MemoryState(),
        iteration,
        now or Clock(),
        host=host,
        not_due=not_due or {},
    )


def data_of(observations: Iterable[Observation], kind: str) -> list[dict[str, Any]]:
    """The data of the observations with a source such as `files/KIND`."""
    return [dict(each.data) for each in observations if each.source.partition("/")[2] == kind]


def data_by_kind(observations: Iterable[Observation]) -> dict[str, list[dict[str, Any]]]:
    """The data of the observations, by the kind in their sources."""
    data: dict[str, list[dict[str, Any]]] = {}
    for each in observations:
        data.setdefault(each.source.partition("/")[2], []).append(each.data)
    return data


def _success(action: str, output: Any) -> ActionResult:
    return ActionResult(action=action, success=True, duration=1, output=output)


class Rig:
    """Runs a plugin's phases one by one, each with the context of the current iteration."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.host = PluginHost([plugin])
        self.state = MemoryState()
        self.clock = Clock()
        self.iteration: int | None = 0
        self.on_host = "here"
        self.not_due: dict[str, datetime] = {}

    @property
    def ctx(self) -> Context:
        return context(
            self.plugin.id,
            state=self.state,
            iteration=self.iteration,
            now=self.clock,
            host=self.on_host,
            not_due=self.not_due,
        )

    def observe(self) -> list[Observation]:
        """The observations of the next iteration."""
        self.iteration = (self.iteration or 0) + 1
        observations: list[Observation] = []
        for observer in self.host.observers.values():
            split = observer.has("partition")
            for shard in observer.call("partition", ctx=self.ctx) if split else [None]:
                part = observer.call("observe", ctx=self.ctx, shard=shard)
                if observer.has("judge"):
                    part = observer.call("judge", observations=part, ctx=self.ctx)
                observations += part
        return observations

    def orient(self, observations: list[Observation]) -> Situation:
        """The situation they make, as it comes back from where it was stored."""
        orienters = self.host.orienters.values()
        situation = merge(
            [o.call("orient", observations=observations, ctx=self.ctx) for o in orienters]
        )
        return Situation.from_json(situation.to_json())

    def decide(self, situation: Situation) -> Decision | None:
        """The decision of the first applicable strategy, if there is one."""
        for strategy in self.host.strategies.values():
            values = {"situation": situation, "ctx": self.ctx}
            if not strategy.has("applicable_when") or strategy.call("applicable_when", **values):
                decision: Decision = strategy.call("decide", **values)
                return decision
        return None

    def think(self) -> Decision | None:
        """Observe, orient and decide."""
        return self.decide(self.orient(self.observe()))

    def act(
        self, name: str, params: Mapping[str, Any], function: str = "execute", **values: Any
    ) -> Any:
        """Call a function of the action *name* with validated params; what it returned."""
        action = self.host.actions[f"{self.plugin.id}:{name}"]
        model = action.params
        assert model is not None
        assert issubclass(model, BaseModel)
        valid = model.model_validate(dict(params))
        return action.call(function, params=valid, ctx=self.ctx, **values)

    def verify(self, name: str, params: Mapping[str, Any], output: Any = None) -> Any:
        """The verdict on an action that has succeeded with that *output*."""
        return self.act(name, params, "verify", result=_success(name, output))

    def roll_back(self, name: str, params: Mapping[str, Any], output: Any = None) -> Any:
        """Undo an action that has succeeded with that *output*."""
        return self.act(name, params, "rollback", result=_success(name, output))

    def result(self, name: str, params: Mapping[str, Any]) -> ActionResult:
        """Execute an action that returns a whole result."""
        result = self.act(name, params)
        assert isinstance(result, ActionResult)
        return result


class Site:
    """A local web server whose answer can be changed; it remembers the requests it got."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.body = b""
        self.headers: dict[str, str] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.hold: Callable[[], object] = lambda: None


@contextmanager
def site() -> Iterator[Site]:
    """A `Site` on a free port."""
    served = Site()

    class SiteHandler(Handler):
        def answer(self) -> None:
            request = (self.command, self.path, dict(self.headers), self.read_body())
            served.requests.append(request)
            served.hold()
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has left
                self.reply(served.status, served.body, **served.headers)

    with serve(SiteHandler) as served.url:
        yield served
