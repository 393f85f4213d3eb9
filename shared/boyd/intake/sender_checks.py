"""Checks that a message comes from a sender that knows the secret of its intake."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from boyd.errors import ConfigError
from boyd.plugin.plugin_base import Secret
from boyd.settings.intake_settings import PART, BasicAuth, HeaderAuth, HmacAuth, QueryAuth
from boyd.text.redaction import register

#: The most signatures in one header.
MAX_SIGNATURES = 10
#: A time above this is in milliseconds.
_MILLISECONDS = 100_000_000_000
#: Introduces the secrets of Standard Webhooks, which are bytes in base64.
_STANDARD = "whsec_"

#: The body, which is read only once the headers are plausible.
ReadBody = Callable[[], bytes]


class SenderRefused(Exception):
    """The sender does not prove who it is; the message shows nothing secret."""


def read_secrets(folder: Path | None, name: str) -> list[str]:
    """The lines of a file in the folder of secrets; several while one replaces another.

    Raises:
        ConfigError: there is no such file, or it is empty; the message shows no path.
    """
    try:
        text = Secret(file=folder / name).read() if folder else ""
    except ConfigError:
        text = ""
    secrets = [line.strip() for line in text.splitlines() if line.strip()]
    if not secrets:
        raise ConfigError(f"the API has no secret {name!r}; see the setting intake.secrets")
    register(*secrets)
    return secrets


def check_sender(
    auth: BasicAuth | HeaderAuth | QueryAuth | HmacAuth,
    secrets: Sequence[str],
    headers: Mapping[str, str],
    read_body: ReadBody,
    now: float,
    query: Mapping[str, Sequence[str]],
) -> str | None:
    """Check a sender; return an id of the message if the same one must not be taken twice.

    Args:
        auth: how it authenticates.
        secrets: any of these is right.
        headers: by lower-case names.
        read_body: called only if the headers are plausible.
        now: seconds since 1970.
        query: the values of each parameter in the URL.

    Raises:
        SenderRefused: it does not prove who it is.
    """
    if isinstance(auth, HmacAuth):
        return _check_signature(auth, secrets, headers, read_body, now)
    if isinstance(auth, BasicAuth):
        _check_basic(auth, secrets, headers)
    elif isinstance(auth, QueryAuth):
        _check_query(auth, secrets, query.get(auth.parameter, []))
    else:
        _check_header(auth, secrets, headers)
    return None


def _check_basic(auth: BasicAuth, secrets: Sequence[str], headers: Mapping[str, str]) -> None:
    scheme, _, text = headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() != "basic":
        raise SenderRefused("send user and password by Basic authentication")
    try:
        credentials = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        raise SenderRefused("the Authorization header is not Basic authentication") from None
    if not _equals_one(credentials, [f"{auth.user}:{secret}".encode() for secret in secrets]):
        raise SenderRefused("user or password is wrong")


def _check_header(auth: HeaderAuth, secrets: Sequence[str], headers: Mapping[str, str]) -> None:
    value = headers.get(auth.header.lower(), "").strip()
    if not value:
        raise SenderRefused(f"the header {auth.header} is missing")
    expected = [f"{auth.prefix}{secret}".encode() for secret in secrets]
    if not _equals_one(value.encode("utf-8", "surrogateescape"), expected):
        raise SenderRefused(f"the header {auth.header} is wrong")


def _check_query(auth: QueryAuth, secrets: Sequence[str], values: Sequence[str]) -> None:
    if len(values) != 1 or not values[0]:
        raise SenderRefused(f"the URL does not have the parameter {auth.parameter} once")
    expected = [secret.encode() for secret in secrets]
    if not _equals_one(values[0].encode("utf-8", "surrogatepass"), expected):
        raise SenderRefused(f"the parameter {auth.parameter} of the URL is wrong")


def _check_signature(
    auth: HmacAuth,
    secrets: Sequence[str],
    headers: Mapping[str, str],
    read_body: ReadBody,
    now: float,
) -> str | None:
    signatures = _signatures(auth, headers.get(auth.header.lower(), ""))
    if auth.timestamp:
        _check_time(auth, headers.get(auth.timestamp.lower(), ""), now)
    signed = _content_to_sign(auth.signed, headers, read_body)
    expected = [hmac.new(_key(secret), signed, auth.algorithm).digest() for secret in secrets]
    if not sum(_equals_one(signature, expected) for signature in signatures):
        raise SenderRefused(f"the signature in {auth.header} does not fit")
    return hashlib.sha256(signed).hexdigest() if auth.once or auth.timestamp else None


def _signatures(auth: HmacAuth, header: str) -> list[bytes]:
    parts = header.split()
    if "," not in auth.prefix:
        parts = [text.strip() for part in parts for text in part.split(",")]
    signatures = [text.removeprefix(auth.prefix) for text in parts if text.startswith(auth.prefix)]
    if not any(signatures):
        with_prefix = f" with {auth.prefix!r}" if auth.prefix else ""
        raise SenderRefused(f"the header {auth.header} has no signature{with_prefix}")
    return [_decode(auth, text) for text in signatures[:MAX_SIGNATURES]]


def _decode(auth: HmacAuth, text: str) -> bytes:
    try:
        if auth.encoding == "hex":
            return bytes.fromhex(text)
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise SenderRefused(f"the signature in {auth.header} is not {auth.encoding}") from None


def _check_time(auth: HmacAuth, text: str, now: float) -> None:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16):
        raise SenderRefused(f"the header {auth.timestamp} is no time in seconds since 1970")
    at = int(digits) / 1000 if int(digits) > _MILLISECONDS else int(digits)
    if abs(now - at) > auth.window:
        raise SenderRefused(f"{auth.timestamp} is more than {auth.window:g} seconds away from now")


def _content_to_sign(template: str, headers: Mapping[str, str], read_body: ReadBody) -> bytes:
    """The bytes that are signed."""
    # Texts and names of parts alternate.
    pieces = PART.split(template)
    parts = []
    for number, piece in enumerate(pieces):
        name = piece.lower()
        if number % 2 == 0:
            parts.append(piece.encode())
        elif name == "body":
            parts.append(read_body())
        else:
            parts.append(headers.get(name, "").encode("utf-8", "surrogateescape"))
    return b"".join(parts)


def _key(secret: str) -> bytes:
    if secret.startswith(_STANDARD):
        try:
            return base64.b64decode(secret.removeprefix(_STANDARD), validate=True)
        except ValueError:
            pass
    return secret.encode()


def _equals_one(value: bytes, expected: Sequence[bytes]) -> bool:
    # All are compared, so that the time tells nothing.
    return sum(hmac.compare_digest(value, candidate) for candidate in expected) > 0
