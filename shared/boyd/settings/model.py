"""Settings of an agent's model."""

from __future__ import annotations

import ipaddress
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from boyd.errors import ConfigError
from boyd.models.base import Duration
from boyd.models.investigation import Limits, Profile
from boyd.settings.validation import read_text
from boyd.text.redaction import register

#: Paths that Boyd appends to the address.
_ENDINGS = ("/chat/completions", "/v1/messages")
_FORM = re.compile(r"https?://[^\s/?#][^\s?#]*")


def check_address(url: str, *, allow_http: bool) -> str:
    """Check the URL of a model and return it.

    Raises:
        ValueError: it is not usable, or requests and the key would go unencrypted to another host.
            The message repeats nothing that may contain a password.
    """
    host = _host(url)
    ending = next((end for end in _ENDINGS if url.rstrip("/").endswith(end)), None)
    if ending:
        raise ValueError(f"it ends in {ending}, which Boyd appends itself; leave that out")
    if url.startswith("http:") and not (allow_http or is_loopback(host)):
        raise ValueError(
            f"{host} is a remote host, and http is not encrypted;"
            " use https, or set llm.allow_http = true"
        )
    return url


def is_here(url: str) -> bool:
    """Report whether a checked URL is on this host."""
    return is_loopback(_host(url))


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Both raise for URLs that no client accepts.
        _ = parts.port, host.encode("idna")
    except ValueError:
        raise ValueError(_describe_form("it is not a URL")) from None
    if "@" in parts.netloc:
        raise ValueError(
            "it contains a user name or a password; leave them out,"
            " and name the key with llm.api_key_env or llm.api_key_file"
        )
    if not (host and _FORM.fullmatch(url) and url.isprintable()):
        raise ValueError(_describe_form("it is not a server URL"))
    return host


def _describe_form(problem: str) -> str:
    return (
        f"{problem}; write http:// or https://, a host, and optionally a port and a path,"
        " without spaces, `?` and `#`"
    )


def is_loopback(host: str) -> bool:
    """Report whether a host is this one by its name or address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


Wire = Literal["openai", "anthropic"]

#: Advice for servers that pass tool calls on as text.
PARSE_CALLS = (
    "let it parse tool calls: llama.cpp needs --jinja, vLLM --enable-auto-tool-choice and the "
    "--tool-call-parser of the model, Ollama a model whose template has tools"
)


class _Group(BaseModel):
    # Inputs such as URLs may contain passwords.
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


class ModelTimeouts(_Group):
    """Timeouts of requests, in seconds.

    Attributes:
        connect: until the connection is established.
        first: until the first event of the answer.
        idle: between two events.
        total: for one attempt as a whole.
    """

    connect: Duration = Field(default=5.0, gt=0)
    first: Duration = Field(default=120.0, gt=0)
    idle: Duration = Field(default=60.0, gt=0)
    total: Duration = Field(default=600.0, gt=0)


class Prices(_Group):
    """Prices of a million tokens, in the currency of the budgets."""

    input: float = Field(default=0.0, ge=0)
    output: float = Field(default=0.0, ge=0)

    @property
    def are_set(self) -> bool:
        """Any price is set; without one, a limit on money is never reached."""
        return self.input > 0 or self.output > 0


class ModelServer(_Group):
    """A model and its server.

    Attributes:
        wire: `openai` for chat completions (OpenAI, Ollama, vLLM, llama.cpp), or `anthropic`.
        base_url: up to, and without, `/chat/completions` or `/v1/messages`.
        model: its name on the server.
        api_key_env: the environment variable that holds the key, on the workers that ask.
        api_key_file: a file that holds the key instead.
        allow_http: allow unencrypted requests to other hosts.
    """

    wire: Wire = "openai"
    #: Declared before `base_url`, whose validator reads it.
    allow_http: bool = False
    base_url: str
    model: str = Field(min_length=1)
    api_key_env: str | None = Field(default=None, min_length=1)
    api_key_file: Path | None = None

    @field_validator("base_url")
    @classmethod
    def _address(cls, url: str, info: ValidationInfo) -> str:
        # An invalid allow_http is reported anyway.
        return check_address(url, allow_http=info.data.get("allow_http", True))

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.api_key_env and self.api_key_file:
            raise ValueError("api_key_env and api_key_file are both set; unset one of them")
        return self

    @property
    def is_here(self) -> bool:
        """The model is on this host."""
        return is_here(self.base_url)

    def api_key(self) -> SecretStr | None:
        """Read the key; None if none is configured.

        Raises:
            ConfigError: the variable is not set, or the file cannot be read.
        """
        if self.api_key_env:
            key = os.environ.get(self.api_key_env, "").strip()
            if not key:
                raise ConfigError(f"llm.api_key_env: {self.api_key_env} is not set on this worker")
            return _register(key)
        if self.api_key_file:
            try:
                return _register(read_text(self.api_key_file).strip())
            except ConfigError as error:
                raise ConfigError(f"llm.api_key_file: {error}") from None
        return None


class ModelSettings(ModelServer):
    """An agent's model and how to use it.

    Attributes:
        max_output_tokens: the limit of one turn.
        context_tokens: the limit of a conversation with its answer; conversations are compacted
            before they reach it. Absent: compacted once the server refuses one as too long.
        temperature: the sampling temperature; absent: the server's default.
        steering: the role of messages in mid-conversation; `system` if the server accepts it there.
        timeouts: timeouts of requests.
        prices: prices of tokens.
        limits: limits of one investigation.
        profile: the default for how soon investigations conclude; absent: `execution` if all their
            tools change something, else `general`.
        answer_marker: the text that models must write in front of a final answer; absent: any text
            without a call is the answer.
        system: instructions for every investigation, in front of its own.
    """

    max_output_tokens: int = Field(default=4096, gt=0)
    context_tokens: int | None = Field(default=None, ge=1000)
    temperature: float | None = Field(default=None, ge=0, le=2)
    steering: Literal["user", "system"] = "user"
    timeouts: ModelTimeouts = ModelTimeouts()
    prices: Prices = Prices()
    limits: Limits = Limits()
    profile: Profile | None = None
    answer_marker: str | None = Field(default=None, pattern=r"^\S(.*\S)?$", max_length=100)
    system: str = ""

    @model_validator(mode="after")
    def _steerable(self) -> Self:
        if self.wire == "anthropic" and self.steering == "system":
            raise ValueError(
                "steering: the wire 'anthropic' accepts system messages only at the start;"
                " use 'user'"
            )
        return self

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.limits.max_cost is not None and not self.prices.are_set:
            raise ValueError(
                "limits.max_cost is never reached without prices: set prices.input and"
                " prices.output, or limits.max_tokens instead"
            )
        return self


def _register(key: str) -> SecretStr:
    """Register the key for redaction."""
    register(key)
    return SecretStr(key)
