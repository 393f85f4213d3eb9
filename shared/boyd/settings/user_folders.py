"""The folders of the user who runs Boyd, and others for a user without a home, as in containers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import platformdirs


def state_folder() -> Path:
    """The folder for data and logs of `boyd up`."""
    return _folder(platformdirs.user_state_path, Path("/var/lib/boyd"))


def config_folder() -> Path:
    """The folder for profiles."""
    return _folder(platformdirs.user_config_path, Path("/etc/boyd"))


def _folder(of_user: Callable[[str], Path], of_system: Path) -> Path:
    try:
        return of_user("boyd")
    except RuntimeError:  # neither HOME nor an entry in the list of users
        return of_system
