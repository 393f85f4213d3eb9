"""The plugin `tls` with real servers, whose certificates an authority of the tests has issued."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import Observation
from boyd.plugins.bounded_calls import BoundedCall
from boyd_connectors.tls import Tls
from harness import free_port
from plugin_kit import Rig
from tls_kit import Authority, tls_server

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def check(*endpoints: dict[str, Any], **options: Any) -> list[Observation]:
    rig = Rig(Tls(endpoints=list(endpoints), **options))
    rig.clock.time = datetime.now(UTC)
    return rig.observe()


def problems_of(authority: Authority, file: Path, **more: Any) -> list[tuple[Any, Any]]:
    """The problems of a server with a certificate, and their severities."""
    with tls_server(file) as port:
        trusted = {"ca_file": authority.file, **more}
        *bad, summary = check({"host": HOST, "port": port, **trusted})
    assert summary.data == {"endpoints": 1, "bad": int(bool(bad)), "omitted": 0}
    return [(observation.data["problem"], observation.severity) for observation in bad]


@pytest.mark.parametrize(
    ("days", "problems"),
    [
        (90, []),
        (20, [("expires", "warning")]),
        (6, [("expires", "error")]),
        (-1, [("expired", "critical")]),
    ],
)
def test_the_end_of_a_certificate_is_observed_in_time(
    authority: Authority, days: float, problems: list[tuple[str, str]]
) -> None:
    assert problems_of(authority, authority.issue(HOST, days=days)) == problems


@pytest.mark.parametrize(
    ("days", "problems"),
    [
        (90, []),
        (20, [("chain-expires", "warning")]),
        (5, [("chain-expires", "error")]),
        (-1, [("untrusted", "error")]),
    ],
)
def test_the_end_of_an_authority_is_observed_in_time(
    authority: Authority, days: float, problems: list[tuple[str, str]]
) -> None:
    lower = authority.below(days)
    assert problems_of(authority, lower.issue(HOST, days=25 if days != -1 else 90)) == problems
    with tls_server(lower.issue(HOST)) as port:
        *bad, _ = check({"host": HOST, "port": port, "ca_file": authority.file})
    names = [
        observation.data["authority"] for observation in bad if "authority" in observation.data
    ]
    assert names == [f"CN=Intermediate of {days} days"] * (days in (5, 20))


def test_an_authority_that_has_ended_and_is_not_needed_is_no_trouble(
    authority: Authority,
) -> None:
    lower = authority.below(-1)
    file = authority.issue(HOST)
    file.write_bytes(file.read_bytes() + lower.chain)
    assert problems_of(authority, file) == []


def test_a_certificate_for_another_name_is_observed_with_its_names(authority: Authority) -> None:
    file = authority.issue("shop.example", "www.shop.example")
    with tls_server(file) as port:
        [wrong, _] = check({"host": HOST, "port": port, "ca_file": authority.file})
    assert wrong.data["problem"] == "name"
    assert wrong.data["names"] == ["shop.example", "www.shop.example"]
    assert problems_of(authority, file, server_name="www.shop.example") == []


def test_an_authority_that_is_not_trusted_is_observed(authority: Authority, tmp_path: Path) -> None:
    file = authority.issue(HOST)
    other = Authority(tmp_path).file
    assert problems_of(authority, file, ca_file=other) == [("untrusted", "error")]
    assert problems_of(authority, file, ca_file=None) == [("untrusted", "error")]


def test_strict_rules_count_if_that_is_asked_for_and_the_broken_one_is_named(
    authority: Authority,
) -> None:
    file = authority.issue(HOST)
    assert problems_of(authority, file) == []
    with tls_server(file) as port:
        [strict, _] = check({"host": HOST, "port": port, "ca_file": authority.file, "strict": True})

    assert strict.data["problem"] == "untrusted"
    assert "usage" in str(strict.data["error"])


def test_a_certificate_that_has_ended_and_is_not_trusted_is_both(
    authority: Authority, tmp_path: Path
) -> None:
    problems = problems_of(
        authority, authority.issue(HOST, days=-2), ca_file=Authority(tmp_path).file
    )
    assert problems == [("expired", "critical"), ("untrusted", "error")]


def test_a_protocol_below_the_lowest_one_is_observed(authority: Authority) -> None:
    with tls_server(authority.issue(HOST), most=ssl.TLSVersion.TLSv1_2) as port:
        endpoint = {"host": HOST, "port": port, "ca_file": authority.file}
        [old, _] = check({**endpoint, "min_version": "TLSv1.3"})
        assert len(check(endpoint)) == 1
    assert (old.data["problem"], old.data["version"]) == ("protocol", "TLSv1.2")


def test_a_server_that_cannot_be_reached_does_not_hide_others(authority: Authority) -> None:
    with ExitStack() as servers:
        ports = [servers.enter_context(tls_server(authority.issue(HOST, days=5))) for _ in range(3)]
        everywhere = [
            {"host": HOST, "port": port, "ca_file": authority.file}
            for port in (free_port(), *ports)
        ]
        *bad, summary = check(*everywhere, max_items=2)
    assert [observation.data["problem"] for observation in bad] == ["unreachable", "expires"]
    assert "refused" in str(bad[0].data["error"])
    assert summary.data == {"endpoints": 4, "bad": 4, "omitted": 2}


def test_a_server_that_hangs_does_not_hide_others(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, is_over = free_port(), threading.Event()
    connect = socket.create_connection

    def hangs(address: tuple[str, int], timeout: float) -> Any:
        if address[1] == slow:
            is_over.wait(60)
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", hangs)
    with tls_server(authority.issue(HOST, days=5)) as port:
        both = [
            {"host": HOST, "port": each_port, "ca_file": authority.file}
            for each_port in (slow, port)
        ]
        plugin = Tls(endpoints=both, timeout=10)
        make = plugin._calls.make

        def make_soon(calls: dict[str, BoundedCall[Any]]) -> Any:
            [(name, call)] = calls.items()
            return make({name: replace(call, seconds=0.5)} if name.endswith(f":{slow}") else calls)

        monkeypatch.setattr(plugin._calls, "make", make_soon)
        rig = Rig(plugin)
        rig.clock.time = datetime.now(UTC)
        rows = [observation.data for _ in range(2) for observation in rig.observe()]
    is_over.set()

    assert [row.get("problem") for row in rows] == ["unreachable", "expires", None] * 2
    assert rows[0]["error"] == "no answer within 0.5 s"
    assert rows[3]["error"] == "the previous call still hangs"


def test_nonsense_of_one_server_does_not_hide_others(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nonsense(_: object) -> None:
        raise ValueError("error parsing asn1 value")

    with tls_server(authority.issue(HOST)) as port:
        trusted = {"host": HOST, "port": port, "ca_file": authority.file}
        [unknown, summary] = check({"host": f"{'a' * 64}.example"}, trusted)
        monkeypatch.setattr("cryptography.x509.load_der_x509_certificate", nonsense)
        [unread, _] = check(trusted)
    assert (unknown.data["problem"], summary.data["bad"]) == ("unreachable", 1)
    assert "asn1" in str(unread.data["error"])


def test_repeated_checks_yield_equal_observations(authority: Authority) -> None:
    with tls_server(authority.issue(HOST, days=5)) as port:
        first, second = (
            [
                observation.data
                for observation in check({"host": HOST, "port": port, "ca_file": authority.file})
            ]
            for _ in range(2)
        )
    assert first == second


def test_only_certificates_of_the_options_are_shown(authority: Authority) -> None:
    with tls_server(authority.issue(HOST)) as port:
        rig = Rig(Tls(endpoints=[{"host": HOST, "port": port}]))
        tool = rig.host.tools["tls:show_certificate"]
        assert tool.params is not None
        params = tool.params.model_validate({"endpoint": f"{HOST}:{port}"})
        assert tool.call("run", params=params, ctx=rig.ctx)["names"] == [HOST]
        other = tool.params.model_validate({"endpoint": "internal.example:443"})
        with pytest.raises(LookupError, match="none of"):
            tool.call("run", params=other, ctx=rig.ctx)


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(PluginError, match="error_days must not be above"):
        Tls(endpoints=[{"host": "a"}], warning_days=3, error_days=7)
