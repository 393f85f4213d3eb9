"""The identity of the machine that a process runs on, whatever its host is called."""

from __future__ import annotations

import hashlib
from pathlib import Path

#: Differs between machines also when one is a copy of the other.
BOOT = Path("/proc/sys/kernel/random/boot_id")
#: Differs between containers with a system of their own on one kernel; others have none.
SYSTEM = Path("/etc/machine-id")


def machine() -> str | None:
    """Digests of the boot and the system, as `boot.system`; an unknown one is empty.

    Digests, as nobody else should know the id of a machine. None: neither is known.
    """
    found = [_digest(path) for path in (BOOT, SYSTEM)]
    return ".".join(found) if any(found) else None


def _digest(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(f"boyd {text}".encode()).hexdigest()[:12] if text else ""
