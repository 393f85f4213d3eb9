"""The time until a file system is full, extrapolated from its growth."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression
from typing import Any, Literal

from boyd.models import JsonObject
from boyd.plugin import Context
from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls
from boyd_connectors.files.file_set import FilesError

Resource = Literal["space", "inodes"]
#: Seconds in which a file system should say how full it is.
MOUNT_TIMEOUT = 3.0
#: The most samples that are kept, and the fewest that a forecast needs.
SAMPLES = 60
FEWEST = 6
#: A forecast needs this part of the time over which samples are kept.
_SPAN = 1 / 6
#: A fall by this share of the whole is a deletion, after which growth is looked at anew.
_DROP = 0.02
#: Each third has to grow at a pace within this factor of the whole.
_STEADY = 3.0
#: A forecast reaches this many times as far ahead as the samples reach back.
_REACH = 10.0


@dataclass(frozen=True)
class DiskUsage:
    """The use of a file system in bytes or inodes; `free` is what users other than root can get."""

    used: int
    free: int
    size: int

    @property
    def percent(self) -> float:
        """The used part of what can be used, as `df` shows it."""
        return 100.0 * self.used / max(1, self.used + self.free)


@dataclass(frozen=True)
class Forecast:
    """Seconds until it is full, with the pace per second; without them `reason` says why.

    `steady` is false if it grows in a way that says nothing about later.
    """

    seconds: float | None = None
    pace: float = 0.0
    reason: str = ""
    steady: bool = True


def usage(path: Path) -> dict[Resource, DiskUsage]:
    """The use of the file system that is mounted at *path*; no inodes if it does not count them.

    Raises:
        FilesError: nothing is mounted there, or it cannot be asked.
    """
    try:
        stats, mounted = os.statvfs(path), path.is_mount()
    except OSError as error:
        raise FilesError(f"{path}: {error.strerror}") from None
    if not mounted:
        raise FilesError(f"{path}: nothing is mounted there")
    block = stats.f_frsize
    space = DiskUsage(
        (stats.f_blocks - stats.f_bfree) * block, stats.f_bavail * block, stats.f_blocks * block
    )
    inodes = DiskUsage(stats.f_files - stats.f_ffree, stats.f_favail, stats.f_files)
    return {"space": space, "inodes": inodes} if stats.f_files else {"space": space}


def usages(
    mounts: Sequence[str], calls: BoundedCalls
) -> tuple[dict[str, dict[Resource, DiskUsage]], dict[str, str]]:
    """The use of each file system, and the errors of those that cannot be asked or hang."""
    outcomes = calls.make(
        {mount: BoundedCall(partial(usage, Path(mount)), MOUNT_TIMEOUT) for mount in mounts}
    )
    by_mount, lost = {}, {}
    for mount, outcome in outcomes.items():
        if isinstance(outcome, FilesError):
            lost[mount] = str(outcome)
        elif isinstance(outcome, Exception):
            lost[mount] = f"{mount}: {outcome}"
        else:
            by_mount[mount] = outcome
    return by_mount, lost


def forecasts(
    ctx: Context,
    by_mount: Mapping[str, Mapping[Resource, DiskUsage]],
    lost: Collection[str],
    window: float,
) -> dict[tuple[str, Resource], tuple[DiskUsage, Forecast]]:
    """The use and the forecast of each file system of this host; remembers *by_mount*.

    What is known of those that are *lost* this time is kept.
    """
    now = ctx.now().timestamp()

    def change(stored: Any) -> JsonObject:
        stored = stored or {}
        unseen = {mount: memory for mount, memory in stored.items() if mount in lost}
        return unseen | {
            mount: remember(stored.get(mount), now, used, window)
            for mount, used in by_mount.items()
        }

    memory: Any = ctx.state.update(f"usage/{ctx.host}", change)
    result = {}
    for mount, used in by_mount.items():
        samples = memory[mount]["samples"]
        for place, (resource, usage) in enumerate(used.items(), 1):
            past = [(at[0], float(at[place])) for at in samples if at[0] < now]
            result[mount, resource] = (
                usage,
                forecast([*past, (now, float(usage.used))], usage, window),
            )
    return result


def remember(
    stored: Any, now: float, used: Mapping[Resource, DiskUsage], window: float
) -> JsonObject:
    """The memory of a file system: its sizes, and the time and use of some samples in *window*.

    What was known of a file system of another size is forgotten.
    """
    sizes = {resource: usage.size for resource, usage in used.items()}
    same = stored and stored["sizes"] == sizes
    samples = [
        sample for sample in (stored["samples"] if same else []) if 0 <= now - sample[0] <= window
    ]
    if not samples or now - samples[-1][0] >= window / SAMPLES:
        samples.append([now, *(usage.used for usage in used.values())])
    return {"sizes": sizes, "samples": samples}  # type: ignore[dict-item]


def forecast(samples: Sequence[tuple[float, float]], usage: DiskUsage, window: float) -> Forecast:
    """The forecast from times and uses, of which the last is the current one."""
    run = _since_drop(samples, usage.size)
    span = run[-1][0] - run[0][0]
    if len(run) < FEWEST or span < window * _SPAN:
        return Forecast(reason="too little is known since it was first seen, or shrank")
    pace = _pace(run)
    if pace <= 0:
        return Forecast(reason="it does not grow")
    third = len(run) // 3
    thirds = (run[: third + 1], run[third : 2 * third + 1], run[2 * third :])
    if not all(pace / _STEADY <= _pace(part) <= pace * _STEADY for part in thirds):
        return Forecast(reason="it does not grow steadily", steady=False)
    seconds = usage.free / pace
    if seconds > _REACH * span:
        return Forecast(pace=pace, reason="it grows too slowly to foresee the end")
    return Forecast(seconds, pace)


def _since_drop(samples: Sequence[tuple[float, float]], size: int) -> Sequence[tuple[float, float]]:
    """The samples since it shrank by much."""
    first = 0
    for number, ((_, before), (_, after)) in enumerate(pairwise(samples), 1):
        if before - after > size * _DROP:
            first = number
    return samples[first:]


def _pace(samples: Sequence[tuple[float, float]]) -> float:
    times, used = zip(*samples, strict=True)
    # Relative to the first, as squares of large numbers lose digits.
    offset = [at - times[0] for at in times]
    return linear_regression(offset, [value - used[0] for value in used]).slope
