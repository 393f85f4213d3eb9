"""The plugin `loadbalancer`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from boyd.models import ActionResult, EffectVerdict, JsonObject, Model, Observation
from boyd.models.base import Severity
from boyd.plugin import Connector, Context, Observer, action, tool
from boyd.plugins.results import difference, uncertain
from boyd_connectors.connector_parts import Sample, names_in_alarm
from boyd_connectors.loadbalancer.balancers import (
    AnswerLost,
    BackendServer,
    Balancer,
    BalancerError,
    HAProxy,
    Nginx,
    NginxOptions,
    RuntimeSocket,
    ServerState,
)

ServerName = Annotated[
    str, Field(max_length=300, pattern=r"^[A-Za-z0-9_.:-]+/[A-Za-z0-9_.:/\[\]-]+$")
]


class BackendServerParams(Model):
    """A server as `backend/server`."""

    server: ServerName


class WeightParams(BackendServerParams):
    """A server as `backend/server`, and its weight; 0: it gets no new requests."""

    weight: int = Field(ge=0, le=256)


class BalancerActions(BaseModel):
    """The actions that are enabled; of HAProxy, each with a socket of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drain: RuntimeSocket | None = None
    enable: RuntimeSocket | None = None
    set_weight: RuntimeSocket | None = None


class LoadBalancer(Connector):
    """Watches HAProxy or nginx, and takes servers out of their backends or gives them weights."""

    id = "loadbalancer"

    class Options(Connector.Options):
        """The plugin's options; either `haproxy` or `nginx`.

        Attributes:
            haproxy: the HAProxy to watch.
            nginx: the nginx to watch.
            min_active: how many servers of a backend stay active, whatever is asked for.
            error_rate: the share of answers since the last check that may be errors.
            error_requests: with fewer requests since the last check, the share is not judged.
        """

        haproxy: RuntimeSocket | None = None
        nginx: NginxOptions | None = None
        interval: float = Field(default=15.0, gt=0)
        queue: str | None = None
        min_active: int = Field(default=1, ge=0)
        error_rate: float = Field(default=0.05, gt=0, le=1)
        error_requests: int = Field(default=20, ge=1)
        samples: int = Field(default=2, ge=1, le=100)
        max_items: int = Field(default=20, ge=1, le=200)
        actions: BalancerActions = BalancerActions()

        @model_validator(mode="after")
        def _one(self) -> Self:
            if (self.haproxy is None or self.haproxy.socket is None) == (self.nginx is None):
                raise ValueError("needs either `haproxy` with a `socket`, or `nginx`")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.components = (
            Observer(
                name="backends",
                description="Look at the servers of all backends.",
                interval=self.options.interval,
                observe=self.backends,
            ),
        )

    def backends(self, ctx: Context) -> list[Observation]:
        """Observe servers that are down or give errors, and backends without any."""
        balancer = self._balancer()
        try:
            servers, counters = balancer.servers(ctx), balancer.counters(ctx)
        except BalancerError as error:
            return [self._observation("unreachable", "critical", {"error": str(error)})]
        down = [server for server in servers if server.state == "ready" and not server.up]
        out = [server for server in servers if server.state != "ready"]
        observations = [
            *self._observations("no-server", "critical", _without_servers(servers)),
            *self._observations("server-down", "error", map(_row, down)),
            *self._observations("errors", "error", self._failing(servers, ctx)),
            *self._observations("out-of-service", "info", map(_row, out)),
            *self._connection_losses(counters, ctx),
        ]
        active = sum(server.is_active for server in servers)
        summary: JsonObject = {"servers": len(servers), "active": active, **counters}
        return [*observations, self._observation("summary", "info", summary)]

    @action(risk="medium", autonomy="approval-required", target="server", timeout=30)
    def drain(self, params: BackendServerParams, ctx: Context) -> JsonObject | ActionResult:
        """Send a server no new requests; those in progress go on."""
        return self._change("drain", params.server, ctx, state="drain")

    @drain.dry_run
    def _would_drain(self, params: BackendServerParams, ctx: Context) -> JsonObject:
        return self._preview(params.server, ctx, state="drain")

    @drain.verify(within=30, every=2)
    def _is_drained(self, params: BackendServerParams, ctx: Context) -> EffectVerdict:
        server = self._server(params.server, ctx)
        return self._verdict(server, server.state == "drain")

    @drain.rollback
    def _undrain(
        self, params: BackendServerParams, result: ActionResult, ctx: Context
    ) -> JsonObject | ActionResult:
        return self._restore("drain", result, ctx)

    @action(risk="low", target="server", timeout=30)
    def enable(self, params: BackendServerParams, ctx: Context) -> JsonObject | ActionResult:
        """Send a server requests again."""
        return self._change("enable", params.server, ctx, state="ready")

    @enable.dry_run
    def _would_enable(self, params: BackendServerParams, ctx: Context) -> JsonObject:
        return self._preview(params.server, ctx, state="ready")

    @enable.verify(within=60, every=2)
    def _is_enabled(self, params: BackendServerParams, ctx: Context) -> EffectVerdict:
        server = self._server(params.server, ctx)
        return self._verdict(server, server.state == "ready" and server.up)

    @enable.rollback
    def _disable(
        self, params: BackendServerParams, result: ActionResult, ctx: Context
    ) -> JsonObject | ActionResult:
        return self._restore("enable", result, ctx)

    @action(risk="medium", autonomy="approval-required", target="server", timeout=30)
    def set_weight(self, params: WeightParams, ctx: Context) -> JsonObject | ActionResult:
        """Give a server another share of the requests."""
        return self._change("set_weight", params.server, ctx, weight=params.weight)

    @set_weight.dry_run
    def _would_weigh(self, params: WeightParams, ctx: Context) -> JsonObject:
        return self._preview(params.server, ctx, weight=params.weight)

    @set_weight.verify(within=30, every=2)
    def _is_weighed(self, params: WeightParams, ctx: Context) -> EffectVerdict:
        server = self._server(params.server, ctx)
        return self._verdict(server, server.weight == params.weight)

    @set_weight.rollback
    def _weigh_back(
        self, params: WeightParams, result: ActionResult, ctx: Context
    ) -> JsonObject | ActionResult:
        return self._restore("set_weight", result, ctx)

    @tool()
    def list_servers(self, ctx: Context) -> list[JsonObject]:
        """List the servers of all backends with state, weight, sessions and errors."""
        return [_row(server) for server in self._balancer().servers(ctx)[:200]]

    def _balancer(self, action: str | None = None) -> Balancer:
        """The load balancer, with the rights of *action* or those for reading."""
        if self.options.nginx:
            return Nginx(self.options.nginx)
        reading = self.options.haproxy
        access: RuntimeSocket | None = self.access_of(action, reading) if action else reading
        assert access is not None
        assert access.socket is not None
        return HAProxy(access.socket)

    def _server(self, name: str, ctx: Context) -> BackendServer:
        return self._find(name, self._balancer().servers(ctx))

    def _find(self, name: str, servers: Iterable[BackendServer]) -> BackendServer:
        for server in servers:
            if server.name == name:
                return server
        raise BalancerError(f"the load balancer has no server {name}")

    def _change(
        self,
        action: str,
        name: str,
        ctx: Context,
        state: ServerState | None = None,
        weight: int | None = None,
    ) -> JsonObject | ActionResult:
        balancer = self._balancer(action)
        servers = balancer.servers(ctx)
        before = self._find(name, servers)
        target = (state or before.state, before.weight if weight is None else weight)
        self._check(before, servers, *target)
        # A change whose worker was lost may be written down and not count yet.
        if target != (before.state, before.weight) or balancer.pending_reason(before):
            try:
                balancer.change(before, *target)
                self._recheck(balancer, before, target, ctx)
            except AnswerLost as error:
                return uncertain(error)
        after: JsonObject = {"state": target[0], "weight": target[1]}
        return {"server": name, "before": before.setting(), "after": after}

    def _recheck(
        self,
        balancer: Balancer,
        before: BackendServer,
        target: tuple[ServerState, int],
        ctx: Context,
    ) -> None:
        """Take a change back if another worker has taken other servers away at the same time."""
        state, weight = target
        try:
            servers = balancer.servers(ctx)
        except BalancerError as error:
            raise AnswerLost(str(error)) from None
        try:
            self._check(before, servers, state, weight)
        except BalancerError as refusal:
            changed = replace(before, state=state, weight=weight)
            try:
                balancer.change(changed, before.state, before.weight)
            except BalancerError as error:
                raise AnswerLost(f"{refusal}; it was not taken back: {error}") from None
            raise

    def _preview(
        self, name: str, ctx: Context, state: ServerState | None = None, weight: int | None = None
    ) -> JsonObject:
        servers = self._balancer().servers(ctx)
        server = self._find(name, servers)
        target = (state or server.state, server.weight if weight is None else weight)
        self._check(server, servers, *target)
        after = {"state": target[0], "weight": target[1]}
        text = difference(server.setting(), after, name) or f"{name} is like that already"
        return {"difference": [*text.splitlines()]}

    def _check(
        self,
        server: BackendServer,
        servers: Iterable[BackendServer],
        state: ServerState,
        weight: int,
    ) -> None:
        """Refuse to leave a backend with too few servers, and to end somebody's maintenance."""
        if server.state == "maint" and state == "drain":
            raise BalancerError(f"{server.name} is in maintenance, and gets no requests already")
        others = [other for other in servers if other.backend == server.backend and other != server]
        left = sum(other.is_active and not other.backup for other in others)
        takes_away = server.is_active and (state != "ready" or weight == 0)
        if takes_away and left < self.options.min_active:
            raise BalancerError(
                f"without {server.name}, {left} active servers would be left in {server.backend}; "
                f"min_active is {self.options.min_active}: nothing was changed"
            )

    def _restore(
        self, action: str, result: ActionResult, ctx: Context
    ) -> JsonObject | ActionResult:
        output: Any = result.output
        before, after = output["before"], output["after"]
        current = self._server(output["server"], ctx).setting()
        if current != after:
            raise BalancerError(
                f"{output['server']} has been changed since, so nothing was done: it is "
                f"{current['state']} with weight {current['weight']}"
            )
        return self._change(action, output["server"], ctx, before["state"], before["weight"])

    def _verdict(self, server: BackendServer, done: bool) -> EffectVerdict:
        pending = self._balancer().pending_reason(server) if done else None
        says = f"{server.name} is {server.state} with weight {server.weight}"
        status = f" and {server.status}" if server.status else ""
        evidence = f"{says}{status}, {server.sessions} sessions"
        return EffectVerdict(
            verdict="effective" if done and not pending else "no effect",
            evidence=f"{evidence}; {pending}" if pending else evidence,
            final=done and not pending,
        )

    def _failing(self, servers: Sequence[BackendServer], ctx: Context) -> Iterator[JsonObject]:
        """The servers whose share of errors since the last look is too high."""
        counters = {server.name: [server.requests, server.errors] for server in servers}
        then = _previous(ctx, "servers", counters)
        samples: dict[str, Sample] = {}
        for name, (requests, errors) in counters.items():
            earlier = then.get(name, [requests, errors])
            recent, failed = requests - earlier[0], errors - earlier[1]
            limit = self.options.error_rate
            share = failed / recent if recent >= self.options.error_requests else 0.0
            samples[name] = Sample(min(share, 1.0), limit, limit / 2)
        high = names_in_alarm(ctx, "errors", samples, self.options.samples)
        rows = {server.name: _row(server) for server in servers}
        for name in sorted(high):
            yield {**rows[name], "errorRate": round(samples[name].value, 4)}

    def _connection_losses(self, counters: JsonObject, ctx: Context) -> Iterator[Observation]:
        """Connections that nginx has not handled since the last look."""
        if not counters:
            return
        accepted: Any = counters["accepted"]
        handled: Any = counters["handled"]
        current = {"connections": [accepted, accepted - handled]}
        then = _previous(ctx, "connections", current)
        earlier = then.get("connections", current["connections"])
        dropped = accepted - handled - earlier[1] if accepted >= earlier[0] else accepted - handled
        if dropped > 0:
            yield self._observation("dropped", "error", {"connections": dropped})

    def _observations(
        self, kind: str, severity: Severity, rows: Iterable[JsonObject]
    ) -> Iterator[Observation]:
        all_rows, most = list(rows), self.options.max_items
        for row in all_rows[:most]:
            yield self._observation(kind, severity, row)
        if len(all_rows) > most:
            yield self._observation(kind, severity, {"more": len(all_rows) - most})

    def _observation(self, kind: str, severity: Severity, data: JsonObject) -> Observation:
        return Observation(source=f"{self.id}/{kind}", type="state", severity=severity, data=data)


def _previous(ctx: Context, key: str, current: dict[str, list[int]]) -> dict[str, list[int]]:
    """The counters of an earlier iteration; remember those of *current*."""

    def change(stored: Any) -> Any:
        stored = stored or {}
        if ctx.iteration is not None and stored.get("iteration") == ctx.iteration:
            return stored
        return {"iteration": ctx.iteration, "then": stored.get("now", {}), "now": current}

    then: dict[str, list[int]] = ctx.state.update(key, change)["then"]
    return then


def _without_servers(servers: Iterable[BackendServer]) -> Iterator[JsonObject]:
    backends: dict[str, list[BackendServer]] = defaultdict(list)
    for server in servers:
        backends[server.backend].append(server)
    for name, members in backends.items():
        if not any(server.is_active for server in members):
            yield {"backend": name, "servers": len(members)}


def _row(server: BackendServer) -> JsonObject:
    return {
        "server": server.name,
        **server.setting(),
        "status": server.status,
        "sessions": server.sessions,
        "errors": server.errors,
    }
