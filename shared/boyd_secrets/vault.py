"""HashiCorp Vault and OpenBao: the engine KV version 2, by their HTTP API."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Self
from urllib.parse import quote

from pydantic import Field, model_validator

from boyd.errors import SecretUnavailable
from boyd.settings.secret_references import SecretProvider
from boyd.settings.validation import read_text
from boyd.text.redaction import register
from boyd_secrets.secret_service import Address, OwnSecret, ServiceOptions, exchange

#: The share of the life of a login after which it is renewed.
_RENEW = 0.8
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_MOUNT = r"^[\w.-]+(/[\w.-]+)*$"


class AppRole(SecretProvider.Options):
    """A login by AppRole.

    Attributes:
        role_id: the id of the role.
        secret_id: its secret id.
        mount: where the method is mounted.
    """

    role_id: str = Field(min_length=1)
    secret_id: OwnSecret
    mount: str = Field(default="approle", pattern=_MOUNT)


class KubernetesLogin(SecretProvider.Options):
    """A login by the service account of a pod.

    Attributes:
        role: the role.
        token_file: the token of the service account.
        mount: where the method is mounted.
    """

    role: str = Field(min_length=1)
    token_file: Path = _SERVICE_ACCOUNT
    mount: str = Field(default="kubernetes", pattern=_MOUNT)


class Vault(SecretProvider):
    """Reads secrets of KV version 2; each has fields."""

    class Options(ServiceOptions):
        """The options of the provider.

        Attributes:
            address: the address, such as `https://vault.example.com:8200`.
            mount: where the engine is mounted.
            namespace: the namespace, if there are any.
            token: a token, which something else renews.
            approle: a login by AppRole instead.
            kubernetes: a login by a service account instead.
        """

        address: Address
        mount: str = Field(default="secret", pattern=_MOUNT)
        namespace: str | None = Field(default=None, pattern=r"^[\w./-]+$")
        token: OwnSecret | None = None
        approle: AppRole | None = None
        kubernetes: KubernetesLogin | None = None

        @model_validator(mode="after")
        def _one_login(self) -> Self:
            if [self.token, self.approle, self.kubernetes].count(None) != 2:
                raise ValueError("needs one of token, approle and kubernetes")
            return self

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._lock = Lock()
        self._login: tuple[str, float] | None = None

    def read(self, path: str) -> Mapping[str, Any]:
        """The fields of the latest version of a secret.

        Raises:
            SecretUnavailable: there is none, it may not be read, or there is no answer.
        """
        target = f"{self.options.mount}/data/{quote(path)}"
        token = self._token()
        status, answer = self._request("GET", target, token)
        if status == 403 and self.options.token is None:
            # The login may have been revoked before its time.
            status, answer = self._request("GET", target, self._token(instead_of=token))
        data = answer.get("data")
        fields = data.get("data") if status == 200 and isinstance(data, dict) else None
        if isinstance(fields, dict) and fields:
            return fields
        raise SecretUnavailable(_problem(status))

    def _token(self, instead_of: str = "") -> str:
        """The token of the options, or that of a login."""
        if self.options.token is not None:
            return self.options.token.read()
        with self._lock:
            login = self._login
            if login is None or time.monotonic() >= login[1] or login[0] == instead_of:
                login = self._login = self._log_in()
            return login[0]

    def _log_in(self) -> tuple[str, float]:
        """Log in; the token, and when to renew it."""
        role, pod = self.options.approle, self.options.kubernetes
        if role is not None:
            mount, body = role.mount, {"role_id": role.role_id, "secret_id": role.secret_id.read()}
        elif pod is not None:
            mount, body = pod.mount, {"role": pod.role, "jwt": read_text(pod.token_file).strip()}
        status, answer = self._request("POST", f"auth/{mount}/login", body=body)
        auth = answer.get("auth")
        token = auth.get("client_token") if status == 200 and isinstance(auth, dict) else None
        if not (isinstance(token, str) and token.isascii() and token.isprintable() and token):
            raise SecretUnavailable(f"the login by {mount} is refused: status {status}")
        register(token)
        life = auth.get("lease_duration") if isinstance(auth, dict) else None
        seconds = float(life) if isinstance(life, int) and life > 0 else float("inf")
        return token, time.monotonic() + _RENEW * seconds

    def _request(
        self, method: str, target: str, token: str = "", body: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        headers = {"X-Vault-Request": "true"}
        if token:
            headers["X-Vault-Token"] = token
        if self.options.namespace:
            headers["X-Vault-Namespace"] = self.options.namespace
        sent = None if body is None else json.dumps(body).encode()
        return exchange(self.options, method, f"{self.options.address}/v1/{target}", headers, sent)


def _problem(status: int) -> str:
    if status == 404:
        return "there is no such secret, or its latest version is deleted"
    if status == 403:
        return "the login of this worker may not read it"
    if status in (429, 472, 473, 503):
        return f"the server is sealed, on standby or too busy: status {status}"
    return f"the server does not give it: status {status}"
