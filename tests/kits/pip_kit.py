"""Packages of Python that only some tests need, in cache folders outside of the repository.

They are not installed beside Boyd: they need other releases of what it uses, or are large.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

_INSTALL = ("-m", "pip", "install", "--quiet", "--no-warn-conflicts")


class PipParts:
    """Packages, by their pinned *requirements*; *options* are those of pip."""

    def __init__(self, name: str, requirements: Sequence[str], *options: str) -> None:
        self._name = name
        self._requirements = requirements
        self._options = options

    @property
    def folder(self) -> Path:
        """The cache folder, for `PYTHONPATH`; another one for other releases, also of Python."""
        import platformdirs

        releases = "\n".join((str(sys.implementation.cache_tag), *self._requirements))
        digest = sha256(releases.encode()).hexdigest()[:12]
        return platformdirs.user_cache_path("boyd-tests") / f"{self._name}-{digest}"

    def require(self) -> Path:
        """The folder; without the packages the test is skipped, and fails in CI."""
        import pytest

        if not self.folder.exists():
            reason = f"`make parts` installs {self._name}"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
        return self.folder

    def install(self) -> None:
        """Install the packages, unless that was done."""
        if self.folder.exists():
            return
        making = self.folder.with_name(f"{self.folder.name}.{os.getpid()}")
        command = [sys.executable, *_INSTALL, *self._options, "--target", str(making)]
        subprocess.run([*command, *self._requirements], check=True)
        try:
            making.rename(self.folder)
        except OSError:  # another one was quicker
            shutil.rmtree(making)
