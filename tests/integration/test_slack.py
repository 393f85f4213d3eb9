"""Answers from Slack on a real Redis: many at once have one outcome, and the message shows it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from flask import Flask

from api_kit import Desk
from boyd import Agent
from boyd.models import Actor, ApprovalItem, ApprovalPolicy, Decision, Proposal
from boyd.plugins.notifier.message import approval_message
from boyd.runtime.approvals import enqueue_approval
from boyd.settings.process_settings import load_settings
from boyd.store import Store
from boyd.testing import Lab
from boyd.testing.lab import ManualDispatcher
from boyd_api.app import create_app
from boyd_api.http.services import Services
from boyd_slack import blocks
from boyd_slack.plugin import SlackMessages
from boyd_slack.slack_accounts import SlackAccount, SlackAccounts
from harness import patient_client
from kit import choice, chooses, overdue, plugin
from slack_kit import (
    CHANNEL,
    PATH,
    SETTINGS,
    TOKEN,
    WORKSPACE,
    Slack,
    elements,
    signature_headers,
    slack_server,
    words,
)

pytestmark = [pytest.mark.real]

PEOPLE = 50


@pytest.fixture
def slack() -> Iterator[Slack]:
    """A workspace."""
    with slack_server() as server:
        yield server


@contextmanager
def api(redis_url: str, slack: Slack, dispatcher: Any) -> Iterator[Flask]:
    """An API to which the workspace sends interactions."""
    groups = {
        "redis_url": redis_url,
        "api": {"url": "https://boyd.example.com"},
        "slack": {**SETTINGS, "url": slack.url},
    }
    services = Services(
        load_settings(groups),
        open_store=lambda _: Store(patient_client(redis_url)),
        dispatcher=dispatcher,
    )
    yield create_app(services.settings, services)
    services.stop()


def person(store: Store, number: int) -> str:
    """The Slack account of a new person, linked with a key."""
    maker = Actor(principal="maker")
    key, _ = store.api_keys.create("key", f"person{number}", ["approvals"], by=maker)
    account = SlackAccount(workspace=WORKSPACE, user=f"U0PERSON{number}")
    SlackAccounts(store).renew(account, key)
    return account.user


def send(app: Flask, body: bytes, headers: dict[str, str] | None = None) -> Any:
    """Send an interaction as Slack does."""
    signed = headers or signature_headers(body)
    return app.test_client().post(PATH, data=body, headers=signed)


def waiting(lab: Lab, seed: int) -> ApprovalItem:
    """An approval that waits."""
    proposal = Proposal(
        decision=Decision(
            action="desk:publish", params={"text": "x"}, rationale="a race", confidence=1.0
        ),
        action_id="desk:publish",
        params={"text": f"{seed}"},
        loop_iteration=0,
        risk="low",
        required=ApprovalPolicy(),
    )
    return enqueue_approval(lab.store, proposal)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_fifty_people_who_submit_at_once_have_one_outcome(
    redis_url: str, slack: Slack, seed: int
) -> None:
    lab = Lab(Agent("desk", plugins=[Desk()], mode="manual"), client=patient_client(redis_url))
    store, item = lab.whole, waiting(lab, seed)
    people = [person(store, number) for number in range(PEOPLE)]
    message, dice = approval_message(item, "waiting", "", store.clock.now()), random.Random(seed)
    verbs: list[blocks.Verb] = [dice.choice(["approve", "deny"]) for _ in people]
    bodies = []
    for number, (user, verb) in enumerate(zip(people, verbs, strict=True)):
        view = blocks.confirmation(message, item, verb, user, is_frozen=False)
        bodies.append(slack.submission(user, view={**view, "id": f"V{number}"}))
    ready = Barrier(2 * PEOPLE)

    with api(redis_url, slack, ManualDispatcher()) as app, ThreadPoolExecutor(2 * PEOPLE) as pool:

        def submit(request: tuple[bytes, dict[str, str]]) -> str:
            ready.wait()
            answer = send(app, *request)
            if answer.status_code == 401:
                return "replayed"
            assert answer.status_code == 200, answer.text
            return words(json.loads(answer.text)["view"]["blocks"])

        # Each request comes twice, as if somebody had recorded and replayed it.
        requests = [(body, signature_headers(body)) for body in bodies]
        texts = list(pool.map(submit, [*requests, *requests]))

    current = lab.store.approvals.get(item.id)
    assert current is not None
    assert texts.count("replayed") == PEOPLE
    counted = [text for text in texts if text.startswith(("Approved.", "Denied."))]
    assert len(counted) == 1
    number = people.index(next(u for u in people if current.acted_by == f"person{u[8:]}"))
    assert current.status == {"approve": "approved", "deny": "denied"}[verbs[number]]
    late = {text for text in texts if text not in (*counted, "replayed")}
    assert all(f"is {current.status} by {current.acted_by}" in text for text in late)
    lab.store.audit_trail.seal()
    kinds = [entry.kind for entry in lab.store.audit_trail.page(200).entries]
    assert sum(kind in ("approval.approved", "approval.denied") for kind in kinds) == 1


def test_a_message_goes_from_its_buttons_to_the_outcome(
    redis_url: str, slack: Slack, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    messages = SlackMessages(
        token={"file": tmp_path / "token"},
        groups=[{"name": "ops", "channel": CHANNEL}],
        url=slack.url,
    )
    desk = Desk()
    decides = plugin(chooses(choice("desk:publish", params={"text": "1"})))
    agent = Agent("desk", plugins=[decides, desk, messages])
    lab = Lab(agent, client=patient_client(redis_url))
    lab.run()
    [item] = lab.store.approvals.page(1).pending
    overdue(lab, f"notice:{item.id}")
    assert slack.message()["text"].startswith("Approval needed: ")
    ids = [button["action_id"] for button in elements(slack.message()["blocks"])]
    assert {"boyd.approve", "boyd.deny"} <= set(ids)

    user = person(lab.whole, 1)
    with api(redis_url, slack, lab.dispatcher) as app:
        assert send(app, slack.click("boyd.approve", user)).status_code == 200
        assert "Approved." in send(app, slack.submission(user)).text
    overdue(lab, f"notice:{item.id}")

    assert desk.done == ["publish 1"]
    assert slack.message()["text"].startswith("Succeeded: ")
    assert not {"boyd.approve", "boyd.deny"} & {
        button["action_id"] for button in elements(slack.message()["blocks"])
    }
    [reply] = slack.replies()
    assert reply["text"] == slack.message()["text"]
