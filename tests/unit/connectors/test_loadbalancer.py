"""Load balancers: files of nginx, the last server of a backend, and options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread

import pytest

from boyd.errors import PluginError
from boyd.models import ActionResult
from boyd_connectors.loadbalancer import balancers
from boyd_connectors.loadbalancer.balancers import (
    AnswerLost,
    BackendServer,
    BalancerError,
    HAProxy,
    Nginx,
    NginxOptions,
    change_line,
)
from boyd_connectors.loadbalancer.plugin import LoadBalancer
from plugin_kit import Rig

FILE = """\
upstream web {
    least_conn;
    server 10.0.0.1:80 weight=3 max_fails=2; # the first
    server 10.0.0.2:80 down;
}
"""


@pytest.mark.parametrize(
    ("address", "state", "weight", "line"),
    [
        (
            "10.0.0.1:80",
            "drain",
            3,
            "    server 10.0.0.1:80 max_fails=2 weight=3 down; # the first",
        ),
        ("10.0.0.1:80", "ready", 1, "    server 10.0.0.1:80 max_fails=2; # the first"),
        ("10.0.0.2:80", "ready", 1, "    server 10.0.0.2:80;"),
    ],
)
def test_only_the_line_of_the_server_changes(
    address: str, state: str, weight: int, line: str
) -> None:
    after = change_line(FILE, address, state, weight)  # type: ignore[arg-type]
    assert set(after.splitlines()) - set(FILE.splitlines()) == {line}
    assert len(after.splitlines()) == len(FILE.splitlines())


def test_a_server_that_the_file_lacks_is_named() -> None:
    with pytest.raises(BalancerError, match=r"no line `server 10\.0\.0\.3:80`"):
        change_line(FILE, "10.0.0.3:80", "drain", 1)


@pytest.mark.parametrize(
    ("other", "allowed"),
    [
        (BackendServer("web/two", "ready", 1), True),
        (BackendServer("web/two", "drain", 1), False),
        (BackendServer("web/two", "ready", 0), False),
        (BackendServer("web/two", "ready", 1, up=False), False),
        (BackendServer("web/two", "ready", 1, backup=True), False),
        (BackendServer("api/two", "ready", 1), False),
    ],
)
def test_the_last_server_that_answers_is_not_taken_away(
    other: BackendServer, allowed: bool
) -> None:
    plugin = LoadBalancer(haproxy={"socket": "/run/haproxy.sock"})
    server = BackendServer("web/one", "ready", 1)
    if allowed:
        plugin._check(server, [server, other], "drain", 1)
    else:
        with pytest.raises(BalancerError, match="min_active"):
            plugin._check(server, [server, other], "drain", 1)
    # What gets no requests can be changed at any time.
    plugin._check(BackendServer("web/one", "ready", 1, up=False), [other], "drain", 1)


@pytest.mark.parametrize("options", [{}, {"haproxy": {}}, {"haproxy": {"socket": "relative"}}])
def test_options_without_a_load_balancer_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(PluginError):
        LoadBalancer(**options)


SERVER = BackendServer("web/one", "ready", 100)


@contextmanager
def haproxy(folder: Path, *refused: str) -> Iterator[tuple[HAProxy, list[str]]]:
    """An HAProxy that refuses some commands, and the commands that it has obeyed."""
    commands: list[str] = []

    class Runtime(StreamRequestHandler):
        def handle(self) -> None:
            command = self.rfile.readline().decode().strip()
            is_refused = command.endswith(refused)
            commands.extend([] if is_refused else [command])
            self.wfile.write(b"Not now.\n" if is_refused else b"\n")

    path = str(folder / "haproxy.sock")
    with ThreadingUnixStreamServer(path, Runtime) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield HAProxy(path), commands
        finally:
            server.shutdown()


def test_a_weight_is_restored_when_haproxy_refuses_the_state(tmp_path: Path) -> None:
    with (
        haproxy(tmp_path, "state drain") as (balancer, commands),
        pytest.raises(BalancerError) as caught,
    ):
        balancer.change(SERVER, "drain", 10)
    assert not isinstance(caught.value, AnswerLost)
    assert "Not now" in str(caught.value)
    assert commands == ["set server web/one weight 10", "set server web/one weight 100"]


def test_a_change_of_which_half_remains_has_an_unknown_outcome(tmp_path: Path) -> None:
    with (
        haproxy(tmp_path, "state drain", "weight 100") as (balancer, commands),
        pytest.raises(AnswerLost, match="weight was not restored"),
    ):
        balancer.change(SERVER, "drain", 10)
    assert commands == ["set server web/one weight 10"]


def test_an_nginx_that_is_too_slow_to_reload_may_have_read_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balancers, "NGINX_TIMEOUT", 0.5)
    upstream, program = tmp_path / "web.conf", tmp_path / "nginx"
    upstream.write_text(FILE)
    program.write_text('#!/bin/sh\ntest "$1" = -t || exec sleep 60\n')
    program.chmod(0o755)
    nginx = Nginx(NginxOptions(upstreams={"web": upstream}, program=str(program)))
    with pytest.raises(AnswerLost, match="may have read"):
        nginx.change(BackendServer("web/10.0.0.1:80", "ready", 3), "drain", 3)
    assert upstream.read_text() == FILE


class Unyielding:
    """A load balancer of which others drain a server meanwhile, and which takes nothing back."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def servers(self, ctx: object) -> list[BackendServer]:
        other = "drain" if self.states else "ready"
        mine = self.states[-1] if self.states else "ready"
        return [BackendServer(f"web/{n}", s, 1) for n, s in (("one", mine), ("two", other))]  # type: ignore[arg-type]

    def counters(self, ctx: object) -> dict[str, object]:
        return {}

    def change(self, server: BackendServer, state: str, weight: int) -> None:
        if self.states:
            raise BalancerError("Not now.")
        self.states.append(state)

    def pending_reason(self, server: BackendServer) -> None:
        return None


def test_a_change_that_cannot_be_taken_back_has_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin, balancer = LoadBalancer(haproxy={"socket": "/x"}, actions={"drain": {}}), Unyielding()
    monkeypatch.setattr(plugin, "_balancer", lambda *_: balancer)
    result = Rig(plugin).act("drain", {"server": "web/one"})
    assert isinstance(result, ActionResult)
    assert result.unknown
    assert "not taken back" in str(result.error)
