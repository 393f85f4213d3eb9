"""The URL of a Redis, for state and for messages."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.connection import SSLConnection

from boyd.errors import ConfigError, StoreUnavailable
from boyd.messaging.celery_app import make_app
from boyd.store import connect, mask_url, translate_errors
from boyd.store.server.connection import Address, Sentinels
from boyd.text import redaction

MASTER = {"is_master": True, "is_sdown": False, "is_odown": False, "num-other-sentinels": 2}


class Away:
    """A sentinel that does not answer."""

    def sentinel_masters(self) -> Mapping[str, Any]:
        """The masters as redis-py queries them."""
        raise redis.ConnectionError


class Slow:
    """A sentinel that answers when two have asked."""

    def __init__(self) -> None:
        self._both = threading.Barrier(2)

    def sentinel_masters(self) -> Mapping[str, Any]:
        """The masters as redis-py queries them."""
        self._both.wait(120)
        return {"boyd": {**MASTER, "ip": "10.0.0.1", "port": 6379}}


def test_sentinels_are_asked_with_time_limits_and_without_retries() -> None:
    url = "sentinel://me:s%40y@one:1,[::2],three:3/boyd/4?sentinel_password=other"
    pool = connect(url, timeout=0.7).connection_pool
    nodes = [node.connection_pool.connection_kwargs for node in pool.sentinel_manager.sentinels]
    options = pool.connection_kwargs

    assert [(n["host"], n["port"]) for n in nodes] == [("one", 1), ("::2", 26379), ("three", 3)]
    assert {n["password"] for n in nodes} == {"other"}
    assert {n["retry"]._retries for n in nodes} == {0}
    assert all(n["socket_timeout"] and n["socket_connect_timeout"] for n in nodes)
    assert pool.service_name == "boyd"
    assert (options["username"], options["password"], options["db"]) == ("me", "s@y", 4)
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (0.7, 0.7)
    assert options["retry"]._retries == 0
    assert options["decode_responses"]


def test_a_server_may_be_a_socket_of_this_host() -> None:
    options = connect("unix://:s%40y@/run/redis.sock?db=2").connection_pool.connection_kwargs

    assert (options["path"], options["password"], options["db"]) == ("/run/redis.sock", "s@y", 2)


def test_tls_is_for_the_sentinels_too() -> None:
    pool = connect(f"sentinel://one/boyd?ssl=true&ssl_ca_certs={__file__}").connection_pool
    [node] = pool.sentinel_manager.sentinels

    assert issubclass(pool.connection_class, SSLConnection)
    assert pool.connection_kwargs["ssl_ca_certs"] == __file__
    assert issubclass(node.connection_pool.connection_class, SSLConnection)
    assert node.connection_pool.connection_kwargs["ssl_ca_certs"] == __file__


def test_threads_that_ask_at_once_lose_no_sentinel() -> None:
    sentinels: Any = Sentinels([])  # type: ignore[no-untyped-call]
    sentinels.sentinels = [Away(), Slow()]
    addresses = set(sentinels.sentinels)
    with ThreadPoolExecutor(2) as pool:
        masters = list(pool.map(sentinels.discover_master, ["boyd", "boyd"]))

    assert masters == [("10.0.0.1", 6379)] * 2
    assert set(sentinels.sentinels) == addresses


@pytest.mark.parametrize(
    "url",
    [
        "http://:hush6@redis",
        "sentinel://:hush6@one",
        "sentinel://:hush6@one/boyd/first",
        "sentinel://:hush6@one,/boyd",
        "redis://:hush6@redis/0?colour=red",
        "rediss://:hush6@redis/0?ssl_ca_certs=/nowhere",
        "sentinel://one/boyd?sentinel_password=hush6&colour=red",
    ],
)
def test_an_invalid_redis_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as refused:
        connect(url)
    assert "hush6" not in str(refused.value)


@pytest.mark.parametrize("address", ["redis://redis/0", "rediss://redis", "sentinel://one/boyd"])
def test_an_option_that_does_not_exist_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used: no option 'ssl_ca_cert'$"):
        connect(f"{address}?ssl_ca_cert=/etc/boyd/authority.pem")


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hush6@redis/0?password=hush6",
        "rediss://:hush6@redis/0?ssl_password=hush6&db=1",
        "sentinel://me:hush6@one:1,two:2/boyd?sentinel_password=hush6@&db=1",
        "sentinel://one:1/boyd?db=1&sentinel_password=hush6@home",
    ],
)
def test_passwords_are_masked(url: str) -> None:
    for text in (mask_url(url), redaction.mask_passwords(f"{url} is away")):
        assert "hush6" not in text
        assert text.startswith(url.partition("://")[0])
    assert mask_url(url).count("***") == url.count("hush6")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://redis", ("redis", 6379, None, None, "0")),
        ("redis://me:s%40y@redis:1/2?socket_timeout=3", ("redis", 1, "me", "s@y", "2")),
        ("rediss://[::1]:1/2?ssl_cert_reqs=none", ("::1", 1, None, None, "2")),
        ("sentinel://:s%40y@one,two/boyd/3", ("one", 26379, None, "s@y", "3")),
    ],
)
def test_messages_go_where_the_same_url_says(url: str, place: tuple[Any, ...]) -> None:
    with make_app(url).connection_for_write() as c:
        assert (c.hostname, c.port, c.userid, c.password, c.virtual_host) == place
        assert bool(c.ssl) == url.startswith("rediss")


def test_messages_go_through_a_socket_too() -> None:
    with make_app("unix://me:s%40y@/run/redis.sock?db=2").connection_for_write() as broker:
        parameters = broker.transport_cls, broker.hostname
    assert parameters == ("redis", "socket://me:s%40y@/run/redis.sock?virtual_host=2")


def test_tls_brokers_check_certificates_by_default(tmp_path: Path) -> None:
    alike = {"ssl_exclude_verify_flags": [ssl.VerifyFlags.VERIFY_X509_STRICT]}
    (ca := tmp_path / "ca").touch()
    with make_app(f"rediss://redis?ssl_ca_certs={ca}").connection_for_write() as broker:
        assert broker.ssl == {"ssl_cert_reqs": "required", "ssl_ca_certs": str(ca), **alike}
    with make_app("rediss://redis?ssl_cert_reqs=none").connection_for_write() as broker:
        assert broker.ssl == {"ssl_cert_reqs": "none", **alike}


def test_the_strict_rules_of_tls_are_checked_if_the_url_asks_for_them() -> None:
    address = Address.of("rediss://redis?ssl_include_verify_flags=VERIFY_X509_STRICT")
    assert address.ssl_options == {"ssl_include_verify_flags": [ssl.VERIFY_X509_STRICT]}
    assert "ssl_exclude_verify_flags" not in Address.of("redis://redis").options


def test_messages_find_their_master_through_every_sentinel() -> None:
    app = make_app("sentinel://one:1,two:2/boyd/3?ssl=true&sentinel_password=other")
    with app.connection_for_write() as broker:
        assert broker.alt == ["sentinel://one:1/3", "sentinel://two:2/3"]
        options = broker.transport_options

    assert options["master_name"] == "boyd"
    assert options["sentinel_kwargs"]["password"] == "other"
    assert options["sentinel_kwargs"]["ssl"]


def test_a_broker_that_is_no_redis_is_refused() -> None:
    with pytest.raises(ConfigError, match="broker_url 'amqp://me:\\*\\*\\*@rabbit'"):
        make_app("amqp://me:hush6@rabbit")


def test_a_server_that_says_nothing_is_asked_once() -> None:
    """Only who knows what a repetition means may repeat."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0.5)
        client = connect(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
        with pytest.raises(StoreUnavailable), translate_errors():
            client.ping()
        first, _ = silent.accept()
        first.close()
        with pytest.raises(TimeoutError):
            silent.accept()
        client.close()
