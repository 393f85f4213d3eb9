"""An HTTP API of another system, as connectors call it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import requests
from pydantic import BaseModel, ConfigDict, model_validator
from requests.auth import AuthBase
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from boyd.errors import ConfigError, causes
from boyd.models import ActionResult, JsonObject
from boyd.plugin import Context, Secret
from boyd.plugins.results import uncertain

#: The most bytes of a response, and of one that is quoted in an error.
MAX_BYTES = 8_388_608
QUOTED = 300
#: The answers of a service that failed at any point of its work, and of a proxy that has no answer.
_FAILURES = (500, 502, 504)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class ServiceError(Exception):
    """The service could not be reached, refused the request, or gave an unusable answer.

    `status` is the HTTP status, None without a response; `headers` are those of the response.
    `lost` is true if the service may have done what was asked for, although its answer is missing.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        *,
        lost: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.lost = lost or status in _FAILURES
        self.headers = headers or {}


class StateError(ServiceError):
    """The service is not, or no longer, in the state that an action needs."""


def change(call: Callable[[], JsonObject]) -> JsonObject | ActionResult:
    """Run what changes a service; without its answer the outcome is unknown."""
    try:
        return call()
    except ServiceError as error:
        if error.lost:
            return uncertain(error)
        raise


class HttpAccess(BaseModel):
    """Credentials for an HTTP API: a bearer token, or a user with a password.

    Attributes:
        token: a bearer token.
        username: for basic authentication, with `password`.
        password: that of `username`.
        ca_file: certificates of the authorities to trust, in place of the system's.
        client_cert: a file with a certificate to authenticate with.
        client_key: a file with the key of that certificate.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: Secret | None = None
    username: str | None = None
    password: Secret | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    @model_validator(mode="after")
    def _consistent(self) -> HttpAccess:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password need each other")
        if self.token and self.username:
            raise ValueError("use either token or username")
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("client_cert and client_key need each other")
        return self

    def options(self) -> dict[str, Any]:
        """Options of a request that authenticates.

        Raises:
            ConfigError: a secret cannot be read, or is no token.
        """
        options: dict[str, Any] = {}
        if self.token:
            options["auth"] = _Bearer(self.token.read())
        if self.username and self.password:
            options["auth"] = (self.username, self.password.read())
        if self.ca_file:
            options["verify"] = str(self.ca_file)
        if self.client_cert:
            options["cert"] = (str(self.client_cert), str(self.client_key))
        return options


class _Bearer(AuthBase):
    """Sends a token; as a plain header, it would give way to an entry in ~/.netrc."""

    def __init__(self, token: str) -> None:
        if not (token.isascii() and token.isprintable()):
            # As a header it would be refused with an error that shows it.
            raise ConfigError("a token holds other characters than one line of ASCII")
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class HttpService:
    """An HTTP API at *url*; answers are JSON of at most `MAX_BYTES`, redirects are errors."""

    def __init__(self, url: str, access: HttpAccess, timeout: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._access = access
        self._timeout = timeout

    def get(self, ctx: Context, path: str, **params: Any) -> Any:
        """GET *path* with a query; see `send`."""
        return self.send(ctx, "GET", path, params=params)

    def send(
        self,
        ctx: Context,
        method: Method,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request, *body* as JSON; the JSON of the answer, None if it is empty.

        Raises:
            ServiceError: there is no answer, or one that is not 2xx, not JSON or too large.
            ConfigError: a secret cannot be read.
        """
        return self.exchange(ctx, method, path, body=body, params=params, headers=headers)[0]

    def exchange(
        self,
        ctx: Context,
        method: Method,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Any, Mapping[str, str]]:
        """Send a request as `send` does; also the headers of the answer."""
        options = self._access.options()
        try:
            response = ctx.http.request(
                method,
                f"{self._url}{path}",
                json=body,
                params=params,
                headers={"Accept": "application/json", **(headers or {})},
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
                **options,
            )
            with response:
                content = _read(response, time.monotonic() + self._timeout)
        except (requests.RequestException, HTTPError, OSError) as error:
            message = f"{self._where} cannot be reached: {_root_cause(error)}"
            raise ServiceError(message, lost=not _is_unsent(error)) from None
        return self._answer(response, content), response.headers

    @property
    def _where(self) -> str:
        return urlsplit(self._url).netloc

    def _answer(self, response: requests.Response, content: bytes) -> Any:
        status = response.status_code
        if not 200 <= status < 300:
            text = " ".join(content[:QUOTED].decode("utf-8", "replace").split())
            quote = f": {text}" if text else ""
            message = f"{self._where} answered {status}{quote}"
            raise ServiceError(message, status, headers=response.headers)
        # What follows a status of success has been done, whatever the answer looks like.
        if len(content) > MAX_BYTES:
            message = f"{self._where} answered with more than {MAX_BYTES} bytes"
            raise ServiceError(message, status, lost=True)
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            message = f"{self._where} gave no usable JSON: {error}"
            raise ServiceError(message, status, lost=True) from None


def _read(response: requests.Response, until: float) -> bytes:
    """The body, or its beginning if it is too large."""
    content = b""
    # As it arrives: a server that trickles never exceeds the time limit of a single read.
    while part := response.raw.read1(65536, decode_content=True):
        content += part
        if len(content) > MAX_BYTES:
            break
        if time.monotonic() > until:
            raise TimeoutError("the answer took too long")
    return content


def _is_unsent(error: BaseException) -> bool:
    """Report whether the request failed before there was a connection."""
    reason = getattr(error, "args", None) and getattr(error.args[0], "reason", None)
    return isinstance(reason or error, (ConnectTimeoutError, NewConnectionError, SSLError))


def _root_cause(error: Exception) -> str:
    """The innermost reason, which names no URL with its query."""
    *_, reason = causes(error)
    return f"{type(reason).__name__}: {reason}" if str(reason) else type(reason).__name__
