"""The plugins `dns` and `tls` with real resolvers (unbound) and a real TLS server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boyd_connectors.dns import Dns
from boyd_connectors.dns.plugin import DnsResolver, WatchedName
from connection_kit import UpAgent, program
from harness import free_port, wait_until
from plugin_kit import Rig
from tls_kit import Authority, tls_server

pytestmark = [pytest.mark.real, pytest.mark.long]

NAME = "www.shop.example"
CONFIGURATION = """
server:
  port: {port}
  interface: 127.0.0.1
  do-daemonize: no
  username: ""
  chroot: ""
  pidfile: ""
  use-syslog: no
  do-not-query-localhost: no
  module-config: "iterator"
  local-zone: "example." static
  local-data: "www.shop.example. IN A {address}"
  local-data: "shop.example. IN MX 10 mail.shop.example."
  {refused}
remote-control:
  control-enable: no
{forwarded}
"""
REFUSED = 'local-zone: "broken.net." always_refuse'
FORWARDED = 'forward-zone:\n  name: "broken.net."\n  forward-addr: 127.0.0.1@{port}\n'


class Unbound:
    """A resolver of its own, which knows the zone `example`."""

    def __init__(self, folder: Path, address: str, behind: Unbound | None = None) -> None:
        """Start it; for `broken.net` it asks *behind*, or refuses."""
        self._file = folder / f"{address}.conf"
        self._program = program("unbound", "unbound")
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._broken = {
            "refused": "" if behind else REFUSED,
            "forwarded": FORWARDED.format(port=behind._port) if behind else "",
        }
        self.start(address)

    def start(self, address: str) -> None:
        """Start it; the name has that address."""
        text = CONFIGURATION.format(port=self._port, address=address, **self._broken)
        self._file.write_text(text)
        with self._file.with_suffix(".log").open("a") as log:
            command = [self._program, "-d", "-c", str(self._file)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        resolver = DnsResolver("127.0.0.1", self._port)
        wait_until(lambda: resolver.ask(WatchedName(name=NAME), 1).values == (address,))

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def resolvers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Unbound]]:
    folder = tmp_path_factory.mktemp("unbound")
    behind = Unbound(folder, "192.0.2.2")
    started = [Unbound(folder, "192.0.2.1", behind), behind]
    yield started
    for process in started:
        process.kill()


def observe(resolvers: list[Unbound], *names: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    addresses = [resolver.address for resolver in resolvers]
    rig = Rig(Dns(names=names, resolvers=addresses, samples=1, timeout=10))
    return [
        (observation.source.partition("/")[2], observation.data) for observation in rig.observe()
    ]


def test_names_that_exist_are_only_counted(resolvers: list[Unbound]) -> None:
    records = [{"name": NAME}, {"name": "shop.example", "type": "MX"}]
    assert observe(resolvers[:1], *records) == [("names", {"names": 2, "bad": 0, "omitted": 0})]


def test_missing_names_missing_records_and_failing_resolvers_are_distinguished(
    resolvers: list[Unbound],
) -> None:
    records = [
        {"name": "gone.shop.example"},
        {"name": NAME, "type": "AAAA"},
        {"name": "www.broken.net"},
    ]
    *problems, _ = observe(resolvers[:1], *records)
    assert [(kind, data["code"], data["problem"]) for kind, data in problems] == [
        ("name", "NXDOMAIN", "the name does not exist"),
        ("name", "NOERROR", "the name has no such record"),
        ("name", "SERVFAIL", "the resolver fails: SERVFAIL"),
    ]


def test_resolvers_that_disagree_and_values_that_are_not_expected_are_observed(
    resolvers: list[Unbound],
) -> None:
    first, second = (resolver.address for resolver in resolvers)
    watched = {"name": NAME, "expected": ["192.0.2.1"]}
    [(kind, disagreement), (other, unexpected), _] = observe(resolvers, watched)
    assert (kind, other) == ("disagreement", "unexpected")
    assert disagreement["answers"] == {first: "192.0.2.1", second: "192.0.2.2"}
    assert unexpected["answers"] == {second: "192.0.2.2"}


def test_the_tool_shows_the_answer_of_each_resolver(resolvers: list[Unbound]) -> None:
    rig = Rig(Dns(names=[{"name": NAME}], resolvers=[resolvers[0].address]))
    tool = rig.host.tools["dns:look_up"]
    assert tool.params is not None
    params = tool.params.model_validate({"name": "shop.example", "type": "MX"})
    result = tool.call("run", params=params, ctx=rig.ctx)
    assert result == {
        resolvers[0].address: {"code": "NOERROR", "values": ["10 mail.shop.example."]}
    }


def test_an_agent_sees_a_resolver_and_a_tls_server_die_and_come_back(
    resolvers: list[Unbound], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, port = authority.issue("127.0.0.1", days=6), free_port()
    text = AGENT.format(resolver=resolvers[0].address, port=port, ca_file=authority.file)
    with UpAgent(tmp_path, text) as agent:
        assert "refused" in agent.observed("tls/certificate")["error"]
        with tls_server(certificate, port):
            wait_until(lambda: agent.observed("tls/certificate")["problem"] == "expires")
        resolvers[0].kill()
        assert "timeout" in agent.observed("dns/name")["problem"]
        resolvers[0].start("192.0.2.1")
        wait_until(lambda: agent.observed("dns/names")["bad"] == 0)


AGENT = """
id = "connected"
mode = "continuous"
loop_interval = 1

[[plugins]]
use = "tls"
[plugins.options]
interval = 1
endpoints = [{{ host = "127.0.0.1", port = {port}, ca_file = "{ca_file}" }}]

[[plugins]]
use = "dns"
[plugins.options]
interval = 1
timeout = 10
resolvers = ["{resolver}"]
names = [{{ name = "www.shop.example" }}]
"""
