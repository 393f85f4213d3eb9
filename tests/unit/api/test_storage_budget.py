"""The storage budget: no principal has Redis keep more than its share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api_kit import Site
from boyd import Agent, EndpointReply, Plugin, action, endpoint
from boyd.testing import Lab
from lab_redis import client_of

MIB = 1_048_576
WRITE = "/actions/desk:write?wait=0"


@pytest.fixture(autouse=True)
def small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest budget that can be set."""
    monkeypatch.setenv("BOYD_PRINCIPAL_BYTES", str(MIB))


class Loud(Plugin):
    """Answers at length."""

    id = "loud"

    @action()
    def shout(self) -> str:
        """Return 300 000 characters."""
        return "a" * 300_000

    @endpoint("GET", "/shouts")
    def shouts(self) -> EndpointReply:
        """Answer with 300 000 characters."""
        return EndpointReply(body="a" * 300_000)


def refusal(site: Site, path: str, body: Any, **more: Any) -> Any:
    """The first answer that is no success, after at most 400 requests."""
    for _ in range(400):
        answer = site.post(path, body, **more)
        if answer.status_code >= 300:
            return answer
    raise AssertionError(f"{path} was accepted 400 times")


def byte_total(site: Site) -> int:
    """The bytes of all values in Redis."""
    client = client_of(site.server)
    hashes = [key for key in client.scan_iter() if client.type(key) == "hash"]
    return sum(len(value) for key in hashes for value in client.hvals(key))


def test_calls_of_a_principal_are_refused_beyond_its_budget(desk: Site) -> None:
    key = desk.key("actions")
    answer = refusal(desk, WRITE, {"params": {"text": "a" * 20_000}}, headers=key)

    assert (answer.status_code, answer.json["type"]) == (429, "/problems/storage-budget")
    assert int(answer.headers["Retry-After"]) > 0
    assert "the storage budget of alice is used up" in answer.json["detail"]
    assert "have the administrator raise principal_bytes" in answer.json["detail"]
    assert byte_total(desk) < 2 * MIB


def test_others_go_on_when_the_budget_of_one_is_used_up(desk: Site) -> None:
    refusal(desk, WRITE, {"params": {"text": "a" * 20_000}}, headers=desk.key("actions"))
    bob = desk.key("actions", principal="bob")

    assert desk.post(WRITE, {"params": {"text": "x"}}, headers=bob).status_code in (200, 202)


def test_another_key_of_the_principal_has_no_budget_of_its_own(desk: Site) -> None:
    refusal(desk, WRITE, {"params": {"text": "a" * 20_000}}, headers=desk.key("actions"))
    answer = desk.post(WRITE, {"params": {"text": "a" * 20_000}}, headers=desk.key("actions"))

    assert answer.status_code == 429


def test_a_request_that_alone_exceeds_the_budget_is_too_large(desk: Site) -> None:
    answer = desk.post(WRITE, {"params": {"text": "a" * 400_000}})

    assert (answer.status_code, answer.json["type"]) == (413, "/problems/too-large")
    assert f"principal_bytes allows {MIB}" in answer.json["detail"]


def test_runs_count(site: Site) -> None:
    run = {"title": "x", "description": "a" * 4000, "context": {"text": "a" * 20_000}}

    assert refusal(site, "/runs", run).json["type"] == "/problems/storage-budget"


@pytest.mark.long
def test_answers_that_are_kept_for_repetitions_count(site: Site) -> None:
    services = site.services
    services.settings = services.settings.model_copy(update={"principal_bytes": MIB // 16})
    codes = set()
    for number in range(60):
        key = {"Idempotency-Key": f"key {number}"}
        codes.add(site.post("/loop/trigger", headers=key).status_code)

    assert 429 in codes


@pytest.mark.long
@pytest.mark.parametrize("path", ["/pause", "/freeze", "/revoke"])
def test_an_agent_can_be_stopped_beyond_the_budget(site: Site, path: str) -> None:
    refusal(site, "/runs", {"title": "a" * 200, "description": "a" * 20_000})
    codes, before = set(), byte_total(site)
    for number in range(200):
        key = {"Idempotency-Key": f"key {number} {path}"}
        codes.add(site.post(path, headers=key).status_code)

    assert codes == {200}
    assert byte_total(site) - before < 200_000, "answers without room are not kept"


@pytest.fixture
def loud(server: Any) -> Site:
    """An agent that answers at length."""
    client = client_of(server)
    lab = Lab(Agent("test", plugins=[Loud()]), client=client)
    lab.engine.settings = replace(lab.engine.settings, principal_bytes=MIB)
    return Site(lab, server)


def test_the_output_of_an_action_is_left_out_for_want_of_room(loud: Site) -> None:
    outputs = [loud.post("/actions/loud:shout", {}).json["result"]["output"] for _ in range(4)]

    assert outputs[0] == "a" * 300_000
    assert outputs[-1].startswith("omitted: ")
    assert outputs[-1].endswith("what is left of the storage budget of alice")
    assert loud.post("/actions/loud:shout", {}).json["success"] is True


def test_an_answer_of_an_endpoint_needs_room(loud: Site) -> None:
    answers = [loud.get("/plugins/loud/shouts") for _ in range(4)]

    assert answers[0].status_code == 200
    assert answers[-1].json["type"] == "/problems/storage-budget"
    assert byte_total(loud) < 2 * MIB
