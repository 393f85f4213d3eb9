"""Profiles: APIs by name, with their keys, in a file of the user's.

[default]
url = "https://boyd.example"
key = "boyd_…"            # or key_file = "/path/to/a/file"
agent = "office"
"""

from __future__ import annotations

from pathlib import Path

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from boyd.errors import ConfigError
from boyd.models import explain
from boyd.toml import read_toml

DEFAULT = "default"


class Profile(BaseModel):
    """An API, and who we are there.

    Attributes:
        url: where the API is.
        key: the text of a key.
        key_file: a file to read it from, relative to the user's home or this file.
        agent: the agent that commands mean when they name none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    key: str | None = Field(default=None, repr=False)
    key_file: str | None = None
    agent: str | None = None


def profiles_file() -> Path:
    """Where the profiles are."""
    return platformdirs.user_config_path("boyd") / "profiles.toml"


def profile_names() -> list[str]:
    """The names of all profiles.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = profiles_file()
    return list(read_toml(path)) if path.exists() else []


def read_profile(name: str | None) -> Profile | None:
    """The profile of that name; without one `default`, if there is such a profile.

    Raises:
        ConfigError: there is none of that name, it makes no sense, or others can read its key.
    """
    path = profiles_file()
    if name is None and not path.exists():
        return None
    tables = read_toml(path)
    if (name or DEFAULT) not in tables:
        if name is None:
            return None
        raise ConfigError(f"{path} has no profile {name!r}; it has: {', '.join(tables) or 'none'}")
    try:
        profile = Profile.model_validate(tables[name or DEFAULT])
    except ValidationError as error:
        raise ConfigError(f"{path}: profile {name or DEFAULT!r}: {explain(error)}") from None
    if any(isinstance(table, dict) and "key" in table for table in tables.values()):
        _check_private(path)
    return _with_key(profile, path.parent)


def _with_key(profile: Profile, folder: Path) -> Profile:
    if profile.key_file is None:
        return profile
    if profile.key is not None:
        raise ConfigError("a profile has a key or a key_file, not both")
    path = folder / Path(profile.key_file).expanduser()
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"key_file {path} cannot be read: {error}") from None
    _check_private(path)
    return profile.model_copy(update={"key": text})


def _check_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"others can read the key in {path}: chmod 600 {path}")
