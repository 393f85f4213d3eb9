"""The plugin `dns`: asks resolvers for names, and compares their answers."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from boyd.errors import PluginError
from boyd.models import JsonObject, Model, Observation, Severity
from boyd.plugin import Connector, Context, Observer, tool
from boyd_connectors.connector_parts import CheckReport, Sample, names_in_alarm

#: The most values of an answer that are shown.
MAX_VALUES = 20
RecordType = Literal["A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT", "CAA"]


def _absolute(name: str) -> str:
    if name != "." and not all(0 < len(label) < 64 for label in name.removesuffix(".").split(".")):
        raise ValueError("a part between two dots is empty or longer than 63 characters")
    return name if name.endswith(".") else f"{name}."


DomainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_*.-]{1,254}$"), AfterValidator(_absolute)]


class WatchedName(BaseModel):
    """A name to ask resolvers for.

    Attributes:
        name: the name, such as `www.shop.example`.
        type: the type of record.
        expected: the values that the answer must have, in any order; by default any will do.
        agree: whether it is trouble that resolvers give different values.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: DomainName
    type: RecordType = "A"
    expected: list[str] | None = None
    agree: bool = True


class DnsAnswer(NamedTuple):
    """An answer: its code, such as `NOERROR`, or `timeout`, and the values in order."""

    code: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class DnsResolver:
    """A resolver by its address and port."""

    address: str
    port: int = 53

    def ask(self, watched: WatchedName, timeout: float) -> DnsAnswer:
        """The answer to a question; failures are answers, too."""
        import dns.exception
        import dns.flags
        import dns.message
        import dns.query
        import dns.rcode
        import dns.rdatatype

        query = dns.message.make_query(watched.name, watched.type)
        try:
            reply, _ = dns.query.udp_with_fallback(query, self.address, timeout, port=self.port)
        except dns.exception.Timeout:
            return DnsAnswer("timeout")
        except (OSError, dns.exception.DNSException) as error:
            return DnsAnswer(f"no usable answer: {error or type(error).__name__}"[:200])
        kind = dns.rdatatype.from_text(watched.type)
        values = (str(record) for part in reply.answer if part.rdtype == kind for record in part)
        return DnsAnswer(dns.rcode.to_text(reply.rcode()), tuple(sorted(values)))

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


class NameProblem(NamedTuple):
    """A problem of a name: the kind of observation, its severity and data."""

    kind: str
    severity: Severity
    data: JsonObject


def problem_of(answer: DnsAnswer) -> str | None:
    """The problem that a single answer is; None if it has values."""
    if answer.code == "NXDOMAIN":
        return "the name does not exist"
    if answer.code != "NOERROR":
        return f"the resolver fails: {answer.code}"
    return None if answer.values else "the name has no such record"


def name_problems(
    watched: WatchedName, answers: Mapping[str, DnsAnswer], failing: Collection[str]
) -> Iterator[NameProblem]:
    """The problems of a name with the answers of all resolvers.

    Args:
        watched: the name.
        answers: the answer of each resolver.
        failing: the resolvers that have failed so often that it is trouble.
    """
    question: JsonObject = {"name": watched.name, "type": watched.type}
    for resolver, answer in answers.items():
        if (problem := problem_of(answer)) and (_is_definite(answer) or resolver in failing):
            more: JsonObject = {"resolver": resolver, "code": answer.code, "problem": problem}
            yield NameProblem("name", "error", {**question, **more})
    definite = {name: answer for name, answer in answers.items() if _is_definite(answer)}
    if watched.agree and len({*definite.values()}) > 1:
        by_resolver: JsonObject = {name: _values_text(answer) for name, answer in definite.items()}
        yield NameProblem("disagreement", "warning", {**question, "answers": by_resolver})
    if watched.expected is not None:
        expected = sorted(watched.expected)
        wrong: JsonObject = {
            name: _values_text(answer)
            for name, answer in definite.items()
            if answer.values and [*answer.values] != expected
        }
        if wrong:
            more = {"expected": [*expected], "answers": wrong}
            yield NameProblem("unexpected", "error", {**question, **more})


def _is_definite(answer: DnsAnswer) -> bool:
    """True if the resolver knows the answer, even that the name does not exist."""
    return answer.code in ("NOERROR", "NXDOMAIN")


def _values_text(answer: DnsAnswer) -> str:
    values = ", ".join(answer.values[:MAX_VALUES])
    return values or (answer.code if answer.code != "NOERROR" else "no such record")


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


def _canonical(text: str) -> str:
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
        resolvers: list[Annotated[str, AfterValidator(_canonical)]] = Field(
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
        failing = names_in_alarm(ctx, "answers", samples, self.options.samples)
        report, bad = CheckReport(ctx, self.options.max_items), 0
        for number, watched in enumerate(self.options.names):
            here = {name for name in answers[number] if f"{number} {name}" in failing}
            problems = list(name_problems(watched, answers[number], here))
            bad += bool(problems)
            for problem in problems:
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
            replies = pool.map(ask, questions)
            answers = iter(list(replies))
        return [{str(resolver): next(answers) for resolver in resolvers} for _ in names]

    def _resolvers(self) -> list[DnsResolver]:
        if self.options.resolvers:
            return [_parse(text) for text in self.options.resolvers]
        import dns.resolver

        return [
            DnsResolver(str(address)) for address in dns.resolver.get_default_resolver().nameservers
        ]
