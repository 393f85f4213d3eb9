"""Which model an agent has, and what its investigations may use up (G1, G7)."""

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
from boyd.models.investigation import Limits, Profile
from boyd.redaction import register

#: What the wires put behind the address by themselves.
_ENDINGS = ("/chat/completions", "/v1/messages")
_FORM = re.compile(r"https?://[^\s/?#][^\s?#]*")


def checked(url: str, *, allow_http: bool) -> str:
    """The URL, when a model can be asked there.

    Raises:
        ValueError: it cannot, or requests and the key would go in clear to another host. What it
            says repeats nothing in which a password may be.
    """
    host = _host(url)
    ending = next((end for end in _ENDINGS if url.rstrip("/").endswith(end)), None)
    if ending:
        raise ValueError(f"it ends in {ending}, which Boyd adds itself; leave that out")
    if url.startswith("http:") and not (allow_http or _is_loopback(host)):
        raise ValueError(
            f"{host} is another host, and http is not encrypted;"
            " use https, or set llm.allow_http = true"
        )
    return url


def is_here(url: str) -> bool:
    """Whether that checked URL is on this host."""
    return _is_loopback(_host(url))


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Both raise for what no client would take.
        _ = parts.port, host.encode("idna")
    except ValueError:
        raise ValueError(_unlike("it is not a URL")) from None
    if "@" in parts.netloc:
        raise ValueError(
            "it contains a user name or a password; leave them out,"
            " and name the key with llm.api_key_env or llm.api_key_file"
        )
    if not (host and _FORM.fullmatch(url) and url.isprintable()):
        raise ValueError(_unlike("it is not the URL of a server"))
    return host


def _unlike(what: str) -> str:
    return (
        f"{what}; it has to be http:// or https://, a host, perhaps a port and a path,"
        " without spaces, `?` and `#`"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


Wire = Literal["openai", "anthropic"]

#: What servers need that pass tool calls on as text.
PARSE_CALLS = (
    "let it parse them: llama.cpp needs --jinja, vLLM --enable-auto-tool-choice and the "
    "--tool-call-parser of the model, Ollama a model whose template has tools"
)


class _Group(BaseModel):
    # Inputs may have passwords in them, as URLs do.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelTimeouts(_Group):
    """How patient requests are, in seconds.

    Attributes:
        connect: until the connection stands.
        first: until the first event of the answer.
        idle: between two events.
        total: for one attempt in all.
    """

    connect: float = Field(default=5.0, gt=0)
    first: float = Field(default=120.0, gt=0)
    idle: float = Field(default=60.0, gt=0)
    total: float = Field(default=600.0, gt=0)


class Prices(_Group):
    """What a million tokens cost, in whatever currency budgets are in."""

    input: float = Field(default=0.0, ge=0)
    output: float = Field(default=0.0, ge=0)

    @property
    def are_set(self) -> bool:
        """Whether anything costs anything: else no limit on money is ever reached."""
        return self.input > 0 or self.output > 0


class ModelSettings(_Group):
    """Where an agent's model is, and how to talk to it.

    Attributes:
        wire: `openai` for chat completions (OpenAI, Ollama, vLLM, llama.cpp), or `anthropic`.
        base_url: up to, and without, `/chat/completions` or `/v1/messages`.
        model: as the server names it.
        api_key_env: the environment variable that holds the key, on the workers that ask.
        api_key_file: or the file that does.
        max_output_tokens: how long one turn may be.
        context_tokens: how long a conversation with its answer may be; conversations are compacted
            before they reach it. Absent: once the server refuses one as too long.
        temperature: as the server understands it; absent: the server's own.
        steering: whether the server takes system messages in the middle of a conversation.
        allow_http: let requests go unencrypted to other hosts than this one.
        timeouts: how patient requests are.
        prices: what tokens cost.
        limits: what one investigation may use up.
        profile: how eager investigations are to come to an end, unless their caller says; absent:
            `execution` where all their tools do something, else `general` (F7).
        answer_marker: what models have to write in front of a final answer, as they are told;
            absent: a text without a call is the answer (T5).
        system: what every investigation is told first, before its own instructions.
    """

    wire: Wire = "openai"
    #: In front of `base_url`, whose check asks for it.
    allow_http: bool = False
    base_url: str
    model: str = Field(min_length=1)
    api_key_env: str | None = Field(default=None, min_length=1)
    api_key_file: Path | None = None
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

    @field_validator("base_url")
    @classmethod
    def _address(cls, url: str, info: ValidationInfo) -> str:
        # When allow_http itself does not fit, that is told already.
        return checked(url, allow_http=info.data.get("allow_http", True))

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.api_key_env and self.api_key_file:
            raise ValueError("api_key_env and api_key_file are both set; unset one of them")
        return self

    @model_validator(mode="after")
    def _steerable(self) -> Self:
        if self.wire == "anthropic" and self.steering == "system":
            raise ValueError(
                "steering: servers of the wire 'anthropic' take no system message in the middle;"
                " leave it at 'user'"
            )
        return self

    @model_validator(mode="after")
    def _priced(self) -> Self:
        if self.limits.max_cost is not None and not self.prices.are_set:
            raise ValueError(
                "limits.max_cost is never reached without prices: set prices.input and"
                " prices.output, or limits.max_tokens in place of it"
            )
        return self

    @property
    def is_here(self) -> bool:
        """Whether the model is on this host."""
        return is_here(self.base_url)

    def api_key(self) -> SecretStr | None:
        """The key, read anew each time; None when none is configured.

        Raises:
            ConfigError: the variable is not set, or the file cannot be read.
        """
        if self.api_key_env:
            found = os.environ.get(self.api_key_env, "").strip()
            if not found:
                raise ConfigError(f"llm.api_key_env: {self.api_key_env} is not set on this worker")
            return _registered(found)
        if self.api_key_file:
            try:
                return _registered(self.api_key_file.read_text(encoding="utf-8").strip())
            except OSError as error:
                why = f"llm.api_key_file: {self.api_key_file}: {error.strerror}"
                raise ConfigError(why) from None
        return None


def _registered(key: str) -> SecretStr:
    """The key, which from now on is taken out of whatever is written."""
    register(key)
    return SecretStr(key)
