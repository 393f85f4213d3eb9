"""The page behind a signed link: looking changes nothing, and one person answers once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from api_kit import Site
from boyd.models import Actor
from boyd.models.actor import GroupRights
from boyd.security.links import LinkSigner
from console_kit import Browser, Form

SECRET = "s" * 32
JANE = Actor(principal="mail:jane@example.com", groups=["ops"])


@pytest.fixture
def signer(desk: Site) -> LinkSigner:
    """Signs the links of the office."""
    services = desk.services
    services.settings = services.settings.model_copy(update={"approval_secret": SecretStr(SECRET)})
    return LinkSigner(SECRET)


def link_to(desk: Site, signer: LinkSigner, id: str) -> str:
    """A signed link for Jane."""
    item = desk.lab.store.approvals.get(id)
    assert item is not None
    return f"/console/answer/{signer.sign(item, JANE, datetime.now(UTC))}"


def waiting(desk: Site, **policy: Any) -> str:
    """An approval that a signed link may answer."""
    return desk.waiting(links="bearer", **policy)


def test_the_addressee_answers_without_a_login(
    desk: Site, signer: LinkSigner, done: list[str]
) -> None:
    id = waiting(desk)
    browser, link = Browser(desk), link_to(desk, signer, id)
    response = browser.get(link)
    assert "You are answering as mail:jane@example.com" in response.text

    after = browser.send(response.form(link), verb="approve", note="ok")
    assert "approved by mail:jane@example.com" in after.text
    assert done == ["publish news"]


def test_the_page_says_that_nobody_watches_what_it_asks(desk: Site, signer: LinkSigner) -> None:
    link = link_to(desk, signer, waiting(desk))
    assert "not watching" not in Browser(desk).get(link).text
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    assert "desk : not watching, no worker" in Browser(desk).get(link).text


def test_an_answer_takes_two_round_trips(desk: Site, signer: LinkSigner) -> None:
    def trips(text: str) -> int:
        browser, link = Browser(desk), link_to(desk, signer, desk.waiting(text, links="bearer"))
        form = browser.get(link).form(link)
        return desk.round_trips(lambda: browser.send(form, follow=False, verb="deny"))

    # The approval; the answer. The first sends the script, too.
    assert min(map(trips, "abc")) == 2


def test_looking_a_thousand_times_changes_nothing(
    desk: Site, signer: LinkSigner, done: list[str]
) -> None:
    id = waiting(desk)
    link = link_to(desk, signer, id)
    before = desk.get(f"/approvals/{id}").json
    client = desk.app.test_client()
    for _ in range(50):
        assert client.get(link).status_code == 200
        assert client.head(link).status_code == 200
        assert client.post(link, data={"verb": "approve"}).status_code == 403

    assert desk.get(f"/approvals/{id}").json == before
    assert done == []


def test_a_link_answers_once(desk: Site, signer: LinkSigner, done: list[str]) -> None:
    link = link_to(desk, signer, waiting(desk))
    first, second = Browser(desk), Browser(desk)
    form = second.get(link).form(link)
    first.send(first.get(link).form(link), verb="deny")

    late = second.send(form, verb="approve", note="mine")
    assert late.status == 409
    assert "denied by mail:jane@example.com" in late.text
    assert "mine" in late.text
    assert done == []
    assert "This link can't be used again." in second.get(link).text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"risk": "high"}, "its risk is high, critical or unknown"),
        ({"code": '"desk 1"'}, "its code has changed since it was proposed"),
    ],
    ids=["grave", "other code"],
)
def test_no_link_answers_an_approval_that_needs_a_login_by_now(
    changes: dict[str, str], reason: str, desk: Site, signer: LinkSigner, done: list[str]
) -> None:
    id = waiting(desk)
    browser, link = Browser(desk), link_to(desk, signer, id)
    form = browser.get(link).form(link)
    desk.store.client.hset(desk.lab.store.approvals._keys.approval(id), mapping=changes)

    late = browser.send(form, verb="approve", note="mine")
    assert late.status == 409
    assert "Your answer does not count: the link has expired, or answering it needs" in late.text
    assert "mine" in late.text
    page = Browser(desk).get(link)
    assert f"Answering it needs a login, because {reason}." in page.text
    assert "<form" not in page.source
    assert done == []


@pytest.mark.parametrize("token", ["x", "e30.x", "a.b.c", "%00", "a" * 5000])
def test_a_forged_link_opens_nothing(desk: Site, signer: LinkSigner, token: str) -> None:
    page = Browser(desk).get(f"/console/answer/{token}")

    assert page.status == 404
    assert "not one of this deployment" in page.text


def test_without_a_secret_no_link_is_valid(desk: Site) -> None:
    id = waiting(desk)
    link = link_to(desk, LinkSigner(SECRET), id)

    assert Browser(desk).get(link).status == 404


def test_the_addressee_takes_care_of_it_and_can_still_answer(
    desk: Site, signer: LinkSigner, done: list[str]
) -> None:
    id = waiting(desk)
    browser, link = Browser(desk), link_to(desk, signer, id)
    page = browser.send(browser.get(link).form(link), verb="acknowledge", minutes="60")
    assert "mail:jane@example.com has it" in page.text
    assert desk.get(f"/approvals/{id}").json["acknowledgement"]["by"] == "mail:jane@example.com"

    after = browser.send(browser.get(link).form(link), verb="approve")
    assert "Succeeded" in after.text or "queued" in after.text
    assert "This link can't be used again." in browser.get(link).text
    assert done == ["publish news"]


def test_while_the_agent_is_frozen_a_link_denies_only_and_is_not_used_up(
    desk: Site, signer: LinkSigner, done: list[str]
) -> None:
    link, browser = link_to(desk, signer, waiting(desk)), Browser(desk)
    desk.store.freezes.freeze("3 am", "desk")
    page = browser.get(link)
    assert "Actions are frozen: 3 am. It cannot be approved until that is lifted" in page.text
    refused = browser.send(page.form(link), verb="approve")
    assert "It stays pending" in refused.text
    desk.store.freezes.lift("desk")
    browser.send(browser.get(link).form(link), verb="approve")

    assert done == ["publish news"]


def test_the_rights_of_its_groups_limit_the_addressee_of_a_link(
    desk: Site, signer: LinkSigner, done: list[str]
) -> None:
    desk.services.rights = GroupRights({"ops": ["approve desk:publish on other"]})
    id, browser = waiting(desk), Browser(desk)
    link = link_to(desk, signer, id)
    page = browser.get(link)

    assert "mail:jane@example.com in the group ops lacks the right" in page.text
    assert 'value="approve"' not in page.source
    other = link_to(desk, signer, waiting(desk, text="other"))
    answered = browser.send(Form(link, browser.get(other).form(other).fields), verb="deny")
    assert answered.status == 409
    assert done == []
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"
