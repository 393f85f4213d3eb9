"""AWS Signature Version 4 of a request without a query, as AWS documents it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Credentials:
    """An access key; a temporary one has a session token."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class SignedService:
    """The service to sign for, with whose key."""

    credentials: Credentials
    region: str
    name: str


def sign(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    service: SignedService,
    at: datetime,
) -> dict[str, str]:
    """The headers of a request with its signature; *at* is the time in UTC."""
    credentials = service.credentials
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed |= {"host": parts.netloc, "x-amz-date": stamp}
    if credentials.token:
        signed["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(signed))
    canonical = [
        *(method, parts.path or "/", ""),
        *(f"{name}:{signed[name]}" for name in sorted(signed)),
        *("", names, hashlib.sha256(body).hexdigest()),
    ]
    place = "/".join((stamp[:8], service.region, service.name, "aws4_request"))
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    key = f"AWS4{credentials.secret}".encode()
    for part in place.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, f"{_ALGORITHM}\n{stamp}\n{place}\n{digest}".encode(), "sha256")
    authorization = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{place}, SignedHeaders={names}, "
        f"Signature={signature.hex()}"
    )
    return {**signed, "authorization": authorization}
