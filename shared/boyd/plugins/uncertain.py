"""The result of an action whose request was sent, but whose answer never came."""

from __future__ import annotations

from boyd.models import ActionResult, JsonObject


def uncertain(why: Exception | str, output: JsonObject | None = None) -> ActionResult:
    """A result with an unknown outcome, which `verify` may still clear up by the *output*."""
    error = f"{why}; it may have taken effect"
    return ActionResult(
        action="", success=False, duration=0, error=error, unknown=True, output=output
    )
