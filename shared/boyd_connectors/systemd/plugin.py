"""The plugin `systemd`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from boyd.models import (
    ActionResult,
    Autonomy,
    EffectVerdict,
    JsonObject,
    Model,
    Observation,
)
from boyd.models.effect import EffectChecks
from boyd.plugin import Action, Connector, Context, Observer, Tool
from boyd.plugins.command import (
    SYSTEMCTL_TIMEOUT,
    CommandFailed,
    CommandTimeout,
    Systemctl,
    UnitName,
)
from boyd.plugins.results import difference, uncertain
from boyd.text.redaction import clean
from boyd_connectors.connector_parts import Sample, names_in_alarm
from boyd_connectors.systemd.journal import Journal, JournalPattern, PatternAlarm, PatternCounts

#: The types of units.
TYPES = (
    *(".service", ".socket", ".target", ".timer", ".mount", ".automount", ".swap", ".path"),
    *(".slice", ".scope", ".device"),
)
#: What is asked about each unit.
PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "Result", "NRestarts")
#: What tells which units a unit needs; it also wants many that it does without.
NEEDS = ("Requires", "Requisite", "BindsTo")
#: What is asked about a unit that is to be changed.
DETAILS = (
    *PROPERTIES,
    *("Type", "InvocationID", "ActiveEnterTimestampMonotonic", "RefuseManualStop", "MainPID"),
    *("ConsistsOf", "RequiredBy", "BoundBy"),
)


def _full(name: str) -> str:
    """The name with its type, as systemd adds it: a unit has one budget, not one per spelling."""
    return name if name.endswith(TYPES) else f"{name}.service"


class UnitParams(Model):
    """A unit, and the host that it runs on; a worker of another host refuses."""

    unit: Annotated[UnitName, AfterValidator(_full)]
    host: str = Field(default="", max_length=255)


class LogParams(UnitParams):
    """The number of lines, and how many minutes to look back."""

    lines: int = Field(default=50, ge=1, le=200)
    minutes: int = Field(default=60, ge=1, le=1440)


class UnitAccess(BaseModel):
    """The units that an action may change.

    Attributes:
        units: patterns of their names; without it, the units that are watched.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    units: list[str] = Field(default=["*.service"], min_length=1)


class SystemdActions(BaseModel):
    """The actions that are enabled.

    Attributes:
        restart: stop and start units.
        reset_failed: forget that units have failed, and their restarts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    restart: UnitAccess | None = None
    reset_failed: UnitAccess | None = None


class Systemd(Connector):
    """Watches units and the journal of every host, and restarts units."""

    id = "systemd"

    class Options(Connector.Options):
        """The plugin's options; times in seconds.

        Attributes:
            units: patterns of the units to watch, and to change unless an action names its own.
            user: use the systemd of the user instead of the system's.
            interval: between two looks at units and journal.
            restarts: automatic restarts within `restart_window` that make a loop.
            restart_window: see `restarts`.
            patterns: messages of the journal that are trouble at a rate.
            journal: a folder with journal files, in place of the host's journal.
            dependencies: also report which of these units need which others.
            settle: how long a restarted unit has to be active to count as effective.
            queue: the queue of the workers on the only host to watch and act on; none: all hosts.
            max_items: the most things that are reported one by one.
            actions: the actions, see below.
        """

        units: list[str] = Field(default=["*.service"], min_length=1)
        user: bool = False
        interval: float = Field(default=30.0, gt=0)
        restarts: int = Field(default=3, ge=1, le=1000)
        restart_window: float = Field(default=600.0, gt=0, le=86_400)
        patterns: list[JournalPattern] = Field(default_factory=list, max_length=50)
        journal: Path | None = None
        dependencies: bool = False
        settle: float = Field(default=5.0, ge=0, le=60)
        queue: str | None = None
        max_items: int = Field(default=20, ge=1, le=200)
        actions: SystemdActions = SystemdActions()

        @field_validator("patterns")
        @classmethod
        def _distinct(cls, patterns: list[JournalPattern]) -> list[JournalPattern]:
            if len({pattern.name for pattern in patterns}) < len(patterns):
                raise ValueError("each pattern needs a name of its own")
            return patterns

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        own = self.options
        self._all = UnitAccess(units=own.units)
        self._systemctl = Systemctl(user=own.user)
        self._journal = Journal(user=own.user, folder=own.journal)
        self.components = (
            self._observer("units", "Look for units that failed or restart again and again."),
            *([self._observer("journal", "Look for patterns.")] if own.patterns else []),
            self._tool("show_unit", "Show the state of a unit of this host.", UnitParams),
            self._tool("read_log", "Show the latest log lines of a unit.", LogParams),
            *(action for action in self._actions() if self.offers(action.name)),
        )

    def _observer(self, name: str, description: str) -> Observer:
        return Observer(
            name=name,
            description=description,
            interval=self.options.interval,
            queue=self.options.queue,
            scope="anywhere" if self.options.queue else "every_host",
            observe=getattr(self, name),
        )

    def _tool(self, name: str, description: str, params: type[Model]) -> Tool:
        return Tool(
            name=name,
            description=description,
            params=params,
            queue=self.options.queue,
            idempotent=True,
            run=getattr(self, name),
        )

    def _actions(self) -> tuple[Action, Action]:
        common = {"target": "unit", "queue": self.options.queue, "timeout": SYSTEMCTL_TIMEOUT + 30}
        restart = Action(
            name="restart",
            description="Stop a unit and start it again.",
            risk="medium",
            autonomy=Autonomy(mode="approval-required"),
            execute=self.restart,
            dry_run=self._would_restart,
            verify=self._is_restarted,
            checks=EffectChecks(within=60.0, every=2.0),
            **common,
        )
        reset = Action(
            name="reset_failed",
            description="Forget that a unit has failed, and how often it was restarted.",
            risk="low",
            reversibility="irreversible",
            idempotent=True,
            execute=self.reset_failed,
            dry_run=self._would_reset,
            verify=self._is_reset,
            checks=EffectChecks(within=20.0, every=2.0),
            **common,
        )
        return restart, reset

    def units(self, ctx: Context) -> list[Observation]:
        """Observe units that failed, and those that restart again and again."""
        more = NEEDS if self.options.dependencies else ()
        units = self._systemctl.show(self.options.units, (*PROPERTIES, *more))
        failed = [unit for unit in units if unit.get("ActiveState") == "failed"]
        looping = self._looping(ctx, units)
        data: list[JsonObject] = [
            {"unit": unit["Id"], "trouble": "failed", "result": unit.get("Result", "")}
            for unit in failed
        ]
        data += [{"unit": unit, "trouble": "restarts"} for unit in sorted(looping)]
        counts = {"units": len(units), "failed": len(failed), "restarting": len(looping)}
        return [
            *(
                self._observation(ctx, "unit", "error", row)
                for row in data[: self.options.max_items]
            ),
            self._observation(ctx, "units", "info", {**counts, "omitted": self._excess(len(data))}),
            *([self._dependencies(ctx, units)] if self.options.dependencies else []),
        ]

    def _dependencies(self, ctx: Context, units: list[dict[str, str]]) -> Observation:
        """The units that each watched unit needs, of those that are watched, too."""
        names = {unit["Id"] for unit in units}
        needs = {
            unit["Id"]: sorted(names & {other for key in NEEDS for other in unit[key].split()})
            for unit in units
        }
        depends_on: JsonObject = {
            f"{unit}/{ctx.host}": [f"{other}/{ctx.host}" for other in others]
            for unit, others in needs.items()
            if others
        }
        return self._observation(ctx, "dependencies", "info", {"dependsOn": depends_on})

    def _looping(self, ctx: Context, units: list[dict[str, str]]) -> set[str]:
        """The units whose automatic restarts are a loop: too many, until less than half are."""
        now, window = ctx.now().timestamp(), self.options.restart_window
        limit = self.options.restarts
        counters = {unit["Id"]: int(unit.get("NRestarts") or 0) for unit in units}

        def change(stored: Any) -> dict[str, list[list[float]]]:
            samples = {}
            for unit, count in counters.items():
                # Counters begin at 0, which is not kept; those of the first look are older.
                past = list((stored or {}).get(unit, ()))
                while len(past) > 1 and now - past[1][0] >= window:
                    past.pop(0)
                is_new = stored is not None and not past
                if is_new or (past and past[-1][1] > count):  # or it was reset
                    past = [[now, 0]] if count else []
                if count or past:
                    grown = not past or past[-1][1] < count
                    samples[unit] = [*past, *([[now, count]] if grown else [])][-limit - 1 :]
            return samples

        history = ctx.state.update(f"restarts/{ctx.host}", change)
        grown = {
            unit: Sample(past[-1][1] - past[0][1], limit, limit / 2)
            for unit, past in history.items()
        }
        return names_in_alarm(ctx, f"loops/{ctx.host}", grown, 1)

    def journal(self, ctx: Context) -> list[Observation]:
        """Observe messages that units log too often, from the end of the last look on."""
        key = f"journal/{ctx.host}"
        before = ctx.state.get(key)
        counts = PatternCounts(self.options.patterns, before)
        cursor, behind = (before or {}).get("cursor"), False
        if cursor is None:
            cursor = self._journal.end()
        else:
            reading = self._journal.after(cursor)
            counts.add(reading.entries)
            cursor = reading.entries[-1].cursor if reading.entries else cursor
            behind = reading.behind
        alarms = list(counts.alarms(self._journal.now()))
        # Another worker that looked meanwhile has counted the same messages.
        ctx.state.compare_and_set(key, before, {"cursor": cursor, **counts.to_state()})
        return [
            *(self._alarm(ctx, alarm, counts) for alarm in alarms[: self.options.max_items]),
            self._observation(
                ctx,
                "journal",
                "warning" if behind else "info",
                {"alarms": len(alarms), "omitted": self._excess(len(alarms)), "behind": behind},
            ),
        ]

    def _alarm(self, ctx: Context, alarm: PatternAlarm, counts: PatternCounts) -> Observation:
        data: JsonObject = {"unit": alarm.unit, "pattern": alarm.pattern.name}
        sample = counts.samples.get(f"{alarm.pattern.name}|{alarm.unit}", "")
        observation = self._observation(ctx, "pattern", alarm.pattern.severity, data)
        more: JsonObject = {"matches": alarm.matches, "message": clean(sample)}
        return observation.model_copy(update={"metadata": more})

    def _observation(self, ctx: Context, kind: str, severity: Any, data: JsonObject) -> Observation:
        return Observation(
            source=f"{self.id}/{kind}",
            type="state",
            severity=severity,
            timestamp=ctx.now(),
            data={**data, "host": ctx.host},
        )

    def _excess(self, count: int) -> int:
        return max(0, count - self.options.max_items)

    def restart(self, params: UnitParams, ctx: Context) -> JsonObject | ActionResult:
        """Stop a unit and start it again."""
        before = self._unit("restart", params, ctx)
        return self._change("restart", before)

    def reset_failed(self, params: UnitParams, ctx: Context) -> JsonObject | ActionResult:
        """Forget that a unit has failed."""
        before = self._unit_to_reset(params, ctx)
        return self._change("reset-failed", before)

    def _change(self, verb: str, before: Mapping[str, str]) -> JsonObject | ActionResult:
        unit = before["Id"]
        details: JsonObject = {
            "unit": unit,
            "was": before["ActiveState"],
            "invocation": before["InvocationID"],
        }
        try:
            self._systemctl.check_call(verb, "--", unit)
        except CommandFailed as error:
            # Over time the job goes on; without systemd nobody knows what became of it.
            if isinstance(error, CommandTimeout) or not self._answers(unit):
                return uncertain(error, details)
            raise
        return details

    def _answers(self, unit: str) -> bool:
        try:
            return bool(self._systemctl.show([unit], ("Id",)))
        except CommandFailed:
            return False

    def _would_restart(self, params: UnitParams, ctx: Context) -> JsonObject:
        unit = self._unit("restart", params, ctx)
        before = {"state": f"{unit['ActiveState']} ({unit['SubState']})", "pid": unit["MainPID"]}
        also = {other for name in DETAILS[-3:] for other in unit.get(name, "").split()}
        after = {"state": "active", "pid": "another one"}
        return {
            "difference": [*difference(before, after, unit["Id"]).splitlines()],
            "may restart with it": " ".join(sorted(also)[: self.options.max_items]) or "nothing",
        }

    def _would_reset(self, params: UnitParams, ctx: Context) -> JsonObject:
        unit = self._unit_to_reset(params, ctx)
        before = {"state": "failed", "restarts": unit["NRestarts"]}
        text = difference(before, {"state": "inactive", "restarts": "0"}, unit["Id"])
        return {"difference": [*text.splitlines()]}

    def _is_restarted(self, params: UnitParams, result: Any, ctx: Context) -> EffectVerdict:
        unit = self._show(params, ctx)
        state = f"{unit['Id']} is {unit['ActiveState']} ({unit['SubState']})"
        output = result.output if result and isinstance(result.output, Mapping) else {}
        if "invocation" not in output:
            text = f"{state}; whether it was started anew is not known"
            return EffectVerdict(verdict="cannot tell", evidence=text, final=False)
        if unit["InvocationID"] == output["invocation"]:
            return EffectVerdict(verdict="no effect", evidence="it was not started", final=False)
        done = unit["Type"] == "oneshot" and unit["Result"] == "success"
        began = int(unit["ActiveEnterTimestampMonotonic"] or 0) / 1e6
        lasts = time.clock_gettime(time.CLOCK_MONOTONIC) - began >= self.options.settle
        if unit["ActiveState"] == "active" and (lasts or done):
            return EffectVerdict(verdict="effective", evidence=state)
        if unit["ActiveState"] == "inactive" and done:
            return EffectVerdict(verdict="effective", evidence=f"{unit['Id']} has run")
        return EffectVerdict(verdict="no effect", evidence=state, final=False)

    def _is_reset(self, params: UnitParams, ctx: Context) -> bool:
        return self._show(params, ctx)["ActiveState"] != "failed"

    def show_unit(self, params: UnitParams, ctx: Context) -> JsonObject:
        """The state of a unit."""
        return dict(self._unit_to_show(params, ctx))

    def read_log(self, params: LogParams, ctx: Context) -> str:
        """The latest lines that a unit has logged."""
        unit = self._unit_to_show(params, ctx)["Id"]
        return clean(self._journal.lines(unit, params.lines, params.minutes))

    def _unit_to_show(self, params: UnitParams, ctx: Context) -> dict[str, str]:
        return self._unit_within(params, ctx, self._all)

    def _unit_to_reset(self, params: UnitParams, ctx: Context) -> dict[str, str]:
        unit = self._unit("reset_failed", params, ctx)
        if unit["ActiveState"] != "failed":
            raise ValueError(f"{unit['Id']} has not failed: it is {unit['ActiveState']}")
        return unit

    def _unit(self, action: str, params: UnitParams, ctx: Context) -> dict[str, str]:
        """The unit, if *action* may change it now."""
        unit = self._unit_within(params, ctx, self.access_of(action, self._all))
        if unit["Id"] != params.unit:
            raise LookupError(f"{params.unit} is another name of {unit['Id']}: use that")
        if action == "restart" and unit["RefuseManualStop"] == "yes":
            raise PermissionError(f"{unit['Id']} may not be stopped by hand (RefuseManualStop)")
        return unit

    def _unit_within(self, params: UnitParams, ctx: Context, access: UnitAccess) -> dict[str, str]:
        unit = self._show(params, ctx)
        if not any(fnmatchcase(unit["Id"], pattern) for pattern in access.units):
            allowed = ", ".join(access.units)
            raise PermissionError(f"{unit['Id']} is not among the units of the options: {allowed}")
        if unit["LoadState"] != "loaded":
            raise LookupError(f"{unit['Id']} is {unit['LoadState']} on {ctx.host}")
        return unit

    def _show(self, params: UnitParams, ctx: Context) -> dict[str, str]:
        if params.host not in ("", ctx.host):
            raise ValueError(
                f"{params.unit} is on {params.host}, this worker on {ctx.host}: use the plugin "
                f"once for each host, with queue = 'host.{params.host}'"
            )
        [unit] = self._systemctl.show([params.unit], DETAILS)
        return {name: unit.get(name, "") for name in DETAILS}
