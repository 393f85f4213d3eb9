"""AWS Secrets Manager: `GetSecretValue`, by its HTTP API."""

from __future__ import annotations

import base64
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from boyd.errors import SecretUnavailable
from boyd.settings.model import is_loopback
from boyd.settings.secret_references import SecretProvider
from boyd.settings.validation import read_text
from boyd.text.redaction import register
from boyd_secrets.aws_signature import Credentials, SignedService, sign
from boyd_secrets.secret_service import Address, OwnSecret, ServiceOptions, exchange

_SERVICE = "secretsmanager"
#: The credentials of containers: ECS answers here, EKS Pod Identity at the other two.
_ECS = "http://169.254.170.2"
_AGENTS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23")
#: Seconds for which credentials of a container are used before they are asked for again.
_KEEP = 300.0


class SecretsManager(SecretProvider):
    """Reads secrets of one region: the path of a reference is a name or an ARN."""

    class Options(ServiceOptions):
        """The options of the provider.

        Attributes:
            region: the region, such as `eu-central-1`.
            endpoint: another address of the service, such as that of a VPC endpoint.
            access_key_id: the access key; absent: that of the container or of the environment.
            secret_access_key: the secret that belongs to it.
            session_token: the token of a temporary access key.
        """

        region: str = Field(pattern=r"^[a-z0-9-]{5,40}$")
        endpoint: Address | None = None
        access_key_id: OwnSecret | None = None
        secret_access_key: OwnSecret | None = None
        session_token: OwnSecret | None = None

        @model_validator(mode="after")
        def _check_keys(self) -> Self:
            if (self.access_key_id is None) != (self.secret_access_key is None):
                raise ValueError("access_key_id and secret_access_key need each other")
            return self

        @property
        def url(self) -> str:
            """The address to send requests to."""
            china = ".cn" if self.region.startswith("cn-") else ""
            default = f"https://{_SERVICE}.{self.region}.amazonaws.com{china}"
            return f"{self.endpoint or default}/"

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._lock = Lock()
        self._lent: tuple[Credentials, float] | None = None

    def read(self, path: str) -> str:
        """The current version of a secret.

        Raises:
            SecretUnavailable: there is none, it may not be read, or there is no answer.
        """
        body = json.dumps({"SecretId": path}).encode()
        headers = {
            "content-type": "application/x-amz-json-1.1",
            "x-amz-target": f"{_SERVICE}.GetSecretValue",
        }
        url = self.options.url
        service = SignedService(self._credentials(), self.options.region, _SERVICE)
        signed = sign("POST", url, headers, body, service, datetime.now(UTC))
        status, answer = exchange(self.options, "POST", url, signed, body)
        if status != 200:
            kind = str(answer.get("__type", "")).rpartition("#")[2]
            raise SecretUnavailable(f"the service refuses: {kind or f'status {status}'}")
        return _secret_in(answer)

    def _credentials(self) -> Credentials:
        options = self.options
        if options.access_key_id and options.secret_access_key:
            token = options.session_token.read() if options.session_token else ""
            return Credentials(
                options.access_key_id.read(), options.secret_access_key.read(), token
            )
        if url := _container_url():
            return self._borrow(url)
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        key, secret, token = (os.environ.get(name, "") for name in names)
        if not (key and secret):
            raise SecretUnavailable(
                "there are no credentials: set access_key_id and secret_access_key, or the "
                "variables of the environment"
            )
        return Credentials(key, secret, token)

    def _borrow(self, url: str) -> Credentials:
        """The credentials of the container, of some minutes at most."""
        with self._lock:
            if self._lent and time.monotonic() < self._lent[1]:
                return self._lent[0]
            status, answer = exchange(self.options, "GET", url, _container_headers())
            try:
                fields = [str(answer[name]) for name in ("AccessKeyId", "SecretAccessKey", "Token")]
            except KeyError:
                reason = f"the container's credentials cannot be read: status {status}"
                raise SecretUnavailable(reason) from None
            register(*fields[1:])
            self._lent = Credentials(*fields), time.monotonic() + _KEEP
            return self._lent[0]


def _secret_in(answer: dict[str, Any]) -> str:
    text, raw = answer.get("SecretString"), answer.get("SecretBinary")
    if isinstance(text, str):
        return text
    if not isinstance(raw, str):
        raise SecretUnavailable("the service answers without a secret")
    try:
        return base64.b64decode(raw, validate=True).decode()
    except ValueError:
        raise SecretUnavailable("the secret is not text") from None


def _container_url() -> str | None:
    """Return where a container asks for its credentials, if the environment says so."""
    if relative := os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        return f"{_ECS}/{relative.lstrip('/')}"
    full = os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if full:
        parts = urlsplit(full)
        host = parts.hostname or ""
        if parts.scheme != "https" and not (is_loopback(host) or host in _AGENTS):
            raise SecretUnavailable("AWS_CONTAINER_CREDENTIALS_FULL_URI names a foreign host")
    return full


def _container_headers() -> dict[str, str]:
    file = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = read_text(Path(file)) if file else os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    return {"Authorization": token.strip()} if token else {}
