"""State and messages through TLS, by one URL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from urllib.parse import quote

import pytest
import redis
import requests
from kombu.exceptions import OperationalError

from boyd.errors import StoreConnectionFailed, StoreUnavailable
from boyd.messaging.celery_app import make_app
from boyd.store import connect, translate_errors
from faults.relay import Certificates, Relay
from harness import Deployment, wait_until
from tls_kit import Authority, tls_server

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server, a client."""
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def relay(redis_url: str, certificates: Certificates) -> Iterator[Relay]:
    """TLS in front of an empty Redis."""
    with Relay(int(redis_url.rpartition(":")[2].partition("/")[0]), certificates) as tls_relay:
        yield tls_relay


def refusal_by(url: str) -> StoreUnavailable:
    """The error of a connection that does not come about."""
    with pytest.raises(StoreUnavailable) as refusal, translate_errors(), connect(url) as client:
        client.ping()
    return refusal.value


def test_an_iteration_runs_with_all_traffic_encrypted(
    redis_url: str, relay: Relay, certificates: Certificates, tmp_path: Path
) -> None:
    url = f"rediss://localhost:{relay.port}/0?{certificates.query}"
    with Deployment(url, tmp_path) as deployment:
        deployment.environment["BOYD_BROKER_URL"] = url.replace("/0?", "/1?")
        deployment.worker("w0", "agents.storm:storm0")
        deployment.beat("b0", "agents.storm:storm0")
        base = deployment.api("a0")
        headers = deployment.key("client", "admin")

        assert deployment.ended("storm0", 1).success
        response = requests.get(f"{base}/api/v0/loop/status", headers=headers, timeout=60)
        assert response.status_code == 200, response.text
        assert response.json()["agentId"] == "storm0"
        with redis.Redis.from_url(redis_url, decode_responses=True) as plain:
            wait_until(
                lambda: {c["db"] for c in plain.client_list() if c["cmd"] == "brpop"} == {"1"}
            )


@pytest.mark.parametrize(
    ("lacks", "advice"),
    [
        ("ssl_ca_certs", "ssl_ca_certs"),
        (("ssl_certfile", "ssl_keyfile"), "ssl_certfile"),  # the relay hangs up without a reason
        ("name", "host"),
    ],
)
def test_doctor_names_the_option_of_a_bad_certificate(
    relay: Relay, certificates: Certificates, lacks: str | tuple[str, ...], advice: str
) -> None:
    parts = [part for part in certificates.query.split("&") if not part.startswith(lacks)]
    host = "127.0.0.1" if lacks == "name" else "localhost"
    url = f"rediss://{host}:{relay.port}/0?{'&'.join(parts)}"

    assert advice in refusal_by(url).advice
    with make_app(url).connection_for_write() as broker, pytest.raises(OperationalError):
        broker.ensure_connection(max_retries=1)


def test_a_certificate_that_has_expired_is_named_as_such(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with tls_server(authority.issue("localhost", days=-1)) as port:
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={quote(str(authority.file))}"
        refusal = refusal_by(url)

    assert isinstance(refusal, StoreConnectionFailed)
    assert "expired" in str(refusal)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH\r\n"])
def test_another_program_at_the_port_of_redis_is_named_as_such(answer: bytes) -> None:
    class Stranger(BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(answer)
            self.request.recv(65536)

    refusal = refusal_of("redis", Stranger)

    assert "another program" in str(refusal)
    assert "port" in refusal.advice


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_server_that_hangs_up_at_once_is_named_as_such(scheme: str) -> None:
    refusal = refusal_of(scheme, BaseRequestHandler)

    assert "hangs up" in str(refusal)
    assert "rediss://" in refusal.advice


def refusal_of(scheme: str, handler: type[BaseRequestHandler]) -> StoreUnavailable:
    """The refusal of a server that handles connections so."""
    with TCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        refusal = refusal_by(f"{scheme}://127.0.0.1:{server.server_address[1]}/0")
        server.shutdown()
        thread.join()
    return refusal


def test_the_advice_for_a_url_that_lacks_tls_is_to_add_it(relay: Relay) -> None:
    assert "rediss://" in refusal_by(f"redis://localhost:{relay.port}/0").advice
