"""The plugin `host-metrics`: CPU, memory, disks and load of the hosts of workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import psutil
from pydantic import BaseModel, ConfigDict, Field, model_validator

from boyd.models import Anomaly, Correlation, Model, Observation, Severity, SituationAssessment
from boyd.plugin import Context, Observer, Plugin, orienter
from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls
from boyd.text.formatting import counted

Measure = Literal["cpu", "memory", "disk", "load"]

#: Seconds in which a file system should say how full it is.
MOUNT_TIMEOUT = 3.0


class Thresholds(BaseModel):
    """The values from which a measure is reported.

    Attributes:
        warning: from here it is a warning.
        error: from here it is an error.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    warning: float = Field(ge=0)
    error: float = Field(ge=0)

    @model_validator(mode="after")
    def _check_order(self) -> Thresholds:
        if self.error < self.warning:
            raise ValueError("error must not be below warning")
        return self

    def severity(self, value: float) -> Severity:
        """The severity of a value."""
        if value >= self.error:
            return "error"
        return "warning" if value >= self.warning else "info"


class Exceeded(Model):
    """A measure of a host above a threshold, which `threshold` names."""

    host: str
    what: Measure
    value: float
    threshold: float
    severity: Severity
    mount: str | None = None

    @property
    def text(self) -> str:
        """The measure for people."""
        measure = f"{self.what} {self.mount}" if self.mount else self.what
        value = f"{self.value:g}{' per core' if self.what == 'load' else ' %'}"
        return f"{self.host}: {measure} {value} ({self.severity} from {self.threshold:g})"


class LoadEvidence(Model):
    """The evidence for strategies."""

    hosts: list[str]
    over: list[Exceeded]


class HostMetrics(Plugin):
    """Measures every live host and reports exceeded thresholds; decides nothing."""

    id = "host-metrics"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            interval: seconds between measurements in continuous mode.
            cpu_sample: seconds over which CPU use is measured.
            mounts: mount points of the file systems to measure.
            cpu: thresholds of CPU use, in percent.
            memory: thresholds of memory use, in percent.
            disk: thresholds of disk use, in percent.
            load: thresholds of the one-minute load average per core.
        """

        interval: float = Field(default=30.0, gt=0)
        cpu_sample: float = Field(default=0.1, gt=0, le=10)
        mounts: list[str] = Field(default=["/"])
        cpu: Thresholds = Thresholds(warning=85, error=95)
        memory: Thresholds = Thresholds(warning=85, error=95)
        disk: Thresholds = Thresholds(warning=85, error=95)
        load: Thresholds = Thresholds(warning=2, error=4)

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        observer = Observer(
            name="measure",
            description="Measure the host.",
            interval=self.options.interval,
            scope="every_host",
            observe=self.measure,
            judge=self.judge,
        )
        self.components = (observer,)
        self._calls = BoundedCalls()

    def observer_options(self) -> str:
        """All but the thresholds, with which `judge` compares."""
        return self.options.model_dump_json(exclude={"cpu", "memory", "disk", "load"})

    def measure(self, ctx: Context) -> list[Observation]:
        """Measure the host this runs on."""
        options = self.options
        cores = os.cpu_count() or 1
        return [
            self._metric(ctx, "cpu", psutil.cpu_percent(interval=options.cpu_sample)),
            self._metric(ctx, "memory", psutil.virtual_memory().percent),
            self._metric(ctx, "load", os.getloadavg()[0] / cores, cores=cores),
            *(self._disk(ctx, mount, used) for mount, used in self._disks().items()),
        ]

    def _disks(self) -> dict[str, float | Exception]:
        """The use of each mount in percent; one that is missing or hangs hides no other measure."""
        return self._calls.make(
            {
                mount: BoundedCall(partial(_disk_use, mount), MOUNT_TIMEOUT)
                for mount in self.options.mounts
            }
        )

    def _disk(self, ctx: Context, mount: str, used: float | Exception) -> Observation:
        if isinstance(used, Exception):
            error = getattr(used, "strerror", None) or str(used)
            return self._observation(ctx, "disk", "error", mount=mount, error=error)
        return self._metric(ctx, "disk", used, mount=mount)

    def _metric(self, ctx: Context, measure: Measure, value: float, **more: Any) -> Observation:
        return self._observation(ctx, measure, "info", value=round(value, 2), **more)

    def _observation(
        self, ctx: Context, measure: Measure, severity: Severity, **data: Any
    ) -> Observation:
        return Observation(
            source=f"{self.id}/{ctx.host}/{measure}",
            type="metric",
            severity=severity,
            timestamp=ctx.now(),
            data={"host": ctx.host, "what": measure, **data},
        )

    def judge(self, observations: list[Observation]) -> list[Observation]:
        """Compare what was measured with the thresholds."""
        return [o if _has_error(o) else self._compare(o) for o in observations]

    def _compare(self, observation: Observation) -> Observation:
        limits: Thresholds = getattr(self.options, str(observation.data["what"]))
        value: Any = observation.data["value"]
        data = {**observation.data, "thresholds": limits.model_dump()}
        return observation.model_copy(update={"severity": limits.severity(value), "data": data})

    @orienter()
    def analyze_hosts(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Find the exceeded thresholds."""
        own = [o for o in observations if o.source.startswith(f"{self.id}/")]
        measured = [o for o in own if not _has_error(o)]
        hosts = sorted({str(o.data["host"]) for o in own})
        over = [exceeded for o in measured if (exceeded := self._over(o))]
        lost = [
            f"{o.data['host']}: {o.data['mount']}: {o.data['error']}" for o in own if _has_error(o)
        ]
        return SituationAssessment(
            source=f"{self.id}:analyze_hosts",
            findings=[*(exceeded.text for exceeded in over), *lost] or [self._all_well(hosts, ctx)],
            confidence=0.9 if over or lost else 1.0,
            data=LoadEvidence(hosts=hosts, over=over).to_wire(),
            anomalies=[_anomaly(exceeded) for exceeded in over] or None,
            correlations=list(self._together(over)) or None,
        )

    def _all_well(self, hosts: list[str], ctx: Context) -> str:
        if hosts:
            within = counted(len(hosts), "host is", "hosts are")
            return f"{within} within {'its' if len(hosts) == 1 else 'their'} limits"
        due = f"{self.id}:measure" not in ctx.not_due
        return f"No host was {'measured' if due else 'due to be measured'} in this iteration"

    def _over(self, observation: Observation) -> Exceeded | None:
        data, thresholds = observation.data, observation.data["thresholds"]
        if observation.severity not in ("warning", "error") or not isinstance(thresholds, dict):
            return None
        fields = {name: data.get(name) for name in ("host", "what", "value", "mount")}
        fields |= {"threshold": thresholds[observation.severity], "severity": observation.severity}
        return Exceeded.model_validate(fields)

    def _together(self, over: list[Exceeded]) -> Iterator[Correlation]:
        for host in sorted({exceeded.host for exceeded in over}):
            sources = sorted(
                {f"{self.id}/{host}/{exceeded.what}" for exceeded in over if exceeded.host == host}
            )
            if len(sources) > 1:
                description = f"{host} exceeds several thresholds at once"
                yield Correlation(observations=sources, description=description, confidence=0.7)


def _disk_use(mount: str) -> float:
    return float(psutil.disk_usage(mount).percent)


def _has_error(observation: Observation) -> bool:
    return "error" in observation.data


def _anomaly(exceeded: Exceeded) -> Anomaly:
    return Anomaly(
        type=f"high-{exceeded.what}",
        description=exceeded.text,
        severity="high" if exceeded.severity == "error" else "medium",
        affected_resources=[exceeded.host],
    )
