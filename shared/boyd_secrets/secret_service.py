"""Requests to a service that keeps secrets: guarded, bounded, and silent about what they carry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import requests
from pydantic import AfterValidator, Field

from boyd.errors import SecretUnavailable, causes
from boyd.outbound.guarded_session import BoundedSession
from boyd.outbound.public_addresses import check_url
from boyd.plugin import Secret
from boyd.settings.model import is_loopback
from boyd.settings.secret_references import SecretProvider
from boyd.text.json_limits import check_values

#: The most values of an answer.
_MAX_VALUES = 10_000


def _address(url: str) -> str:
    """A URL without its last slash; without TLS only on this host."""
    parts = urlsplit(url)
    if refused := check_url(url, allow_private=True):
        raise ValueError(refused)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("must begin with https://: secrets would travel in the open")
    return url.rstrip("/")


def _own_secret(secret: Secret) -> Secret:
    """Refuse a reference: a provider that needed another one might need itself."""
    if secret.ref is not None:
        raise ValueError("needs `file` or `env`")
    return secret


Address = Annotated[str, AfterValidator(_address)]
OwnSecret = Annotated[Secret, AfterValidator(_own_secret)]


class ServiceOptions(SecretProvider.Options):
    """Options of providers that ask a service.

    Attributes:
        ca_file: certificates of the authorities to trust, in place of the system's.
        timeout: seconds that one request may take as a whole.
    """

    ca_file: Path | None = None
    timeout: float = Field(default=5.0, gt=0, le=60)


def exchange(
    options: ServiceOptions,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> tuple[int, dict[str, Any]]:
    """Send a request; the status of the answer, and its JSON object, empty if it is none.

    Raises:
        SecretUnavailable: there is no complete answer in time, or one of another shape.
    """
    where = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
    with BoundedSession(allow_private=True, timeout=options.timeout) as session:
        if options.ca_file:
            session.verify = str(options.ca_file)
        try:
            response = session.request(method, url, headers=dict(headers), data=body)
        except (requests.RequestException, OSError) as error:
            # Its text may hold the address with the path, and never more than a type is needed.
            *_, root = causes(error)
            reason = f"{where} does not answer: {type(root).__name__}"
            raise SecretUnavailable(reason) from None
    if response.is_redirect:
        raise SecretUnavailable(f"{where} answers with a redirect, which is not followed")
    try:
        check_values(response.content, _MAX_VALUES)
        answer = response.json()
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        if response.ok:
            raise SecretUnavailable(f"{where} answers {response.status_code} without a JSON object")
        answer = {}
    return response.status_code, answer
