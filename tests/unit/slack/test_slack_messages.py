"""The plugin `slack`: one message for each approval and channel, edited as it goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from boyd.models import ActionResult, ApprovalItem, ApprovalPolicy, Decision
from boyd.security.links import LinkBuilder
from boyd_slack.plugin import SlackMessages
from boyd_slack.web_api import SlackError
from kit import approval_item, choice
from plugin_kit import Rig
from slack_kit import CHANNEL, TOKEN, Slack, elements, words

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def item(**values: Any) -> ApprovalItem:
    decision = choice("disk:clean", rationale="/ is 97 % full")
    own = {"action_id": "disk:clean", "decision": decision, "params": {"path": "/"}}
    return approval_item(NOW, **{**own, **values})


@pytest.fixture
def rig(slack: Slack, tmp_path: Path) -> Rig:
    """The plugin with one channel."""
    return rig_of(slack, tmp_path, {"name": "ops", "channel": CHANNEL})


def rig_of(slack: Slack, folder: Path, *groups: dict[str, Any]) -> Rig:
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    return Rig(SlackMessages(token={"file": token}, groups=list(groups), url=slack.url))


def notify(rig: Rig, approval: ApprovalItem, stage: str = "waiting", to: str = "ops") -> None:
    """Notify a channel."""
    [hook] = rig.host.hooks("on_approval")
    ctx = rig.ctx
    object.__setattr__(ctx, "_link", LinkBuilder("https://boyd.example.com").link)
    hook(approval=approval, stage=stage, recipient=to, ctx=ctx)


def test_an_approval_is_posted_with_its_reason_and_buttons(rig: Rig, slack: Slack) -> None:
    notify(rig, item(target="web-3"))

    message = slack.message()
    assert message["channel"] == CHANNEL
    assert message["text"] == "Approval needed: disk:clean on web-3 (test)"
    assert "why: / is 97 % full" in words(message["blocks"])
    assert 'params: {"path": "/"}' in words(message["blocks"])
    labels = [button["text"]["text"] for button in elements(message["blocks"])]
    assert labels == ["Approve…", "Deny…", "I have it…", "Open"]


def test_a_button_leads_to_the_incident_on_the_target(rig: Rig, slack: Slack) -> None:
    notify(rig, item(target="web-3", symptoms=["outage on web-3"]))

    button = elements(slack.message()["blocks"])[-1]
    assert button["text"]["text"] == "Incident"
    assert "/console/incident?target=web-3&id=" in button["url"]


def test_an_answer_edits_the_message_and_takes_its_buttons(rig: Rig, slack: Slack) -> None:
    notify(rig, item())
    notify(rig, item(status="approved", acted_by="ann"), "answered")

    assert slack.methods() == ["chat.postMessage", "chat.update"]
    assert slack.message()["text"] == "Approved by ann: disk:clean (test)"
    assert [b["action_id"] for b in elements(slack.message()["blocks"])] == ["boyd.open"]


def test_half_time_is_posted_in_the_thread_and_the_channel(rig: Rig, slack: Slack) -> None:
    notify(rig, item())
    notify(rig, item(), "half-time")

    [reply] = slack.replies()
    assert reply["reply_broadcast"] is True
    assert reply["text"] == "Still waiting for approval: disk:clean (test)"
    assert slack.methods() == ["chat.postMessage", "chat.update", "chat.postMessage"]


@pytest.mark.parametrize("stage", ["executed", "verified"])
def test_the_outcome_edits_the_message_and_is_posted_in_the_thread(
    rig: Rig, slack: Slack, stage: str
) -> None:
    result = ActionResult(action="disk:clean", success=True, duration=1)
    notify(rig, item())
    notify(rig, item(status="approved", acted_by="ann", result=result), stage)

    [reply] = slack.replies()
    assert reply["text"] == slack.message()["text"]
    assert reply["text"].endswith("disk:clean (test)")
    assert not reply["text"].startswith("Approval needed")
    assert words(reply["blocks"]) == f"{reply['text']}\nnothing verifies its effect"
    assert reply["reply_broadcast"] is False


def test_a_repeated_stage_edits_and_posts_nothing_twice(rig: Rig, slack: Slack) -> None:
    notify(rig, item())
    notify(rig, item())

    assert slack.methods() == ["chat.postMessage", "chat.update"]
    assert len(slack.messages) == 1


def test_texts_of_agents_neither_mention_nor_link(rig: Rig, slack: Slack) -> None:
    decision = Decision(action="a:b", rationale="<!channel> <https://evil|ok> *x*", confidence=1)
    notify(rig, item(decision=decision, target="<@U1>"))

    message = slack.message()
    assert "&lt;@U1&gt;" in message["text"]
    assert "why: <!channel> <https://evil|ok> *x*" in words(message["blocks"])


def test_long_texts_are_cut_to_the_limits(rig: Rig, slack: Slack) -> None:
    decision = Decision(action="a:b", rationale="x" * 5000, confidence=1)
    lines = [f"{number} {'y' * 490}" for number in range(20)]
    notify(rig, item(decision=decision, instead_of=lines, target="z" * 200))

    assert len(slack.message()["blocks"][0]["text"]["text"]) == 150
    assert len(slack.message()["blocks"][1]["text"]["text"]) == 3000


@pytest.mark.parametrize(
    ("group", "policy", "labels"),
    [
        ({"buttons": False}, {}, ["Open"]),
        ({}, {"links": "never"}, []),
    ],
)
def test_some_messages_have_no_buttons_to_answer(
    slack: Slack, tmp_path: Path, group: Any, policy: Any, labels: list[str]
) -> None:
    rig = rig_of(slack, tmp_path, {"name": "ops", "channel": CHANNEL, **group})
    notify(rig, item(required=ApprovalPolicy(**policy)))

    buttons = elements(slack.message()["blocks"])
    assert [button["text"]["text"] for button in buttons] == labels


def test_a_message_that_was_deleted_is_posted_again(rig: Rig, slack: Slack) -> None:
    notify(rig, item())
    slack.messages.clear()
    notify(rig, item(status="denied", acted_by="bob"), "answered")

    assert slack.message()["text"] == "Denied by bob: disk:clean (test)"


def test_a_rate_limit_holds_back_all_messages_of_the_plugin(rig: Rig, slack: Slack) -> None:
    slack.answers = [(429, {"Retry-After": "30"}, {"ok": False, "error": "ratelimited"})]
    with pytest.raises(SlackError, match=r"wants no chat\.postMessage for 30 s"):
        notify(rig, item())

    [recipient] = rig.plugin.notification_recipients(item(), "waiting", rig.ctx)
    assert recipient.not_before == rig.clock() + timedelta(seconds=30)
    notify(rig, item())
    assert slack.message()["channel"] == CHANNEL


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {}, {"ok": False, "error": "not_in_channel"}), "refused .*: not_in_channel"),
        ((503, {}, {}), "answered chat.postMessage with 503"),
        ((302, {"Location": "http://127.0.0.1:1/"}, {}), "with 302"),
    ],
)
def test_a_failed_post_is_an_error_without_the_token(
    rig: Rig, slack: Slack, answer: Any, reason: str
) -> None:
    slack.answers = [answer]
    with pytest.raises(SlackError, match=reason) as error:
        notify(rig, item())

    assert TOKEN not in str(error.value)
    assert slack.messages == {}


def test_while_one_attempt_posts_no_other_does(rig: Rig, slack: Slack) -> None:
    rig.state.set("message:4711:ops", {"channel": CHANNEL, "ts": ""}, ttl=60)
    with pytest.raises(SlackError, match="another attempt is posting"):
        notify(rig, item(status="denied"), "answered")

    assert slack.messages == {}


def test_channels_are_chosen_as_the_notifier_chooses_groups(slack: Slack, tmp_path: Path) -> None:
    rig = rig_of(
        slack,
        tmp_path,
        {"name": "ops", "channel": CHANNEL, "min_risk": "medium"},
        {"name": "dba", "channel": "C0000000DBA", "default": False, "actions": ["postgres:*"]},
    )

    def groups(**values: Any) -> list[str]:
        recipients = rig.plugin.notification_recipients(item(**values), "waiting", rig.ctx)
        return [recipient.group for recipient in recipients]

    assert groups() == ["ops"]
    assert groups(risk="low") == []
    assert groups(required=ApprovalPolicy(groups=["dba"]), action_id="postgres:vacuum") == ["dba"]
    assert groups(required=ApprovalPolicy(groups=["dba"])) == []
