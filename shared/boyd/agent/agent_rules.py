"""The rules of an agent that decide whether an action runs alone: conditions, windows, budgets.

They depend only on the settings, the calendars and the circumstances, so that the same decision can
be judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic.errors import PydanticInvalidForJsonSchema

from boyd.agent.change_calendar import CalendarError, ChangeCalendar, ChangeFreeze
from boyd.agent.conditions import Condition, ConditionError, Language, names_of
from boyd.errors import ConfigError
from boyd.models import (
    LEVELS,
    ApprovalPolicy,
    Budget,
    CallScope,
    Decision,
    EarnedAutonomy,
    Situation,
    SituationClass,
    TrackRecord,
    Vote,
)
from boyd.plugin import Action, AgentInfo, PluginHost
from boyd.plugin.plugin_boundary import params_to_json, validate
from boyd.settings.permissions import PermissionSettings, PolicyRule, Window, matches_any
from boyd.settings.validation import saying

#: The names that every condition knows besides the params, with their types.
NAMES = {
    "action.id": "string",
    "action.plugin": "string",
    "action.risk": "string",
    "action.target": "string",
    "agent.id": "string",
    "agent.mode": "string",
    "decision.confidence": "double",
    "decision.risk": "string",
    "situation.priority": "string",
    "situation.confidence": "double",
    "situation.summary": "string",
    "situation.anomalies": "list(map)",
    "now": "timestamp",
}

#: Openings by the hours that are tried until one is free of change freezes.
_MOST = 100


class Circumstances:
    """An action that was decided on, in its situation and at its time."""

    def __init__(
        self,
        action: Action,
        decision: Decision,
        situation: Situation,
        clock: Callable[[], datetime],
        records: Callable[[Circumstances], TrackRecord | None] | None = None,
        undoes: bool = False,
    ) -> None:
        """The circumstances of *action*, or with *undoes* of a rollback of it."""
        self.action = action
        self.decision = decision
        self.situation = situation
        self._clock = clock
        self._records = records
        self.undoes = undoes

    @cached_property
    def now(self) -> datetime:
        """The time, the same for all rules."""
        return self._clock()

    @cached_property
    def record(self) -> TrackRecord | None:
        """The track record of the action in such situations, if it is known."""
        return self._records(self) if self._records else None

    @cached_property
    def scope(self) -> CallScope:
        """The targets and the other params of the call."""
        try:
            params = self.params
        except Exception:  # noqa: BLE001 - also of the plugin's own validation
            params = self.decision.params
        anomalies = self.situation.anomalies_for(self.action.plugin_id)
        resources = {r for anomaly in anomalies for r in anomaly.affected_resources or ()}
        return CallScope.of(self.action.target, params, resources)

    @cached_property
    def situation_class(self) -> SituationClass:
        """The class in whose track record it counts."""
        return SituationClass.of(self.situation, self.action.plugin_id, self.scope)

    @property
    def is_critical(self) -> bool:
        """True if the action, the decision or the situation is critical, so that nothing waits."""
        levels = {self.action.risk, self.decision.risk, self.situation.priority}
        return "critical" in levels | {anomaly.severity for anomaly in self.situation.anomalies}

    @property
    def at(self) -> datetime | None:
        """The time, if any rule asked for it."""
        return self.__dict__.get("now")

    @cached_property
    def params(self) -> Mapping[str, Any]:
        """The params as they would be executed.

        Raises:
            ValueError: they are invalid.
        """
        return params_to_json(validate(self.action, self.decision.params))


@dataclass(frozen=True)
class WindowState:
    """The state of a window; `closed` is the reason if it is, `waits` if the action then waits."""

    name: str
    closed: str | None = None
    waits: bool = False


class AgentWindows:
    """The windows of one agent, with their calendars."""

    def __init__(self, windows: list[Window], folder: Path) -> None:
        """Paths of calendars are relative to *folder*."""
        self._windows = windows
        self._calendars = {
            (window.freezes, window.timezone): ChangeCalendar(
                folder / window.freezes, window.timezone
            )
            for window in windows
            if window.freezes
        }

    def of(self, action: str) -> Iterator[tuple[str, Window]]:
        """The windows of an action by their places in the settings."""
        for number, window in enumerate(self._windows):
            if matches_any(window.actions, action):
                yield f"windows.{number}", window

    @property
    def calendars(self) -> list[Path]:
        """The files with change freezes."""
        return [calendar.path for calendar in self._calendars.values()]

    def problems(self) -> Iterator[str]:
        """Yield the calendars that cannot be read now, with their errors."""
        for calendar in self._calendars.values():
            try:
                calendar.check()
            except CalendarError as error:
                yield f"change freezes: {error}; actions in their windows need a person"

    def state(self, name: str, window: Window, now: datetime) -> WindowState:
        """The state of a window.

        Raises:
            CalendarError: its calendar cannot be read.
        """
        try:
            cause = self._why_closed(window, now)
            if cause is None:
                return WindowState(name)
            opening = self._opening(window, now)
        except CalendarError as error:
            raise CalendarError(f"window {name!r} is closed: {error}") from None
        opens = f"it opens {_local(opening, window)}" if opening else "its opening is not in sight"
        reason = f"window {name!r} is closed: {cause}; {opens}"
        return WindowState(name, reason, window.outside == "wait")

    def _why_closed(self, window: Window, now: datetime) -> str | None:
        freeze = self._freeze(window, now)
        if freeze:
            return f"change freeze {freeze.title!r} until {_local(freeze.until, window)}"
        return None if window.is_open(now) else "outside its hours"

    def _opening(self, window: Window, now: datetime) -> datetime | None:
        """Return the next time at which a closed window is open, if that is in sight."""
        at: datetime | None = now
        for _ in range(_MOST):
            if at is not None and not window.is_open(at):
                at = window.opens(at)
            if at is None:
                return None
            freeze = self._freeze(window, at)
            if freeze is None:
                return at
            at = freeze.until
        return None

    def _freeze(self, window: Window, at: datetime) -> ChangeFreeze | None:
        if window.freezes is None:
            return None
        return self._calendars[window.freezes, window.timezone].freeze(at)


def _local(at: datetime, window: Window) -> str:
    """A time as people in the window's zone write it, in full minutes."""
    full = at + timedelta(seconds=-at.second % 60)
    return f"{full.astimezone(ZoneInfo(window.timezone)):%Y-%m-%d %H:%M} {window.timezone}"


class Undecided(ValueError):
    """A rule cannot be evaluated: ask a person."""


class Rules:
    """The rules of one agent."""

    def __init__(
        self, agent: AgentInfo, settings: PermissionSettings, host: PluginHost, folder: Path
    ) -> None:
        """Compile the conditions; paths of calendars are relative to *folder*.

        Raises:
            ConfigError: a condition is invalid.
        """
        self._agent = agent
        self._settings = settings
        self._host = host
        self._languages: dict[str, Language] = {}
        self._conditions: dict[tuple[str, str], Condition] = {}
        for key, text, actions in self._texts():
            for action in actions if text is not None else ():
                self._conditions[key, action] = self._compile(key, text or "", action)
        self._windows = AgentWindows(settings.windows, folder)
        for id in settings.autonomy.keys() & host.actions.keys():
            self._check_record(host.actions[id])

    def policy(self, circumstances: Circumstances) -> ApprovalPolicy:
        """The policy for approving an action; if its condition cannot be evaluated, of a person."""
        rule, doubt = self._policy_rule(circumstances)
        if rule is None:
            return self._settings.approvals.required
        return rule.required.patched({"person": True}) if doubt else rule.required

    @property
    def withdraws_resolved(self) -> bool:
        """True if a policy withdraws approvals whose problem has ended."""
        approvals = self._settings.approvals
        policies = [approvals.required, *(rule.required for rule in approvals.policies)]
        return any(policy.on_resolved == "withdraw" for policy in policies)

    def strictest_policy(self, action: Action) -> ApprovalPolicy:
        """A policy at least as strict as each that may apply to an action, as far as one can be."""
        possible = list(self._possible_policies(action))
        limited = [policy for policy in possible if policy.groups or policy.principals]
        return next(iter([*limited, *possible])).patched(
            {
                "min_approvals": max(policy.min_approvals for policy in possible),
                "person": any(policy.person for policy in possible),
                "require_note": any(policy.require_note for policy in possible),
                "allow_requester": all(policy.allow_requester for policy in possible),
            }
        )

    def allows(self, action: Action, votes: list[Vote]) -> bool:
        """Report whether votes satisfy every policy that may apply to an action."""
        return all(policy.is_met_by(votes) for policy in self._possible_policies(action))

    def _possible_policies(self, action: Action) -> Iterator[ApprovalPolicy]:
        """The policies for an action, whatever the situation, params and decision are."""
        approvals = self._settings.approvals
        for _, policy in approvals.possible_policies(action.id, action.reversibility):
            yield policy

    def policy_doubt(self, circumstances: Circumstances) -> str | None:
        """Return why the condition of an action's policy cannot be evaluated, if so."""
        return self._policy_rule(circumstances)[1]

    def policy_situation(self, situation: Situation) -> Situation | None:
        """Return the parts of a situation that policies depend on, if there are any."""
        if not any(rule.when for rule in self._settings.approvals.policies):
            return None
        return situation.patched({"assessments": [], "correlations": []})

    def _policy_rule(self, circumstances: Circumstances) -> tuple[PolicyRule | None, str | None]:
        # A decision may raise the action's risk but not lower it.
        risk = max(circumstances.action.risk, circumstances.decision.risk, key=LEVELS.index)
        for number, rule in enumerate(self._settings.approvals.policies):
            if rule.fits(circumstances.action.id, risk, circumstances.action.reversibility):
                try:
                    if self._is_true(_policy(number), rule.when, circumstances):
                        return rule, None
                except Undecided as doubt:
                    return rule, str(doubt)
        return None, None

    def budget(self, circumstances: Circumstances) -> Budget | None:
        """The budget that limits an action: the agent's, or else the action's own.

        Raises:
            Undecided: the condition of one cannot be evaluated.
        """
        id = circumstances.action.id
        for key, budget in (
            (_budget(id), self._settings.budgets.get(id)),
            (_own_budget(id), circumstances.action.budget),
        ):
            if budget and self._is_true(key, budget.when, circumstances):
                return budget
        return None

    def reason_to_ask(self, circumstances: Circumstances) -> str | None:
        """Return why the autonomy of an action does not let it run alone, if so.

        Raises:
            Undecided: its condition cannot be evaluated.
        """
        rule = self._settings.autonomy.get(circumstances.action.id)
        if rule is None or self._is_true(
            _autonomy(circumstances.action.id), rule.when, circumstances
        ):
            return None
        return f"{_autonomy(circumstances.action.id)} is false: {rule.when}"

    def earning_rule(self, action: str) -> EarnedAutonomy | None:
        """Return the rule by which an action earns to run alone, or None if it need not."""
        rule = self._settings.autonomy.get(action)
        return rule.earning_rule if rule else None

    def calibrates(self, action: str) -> bool:
        """Report whether the calibrated confidence in an action counts."""
        rule = self._settings.autonomy.get(action)
        return rule is not None and rule.confidence == "calibrated"

    def windows_of(self, action: str) -> list[str]:
        """The names of the windows of an action."""
        return [window.name or place for place, window in self._windows.of(action)]

    def windows(self, circumstances: Circumstances) -> list[WindowState]:
        """The windows that count for an action.

        Raises:
            Undecided: a condition cannot be evaluated, or a calendar cannot be read.
        """
        counting = [
            (window.name or place, window)
            for place, window in self._windows.of(circumstances.action.id)
            if self._is_true(f"{place}.when", window.when, circumstances)
        ]
        try:
            return [
                self._windows.state(name, window, circumstances.now) for name, window in counting
            ]
        except CalendarError as error:
            raise Undecided(str(error)) from None

    @property
    def calendars(self) -> list[Path]:
        """The files with change freezes."""
        return self._windows.calendars

    def problems(self) -> Iterator[str]:
        """Yield the calendars that cannot be read now, with their errors."""
        return self._windows.problems()

    # Conditions

    def _texts(self) -> Iterator[tuple[str, str | None, list[str]]]:
        """The conditions by their places in the settings, with the actions they are about."""
        for number, rule in enumerate(self._settings.approvals.policies):
            yield _policy(number), rule.when, self._matching(rule.actions)
        for number, window in enumerate(self._settings.windows):
            yield f"windows.{number}.when", window.when, self._matching(window.actions)
        for id, budget in self._settings.budgets.items():
            yield _budget(id), budget.when, [id]
        for id, autonomy in self._settings.autonomy.items():
            yield _autonomy(id), autonomy.when, [id]
        for id, action in self._host.actions.items():
            if action.budget:
                yield _own_budget(id), action.budget.when, [id]

    def _check_record(self, action: Action) -> None:
        """Check that an action can have the track record on which its autonomy depends."""
        place, earned = f"autonomy.{action.id}", self.earning_rule(action.id) is not None
        if earned and action.autonomy.mode == "human-only":
            raise ConfigError(f"{place}.mode: human-only actions cannot earn autonomy")
        if (earned or self.calibrates(action.id)) and not action.has("verify"):
            raise ConfigError(f"{place}: the action needs a `verify`, or its effects stay unknown")
        rule = self.earning_rule(action.id)
        obstacle = _obstacle_to_wait(action)
        if rule and rule.require_uplift and obstacle:
            raise ConfigError(f"{place}.require_uplift: {obstacle}; set it to false")
        if self.calibrates(action.id) and action.autonomy.min_confidence is None:
            raise ConfigError(f"{place}.confidence: the action has no min_confidence")

    def _matching(self, patterns: list[str]) -> list[str]:
        # A rule without actions is read too, to find mistakes.
        return [id for id in self._host.actions if matches_any(patterns, id)] or [""]

    def _compile(self, key: str, text: str, action: str) -> Condition:
        try:
            return self._language(action).compile(text)
        except ConditionError as error:
            about = f" (for {action})" if action else ""
            raise ConfigError(f"{key}: {error}{about}") from None

    def _language(self, action: str) -> Language:
        if action not in self._languages:
            params = names_of(_schema(self._host.actions.get(action)))
            self._languages[action] = Language(NAMES | params)
        return self._languages[action]

    def _is_true(self, key: str, text: str | None, circumstances: Circumstances) -> bool:
        if text is None:
            return True
        try:
            condition = self._conditions[key, circumstances.action.id]
            return condition.is_true(self._values(circumstances))
        except Exception as error:  # noqa: BLE001 - also of the plugin's own validation of params
            raise Undecided(f"{key} cannot be evaluated: {saying(error)}") from None

    def _values(self, circumstances: Circumstances) -> dict[str, Any]:
        action, situation = circumstances.action, circumstances.situation
        return {
            "action.id": action.id,
            "action.plugin": action.plugin_id,
            "action.risk": action.risk,
            "action.target": action.target_of(circumstances.params),
            "agent.id": self._agent.id,
            "agent.mode": self._agent.mode,
            "decision.confidence": circumstances.decision.confidence,
            "decision.risk": circumstances.decision.risk,
            "situation.priority": situation.priority,
            "situation.confidence": situation.confidence,
            "situation.summary": situation.summary,
            "situation.anomalies": [anomaly.to_wire() for anomaly in situation.anomalies],
            "now": circumstances.now,
            "params": circumstances.params,
            **{f"params.{name}": value for name, value in circumstances.params.items()},
        }


def _obstacle_to_wait(action: Action) -> str | None:
    """The obstacle to ever letting a case wait before the action, if there is one."""
    if action.risk == "critical":
        return "the action is critical, so no case ever waits for it"
    if not action.is_checked_before:
        return "its `verify` takes the result, so nobody can tell what is well without the action"
    return None


def _policy(number: int) -> str:
    return f"approvals.policies.{number}.when"


def _budget(action: str) -> str:
    return f"budgets.{action}.when"


def _autonomy(action: str) -> str:
    return f"autonomy.{action}.when"


def _own_budget(action: str) -> str:
    return f"action {action}: budget.when"


def _schema(action: Action | None) -> dict[str, Any] | None:
    """Return the JSON Schema of an action's params as they are stored, if they are described."""
    if action is None or action.params is None:
        return None
    try:
        return action.params.model_json_schema(by_alias=True, mode="serialization")
    except PydanticInvalidForJsonSchema:
        return None
