"""Foreign data in Redis hides nothing else, and is named."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from api_kit import Site, make_lab
from boyd.models import from_ms
from boyd.store.keys import AGENTS, API_KEYS, DEPLOYMENT, FREEZES, WORKER_INFO, WORKERS, Keys
from console_kit import Browser
from lab_redis import client_of

KEYS = Keys("desk")
WRITE = "/actions/desk:write"
PUBLISH = "/actions/desk:publish"


@pytest.fixture
def busy(desk: Site) -> Site:
    """An agent of whose every list something can be read."""
    for text in ("a", "b"):
        desk.post(WRITE, {"params": {"text": text}})
        desk.post(PUBLISH, {"params": {"text": text}})
        desk.post("/runs", {"title": text, "description": text})
        desk.post("/loop/trigger")
        desk.lab.deliver()
    return desk


def redis_of(site: Site) -> Any:
    """A client of its own."""
    return client_of(site.server)


def ids(site: Site, path: str, name: str) -> list[str]:
    """The ids in a list of the API, which has to be served."""
    answer = site.get(path)
    assert answer.status_code == 200, answer.json
    return [str(item["iteration" if name == "iterations" else "id"]) for item in answer.json[name]]


LISTS = [
    ("/approvals", "pending", KEYS.approval, "params"),
    ("/approvals", "pending", KEYS.approval, "expiresAt"),
    ("/runs", "runs", KEYS.run, "context"),
    ("/executions", "executions", KEYS.execution, "startedAt"),
    ("/loop/history", "iterations", lambda id: KEYS.past_iteration(int(id)), "outline"),
]

#: The record itself is read without its outline.
OBSERVED = (*LISTS[-1][:3], "situation")


def as_text(client: Any, key: str, field: str) -> None:
    """Replace the record by a text."""
    client.set(key, "garbage")


def in_field(client: Any, key: str, field: str) -> None:
    """Replace a value of the record."""
    client.hset(key, field, "garbage")


@pytest.mark.long
@pytest.mark.parametrize("spoil", [in_field, as_text])
@pytest.mark.parametrize(("path", "name", "key_of", "field"), LISTS)
def test_a_list_has_all_records_but_the_one_that_cannot_be_read(
    busy: Site,
    path: str,
    name: str,
    key_of: Callable[[str], str],
    field: str,
    spoil: Callable[[Any, str, str], None],
) -> None:
    spoilt, *others = ids(busy, path, name)
    spoil(redis_of(busy), key_of(spoilt), field)

    assert ids(busy, path, name) == others
    assert spoilt in busy.get(path).headers["Boyd-Unreadable"]


@pytest.mark.parametrize(("path", "name", "key_of", "field"), [*LISTS[:-1], OBSERVED])
def test_a_record_that_cannot_be_read_is_named_when_it_is_asked_for(
    busy: Site, path: str, name: str, key_of: Callable[[str], str], field: str
) -> None:
    spoilt = ids(busy, path, name)[0]
    redis_of(busy).hset(key_of(spoilt), field, "garbage")
    answer = busy.get(f"{path}/{spoilt}")

    assert (answer.status_code, answer.json["type"]) == (500, "/problems/unreadable")
    assert spoilt in answer.json["detail"]


#: A risk and a severity that only a later release knows.
LATER = {
    "decision": '{"action": "a:b", "params": {}, "rationale": "r", "confidence": 1, "risk": "odd"}',
    "situation": '{"summary": "s", "priority": "odd"}',
}


@pytest.mark.parametrize("field", LATER)
def test_the_status_passes_over_what_a_later_release_has_written(busy: Site, field: str) -> None:
    [newest, *_] = ids(busy, "/loop/history", "iterations")
    redis_of(busy).hset(KEYS.past_iteration(int(newest)), field, LATER[field])
    answer = busy.get("/loop/status")

    assert (answer.status_code, answer.json.get(field)) == (200, None)
    assert answer.headers["Boyd-Unreadable"] == "the latest iteration"


@pytest.mark.parametrize(
    ("field", "value", "page"),
    [("phase", "dream", ""), ("decision", LATER["decision"], "/iterations/{number}")],
)
def test_a_page_names_the_iteration_in_flight_when_it_cannot_be_read(
    busy: Site, field: str, value: str, page: str
) -> None:
    browser, client = Browser(busy, busy.key("admin", person=True)), redis_of(busy)
    number = busy.lab.launcher.trigger("test").iteration
    client.hset(KEYS.iteration, field, value)
    response = browser.get(f"/console/agents/desk{page.format(number=number)}")

    assert response.status == 500
    assert re.search(rf"iteration ({number}|in flight) cannot be read", response.text)


def test_rights_name_policies_that_cannot_be_read(busy: Site) -> None:
    entry = json.loads(redis_of(busy).hget(AGENTS, "desk"))
    entry["approvals"] = {"required": {"links": "odd"}, "laterSetting": 1}
    redis_of(busy).hset(AGENTS, "desk", json.dumps(entry))
    busy.services.forget_agents()
    answer = busy.get("/rights?verb=approve&action=desk:write")

    assert (answer.status_code, answer.json["type"]) == (500, "/problems/unreadable")
    assert "the approval policies of agent desk" in answer.json["detail"]


@pytest.mark.parametrize(
    ("key", "field"),
    [(AGENTS, "ghost"), (API_KEYS, "ghost"), (WORKER_INFO, "lab@here")],
)
def test_an_entry_of_the_deployment_that_cannot_be_read_hides_no_other(
    busy: Site, key: str, field: str
) -> None:
    redis_of(busy).hset(key, field, "{not json")
    busy.services.forget_agents()

    for path in ("/agents", "/workers", "/keys", "/loop/status", "/runs", "/approvals"):
        assert busy.get(path).status_code == 200, path


def test_an_agent_whose_entry_cannot_be_read_is_named(busy: Site) -> None:
    redis_of(busy).hset(AGENTS, "ghost", "{not json")
    busy.services.forget_agents()
    answer = busy.get("/agents/ghost/runs")

    assert (answer.status_code, answer.json["type"]) == (500, "/problems/unreadable")
    assert "the entry of agent ghost cannot be read" in answer.json["detail"]


def test_a_worker_replaces_the_entry_of_its_agent_when_it_cannot_be_read(busy: Site) -> None:
    redis_of(busy).hset(AGENTS, "desk", "{not json")
    fleet = busy.lab.whole.fleet
    fleet.beat(fleet.workers()[0])
    busy.services.forget_agents()

    assert busy.get("/agents/desk/runs").status_code == 200


@pytest.mark.long
@pytest.mark.parametrize(
    "key", [KEYS.loop, KEYS.approvals_pending, KEYS.history, KEYS.executions, WORKERS, WORKER_INFO]
)
def test_a_foreign_type_in_the_state_of_one_agent_hides_no_other(
    busy: Site, server: Any, key: str
) -> None:
    make_lab(server)
    browser = Browser(busy, busy.key("admin", person=True))
    client = redis_of(busy)
    client.delete(key)
    client.set(key, "garbage")
    busy.services.forget_agents()

    assert "test" in ids(busy, "/agents", "agents")
    for path in ("/", "/agents", "/agents/test", "/fleet", "/keys", "/agents/test/runs"):
        assert browser.get(f"/console{path}").status == 200, path


@pytest.mark.parametrize("key", [AGENTS, API_KEYS, FREEZES])
def test_a_foreign_type_at_a_key_of_the_deployment_is_unavailable_and_named(
    busy: Site, key: str
) -> None:
    client = redis_of(busy)
    client.delete(key)
    client.set(key, "garbage")
    busy.services.forget_agents()
    answers = [busy.get(path) for path in ("/agents", "/keys", "/loop/status", "/runs")]
    refused = [answer for answer in answers if answer.status_code != 200]

    assert refused
    for answer in refused:
        assert (answer.status_code, answer.json["type"]) == (503, "/problems/unavailable")
        assert f"{key} in Redis holds something else than a hash" in answer.json["detail"]
        assert "Retry-After" in answer.headers


def test_all_agents_can_be_frozen_while_their_list_cannot_be_read(busy: Site) -> None:
    client = redis_of(busy)
    client.delete(AGENTS)
    client.set(AGENTS, "garbage")
    busy.lab.whole.freezes.freeze("moving")

    assert "moving" in client.hget(KEYS.freezes, DEPLOYMENT)


def test_an_index_with_a_foreign_member_is_no_obstacle(busy: Site) -> None:
    client = redis_of(busy)
    browser = Browser(busy, busy.key("admin", person=True))
    for index in (KEYS.history, KEYS.runs, KEYS.executions, KEYS.approvals_history):
        client.zadd(index, {"ghost": 1e300})
    client.zadd(KEYS.held_actions, {"ghost": 1e300})
    client.hset(KEYS.of("hold", "ghost"), "since", "garbage")
    client.zadd(KEYS.procedures, {"ghost": 1e300})
    client.hset(KEYS.job("procedure:ghost"), mapping={"id": "ghost", "startedAt": "garbage"})
    client.hset(KEYS.track("desk:write"), "none", '{"since": "garbage"}')

    for path in ("/loop/history", "/runs", "/executions", "/approvals", "/holds", "/procedures"):
        assert busy.get(path).status_code == 200, path
    assert busy.get("/autonomy").status_code == 200
    assert browser.get("/console/fleet").status == 200


def test_an_unreadable_record_is_logged_once(busy: Site, caplog: pytest.LogCaptureFixture) -> None:
    spoilt = ids(busy, "/runs", "runs")[0]
    redis_of(busy).hset(KEYS.run(spoilt), "createdAt", "garbage")
    with caplog.at_level(logging.WARNING, "boyd.store.hashes"):
        busy.get("/runs")
        busy.get("/runs")

    assert [record.getMessage() for record in caplog.records if spoilt in record.getMessage()]
    assert sum(spoilt in record.getMessage() for record in caplog.records) == 1


def test_pages_of_the_console_name_what_they_pass_over(busy: Site) -> None:
    browser = Browser(busy, busy.key("admin", person=True))
    spoilt = ids(busy, "/approvals", "pending")[0]
    redis_of(busy).hset(KEYS.approval(spoilt), "params", "garbage")

    assert f"cannot be read: approval {spoilt}" in browser.get("/console/?tab=others").text


def test_a_key_of_some_agents_gets_no_names_of_records_of_others(busy: Site) -> None:
    redis_of(busy).hset(AGENTS, "ghost", "{not json")
    busy.services.forget_agents()

    assert (
        "Boyd-Unreadable"
        not in busy.get("/runs", headers=busy.key("read", agents=["desk"])).headers
    )


def test_times_far_from_now_are_no_obstacle(busy: Site) -> None:
    spoilt, *others = ids(busy, "/runs", "runs")
    redis_of(busy).hset(KEYS.run(spoilt), "createdAt", "1e300")
    with pytest.raises((ValueError, OverflowError)):
        from_ms(1e300)

    assert ids(busy, "/runs", "runs") == others
