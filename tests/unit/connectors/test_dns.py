"""The answers of resolvers, and what is wrong with them; tests/connections has real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd_connectors.dns import Dns
from boyd_connectors.dns.plugin import (
    PARALLEL,
    SILENT,
    DnsAnswer,
    DnsResolver,
    WatchedName,
    name_problems,
)
from plugin_kit import Rig

ONE, TWO = DnsAnswer("NOERROR", ("192.0.2.1",)), DnsAnswer("NOERROR", ("192.0.2.2",))
GONE, EMPTY = DnsAnswer("NXDOMAIN"), DnsAnswer("NOERROR")
FAILED, LATE = DnsAnswer("SERVFAIL"), DnsAnswer("timeout")


def problems_found(*answers: DnsAnswer, failing: Collection[str] = (), **watched: Any) -> list[str]:
    name = WatchedName(name="www.shop.example", **watched)
    by_resolver = {str(number): answer for number, answer in enumerate(answers)}
    return [
        f"{name_problem.kind}: {name_problem.data.get('problem', '')}".rstrip(": ")
        for name_problem in name_problems(name, by_resolver, failing)
    ]


@pytest.mark.parametrize(
    ("answers", "problems"),
    [
        ([ONE, ONE], []),
        ([GONE, GONE], ["name: the name does not exist"] * 2),
        ([EMPTY], ["name: the name has no such record"]),
        ([ONE, TWO], ["disagreement"]),
        ([ONE, GONE], ["name: the name does not exist", "disagreement"]),
        ([ONE, FAILED], []),
        ([ONE, LATE], []),
    ],
)
def test_a_missing_name_counts_at_once_and_a_failing_resolver_not_yet(
    answers: list[DnsAnswer], problems: list[str]
) -> None:
    assert problems_found(*answers) == problems


def test_a_resolver_that_has_failed_often_is_trouble_and_not_a_disagreement() -> None:
    assert problems_found(ONE, FAILED, LATE, failing=["1", "2"]) == [
        "name: the resolver fails: SERVFAIL",
        "name: the resolver fails: timeout",
    ]


def test_a_dead_resolver_does_not_use_up_the_time_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: Counter[str] = Counter()

    def ask(resolver: DnsResolver, watched: WatchedName, timeout: float) -> DnsAnswer:
        counts[resolver.address] += 1
        lost = resolver.address == "192.0.2.1" or watched.name.startswith("a0.")
        return LATE if lost else ONE

    monkeypatch.setattr(DnsResolver, "ask", ask)
    names = [{"name": f"a{number}.example"} for number in range(400)]
    rig = Rig(Dns(names=names, resolvers=["192.0.2.1", "192.0.2.2"], samples=1, max_items=1000))
    resolvers = [observation.data.get("resolver") for observation in rig.observe()]

    assert counts["192.0.2.2"] == 400
    assert counts["192.0.2.1"] <= SILENT + PARALLEL
    assert Counter(resolvers) == {"192.0.2.1:53": 400, "192.0.2.2:53": 1, None: 1}


def test_values_that_are_not_expected_are_trouble_and_disagreement_may_be_meant() -> None:
    assert problems_found(ONE, TWO, agree=False) == []
    assert problems_found(ONE, TWO, agree=False, expected=["192.0.2.1"]) == ["unexpected"]
    assert problems_found(ONE, expected=["192.0.2.1"]) == []


@pytest.mark.parametrize(
    ("address", "resolver"),
    [
        ("192.0.2.1", "192.0.2.1:53"),
        ("192.0.2.1:5353", "192.0.2.1:5353"),
        ("2001:db8::1", "[2001:db8::1]:53"),
        ("[2001:db8::1]:5353", "[2001:db8::1]:5353"),
    ],
)
def test_resolvers_are_addresses_with_or_without_a_port(address: str, resolver: str) -> None:
    options = Dns(names=[{"name": "a"}], resolvers=[address]).options
    assert options.resolvers == [resolver]
    assert Dns(names=[{"name": "a"}], resolvers=options.resolvers).options == options


@pytest.mark.parametrize("name", ["a..b", f"{'a' * 64}.example", "..", ".a"])
def test_an_invalid_name_is_refused_when_the_agent_starts(name: str) -> None:
    with pytest.raises(PluginError, match="names"):
        Dns(names=[{"name": name}])


@pytest.mark.parametrize("address", ["resolver.example", "192.0.2.1:", "192.0.2.1:99999", "[::1"])
def test_an_invalid_resolver_address_is_refused(address: str) -> None:
    with pytest.raises(PluginError, match="resolvers"):
        Dns(names=[{"name": "a"}], resolvers=[address])
