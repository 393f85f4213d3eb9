"""Results of actions: the difference of a dry run, and an answer that never came."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from boyd.models import ActionResult, JsonObject

#: The most lines of a difference.
MAX_LINES = 400


def difference(
    before: Mapping[str, Any] | str,
    after: Mapping[str, Any] | str,
    subject: str,
    names: tuple[str, str] = ("now", "then"),
) -> str:
    """The lines of *subject* that would change, as a unified diff; values are written as YAML.

    Empty if nothing would change. *names* are those of the two states.
    """
    first, second = (f"{subject} {name}" for name in names)
    diff = difflib.unified_diff(_lines(before), _lines(after), first, second, lineterm="", n=2)
    lines = list(diff)
    cut = len(lines) - MAX_LINES
    if cut > 0:
        lines = [*lines[:MAX_LINES], f"… and {cut} more lines"]
    return "\n".join(lines)


def _lines(value: Mapping[str, Any] | str) -> list[str]:
    if not isinstance(value, str):
        value = yaml.safe_dump(dict(value), sort_keys=True, allow_unicode=True) if value else ""
    return value.splitlines()


def uncertain(reason: Exception | str, output: JsonObject | None = None) -> ActionResult:
    """A result with an unknown outcome, which `verify` may still clear up by the *output*."""
    error = f"{reason}; it may have taken effect"
    return ActionResult(
        action="", success=False, duration=0, error=error, unknown=True, output=output
    )
