"""An agent: a named set of plugins with settings, from a TOML file or Python code."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator

from boyd.agent.agent_rules import Circumstances, Rules
from boyd.agent.observer_digests import judge_digest, observer_digest
from boyd.agent.procedure_plans import acting, compose
from boyd.agent.secret_rules import SecretRules
from boyd.errors import ConfigError, PluginError
from boyd.models import (
    AgentBuild,
    ApprovalPolicy,
    Budget,
    Catalog,
    Delegation,
    Duration,
    Mode,
    Sandbox,
    VerificationPlan,
    VerificationSettings,
)
from boyd.models.loop import Ticks
from boyd.plugin import Action, AgentInfo, Plugin, PluginHost, Procedure, ProcedurePlugin
from boyd.plugin.discovery import find_plugin, import_object, naming_plugin, version_of
from boyd.settings.intake_settings import DeclaredIntake, check_intakes, complete
from boyd.settings.model import ModelSettings
from boyd.settings.permissions import (
    AgentGroup,
    CronExpression,
    PermissionSettings,
    ProcedureName,
    ProcedureSettings,
    TimeZone,
)
from boyd.settings.schedules import Schedule
from boyd.settings.validation import mistakes, read_toml
from boyd.text.version import VERSION

_M = TypeVar("_M", bound=BaseModel)
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

#: Options by plugin and name.
PluginOptions = Mapping[str, Mapping[str, Any]]
#: Plugins that precede an agent's own, unless it sets `default_plugins`.
DEFAULT_PLUGINS = ("situation-priority",)
#: Seconds until an action without effect or budget may be repeated for the same symptoms.
REPEAT_AFTER = 3600.0


class HistorySettings(AgentGroup):
    """The number of iterations kept, and for how many seconds."""

    max_count: int = Field(default=500, gt=0)
    max_age: Duration = Field(default=30 * 86400.0, gt=0)


class RunSettings(AgentGroup):
    """The number of finished runs kept, and for how many seconds."""

    max_finished: int = Field(default=500, gt=0)
    retention: Duration = Field(default=86400.0, gt=0)


class PluginReference(AgentGroup):
    """A plugin as an agent file names it."""

    use: str = Field(min_length=1)
    id: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class AgentSettings(PermissionSettings):
    """The settings of an agent without its plugins.

    `loop_interval` is in seconds. A continuous agent ticks `loop_offset` seconds after its whole
    multiples, by default after a time that depends on the id; with `run_at_start` it starts its
    first iteration at once instead of after one interval. `schedule` has cron expressions, in
    `timezone`, by which iterations start in any mode. `llm` is the model that investigates;
    `delegation` says what other agents may do with this one; `intakes` say how messages of other
    systems are read, and how their senders authenticate.
    """

    id: str
    name: str = ""
    mode: Mode = "manual"
    loop_interval: Duration = Field(default=60.0, ge=0.05)
    loop_offset: Duration | None = Field(default=None, ge=0)
    run_at_start: bool = True
    schedule: list[CronExpression] = Field(default_factory=list)
    timezone: TimeZone = "UTC"
    history: HistorySettings = HistorySettings()
    runs: RunSettings = RunSettings()
    verification: dict[str, VerificationSettings] = Field(default_factory=dict)
    procedures: dict[ProcedureName, ProcedureSettings] = Field(default_factory=dict)
    llm: ModelSettings | None = None
    delegation: Delegation = Delegation()
    intakes: list[DeclaredIntake] = Field(default_factory=list)

    @property
    def ticks(self) -> Ticks:
        """The times of its ticks."""
        return Ticks.of(self.id, self.loop_interval, self.loop_offset)

    @field_validator("intakes", mode="before")
    @classmethod
    def _complete_intakes(cls, intakes: object) -> object:
        return [complete(intake) for intake in intakes] if isinstance(intakes, list) else intakes

    @field_validator("intakes")
    @classmethod
    def _readable(cls, intakes: list[DeclaredIntake]) -> list[DeclaredIntake]:
        return check_intakes(intakes)

    @field_validator("id")
    @classmethod
    def _usable(cls, id: str) -> str:
        if not _ID.fullmatch(id):
            raise ValueError(
                "it must have 1 to 63 lower-case letters, digits, `.`, `_` and `-`,"
                " and begin with a letter or digit"
            )
        return id

    @field_validator("schedule", mode="before")
    @classmethod
    def _several(cls, schedule: object) -> object:
        return [schedule] if isinstance(schedule, str) else schedule


class AgentFile(AgentSettings):
    """An agent file: the settings and the ordered plugins."""

    plugins: list[PluginReference] = Field(default_factory=list)
    plugins_dir: Path | None = None
    default_plugins: list[str] = Field(default=list(DEFAULT_PLUGINS))


class Agent:
    """An agent with its registered plugins; creating one starts nothing."""

    def __init__(
        self,
        id: str,
        *,
        plugins: Iterable[Plugin] = (),
        default_plugins: Iterable[str] = DEFAULT_PLUGINS,
        folder: Path = Path(),
        **settings: Any,
    ) -> None:
        """Check the settings and register the plugins.

        Paths of change freezes, and some of plugins, are relative to *folder*.

        Raises:
            ConfigError: a setting is unknown or invalid.
            PluginError: a plugin is invalid, or needs a model that the agent lacks.
        """
        self.settings = _validate(AgentSettings, {"id": id, **settings}, f"agent {id!r}")
        bundled = [_build(PluginReference(use=name)) for name in default_plugins]
        own = list(plugins)
        for plugin in own:
            with naming_plugin(plugin.id, "cannot be created"):
                plugin.use_folder(folder)
        self.host = PluginHost([*bundled, *_with_procedures(self.settings, own)])
        self._check_model()
        compose(self.host)
        self.rules = Rules(self.info, self.settings, self.host, folder)
        self.secrets = SecretRules(self.settings.secrets, self.host)
        self._sandboxes = {id: self._sandbox(id) for id in self.host.actions}

    def _check_model(self) -> None:
        for plugin in self.host.plugins.values():
            if plugin.needs_llm and self.settings.llm is None:
                reason = "needs a model: add the table [llm] to the agent file"
                raise PluginError(plugin.id, reason)

    @property
    def id(self) -> str:
        """The agent's id: the scope of every key, queue and metric."""
        return self.settings.id

    @property
    def info(self) -> AgentInfo:
        """The agent's identity for its plugins."""
        settings = self.settings
        return AgentInfo(settings.id, settings.name or settings.id, settings.mode)

    @property
    def fingerprint(self) -> str:
        """A digest of settings and plugins, equal on workers that run the same agent."""
        options = [
            f"{version_of(p).text} {p.options.model_dump_json(fallback=_stable)}{p.digest}"
            for p in self.host.plugins.values()
        ]
        parts = [self.settings.model_dump_json(), *options]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def build(self) -> AgentBuild:
        """The settings and plugins as they were loaded, for records of iterations."""
        plugins = [
            version_of(plugin).patched(self._observer_digests(plugin))
            for plugin in self.host.plugins.values()
        ]
        return AgentBuild.of(self.fingerprint, VERSION, plugins)

    def _observer_digests(self, plugin: Plugin) -> dict[str, str | None]:
        observers = [o for o in self.host.observers.values() if o.plugin_id == plugin.id]
        return {
            "observers": observer_digest(plugin, observers),
            "judges": judge_digest(plugin, observers),
        }

    @cached_property
    def state_keys(self) -> Mapping[str, dict[str, None]]:
        """The keys of the state that strategies read, by plugin, as far as they are known.

        Those that strategies declare; decisions of this process add those that were read.
        """
        keys: dict[str, dict[str, None]] = {}
        for strategy in self.host.strategies.values():
            keys.setdefault(strategy.plugin_id, {}).update(dict.fromkeys(strategy.state))
        return keys

    def code_of(self, action_id: str) -> str | None:
        """The plugins of an action and its steps with their versions, or digests of their files."""
        return self._codes.get(action_id)

    @cached_property
    def _codes(self) -> Mapping[str, str | None]:
        texts = {plugin.id: plugin.text for plugin in self.build.plugins}
        codes = {}
        for action in self.host.actions.values():
            steps = acting(action.steps) if isinstance(action, Procedure) else ()
            ids = {id.partition(":")[0] for id in (action.id, *(step.action for step in steps))}
            codes[action.id] = ", ".join(texts[id] for id in texts if id in ids) or None
        return codes

    @cached_property
    def catalog(self) -> Catalog:
        """Its components, with the limits that its settings set to actions."""
        catalog = self.host.catalog
        actions = [action.patched(self._limits(action.id)) for action in catalog.actions]
        return catalog.patched({"actions": actions})

    def _limits(self, action_id: str) -> dict[str, Any]:
        rule = self.settings.autonomy.get(action_id)
        return {
            "budget": self.budget(action_id),
            "verify": self.verification(action_id),
            "sandbox": self.sandbox(action_id),
            "windows": self.rules.windows_of(action_id),
            "alone_when": rule.when if rule else None,
            "earned": self.rules.earning_rule(action_id),
            "code": self.code_of(action_id),
        }

    def budget(self, action_id: str) -> Budget | None:
        """The budget of an action: from the agent's settings, or else the action's own."""
        own = self.host.actions.get(action_id)
        return self.settings.budgets.get(action_id) or (own.budget if own else None)

    def sandbox(self, action_id: str) -> Sandbox | None:
        """The sandbox of an action: its own, tightened by the agent's settings."""
        return self._sandboxes.get(action_id)

    def _sandbox(self, action_id: str) -> Sandbox | None:
        own, ours = self.host.actions[action_id].sandbox, self.settings.sandbox.get(action_id)
        if own is None or ours is None:
            return own or ours
        try:
            return own.tighten(ours)
        except ValueError as error:
            raise ConfigError(f"sandbox.{action_id}.{error}") from None

    def verification(self, action_id: str) -> VerificationPlan | None:
        """Return the plan to verify an action's effect, or None if it cannot be verified."""
        action = self.host.actions.get(action_id)
        if action is None or not action.has("verify"):
            return None
        ours = self.settings.verification.get(action_id, VerificationSettings())
        budget = self.budget(action_id)
        return VerificationPlan(
            within=ours.within or action.checks.within,
            every=ours.every or action.checks.every,
            sustained=action.checks.sustained if ours.sustained is None else ours.sustained,
            raises=action.checks.raises,
            in_flight=ours.in_flight or action.checks.in_flight,
            before=action.is_checked_before if ours.before is None else ours.before,
            hold=ours.hold,
            repeat_after=ours.repeat_after or (budget.window if budget else REPEAT_AFTER),
            roll_back=ours.roll_back,
        )

    def may_hold(self, action: Action) -> bool:
        """Report whether holds bind an action: a procedure, or one that is verified or confined."""
        constraint = self.verification(action.id) or self.sandbox(action.id)
        return constraint is not None or isinstance(action, Procedure)

    @property
    def schedule(self) -> Schedule | None:
        """The starts of its iterations by the clock, if it has any."""
        settings = self.settings
        return Schedule(tuple(settings.schedule), settings.timezone) if settings.schedule else None

    def policy(self, circumstances: Circumstances) -> ApprovalPolicy:
        """The policy for approving an action; `human-only` always requires a person."""
        required = self.rules.policy(circumstances)
        if circumstances.action.autonomy.mode == "human-only":
            return required.patched({"person": True})
        return required


def load_agent(
    reference: str, plugins_dir: Path | None = None, options: PluginOptions | None = None
) -> Agent:
    """Load an agent from a TOML file or `module:agent`.

    *plugins_dir* replaces the folder that the file names, and *options* some of its plugins' own.

    Raises:
        ConfigError: it cannot be read or is invalid.
        PluginError: one of its plugins cannot be used.
    """
    if reference.endswith(".toml"):
        return agent_from_file(Path(reference), plugins_dir, options)
    if plugins_dir or options:
        raise ConfigError(f"{reference}: only an agent file can take other plugins or options")
    value = import_object(reference) if ":" in reference else None
    if isinstance(value, Agent):
        return value
    raise ConfigError(
        f"{reference!r} is neither a .toml file nor the module:attribute of a boyd.Agent"
    )


def load_agents(references: Iterable[str]) -> dict[str, Agent]:
    """Load agents by id.

    Raises:
        ConfigError: there is none, two share an id, or one cannot be used.
        PluginError: a plugin cannot be used.
    """
    agents: dict[str, Agent] = {}
    for reference in references:
        agent = load_agent(reference)
        if agent.id in agents:
            raise ConfigError(f"{reference}: another agent already has the id {agent.id!r}")
        agents[agent.id] = agent
    if not agents:
        raise ConfigError("no agent given: name an agent file, or set BOYD_AGENTS")
    return agents


def agent_from_file(
    path: Path, plugins_dir: Path | None = None, options: PluginOptions | None = None
) -> Agent:
    """Read an agent file; *plugins_dir* replaces the folder that it names, *options* those there.

    Raises:
        ConfigError: it cannot be read or is invalid.
        PluginError: one of its plugins cannot be used.
    """
    file = _validate(AgentFile, read_toml(path), str(path))
    default_folder = path.parent / file.plugins_dir if file.plugins_dir else None
    chosen = plugins_dir or default_folder
    folder = chosen.resolve() if chosen else None
    if folder and not folder.is_dir():
        raise ConfigError(f"{path}: plugins_dir: no such folder: {folder}")
    plugins = [_build_with(options or {}, reference, folder) for reference in file.plugins]
    settings = {name: getattr(file, name) for name in AgentSettings.model_fields}
    try:
        return Agent(
            plugins=plugins, default_plugins=file.default_plugins, folder=path.parent, **settings
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _with_procedures(settings: AgentSettings, plugins: list[Plugin]) -> list[Plugin]:
    """The plugins, and that of the procedures if there are any."""
    declared = [part for plugin in plugins for part in plugin.components]
    if not settings.procedures and not any(isinstance(part, Procedure) for part in declared):
        return plugins
    own = [
        Procedure(
            name=name,
            title=procedure.title,
            description=procedure.description,
            params=procedure.model(name) if procedure.params else None,
            target=procedure.target,
            risk=procedure.risk,
            within=procedure.within,
            concurrency=procedure.concurrency,
            approve=procedure.approve,
            steps=procedure.steps,
        )
        for name, procedure in settings.procedures.items()
    ]
    return [*plugins, ProcedurePlugin(own)]


def _stable(value: object) -> str:
    """A text for a value that is not JSON, equal in every process."""
    return getattr(value, "__qualname__", type(value).__qualname__)


def _build_with(changes: PluginOptions, reference: PluginReference, folder: Path | None) -> Plugin:
    """The plugin, built again if *changes* has other options for its id."""
    plugin = _build(reference, folder)
    options = changes.get(plugin.id)
    if options is None:
        return plugin
    changed = {**reference.options, **options}
    return _build(reference.model_copy(update={"options": changed}), folder)


def _build(reference: PluginReference, folder: Path | None = None) -> Plugin:
    kind = find_plugin(reference.use, folder)
    with naming_plugin(reference.id or reference.use, "cannot be created"):
        plugin = kind(**reference.options)
    if reference.id:
        plugin.id = reference.id
    return plugin


def _validate(model: type[_M], values: dict[str, Any], where: str) -> _M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: {mistakes(error, model)}") from None
