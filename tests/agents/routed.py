"""An agent that every route of the API can be asked about; its model is at `MODEL_URL`."""

from __future__ import annotations

import os
from typing import Any

from boyd import Agent, Plugin, action, endpoint
from boyd.models import ActionResult
from boyd.settings.model import ModelSettings


class Counter(Plugin):
    """Something to do, to undo and to ask."""

    id = "counter"

    @action()
    def add(self, params: Any) -> str:
        """Add one."""
        return "added"

    @add.dry_run
    def would_add(self, params: Any) -> str:
        """Tell what would be added."""
        return "would add"

    @add.rollback
    def remove(self, params: Any, result: ActionResult) -> str:
        """Take it away again."""
        return "removed"

    @action(autonomy="approval-required")
    def reset(self, params: Any) -> str:
        """Begin anew, if a person allows it."""
        return "reset"

    @reset.dry_run
    def would_reset(self) -> str:
        """Say what a person would allow."""
        return "would reset"

    @endpoint("GET", "/")
    def show(self) -> str:
        """Answer."""
        return "show"

    @endpoint("POST", "/")
    def count(self) -> str:
        """Answer."""
        return "count"

    @endpoint("PUT", "/")
    def replace(self) -> str:
        """Answer."""
        return "replace"

    @endpoint("PATCH", "/")
    def change(self) -> str:
        """Answer."""
        return "change"

    @endpoint("DELETE", "/")
    def forget(self) -> str:
        """Answer."""
        return "forget"


routed = Agent(
    "routed",
    plugins=[Counter()],
    approvals={"required": {"links": "bearer"}},
    llm=ModelSettings(
        base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:9/v1"),
        model="scripted",
        profile="off",
    ),
)
