"""Wall clocks that are wrong, for processes of their own; monotonic clocks stay as they are."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

_ASK = "import time; print(time.time())"


def missing() -> str | None:
    """The reason that no clock can be shifted on this machine, if there is one."""
    if _library() is None:
        return "the package `libfaketime` is missing"
    command = ["env", f"LD_PRELOAD={_library()}", "FAKETIME=-1000d", sys.executable, "-c", _ASK]
    result = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, check=True)
    shifted = subprocess.run(command, capture_output=True, check=False)
    if shifted.returncode != 0 or float(shifted.stdout) > float(result.stdout) - 86_400:
        return "libfaketime does not work on this machine"
    return None


def _library() -> Path | None:
    spec = find_spec("libfaketime")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"


def tidy() -> None:
    """Remove what the library shares between processes, where those were killed."""
    for file in Path("/dev/shm").glob("*faketime_*"):
        pid = file.name.rpartition("_")[2]
        if not Path(f"/proc/{pid}").exists():
            file.unlink(missing_ok=True)


class Clock:
    """A wall clock that can be set while those who look at it run."""

    def __init__(self, file: Path, seconds: float = 0.0, late: bool = False) -> None:
        """So many *seconds* ahead of the true time; *file* tells those who look at it.

        Those that may see it *late*, by a second or two, look at the file less often.
        """
        self._file = file
        self._often = {"FAKETIME_CACHE_DURATION": 1} if late else {"FAKETIME_NO_CACHE": 1}
        self.seconds = seconds
        self.shift(seconds)

    def shift(self, seconds: float) -> None:
        """Set it so many seconds ahead of the true time."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.3f}")
        fresh.replace(self._file)
        self.seconds = seconds

    @property
    def command(self) -> list[str]:
        """The prefix of a command that runs it on this clock."""
        settings = {
            "LD_PRELOAD": _library(),
            "FAKETIME_TIMESTAMP_FILE": self._file,
            **self._often,
            "FAKETIME_DONT_RESET": 1,
            "DONT_FAKE_MONOTONIC": 1,
            "NO_FAKE_STAT": 1,
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items())]


def clocks_in(folder: Path, seconds: dict[str, float]) -> dict[str, Clock]:
    """A clock for each name, so many *seconds* ahead."""
    return {name: Clock(folder / f"clock-{name}", ahead) for name, ahead in seconds.items()}
