"""The plugin `tls`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from typing import Any

from pydantic import Field, model_validator

from boyd.errors import PluginError
from boyd.models import JsonObject, Model, Observation
from boyd.plugin import Connector, Context, Observer, tool
from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls
from boyd_connectors.check_report import CheckReport
from boyd_connectors.tls.certificate_check import MAX_ERROR, TlsEndpoint, TlsProblem, look, problems

#: Servers that are checked at the same time.
PARALLEL = 16
#: A look makes two connections, each with a handshake: the time limits that it may take.
SLOW = 4


class EndpointParams(Model):
    """A server of the options, as `host:port`."""

    endpoint: str = Field(min_length=1, max_length=300)


class Tls(Connector):
    """Checks certificates of TLS servers: their end, chain and names, and the protocol."""

    id = "tls"

    class Options(Connector.Options):
        """The plugin's options; times in seconds.

        Attributes:
            endpoints: the servers to check.
            warning_days: how many days before its end a certificate is a warning.
            error_days: how many days before its end a certificate is an error.
        """

        endpoints: list[TlsEndpoint] = Field(min_length=1, max_length=500)
        warning_days: float = Field(default=21.0, ge=0)
        error_days: float = Field(default=7.0, ge=0)
        interval: float = Field(default=3600.0, gt=0)
        timeout: float = Field(default=5.0, gt=0, le=30)
        max_items: int = Field(default=50, ge=1, le=1000)

        @model_validator(mode="after")
        def _ordered(self) -> Tls.Options:
            if self.error_days > self.warning_days:
                raise ValueError("error_days must not be above warning_days")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if find_spec("cryptography") is None:
            raise PluginError(self.id, "it needs cryptography: run `pip install 'boyd[tls]'`")
        self._calls = BoundedCalls()
        self.components = (
            Observer(
                name="certificates",
                description="Check the certificates of servers.",
                interval=self.options.interval,
                timeout=300.0,
                observe=self.certificates,
            ),
        )

    def certificates(self, ctx: Context) -> list[Observation]:
        """Check the certificates of servers."""
        check = partial(self._check, ctx.now())
        report, bad = CheckReport(ctx, self.options.max_items), 0
        endpoints = self.options.endpoints
        with ThreadPoolExecutor(PARALLEL) as pool:
            for endpoint, found in zip(endpoints, pool.map(check, endpoints), strict=True):
                bad += bool(found)
                for problem, severity, data in found:
                    known = {"endpoint": endpoint.id, "name": endpoint.name, "problem": problem}
                    report.add("certificate", severity, {**known, **data})
        return report.observations("certificates", endpoints=len(endpoints), bad=bad)

    def _check(self, now: datetime, endpoint: TlsEndpoint) -> list[TlsProblem]:
        """The problems of a server; one that trickles, or whose name is not resolved, is slow."""
        options = self.options
        days = options.warning_days, options.error_days
        look = BoundedCall(
            lambda: list(problems(endpoint, options.timeout, now, *days)), SLOW * options.timeout
        )
        found = self._calls.make({endpoint.id: look})[endpoint.id]
        if isinstance(found, Exception):
            return [TlsProblem("unreachable", "error", {"error": str(found)[:MAX_ERROR]})]
        return found

    @tool()
    def show_certificate(self, params: EndpointParams) -> JsonObject:
        """Show the certificate that a server presents now: names, issuer, end and protocol."""
        known = {one.id: one for one in self.options.endpoints}
        if params.endpoint not in known:
            raise LookupError(f"{params.endpoint} is none of {', '.join(known)}"[:2000])
        return look(known[params.endpoint], self.options.timeout).data()
