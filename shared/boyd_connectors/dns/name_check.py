"""Questions to resolvers, and what is wrong with their answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from boyd.models import JsonObject, Severity

#: The most values of an answer that are shown.
MAX_VALUES = 20
RecordType = Literal["A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT", "CAA"]


def _absolute(name: str) -> str:
    if name != "." and not all(0 < len(one) < 64 for one in name.removesuffix(".").split(".")):
        raise ValueError("a part between two dots is empty or longer than 63 characters")
    return name if name.endswith(".") else f"{name}."


DomainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_*.-]{1,254}$"), AfterValidator(_absolute)]


class WatchedName(BaseModel):
    """A name to ask resolvers for.

    Attributes:
        name: the name, such as `www.shop.example`.
        type: the type of record.
        expected: the values that the answer must have, in any order; None: any.
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
        """The answer to a question; whatever fails is an answer, too."""
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
        values = (str(one) for part in reply.answer if part.rdtype == kind for one in part)
        return DnsAnswer(dns.rcode.to_text(reply.rcode()), tuple(sorted(values)))

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


class NameProblem(NamedTuple):
    """A problem of a name: the kind of observation, its severity and data."""

    what: str
    severity: Severity
    data: JsonObject


def problem_of(answer: DnsAnswer) -> tuple[str, Severity] | None:
    """The problem that a single answer is; None if it has values."""
    if answer.code == "NXDOMAIN":
        return "the name does not exist", "error"
    if answer.code != "NOERROR":
        return f"the resolver fails: {answer.code}", "error"
    return None if answer.values else ("the name has no such record", "error")


def name_problems(
    watched: WatchedName, answers: Mapping[str, DnsAnswer], failing: Collection[str]
) -> Iterator[NameProblem]:
    """The problems of a name with the answers of all resolvers.

    Args:
        watched: the name.
        answers: the answer of each resolver.
        failing: the resolvers that have failed so often that it is trouble.
    """
    asked: JsonObject = {"name": watched.name, "type": watched.type}
    for resolver, answer in answers.items():
        if (problem := problem_of(answer)) and (_is_definite(answer) or resolver in failing):
            told, severity = problem
            more: JsonObject = {"resolver": resolver, "code": answer.code, "problem": told}
            yield NameProblem("name", severity, {**asked, **more})
    definite = {name: answer for name, answer in answers.items() if _is_definite(answer)}
    if watched.agree and len({*definite.values()}) > 1:
        said: JsonObject = {name: _shown(answer) for name, answer in definite.items()}
        yield NameProblem("disagreement", "warning", {**asked, "answers": said})
    if watched.expected is not None:
        wanted = sorted(watched.expected)
        wrong: JsonObject = {
            name: _shown(answer)
            for name, answer in definite.items()
            if answer.values and [*answer.values] != wanted
        }
        if wrong:
            more = {"expected": [*wanted], "answers": wrong}
            yield NameProblem("unexpected", "error", {**asked, **more})


def _is_definite(answer: DnsAnswer) -> bool:
    """Tell whether the resolver knows, rather than fails."""
    return answer.code in ("NOERROR", "NXDOMAIN")


def _shown(answer: DnsAnswer) -> str:
    values = ", ".join(answer.values[:MAX_VALUES])
    return values or (answer.code if answer.code != "NOERROR" else "no such record")
