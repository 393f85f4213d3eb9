"""Emulated Vault and AWS Secrets Manager, by their published HTTP contracts, and worse servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from boyd.settings.secret_references import (
    SecretProvider,
    SecretReader,
    SecretSettings,
    use_reader,
)
from boyd.text import redaction
from boyd_secrets.aws_signature import Credentials, SignedService, sign
from http_kit import Handler, serve

Answer = tuple[int, Any]
_Kind = TypeVar("_Kind", bound="SecretServer")


class SecretServer:
    """A server that answers by a function of its own, unless it *misbehaves*."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.misbehaves: Callable[[Handler], None] | None = None

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Status and JSON of the answer to a request."""
        raise NotImplementedError


class EmulatedVault(SecretServer):
    """KV version 2 at `secret/`, with tokens, AppRole and service accounts of Kubernetes."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, dict[str, Any]] = {}
        self.tokens = {"root-token-of-tests"}
        self.app_roles: dict[str, str] = {}
        self.pods: dict[str, str] = {}
        self.namespace: str | None = None
        self.lease = 3600
        self.logins = 0

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if headers.get("X-Vault-Namespace") != self.namespace:
            return 404, {"errors": []}
        target = path.removeprefix("/v1/")
        if target in ("auth/approle/login", "auth/kubernetes/login") and method == "POST":
            return self._log_in(target, json.loads(body))
        if headers.get("X-Vault-Token") not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        fields = self.secrets.get(target.removeprefix("secret/data/"))
        if method != "GET" or fields is None:
            return 404, {"errors": []}
        about = {"created_time": "2026-01-05T12:00:00Z", "deletion_time": "", "version": 1}
        return 200, {"data": {"data": fields, "metadata": about}, "lease_duration": 0}

    def _log_in(self, target: str, fields: Mapping[str, str]) -> Answer:
        if target == "auth/approle/login":
            accepted = self.app_roles.get(fields["role_id"]) == fields["secret_id"]
        else:
            accepted = self.pods.get(fields["role"]) == fields["jwt"]
        if not accepted:
            return 400, {"errors": ["invalid role or secret ID"]}
        self.logins += 1
        token = f"login-token-{self.logins}"
        self.tokens.add(token)
        return 200, {"auth": {"client_token": token, "lease_duration": self.lease}}


class EmulatedSecretsManager(SecretServer):
    """`GetSecretValue` for one access key, whose signature it checks."""

    credentials = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, dict[str, str]] = {}

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        lower = {name.lower(): value for name, value in headers.items()}
        if "authorization" not in lower:
            return 200, self._container_credentials()
        names = lower["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        at = datetime.strptime(lower["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        credentials = Credentials(
            self.credentials.key_id,
            self.credentials.secret,
            lower.get("x-amz-security-token", ""),
        )
        own = {"host", "x-amz-date", "x-amz-security-token"}
        signed = {name: lower[name] for name in names if name not in own}
        service = SignedService(credentials, "eu-central-1", "secretsmanager")
        expected = sign(method, f"{self.url}{path}", signed, body, service, at)
        if abs((datetime.now(UTC) - at).total_seconds()) > 300:
            return 400, {"__type": "InvalidSignatureException"}
        if lower["authorization"] != expected["authorization"]:
            return 400, {"__type": "InvalidSignatureException"}
        if lower.get("x-amz-target") != "secretsmanager.GetSecretValue":
            return 400, {"__type": "UnknownOperationException"}
        secret = self.secrets.get(json.loads(body)["SecretId"])
        if secret is None:
            return 400, {"__type": "com.amazonaws#ResourceNotFoundException", "Message": "none"}
        return 200, {"Name": "x", "VersionStages": ["AWSCURRENT"], **secret}

    def _container_credentials(self) -> dict[str, str]:
        return {
            "AccessKeyId": self.credentials.key_id,
            "SecretAccessKey": self.credentials.secret,
            "Token": "session-token-of-the-container",
            "Expiration": "2036-01-05T12:00:00Z",
        }


def send_raw(body: bytes, status: int = 200, **headers: str) -> Callable[[Handler], None]:
    """Misbehave: answer with just that."""
    return lambda handler: handler.reply(status, body, **headers)


def trickle(handler: Handler) -> None:
    """Misbehave: send a byte from time to time, without end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    with suppress(OSError):
        for _ in range(600):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)


@contextmanager
def secret_server(kind: type[_Kind]) -> Iterator[_Kind]:
    """A server of that *kind* on a free port."""
    emulated = kind()

    class SecretHandler(Handler):
        def answer(self) -> None:
            request = (self.command, self.path, dict(self.headers), self.read_body())
            emulated.requests.append(request)
            if emulated.misbehaves:
                emulated.misbehaves(self)
                return
            status, answer = emulated.answer(*request)
            self.reply(status, json.dumps(answer).encode())

    with serve(SecretHandler) as emulated.url:
        yield emulated


class Keeper(SecretProvider):
    """Keeps secrets in a dictionary, and counts how often they are read."""

    def __init__(self, secrets: Mapping[str, Any] | None = None) -> None:
        super().__init__(SecretProvider.Options())
        self.secrets = dict(secrets or {})
        self.reads = 0

    def read(self, path: str) -> Any:
        self.reads += 1
        value = self.secrets[path]
        if isinstance(value, Exception):
            raise value
        return value


class KeeperReader(SecretReader):
    """A reader with one provider, `keeper`."""

    def __init__(self, keeper: SecretProvider, cache: float = 0.0, max_cached: int = 100) -> None:
        super().__init__(SecretSettings(cache=cache, max_cached=max_cached))
        self._providers["keeper"] = keeper


@contextmanager
def keep_secrets(secrets: Mapping[str, Any], cache: float = 0.0) -> Iterator[Keeper]:
    """Let this process read references to `secret://keeper/…`."""
    keeper = Keeper(secrets)
    use_reader(KeeperReader(keeper, cache))
    try:
        yield keeper
    finally:
        use_reader(SecretReader())
        redaction.referenced = ()
