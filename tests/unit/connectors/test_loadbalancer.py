"""Load balancers: files of nginx, the last server of a backend, and options."""

from __future__ import annotations

import pytest

from boyd.errors import PluginError
from boyd_connectors.loadbalancer.balancers import BackendServer, BalancerError, change_line
from boyd_connectors.loadbalancer.plugin import LoadBalancer

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
