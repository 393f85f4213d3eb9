"""Several hosts on one machine: network namespaces with addresses of their own, on one bridge.

Needs root and the program `ip`; links are cut by taking an interface down, so that packets vanish
without a word, as they do when a cable is pulled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from itertools import count

_numbers = count(2)


def missing() -> str | None:
    """The reason that there can be no hosts on this machine, if there is one."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program `ip` (iproute2) is missing"
    probe = subprocess.run(["ip", "netns", "add", "boyd-probe"], capture_output=True, check=False)
    if probe.returncode != 0:
        return f"network namespaces cannot be made: {probe.stderr.decode().strip()}"
    _ip("netns", "del", "boyd-probe")
    return None


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Host:
    """A host: its namespace, its address, and the end of its cable on the bridge."""

    name: str
    namespace: str
    address: str
    cable: str

    @property
    def command(self) -> list[str]:
        """The prefix of a command that runs it on this host."""
        return ["ip", "netns", "exec", self.namespace]

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        """Plug it in again."""
        _ip("link", "set", self.cable, "up")


class Network:
    """A bridge and the hosts on it; the tests themselves are on it too, at `address`."""

    def __init__(self) -> None:
        self._tag = f"{os.getpid() % 10_000}"
        self._third = os.getpid() % 200 + 20
        self._bridge = f"byd{self._tag}"
        self.address = f"10.213.{self._third}.1"
        self.hosts: dict[str, Host] = {}
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def host(self, name: str) -> Host:
        """Add a host."""
        number = next(_numbers)
        host = Host(
            name,
            f"byd{self._tag}{name}",
            f"10.213.{self._third}.{number}",
            f"bv{self._tag}.{number}",
        )
        inner = f"bi{self._tag}.{number}"
        _ip("netns", "add", host.namespace)
        _ip("link", "add", host.cable, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", host.namespace)
        _ip("link", "set", host.cable, "master", self._bridge, "up")
        inside = ("-n", host.namespace)
        _ip(*inside, "addr", "add", f"{host.address}/24", "dev", inner)
        _ip(*inside, "link", "set", inner, "up")
        _ip(*inside, "link", "set", "lo", "up")
        self.hosts[name] = host
        return host

    def close(self) -> None:
        """Take everything down."""
        for host in self.hosts.values():
            _ip("netns", "del", host.namespace)
        _ip("link", "del", self._bridge)
