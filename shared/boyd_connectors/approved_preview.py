"""The preview that a person has seen before an action was approved."""

from __future__ import annotations

from typing import Any

from boyd import naming
from boyd.errors import ConfigError
from boyd.models import JsonObject
from boyd.plugin import Context


def approved_preview(ctx: Context) -> JsonObject:
    """The output of the dry run of the approval that is executed; empty: there was none."""
    _, id = naming.parts(ctx.execution_id or "")
    if naming.approval(id) != ctx.execution_id:
        return {}
    try:
        item = ctx.approvals.get(id)
    except ConfigError:  # in a sandbox
        return {}
    preview = item.preview if item else None
    output: Any = preview.output if preview and preview.success else None
    return output if isinstance(output, dict) else {}
