"""Requests of plugins: this host is never asked through a proxy, and others say which one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from boyd.export.tracing.trace_export import OtlpSender
from boyd.plugin.http_session import Session, proxy_for
from boyd.plugins.http_monitor.monitored_endpoint import MonitoredEndpoint, check
from plugin_kit import Site, site


@pytest.fixture
def web() -> Iterator[Site]:
    """A server on this host."""
    with site() as web_site:
        yield web_site


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A proxy of the environment, which refuses all that it is asked."""
    with site() as web_site:
        web_site.status = 403
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, web_site.url.replace("//", "//user:secret@"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield web_site


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_host_is_not_asked_through_a_proxy(web: Site, proxy: Site, host: str) -> None:
    url = web.url.replace("127.0.0.1", host)
    with Session() as session:
        session.get(url, timeout=60)

    assert len(web.requests) == 1
    assert proxy.requests == []
    assert proxy_for(url) is None


def test_a_redirect_to_this_host_is_not_followed_through_a_proxy(web: Site, proxy: Site) -> None:
    proxy.status = 302
    proxy.headers["Location"] = web.url
    with Session() as session:
        answer = session.get("http://far.example.com/", timeout=60)

    assert answer.status_code == 200
    assert (len(proxy.requests), len(web.requests)) == (1, 1)


def test_a_check_says_through_which_proxy_it_went_but_not_its_password(proxy: Site) -> None:
    check_result = check(MonitoredEndpoint(id="far", name="Far", url="http://far.example.com/"))
    address = proxy.url.partition("//")[2].rstrip("/")

    assert check_result.error == f"answered 403, expected 200 (through the proxy {address})"


@pytest.fixture
def netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A login for this host in `~/.netrc`."""
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.1 login joe password hidden\nmachine localhost login joe\n")
    monkeypatch.setenv("NETRC", str(path))


@pytest.mark.usefixtures("netrc")
def test_a_header_of_a_request_does_not_give_way_to_netrc(web: Site) -> None:
    with Session() as session:
        session.get(web.url, headers={"Authorization": "Bearer mine"}, timeout=60)
        session.get(web.url, timeout=60)
        session.get(web.url.replace("//", "//me:mine@"), timeout=60)

    sent = [request[2].get("Authorization") for request in web.requests]
    assert sent == ["Bearer mine", None, "Basic bWU6bWluZQ=="]


@pytest.mark.usefixtures("netrc")
def test_a_redirect_to_another_host_gets_no_credentials(web: Site) -> None:
    web.status = 302
    web.headers["Location"] = web.url.replace("127.0.0.1", "localhost")
    with Session() as session, suppress(requests.TooManyRedirects):
        session.get(web.url, headers={"Authorization": "Bearer mine"}, timeout=60)

    sent = [request[2].get("Authorization") for request in web.requests]
    assert sent[:2] == ["Bearer mine", None]


def test_spans_for_a_collector_on_this_host_pass_no_proxy(web: Site, proxy: Site) -> None:
    OtlpSender(web.url).send([])

    assert (len(web.requests), proxy.requests) == (1, [])
