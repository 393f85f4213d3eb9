"""The plugin `dns`."""

from __future__ import annotations

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from boyd.errors import PluginError
from boyd.models import JsonObject, Model, Observation
from boyd.plugin import Connector, Context, Observer, tool
from boyd_connectors.check_report import CheckReport
from boyd_connectors.dns.name_check import (
    DnsAnswer,
    DnsResolver,
    DomainName,
    RecordType,
    WatchedName,
    name_problems,
    problem_of,
)
from boyd_connectors.hysteresis import Sample, raised

#: Questions that are asked at the same time.
PARALLEL = 16
#: Questions in a row without an answer after which a resolver is asked no more in this look: one
#: that is dead would use up the time of the others.
SILENT = 2 * PARALLEL


def _parse(text: str) -> DnsResolver:
    """A resolver as `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`."""
    host, port = text, "53"
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = "53" if rest == "" and text.endswith("]") else rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{port!r} is no port")
    return DnsResolver(str(ipaddress.ip_address(host)), int(port))


def _checked(text: str) -> str:
    return str(_parse(text))


class LookupParams(Model):
    """A name, and the type of record."""

    name: DomainName
    type: RecordType = "A"


class Dns(Connector):
    """Checks names in the DNS, and whether resolvers agree on them."""

    id = "dns"

    class Options(Connector.Options):
        """The plugin's options; times in seconds.

        Attributes:
            names: the names to check.
            resolvers: addresses of resolvers, with a port or without; empty: those of the worker.
            samples: how many checks in a row a resolver must fail to be in trouble.
        """

        names: list[WatchedName] = Field(min_length=1, max_length=500)
        resolvers: list[Annotated[str, AfterValidator(_checked)]] = Field(
            default_factory=list, max_length=20
        )
        samples: int = Field(default=2, ge=1, le=100)
        interval: float = Field(default=60.0, gt=0)
        timeout: float = Field(default=3.0, gt=0, le=30)
        max_items: int = Field(default=50, ge=1, le=1000)

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if find_spec("dns") is None:
            raise PluginError(self.id, "it needs dnspython: run `pip install 'boyd[dns]'`")
        self.components = (
            Observer(
                name="names",
                description="Ask resolvers for names, and compare their answers.",
                interval=self.options.interval,
                timeout=300.0,
                observe=self.names,
            ),
        )

    def names(self, ctx: Context) -> list[Observation]:
        """Ask resolvers for names, and compare their answers."""
        answers = self._ask_all(self.options.names)
        samples = {
            f"{number} {resolver}": Sample(float(problem_of(answer) is not None), 1.0, 1.0)
            for number, by_resolver in enumerate(answers)
            for resolver, answer in by_resolver.items()
        }
        failing = raised(ctx, "answers", samples, self.options.samples)
        report, bad = CheckReport(ctx, self.options.max_items), 0
        for number, watched in enumerate(self.options.names):
            here = {name for name in answers[number] if f"{number} {name}" in failing}
            found = list(name_problems(watched, answers[number], here))
            bad += bool(found)
            for problem in found:
                report.add(*problem)
        return report.observations("names", names=len(answers), bad=bad)

    @tool()
    def look_up(self, params: LookupParams) -> JsonObject:
        """Ask each resolver for a name, and show their codes and values."""
        watched = WatchedName(name=params.name, type=params.type)
        [answers] = self._ask_all([watched])
        return {
            name: {"code": answer.code, "values": [*answer.values[:50]]}
            for name, answer in answers.items()
        }

    def _ask_all(self, names: list[WatchedName]) -> list[dict[str, DnsAnswer]]:
        """The answers of each resolver, by name."""
        resolvers = self._resolvers()
        silent = dict.fromkeys(map(str, resolvers), 0)

        def ask(question: tuple[WatchedName, DnsResolver]) -> DnsAnswer:
            watched, resolver = question
            if silent[str(resolver)] >= SILENT:
                return DnsAnswer("timeout")
            answer = resolver.ask(watched, self.options.timeout)
            late = answer.code == "timeout"
            silent[str(resolver)] = silent[str(resolver)] + 1 if late else 0
            return answer

        questions = [(name, resolver) for name in names for resolver in resolvers]
        with ThreadPoolExecutor(PARALLEL) as pool:
            found = pool.map(ask, questions)
            answers = iter(list(found))
        return [{str(resolver): next(answers) for resolver in resolvers} for _ in names]

    def _resolvers(self) -> list[DnsResolver]:
        if self.options.resolvers:
            return [_parse(text) for text in self.options.resolvers]
        import dns.resolver

        return [DnsResolver(str(one)) for one in dns.resolver.get_default_resolver().nameservers]
