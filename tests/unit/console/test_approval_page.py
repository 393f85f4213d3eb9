"""The page of an approval: what it shows, and what becomes of an answer."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest

from api_kit import Site
from boyd.export.archive.access import ArchiveAccess
from boyd.models import (
    APPROVAL_REQUIRED,
    ActionResult,
    Compensation,
    EffectVerification,
    Review,
    describe_outcome,
    utc_now,
)
from boyd.store import AgentStore
from boyd_api.console import session as sessions_of_browsers
from console_kit import Browser
from past_kit import archive_past, archiving, iteration, problem


def page_of(id: str) -> str:
    """The address of an approval's page."""
    return f"/console/agents/desk/approvals/{id}"


def test_the_page_shows_everything_that_is_approved(alice: Browser, desk: Site) -> None:
    text = "long " * 2000
    id = desk.waiting(text)
    response = alice.get(page_of(id))

    assert response.title == "desk:publish: pending · Boyd"
    assert "desk wants to run desk:publish" in response.text
    assert text.strip() in response.text, "params are never cut"
    assert desk.get(f"/approvals/{id}").json["fingerprint"] in response.text
    assert "no, the action has no rollback" in response.text
    assert "reversibility unknown" in response.text
    assert "Policy: one approval, by anyone, not by the requester." in response.text


def test_the_page_begins_with_the_reason_and_the_target(alice: Browser, desk: Site) -> None:
    id = desk.waiting()
    desk.lab.client.hset(f"boyd:{{desk}}:approval:{id}", "target", "web-3")
    page = alice.get(page_of(id))

    assert "desk wants to run desk:publish on web-3" in page.text
    item = desk.lab.store.approvals.get(id)
    assert item is not None
    assert page.source.index(item.decision.rationale) < page.source.index("answer=approve")


def test_the_page_says_that_nobody_watches_what_it_is_about(alice: Browser, desk: Site) -> None:
    id = desk.waiting()
    assert "not watching" not in alice.get(page_of(id)).text
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    text = alice.get(page_of(id)).text

    assert "desk : not watching, no worker consumes the queue loop" in text
    assert "What it saw last may be over." in text
    page = alice.get(f"{page_of(id)}?answer=approve").text
    assert "runs desk:publish as soon as one takes it, with exactly" in page


def test_the_page_says_that_nobody_watches_until_the_outcome_is_there(
    alice: Browser, desk: Site
) -> None:
    id = desk.waiting()
    desk.dispatcher.held = True
    alice.send(alice.get(f"{page_of(id)}?answer=approve").form("/answer"))
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    text = alice.get(page_of(id)).text
    assert ("approved by alice" in text, "desk : not watching" in text) == (True, True)

    desk.lab.deliver()
    text = alice.get(page_of(id)).text
    assert ("Execution: succeeded" in text, "not watching" in text) == (True, False)


def test_the_page_says_the_outcome_as_messages_do(
    alice: Browser, desk: Site, done: list[str]
) -> None:
    id = desk.waiting()
    alice.send(alice.get(f"{page_of(id)}?answer=approve").form("/answer"))
    assert done
    effect = EffectVerification(
        verdict="worse",
        evidence="it got slower",
        until=utc_now(),
        checks=1,
        ended_at=utc_now(),
        compensation=Compensation(state="asked", approval=desk.waiting("undo")),
    )
    item = desk.lab.store.find_approval(id)
    assert item is not None
    judged, find = item.patched({"effect": effect}), AgentStore.find_approval
    with mock.patch.object(
        AgentStore, "find_approval", lambda store, id: judged if id == item.id else find(store, id)
    ):
        page = alice.get(page_of(id))

    outcome = describe_outcome(judged)
    assert outcome is not None
    assert f"{outcome.words} : {outcome.detail}" in page.text
    assert "To undo it: approval" in page.text
    assert "waits for an answer" in page.text


def test_the_page_shows_what_a_reviewer_objects_to(alice: Browser, desk: Site) -> None:
    id = desk.waiting()
    item = desk.lab.store.approvals.get(id)
    assert item is not None
    review = Review(by="reviewer", verdict="deny", reason="the log names <another> host")
    decision = item.decision.patched({"reviews": [review]})
    desk.lab.client.hset(f"boyd:{{desk}}:approval:{id}", "decision", decision.to_json())

    assert "reviewer objects: the log names <another> host" in alice.get(page_of(id)).text
    reviews = desk.get(f"/approvals/{id}").json["decision"]["reviews"]
    assert reviews == [review.to_wire()]


def test_the_page_says_that_other_code_would_run_by_now(alice: Browser, desk: Site) -> None:
    id = desk.waiting()
    desk.lab.client.hset(f"boyd:{{desk}}:approval:{id}", "code", json.dumps("desk 0.9"))
    code = desk.lab.agent.code_of("desk:publish")
    changed = f"changed since it was proposed: desk 0.9 then, {code} now"

    assert f"The code of the action has {changed}." in alice.get(page_of(id)).text
    assert desk.get(f"/approvals/{id}").json["codeNow"] == code


def test_invisible_characters_of_a_rationale_are_shown(alice: Browser, desk: Site) -> None:
    id = desk.waiting()
    item = desk.lab.store.approvals.get(id)
    assert item is not None
    decision = item.decision.patched({"rationale": "gnitset\u202e it"})
    desk.lab.client.hset(f"boyd:{{desk}}:approval:{id}", "decision", decision.to_json())

    for path in (page_of(id), "/console/"):
        assert "gnitset\\u202e it" in alice.get(path).text


def test_an_approval_says_what_was_done_to_its_target_before(alice: Browser, desk: Site) -> None:
    id = desk.waiting()
    past = "k8s:restart (12 min earlier): effective; k8s:scale (3 h earlier): worse"
    desk.lab.client.hset(f"boyd:{{desk}}:approval:{id}", "doneBefore", past)

    page = alice.get(page_of(id)).text
    assert re.search(f"before this was asked, [^,.]* ago : {re.escape(past)}", page)
    inbox = alice.get("/console/").text
    assert "before it was asked: k8s:restart (12 min earlier): effective seen" in inbox


def test_an_approval_shows_what_is_in_flight_on_the_same_target(alice: Browser, desk: Site) -> None:
    id, client = desk.waiting(), desk.lab.client
    client.hset(f"boyd:{{desk}}:approval:{id}", mapping={"target": "news", "concurrency": "1"})
    flight = {"limit": 1, "ids": ["call:1"], "orders": {}}
    client.hset("boyd:{desk}:in-flight", "desk:publish:news", json.dumps(flight))
    running = {"state": "running", "leaseUntil": 4e12, "startedAt": 1, "by": "eve", "host": "db1"}
    client.hset("boyd:{desk}:execution:call:1", mapping=running)
    response = alice.get(page_of(id))
    page = alice.get(f"{page_of(id)}?answer=approve")

    pattern = (
        r"The same is in flight on this target: call:1 is running on db1 \(for .+\), requested by e"
    )
    assert re.search(pattern, response.text)
    assert "runs desk:publish after what is in flight" in page.text
    assert "the same is in flight" in alice.get("/console/").text
    assert "call:1, requested by eve" in alice.get("/console/agents/desk").text


def test_while_actions_are_frozen_the_page_says_so_and_offers_no_approval(
    alice: Browser, desk: Site
) -> None:
    id = desk.waiting()
    desk.store.freezes.freeze("3 am", "desk")
    page = alice.get(f"{page_of(id)}?answer=approve")

    assert "Actions are frozen: 3 am. It cannot be approved until that is lifted" in page.text
    assert "at once" not in page.text
    assert f'href="{page_of(id)}?answer=approve"' not in page.source
    assert f'href="{page_of(id)}?answer=deny"' in page.source


def test_an_answer_takes_two_steps_and_is_then_true(
    alice: Browser, desk: Site, done: list[str]
) -> None:
    id = desk.waiting()
    response = alice.get(f"{page_of(id)}?answer=approve")
    assert done == [], "asking answers nothing"
    assert "autofocus>Approve<" in response.source

    after = alice.send(response.form("/answer"), note="go")
    assert done == ["publish news"]
    assert after.path == page_of(id)
    assert "approved by alice" in after.text
    assert "“go”" in after.text
    assert "Execution: succeeded" in after.text
    assert "Nothing verifies its effect." in after.text
    assert not [link for link in ("answer=approve", "answer=deny") if link in after.source]


@pytest.mark.parametrize(("verb", "status"), [("deny", "denied"), ("withdraw", "withdrawn")])
def test_a_denied_or_withdrawn_request_executes_nothing(
    alice: Browser, desk: Site, done: list[str], verb: str, status: str
) -> None:
    id = desk.waiting()
    after = alice.send(alice.get(f"{page_of(id)}?answer={verb}").form("/answer"))

    assert f"{status} by alice" in after.text
    assert "Nothing was executed." in after.text
    assert done == []


def test_a_late_answer_shows_the_first_one_and_keeps_the_note(
    alice: Browser, bob: Browser, desk: Site, done: list[str]
) -> None:
    id = desk.waiting()
    form = alice.get(f"{page_of(id)}?answer=approve").form("/answer")
    bob.send(bob.get(f"{page_of(id)}?answer=deny").form("/answer"))

    late = alice.send(form, note="I am sure that this is right")
    assert late.status == 409
    assert "Your answer does not count: the approval is denied by bob" in late.text
    assert "I am sure that this is right" in late.text
    assert 'data-live=""' in late.source
    assert done == []


def test_an_answer_counts_only_for_what_was_shown(
    alice: Browser, desk: Site, done: list[str]
) -> None:
    id = desk.waiting(min_approvals=2)
    form = alice.get(f"{page_of(id)}?answer=approve").form("/answer")
    desk.post(f"/approvals/{id}/approve", headers=desk.key("approvals", principal="carol"))

    page = alice.send(form, note="ok")
    assert page.status == 409
    assert "the approval has changed; its version is now 2" in page.text
    assert "ok</textarea>" in page.source
    assert alice.send(page.form("/answer"), note="ok").status == 200
    assert done == ["publish news"]


def test_a_form_that_is_sent_twice_is_answered_once(
    alice: Browser, desk: Site, done: list[str]
) -> None:
    id = desk.waiting()
    form = alice.get(f"{page_of(id)}?answer=approve").form("/answer")

    for _ in range(2):
        page = alice.send(form)
        assert page.status == 200
        assert "approved by alice" in page.text
    assert done == ["publish news"]


def test_a_reader_who_may_not_approve_sees_the_reason(
    alice: Browser, guest: Browser, desk: Site
) -> None:
    id = desk.waiting(principals=["carol"])
    response = alice.get(page_of(id))
    assert "You may not approve it: it may be approved by carol" in response.text
    assert "answer=approve" not in response.source
    assert "answer=deny" in response.source

    response = guest.get(page_of(id))
    assert "your key lacks the scope 'approvals'" in response.text
    assert "answer=deny" not in response.source
    form = alice.get(f"{page_of(id)}?answer=deny").form("/answer")
    token = guest.get("/console/").form("/logout").fields["csrf"]
    assert guest.post(form.action, {**form.fields, "csrf": token}).status == 403


def test_a_required_note_is_asked_for(alice: Browser, desk: Site) -> None:
    id = desk.waiting(require_note=True)
    response = alice.get(f"{page_of(id)}?answer=approve")
    assert "Note (required)" in response.text
    assert "required autofocus" in response.source

    refused = alice.send(response.form("/answer"), note="  ")
    assert "the policy requires a note with the reason" in refused.text


def test_a_preview_is_repeated_on_demand(alice: Browser, desk: Site) -> None:
    id = desk.waiting(action="desk:write")
    before = alice.get(page_of(id))
    assert "There was no dry run yet" in before.text

    after = alice.send(before.form("/preview"))
    assert '"would write news"' in after.text
    assert re.search(r"Dry run \d+ s ago", after.text)


def test_an_expired_request_cannot_be_answered(alice: Browser, desk: Site) -> None:
    id = desk.waiting(ttl=0)
    response = alice.get(f"{page_of(id)}?answer=approve")

    assert "expired" in response.text
    assert "Nothing was executed." in response.text
    assert 'name="verb"' not in response.source


def test_an_unknown_approval_is_not_found(alice: Browser) -> None:
    response = alice.get(page_of("none"))

    assert response.status == 404
    assert "agent 'desk' has no approval 'none'" in response.text


def test_an_answer_with_an_endless_note_or_version_changes_nothing(
    alice: Browser, desk: Site
) -> None:
    id = desk.waiting()
    form = alice.get(f"/console/agents/desk/approvals/{id}?answer=approve").form("/answer")

    assert alice.send(form, note="x" * 5001).status == 422
    assert alice.send(form, version="9" * 5000).status == 400
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"
    assert alice.send(form, note="line\r\n" * 1000).status == 200


def test_an_approval_of_unknown_risk_needs_a_recent_login(alice: Browser, desk: Site) -> None:
    id = desk.waiting(risk=None)
    form = alice.get(f"/console/agents/desk/approvals/{id}?answer=approve").form("/answer")
    with mock.patch.object(sessions_of_browsers, "FRESH", timedelta(seconds=-1)):
        page = alice.send(form)

    assert "needs a login within the last five minutes" in page.text
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"


def test_an_approval_with_a_key_that_was_revoked_is_shown_as_one_that_does_not_count(
    alice: Browser, desk: Site
) -> None:
    id = desk.waiting(min_approvals=2)
    ann = desk.key("approvals", principal="ann")
    desk.post(f"/approvals/{id}/approve", headers=ann)
    assert "So far 1 of 2: ann" in alice.get(page_of(id)).text
    desk.open("DELETE", f"/keys/{ann['Authorization'].split('_')[1]}")
    page = alice.get(page_of(id)).text

    assert "So far 0 of 2" in page
    assert "approved by ann does not count: the key was revoked" in page
    row = alice.get("/console/").text
    assert "0/2 approvals" in row
    assert "a key of an approver was revoked" in row
    [item] = desk.get("/approvals").json["pending"]
    assert [vote["revoked"] for vote in item["approvals"]] == [True]


def test_several_answers_say_what_a_freeze_keeps_from_being_approved(
    alice: Browser, desk: Site
) -> None:
    id = desk.waiting()
    desk.store.freezes.freeze("3 am", "desk")
    inbox = alice.get("/console/").form("/answer-several")
    page = alice.send(inbox, verb="approve", chosen=f"desk/{id}/1")
    assert "desk: Actions are frozen: 3 am. None of its approvals can be approved" in page.text
    answered = alice.send(page.form("/answer-several"))

    assert "It stays pending: approve it once that is lifted, or deny it" in answered.text
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"


def test_the_evidence_is_read_from_the_archive_once_redis_has_dropped_it(
    alice: Browser, desk: Site, tmp_path: Path
) -> None:
    id = desk.waiting()
    proposal = iteration(1, 1, problem()).patched({"action_results": [waiting_for(id)]})
    with archiving(desk, tmp_path) as archive:
        archive_past(archive, [proposal])
        text = alice.get(page_of(id)).text

    assert "Evidence Iteration 1" in text
    assert "http:sense" in text


def test_an_iteration_that_did_not_ask_is_no_evidence(
    alice: Browser, desk: Site, tmp_path: Path
) -> None:
    id = desk.waiting()
    with archiving(desk, tmp_path) as archive:
        archive_past(archive, [iteration(1, 1, problem())])
        text = alice.get(page_of(id)).text

    assert "It was requested outside of an iteration." in text
    assert "http:sense" not in text


def test_an_archive_that_is_down_takes_only_the_evidence(alice: Browser, desk: Site) -> None:
    desk.services.archive = ArchiveAccess("sqlite:////nowhere/at/all.db")
    text = alice.get(page_of(desk.waiting())).text

    assert "Iteration 1 cannot be read: the archive does not answer" in text


def waiting_for(id: str) -> ActionResult:
    """The result of an action that waits for an approval."""
    result = ActionResult(action="desk:publish", success=False, duration=0, waits_for=id)
    return result.patched({"error": APPROVAL_REQUIRED})


def test_the_page_of_a_request_by_a_person_states_no_confidence(alice: Browser, desk: Site) -> None:
    desk.post("/loop/trigger")
    body = {"params": {"text": "x"}}
    id = desk.post("/actions/desk:publish", body).json["approvalId"]
    page = alice.get(page_of(id))

    assert "asked by alice" in page.text
    assert "It was requested outside of an iteration." in page.text
    assert "as stated" not in page.text
    desk.post(f"/approvals/{id}/deny", headers=desk.key("approvals", principal="bob"))
    assert "desk wanted to run desk:publish" in alice.get(page_of(id)).text


def test_the_list_of_answers_names_the_targets(alice: Browser, desk: Site) -> None:
    id = desk.waiting("news")
    desk.post(f"/approvals/{id}/deny", headers=desk.key("approvals", principal="bob"))

    assert "desk:publish on news" in alice.get("/console/answered").text
