"""The client of the API: what it sends, what it tries again, and what it makes of answers."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from boyd.errors import ApiProblem, ApiUnavailable, ConfigError
from boyd.models import Model, utc_now
from boyd_cli import client as module
from boyd_cli.client import Client
from cli_kit import Cli
from http_kit import Handler, serve
from tls_kit import Authority, tls_server

AGAIN = '{"type": "/problems/%s", "title": "t", "status": %d, "detail": "so it is", "more": 1}'


class Said(Model):
    """An answer."""

    word: str


class Server:
    """Gives the answers that it is told to, and remembers the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[tuple[int, dict[str, str], bytes] | None] = []
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    def will(self, status: int = 200, body: str = '{"word": "yes"}', **headers: str) -> None:
        """Answer so, after what it will answer before."""
        self.answers.append((status, headers, body.encode()))

    def will_drop(self) -> None:
        """Drop the connection instead of an answer."""
        self.answers.append(None)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that says what it is told to say."""
    server = Server()

    class ServerHandler(Handler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append((self.command, self.path, headers, self.read_body()))
            answer = server.answers.pop(0)
            if answer is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            status, more, body = answer
            self.reply(status, body, **more)

    with serve(ServerHandler) as server.url:
        yield server


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of it."""
    monkeypatch.setattr(module, "PAUSE", 0.01)
    new_client = Client(server.url, "boyd_key")
    yield new_client
    new_client.close()


def test_a_request_carries_the_key_and_names_the_agent(server: Server, client: Client) -> None:
    server.will()
    assert client.of("a/b").get("/runs", Said, limit=3, all=True, cursor=None).word == "yes"
    [(method, path, headers, _)] = server.requests
    assert (method, path) == ("GET", "/api/v0/agents/a%2Fb/runs?limit=3&all=true")
    assert headers["authorization"] == "Bearer boyd_key"


def test_a_netrc_does_not_take_the_place_of_the_key(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for key in ("boyd_key", None):
        client = Client(server.url, key)
        server.will()
        client.get("/state", Said)
        client.close()
    assert [request[2].get("authorization") for request in server.requests] == [
        "Bearer boyd_key",
        None,
    ]


def test_a_post_that_is_dropped_is_sent_again_as_the_same(server: Server, client: Client) -> None:
    server.will_drop()
    server.will_drop()
    server.will()
    client.post("/runs", Said, {"title": "x", "kind": None}, if_match=7, wait=0)
    keys = {headers["idempotency-key"] for _, _, headers, _ in server.requests}
    assert (len(server.requests), len(keys)) == (3, 1)
    _, path, headers, body = server.requests[0]
    assert (path, body, headers["if-match"]) == ("/api/v0/runs?wait=0", b'{"title": "x"}', '"7"')


def test_it_is_not_sent_for_ever(server: Server, client: Client) -> None:
    for _ in range(3):
        server.will_drop()
    with pytest.raises(ApiUnavailable, match="the connection was lost; start it with"):
        client.get("/state", Said)
    assert server.answers == []


def test_a_body_with_what_json_lacks_is_not_taken_for_an_outage(client: Client) -> None:
    with pytest.raises(ValueError, match="cannot be sent as JSON"):
        client.post("/runs", Said, {"seconds": math.nan})


def test_a_delete_is_not_repeated(server: Server, client: Client) -> None:
    server.will_drop()
    with pytest.raises(ApiUnavailable):
        client.delete("/keys/1", Said)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("name", "status"), [("idempotency-in-flight", 409), ("too-many", 429)])
def test_requests_in_flight_or_rate_limited_are_retried(
    server: Server, client: Client, name: str, status: int
) -> None:
    server.will(status, AGAIN % (name, status), Retry_After="0.1")
    server.will()
    assert client.post("/runs", Said).word == "yes"
    assert server.requests[0][2]["idempotency-key"] == server.requests[1][2]["idempotency-key"]


def test_a_distant_retry_after_is_not_waited_for(server: Server, client: Client) -> None:
    server.will(429, AGAIN % ("too-many-requests", 429), Retry_After="3600")
    with pytest.raises(ApiProblem):
        client.get("/state", Said)


def test_a_problem_is_raised_with_all_that_it_says(server: Server, client: Client) -> None:
    server.will(409, AGAIN % ("finished", 409))
    with pytest.raises(ApiProblem, match="so it is") as caught:
        client.post("/runs/1/cancel", Said)
    problem = caught.value
    assert (problem.name, problem.status, problem.detail) == ("finished", 409, "so it is")
    assert problem.document["more"] == 1


def test_an_endpoint_of_a_plugin_is_asked(server: Server, client: Client) -> None:
    server.will()
    server.will(201)
    server.will()
    agent = client.of("a")
    agent.plugin("GET", "goals", "/goals", Said, status="Active", limit=None)
    agent.plugin("POST", "goals", "/goals", Said, {"description": "x", "criteria": None})
    agent.plugin("PUT", "g/s", "/goals/1", Said, {"a": 1}, force=True)
    base = "/api/v0/agents/a/plugins"
    assert [(method, path, body) for method, path, _, body in server.requests] == [
        ("GET", f"{base}/goals/goals?status=Active", b""),
        ("POST", f"{base}/goals/goals", b'{"description": "x"}'),
        ("PUT", f"{base}/g%2Fs/goals/1?force=true", b'{"a": 1}'),
    ]
    assert ["idempotency-key" in request[2] for request in server.requests] == [False, True, True]


def test_an_endpoint_refuses_in_its_own_words(server: Server, client: Client) -> None:
    server.will(409, '{"error": "it rests already"}')
    server.will(404, AGAIN % ("not-found", 404))
    with pytest.raises(ApiProblem, match="it rests already") as caught:
        client.plugin("POST", "goals", "/goals/1/suspend", Said)
    assert (caught.value.name, caught.value.status) == (module.REFUSED, 409)
    with pytest.raises(ApiProblem, match="so it is") as caught:
        client.plugin("GET", "goals", "/none", Said)
    assert caught.value.name == "not-found"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            502,
            '{"error": "a gateway"}',
            "answered 502 Bad Gateway, which is not a response of Boyd's API",
        ),
        (502, "<html>", "answered 502 Bad Gateway, which is not a response of Boyd's API"),
        (404, '{"detail": "x"}', "answered 404 Not Found, which is not"),
        (
            200,
            '{"words": 1}',
            "sent a response that Boyd .* does not understand: word: Field required",
        ),
        (200, "hello", "sent a response that Boyd"),
        (301, "", "redirects to /elsewhere"),
    ],
)
def test_a_response_that_is_not_of_the_api_is_an_error_that_says_so(
    server: Server, client: Client, status: int, body: str, message: str
) -> None:
    server.will(status, body, Location="/elsewhere")
    with pytest.raises(ApiProblem, match=message):
        client.get("/state", Said)


def test_an_api_that_is_not_there_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    message = rf"the API at http://127.0.0.1:{port} does not answer: connection refused; start it"
    with pytest.raises(ApiUnavailable, match=message):
        Client(f"http://127.0.0.1:{port}").get("/state", Said)


def test_an_unknown_authority_of_the_api_is_an_error_that_says_how_to_trust_it(
    tmp_path: Path,
) -> None:
    with tls_server(Authority(tmp_path).issue("localhost")) as port:
        message = "its certificate cannot be verified; let REQUESTS_CA_BUNDLE name"
        with pytest.raises(ApiUnavailable, match=message):
            Client(f"https://localhost:{port}").get("/state", Said)


def test_silence_ends(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(module, "CONNECT", 0.1)
        monkeypatch.setattr(module, "SILENCE", 0.1)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ApiUnavailable, match="it timed out"):
            Client(url).events()


def test_the_time_of_the_api_is_known(server: Server, client: Client) -> None:
    assert (client.now() - utc_now()).total_seconds() == pytest.approx(0, abs=1)
    server.will(Date="Fri, 01 Mar 2199 09:00:00 GMT")
    client.get("/state", Said)
    assert client.now().year == 2199


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("actions executions", '{"executions": []}'),
        ("audit show --agent a", '{"entries": []}'),
    ],
)
def test_a_period_counts_from_the_time_of_the_api(
    server: Server, tmp_path: Path, command: str, answer: str
) -> None:
    server.will(body='{"status": "ok", "timestamp": "2199-03-01T09:00:00Z"}')
    server.will(body=answer)
    Cli(tmp_path, BOYD_URL=server.url, BOYD_API_KEY="boyd_key")(*command.split(), "--since", "1h")
    assert "since=2199-03-01T08%3A0" in server.requests[-1][1]


EVENTS = """retry: 2000

event: missed
data: {}

:

id: 1-0
event: phase
data: {"id": "1-0", "kind": "phase", "at": "2026-03-01T09:00:00Z", "data": {"phase": "act"}}

id: 2-0
event: half
"""


def test_events_are_read_until_the_stream_ends(server: Server, client: Client) -> None:
    server.will(body=EVENTS)
    events = list(client.of("a").events("0-1"))
    assert [event.kind for event in events] == ["missed", "phase"]
    assert events[1].data == {"phase": "act"}
    assert server.requests[0][2]["last-event-id"] == "0-1"


def test_entries_of_an_investigation_are_read_with_their_places(
    server: Server, client: Client
) -> None:
    lost = "event: missed\ndata: {}\n\n"
    known_entry = 'id: 5-0\nevent: asked\ndata: {"kind": "asked", "text": "Why?"}\n\n'
    later = 'id: 6-0\nevent: sung\ndata: {"kind": "sung"}\n\nid: 7-0\n\n:\n\n'
    server.will(body=f"retry: 2000\n\n{lost}{known_entry}{later}", Content_Type="text/event-stream")
    entries = list(client.of("a").entries("i/1", "4-0"))

    assert [(entry.id, entry.entry and entry.entry.kind) for entry in entries] == [
        ("", None),
        ("5-0", "asked"),
        ("6-0", None),
    ]
    method, path, headers, _ = server.requests[0]
    assert (method, path) == ("GET", "/api/v0/agents/a/investigations/i%2F1/events")
    assert headers["last-event-id"] == "4-0"


def test_a_stream_that_breaks_off_is_not_taken_for_whole(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE", 0.2)
    server.will(body=EVENTS, Content_Length="9999")
    events = client.events("0-1", follow=False)
    assert [next(events).kind, next(events).kind] == ["missed", "phase"]
    with pytest.raises(ApiUnavailable):
        next(events)
    assert server.requests[0][1] == "/api/v0/events?follow=false"


@pytest.mark.parametrize(
    "url", ["boyd", "ftp://boyd", "http://", "http://me:secret@boyd", "http://boyd/?a=1"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Client(url)


def test_the_base_may_be_part_of_the_url() -> None:
    assert Client("https://boyd.example/x/api/v0/").url == "https://boyd.example/x"
