"""The manifest of an action, as people read it: what it may use, and when it may run."""

from __future__ import annotations

from collections.abc import Iterator

from boyd.models import ActionInfo, JsonObject
from boyd_cli import output


def show_manifest(action: ActionInfo) -> None:
    """Print it."""
    output.say(f"{action.id}: {action.description}" if action.description else action.id)
    rows = [("sandbox", "none: it runs in the worker, with all its rights")]
    if action.sandbox:
        rows = [(f"sandbox {name}", text) for name, text in action.sandbox.rows]
    output.print_pairs(*_rows(action), *rows)


def _rows(action: ActionInfo) -> Iterator[tuple[str, str]]:
    confidence = action.autonomy.min_confidence
    least = f", from confidence {confidence:g}" if confidence is not None else ""
    yield "risk", action.risk
    yield "reversibility", action.reversibility
    yield "autonomy", f"{action.autonomy.mode}{least}"
    yield "alone when", action.alone_when or ""
    yield "windows", ", ".join(action.windows)
    if action.budget:
        yield "budget", f"{action.budget.limit} in {output.seconds(action.budget.window)}"
    yield "target", action.target or ""
    limit = action.concurrency
    yield "in flight", "any number" if limit is None else f"at most {limit} per target"
    yield "params", fields_of(action.params)
    yield "output", fields_of(action.output)
    yield "time limit", output.seconds(action.timeout)
    yield "queue", action.queue or ""
    yield "code", action.code or ""
    also = {
        "dry run": action.dry_run,
        "rollback": action.rollback,
        "verified": action.verify,
        "idempotent": action.idempotent,
    }
    yield "also", ", ".join(name for name, has in also.items() if has)


def fields_of(schema: JsonObject | None) -> str:
    """The names of the fields of a JSON Schema; optional ones in brackets."""
    if schema is None:
        return "any"
    known, required = schema.get("properties"), schema.get("required")
    names = known if isinstance(known, dict) else {}
    needed = required if isinstance(required, list) else []
    return ", ".join(name if name in needed else f"[{name}]" for name in names)
