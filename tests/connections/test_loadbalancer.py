"""The connector `loadbalancer` with a real HAProxy and a real nginx."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from boyd_connectors.loadbalancer.balancers import AnswerLost, BalancerError, HAProxy
from boyd_connectors.loadbalancer.plugin import LoadBalancer
from connection_kit import ConnectedAgent, program
from harness import Deployment, free_port, wait_until
from plugin_kit import Rig, Site, data_of, site
from signals import signal_process

pytestmark = [pytest.mark.real, pytest.mark.long]

HAPROXY = """
global
    stats socket {folder}/read.sock mode 600 level user
    stats socket {folder}/admin.sock mode 600 level admin
defaults
    mode http
    timeout connect 1s
    timeout client 5s
    timeout server 5s
    timeout check 10s
frontend in
    bind 127.0.0.1:{port}
    default_backend web
backend web
    option httpchk GET /
    http-check expect ! status 500
    default-server check inter 100ms fall 2 rise 1
    server one {one}
    server two {two} weight 7
resolvers none
    nameserver none 127.0.0.1:9
backend unresolved
    server three three.invalid:80 init-addr none resolvers none
"""
NGINX = """
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream web {{ include {folder}/web.conf; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://web; }}
    location = /status {{ stub_status; }}
  }}
}}
"""


class Front:
    """A load balancer in front of two sites, which name themselves."""

    def __init__(self, first: Site, two: Site) -> None:
        first.body, two.body = b"one", b"two"
        self.sites = (first, two)
        # A socket of HAProxy needs a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="front"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.argv: list[str] = []

    def configure(self, template: str, name: str) -> Path:
        """Write its configuration."""
        first, two = (site.url.removeprefix("http://") for site in self.sites)
        user = "user root;" if os.geteuid() == 0 else ""
        file = self.folder / name
        file.write_text(
            template.format(folder=self.folder, port=self.port, one=first, two=two, user=user)
        )
        return file

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            self.argv, stderr=subprocess.DEVNULL, start_new_session=True
        )
        wait_until(self.answers)

    def kill(self) -> None:
        """Kill it and its workers, and wait for its end."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def answers(self, times: int = 1) -> set[str]:
        """The servers that answer so many requests."""
        bodies = set()
        for _ in range(times):
            with suppress(requests.RequestException):
                bodies.add(requests.get(f"http://127.0.0.1:{self.port}/", timeout=5).text)
        return bodies & {"one", "two"}


@contextmanager
def front() -> Iterator[Front]:
    with ExitStack() as stack:
        new_front = Front(stack.enter_context(site()), stack.enter_context(site()))
        try:
            yield new_front
        finally:
            if new_front.process:
                new_front.kill()
            shutil.rmtree(new_front.folder)


@pytest.fixture
def haproxy() -> Iterator[Front]:
    """A HAProxy; missing: skipped here, failed in CI."""
    binary = program("haproxy", "haproxy")
    with front() as balancer:
        balancer.argv = [binary, "-db", "-f", str(balancer.configure(HAPROXY, "haproxy.cfg"))]
        balancer.start()
        yield balancer


@pytest.fixture
def nginx() -> Iterator[Front]:
    """An nginx; missing: skipped here, failed in CI."""
    binary = program("nginx", "nginx-light")
    with front() as balancer:
        config = balancer.configure(NGINX, "nginx.conf")
        balancer.configure(
            "server {one}; # the first\nserver {two} weight=7 max_fails=3;\n", "web.conf"
        )
        balancer.argv = [binary, "-c", str(config), "-e", str(balancer.folder / "nginx.log")]
        balancer.argv += ["-g", "daemon off;"]
        balancer.start()
        yield balancer


def haproxy_rig(haproxy: Front, **more: Any) -> Rig:
    own = {"socket": f"{haproxy.folder}/admin.sock"}
    actions = {"drain": own, "enable": own, "set_weight": own}
    reading = {"socket": f"{haproxy.folder}/read.sock"}
    return Rig(LoadBalancer(haproxy=reading, actions=actions, samples=1, **more))


def nginx_options(nginx: Front) -> dict[str, Any]:
    return {
        "status_url": f"http://127.0.0.1:{nginx.port}/status",
        "upstreams": {"web": str(nginx.folder / "web.conf")},
        "program": nginx.argv[0],
        "config": str(nginx.folder / "nginx.conf"),
        "pid_file": str(nginx.folder / "nginx.pid"),
    }


def nginx_rig(nginx: Front) -> Rig:
    actions: dict[str, Any] = {"drain": {}, "enable": {}, "set_weight": {}}
    return Rig(LoadBalancer(nginx=nginx_options(nginx), actions=actions))


def list_servers(rig: Rig) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = rig.host.tools["loadbalancer:list_servers"].call(
        "run", ctx=rig.ctx
    )
    return result


def test_a_server_is_drained_and_comes_back_as_it_was(haproxy: Front) -> None:
    rig, first_server, two = haproxy_rig(haproxy), {"server": "web/one"}, {"server": "web/two"}
    wait_until(lambda: haproxy.answers(8) == {"one", "two"})

    difference = rig.act("drain", first_server, "dry_run")["difference"]
    assert difference[-3:-1] == ["-state: ready", "+state: drain"]
    output = rig.act("drain", first_server)
    assert output["before"] == {"state": "ready", "weight": 1}
    assert rig.act("drain", first_server, "verify").verdict == "effective"
    assert haproxy.answers(12) == {"two"}
    assert [row["server"] for row in data_of(rig.observe(), "out-of-service")] == ["web/one"]
    for function in ("dry_run", "execute"):
        with pytest.raises(BalancerError, match="0 active servers would be left in web"):
            rig.act("drain", two, function)
        with pytest.raises(BalancerError, match="min_active is 1"):
            rig.act("set_weight", {**two, "weight": 0}, function)

    rig.roll_back("drain", first_server, output)
    assert wait_until(lambda: haproxy.answers(12) == {"one", "two"})
    assert rig.act("enable", first_server, "verify").verdict == "effective"


def test_a_server_changed_by_others_is_not_touched(haproxy: Front) -> None:
    rig, server = haproxy_rig(haproxy), {"server": "web/one"}
    output = rig.act("drain", server)
    other = rig.plugin._balancer("drain")  # type: ignore[attr-defined]
    other._tell("set server web/one state maint")
    with pytest.raises(BalancerError, match=r"changed since.*it is maint"):
        rig.roll_back("drain", server, output)
    for function in ("dry_run", "execute"):
        with pytest.raises(BalancerError, match="in maintenance"):
            rig.act("drain", server, function)
    assert other._ask("show servers state web").split("one 127.0.0.1 ")[1][2:3] == "1"


def test_two_workers_do_not_take_the_last_two_servers_away(
    haproxy: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, two = haproxy_rig(haproxy), haproxy_rig(haproxy)
    change = HAProxy.change

    def meanwhile(self: HAProxy, *arguments: Any) -> None:
        monkeypatch.setattr(HAProxy, "change", change)
        self._tell("set server web/two state drain")
        change(self, *arguments)

    monkeypatch.setattr(HAProxy, "change", meanwhile)
    with pytest.raises(BalancerError, match="0 active servers would be left"):
        rig.act("drain", {"server": "web/one"})
    states = {row["server"]: row["state"] for row in list_servers(two)}
    assert (states["web/one"], states["web/two"]) == ("ready", "drain")


def test_a_server_whose_name_does_not_resolve_is_down(haproxy: Front) -> None:
    observations = haproxy_rig(haproxy).observe()
    assert [row["server"] for row in data_of(observations, "server-down")] == ["unresolved/three"]
    assert not data_of(observations, "out-of-service")


def test_a_weight_is_set_and_put_back(haproxy: Front) -> None:
    rig, params = haproxy_rig(haproxy), {"server": "web/two", "weight": 0}
    output = rig.act("set_weight", params)
    assert rig.act("set_weight", params, "verify").verdict == "effective"
    assert haproxy.answers(8) == {"one"}
    rig.roll_back("set_weight", params, output)
    [server] = [row for row in list_servers(rig) if row["server"] == "web/two"]
    assert server["weight"] == 7


def test_errors_and_servers_that_are_down_are_seen(haproxy: Front) -> None:
    rig = haproxy_rig(haproxy, error_requests=2)
    rig.observe()
    haproxy.sites[0].status = 503
    wait_until(lambda: haproxy.answers(20) == {"one", "two"})
    [failing] = data_of(rig.observe(), "errors")
    assert (failing["server"], failing["errorRate"]) == ("web/one", 1.0)

    haproxy.sites[0].status = haproxy.sites[1].status = 500
    wait_until(lambda: len(data_of(rig.observe(), "server-down")) == 3)
    assert {"backend": "web", "servers": 2} in data_of(rig.observe(), "no-server")
    # It is to get requests, but cannot answer them.
    assert rig.act("enable", {"server": "web/one"}, "verify").verdict == "no effect"


def test_a_socket_for_reading_changes_nothing(haproxy: Front) -> None:
    reading = {"socket": f"{haproxy.folder}/read.sock"}
    rig = Rig(LoadBalancer(haproxy=reading, actions={"drain": {}}))
    with pytest.raises(BalancerError, match="Permission denied"):
        rig.act("drain", {"server": "web/one"})
    assert haproxy.answers(12) == {"one", "two"}


def test_a_haproxy_killed_before_it_answers_leaves_an_unknown_outcome(haproxy: Front) -> None:
    rig, params = haproxy_rig(haproxy), {"server": "web/one"}
    assert haproxy.process is not None
    balancer = rig.plugin._balancer("drain")  # type: ignore[attr-defined]
    server = next(
        first_server for first_server in balancer.servers(rig.ctx) if first_server.name == "web/one"
    )
    outcome: list[Exception] = []

    def change() -> None:
        try:
            balancer.change(server, "drain", 1)
        except BalancerError as error:
            outcome.append(error)

    def connections() -> int:
        return Path("/proc/net/unix").read_text().count(f"{haproxy.folder}/admin.sock")

    # Besides the socket that listens, those of the look before have to be closed.
    wait_until(lambda: connections() == 1)
    signal_process(haproxy.process.pid, signal.SIGSTOP)
    thread = threading.Thread(target=change)
    thread.start()
    wait_until(lambda: connections() > 1)
    haproxy.kill()
    thread.join()
    assert [type(exception) for exception in outcome] == [AnswerLost]

    [lost] = data_of(rig.observe(), "unreachable")
    assert "cannot be reached" in lost["error"]
    with pytest.raises(BalancerError, match="cannot be reached"):
        rig.act("drain", params, "verify")
    haproxy.start()
    assert not data_of(rig.observe(), "unreachable")
    wait_until(lambda: haproxy.answers(12) == {"one", "two"})


def test_nginx_reads_a_changed_file_and_the_old_one_again(nginx: Front) -> None:
    rig, file = nginx_rig(nginx), nginx.folder / "web.conf"
    first = file.read_text()
    params = {"server": f"web/{nginx.sites[0].url.removeprefix('http://')}"}
    assert "+state: drain" in rig.act("drain", params, "dry_run")["difference"]
    output = rig.act("drain", params)
    assert wait_until(lambda: rig.act("drain", params, "verify").verdict == "effective")
    # A process of nginx that ends may still answer what it has accepted.
    assert wait_until(lambda: nginx.answers(12) == {"two"})
    assert file.read_text() == first.replace("; # the first", " down; # the first")
    assert data_of(rig.observe(), "summary")[0]["active"] == 1

    rig.roll_back("drain", params, output)
    assert file.read_text() == first
    assert wait_until(lambda: nginx.answers(12) == {"one", "two"})


def test_a_change_never_loaded_by_nginx_is_loaded_at_the_next_attempt(nginx: Front) -> None:
    rig, file = nginx_rig(nginx), nginx.folder / "web.conf"
    params = {"server": f"web/{nginx.sites[0].url.removeprefix('http://')}"}
    real = file.rename(nginx.folder / "real.conf")
    file.symlink_to(real)
    # As it is left if a worker is killed before it has nginx read the file.
    real.write_text(real.read_text().replace("; # the first", " down; # the first"))
    assert rig.act("drain", params, "verify").verdict == "no effect"
    rig.act("drain", params)
    assert wait_until(lambda: rig.act("drain", params, "verify").verdict == "effective")
    # A process of nginx that ends may still answer what it has accepted.
    assert wait_until(lambda: nginx.answers(12) == {"two"})
    assert file.is_symlink()


def test_an_nginx_that_is_gone_is_seen_without_its_status_page(nginx: Front) -> None:
    rig = Rig(LoadBalancer(nginx={**nginx_options(nginx), "status_url": None}))
    assert not data_of(rig.observe(), "unreachable")
    nginx.kill()
    assert "nginx does not run" in data_of(rig.observe(), "unreachable")[0]["error"]


def test_a_configuration_that_nginx_refuses_stays_as_it_was(nginx: Front) -> None:
    rig, file = nginx_rig(nginx), nginx.folder / "web.conf"
    params = {"server": f"web/{nginx.sites[0].url.removeprefix('http://')}", "weight": 3}
    with (nginx.folder / "nginx.conf").open("a") as config:
        config.write("nonsense")
    first = file.read_text()
    with pytest.raises(BalancerError, match=r"nothing was changed: .*nonsense|unexpected end"):
        rig.act("set_weight", params)
    assert file.read_text() == first
    assert nginx.answers(12) == {"one", "two"}


def test_an_nginx_that_is_gone_is_no_success(nginx: Front) -> None:
    rig = nginx_rig(nginx)
    params = {"server": f"web/{nginx.sites[0].url.removeprefix('http://')}"}
    first = (nginx.folder / "web.conf").read_text()
    nginx.kill()
    with pytest.raises(BalancerError, match="nothing was changed"):
        rig.act("drain", params)
    assert (nginx.folder / "web.conf").read_text() == first
    assert data_of(rig.observe(), "unreachable")
    nginx.start()
    rig.act("drain", params)
    assert wait_until(lambda: rig.act("drain", params, "verify").verdict == "effective")


def test_an_agent_drains_with_approval_and_undoes_it(
    haproxy: Front, deployment: Deployment
) -> None:
    text = f"""
    id = "front"
    [[plugins]]
    use = "loadbalancer"
    [plugins.options]
    haproxy = {{ socket = "{haproxy.folder}/read.sock" }}
    actions = {{ drain = {{ socket = "{haproxy.folder}/admin.sock" }} }}
    """
    wait_until(lambda: haproxy.answers(8) == {"one", "two"})
    agent = ConnectedAgent(deployment, text)
    assert agent.observed("loadbalancer/summary") == {"servers": 3, "active": 2}
    item, execution = agent.perform("loadbalancer:drain", server="web/one")
    assert "+state: drain" in item["preview"]["output"]["difference"]
    verified = agent.verified(execution)
    assert verified["verdict"] == "effective"
    assert verified["evidence"].startswith("web/one is drain")
    assert haproxy.answers(12) == {"two"}
    assert agent.undo(execution)["state"] == "succeeded"
    assert wait_until(lambda: haproxy.answers(12) == {"one", "two"})
