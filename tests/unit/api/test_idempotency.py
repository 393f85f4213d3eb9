"""A request with an Idempotency-Key is done once, however often it comes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from api_kit import Site
from boyd.errors import StoreUnavailable
from boyd.models import Actor
from boyd.store import StoredAnswer
from boyd_api.http import idempotency_keys

KEY = {"Idempotency-Key": "job 66"}
BODY = {"name": "x", "principal": "x", "scopes": ["read"]}


def test_a_repetition_is_answered_as_the_first_time_and_not_done(site: Site) -> None:
    first = site.post("/loop/trigger", {"context": "x"}, headers=KEY)
    again = site.post("/loop/trigger", {"context": "x"}, headers=KEY)

    assert (again.status_code, again.json, again.mimetype) == (200, first.json, first.mimetype)
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert site.lab.store.loop_control.status().iteration == 1


def test_without_a_key_every_request_is_done(site: Site) -> None:
    site.post("/loop/trigger")
    site.post("/loop/trigger")

    assert site.lab.store.loop_control.status().iteration == 2


def test_another_request_under_the_same_key_is_refused(site: Site) -> None:
    site.post("/loop/trigger", {"context": "x"}, headers=KEY)
    answer = site.post("/loop/trigger", {"context": "y"}, headers=KEY)

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/idempotency-mismatch"
    assert site.lab.store.loop_control.status().iteration == 1


def test_a_key_belongs_to_its_principal_and_path(site: Site) -> None:
    bob = site.key("admin", principal="bob")
    for _ in range(2):
        site.post("/loop/trigger", headers=KEY)
        site.post("/loop/trigger", headers={**bob, **KEY})
        site.post("/agents/test/loop/trigger", headers=KEY)
        assert site.post("/pause", headers=KEY).status_code == 200

    assert site.lab.store.loop_control.status().iteration == 3


def test_a_request_that_is_being_worked_on_is_not_done_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        inside.set()
        assert go_on.wait(120)

    monkeypatch.setattr(site.dispatcher, "send", slow)
    answers: list[Any] = []

    def first() -> None:
        client = site.app.test_client()
        answers.append(client.post("/api/v0/loop/trigger", headers={**site.admin, **KEY}))

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(120)
    second = site.post("/loop/trigger", headers=KEY)
    go_on.set()
    thread.join()

    assert second.status_code == 409
    assert second.json["type"] == "/problems/idempotency-in-flight"
    assert int(second.headers["Retry-After"]) >= 1
    assert answers[0].status_code == 202


def test_a_request_that_failed_inside_may_be_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(*_: object) -> None:
        raise RuntimeError("boom")

    with monkeypatch.context() as broken:
        broken.setattr("boyd_api.routes.agent_routes._standing", boom)
        assert site.post("/pause", headers=KEY).status_code == 500

    assert site.post("/pause", headers=KEY).status_code == 200


def test_a_refused_request_may_be_repeated_later_under_the_same_key(site: Site) -> None:
    site.post("/pause")
    first = site.post("/loop/trigger", headers=KEY)
    site.post("/resume")
    again = site.post("/loop/trigger", headers=KEY)

    assert (first.status_code, again.status_code) == (409, 200)
    assert "Idempotency-Replayed" not in again.headers


def test_a_refused_request_may_be_corrected_under_the_same_key(site: Site) -> None:
    wrong = {"title": "x", "description": "x", "callbackUrl": "http://127.0.0.1/"}

    assert site.post("/runs", wrong, headers=KEY).status_code == 422
    assert site.post("/runs", {"title": "x", "description": "x"}, headers=KEY).status_code == 201


def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(site.services.store.idempotency, "keep", away)

    assert site.post("/pause", headers=KEY).status_code == 200


def test_answers_are_kept_for_a_day(site: Site) -> None:
    site.post("/pause", headers=KEY)
    [name] = site.store.client.keys("*answer*")

    assert 86_000 < site.store.client.ttl(name) <= 86_400


def test_the_text_of_a_key_is_not_kept_with_the_answer(site: Site) -> None:
    first = site.post("/keys", BODY, headers=KEY)
    again = site.post("/keys", BODY, headers=KEY)
    [name] = site.store.client.keys("*answer*")

    assert first.json["key"].startswith(f"boyd_{first.json['id']}_")
    assert again.status_code == 201
    assert again.json == {k: v for k, v in first.json.items() if k != "key"}
    assert first.json["key"] not in str(site.store.client.hgetall(name))


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "caf\xe9"])
def test_a_key_that_is_not_plain_text_is_refused(site: Site, key: str) -> None:
    assert site.post("/pause", headers={"Idempotency-Key": key}).status_code == 400


def test_an_invalid_request_does_not_use_up_its_key(site: Site) -> None:
    assert site.post("/pause", {"reason": 1}, headers=KEY).status_code == 422
    assert site.post("/pause", {"reason": "x"}, headers=KEY).status_code == 200


def test_a_lost_lease_cannot_overwrite_the_stored_answer(site: Site) -> None:
    answers = site.store.idempotency
    lost = answers.reserve("digest", "request", 10)
    site.lab.client.delete(*site.store.client.keys("*answer*"))
    mine = answers.reserve("digest", "request", 10)
    stored = StoredAnswer(200, {}, "mine")

    assert answers.keep("digest", mine.token, stored)
    assert not answers.keep("digest", lost.token, StoredAnswer(200, {}, "theirs"))
    assert not answers.release("digest", lost.token)
    assert answers.reserve("digest", "request", 10).answer == stored


def test_the_id_of_what_a_request_creates_follows_from_the_request(site: Site) -> None:
    alice, bob = Actor(principal="alice"), Actor(principal="bob")

    def request_digest(actor: Actor, path: str, key: str | None, body: str = "") -> str:
        with site.app.test_request_context(path, method="POST", data=body):
            return idempotency_keys.derive_id(actor, key)

    assert request_digest(alice, "/runs", "k") == request_digest(alice, "/runs", "k")
    ids = {
        request_digest(alice, "/runs", "k"),
        request_digest(bob, "/runs", "k"),
        request_digest(alice, "/keys", "k"),
        request_digest(alice, "/runs", "l"),
        request_digest(alice, "/runs", "k", "another body"),
        request_digest(alice, "/runs", None),
        request_digest(alice, "/runs", None),
    }
    assert len(ids) == 7
