"""The state folder of `boyd up`: private files, its lock, and the address of the running one."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from pydantic import Field, ValidationError

from boyd.errors import ConfigError
from boyd.models.base import Model, Timestamp, utc_now
from boyd.settings.process_settings import Settings


def private_folder(folder: Path) -> Path:
    """Create *folder* (mode 0700) and its parents if missing; return the absolute path.

    An existing folder keeps its mode.

    Raises:
        ConfigError: it cannot be created or written to.
    """
    folder, reason = folder.absolute(), ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            reason = "it is read-only or belongs to someone else"
    except OSError as error:
        blocking = next((each for each in (folder, *folder.parents) if each.exists()), folder)
        reason = error.strerror or str(error)
        if not blocking.is_dir():
            reason = f"{blocking} is not a folder"
    if reason:
        advice = "choose a folder that you may write to"
        raise ConfigError(f"cannot keep data in {folder}: {reason}; {advice}")
    return folder


def write_private(path: Path, text: str) -> None:
    """Write *text* to *path* (mode 0600) atomically.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


LOCK_FILE = "boyd.lock"
# Long enough for a reader's short test of the lock, or for a killed predecessor to exit.
LOCK_TIMEOUT_SECONDS = 0.5


@contextmanager
def state_lock(state: Path) -> Iterator[None]:
    """Lock the state folder for this process; create it if necessary.

    Raises:
        ConfigError: another `boyd up` holds it, or the folder cannot be used.
    """
    folder = private_folder(state)
    path = folder / LOCK_FILE
    lock = open_locked(path, LOCK_TIMEOUT_SECONDS)
    if lock is None:
        pid = _read_pid(path)
        whose = f" (pid {pid})" if pid else ""
        problem = f"boyd up is already running in {folder}{whose}"
        raise ConfigError(
            f"{problem}: stop it, or choose another BOYD_STATE_DIR and BOYD_API__PORT"
        )
    try:
        try:
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
        yield
    finally:
        # Emptied, not removed: two processes could lock a removed file and its successor.
        with suppress(OSError):
            os.ftruncate(lock, 0)
        os.close(lock)


def lock_holder(state: Path) -> int | None:
    """The pid of the `boyd up` that holds the state folder, if any."""
    path = state / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return None if _lock(descriptor, fcntl.LOCK_SH) else _read_pid(path)
    finally:
        os.close(descriptor)


def open_locked(path: Path, timeout: float) -> int | None:
    """Open and lock *path*; None if it stays locked for *timeout* seconds.

    The lock lives as long as the descriptor and its copies in children.

    Raises:
        ConfigError: the file cannot be opened or locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}") from None
    deadline = time.monotonic() + timeout
    try:
        while not _lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.02)
    except OSError as error:
        os.close(descriptor)
        raise ConfigError(f"cannot lock {path}: {error.strerror}") from None
    return descriptor


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_pid(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


RUNTIME_FILE = "runtime.json"
#: The API key of the user who started `boyd up`; kept for the next start.
KEY_FILE = "key"
APPROVAL_SECRET_FILE = "approval-secret"  # noqa: S105 - the name of a file


class RunningDeployment(Model):
    """A running `boyd up`; `agent` is the default agent of commands.

    `broker_url` is that of the messages, if they are not on the Redis with the state.
    """

    pid: int = Field(default_factory=os.getpid, gt=0)
    redis_url: str = Field(repr=False)
    broker_url: str | None = Field(default=None, repr=False)
    api_url: str | None = None
    agent: str | None = None
    started_at: Timestamp = Field(default_factory=utc_now)


@contextmanager
def publish_runtime(state: Path, runtime: RunningDeployment) -> Iterator[None]:
    """Publish *runtime* while the block runs; the caller holds the state lock.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = state / RUNTIME_FILE
    write_private(path, runtime.to_json())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def read_runtime(state: Path) -> RunningDeployment | None:
    """The `boyd up` that runs in *state*, if any.

    Raises:
        ConfigError: its file belongs to another user.
    """
    try:
        runtime = RunningDeployment.from_json((state / RUNTIME_FILE).read_bytes())
        holder = lock_holder(state)
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
    if runtime.pid != holder:
        return None
    try:
        with suppress(PermissionError):  # it belongs to another user
            os.kill(holder, 0)
    except ProcessLookupError:
        return None
    return runtime


def key_file(state: Path) -> Path:
    """The file with the API key of the `boyd up` of that folder."""
    return state / KEY_FILE


def approval_secret_file(state: Path) -> Path:
    """The file with the secret that signs links to approvals; made once.

    Raises:
        ConfigError: it cannot be written.
    """
    path = state / APPROVAL_SECRET_FILE
    if not path.exists():
        write_private(path, secrets.token_urlsafe(48) + "\n")
    return path


def read_key(state: Path) -> str | None:
    """The key in that file, if it is readable."""
    try:
        return key_file(state).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def with_redis(settings: Settings) -> Settings:
    """The settings with a Redis URL: the configured one, or that of a running `boyd up`.

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
    urls = {"redis_url": running.redis_url, "broker_url": settings.broker_url or running.broker_url}
    return settings.model_copy(update=urls)


#: The database of the archive of `boyd up`, in its state folder.
ARCHIVE_FILE = "archive.db"


def archive_of(state: Path) -> str:
    """The URL of the archive of `boyd up`."""
    return f"sqlite:///{quote(str(state / ARCHIVE_FILE))}"


def with_archive(settings: Settings) -> Settings:
    """The settings with a Redis URL and, if it is that of a running `boyd up`, its archive.

    Raises:
        ConfigError: there is no Redis.
    """
    result = with_redis(settings)
    embedded = settings.redis_url is None and (settings.state_dir / ARCHIVE_FILE).exists()
    if result.archive_url or not embedded:
        return result
    return result.model_copy(update={"archive_url": archive_of(settings.state_dir)})
