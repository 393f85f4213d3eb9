"""The preview that people saw when they approved an execution."""

from __future__ import annotations

from typing import Any

from boyd import naming
from boyd.models import ActionResult
from boyd.plugin import Context
from boyd_connectors.files.file_set import FilesError


def common_preview(ctx: Context) -> dict[str, Any] | None:
    """The output of the dry run that all approvers saw, or None if nobody had to approve.

    Of lists that were renewed between two approvals, it has what both lists have.

    Raises:
        FilesError: there is no preview that all who approved have seen.
    """
    _, id = naming.parts(ctx.execution_id or "")
    if naming.approval(id) != ctx.execution_id:
        return None
    item = ctx.approvals.get(id)
    preview = item.preview if item else None
    if item is None or preview is None or not preview.success:
        reason = preview.error if preview else "there is none"
        raise FilesError(f"nothing was changed: the approval shows no preview: {reason}; ask again")
    agreed = _output(preview)
    at = item.preview_at if item.first_preview else None
    if at is None or not any(vote.at < at for vote in item.approvals):
        return agreed
    first = _output(item.first_preview)
    if agreed.get("inode") != first.get("inode"):
        raise FilesError("nothing was changed: not all have approved the same; ask again")
    return {name: _both(first.get(name), value) for name, value in agreed.items()}


def _output(preview: ActionResult | None) -> dict[str, Any]:
    return dict(preview.output) if preview and isinstance(preview.output, dict) else {}


def _both(first: Any, last: Any) -> Any:
    """Of a list, the entries that everybody has seen."""
    both = isinstance(first, list) and isinstance(last, list)
    return [entry for entry in last if entry in first] if both else last
