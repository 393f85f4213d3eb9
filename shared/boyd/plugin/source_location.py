"""Errors of a plugin's code, told with the file and the line in which they arose."""

from __future__ import annotations

import builtins
import difflib
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType

from boyd.settings.files import saying

_BOYD = str(Path(__file__).resolve().parent.parent)
#: Where code lies that no author of a plugin has written.
_FOREIGN = (f"{_BOYD}/", "<frozen", f"{Path(traceback.__file__).parent}/")
_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def located(error: BaseException) -> str:
    """The error as one line: file, line, and what was wrong, with the nearest known name."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: {error.msg}"
    frame, line = _own(error.__traceback__)
    said = f"{_message(error)}{_suggestion(error, frame)}"
    if frame is None:
        return said
    return f"{Path(frame.f_code.co_filename).name} line {line}: {said}"


def _own(trace: TracebackType | None) -> tuple[FrameType | None, int]:
    """The last frame of code that is neither Boyd's nor Python's nor of an installed package."""
    found: tuple[FrameType | None, int] = (None, 0)
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_FOREIGN) and "site-packages" not in name:
            found = (trace.tb_frame, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _message(error: BaseException) -> str:
    text = " ".join(saying(error).split())
    if isinstance(error, NameError | ImportError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _suggestion(error: BaseException, frame: FrameType | None) -> str:
    near = difflib.get_close_matches(*_wanted(error, frame), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _wanted(error: BaseException, frame: FrameType | None) -> tuple[str, Iterable[str]]:
    """The name that there is not, and those that there are."""
    if isinstance(error, NameError) and error.name and frame is not None:
        return error.name, sorted({*frame.f_locals, *frame.f_globals, *dir(builtins)})
    if isinstance(error, AttributeError) and error.name:
        return error.name, dir(error.obj)
    missing = _CANNOT_IMPORT.match(str(error)) if isinstance(error, ImportError) else None
    if missing and missing[2] in sys.modules:
        return missing[1], dir(sys.modules[missing[2]])
    return "", ()
