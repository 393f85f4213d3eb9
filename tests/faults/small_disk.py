"""A disk of a few megabytes that can be filled, with a Redis on it that is started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from faults.world import RedisProcess

#: Seconds after which what has ended is started again, as a service manager does.
AGAIN = 0.3
_CHUNK = bytes(65_536)


def missing() -> str | None:
    """The reason that no small disk can be mounted on this machine, if there is one."""
    if os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    if shutil.which("mount") is None:
        return "the program `mount` is missing"
    with tempfile.TemporaryDirectory(prefix="boyd-probe-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
        probe = subprocess.run(command, capture_output=True, check=False)
        if probe.returncode != 0:
            return f"a tmpfs cannot be mounted: {probe.stderr.decode().strip()}"
        subprocess.run(["umount", folder], check=True)
    return None


class SmallDisk:
    """A tmpfs of a few megabytes."""

    def __init__(self, folder: Path, megabytes: int = 32) -> None:
        self.folder = folder
        self._filler = folder / "filler"
        folder.mkdir()
        options = f"size={megabytes}m"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        subprocess.run(command, check=True)

    def fill(self) -> None:
        """Leave no byte free."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(_CHUNK)
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"x")

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take it away."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class SupervisedRedis(RedisProcess):
    """A Redis on a small disk, started again whenever it ends by itself."""

    def __init__(self, folder: Path, disk: SmallDisk, fsync: str) -> None:
        self.ended = 0
        self._over = threading.Event()
        super().__init__(folder, disk.folder, fsync)
        self._thread = threading.Thread(target=self._supervise, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)
        self.signal(signal.SIGKILL)  # it may have been started again when it was killed

    def _supervise(self) -> None:
        while not self._over.wait(AGAIN):
            if not self.running:
                self.ended += 1
                self.spawn()
