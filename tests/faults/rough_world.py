"""A world in which everything can go wrong: also its disk, its clocks, and some of its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from faults import clocks, small_disk
from faults.small_disk import SmallDisk
from faults.world import RedisProcess, World
from hosts.slow_line import SlowLine

#: Those who reach Redis through a line that can be slow.
FAR = ("w2", "a1")
#: Enough for what a storm leaves, and soon filled.
MEGABYTES = 256
#: The worker that consumes everything but the queue `act`.
NEVER_ACT = ("w0",)
REST = "loop,observe,host,callback,think"


class RoughWorld(World):
    """A world, with what more can be done to it.

    Attributes:
        disk: that of Redis; None where none can be mounted.
        shifts: whether clocks can be shifted here.
        slow: the lines that can be slow.
    """

    def __init__(self, folder: Path, disk: SmallDisk | None, things: ExitStack) -> None:
        server = RedisProcess(folder, disk.folder if disk else None)
        super().__init__(folder, server)
        self.disk = disk
        self.shifts = clocks.missing() is None
        self.slow = {name: things.enter_context(SlowLine(server.port)) for name in FAR}
        self.lines = {name: line.port for name, line in self.slow.items()}

    def _arguments(self, name: str) -> Sequence[str]:
        """The first worker never acts, so that all that act can be lost."""
        usual = super()._arguments(name)
        return usual if name not in NEVER_ACT else (*usual, "--queues", REST)


@contextmanager
def rough_world(folder: Path) -> Iterator[RoughWorld]:
    """A world that is not started yet; everything is taken away at the end."""
    with ExitStack() as things:
        disk = None
        if small_disk.missing() is None:
            disk = SmallDisk(folder / "disk", MEGABYTES)
            things.callback(disk.unmount)
        world = RoughWorld(folder, disk, things)
        things.callback(world.end)
        yield world
