"""Answers from Slack: signed, recent, new, of this workspace, with the rights of the principal."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from api_kit import Site
from boyd.intake.sender_checks import check_sender
from boyd.models import ApiKey, ApprovalItem, utc_now
from boyd.plugins.notifier.message import approval_message
from boyd.store.login_sessions import digest
from boyd_slack import blocks
from boyd_slack.interactions import _SIGNED
from boyd_slack.slack_accounts import SlackAccount, SlackAccounts
from console_kit import Browser
from slack_kit import CHANNEL, PATH, SECRET, WORKSPACE, Slack, signature_headers, words
from virtual_time import VirtualTime, imaginary_server

ALICE = f"{WORKSPACE}/U0ALICE"


def post_message(site: Site, slack: Slack, id: str) -> ApprovalItem:
    """Show an approval in the channel, as the plugin does."""
    item = site.lab.store.approvals.get(id)
    assert item is not None
    message = approval_message(item, "waiting", "", utc_now())
    content = blocks.approval_blocks(message, item, buttons=True)
    slack.messages["1.1"] = {"channel": CHANNEL, "text": message.title, "blocks": content}
    return item


def send(site: Site, body: bytes, headers: dict[str, str] | None = None, **more: Any) -> Any:
    """Send an interaction as Slack does."""
    sent = {**(headers or signature_headers(body)), **more}
    return site.app.test_client().post(PATH, data=body, headers=sent)


def link(site: Site, key: dict[str, str], user: str = "U0ALICE") -> SlackAccount:
    """Link an account to the principal of a key."""
    record = site.store.api_keys.admit(key["Authorization"].removeprefix("Bearer "), 100, 100).key
    assert record is not None
    accounts = SlackAccounts(site.store)
    account = SlackAccount(workspace=WORKSPACE, user=user, name=user.lower())
    token = accounts.offer(account)
    code = accounts.confirm(token, record)
    linked = accounts.complete(digest(token), account, code or "")
    assert linked is not None
    return linked


def replacing_text(answer: Any) -> str:
    """The text of the dialog that replaces the submitted one."""
    assert answer.status_code == 200
    assert answer.json["response_action"] == "update"
    return words(answer.json["view"]["blocks"])


@pytest.fixture
def alice(site: Site) -> dict[str, str]:
    """The key of a person whose account is linked."""
    key = site.key("read", "approvals", principal="alice", person=True)
    link(site, key)
    return key


# The request


def test_the_example_of_the_documentation_has_a_right_signature() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": (
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
        ),
    }
    assert check_sender(_SIGNED, [SECRET], headers, lambda: body, 1531420618 + 299, {})


def bad_request(name: str, body: bytes) -> tuple[bytes, dict[str, str]]:
    """A request that something is wrong with."""
    now, deep = time.time(), b"payload=" + b"[" * 90_000
    requests = {
        "forged": (body, signature_headers(body, "another-secret-of-somebody")),
        "altered": (body + b"&x=1", signature_headers(body)),
        "late": (body, signature_headers(body, at=now - 301)),
        "early": (body, signature_headers(body, at=now + 302)),
        "unsigned": (body, {"Content-Type": signature_headers(body)["Content-Type"]}),
        "another type": (body, {**signature_headers(body), "Content-Type": "application/json"}),
        "no payload": (b"a=1", signature_headers(b"a=1")),
        "two payloads": (body + b"&" + body, signature_headers(body + b"&" + body)),
        "no JSON": (b"payload=x", signature_headers(b"payload=x")),
        "deep JSON": (deep, signature_headers(deep)),
    }
    return requests[name]


@pytest.mark.parametrize(
    "name",
    [
        *("forged", "altered", "late", "early", "unsigned", "another type", "no payload"),
        *("two payloads", "no JSON", "deep JSON"),
    ],
)
def test_a_request_that_is_not_of_slack_changes_nothing(
    name: str,
    site: Site,
    slack: Slack,
    alice: Any,
    done: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    id = site.waiting()
    post_message(site, slack, id)
    assert send(site, slack.click("boyd.approve")).status_code == 200
    before = site.get(f"/approvals/{id}").json
    body, headers = bad_request(name, slack.submission())

    answer = send(site, body, headers)
    assert (answer.status_code, answer.data) == (401, b"")
    assert site.get(f"/approvals/{id}").json == before
    assert done == []
    assert "intake slack-interactions refused, unauthenticated: 127.0.0.1: " in caplog.text
    assert SECRET not in caplog.text


@imaginary_server()
def test_the_clock_of_redis_tells_whether_a_request_is_recent(
    monkeypatch: pytest.MonkeyPatch, site: Site, slack: Slack, alice: Any
) -> None:
    redis = VirtualTime(monkeypatch)
    post_message(site, slack, site.waiting())
    body = slack.click("boyd.approve")

    sent = [send(site, body, signature_headers(body, at=at)) for at in (None, redis.now / 1000)]
    assert [answer.status_code for answer in sent] == [401, 200]


@pytest.mark.parametrize(
    "changes",
    [
        {"team": {"id": "T0OTHER"}},
        {"api_app_id": "A0OTHER"},
        {"user": {"id": "U0ALICE", "name": "alice", "team_id": "T0OTHER"}},
        {"team": None},
        {"user": {"id": "'; FLUSHALL", "name": "alice"}},
        {"type": "message_action"},
    ],
)
def test_an_interaction_of_another_workspace_or_app_changes_nothing(
    changes: dict[str, Any], site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    post_message(site, slack, site.waiting())
    assert send(site, slack.click("boyd.approve")).status_code == 200

    assert send(site, slack.submission(changes=changes)).status_code == 401
    assert send(site, slack.click("boyd.deny", **changes)).status_code == 401
    assert done == []
    assert slack.methods() == ["views.open"]


def test_a_replayed_interaction_changes_nothing(
    site: Site, slack: Slack, alice: Any, done: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    post_message(site, slack, site.waiting("first"))
    send(site, slack.click("boyd.approve"))
    body = slack.submission()
    headers = signature_headers(body)
    assert "Approved" in replacing_text(send(site, body, headers))

    assert send(site, body, headers).status_code == 401
    assert done == ["publish first"]
    assert f"it was sent before, by {ALICE}" in caplog.text


def test_a_body_that_is_too_large_is_refused(site: Site) -> None:
    body = b"payload=" + b"x" * 300_000
    assert send(site, body).status_code == 413


def test_without_settings_nobody_answers(site: Site, slack: Slack) -> None:
    site.services.settings = site.services.settings.model_copy(update={"slack": None})
    assert send(site, b"payload={}").status_code == 401


def test_while_one_secret_replaces_another_both_are_right(site: Site, slack: Slack) -> None:
    group = site.services.settings.slack  # type: ignore[attr-defined]
    both = group.model_copy(update={"signing_secret": SecretStr(f"{SECRET} the-next-one-of-them")})
    site.services.settings = site.services.settings.model_copy(update={"slack": both})
    post_message(site, slack, site.waiting())
    for secret in (SECRET, "the-next-one-of-them"):
        body = slack.click("boyd.approve")
        assert send(site, body, signature_headers(body, secret)).status_code == 200


# Answers


def test_a_button_opens_a_confirmation_and_its_submission_answers(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    id = site.waiting("hello")
    post_message(site, slack, id)
    answer = send(site, slack.click("boyd.approve"))
    assert (answer.status_code, answer.data) == (200, b"")
    assert done == []
    text = words(slack.view()["blocks"])
    assert "Approval needed: " in text
    assert "A worker then runs it, with exactly these parameters." in text
    assert 'params: {"text": "hello"}' in text
    assert "You answer as alice." in text

    assert "Approved." in replacing_text(send(site, slack.submission(note="ok")))
    assert done == ["publish hello"]
    item = site.get(f"/approvals/{id}").json
    assert (item["actedBy"], item["note"], item["status"]) == ("alice", "ok", "approved")
    site.lab.store.audit_trail.seal()
    entry = next(
        entry
        for entry in site.lab.store.audit_trail.page().entries
        if entry.kind == "approval.approved"
    )
    assert (entry.who, entry.address) == ("alice", f"slack:{ALICE}")


def test_an_answer_takes_six_round_trips(site: Site, slack: Slack, alice: Any) -> None:
    def trips(text: str) -> int:
        post_message(site, slack, site.waiting(text))
        send(site, slack.click("boyd.deny"))
        return site.round_trips(lambda: send(site, slack.submission()))

    # It is not replayed; the account; its key; the approval; again, to answer; the answer.
    assert min(map(trips, "abc")) == 6


def test_a_confirmation_shows_the_parameters_whole(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    text = "x" * 7000 + "y"
    post_message(site, slack, site.waiting(text))
    send(site, slack.click("boyd.approve"))
    text_shown = words(slack.view()["blocks"]).replace("\n", "")
    assert text in text_shown

    post_message(site, slack, site.waiting("x" * 40_000))
    send(site, slack.click("boyd.approve"))
    assert "too long for Slack" in words(slack.view()["blocks"])


def test_parameters_too_long_for_slack_can_be_denied_there(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    id = site.waiting("x" * 400_000)
    post_message(site, slack, id)
    send(site, slack.click("boyd.deny"))
    assert len(slack.view()["blocks"]) <= 100, "Slack refuses larger dialogs"
    assert "Only the beginning of the parameters:" in words(slack.view()["blocks"])
    send(site, slack.submission())

    item = site.lab.store.approvals.get(id)
    assert item is not None
    assert item.status == "denied"
    assert done == []


def test_a_denial_executes_nothing(site: Site, slack: Slack, alice: Any, done: list[str]) -> None:
    id = site.waiting()
    post_message(site, slack, id)
    send(site, slack.click("boyd.deny"))
    assert "Nothing is executed." in words(slack.view()["blocks"])

    assert replacing_text(send(site, slack.submission())) == "Denied. Nothing is executed."
    assert site.get(f"/approvals/{id}").json["status"] == "denied"
    assert done == []


def test_an_acknowledgement_leaves_the_approval_to_be_answered(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    # Whoever takes care of an approval need not be allowed to answer it here.
    id = site.waiting("hello", risk="high", require_note=True)
    post_message(site, slack, id)
    send(site, slack.click("boyd.acknowledge"))
    text = words(slack.view()["blocks"])
    assert "Nobody else is asked meanwhile. It still needs an answer." in text
    assert "Parameters:" not in text

    text = replacing_text(send(site, slack.submission(note="looking")))
    assert text == "You have it: nobody else is asked meanwhile. It still needs an answer."
    item = site.get(f"/approvals/{id}").json
    assert item["status"] == "pending"
    assert (item["acknowledgement"]["by"], item["acknowledgement"]["note"]) == ("alice", "looking")
    assert done == []


def test_an_approval_answered_meanwhile_cannot_be_acknowledged(
    site: Site, slack: Slack, alice: Any
) -> None:
    id = site.waiting()
    post_message(site, slack, id)
    send(site, slack.click("boyd.acknowledge"))
    site.post(f"/approvals/{id}/deny")

    text = replacing_text(send(site, slack.submission()))
    assert text == "The approval is denied by alice."
    assert "acknowledgement" not in site.get(f"/approvals/{id}").json


def test_a_dialog_that_is_submitted_twice_answers_once(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))
    assert "Approved." in replacing_text(send(site, slack.submission()))
    assert "The approval is approved by alice." in replacing_text(send(site, slack.submission()))
    assert done == ["publish news"]


def test_while_frozen_the_confirmation_says_that_nothing_can_be_approved(
    site: Site, slack: Slack, alice: Any
) -> None:
    post_message(site, slack, site.waiting())
    site.post("/freeze", {"reason": "3 am"})
    send(site, slack.click("boyd.approve"))
    assert "Actions are frozen: it cannot be approved until that is lifted." in words(
        slack.view()["blocks"]
    )


def test_an_approval_that_has_changed_is_not_answered(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    id = site.waiting(min_approvals=2)
    post_message(site, slack, id)
    send(site, slack.click("boyd.approve"))
    site.post(f"/approvals/{id}/approve", headers=site.key("approvals", principal="bob"))

    assert "the approval has changed" in replacing_text(send(site, slack.submission()))
    assert done == []


def test_a_quorum_needs_two_principals(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    link(site, alice, "U0SECOND")
    link(site, site.key("approvals", principal="bob", person=True), "U0BOB")
    post_message(site, slack, site.waiting(min_approvals=2))
    send(site, slack.click("boyd.approve"))
    assert "It needs 1 more after yours." in words(slack.view()["blocks"])
    assert "It needs 1 more." in replacing_text(send(site, slack.submission()))

    send(site, slack.click("boyd.approve", "U0SECOND"))
    assert "You have already approved it" in words(slack.view()["blocks"])
    assert done == []
    send(site, slack.click("boyd.approve", "U0BOB"))
    assert "Approved." in replacing_text(send(site, slack.submission("U0BOB")))
    assert done == ["publish news"]


def test_a_note_that_the_policy_requires_is_asked_for(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    post_message(site, slack, site.waiting(require_note=True))
    send(site, slack.click("boyd.approve"))
    [field] = [block for block in slack.view()["blocks"] if block["type"] == "input"]
    assert "optional" not in field

    answer = send(site, slack.submission(note="  "))
    assert answer.json["response_action"] == "errors"
    assert list(answer.json["errors"]) == [field["block_id"]]
    assert "Approved." in replacing_text(send(site, slack.submission(note="because")))
    assert done == ["publish news"]


@pytest.mark.parametrize(
    ("key", "policy", "reason"),
    [
        ({"scopes": ["read"]}, {}, "alice lacks the scope 'approvals'."),
        ({"agents": ["other"]}, {}, "not yours to see"),
        ({}, {"person": True}, "It requires a person."),
        ({}, {"groups": ["dba"]}, "members of dba"),
        ({}, {"links": "never"}, "allows no answers from messages"),
        ({}, {"risk": "high"}, "approve it in the console"),
        ({}, {"risk": None}, "approve it in the console"),
    ],
)
def test_slack_refuses_approvals_that_the_policy_or_the_scope_refuses(
    site: Site,
    slack: Slack,
    done: list[str],
    key: dict[str, Any],
    policy: dict[str, Any],
    reason: str,
) -> None:
    scopes = key.get("scopes", ["approvals"])
    link(site, site.key(*scopes, agents=key.get("agents", [])))
    item = post_message(site, slack, site.waiting(**policy))
    send(site, slack.click("boyd.approve"))
    assert reason in words(slack.view()["blocks"])
    assert "submit" not in slack.view()

    message = approval_message(item, "waiting", "", utc_now())
    forged = blocks.confirmation(message, item, "approve", "alice", is_frozen=False)
    assert reason in replacing_text(send(site, slack.submission(view={**forged, "id": "V0"})))
    assert done == []


def test_the_rights_are_those_of_the_submission_not_of_the_click(
    site: Site, slack: Slack, alice: Any, done: list[str]
) -> None:
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))
    [key] = [key for key in site.store.api_keys.all() if key.scopes == ["read", "approvals"]]
    site.open("DELETE", f"/keys/{key.id}")

    assert "no longer linked" in replacing_text(send(site, slack.submission()))
    assert done == []


def test_a_button_of_an_answered_approval_shows_the_answer(
    site: Site, slack: Slack, alice: Any
) -> None:
    id = site.waiting()
    post_message(site, slack, id)
    site.post(f"/approvals/{id}/deny")
    for action in blocks.BUTTONS:
        send(site, slack.click(action))
        assert "The approval is denied by alice." in words(slack.view()["blocks"])


def test_a_dialog_that_slack_does_not_open_is_logged(
    site: Site, slack: Slack, alice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    post_message(site, slack, site.waiting())
    slack.answers = [(200, {}, {"ok": False, "error": "expired_trigger_id"})]
    assert send(site, slack.click("boyd.approve")).status_code == 200
    assert "refused views.open: expired_trigger_id" in caplog.text


@pytest.mark.parametrize("data", ["", "{}", "[]", json.dumps({"agent": "desk", "id": "../x"})])
def test_a_dialog_about_nothing_answers_nothing(
    data: str, site: Site, slack: Slack, alice: Any
) -> None:
    view = {**blocks.dialog("x", [], callback=blocks.ANSWER, submit="x", data=data), "id": "V0"}
    answer = send(site, slack.submission(view=view))
    assert answer.status_code == 200
    assert answer.json["response_action"] == "update"


# Whose account it is


def code_of(browser: Browser, address: str) -> str:
    """Link at an address, and read the code."""
    page = browser.get(address.removeprefix("http://localhost"))
    answer = browser.send(page.form(page.path))
    match = re.search(r"[A-Z2-9]{4}-[A-Z2-9]{4}", answer.text)
    assert match is not None, answer.text
    return match[0]


def address_in(slack: Slack) -> str:
    """The address in the dialog that was opened last."""
    rows = [block["elements"] for block in slack.view()["blocks"] if block["type"] == "actions"]
    address: str = rows[0][0]["url"]
    return address


def test_an_account_is_linked_once_with_a_login_and_its_code(
    site: Site, slack: Slack, done: list[str]
) -> None:
    browser = Browser(site, site.key("read", "approvals", principal="ann", person=True))
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))
    page = browser.get(address_in(slack).removeprefix("http://localhost"))
    assert ALICE in page.text
    assert "Link this Slack account to you?" in page.text
    assert "ann" in page.text

    code = code_of(browser, address_in(slack))
    assert "You are ann in Boyd" in replacing_text(send(site, slack.submission(code=code.lower())))
    send(site, slack.click("boyd.approve"))
    assert "Approved." in replacing_text(send(site, slack.submission()))
    assert done == ["publish news"]
    site.store.audit_trail.seal()
    [entry] = [
        entry for entry in site.store.audit_trail.page().entries if entry.kind == "slack.linked"
    ]
    assert (entry.who, entry.what["account"]) == ("ann", ALICE)


def test_a_code_counts_only_for_the_account_that_asked_and_is_tried_once(
    site: Site, slack: Slack
) -> None:
    browser = Browser(site, site.key("approvals", principal="ann"))
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))
    view = slack.view()
    code = code_of(browser, address_in(slack))

    other = slack.submission("U0MALLORY", view=view, code=code)
    assert "not the code" in replacing_text(send(site, other))
    assert "not the code" in replacing_text(send(site, slack.submission(view=view, code=code)))
    assert SlackAccounts(site.store).all() == []


def test_a_wrong_code_uses_it_up(site: Site, slack: Slack) -> None:
    browser = Browser(site, site.key("approvals", principal="ann"))
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))
    code = code_of(browser, address_in(slack))
    assert "not the code" in replacing_text(send(site, slack.submission(code="ABCDEFGH")))
    assert "not the code" in replacing_text(send(site, slack.submission(code=code)))


def test_a_link_is_used_once_and_looking_changes_nothing(site: Site, slack: Slack) -> None:
    browser = Browser(site, site.key("approvals", principal="ann"))
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))
    path = address_in(slack).removeprefix("http://localhost")
    for _ in range(20):
        assert browser.get(path).status == 200
    form = browser.get(path).form(path)
    assert browser.send(form).status == 200
    assert browser.send(form).status == 404
    assert browser.get(path).status == 404


def test_the_page_needs_a_login_with_the_scope(site: Site, slack: Slack) -> None:
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))
    path = address_in(slack).removeprefix("http://localhost")

    assert "/console/login" in Browser(site).get(path).path
    assert Browser(site, site.key("read", principal="eve")).get(path).status == 403


def identity(site: Site, groups: list[str]) -> ApiKey:
    """The identity of a person of an identity provider."""
    oidc = site.services.settings.oidc.model_copy(update={"groups": {"ops": ("approvals",)}})
    site.services.settings = site.services.settings.model_copy(update={"oidc": oidc})
    return ApiKey(
        id="oidc-1",
        name="Ann",
        principal="https://id.example.com#ann",
        person=True,
        scopes=["admin"],
        groups=groups,
        hash="",
        created_at=utc_now(),
        created_by="https://id.example.com",
    )


def test_an_identity_has_the_scopes_that_its_groups_have_now(
    site: Site, slack: Slack, done: list[str]
) -> None:
    accounts = SlackAccounts(site.store)
    account = SlackAccount(workspace=WORKSPACE, user="U0ALICE")
    token = accounts.offer(account)
    code = accounts.confirm(token, identity(site, ["ops"]))
    linked = accounts.complete(digest(token), account, code or "")
    assert linked is not None
    current = accounts.identity(linked, site.services.settings)
    assert current is not None
    assert current.scopes == ["approvals"]

    post_message(site, slack, site.waiting(person=True, groups=["ops"]))
    send(site, slack.click("boyd.approve"))
    assert "Approved." in replacing_text(send(site, slack.submission()))
    assert done == ["publish news"]


def test_an_identity_whose_login_is_too_old_has_to_renew_it(site: Site, slack: Slack) -> None:
    accounts = SlackAccounts(site.store)
    account = SlackAccount(workspace=WORKSPACE, user="U0ALICE")
    accounts.renew(account, identity(site, ["ops"]))
    group = site.services.settings.slack.model_copy(update={"login_age": 1e-9})  # type: ignore[attr-defined]
    site.services.settings = site.services.settings.model_copy(update={"slack": group})
    post_message(site, slack, site.waiting())
    send(site, slack.click("boyd.approve"))

    assert "renew it on the page" in words(slack.view()["blocks"])
    assert address_in(slack) == "http://localhost/console/slack"


def test_a_person_whom_the_provider_signs_out_is_unlinked(
    site: Site, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts, ann = SlackAccounts(site.store), identity(site, ["ops"])
    accounts.renew(SlackAccount(workspace=WORKSPACE, user="U0ALICE"), ann)
    others = link(site, site.key("approvals", principal="bob"), "U0BOB")
    provider = SimpleNamespace(read_logout=lambda token: ann.principal)
    monkeypatch.setattr(site.services, "provider", provider)
    form = {"logout_token": "signed"}
    answer = site.app.test_client().post("/console/oidc/backchannel-logout", data=form)

    assert answer.status_code == 200
    assert [account.id for account in accounts.all()] == [others.id]
