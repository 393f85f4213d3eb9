"""An emulation of Slack: its Web API as a bot uses it, and what it sends when people click.

It checks each call against the published contracts: method, arguments, content type, token, blocks
and their limits, and trigger ids, which open one dialog within three seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from http_kit import Handler, serve

TOKEN = "xoxb-1234567890-abcdef"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
WORKSPACE, APP, CHANNEL = "T0123ABCD", "A0123ABCD", "C0123456789"
PATH = "/console/slack/interactions"
#: The settings of an API that this emulation talks to.
SETTINGS = {"workspace": WORKSPACE, "app": APP, "signing_secret": SECRET, "token": TOKEN}

#: The arguments of each method: those that are required, and all.
METHODS = {
    "chat.postMessage": (
        {"channel", "text"},
        {"channel", "text", "blocks", "thread_ts", "reply_broadcast"},
    ),
    "chat.update": ({"channel", "ts", "text"}, {"channel", "ts", "text", "blocks"}),
    "views.open": ({"trigger_id", "view"}, {"trigger_id", "view"}),
}
#: The fields of each block, element and view: those that are required, and all.
SHAPES = {
    "header": ({"text"}, {"text"}),
    "section": ({"text"}, {"text"}),
    "actions": ({"elements"}, {"elements"}),
    "context": ({"elements"}, {"elements"}),
    "input": ({"label", "element", "block_id"}, {"label", "element", "block_id", "optional"}),
    "button": ({"text", "action_id"}, {"text", "action_id", "url", "value", "style"}),
    "plain_text": ({"text"}, {"text", "emoji"}),
    "plain_text_input": ({"action_id"}, {"action_id", "multiline", "max_length"}),
    "modal": (
        {"title", "blocks", "close"},
        {"title", "blocks", "close", "submit", "callback_id", "private_metadata"},
    ),
}
#: The most characters of a text, by where it stands.
LIMITS = {"header": 150, "section": 3000, "context": 3000, "button": 75, "input": 2000}
LONGEST = {"url": 3000, "value": 2000, "action_id": 255, "block_id": 255, "callback_id": 255}
LONGEST |= {"private_metadata": 3000}


class Slack:
    """A workspace with an app.

    Attributes:
        url: of the Web API.
        calls: every call that was accepted, with its arguments.
        messages: those in the channels, by their `ts`.
        views: the dialogs that are open, by their id.
        answers: scripted answers to the next calls: status, headers, and body.
        violations: calls that break the contract.
    """

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.messages: dict[str, dict[str, Any]] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.answers: list[tuple[int, dict[str, str], Any]] = []
        self.violations: list[str] = []
        self._triggers: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def methods(self) -> list[str]:
        """The methods that were called, in order."""
        return [method for method, _ in self.calls]

    def message(self, subject: str = "") -> dict[str, Any]:
        """The only message with that *subject* that is no reply."""
        [message] = [
            entry
            for entry in self.messages.values()
            if "thread_ts" not in entry and subject in entry["text"]
        ]
        return message

    def replies(self, subject: str = "") -> list[dict[str, Any]]:
        """The messages in threads, with that *subject*."""
        return [
            entry
            for entry in self.messages.values()
            if "thread_ts" in entry and subject in entry["text"]
        ]

    def view(self) -> dict[str, Any]:
        """The dialog that was opened last."""
        return self.views[max(self.views, key=lambda id: int(id[1:]))]

    # The Web API

    def answer(self, method: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], Any]:
        """The answer to a call."""
        with self._lock:
            if self.answers:
                return self.answers.pop(0)
            try:
                return 200, {}, self._call(method, headers, body)
            except AssertionError as error:
                self.violations.append(f"{method}: {error}")
                return 200, {}, {"ok": False, "error": "invalid_arguments"}

    def _call(self, method: str, headers: Any, body: bytes) -> dict[str, Any]:
        assert headers["Content-Type"] == "application/json; charset=utf-8", "the content type"
        if headers["Authorization"] != f"Bearer {TOKEN}":
            return {"ok": False, "error": "invalid_auth"}
        arguments = json.loads(body)
        required, allowed = METHODS[method]
        assert required <= arguments.keys() <= allowed, sorted(arguments)
        self.calls.append((method, arguments))
        answer: dict[str, Any] = getattr(self, f"_{method.replace('.', '_')}")(arguments)
        return answer

    def _chat_postMessage(self, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        check_message(arguments)
        thread = arguments.get("thread_ts")
        assert thread is None or thread in self.messages, "no such thread"
        ts = f"1764150000.{next(self._numbers):06}"
        self.messages[ts] = arguments
        return {"ok": True, "channel": arguments["channel"], "ts": ts, "message": arguments}

    def _chat_update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        check_message(arguments)
        ts = arguments["ts"]
        if ts not in self.messages or self.messages[ts]["channel"] != arguments["channel"]:
            return {"ok": False, "error": "message_not_found"}
        self.messages[ts] = {name: value for name, value in arguments.items() if name != "ts"}
        return {"ok": True, "channel": arguments["channel"], "ts": ts}

    def _views_open(self, arguments: dict[str, Any]) -> dict[str, Any]:
        issued = self._triggers.pop(arguments["trigger_id"], None)
        if issued is None:
            return {"ok": False, "error": "exchanged_trigger_id"}
        if time.monotonic() - issued > 3:
            return {"ok": False, "error": "expired_trigger_id"}
        check_view(arguments["view"])
        id = f"V{next(self._numbers)}"
        self.views[id] = {**arguments["view"], "id": id}
        return {"ok": True, "view": self.views[id]}

    # What it sends

    def click(
        self,
        action: str,
        user: str = "U0ALICE",
        *,
        name: str = "alice",
        subject: str = "",
        **changes: Any,
    ) -> bytes:
        """The body of the interaction when *user* clicks a button of the message."""
        buttons = elements(self.message(subject)["blocks"])
        button = next(part for part in buttons if part["action_id"] == action)
        clicked = {"action_id": action, "type": "button", "value": button.get("value", "")}
        return self._body("block_actions", user, name, changes, actions=[clicked])

    def submission(
        self,
        user: str = "U0ALICE",
        *,
        name: str = "alice",
        view: dict[str, Any] | None = None,
        changes: dict[str, Any] | None = None,
        **texts: str | None,
    ) -> bytes:
        """The body of the interaction when *user* submits a dialog with those *texts*."""
        dialog = view or self.view()
        fields = [block["block_id"] for block in dialog["blocks"] if block["type"] == "input"]
        element = {"type": "plain_text_input"}
        values = {id: {"text": {**element, "value": texts.get(id)}} for id in fields}
        submitted = {**dialog, "state": {"values": values}}
        return self._body("view_submission", user, name, changes or {}, view=submitted)

    def _body(self, kind: str, user: str, name: str, changes: dict[str, Any], **more: Any) -> bytes:
        with self._lock:
            trigger = f"{next(self._numbers)}.1.{'0' * 32}"
            self._triggers[trigger] = time.monotonic()
        payload = {
            "type": kind,
            "team": {"id": WORKSPACE, "domain": "example"},
            "user": {"id": user, "username": name, "name": name, "team_id": WORKSPACE},
            "api_app_id": APP,
            "token": "deprecated",
            "trigger_id": trigger,
            "enterprise": None,
            "is_enterprise_install": False,
            **more,
            **changes,
        }
        return urlencode({"payload": json.dumps(payload)}).encode()


def signature_headers(body: bytes, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    """The headers of a request of Slack."""
    moment = str(int(time.time() if at is None else at))
    signature = hmac.new(secret.encode(), f"v0:{moment}:".encode() + body, hashlib.sha256)
    return {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": moment,
        "X-Slack-Signature": f"v0={signature.hexdigest()}",
    }


def elements(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The buttons in blocks."""
    rows = [block["elements"] for block in blocks if block["type"] == "actions"]
    return [element for row in rows for element in row]


def words(blocks: list[dict[str, Any]]) -> str:
    """The texts in blocks, without those of buttons."""
    texts = [block["text"]["text"] for block in blocks if "text" in block]
    return "\n".join(texts)


def check_message(arguments: dict[str, Any]) -> None:
    """Check the content of a message."""
    assert 0 < len(arguments["text"]) <= 40_000, "text"
    assert not {"<", ">"} & set(arguments["text"]), "a mention or link in the text"
    blocks = arguments.get("blocks", [])
    assert len(blocks) <= 50, "blocks"
    for block in blocks:
        assert block["type"] != "input", "messages have no inputs here"
        check_block(block)


def check_view(view: dict[str, Any]) -> None:
    """Check a dialog."""
    _check_shape(view)
    assert view["type"] == "modal", view["type"]
    for name in {"title", "close", "submit"} & view.keys():
        _check_text(view[name], 24)
    assert len(view["blocks"]) <= 100, "blocks"
    for block in view["blocks"]:
        check_block(block)
    inputs = [block for block in view["blocks"] if block["type"] == "input"]
    assert not inputs or "submit" in view, "submit is required with inputs"
    assert len(json.dumps(view)) <= 250_000, "view_too_large"


def check_block(block: dict[str, Any]) -> None:
    """Check a block and its elements."""
    _check_shape(block)
    kind = block["type"]
    if "text" in block:
        _check_text(block["text"], LIMITS[kind])
    if kind == "input":
        _check_text(block["label"], LIMITS[kind])
        _check_shape(block["element"])
        assert 1 <= block["element"].get("max_length", 1) <= 3000, "max_length"
    for element in block.get("elements", []):
        if kind == "context":
            _check_text(element, LIMITS[kind])
            continue
        _check_shape(element)
        _check_text(element["text"], LIMITS["button"])
        assert element.get("style", "primary") in ("primary", "danger"), "style"
    ids = [element.get("action_id") for element in block.get("elements", []) if kind == "actions"]
    assert len(set(ids)) == len(ids) <= 25, "action ids"


def _check_text(text: dict[str, Any], longest: int) -> None:
    _check_shape(text)
    assert text["type"] == "plain_text", text["type"]
    assert 1 <= len(text["text"]) <= longest, f"{len(text['text'])} of {longest} characters"


def _check_shape(part: dict[str, Any]) -> None:
    required, allowed = SHAPES[part["type"]]
    names = part.keys() - {"type"}
    assert required <= names <= allowed, (part["type"], sorted(names))
    for name in LONGEST.keys() & names:
        assert len(part[name]) <= LONGEST[name], name


@contextmanager
def slack_server() -> Iterator[Slack]:
    """An emulation that listens; at the end, no call has broken the contract."""
    slack = Slack()

    class SlackHandler(Handler):
        def answer(self) -> None:
            method = self.path.removeprefix("/api/")
            status, headers, answer = slack.answer(method, self.headers, self.read_body())
            self.reply(status, json.dumps(answer).encode(), **headers)

    with serve(SlackHandler) as url:
        slack.url = f"{url}/api"
        yield slack
    assert slack.violations == []
