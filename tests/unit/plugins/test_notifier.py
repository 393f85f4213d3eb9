from __future__ import annotations

import json
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import ActionResult, ApprovalItem, ApprovalPolicy, Decision, utc_now
from boyd.plugins import notifier
from boyd.plugins.notifier import Notifier
from plugin_kit import Rig, Site, site


def item(**values: Any) -> ApprovalItem:
    decision = Decision(action="disk:clean", rationale="/ is 97 % full", confidence=0.9)
    given = {
        "id": "4711",
        "agent_id": "test",
        "status": "pending",
        "fingerprint": "f",
        "decision": decision,
        "action_id": "disk:clean",
        "params": {"path": "/"},
        "risk": "medium",
        "loop_iteration": 3,
        "created_at": utc_now(),
        "updated_at": utc_now(),
    }
    return ApprovalItem(**{**given, **values})


def tell(where: Site, stage: str = "created", **options: Any) -> None:
    rig = Rig(Notifier(url=f"{where.url}/hook", **options))
    [hook] = rig.host.hooks("on_approval")
    hook(approval=item(), stage=stage, ctx=rig.ctx)


def text_of(**values: Any) -> list[str]:
    """The lines of the message of an approval."""
    return notifier.chat_message(item(**values), "created").splitlines()


def test_a_chat_is_told_what_why_and_how_to_answer() -> None:
    with site() as chat:
        tell(chat)
        [(method, path, _, body)] = chat.requests

    text = json.loads(body)["text"]
    assert (method, path) == ("POST", "/hook")
    assert text.splitlines() == [
        'Approval needed: disk:clean {"path": "/"}',
        "why: / is 97 % full",
        "risk medium, requested by the agent, seen 1 time",
        "requires: one approval, by anyone, not by the requester",
        "without a deadline",
        "boyd approvals show 4711 --agent test",
    ]


def test_a_message_has_the_preview_the_policy_in_words_and_who_asked() -> None:
    preview = ActionResult(action="disk:clean", success=True, duration=1, output="9 files\n4 MB")
    policy = ApprovalPolicy(min_approvals=2, groups=["ops"], person=True, require_note=True)
    lines = text_of(preview=preview, required=policy, requested_by=["agent:test", "ann"])

    assert "preview: 9 files 4 MB" in lines
    assert "risk medium, requested by the agent and ann, seen 1 time" in lines
    assert (
        "requires: 2 approvals, by a person (group ops), not by the requester, with a note" in lines
    )


def test_a_preview_that_is_long_or_failed_fits_on_a_phone() -> None:
    long = ActionResult(action="x", success=True, duration=1, output={"files": ["x" * 999]})
    failed = ActionResult(action="x", success=False, duration=1, error="OSError: no route")
    [told] = [line for line in text_of(preview=long) if line.startswith("preview")]

    assert (len(told), told[-1]) == (len("preview: ") + 300, "…")
    assert "preview: OSError: no route" in text_of(preview=failed)


def test_a_message_names_an_undo_as_one_and_says_what_it_undoes() -> None:
    undone = ActionResult(action="disk:clean", success=True, duration=1, output="freed 3 GB")
    lines = text_of(title="undo of disk:clean (loop:7)", undoes="loop:7", undone=undone)

    assert lines[0] == 'Approval needed: undo of disk:clean (loop:7) {"path": "/"}'
    assert "undoes: freed 3 GB" in lines


def test_a_command_has_the_short_id() -> None:
    whole = "282e7ca9-d1cd-4d4b-8f1c-aaaaaaaaaaaa"

    assert text_of(id=whole)[-1] == "boyd approvals show 282e7ca9 --agent test"


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_message_ends_with_the_link_that_is_configured(style: str) -> None:
    with site() as chat:
        tell(chat, style=style, link="https://boyd.example/a/{agent}/{id}?from=chat")
        [(_, _, _, body)] = chat.requests

    told = json.loads(body)
    link = told["link"] if style == "json" else told["text"].splitlines()[-1]
    assert link == "https://boyd.example/a/test/4711?from=chat"


@pytest.mark.parametrize("link", ["boyd.example", "javascript:x", "https://boyd.example/{name}"])
def test_a_link_that_leads_nowhere_is_refused(link: str) -> None:
    with pytest.raises(PluginError, match="link"):
        Notifier(url="https://chat.example", link=link)


def test_another_system_gets_the_whole_approval() -> None:
    with site() as system:
        tell(system, "expired", style="json", headers={"X-Token": "hidden"})
        [(_, _, headers, body)] = system.requests

    told = json.loads(body)
    assert (told["stage"], told["agent"], told["approval"]["id"]) == ("expired", "test", "4711")
    assert headers["X-Token"] == "hidden"


def test_a_stage_that_is_not_wanted_is_not_told() -> None:
    with site() as chat:
        tell(chat, "half-time", stages=["created", "expired"])

        assert chat.requests == []


def test_a_message_that_was_not_taken_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "_PAUSES", (0.0, 0.0))
    with site() as chat:
        chat.status = 500

        def heal() -> None:
            chat.status = 200 if len(chat.requests) == 3 else 500

        chat.hold = heal
        tell(chat)

        assert len(chat.requests) == 3


def test_what_is_told_of_a_failure_does_not_hold_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifier, "_PAUSES", (0.0, 0.0))
    with site() as chat:
        chat.status = 403
        with pytest.raises(RuntimeError, match="it answered 403") as failure:
            tell(chat)

    assert chat.url not in str(failure.value)
    assert chat.url not in repr(Notifier(url=chat.url).options)
