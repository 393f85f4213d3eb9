"""Permitted destinations, signatures and retries of callbacks."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from boyd.errors import ConfigError
from boyd.models import Delivery, utc_now
from boyd.outbound import DELAYS, CallbackSender, retry_delay
from boyd.outbound.public_addresses import check_url, is_public
from boyd.settings.process_settings import load_settings
from boyd_cli.group import boyd

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 24).decode().rstrip("=")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "http://example.com:8080/a?b=c",
        "HTTPS://example.com/",
        "http://93.184.215.14/",
        "http://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/",
        "http://cafe.example/",
        "http://1.2.3.example/",
    ],
)
def test_a_url_of_a_public_host_is_fine(url: str) -> None:
    assert check_url(url) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "http://"),
        ("example.com", "http://"),
        ("ftp://example.com", "http://"),
        ("file:///etc/passwd", "http://"),
        ("http://", "no host"),
        ("http://:80/", "no host"),
        ("http://user@example.com", "user name"),
        ("http://user:secret@example.com", "password"),
        ("http://example.com:99999", "not a URL"),
        ("http://example.com:0", "port"),
        ("http://[::1", "not a URL"),
        ("http://exa mple.com", "spaces"),
        ("http://example.com/\r\nX: y", "control"),
        ("http://example.com\\@127.0.0.1", "backslashes"),
        ("http://example.com/" + "x" * 3000, "longer"),
    ],
)
def test_an_invalid_callback_url_is_refused_with_the_reason(url: str, reason: str) -> None:
    for allow_private in (False, True):
        assert reason in (check_url(url, allow_private=allow_private) or "")


PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.5.5",
    "192.168.1.1",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "224.0.0.1",
    "255.255.255.255",
    "127.0.0.1.",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a00:1]",
    "[::127.0.0.1]",
    "[fe80::1]",
    "[fc00::1]",
    "[fec0::1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::808:808]",
    "[64:ff9b:1::808:808]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2002:a83f:8110::1]",
    "[2002:100::]",
    "[2002:808:808::1]",
    "[2001:0:808:808::1]",
    "[3fff::1]",
    "[3fff:fff::1]",
    "192.0.0.9",
    "192.0.0.170",
    "192.88.99.1",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_an_address_that_is_not_public_is_refused_however_it_is_written(host: str) -> None:
    assert "not a public address" in (check_url(f"http://{host}/") or "")
    assert check_url(f"http://{host}/", allow_private=True) is None


@given(st.text())
def test_any_text_is_fine_or_has_a_reason(text: str) -> None:
    for url in (text, f"http://{text}", f"https://{text}/x"):
        assert check_url(url) is None or check_url(url)


@given(st.ip_addresses())
def test_no_address_is_both_public_and_of_a_network_of_ones_own(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(address):
        assert not address.is_private
        assert not address.is_loopback
        assert not address.is_link_local


def refusal(url: str, secrets: Sequence[str] = ()) -> Delivery:
    delivery = CallbackSender(secrets, timeout=5.0).post(url, b"{}", "1", utc_now())
    assert not delivery.ok
    assert delivery.status is None
    return delivery


def test_a_sender_shows_no_secret() -> None:
    assert SECRET not in repr(CallbackSender((SECRET,)).post)


def test_a_refused_url_is_a_failed_delivery() -> None:
    delivery = refusal("gopher://example.com")

    assert delivery.error == "the URL is refused: it does not begin with http:// or https://"
    assert Delivery.from_json(delivery.to_json()) == delivery


def test_a_secret_that_cannot_sign_is_a_failed_delivery_that_does_not_tell_it() -> None:
    delivery = refusal("http://example.com", secrets=["whsec_"])

    assert delivery.error == "it cannot be signed: EmptyWebhookSecretError"


def test_it_is_sent_again_for_about_eight_hours_and_then_no_more() -> None:
    assert DELAYS == (5, 30, 120, 600, 1800, 3600, 7200, 14400)
    for failures, delay in enumerate(DELAYS, 1):
        seconds = retry_delay(failures)
        assert seconds is not None
        assert 0.9 * delay <= seconds <= 1.1 * delay
    assert retry_delay(len(DELAYS) + 1) is None


# Settings


def test_secrets_come_from_the_environment_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOYD_CALLBACKS__SECRETS", f"{SECRET}, {OTHER}")

    assert load_settings().callbacks.secrets == (SECRET, OTHER)


def test_secrets_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    # Reading it sets the variable itself, which monkeypatch then takes away again.
    monkeypatch.setenv("BOYD_CALLBACKS__SECRETS", "")
    monkeypatch.delenv("BOYD_CALLBACKS__SECRETS")
    monkeypatch.setenv("BOYD_CALLBACKS__SECRETS_FILE", str(tmp_path / "secret"))

    assert load_settings().callbacks.secrets == (SECRET,)


@pytest.mark.parametrize(
    "secret",
    [
        SECRET.removeprefix("whsec_"),
        "whsec_",
        "whsec_c2hvcnQ=",
        "whsec_" + "A" * 200,
        "whsec_!" + SECRET[7:],
    ],
)
def test_a_secret_that_is_none_is_an_error_that_does_not_tell_it(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOYD_CALLBACKS__SECRETS", secret)
    with pytest.raises(ConfigError, match=r"callbacks\.secrets\.0: .*24 to 64 bytes") as caught:
        load_settings()

    assert secret not in str(caught.value).replace("whsec_ followed", "")


def test_a_secret_that_settings_take_can_sign() -> None:
    for secret in (SECRET, OTHER):
        assert Webhook(secret)


def test_secrets_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOYD_CALLBACKS__SECRETS", SECRET)
    result = CliRunner().invoke(boyd, ["check", "--print"])

    assert result.exit_code == 0
    assert 'callbacks.secrets = "***"' in result.output
    assert SECRET not in result.output
    assert SECRET not in repr(load_settings())
