"""The program `systemctl`, which asks systemd about units and has it change them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from boyd.plugins.command import CommandFailed, CompletedCommand, check_limit, run

#: Seconds until a unit has to have started or stopped.
SYSTEMCTL_TIMEOUT = 45.0
#: Bytes of the properties of all units that are asked about.
MAX_BYTES = 4_194_304

UnitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9@_.:\\][A-Za-z0-9@_.:\\-]{0,254}$")]


class Systemctl:
    """The systemd of the host, or of the user."""

    def __init__(self, *, user: bool) -> None:
        self._argv = ["systemctl", "--user"] if user else ["systemctl"]

    def call(self, *arguments: str, timeout: float = SYSTEMCTL_TIMEOUT) -> CompletedCommand:
        """Run it; raises `CommandFailed` if it cannot be started or took too long."""
        return run([*self._argv, *arguments], timeout, limit=MAX_BYTES)

    def checked(self, *arguments: str, timeout: float = SYSTEMCTL_TIMEOUT) -> str:
        """Its output; raises `CommandFailed` if it fails."""
        finished = self.call(*arguments, timeout=timeout)
        if finished.code:
            check_limit(self._argv[0], finished.code)
            raise CommandFailed(f"{' '.join(self._argv)} {arguments[0]}: {finished.output[-2000:]}")
        return finished.output

    def show(
        self, units: Iterable[str], properties: Iterable[str], timeout: float = 15.0
    ) -> list[dict[str, str]]:
        """The properties of each unit that is loaded and matches a name or pattern.

        Raises:
            CommandFailed: systemd cannot be asked, or says too much.
        """
        text = self.checked(
            "show", f"--property={','.join(properties)}", "--", *units, timeout=timeout
        )
        if len(text.encode()) >= MAX_BYTES:
            raise CommandFailed(f"systemctl show printed more than {MAX_BYTES} bytes")
        blocks = (block.splitlines() for block in text.split("\n\n"))
        found = [dict(line.split("=", 1) for line in block if "=" in line) for block in blocks]
        return [one for one in found if one]
