"""The past of a changed agent: state, budgets and holds, carried from iteration to iteration.

Only what differs from the record is kept: the rest is read from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from boyd import naming
from boyd.agent import Agent
from boyd.agent.observer_digests import names_in
from boyd.models import Budget, Decision, Gate, Hold, LoopResult
from boyd.phases.phase_tape import short_key
from boyd.plugin import Action
from boyd.plugin.hooks import SPECIFICATIONS
from boyd.replay.playback import Missing, StateWrite, value_then

#: A plugin and a key of its state; an action and a target.
Place = tuple[str, str]
#: How long executions are remembered, which no budget exceeds.
_REMEMBERED = timedelta(days=31)


@dataclass(frozen=True)
class _Execution:
    """An execution that the changed agent has made and the recorded one has not."""

    iteration: int
    until: datetime


def _times() -> defaultdict[Place, list[datetime]]:
    return defaultdict(list)


@dataclass
class CarriedPast:
    """The past of a changed agent, as far as it differs from the recorded one.

    Attributes:
        diverged: the reasons why the current iteration rests on more than its record.
    """

    diverged: list[str] = field(default_factory=list)
    _at: datetime = datetime.min
    _is_first: bool = True
    _began: datetime | None = None
    _recorded_plugins: frozenset[str] = frozenset()
    _state: dict[Place, tuple[Any, datetime | None]] = field(default_factory=dict)
    _own: defaultdict[Place, list[datetime]] = field(default_factory=_times)
    _then: defaultdict[Place, list[datetime]] = field(default_factory=_times)
    _others: dict[Place, int] = field(default_factory=dict)
    _extra: dict[Place, _Execution] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    _touched: dict[str, str] = field(default_factory=dict)

    def begin(self, record: LoopResult) -> None:
        """Begin the next iteration."""
        self.diverged = []
        self._at = record.started_at
        if self._is_first:
            # Before its very first iteration an agent has executed nothing.
            self._began = None if record.iteration == 1 else record.started_at
            self._is_first = False
        builds = record.builds
        self._recorded_plugins = frozenset(
            plugin.id for build in builds for plugin in build.plugins
        )

    # State

    def state_value(self, plugin_id: str, key: str, recorded: Any) -> Any:
        """The value of a key, or `Missing.NOT_CARRIED` if it is as *recorded*.

        A plugin that the recorded agent did not have began without any state.
        """
        value = self._value(plugin_id, key)
        if value is Missing.NOT_CARRIED:
            if plugin_id not in self._recorded_plugins:
                return Missing.ABSENT
            if recorded is not Missing.UNKNOWN and plugin_id in self._touched:
                self.diverged.append(self._touched[plugin_id])
            return value
        if value == recorded:
            return Missing.NOT_CARRIED
        if recorded is not Missing.UNKNOWN:
            self.diverged.append(f"state {key} of {plugin_id} held something else then")
        return value

    def note_start(self, plugin_id: str, key: str) -> None:
        """Note that a judge of observations begins without what it has counted before."""
        self.diverged.append(f"nothing tells what state {key} of {plugin_id} held before")

    def _value(self, plugin_id: str, key: str) -> Any:
        place = plugin_id, short_key(key)
        value, until = self._state.get(place, (Missing.NOT_CARRIED, None))
        if until is not None and until <= self._at:
            return Missing.ABSENT
        return deepcopy(value)

    def carry_state(self, record: LoopResult, writes: Mapping[Place, StateWrite]) -> None:
        """Carry what the iteration has written, where the recorded one left something else."""
        digests = dict(_writes_then(record))
        for (plugin_id, key), write in writes.items():
            place = plugin_id, short_key(key)
            if digests.pop(place, None) == write.digest:
                self._state.pop(place, None)
            else:
                self._state[place] = write.value, record.started_at + timedelta(seconds=write.ttl)
        for place in digests:
            # It has not written this time: the key holds what it held before.
            self._state.setdefault(place, (_first_value(record, place), None))

    # Executions

    def budget_use(self, action: str, target: str, budget: Budget, gate: Gate | None) -> int | None:
        """The executions that count against a budget; None if the record does not tell.

        Those of the recorded *gate* that this loop has not made count for both agents.
        """
        place = action, target
        if gate is not None and gate.used is not None and gate.budget is not None:
            others = gate.used - self._count(self._then[place], gate.budget.window)
            self._others[place] = max(0, others)
        elif place not in self._others and not self._covers(budget.window):
            return None
        used = self._count(self._own[place], budget.window) + self._others.get(place, 0)
        if gate is None or gate.used is None:
            self.diverged.append(f"the use of the budget of {action} was not recorded")
        elif used != gate.used:
            self.diverged.append(f"{gate.used} executions counted against the budget of {action}")
        return used

    def _covers(self, seconds: float) -> bool:
        """Report whether the replay has seen all that happened in the last *seconds*."""
        began = self._began
        return began is None or self._at - began >= timedelta(seconds=seconds)

    def _count(self, times: Iterable[datetime], window: float) -> int:
        since = self._at - timedelta(seconds=window)
        return sum(at > since for at in times)

    def hold(self, action: str, target: str, recorded: Hold | None) -> Hold | None:
        """The hold of an action on a target, unless its cause never happened.

        If the agent has executed it at another time, the recorded hold stands for the one after
        that.
        """
        extra = self._extra.get((action, target))
        if extra is not None and extra.until <= self._at:
            del self._extra[action, target]
            extra = None
        if recorded is not None and recorded.execution in self._missing:
            cause = recorded.execution
            self.diverged.append(f"{action} was held by {cause}, which does not happen now")
            return recorded if extra is not None else None
        if recorded is None and extra is not None:
            number = extra.iteration
            self.diverged.append(f"nothing tells how {action} of iteration {number} would end")
        return recorded

    def carry_execution(
        self,
        agent: Agent,
        record: LoopResult,
        recorded: Decision | None,
        replayed: Decision | None,
    ) -> None:
        """Carry what an iteration executes without a person, as *recorded* and as *replayed*."""
        before, after = _execution(agent, recorded), _execution(agent, replayed)
        for times, execution in ((self._then, before), (self._own, after)):
            if execution is not None:
                _add_time(times[_place(execution)], record.started_at)
        if before == after:
            return
        if before is not None:
            self._missing.add(naming.iteration_execution(record.id.partition(":")[2]))
            self._touch(agent, before[0], record)
        if after is not None:
            self._touch(agent, after[0], record)
            if agent.may_hold(after[0]) or after[0].in_flight_limit is not None:
                until = record.started_at + timedelta(seconds=_longest_hold(agent, after[0]))
                self._extra[_place(after)] = _Execution(record.iteration, until)

    def _touch(self, agent: Agent, action: Action, record: LoopResult) -> None:
        """Doubt the state of the plugins that may write it when an action is executed."""
        reason = f"{action.id} may have written state in iteration {record.iteration}"
        host = agent.host
        if "state" in names_in(host.plugins[action.plugin_id], getattr(action, "execute", None)):
            self._touched.setdefault(action.plugin_id, reason)
        for hook in host.hooks("on_after_act"):
            if "state" in names_in(host.plugins[hook.plugin_id], hook.taker.function):
                self._touched.setdefault(hook.plugin_id, reason)


def _execution(agent: Agent, decision: Decision | None) -> tuple[Action, str] | None:
    """The action of a decision with its target."""
    action = agent.host.actions.get(decision.action) if decision else None
    return (action, action.final_target(decision.params)) if action and decision else None


def _longest_hold(agent: Agent, action: Action) -> float:
    """The seconds after which an execution holds its action no more."""
    plan = agent.verification(action.id)
    return action.timeout + (plan.within + plan.repeat_after if plan else 0.0)


def _place(execution: tuple[Action, str]) -> Place:
    action, target = execution
    return action.id, target


def _add_time(times: list[datetime], at: datetime) -> None:
    """Add a time, and forget old ones."""
    times[:] = [past for past in times if past > at - _REMEMBERED] + [at]


def digests_by_plugin(record: LoopResult) -> dict[str, set[str]]:
    """The digests of what the recorded iteration wrote, by plugin."""
    digests = defaultdict(set)
    for (plugin_id, _), digest in _writes_then(record):
        digests[plugin_id].add(digest)
    return digests


def _writes_then(record: LoopResult) -> Iterator[tuple[Place, str]]:
    """The digests of what the recorded iteration wrote, the last of each key last."""
    for reads in record.reads:
        for key, digest in reads.writes.items():
            yield (_plugin_of(reads.by), key), digest


def _first_value(record: LoopResult, place: Place) -> Any:
    """The value of a key before the recorded iteration, if that was read there."""
    plugin_id, key = place
    values = (
        value_then(read)
        for reads in record.reads
        if _plugin_of(reads.by) == plugin_id
        for read in reads.reads
        if (read.of, read.key) == ("state", key)
    )
    return next(values, Missing.UNKNOWN)


def _plugin_of(by: str) -> str:
    """The plugin of a component, of a hook, or of state that was prefetched."""
    if ":" in by:
        return by.partition(":")[0]
    plugin_id, _, hook = by.rpartition(".")
    return plugin_id if hook in SPECIFICATIONS else by
