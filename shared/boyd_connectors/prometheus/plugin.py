"""The plugin `prometheus`: it observes what Prometheus knows, and silences alerts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from boyd.models import ActionResult, EffectVerdict, JsonObject, Model, Observation
from boyd.plugin import Connector, Context, Observer, action, tool
from boyd.plugins.http_service import HttpAccess, HttpService, ServiceError, StateError, change
from boyd.plugins.results import difference
from boyd.settings.validation import BaseUrl
from boyd_connectors.connector_parts import CheckReport, Sample, SeparateReads, names_in_alarm
from boyd_connectors.prometheus.alerts import (
    Alertmanager,
    ExpireSilenceParams,
    Series,
    SilenceParams,
    WatchedQuery,
    alert_data,
    beyond,
    is_as_made,
    is_over,
    matchers_of,
    new_silence,
    number,
    parse_matchers,
    selector,
    series_in,
    series_of,
    severity_of,
)

#: The most series, and points of each, that a tool returns.
MAX_SERIES, MAX_POINTS = 50, 60
MAX_ERROR = 300
#: The kind of observation with the results of a query, and the most series in one, the worst ones.
VALUES, MAX_VALUES = "values", 100
#: Answers to a query that is wrong, or fails; others say that Prometheus is in trouble.
_QUERY_ERRORS = (400, 422)
#: Seconds of a look at queries, and those after which no other query is begun.
TIME, READ_TIME = 120.0, 55.0


class PrometheusActions(BaseModel):
    """The actions to enable, with the credentials of each for Alertmanager."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    silence: HttpAccess | None = None
    expire_silence: HttpAccess | None = None


class PromqlParams(Model):
    """A query in PromQL."""

    expr: str = Field(min_length=1, max_length=5000)


class PromqlRangeParams(PromqlParams):
    """A query in PromQL, and how many seconds it looks back."""

    seconds: int = Field(default=3600, ge=60, le=2_678_400)


class Prometheus(Connector):
    """Observes queries, targets and alerts; silences alerts if its options enable that."""

    id = "prometheus"

    class Options(Connector.Options):
        """The plugin's options.

        Attributes:
            url: of Prometheus, or of what has its HTTP API.
            access: credentials for Prometheus.
            alertmanager_url: of Alertmanager; without it alerts are those of Prometheus, among them
                silenced ones, and nothing can be silenced.
            alertmanager_access: credentials for Alertmanager.
            queries: the queries to watch.
            target_samples: how many checks in a row a target must be down.
            interval: seconds between checks in continuous mode.
            timeout: seconds one request may take.
            max_items: the most things in trouble that are observed of each kind.
            max_silence: the most seconds of a silence.
            actions: the actions to enable.
        """

        url: BaseUrl
        access: HttpAccess = HttpAccess()
        alertmanager_url: BaseUrl | None = None
        alertmanager_access: HttpAccess = HttpAccess()
        queries: list[WatchedQuery] = Field(default_factory=list, max_length=100)
        target_samples: int = Field(default=2, ge=1, le=100)
        interval: float = Field(default=30.0, gt=0)
        timeout: float = Field(default=10.0, gt=0, le=60)
        max_items: int = Field(default=50, ge=1, le=1000)
        max_silence: int = Field(default=14_400, ge=60, le=604_800)
        actions: PrometheusActions = PrometheusActions()

        @field_validator("queries")
        @classmethod
        def _distinct(cls, queries: list[WatchedQuery]) -> list[WatchedQuery]:
            if len({query.name for query in queries}) < len(queries):
                raise ValueError("each query needs a name of its own")
            return queries

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        observers = {
            "queries": ("Read queries, and compare their results.", self.queries),
            "targets": ("Find targets that are down.", self.targets),
            "alerts": ("Find alerts that fire.", self.alerts),
        }
        self.components = [
            Observer(
                name=name,
                description=description,
                interval=self.options.interval,
                timeout=TIME if name == "queries" else 30.0,
                observe=observe,
                judge=self.compare if name == "queries" else None,
            )
            for name, (description, observe) in observers.items()
        ]
        self._reads = SeparateReads(READ_TIME)
        self._service = HttpService(
            self.options.url, self.options.access, timeout=self.options.timeout
        )

    # Observers

    def observer_options(self) -> str:
        """All but the thresholds of queries, with which `compare` compares."""
        thresholds = {"above", "below", "clear", "samples", "severity"}
        sides = [query.above is not None for query in self.options.queries]
        others = self.options.model_dump_json(exclude={"queries": {"__all__": thresholds}})
        return f"{others} {sides}"

    def queries(self, ctx: Context) -> list[Observation]:
        """Read the results of queries, the worst series of each."""
        report, total = self._report(ctx), 0
        values: list[Observation] = []
        queries = {query.name: query for query in self.options.queries}
        results, lost = self._reads.make(queries, lambda name: self._read(queries[name], ctx))
        for name, error in lost.items():
            report.add("query", "error", {"query": name, "error": error})
        for name, (answer, series) in results.items():
            query = queries[name]
            if isinstance(answer, Exception):
                report.add("query", "error", {"query": name, "error": str(answer)})
                continue
            if doubt := _doubt(answer):
                report.add("query", "warning", {"query": query.name, "error": doubt})
            total += len(series)
            if series:
                values.append(self._values(ctx, query, series))
            elif query.needs_data:
                report.add("query", "warning", {"query": query.name, "error": "yields no data"})
        *troubles, summary = report.observations(
            "queries", queries=len(self.options.queries), series=total
        )
        return [*troubles, *values, summary]

    def _values(self, ctx: Context, query: WatchedQuery, series: list[Series]) -> Observation:
        worst = [item.to_wire() for item in query.worst_first(series)[:MAX_VALUES]]
        return Observation(
            source=f"{self.id}/{VALUES}",
            type="metric",
            severity="info",
            timestamp=ctx.now(),
            data={"query": query.name, "series": list(worst)},
        )

    def compare(self, observations: list[Observation], ctx: Context) -> list[Observation]:
        """Compare the results of queries with their thresholds."""
        queries = {query.name: query for query in self.options.queries}
        report, bad = self._report(ctx), 0
        for item in observations:
            query = queries.get(str(item.data.get("query")))
            if item.source != f"{self.id}/{VALUES}" or query is None:
                continue
            worst = beyond(ctx, query, series_in(item.data))
            bad += len(worst)
            for exceeding in worst:
                report.add("query", query.severity, query.trouble(exceeding), "metric")
        *exceeded, _ = report.observations("queries")
        *others, summary = [item for item in observations if not _is_exceeded(item)]
        counts = {**summary.data, "exceeded": bad}
        return [*others, *exceeded, summary.model_copy(update={"data": counts})]

    def targets(self, ctx: Context) -> list[Observation]:
        """Find targets that are down."""
        active = self._data(ctx, "/api/v1/targets", state="active")["activeTargets"]
        by_id = {_target_id(target): target for target in active}
        samples = {id: _target_sample(target) for id, target in by_id.items()}
        down = names_in_alarm(ctx, "targets", samples, self.options.target_samples)
        report = self._report(ctx)
        for id in sorted(down):
            report.add("target", "error", _target_data(by_id[id]))
        return report.observations("targets", targets=len(active), down=len(down))

    def alerts(self, ctx: Context) -> list[Observation]:
        """Find alerts that fire."""
        if self.options.alertmanager_url:
            firing = self._alertmanager(self.options.alertmanager_access).alerts(ctx)
        else:
            alerts = self._data(ctx, "/api/v1/alerts")["alerts"]
            firing = [alert for alert in alerts if alert["state"] == "firing"]
        report = self._report(ctx)
        for alert in sorted(firing, key=lambda alert: sorted(alert["labels"].items())):
            data = alert_data(alert["labels"], alert["annotations"])
            report.add("alert", severity_of(alert["labels"]), data, "alert")
        return report.observations("alerts", firing=len(firing))

    # Tools

    @tool(timeout=60.0)
    def query(self, params: PromqlParams, ctx: Context) -> JsonObject:
        """Query Prometheus with PromQL; the current values, 50 series at most."""
        answer = self._query(ctx, params.expr)
        result, doubt = answer["data"], _doubt(answer)
        doubts: JsonObject = {"doubt": doubt} if doubt else {}
        if result["resultType"] == "matrix":
            raise ValueError("the query gives values over time: use query_range, without a range")
        if result["resultType"] != "vector":
            return {"result": result["result"][:2], **doubts}
        series: list[JsonObject] = [
            {
                "labels": item["metric"],
                "value": item["value"][1] if "value" in item else "histogram",
            }
            for item in result["result"]
        ]
        return {"series": list(series[:MAX_SERIES]), "count": len(series), **doubts}

    @tool(timeout=60.0)
    def query_range(self, params: PromqlRangeParams, ctx: Context) -> JsonObject:
        """Query Prometheus with PromQL for the last seconds; 60 points of 50 series at most."""
        end, step = ctx.now().timestamp(), max(1, params.seconds // (MAX_POINTS - 1))
        window = {"start": end - (MAX_POINTS - 1) * step, "end": end, "step": step}
        result = self._data(ctx, "/api/v1/query_range", query=params.expr, **window)["result"]
        series: list[JsonObject] = [
            {
                "labels": item["metric"],
                "values": [number(float(value)) for _, value in item["values"]]
                if "values" in item
                else "histograms",
            }
            for item in result[:MAX_SERIES]
        ]
        return {"series": list(series), "count": len(result), "step": step}

    # Actions

    @action(
        risk="medium",
        autonomy="approval-required",
        idempotent=True,
        target="matchers",
    )
    def silence(self, params: SilenceParams, ctx: Context) -> JsonObject | ActionResult:
        """Silence the alerts that match, for some time."""
        return change(lambda: self._silence(params, ctx))

    def _silence(self, params: SilenceParams, ctx: Context) -> JsonObject:
        manager, id = self._manager("silence"), ctx.execution_id or ""
        self._check(params)
        existing = manager.find_by_execution(ctx, id)
        if existing is None:
            silence = self._new(params, ctx, id)
            affected = manager.alerts(ctx, *parse_matchers(params.matchers))
            return {
                "silenceId": manager.create(ctx, silence),
                "until": silence["endsAt"],
                "silenced": _names(affected),
            }
        return {"silenceId": existing["id"], "until": existing["endsAt"]}

    @silence.dry_run
    def _would_silence(self, params: SilenceParams, ctx: Context) -> JsonObject:
        manager = self._manager("silence")
        self._check(params)
        affected = manager.alerts(ctx, *parse_matchers(params.matchers))
        after = {"matchers": params.matchers, "seconds": params.duration, "comment": params.comment}
        return {
            "difference": [*difference({}, after, "the silence").splitlines()],
            "silences": _names(affected),
            "alerts": len(affected),
        }

    @silence.rollback
    def _end(self, params: SilenceParams, result: ActionResult, ctx: Context) -> JsonObject:
        output = _output(result)
        id, manager = str(output["silenceId"]), self._manager("silence")
        silence = manager.silence(ctx, id)
        if is_over(silence):
            return {"silenceId": id, "changed": False}
        if not is_as_made(silence, output["until"]):
            raise StateError(
                f"{silence['createdBy']} has changed the silence {id} since: it lasts until "
                f"{silence['endsAt']}, and was left alone"
            )
        manager.expire(ctx, id)
        return {"silenceId": id, "changed": True}

    @silence.verify(within=60, every=5)
    def _is_silent(self, params: SilenceParams, ctx: Context) -> EffectVerdict:
        manager = self._manager("silence")
        existing = manager.find_by_execution(ctx, ctx.execution_id or "")
        if existing is None:
            return _verdict(False, "Alertmanager has no such silence")
        if is_over(existing):
            return _verdict(False, f"the silence {existing['id']} has expired")
        loud = manager.alerts(ctx, *parse_matchers(params.matchers))
        if loud:
            return _verdict(False, f"still active: {', '.join(_names(loud))}")
        return _verdict(True, f"no alert that matches is active until {existing['endsAt']}")

    @action(risk="low", autonomy="approval-required", target="silenceId")
    def expire_silence(
        self, params: ExpireSilenceParams, ctx: Context
    ) -> JsonObject | ActionResult:
        """Expire a silence, so that its alerts notify people again."""
        return change(lambda: self._expire(params, ctx))

    def _expire(self, params: ExpireSilenceParams, ctx: Context) -> JsonObject:
        manager = self._manager("expire_silence")
        silence = _active(manager, params.silence_id, ctx)
        manager.expire(ctx, params.silence_id)
        return {"silenceId": params.silence_id, "was": _essence(silence)}

    @expire_silence.dry_run
    def _would_expire(self, params: ExpireSilenceParams, ctx: Context) -> JsonObject:
        silence = _active(self._manager("expire_silence"), params.silence_id, ctx)
        before = {**_essence(silence), "matchers": matchers_of(silence)}
        text = difference(before, {}, f"the silence {params.silence_id}")
        return {"difference": [*text.splitlines()]}

    @expire_silence.rollback
    def _silence_again(
        self, params: ExpireSilenceParams, result: ActionResult, ctx: Context
    ) -> JsonObject:
        was = dict(_output(result)["was"])
        if datetime.fromisoformat(was["endsAt"]) <= ctx.now():
            raise StateError(f"the silence {params.silence_id} would have expired by now")
        # One that had not begun begins when it would have.
        was["startsAt"] = max(ctx.now(), datetime.fromisoformat(was["startsAt"])).isoformat()
        return {"silenceId": self._manager("expire_silence").create(ctx, was)}

    @expire_silence.verify(within=30, every=5)
    def _is_over(self, params: ExpireSilenceParams, ctx: Context) -> EffectVerdict:
        silence = self._manager("expire_silence").silence(ctx, params.silence_id)
        return _verdict(is_over(silence), f"it is {silence['status']['state']}")

    # What they share

    def _read(self, query: WatchedQuery, ctx: Context) -> tuple[Any, Any]:
        """The answer to a query and its series, or the error that the query itself is."""
        try:
            answer = self._query(ctx, query.expr)
            return answer, series_of(query, answer["data"])
        except ServiceError as error:
            if error.status not in _QUERY_ERRORS:
                raise
            return error, None
        except ValueError as error:
            return error, None

    def _query(self, ctx: Context, expr: str) -> Any:
        limit = f"{self.options.timeout:g}s"
        return self._service.get(ctx, "/api/v1/query", query=expr, timeout=limit)

    def _data(self, ctx: Context, path: str, **params: Any) -> Any:
        return self._service.get(ctx, path, **params)["data"]

    def _manager(self, name: str) -> Alertmanager:
        return self._alertmanager(self.access_of(name, self.options.alertmanager_access))

    def _alertmanager(self, access: HttpAccess) -> Alertmanager:
        if self.options.alertmanager_url is None:
            raise StateError("prometheus: silences need the option `alertmanager_url`")
        return Alertmanager(
            HttpService(self.options.alertmanager_url, access, self.options.timeout)
        )

    def _check(self, params: SilenceParams) -> None:
        if params.duration > self.options.max_silence:
            raise StateError(
                f"a silence of {params.duration} s; the most is {self.options.max_silence}"
            )

    def _new(self, params: SilenceParams, ctx: Context, id: str) -> JsonObject:
        matchers = parse_matchers(params.matchers)
        return new_silence(matchers, ctx.now(), params.duration, params.comment, id)

    def _report(self, ctx: Context) -> CheckReport:
        return CheckReport(ctx, self.options.max_items)


def _is_exceeded(observation: Observation) -> bool:
    """Report whether an observation is of a series beyond its threshold."""
    return "value" in observation.data and "query" in observation.data


def _doubt(answer: Any) -> str:
    """Warnings that the result of a query may be incomplete or wrong; empty if there are none."""
    partial = ["it is partial"] if answer.get("isPartial") else []
    return "; ".join([*partial, *(answer.get("warnings") or [])])[:MAX_ERROR]


def _target_id(target: Any) -> str:
    return f"{target['scrapePool']} {target.get('scrapeUrl', '')} {selector(target['labels'])}"


def _target_sample(target: Any) -> Sample:
    # A target that was not yet scraped is neither up nor down.
    return Sample({"up": 0.0, "down": 2.0}.get(target["health"], 1.0), limit=2.0, clear=1.0)


def _target_data(target: Any) -> JsonObject:
    return {
        "job": target["labels"].get("job", ""),
        "instance": target["labels"].get("instance", ""),
        "error": target["lastError"][:MAX_ERROR],
    }


def _names(alerts: Sequence[Any]) -> list[Any]:
    return sorted({alert["labels"].get("alertname", "") for alert in alerts})[:MAX_SERIES]


def _active(manager: Alertmanager, id: str, ctx: Context) -> Any:
    silence = manager.silence(ctx, id)
    if is_over(silence):
        raise StateError(f"the silence {id} has expired already")
    return silence


def _essence(silence: Any) -> JsonObject:
    return {key: silence[key] for key in ("matchers", "startsAt", "endsAt", "createdBy", "comment")}


def _output(result: ActionResult) -> Any:
    return result.output


def _verdict(effective: bool, evidence: str) -> EffectVerdict:
    """Effective, or without effect so far."""
    verdict: Any = "effective" if effective else "no effect"
    return EffectVerdict(verdict=verdict, evidence=evidence, final=effective)
