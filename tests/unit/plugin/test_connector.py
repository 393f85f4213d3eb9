"""Plugins for other systems: what their options enable, their credentials, and their requests."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from boyd import ActionResult, ConfigError, Connector, Context, Secret, action
from boyd.plugin import PluginHost
from boyd.plugins.http_service import (
    MAX_BYTES,
    HttpAccess,
    HttpService,
    ServiceError,
    change,
)
from boyd.plugins.results import MAX_LINES, difference
from boyd.settings.validation import BaseUrl
from boyd.text.redaction import clean
from harness import free_port
from plugin_kit import Site, context, site


class Lamp(Connector):
    id = "lamp"

    class Actions(BaseModel):
        switch: HttpAccess | None = None
        break_it: HttpAccess | None = None

    class Options(Connector.Options):
        url: BaseUrl = "http://lamp.example"
        queue: str | None = None
        access: HttpAccess = HttpAccess()
        actions: Lamp.Actions

    options: Options

    @action()
    def switch(self) -> None:
        """Switch it on."""

    @action()
    def break_it(self) -> None:
        """Break it."""


Lamp.Options.model_rebuild()


def test_a_connector_has_only_the_actions_that_its_options_enable() -> None:
    assert set(PluginHost([Lamp(actions={})]).actions) == set()
    assert set(PluginHost([Lamp(actions={"switch": {}})]).actions) == {"lamp:switch"}


def test_the_queue_of_a_connector_is_that_of_its_actions() -> None:
    host = PluginHost([Lamp(actions={"switch": {}}, queue="act.hall")])
    assert host.actions["lamp:switch"].queue == "act.hall"
    assert PluginHost([Lamp(actions={"switch": {}})]).actions["lamp:switch"].queue is None


def test_an_action_without_credentials_of_its_own_uses_those_for_reading(tmp_path: Path) -> None:
    own = {"token": {"file": tmp_path / "token"}}
    lamp = Lamp(actions={"switch": {}, "break_it": own})

    assert lamp.access_of("switch", lamp.options.access) == HttpAccess()
    assert lamp.access_of("break_it", lamp.options.access) == HttpAccess.model_validate(own)


def test_a_secret_file_is_read_each_time_and_its_value_redacted(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token\n")
    secret = Secret(file=file)
    assert secret.read() == "first-token"
    file.write_text("second-token\n")
    assert secret.read() == "second-token"
    assert "second-token" not in clean("with second-token")


def test_a_secret_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAMP_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="LAMP_TOKEN: holds no secret on this worker"):
        Secret(env="LAMP_TOKEN").read()
    with pytest.raises(ConfigError, match="No such file"):
        Secret(file=tmp_path / "token").read()
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        Secret(file=tmp_path / "binary").read()


@pytest.mark.parametrize(
    "options",
    [
        {"username": "ann"},
        {"token": {"env": "A"}, "username": "ann", "password": {"env": "B"}},
        {"client_cert": "cert.pem"},
        {"token": {}},
        {"token": {"env": "A", "file": "b"}},
    ],
)
def test_credentials_that_contradict_each_other_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HttpAccess.model_validate(options)


@pytest.fixture
def server() -> Iterator[Site]:
    with site() as running:
        yield running


@pytest.fixture
def ctx() -> Context:
    return context("lamp")


def test_a_request_carries_its_credentials(
    server: Site, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMP_TOKEN", "the-token")
    server.body = b'{"on": true}'
    service = HttpService(server.url, HttpAccess(token=Secret(env="LAMP_TOKEN")))

    assert service.get(ctx, "/state", room="hall") == {"on": True}
    method, path, headers, _ = server.requests[-1]
    assert (method, path) == ("GET", "/state?room=hall")
    assert headers["Authorization"] == "Bearer the-token"

    monkeypatch.setenv("LAMP_PASSWORD", "the-password")
    access = HttpAccess(username="ann", password=Secret(env="LAMP_PASSWORD"))
    HttpService(server.url, access).send(ctx, "POST", "/state", body={"on": False})
    _, _, headers, body = server.requests[-1]
    assert headers["Authorization"].startswith("Basic ")
    assert json.loads(body) == {"on": False}


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (503, b"come back\nlater", "answered 503: come back later"),
        (302, b"", "answered 302"),
        (200, b"<html>", "gave no usable JSON"),
        (200, b" " * (MAX_BYTES + 1), f"more than {MAX_BYTES} bytes"),
    ],
    ids=["an error", "a redirect", "no JSON", "too large"],
)
def test_an_unusable_answer_is_an_error_that_says_what_it_was(
    server: Site, ctx: Context, status: int, body: bytes, message: str
) -> None:
    server.status, server.body = status, body
    with pytest.raises(ServiceError, match=message) as raised:
        HttpService(server.url, HttpAccess()).get(ctx, "/state")
    assert raised.value.status == status


def test_a_service_that_cannot_be_reached_is_an_error_without_the_query(
    ctx: Context,
) -> None:
    service = HttpService(f"http://127.0.0.1:{free_port()}", HttpAccess())
    with pytest.raises(ServiceError, match=r"cannot be reached: .*refused") as raised:
        service.get(ctx, "/state", secret="query")
    assert raised.value.status is None
    assert "query" not in str(raised.value)


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_change_without_an_answer_of_the_service_has_an_unknown_outcome(
    server: Site, ctx: Context, status: int
) -> None:
    server.status = status
    service = HttpService(server.url, HttpAccess())
    result = change(lambda: service.send(ctx, "POST", "/state"))
    assert isinstance(result, ActionResult)
    assert result.unknown


def test_a_change_with_success_and_an_unusable_answer_may_have_happened(server: Site) -> None:
    service = HttpService(server.url, HttpAccess())
    for body in (b'{"a":', b"[" * 100_000, b" " * (MAX_BYTES + 1)):
        server.body = body
        result = change(lambda: service.send(context(), "POST", "/x", body={}))
        assert isinstance(result, ActionResult)
        assert result.unknown


def test_a_server_that_trickles_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            with listening.accept()[0] as line, suppress(OSError):
                line.recv(65536)
                line.sendall(b"HTTP/1.1 200 OK\r\n\r\n[")
                while True:
                    line.sendall(b" ")
                    time.sleep(0.01)

        thread = threading.Thread(target=trickle)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ServiceError, match=r"took too long|timed out"):
            HttpService(url, HttpAccess(), timeout=0.2).get(context(), "/")
        thread.join()


def test_a_login_is_not_passed_on_to_requests_with_other_credentials(
    server: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login joe password hidden\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("LAMP_TOKEN", "of-the-action")
    server.headers = {"Set-Cookie": "session=of-the-action"}
    ctx = context()
    HttpService(server.url, HttpAccess(token=Secret(env="LAMP_TOKEN"))).get(ctx, "/")
    HttpService(server.url, HttpAccess()).get(ctx, "/")
    headers = server.requests[-1][2]
    assert not {"Cookie", "Authorization"} & headers.keys()


def test_an_invalid_token_is_refused_without_showing_it(
    server: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMP_TOKEN", "ab\ncdefg")
    service = HttpService(server.url, HttpAccess(token=Secret(env="LAMP_TOKEN")))
    with pytest.raises(ConfigError) as caught:
        service.get(context(), "/")
    assert "cdefg" not in str(caught.value)


def test_a_change_that_times_out_may_have_happened_and_one_never_sent_has_not(
    server: Site, ctx: Context
) -> None:
    held = threading.Event()
    server.hold = held.wait
    slow = HttpService(server.url, HttpAccess(), timeout=0.05)
    result = change(lambda: slow.send(ctx, "POST", "/state"))
    held.set()
    assert isinstance(result, ActionResult)
    assert result.unknown
    service = HttpService(f"http://127.0.0.1:{free_port()}", HttpAccess())
    with pytest.raises(ServiceError, match="refused"):
        change(lambda: service.send(ctx, "POST", "/state"))


def test_a_difference_shows_the_lines_that_change() -> None:
    text = difference({"replicas": 2, "name": "web"}, {"replicas": 3, "name": "web"}, "web")
    assert text.splitlines()[:2] == ["--- web now", "+++ web then"]
    assert "-replicas: 2" in text
    assert "+replicas: 3" in text
    assert difference("same", "same", "x") == ""


def test_a_long_difference_is_cut() -> None:
    lines = difference("", "\n".join(map(str, range(2 * MAX_LINES))), "x").splitlines()
    assert len(lines) == MAX_LINES + 1
    assert lines[-1].endswith("more lines")
