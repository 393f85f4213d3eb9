"""The settings of a process: flags > environment > TOML file > defaults.

Environment variables are `BOYD_` and the field's name, nested with `__` (`BOYD_TIMING__LEASE`);
`BOYD_…_FILE` names a file to read the value from, for secrets.
"""

from __future__ import annotations

import base64
import difflib
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import platformdirs
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from boyd.errors import ConfigError
from boyd.redaction import register
from boyd.settings.files import mistakes, read_toml

PREFIX = "BOYD_"
#: Read when it lies in the working directory and no other file is named.
DEFAULT_FILE = "boyd.toml"
#: Variables that are no settings: where the settings are, and the API that commands ask.
OTHER_VARIABLES = ("BOYD_CONFIG", "BOYD_URL", "BOYD_API_KEY", "BOYD_PROFILE")


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _parts(value: object) -> object:
    """A list as the environment has it, separated by commas, as a tuple."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class TimingSettings(_Group):
    """Deadlines and intervals of the engine, in seconds.

    Attributes:
        resend_after: how long a message may take to reach a worker before it is sent again.
        lease: how long a worker may be silent about what it works on before it counts as lost.
        queue_timeout: how long a phase may wait for a worker before it is given up.
        attempts: how many workers a phase may lose before its iteration fails.
        sweep: how often to look for what stopped moving.
        heartbeat_interval: how often a worker reports that it is alive.
    """

    resend_after: float = Field(default=2.0, gt=0)
    lease: float = Field(default=3.0, gt=0)
    queue_timeout: float = Field(default=300.0, gt=0)
    attempts: int = Field(default=3, gt=0)
    sweep: float = Field(default=1.0, gt=0)
    heartbeat_interval: float = Field(default=2.0, gt=0, le=3.0)


class WorkerSettings(_Group):
    """How a worker works.

    Attributes:
        host: the name of this host, for `every_host` and `queue` pins.
        concurrency: how many tasks run at the same time.
        pool: `threads`, or `prefork` for actions that must be interruptible.
        bundle_size: how many cheap observers travel in one message.
        width: how many observers of one bundle run at the same time.
        max_bytes: the most JSON that one observer may return in one run.
        max_hung: how many hung observers a worker bears before it restarts itself.
    """

    host: str = Field(default_factory=socket.gethostname, min_length=1)
    concurrency: int = Field(default=8, gt=0)
    pool: Literal["threads", "prefork"] = "threads"
    bundle_size: int = Field(default=32, gt=0)
    width: int = Field(default=64, gt=0)
    max_bytes: int = Field(default=1_000_000, gt=0)
    max_hung: int = Field(default=16, gt=0)


class ApiSettings(_Group):
    """Where the API listens, and what it lets in.

    Attributes:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        threads: how many requests are served at the same time.
        connections: how many connections may be open; then the oldest idle ones are closed.
        streams: how many event streams may be open.
        rate: requests a second that a key may make for ever.
        burst: requests that a key may make at once.
        max_body: the most bytes that the body of a request may have.
        max_wait: the most seconds that a request may wait for what it has started.
        allow_unauthenticated: let requests in without a key, on a loopback address only.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=0, le=65535)
    threads: int = Field(default=32, ge=4)
    connections: int = Field(default=2000, ge=100)
    streams: int = Field(default=500, gt=0)
    rate: float = Field(default=200.0, gt=0, le=100_000)
    burst: int = Field(default=400, gt=0, le=1_000_000)
    max_body: int = Field(default=1_048_576, gt=0)
    max_wait: float = Field(default=60.0, ge=0)
    allow_unauthenticated: bool = False

    @property
    def warning(self) -> str | None:
        """What is said at every start about settings that are dangerous."""
        if not self.allow_unauthenticated:
            return None
        return (
            "api.allow_unauthenticated is set:"
            " every user of this machine may do everything, without a key"
        )


class IntakeSettings(_Group):
    """What other systems may send to `/intake`, and how much of it may wait for one agent.

    Attributes:
        rate: requests a second that a key may send for ever.
        burst: requests that a key may send at once.
        max_body: the most bytes that one request may bring.
        max_waiting: the most observations that may wait.
        max_waiting_bytes: the most bytes of JSON that they may have together.
    """

    rate: float = Field(default=1000.0, gt=0, le=100_000)
    burst: int = Field(default=2000, gt=0, le=1_000_000)
    max_body: int = Field(default=10_485_760, gt=0)
    max_waiting: int = Field(default=20_000, ge=10_000)
    max_waiting_bytes: int = Field(default=67_108_864, ge=33_554_432)


def _webhook_secret(text: str) -> str:
    encoded = text.removeprefix("whsec_")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        key = b""
    if encoded == text or not 24 <= len(key) <= 64:
        raise ValueError("should be whsec_ and the base64 form of 24 to 64 bytes")
    return text


class CallbackSettings(_Group):
    """How the callbacks of runs are sent.

    Attributes:
        secrets: each signs every callback, so that a new one can be known before the old one goes.
        allow_private: whether they may go to addresses that are not public.
        timeout: seconds for one attempt.
    """

    secrets: Annotated[
        tuple[Annotated[str, AfterValidator(_webhook_secret)], ...], NoDecode, Field(repr=False)
    ] = ()
    allow_private: bool = False
    timeout: float = Field(default=10.0, gt=0)

    @field_validator("secrets", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _parts(value)


class EmbeddedSettings(_Group):
    """The Redis server that `boyd up` starts.

    Attributes:
        server: a `redis-server` or `valkey-server`; absent: the one that `boyd[embedded]` brings.
    """

    server: str | None = Field(default=None, min_length=1)


class Settings(BaseSettings):
    """Everything that can be set, except what belongs to an agent.

    Attributes:
        redis_url: the Redis that holds the state; absent: that of a running `boyd up`.
        broker_url: the Redis that carries messages; absent: the same.
        agents: agent files (`*.toml`) and `module:agent` references.
        agent: the agent that commands mean when they name none.
        state_dir: where `boyd up` keeps its data and logs.
        audit_key: the secret that seals the audit trail; absent: anybody can compute it anew.
        audit_keep: how many sealed entries each audit trail keeps.
        log_level: what is logged.
        log_format: `text` for people, `json` for machines.
        timing: how patient the engine is.
        worker: how a worker works.
        api: where the API listens.
        intake: what other systems may send.
        callbacks: how the callbacks of runs are sent.
        embedded: the Redis server that `boyd up` starts.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    redis_url: str | None = None
    broker_url: str | None = None
    agents: Annotated[tuple[str, ...], NoDecode] = ()
    agent: str | None = None
    state_dir: Path = Field(default_factory=lambda: platformdirs.user_state_path("boyd"))
    audit_key: SecretStr | None = Field(default=None, min_length=16)
    audit_keep: int = Field(default=100_000, gt=0)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    timing: TimingSettings = TimingSettings()
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    api: ApiSettings = ApiSettings()
    intake: IntakeSettings = IntakeSettings()
    callbacks: CallbackSettings = CallbackSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()

    @field_validator("agents", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _parts(value)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the environment: flags and the file are laid around it by `load_settings`."""
        return (env_settings, init_settings)


def load_settings(flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Settings:
    """The settings of this process.

    Args:
        flags: values from the command line; they win. Nested ones as `{"api": {"port": 1}}`.
        file: the TOML file; absent: `BOYD_CONFIG`, or `boyd.toml` here if there is one.

    Raises:
        ConfigError: a value does not fit, or a name is unknown.
    """
    _read_secret_files()
    _check_environment()
    try:
        # Environment over file, by pydantic-settings; then flags over both.
        base = Settings(**_read(file))
        settings = Settings.model_validate(_merged(base.model_dump(), flags or {}))
    except ValidationError as error:
        raise ConfigError(f"settings: {mistakes(error, Settings)}") from None
    register(*_secrets(settings))
    return settings


def _secrets(settings: Settings) -> Iterator[str]:
    """What must be in no log, whatever says it."""
    yield from settings.callbacks.secrets
    if settings.audit_key is not None:
        yield settings.audit_key.get_secret_value()
    for url in (settings.redis_url, settings.broker_url):
        password = urlsplit(url).password if url else None
        if password:
            yield unquote(password)


def _read(file: Path | None) -> dict[str, Any]:
    named = file or (Path(os.environ["BOYD_CONFIG"]) if "BOYD_CONFIG" in os.environ else None)
    path = named or Path(DEFAULT_FILE)
    if named is None and not path.exists():
        return {}
    return read_toml(path)


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if nested else value
    return result


def _read_secret_files() -> None:
    for name, path in list(os.environ.items()):
        if name.startswith(PREFIX) and name.endswith("_FILE"):
            target = name.removesuffix("_FILE")
            if target in os.environ:
                raise ConfigError(f"both {target} and {name} are set; unset one of them")
            try:
                os.environ[target] = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ConfigError(f"{name}: {path}: {error.strerror}") from None
            del os.environ[name]


def _check_environment() -> None:
    known = [*environment_names(), *OTHER_VARIABLES]
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown environment variable {name}{hint}")


def environment_names() -> list[str]:
    """Every environment variable that sets something."""
    return [PREFIX + path.replace(".", "__").upper() for path in setting_paths()]


def setting_paths(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Every setting as a dotted path, as in the TOML file."""
    paths = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            paths += setting_paths(kind, f"{prefix}{name}.")
        else:
            paths.append(prefix + name)
    return paths
