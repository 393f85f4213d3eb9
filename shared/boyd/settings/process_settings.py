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
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from boyd.errors import ConfigError
from boyd.models.actor import NewName
from boyd.models.base import Duration
from boyd.models.rights import RightList
from boyd.settings.oidc_settings import OidcSettings
from boyd.settings.secret_references import SecretReader, SecretSettings, use_reader
from boyd.settings.traces_settings import TracesSettings
from boyd.settings.validation import mistakes, read_text, read_toml, state_folder
from boyd.text.redaction import register

PREFIX = "BOYD_"
#: Read from the working directory unless another file is named.
DEFAULT_FILE = "boyd.toml"
#: Variables other than settings: the settings file, and the API for commands.
OTHER_VARIABLES = ("BOYD_CONFIG", "BOYD_URL", "BOYD_API_KEY", "BOYD_PROFILE")


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _parts(value: object) -> object:
    """Split a comma-separated list."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _origin(text: str) -> str:
    """An address as browsers name it in `Origin`."""
    parts = urlsplit(text)
    origin = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be an address such as https://boyd.example.com")
    if text.rstrip("/") != origin:
        raise ValueError(f"must be only scheme, host and port, such as {origin}")
    return origin.lower()


class TimingSettings(_Group):
    """Deadlines and intervals of the engine, in seconds.

    Attributes:
        resend_after: time for a message to reach a worker before it is resent.
        lease: time without a renewal after which a worker counts as lost.
        queue_timeout: time a phase may wait for a worker.
        attempts: lost workers after which an iteration fails.
        sweep: interval of the sweeper.
        heartbeat_interval: interval of the heartbeats of a worker.
    """

    resend_after: Duration = Field(default=2.0, gt=0)
    lease: Duration = Field(default=3.0, gt=0)
    queue_timeout: Duration = Field(default=300.0, gt=0)
    attempts: int = Field(default=3, gt=0)
    sweep: Duration = Field(default=1.0, gt=0)
    heartbeat_interval: float = Field(default=2.0, gt=0, le=3.0)


class WorkerSettings(_Group):
    """Settings of workers.

    Attributes:
        host: the name of this host, for `every_host` and `queue` pins.
        concurrency: tasks that run at the same time.
        pool: `threads`, or `prefork` for actions that must be interruptible.
        idle_timeout: seconds without work, up to twice that, after which the processes of a pool
            `prefork` end; the next task starts one. Unset: they stay.
        bundle_size: cheap observers in one message.
        width: observers of one bundle that run at the same time.
        max_bytes: maximum bytes of JSON that one observer may return.
        max_hung: hung observers after which a worker restarts itself.
    """

    host: str = Field(default_factory=socket.gethostname, min_length=1)
    concurrency: int = Field(default=8, gt=0)
    pool: Literal["threads", "prefork"] = "threads"
    idle_timeout: Duration | None = Field(default=None, gt=0)
    bundle_size: int = Field(default=32, gt=0)
    width: int = Field(default=64, gt=0)
    max_bytes: int = Field(default=1_000_000, gt=0)
    max_hung: int = Field(default=16, gt=0)


class CelerySettings(_Group):
    """Settings of Celery itself.

    Attributes:
        events: publish events of tasks and workers, and answer `inspect`, for Celery's own tools.
    """

    events: bool = False


class ApiSettings(_Group):
    """Settings of the HTTP API.

    Attributes:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        url: the public address, such as `https://boyd.example.com`; messages link to it.
        threads: requests served at the same time.
        connections: open connections; beyond that, the oldest idle ones are closed.
        streams: open event streams.
        rate: sustained requests per second of a key.
        burst: requests that a key may make at once.
        max_body: maximum bytes of a request body.
        max_wait: maximum seconds that a request may wait for its result.
        allow_unauthenticated: accept requests without a key, on a loopback address only.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=0, le=65535)
    url: Annotated[str, AfterValidator(_origin)] | None = None
    threads: int = Field(default=32, ge=4)
    connections: int = Field(default=2000, ge=100)
    streams: int = Field(default=500, gt=0)
    rate: float = Field(default=200.0, gt=0, le=100_000)
    burst: int = Field(default=400, gt=0, le=1_000_000)
    max_body: int = Field(default=1_048_576, gt=0)
    max_wait: Duration = Field(default=60.0, ge=0)
    allow_unauthenticated: bool = False

    @property
    def warning(self) -> str | None:
        """The warning about dangerous settings at every start."""
        if not self.allow_unauthenticated:
            return None
        return (
            "api.allow_unauthenticated is set:"
            " every user of this machine may do anything, without a key"
        )


class IntakeSettings(_Group):
    """Settings of `/intake`.

    Attributes:
        rate: sustained requests per second of a key.
        burst: requests that a key may send at once.
        max_body: maximum bytes of a request body.
        max_waiting: maximum observations that wait for one agent.
        max_waiting_bytes: their maximum bytes of JSON.
        secrets: the folder of the secrets that senders to intakes of agents prove to know: a file
            each, with one secret a line.
        origins: systems that may send CloudEvents, as they ask by `OPTIONS`; `*` is any.
    """

    rate: float = Field(default=1000.0, gt=0, le=100_000)
    burst: int = Field(default=2000, gt=0, le=1_000_000)
    max_body: int = Field(default=10_485_760, gt=0)
    max_waiting: int = Field(default=20_000, ge=10_000)
    max_waiting_bytes: int = Field(default=67_108_864, ge=33_554_432)
    secrets: Path | None = None
    origins: Annotated[tuple[str, ...], NoDecode] = ("*",)

    @field_validator("origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _parts(value)


def _webhook_secret(text: str) -> str:
    encoded = text.removeprefix("whsec_")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        key = b""
    if encoded == text or not 24 <= len(key) <= 64:
        raise ValueError("must be whsec_ followed by 24 to 64 bytes in base64")
    return text


class CallbackSettings(_Group):
    """Settings of callbacks.

    Attributes:
        secrets: each one signs every callback, so that secrets can be rotated.
        allow_private: allow addresses that are not public.
        timeout: seconds for one attempt.
    """

    secrets: Annotated[
        tuple[Annotated[str, AfterValidator(_webhook_secret)], ...], NoDecode, Field(repr=False)
    ] = ()
    allow_private: bool = False
    timeout: Duration = Field(default=10.0, gt=0)

    @field_validator("secrets", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _parts(value)


class EmbeddedSettings(_Group):
    """The Redis server that `boyd up` starts.

    Attributes:
        server: a `redis-server` or `valkey-server`; absent: the one in `boyd[embedded]`,
            else `valkey-server` or `redis-server` in `PATH`.
    """

    server: str | None = Field(default=None, min_length=1)


class Settings(BaseSettings):
    """All settings of a process.

    Attributes:
        redis_url: the Redis server with the state; absent: that of a running `boyd up`.
        broker_url: the Redis server for messages; absent: the same. Several are separated by
            blanks, in the same order in all processes; each has the messages of some agents.
        agents: agent files (`*.toml`) and `module:agent` references.
        agent: the default agent of commands.
        state_dir: the folder of `boyd up` for data and logs.
        audit_key: the secret that seals the audit trail; absent: anyone could recompute the seal.
        approval_secret: the secret of workers and API that signs approvals and links to them;
            absent: write access to Redis suffices to approve, and all links need a login.
        approval_private_key: the Ed25519 key, in PEM, with which the API signs approvals instead.
        approval_public_key: its public key, with which workers check them; they need no secret.
        identity_key: the P-256 key, in PEM, with which a worker signs the identity tokens of its
            agents; absent: plugins cannot get any.
        audit_keep: sealed entries that each audit trail keeps.
        principal_bytes: bytes that Redis keeps for the requests of one principal before it has to
            wait; all of them are free again a day later.
        archive_url: the SQLite or PostgreSQL database of the archive; absent: no archive.
        archive_keep: seconds that the archive keeps records.
        log_level: the minimum level of log messages.
        log_format: `text` for people, `json` for machines.
        timing: deadlines and intervals of the engine.
        worker: settings of workers.
        celery: settings of Celery itself.
        api: settings of the HTTP API.
        intake: settings of `/intake`.
        callbacks: settings of callbacks.
        oidc: sign-in with an OpenID Connect provider.
        secrets: providers of secrets that agents name by reference.
        rights: all that the members of each group may do with actions, for the API, such as
            `approve restart:* on web-*`; those of a key of their own come first.
        traces: export of traces to OpenTelemetry.
        embedded: the Redis server that `boyd up` starts.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    redis_url: str | None = None
    broker_url: str | None = None
    agents: Annotated[tuple[str, ...], NoDecode] = ()
    agent: str | None = None
    state_dir: Path = Field(default_factory=state_folder)
    audit_key: SecretStr | None = Field(default=None, min_length=16)
    approval_secret: SecretStr | None = Field(default=None, min_length=32)
    approval_private_key: SecretStr | None = None
    approval_public_key: SecretStr | None = None
    identity_key: SecretStr | None = None
    audit_keep: int = Field(default=100_000, gt=0)
    principal_bytes: int = Field(default=67_108_864, ge=1_048_576)
    archive_url: str | None = Field(default=None, min_length=1, repr=False)
    archive_keep: Duration = Field(default=2_592_000.0, gt=0)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    timing: TimingSettings = TimingSettings()
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    celery: CelerySettings = CelerySettings()
    api: ApiSettings = ApiSettings()
    intake: IntakeSettings = IntakeSettings()
    callbacks: CallbackSettings = CallbackSettings()
    oidc: OidcSettings = OidcSettings()
    secrets: SecretSettings = SecretSettings()
    rights: dict[NewName, RightList] = Field(default_factory=dict)
    traces: TracesSettings = TracesSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()

    @field_validator("agents", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _parts(value)

    @property
    def broker_urls(self) -> list[str]:
        """The servers for messages, in order; empty: that of the state."""
        return (self.broker_url or "").split()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only what is given: `load_settings` brings flags, environment and file together."""
        return (init_settings,)


#: The group of entry points; each names a model with the settings of a package, as `[name]`.
GROUP = "boyd.settings"


@cache
def settings_model() -> type[Settings]:
    """The settings of a process, with those of the packages that are installed."""
    groups: dict[str, Any] = {}
    for point in sorted(entry_points(group=GROUP)):
        # One distribution has several packages, and some may have been left out of an image.
        if find_spec(point.module.partition(".")[0]):
            group = point.load()
            groups[point.name] = (group, group())
    return create_model("Settings", __base__=Settings, **groups)


def load_settings(flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Settings:
    """Load the settings of this process.

    Args:
        flags: values that override all others, such as `{"api": {"port": 1}}`.
        file: the TOML file; absent: `BOYD_CONFIG`, or `boyd.toml` in the working directory.

    Raises:
        ConfigError: a value is invalid, or a name is unknown.
    """
    _trim_environment()
    _read_secret_files()
    _check_environment()
    model = settings_model()
    try:
        over_file = _merge(_read(file), EnvSettingsSource(model)())
        settings = model(**_merge(over_file, flags or {}))
    except ValidationError as error:
        raise ConfigError(f"settings: {mistakes(error, model)}") from None
    register(*_secrets(settings))
    use_reader(SecretReader(settings.secrets))
    return settings


def _secrets(settings: Settings) -> Iterator[str]:
    """Values that must never appear in a log."""
    yield from settings.callbacks.secrets
    secrets = [settings.audit_key, settings.approval_secret, settings.approval_private_key]
    for secret in (*secrets, settings.identity_key, settings.oidc.client_secret):
        if secret is not None:
            yield secret.get_secret_value()
    for name in settings_model().model_fields.keys() - Settings.model_fields.keys():
        values = dict(getattr(settings, name)).values()
        texts = (value.get_secret_value() for value in values if isinstance(value, SecretStr))
        yield from (word for text in texts for word in text.split())
    for url in (settings.redis_url, *settings.broker_urls, settings.archive_url):
        password = urlsplit(url).password if url else None
        if password:
            yield unquote(password)


def _read(file: Path | None) -> dict[str, Any]:
    explicit = file or (Path(os.environ["BOYD_CONFIG"]) if "BOYD_CONFIG" in os.environ else None)
    path = explicit or Path(DEFAULT_FILE)
    if explicit is None and not path.exists():
        return {}
    return read_toml(path)


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = _merge(result[key], value) if nested else value
    return result


def _trim_environment() -> None:
    """Trim our variables: with lines of Windows, their files leave a carriage return at the end."""
    for name, value in os.environ.items():
        if name.startswith(PREFIX):
            os.environ[name] = value.strip()


def _read_secret_files() -> None:
    for name, path in list(os.environ.items()):
        if name.startswith(PREFIX) and name.endswith("_FILE"):
            target = name.removesuffix("_FILE")
            if target in os.environ:
                raise ConfigError(f"both {target} and {name} are set; unset one of them")
            if not path:
                raise ConfigError(f"{name} is empty; set it to the path of a file, or unset it")
            try:
                os.environ[target] = read_text(Path(path)).strip()
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from None
            del os.environ[name]


def _check_environment() -> None:
    names = [*environment_names(), *OTHER_VARIABLES]
    for name in os.environ:
        if name.startswith(PREFIX) and name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown environment variable {name}{hint}")


def environment_names() -> list[str]:
    """The environment variables of all settings."""
    return [PREFIX + path.replace(".", "__").upper() for path in setting_paths()]


def setting_paths(model: type[BaseModel] | None = None, prefix: str = "") -> list[str]:
    """All settings as dotted paths, as in the TOML file."""
    paths = []
    for name, field in (model or settings_model()).model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            paths += setting_paths(kind, f"{prefix}{name}.")
        else:
            paths.append(prefix + name)
    return paths
