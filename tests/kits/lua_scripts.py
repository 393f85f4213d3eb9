"""The files of the Lua scripts."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

FOLDER = Path(str(files("boyd.store") / "lua"))
SCRIPTS = sorted(FOLDER.glob("*.lua"))
LIBRARY = sorted((FOLDER / "lib").glob("*.lua"))
#: What callers name each script by.
NAMES = [path.stem for path in SCRIPTS]
