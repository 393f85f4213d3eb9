"""How `boyd` has to be typed here, for commands that a message tells to type."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def boyd_here() -> str:
    """`boyd` where it is found on PATH; elsewhere as it was typed, as in `.venv/bin/boyd`."""
    typed = sys.argv[0]
    return typed if Path(typed).name == "boyd" and shutil.which("boyd") is None else "boyd"
