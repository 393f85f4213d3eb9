"""Requests of an action go to its destinations only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import requests

from boyd.outbound.guarded_session import GuardedSession
from boyd.plugin.http_session import Session


class Redirecting(BaseHTTPRequestHandler):
    """Sends everybody to a host that is no destination."""

    def do_GET(self) -> None:
        """Redirect, or greet."""
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "http://elsewhere.example.com/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def here() -> Iterator[str]:
    """The host and port of a server."""
    server = HTTPServer(("127.0.0.1", 0), Redirecting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def sessions(*destinations: str) -> list[requests.Session]:
    """The session of plugins and the guarded one, with those destinations."""
    guarded = GuardedSession(allow_private=True, timeout=5, destinations=destinations)
    return [Session(destinations), guarded]


def test_a_destination_is_reached(here: str) -> None:
    for session in sessions(here):
        with session:
            assert session.get(f"http://{here}/").status_code == 200


@pytest.mark.parametrize(
    "url", ["http://other.example.com/", "https://api.example.com:444/", "http://api.example.com/"]
)
def test_a_url_outside_the_destinations_is_refused_without_a_connection(url: str) -> None:
    for session in sessions("api.example.com:443"):
        with session, pytest.raises(requests.ConnectionError, match="is not among the dest"):
            session.get(url)


def test_a_redirect_leads_to_no_other_destination(here: str) -> None:
    refused = pytest.raises(requests.ConnectionError, match="elsewhere")
    with Session([here]) as session, refused:
        session.get(f"http://{here}/away")
