"""Requests of an action go to its destinations only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from boyd.outbound.guarded_session import GuardedSession
from boyd.plugin.http_session import Session
from http_kit import Handler, serve


class Redirecting(Handler):
    """Sends everybody to a host that is no destination."""

    def answer(self) -> None:
        """Redirect, or greet."""
        status = 302 if self.path == "/away" else 200
        self.reply(status, Location="http://elsewhere.example.com/")


@pytest.fixture
def here() -> Iterator[str]:
    """The host and port of a server."""
    with serve(Redirecting) as url:
        yield url.removeprefix("http://")


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
