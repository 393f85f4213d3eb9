"""Callbacks to real servers, well-behaved and otherwise."""

from __future__ import annotations

import base64
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3.util.connection
from standardwebhooks import Webhook, WebhookVerificationError

from boyd.models import Delivery, utc_now
from boyd.outbound import CallbackSender

OLD = "whsec_" + base64.b64encode(b"o" * 32).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
BODY = '{"runId": "1", "status": "completed", "title": "Überlauf"}'.encode()
PUBLIC = "93.184.215.14"


class Receiver:
    """A server that answers each connection with a function, and remembers the requests."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.requests: list[bytes] = []
        self.ended = threading.Event()
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(120)
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def headers(self) -> dict[str, str]:
        """The headers of the only request."""
        [request] = self.requests
        lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}

    def body(self) -> bytes:
        """The body of the only request."""
        return self.requests[0].partition(b"\r\n\r\n")[2]

    @contextmanager
    def serving(self) -> Iterator[Receiver]:
        self._thread.start()
        try:
            yield self
        finally:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._thread.join(120)
            self._server.close()
            assert not self._thread.is_alive()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, suppress(OSError):
                    self.requests.append(_request(connection))
                    self._answer(connection)
                self.ended.set()


def _request(connection: socket.socket) -> bytes:
    connection.settimeout(120)
    read = b""
    while b"\r\n\r\n" not in read or not read.endswith(b"}"):
        part = connection.recv(65536)
        if not part:
            break
        read += part
    return read


def says(status: str, *headers: str, body: bytes = b"") -> Callable[[socket.socket], None]:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""])
    return lambda connection: connection.sendall(head.encode() + body)


def drips(first: bytes, again: bytes) -> Callable[[socket.socket], None]:
    """Sends something, and then a little for ever, until the other side has gone."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(first)
        connection.settimeout(0.02)
        while True:
            with suppress(TimeoutError):
                if not connection.recv(1):
                    return
            connection.sendall(again)

    return answer


def post(url: str, **more: Any) -> Delivery:
    sender = CallbackSender(**{"allow_private": True, "timeout": 120.0, **more})
    return sender.post(url, BODY, "run_1", utc_now())


@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "299 Odd"])
def test_the_body_arrives_and_2xx_is_success(status: str) -> None:
    with Receiver(says(status)).serving() as receiver:
        delivery = post(receiver.url)

        assert receiver.requests[0].startswith(b"POST /hook HTTP/1.1\r\n")
        assert receiver.body() == BODY
        assert receiver.headers()["content-type"] == "application/json"
        assert receiver.headers()["host"] == f"127.0.0.1:{receiver.port}"
    assert delivery.ok
    assert delivery.status == int(status[:3])
    assert delivery.error is None
    assert delivery.duration > 0


def test_the_signature_verifies_with_each_secret_and_no_other() -> None:
    with Receiver(says("200 OK")).serving() as receiver:
        assert post(receiver.url, secrets=(OLD, NEW)).ok
        headers = receiver.headers()

        assert headers["webhook-id"] == "run_1"
        assert len(headers["webhook-signature"].split(" ")) == 2
        for secret in (OLD, NEW):
            assert Webhook(secret).verify(receiver.body(), headers)["status"] == "completed"
        other = Webhook("whsec_" + base64.b64encode(b"x" * 32).decode())
        with pytest.raises(WebhookVerificationError):
            other.verify(receiver.body(), headers)


def test_without_a_secret_it_is_not_signed() -> None:
    with Receiver(says("200 OK")).serving() as receiver:
        assert post(receiver.url).ok

        assert "webhook-signature" not in receiver.headers()
        assert receiver.headers()["webhook-id"] == "run_1"


@pytest.mark.parametrize("status", ["400 Bad Request", "410 Gone", "500 Oops", "503 Later"])
def test_another_status_is_a_failure(status: str) -> None:
    with Receiver(says(status, body=b"secret inside")).serving() as receiver:
        delivery = post(receiver.url)

    assert (delivery.ok, delivery.status) == (False, int(status[:3]))
    assert delivery.error == f"the answer was {status[:3]}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_not_followed(status: int) -> None:
    with (
        Receiver(says("200 OK")).serving() as target,
        Receiver(says(f"{status} Moved", f"Location: {target.url}")).serving() as receiver,
    ):
        delivery = post(receiver.url)

        assert target.requests == []
    assert (delivery.ok, delivery.status) == (False, status)
    assert delivery.error == f"the answer was {status}, and redirects are not followed"


def test_of_a_redirect_with_a_huge_body_only_the_beginning_is_read() -> None:
    endless = drips(b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n", b"x" * 65536)
    with Receiver(endless).serving() as receiver:
        assert post(receiver.url).status == 307
        assert receiver.ended.wait(120)


def test_of_a_huge_answer_only_the_beginning_is_read() -> None:
    sent = 0

    def answer(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)
            sent += 65536

    with Receiver(answer).serving() as receiver:
        assert post(receiver.url).ok
        assert receiver.ended.wait(120)
    assert sent < 100_000_000


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nX-A: "])
def test_a_server_that_drips_its_answer_for_ever_does_not_hold_us(first: bytes) -> None:
    with Receiver(drips(first, b"1")).serving() as receiver:
        delivery = post(receiver.url, timeout=0.5)

        assert receiver.ended.wait(120), "the connection was left open"
    assert (delivery.ok, delivery.status) == (False, None)
    assert 400 < delivery.duration < 60_000
    assert delivery.error is not None


def test_a_server_that_drips_only_the_body_has_answered() -> None:
    with Receiver(drips(b"HTTP/1.1 200 OK\r\n\r\n", b"1")).serving() as receiver:
        delivery = post(receiver.url, timeout=4)

        assert receiver.ended.wait(120), "the connection was left open"
    assert delivery.ok
    assert delivery.duration < 60_000


def test_a_server_that_says_nothing_is_waited_for_until_the_time_limit() -> None:
    silent = threading.Event()

    def answer(_: socket.socket) -> None:
        silent.wait(120)

    with Receiver(answer).serving() as receiver:
        delivery = post(receiver.url, timeout=0.3)
        silent.set()

    assert delivery.error in ("no answer within 0.3 s", "no answer in time")
    assert delivery.duration < 60_000


def test_a_resolver_that_hangs_does_not_hold_us(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        answered.wait(120)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    delivery = post("http://slow.example/", timeout=0.3, allow_private=False)
    answered.set()

    assert delivery.error == "no answer within 0.3 s"


@pytest.mark.parametrize(
    "answer", [b"", b"\x00\x01\x02", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 2000 OK\r\n\r\n"]
)
def test_a_malformed_response_is_a_failed_delivery(answer: bytes) -> None:
    with Receiver(lambda connection: connection.sendall(answer)).serving() as receiver:
        delivery = post(receiver.url)

    assert (delivery.ok, delivery.status) == (False, None)
    assert delivery.error
    assert "\n" not in delivery.error


def test_a_refused_connection_is_a_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        delivery = post(f"http://127.0.0.1:{free.getsockname()[1]}/")

    assert delivery.error == "no connection: Connection refused"


@pytest.mark.parametrize("allow_private", [False, True])
def test_a_name_that_does_not_resolve_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, allow_private: bool
) -> None:
    resolves(monkeypatch, [])
    delivery = post("http://nowhere.example/", allow_private=allow_private)

    assert delivery.error == "no connection: Name or service not known"


# Addresses


def resolves(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let every name mean what *answers* say, one after the other; the names asked for."""
    left, hosts = list(answers), []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *args: Any, **more: Any) -> Any:
        hosts.append(host)
        try:
            return real(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        except socket.gaierror:
            addresses = left.pop(0) if len(left) > 1 else left[0]
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (
                (socket.AF_INET6, 1, 6, "", (address, port, 0, 0))
                if ":" in address
                else (socket.AF_INET, 1, 6, "", (address, port))
            )
            for address in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return hosts


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The addresses that connections were made to; none is let through."""
    addresses: list[Any] = []

    def create(address: Any, *_: Any, **__: Any) -> socket.socket:
        addresses.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("urllib3.util.connection.create_connection", create)
    return addresses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "168.63.129.16",
        "100.64.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "fe80::1",
        "fec0::1",
        "fd00::1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
    ],
)
def test_a_name_that_means_an_address_that_is_not_public_is_refused(
    monkeypatch: pytest.MonkeyPatch, tries: list[Any], address: str
) -> None:
    resolves(monkeypatch, [address])
    delivery = post("http://rebound.example/", allow_private=False)

    assert delivery.error == "the host's address is not public"
    assert tries == []


def test_a_server_on_loopback_is_not_reached_by_any_name_for_it() -> None:
    with Receiver(says("200 OK")).serving() as receiver:
        for host in ("127.0.0.1", "localhost", "0x7f.1", "2130706433", "①②⑦.⓪.⓪.①"):
            delivery = post(f"http://{host}:{receiver.port}/", allow_private=False)
            assert (delivery.ok, delivery.status) == (False, None), host
            assert "not" in (delivery.error or "")
        assert receiver.requests == []


def test_the_connection_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, tries: list[Any]
) -> None:
    hosts = resolves(monkeypatch, [PUBLIC], ["127.0.0.1"])
    delivery = post("http://rebound.example/", allow_private=False)

    assert tries == [(PUBLIC, 80)]
    assert hosts == ["rebound.example"]
    assert delivery.error == "no connection: Connection refused"


def test_private_addresses_are_reached_when_they_are_allowed() -> None:
    with Receiver(says("200 OK")).serving() as receiver:
        assert post(f"http://localhost:{receiver.port}/", allow_private=True).ok


def test_proxies_and_passwords_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Receiver(says("200 OK")).serving() as receiver:
        assert post(receiver.url).ok

        assert "authorization" not in receiver.headers()


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of its own authority for hook.example, with its key."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    name = ["-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command = ["openssl", "req", "-x509", *key, "-keyout", str(path), "-out", f"{path}.crt", *name]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def tls_answer(certificate: Path) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            _request(secure)
            says("200 OK")(secure)

    return answer


class SecureReceiver(Receiver):
    """A server with TLS; what it reads first is left to TLS."""

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, suppress(OSError):
                    connection.settimeout(120)
                    self._answer(connection)


@pytest.mark.parametrize("allow_private", [False, True])
def test_tls_is_checked_against_the_name_and_not_the_address(
    monkeypatch: pytest.MonkeyPatch, certificate: Path, allow_private: bool
) -> None:
    resolves(monkeypatch, [PUBLIC])
    real = urllib3.util.connection.create_connection

    def create(address: tuple[str, int], *args: Any, **more: Any) -> socket.socket:
        return real(("127.0.0.1", address[1]), *args, **more)

    monkeypatch.setattr("urllib3.util.connection.create_connection", create)
    with SecureReceiver(tls_answer(certificate)).serving() as receiver:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", f"{certificate}.crt")
        fine = post(f"https://hook.example:{receiver.port}/", allow_private=allow_private)
        wrong = post(f"https://other.example:{receiver.port}/", allow_private=allow_private)
        monkeypatch.delenv("REQUESTS_CA_BUNDLE")
        unknown = post(f"https://hook.example:{receiver.port}/", allow_private=allow_private)

    assert fine.ok, fine.error
    assert "other.example" in (wrong.error or "")
    assert (unknown.error or "").startswith("TLS: ")


def test_a_server_without_tls_is_a_failure() -> None:
    with SecureReceiver(lambda connection: connection.sendall(b"hello\r\n")).serving() as receiver:
        delivery = post(f"https://127.0.0.1:{receiver.port}/")

    assert (delivery.error or "").startswith("TLS: ")
