"""Requests of plugins: this host is never asked through a proxy, and others say which one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boyd.plugin.http_session import Session, proxy_for
from boyd.plugins.http_monitor.monitored_endpoint import MonitoredEndpoint, check
from plugin_kit import Site, site


@pytest.fixture
def web() -> Iterator[Site]:
    """A server on this host."""
    with site() as made:
        yield made


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A proxy of the environment, which refuses all that it is asked."""
    with site() as made:
        made.status = 403
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, made.url.replace("//", "//user:secret@"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield made


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
    found = check(MonitoredEndpoint(id="far", name="Far", url="http://far.example.com/"))
    address = proxy.url.partition("//")[2].rstrip("/")

    assert found.error == f"answered 403, expected 200 (through the proxy {address})"
