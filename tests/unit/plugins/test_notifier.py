from __future__ import annotations

import json
from typing import Any

import pytest

from boyd.models import ApprovalItem, Decision, utc_now
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


def test_A13_a_chat_is_told_what_why_and_how_to_answer() -> None:
    with site() as chat:
        tell(chat)
        [(method, path, _, body)] = chat.requests

    text = json.loads(body)["text"]
    assert (method, path) == ("POST", "/hook")
    assert text.splitlines() == [
        'Approval needed: disk:clean {"path": "/"}',
        "why: / is 97 % full",
        "risk medium, seen 1 times",
        "without a deadline",
        "boyd approvals show 4711 --agent test",
    ]


def test_A13_another_system_gets_the_whole_approval() -> None:
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
