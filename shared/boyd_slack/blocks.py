"""Messages and dialogs as Slack takes them: blocks of plain text, within its limits.

Texts of agents are plain text, so that nothing in them can mention people or pose as a link.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from boyd import naming
from boyd.models import ApprovalItem, Model
from boyd.text.formatting import visible

if TYPE_CHECKING:
    from boyd.plugins.notifier.message import NotificationMessage

Block = dict[str, Any]
Verb = Literal["approve", "deny", "acknowledge"]

#: The names of buttons and dialogs.
OPEN_PAGE, ANSWER, LINK = "boyd.open", "boyd.answer", "boyd.link"
BUTTONS: dict[str, Verb] = {
    "boyd.approve": "approve",
    "boyd.deny": "deny",
    "boyd.acknowledge": "acknowledge",
}
#: The title of the dialog of each button, and its own button.
_DIALOGS: dict[Verb, tuple[str, str]] = {
    "approve": ("Approve?", "Approve"),
    "deny": ("Deny?", "Deny"),
    "acknowledge": ("Do you have it?", "I have it"),
}
#: The fields of dialogs: the block, and the element in it.
NOTE, CODE, FIELD = "note", "code", "text"
#: The most characters of a header, of a section, and of the notes of answers and acknowledgements.
_HEADER, _SECTION, _NOTE, _SHORT_NOTE = 150, 3000, 3000, 500
#: The most characters of parameters in a dialog, which has room for a hundred blocks.
MAX_PARAMS = 30_000


class ApprovalReference(Model):
    """An approval as buttons and dialogs name it; `version` is that which a dialog shows."""

    agent: str
    id: str
    version: int = 0
    verb: Verb = "approve"


def approval_blocks(
    message: NotificationMessage, item: ApprovalItem, *, buttons: bool
) -> list[Block]:
    """The message about an approval; *buttons* answer or acknowledge it."""
    blocks: list[Block] = [
        {"type": "header", "text": _plain_text(message.title, _HEADER)},
        section(_lines(message)),
    ]
    elements = []
    if buttons:
        value = ApprovalReference(agent=item.agent_id, id=item.id).to_json()
        elements = [
            _button("boyd.approve", "Approve…", value=value, style="primary"),
            _button("boyd.deny", "Deny…", value=value, style="danger"),
            _button("boyd.acknowledge", "I have it…", value=value),
        ]
    if message.link:
        elements.append(_button(OPEN_PAGE, "Open", url=message.link))
    if incident := dict(message.lines).get("incident"):
        elements.append(_button(f"{OPEN_PAGE}-incident", "Incident", url=incident))
    if elements:
        blocks.append({"type": "actions", "elements": elements})
    blocks.append({"type": "context", "elements": [_plain_text(message.command, _SECTION)]})
    return blocks


def confirmation(
    message: NotificationMessage,
    item: ApprovalItem,
    verb: Verb,
    principal: str,
    *,
    is_frozen: bool,
) -> Block:
    """The dialog in which *principal* confirms an answer or an acknowledgement."""
    reference = ApprovalReference(agent=item.agent_id, id=item.id, version=item.version, verb=verb)
    is_answer = verb != "acknowledge"
    required = is_answer and item.required.require_note
    whole = params_text(item) if is_answer else ""
    text = whole[:MAX_PARAMS]
    heading = "Parameters:" if text == whole else "Only the beginning of the parameters:"
    note = _input(
        NOTE,
        "Note" if required else "Note (optional)",
        optional=not required,
        multiline=True,
        max_length=_NOTE if is_answer else _SHORT_NOTE,
    )
    title, submit = _DIALOGS[verb]
    return dialog(
        title,
        [
            section(message.title),
            section(consequence(item, verb, is_frozen=is_frozen)),
            section(_lines(message)),
            *([section(heading)] if text else []),
            *(section(text[start : start + _SECTION]) for start in range(0, len(text), _SECTION)),
            section(f"You answer as {principal}." if is_answer else f"You are {principal}."),
            note,
        ],
        callback=ANSWER,
        submit=submit,
        data=reference.to_json(),
    )


def params_text(item: ApprovalItem) -> str:
    """The parameters as the dialog shows them: what is approved whole, for messages cut them."""
    return visible(json.dumps(item.params, ensure_ascii=False, indent=1))


def consequence(item: ApprovalItem, verb: Verb, *, is_frozen: bool) -> str:
    """The consequence of an answer to *item*, or of its acknowledgement, in words."""
    missing = item.required.min_approvals - len(item.counting)
    if verb == "deny":
        return "Nothing is executed."
    if verb == "acknowledge":
        return "Nobody else is asked meanwhile. It still needs an answer."
    if missing > 1:
        return f"It needs {missing - 1} more after yours."
    if item.action_id == naming.GRANT:
        return "The action then runs without a person in such situations, until it is revoked."
    if is_frozen:
        return "Actions are frozen: it cannot be approved until that is lifted."
    return "A worker then runs it, with exactly these parameters."


def linking(url: str, data: str) -> Block:
    """The dialog in which a Slack account proves whose principal it is."""
    return dialog(
        "Who are you in Boyd?",
        [
            section("Boyd does not know this Slack account yet. Open the page, sign in there, and"),
            _actions(_button(OPEN_PAGE, "Open the page", url=url)),
            section("type the code that it shows. Both are valid for ten minutes."),
            _input(CODE, "Code", max_length=20),
        ],
        callback=LINK,
        submit="Link",
        data=data,
    )


def notice(text: str, link: str = "") -> Block:
    """A dialog that only says something, with a *link* to a page."""
    more = [_actions(_button(OPEN_PAGE, "Open", url=link))] if link else []
    return dialog("Boyd", [section(text), *more])


def dialog(
    title: str, blocks: Sequence[Block], *, callback: str = "", submit: str = "", data: str = ""
) -> Block:
    """A modal view; without *submit* it can only be closed."""
    view: Block = {"type": "modal", "title": _plain_text(title, 24), "blocks": list(blocks)}
    view["close"] = _plain_text("Cancel" if submit else "Close", 24)
    if submit:
        more = {
            "submit": _plain_text(submit, 24),
            "callback_id": callback,
            "private_metadata": data,
        }
        view |= more
    return view


def section(text: str) -> Block:
    """A paragraph."""
    return {"type": "section", "text": _plain_text(text, _SECTION)}


def errors(block: str, text: str) -> str:
    """The answer to a dialog that stays open, because the field *block* is wrong."""
    return json.dumps({"response_action": "errors", "errors": {block: text}})


def replacement(view: Block) -> str:
    """The answer to a dialog that another one replaces."""
    return json.dumps({"response_action": "update", "view": view})


def _lines(message: NotificationMessage) -> str:
    return "\n".join(f"{label}: {text}" for label, text in message.lines) or message.title


def _plain_text(text: str, longest: int) -> Block:
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return {"type": "plain_text", "text": short or "-", "emoji": False}


def _button(action: str, text: str, **more: str) -> Block:
    return {"type": "button", "action_id": action, "text": _plain_text(text, 75), **more}


def _actions(*elements: Block) -> Block:
    return {"type": "actions", "elements": list(elements)}


def _input(block: str, label: str, *, optional: bool = False, **more: Any) -> Block:
    element = {"type": "plain_text_input", "action_id": FIELD, **more}
    text = _plain_text(label, 75)
    return {"type": "input", "block_id": block, "label": text, "element": element} | (
        {"optional": True} if optional else {}
    )


def fallback(text: str) -> str:
    """A text for notifications, in which nothing is a mention or a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
