"""Where a running `boyd up` can be reached: one small file in its state folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field, ValidationError

from boyd.embedded.files import write_private
from boyd.embedded.lock import lock_holder
from boyd.errors import ConfigError
from boyd.models.base import Model, Timestamp, utc_now
from boyd.settings import Settings

RUNTIME_FILE = "runtime.json"
#: Holds the key of whoever started `boyd up`; it is kept for the next start.
KEY_FILE = "key"


class Runtime(Model):
    """A running `boyd up`; the Redis URL holds a password and stays out of logs.

    `agent` is the one that is meant when none is named.
    """

    pid: int = Field(default_factory=os.getpid, gt=0)
    redis_url: str = Field(repr=False)
    api_url: str | None = None
    agent: str | None = None
    started_at: Timestamp = Field(default_factory=utc_now)


@contextmanager
def published(state: Path, runtime: Runtime) -> Iterator[None]:
    """Let others read *runtime* while the block runs; the caller holds the state lock.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = state / RUNTIME_FILE
    write_private(path, runtime.to_json())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def read_runtime(state: Path) -> Runtime | None:
    """The `boyd up` that runs in *state*; None when none does, whatever file a dead one left.

    Raises:
        ConfigError: there is a file, and it belongs to someone else.
    """
    try:
        runtime = Runtime.from_json((state / RUNTIME_FILE).read_bytes())
        holder = lock_holder(state)
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
    return runtime if runtime.pid == holder and _alive(runtime.pid) else None


def key_file(state: Path) -> Path:
    """The file with the key for the API of the `boyd up` of that folder."""
    return state / KEY_FILE


def read_key(state: Path) -> str | None:
    """That key, if there is one that we may read."""
    try:
        return key_file(state).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def with_redis(settings: Settings) -> Settings:
    """The settings with a Redis URL: the one that is set, or that of a running `boyd up`.

    Raises:
        ConfigError: there is neither.
    """
    if settings.redis_url:
        return settings
    running = read_runtime(settings.state_dir)
    if running is None:
        raise ConfigError(
            "no Redis: set BOYD_REDIS_URL, or start everything with `boyd up`"
            f" (nothing runs in {settings.state_dir})"
        )
    return settings.model_copy(update={"redis_url": running.redis_url})
