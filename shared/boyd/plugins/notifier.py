"""The plugin `notifier`: it posts approvals to a webhook when they are created, wait or expire."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Literal
from urllib.parse import quote

import requests
from pydantic import Field, SecretStr, field_validator

from boyd.formatting import counted
from boyd.models import ActionResult, ApprovalItem
from boyd.plugin import Context, Plugin

Stage = Literal["created", "half-time", "expired"]

_HEADLINES = {
    "created": "Approval needed",
    "half-time": "Still waiting for approval",
    "expired": "Expired without an answer",
}
#: Seconds before each retry; a hook has half a minute.
_PAUSES = (1.0, 3.0)
#: The placeholders of a link.
_PLACES = ("{agent}", "{id}")
#: The most characters of a preview in a message.
_MOST = 300


class Notifier(Plugin):
    """Posts a JSON message for each approval at the configured stages."""

    id = "notifier"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            url: the webhook, a secret, as whoever knows it can post there.
            style: `text` for chats that accept `{"text": …}`, `json` for the whole approval.
            stages: the stages to report.
            link: the URL of an approval for people, with the placeholders `{agent}` and `{id}`.
            headers: additional headers, such as a token.
            timeout: seconds for each of three attempts.
        """

        url: SecretStr
        style: Literal["text", "json"] = "text"
        stages: list[Stage] = Field(default=["created", "half-time", "expired"], min_length=1)
        link: str = ""
        headers: dict[str, SecretStr] = Field(default_factory=dict)
        timeout: float = Field(default=6.0, gt=0, le=8)

        @field_validator("link")
        @classmethod
        def _leads_somewhere(cls, value: str) -> str:
            if value and not value.startswith(("http://", "https://")):
                raise ValueError("must start with http:// or https://")
            strange = set(re.findall(r"\{[^{}]*\}", value)) - set(_PLACES)
            if strange:
                raise ValueError(f"the only placeholders are {' and '.join(_PLACES)}")
            return value

    options: Options

    def on_approval(self, approval: ApprovalItem, stage: str, ctx: Context) -> None:
        """Post the message, with retries."""
        if stage not in self.options.stages:
            return
        link = _link(self.options.link, approval)
        body: dict[str, Any] = {"text": chat_message(approval, stage, link)}
        if self.options.style == "json":
            body = {"stage": stage, "agent": ctx.agent.id, "approval": approval.to_wire()}
            body |= {"link": link} if link else {}
        self._post(body, ctx)

    def _post(self, body: dict[str, Any], ctx: Context) -> None:
        for pause in (*_PAUSES, None):
            try:
                self._attempt(body, ctx)
                return
            except requests.RequestException as error:
                if pause is None:
                    # The error itself would show the URL.
                    raise RuntimeError(f"the webhook failed: {_kind(error)}") from None
                ctx.logger.info("the webhook failed, retrying: %s", _kind(error))
                time.sleep(pause)

    def _attempt(self, body: dict[str, Any], ctx: Context) -> None:
        options = self.options
        headers = {name: value.get_secret_value() for name, value in options.headers.items()}
        url, timeout = options.url.get_secret_value(), options.timeout
        ctx.http.post(url, json=body, headers=headers, timeout=timeout).raise_for_status()


def chat_message(approval: ApprovalItem, stage: str, link: str = "") -> str:
    """The message for a chat."""
    askers = " and ".join(approval.askers)
    seen, title = counted(approval.seen, "time"), approval.title or approval.action_id
    lines = [
        f"{_HEADLINES[stage]}: {title} {json.dumps(approval.params)}",
        f"why: {approval.decision.rationale}",
        f"risk {approval.risk or 'unknown'}, requested by {askers}, seen {seen}",
    ]
    if approval.situation_summary:
        lines.append(f"situation: {approval.situation_summary}")
    if approval.undone is not None:
        lines.append(f"undoes: {_one_line(approval.undone)}")
    if approval.preview is not None:
        lines.append(f"preview: {_one_line(approval.preview)}")
    if stage != "expired":
        until = approval.expires_at
        lines.append(f"requires: {approval.required.words}")
        lines.append(f"until {until:%Y-%m-%d %H:%M:%S} UTC" if until else "without a deadline")
    lines.append(link or f"boyd approvals show {approval.id[:8]} --agent {approval.agent_id}")
    return "\n".join(lines)


def _one_line(result: ActionResult) -> str:
    output = result.output if result.success else result.error
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"


def _link(template: str, approval: ApprovalItem) -> str:
    for place, value in zip(_PLACES, (approval.agent_id, approval.id), strict=True):
        template = template.replace(place, quote(value, safe=""))
    return template


def _kind(error: requests.RequestException) -> str:
    status = error.response.status_code if error.response is not None else None
    return f"it answered {status}" if status else type(error).__name__
