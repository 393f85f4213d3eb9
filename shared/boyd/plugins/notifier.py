"""Tells a chat or another system by webhook of approvals that wait, remind or have expired."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

import requests
from pydantic import Field, SecretStr

from boyd.models import ApprovalItem
from boyd.plugin import Context, Plugin

Stage = Literal["created", "half-time", "expired"]

_SAID = {
    "created": "Approval needed",
    "half-time": "Still waiting for approval",
    "expired": "Expired without an answer",
}
#: Seconds to wait before each further attempt; a hook has half a minute.
_PAUSES = (1.0, 3.0)


class Notifier(Plugin):
    """Posts a JSON message for each approval, at the stages it is told (A13)."""

    id = "notifier"

    class Options(Plugin.Options):
        """Where to and what.

        Attributes:
            url: the webhook; whoever knows it can post there, so it is shown to nobody.
            style: `text` for chats that take `{"text": …}`, `json` for the whole approval.
            stages: what is told.
            headers: sent along, such as a token.
            timeout: seconds for one attempt; there are three.
        """

        url: SecretStr
        style: Literal["text", "json"] = "text"
        stages: list[Stage] = Field(default=["created", "half-time", "expired"], min_length=1)
        headers: dict[str, SecretStr] = Field(default_factory=dict)
        timeout: float = Field(default=6.0, gt=0, le=8)

    options: Options

    def on_approval(self, approval: ApprovalItem, stage: str, ctx: Context) -> None:
        """Post the message, and again if nobody takes it."""
        if stage not in self.options.stages:
            return
        body: dict[str, Any] = {"text": told(approval, stage)}
        if self.options.style == "json":
            body = {"stage": stage, "agent": ctx.agent.id, "approval": approval.to_wire()}
        self._post(body, ctx)

    def _post(self, body: dict[str, Any], ctx: Context) -> None:
        for pause in _PAUSES:
            try:
                return self._attempt(body, ctx)
            except requests.RequestException as error:
                ctx.logger.info("the webhook did not take it, once more: %s", _kind(error))
                time.sleep(pause)
        try:
            return self._attempt(body, ctx)
        except requests.RequestException as error:
            # Its text would hold the URL.
            raise RuntimeError(f"the webhook did not take it: {_kind(error)}") from None

    def _attempt(self, body: dict[str, Any], ctx: Context) -> None:
        options = self.options
        headers = {name: value.get_secret_value() for name, value in options.headers.items()}
        answer = ctx.http.post(
            options.url.get_secret_value(), json=body, headers=headers, timeout=options.timeout
        )
        answer.raise_for_status()


def told(approval: ApprovalItem, stage: str) -> str:
    """The message for a chat."""
    lines = [
        f"{_SAID[stage]}: {approval.action_id} {json.dumps(approval.params)}",
        f"why: {approval.decision.rationale}",
        f"risk {approval.risk or 'unknown'}, seen {approval.seen} times",
    ]
    if approval.situation_summary:
        lines.append(f"situation: {approval.situation_summary}")
    if stage != "expired":
        until = approval.expires_at
        lines.append(f"until {until:%Y-%m-%d %H:%M:%S} UTC" if until else "without a deadline")
        lines.append(f"boyd approvals show {approval.id} --agent {approval.agent_id}")
    return "\n".join(lines)


def _kind(error: requests.RequestException) -> str:
    status = error.response.status_code if error.response is not None else None
    return f"it answered {status}" if status else type(error).__name__
