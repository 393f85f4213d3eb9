"""`/investigations`: ask, follow, go on, cancel; and runs that are investigations."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_kit import MAKER, Site, make_desk
from boyd.models.investigation import Asked, Said
from boyd.store import investigations
from boyd.testing import ScriptedModel
from boyd.testing.model_server import call, say
from boyd_api.http import event_streams
from boyd_api.http.change_watcher import Slots
from boyd_api.routes import investigation_routes as routes
from investigation_kit import KEY, Case, only_archived

QUESTION = {"question": "Why is the disk full?"}
RUN = {"title": "Disk full", "description": "Since noon.", "kind": "investigation"}
ANSWER = say("The log of nginx has grown to 40 GB.")
LOOK = call("look", {"path": "/var"})


@pytest.fixture
def replies() -> list[Any]:
    """The replies of the model, in order."""
    return [LOOK, ANSWER]


@pytest.fixture
def case(server: Any, replies: list[Any]) -> Iterator[Case]:
    """A site whose model says *replies*, and the last one for ever."""
    with ScriptedModel(replies, forever=True) as model:
        new_case = Case(server, model)
        yield new_case
        new_case.site.services.stop()


# Ask


def test_a_question_starts_an_investigation_and_returns_its_location(case: Case) -> None:
    case.site.dispatcher.held = True
    answer = case.post("/investigations", QUESTION)
    there = case.site.client.get(answer.headers["Location"], headers=case.site.admin)

    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/api/v0/agents/disks/investigations/{answer.json['id']}"
    assert there.json == answer.json
    assert there.json.items() >= {
        ("question", QUESTION["question"]),
        ("status", "running"),
        ("source", "api"),
        ("askedBy", "alice"),
    }


def test_the_model_answers_with_its_tools(case: Case) -> None:
    investigation = case.get(f"/investigations/{case.asked()}").json

    assert (investigation["status"], investigation["ending"]) == ("ended", "final_answer")
    assert investigation["text"] == "The log of nginx has grown to 40 GB."
    assert investigation["counters"]["steps"] == 2
    assert investigation["counters"]["toolCalls"] == 1


@pytest.mark.parametrize("replies", [[call("answer", {"gb": 40})]])
def test_an_answer_comes_in_the_form_that_was_asked_for(case: Case) -> None:
    schema = {"type": "object", "properties": {"gb": {"type": "integer"}}, "required": ["gb"]}

    assert case.get(f"/investigations/{case.asked(answer=schema)}").json["findings"] == {"gb": 40}


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/question"]),
        ({"question": ""}, ["/question"]),
        ({"question": "x" * 100_001}, ["/question"]),
        ({**QUESTION, "profile": "eager"}, ["/profile"]),
        (
            {**QUESTION, "limits": {"maxSteps": 0, "maxCost": -1}},
            ["/limits/maxSteps", "/limits/maxCost"],
        ),
        ({**QUESTION, "tools": "*"}, ["/tools"]),
        ({**QUESTION, "askedBy": "bob"}, ["/askedBy"]),
        ({**QUESTION, "answer": []}, ["/answer"]),
        ({**QUESTION, "answer": {}}, ["/answer"]),
        ({**QUESTION, "answer": {"type": "string"}}, ["/answer"]),
        ({**QUESTION, "answer": {"type": "object", "required": 1}}, ["/answer"]),
        ({**QUESTION, "answer": {"type": "object", "$ref": "#"}}, ["/answer"]),
        ({**QUESTION, "answer": {"type": "object", "$ref": "#/type"}}, ["/answer"]),
        ({**QUESTION, "answer": {"type": "object", "$ref": "https://example.com/"}}, ["/answer"]),
    ],
)
def test_each_field_that_does_not_fit_is_named_and_nothing_is_asked(
    case: Case, body: Any, pointers: list[str]
) -> None:
    answer = case.post("/investigations", body)

    assert (answer.status_code, answer.json["type"]) == (422, "/problems/invalid-request")
    assert [error["pointer"] for error in answer.json["errors"]] == pointers
    assert case.get("/investigations").json["total"] == 0


def test_the_same_request_asks_once(case: Case) -> None:
    first = case.post("/investigations", QUESTION, headers=KEY)
    again = case.post("/investigations", QUESTION, headers=KEY)

    assert again.json == first.json
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(case.model.requests) == 2
    assert case.get("/investigations").json["total"] == 1


def test_while_there_are_too_many_none_begins(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.pending()
    monkeypatch.setattr(investigations, "MOST", 1)

    assert case.post("/investigations", QUESTION).status_code == 429


def test_an_agent_without_a_model_is_asked_nothing(server: Any) -> None:
    lab, _ = make_desk(server)
    site = Site(lab, server)
    answers = [site.post("/investigations", QUESTION), site.post("/runs", RUN)]

    for answer in answers:
        assert (answer.status_code, answer.json["type"]) == (409, "/problems/no-model")
        assert "'desk'" in answer.json["detail"]
    assert site.get("/investigations").json == {"investigations": [], "total": 0}
    assert site.get("/runs").json["total"] == 0
    assert site.post("/runs", {**RUN, "kind": "incident"}).status_code == 201


def test_the_state_names_the_model(case: Case, server: Any) -> None:
    assert case.get("/state").json["agent"]["model"] == "scripted"


def test_the_read_scope_permits_reading_but_not_asking(case: Case) -> None:
    id = case.asked()
    reader, submitter = case.site.key("read"), case.site.key("runs")
    for path in ("", f"/{id}", f"/{id}/log", f"/{id}/events"):
        assert case.get(f"/investigations{path}", headers=reader).status_code == 200
        assert case.get(f"/investigations{path}", headers=submitter).status_code == 403
    for path, body in (("", QUESTION), (f"/{id}/messages", {"text": "x"}), (f"/{id}/cancel", None)):
        assert case.post(f"/investigations{path}", body, headers=reader).status_code == 403
    assert case.post("/investigations", QUESTION, headers=submitter).status_code == 201


def test_a_key_for_other_agents_sees_none_of_it(case: Case) -> None:
    id = case.asked()
    stranger = case.site.key("admin", agents=["other"])
    answer = case.get(f"/agents/disks/investigations/{id}", headers=stranger)

    assert (answer.status_code, answer.json["type"]) == (404, "/problems/unknown-agent")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/log"),
        ("GET", "/events"),
        ("POST", "/messages"),
        ("POST", "/cancel"),
    ],
)
def test_an_unknown_investigation_is_not_found_by_name(case: Case, method: str, path: str) -> None:
    body = {"json": {"text": "x"}} if path == "/messages" else {}
    answer = case.site.open(method, f"/investigations/nowhere{path}", **body)

    assert (answer.status_code, answer.json["type"]) == (404, "/problems/not-found")
    assert "'nowhere'" in answer.json["detail"]


# List and log


def test_investigations_are_listed_newest_first_page_by_page(case: Case) -> None:
    ids = [case.pending(f"number {number}") for number in range(3)]
    first = case.get("/investigations?limit=2").json
    second = case.get(f"/investigations?limit=2&cursor={first['nextCursor']}").json

    listed = [
        investigation["id"] for investigation in first["investigations"] + second["investigations"]
    ]
    assert sorted(listed[:2]) == sorted(ids[1:])
    assert listed[2] == ids[0]
    assert "nextCursor" not in second
    assert case.get("/investigations?cursor=x").status_code == 422


def test_the_log_lists_messages_and_tool_calls(case: Case) -> None:
    page = case.get(f"/investigations/{case.asked()}/log").json

    kinds = [
        entry["entry"]["kind"] for entry in page["entries"] if entry["entry"]["kind"] != "delta"
    ]
    assert kinds == ["asked", "said", "started", "result", "said", "ended"]
    assert "nextAfter" not in page


def test_the_log_is_read_page_by_page(case: Case) -> None:
    id = case.asked()
    whole = case.get(f"/investigations/{id}/log").json["entries"]
    entries: list[Any] = []
    after = "0-0"
    while after:
        page = case.get(f"/investigations/{id}/log?limit=2&after={after}").json
        assert len(page["entries"]) <= 2
        entries += page["entries"]
        after = page.get("nextAfter")

    assert entries == whole


def test_a_page_of_the_log_ends_when_it_is_large(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = case.pending()
    for number in range(2 * routes.STEP):
        case.write(id, Asked(text=f"{number}").to_json())
    monkeypatch.setattr(routes, "PAGE_BYTES", 1)
    page = case.get(f"/investigations/{id}/log").json

    assert len(page["entries"]) == routes.STEP
    assert page["nextAfter"] == page["entries"][-1]["id"]


def test_entries_of_a_later_release_are_passed_over_and_keep_their_place(case: Case) -> None:
    id = case.pending()
    case.write(id, '{"kind":"sung","notes":3}', Asked(text="known").to_json())
    places = [entry.id for entry in case.store.log(id)]
    page = case.get(f"/investigations/{id}/log?limit=1&after={places[0]}").json
    rest = case.get(f"/investigations/{id}/log?after={page['nextAfter']}").json

    assert page == {"entries": [], "nextAfter": places[1]}
    assert [entry["id"] for entry in rest["entries"]] == [places[2]]


@pytest.mark.parametrize("after", ["x", "1", "-1-1", "99999999999999999999-0", "0-0;"])
def test_a_place_that_is_none_is_refused(case: Case, after: str) -> None:
    answer = case.get(f"/investigations/{case.pending()}/log?after={after}")

    assert answer.status_code == 422
    assert answer.json["errors"][0]["parameter"] == "after"


# Events


def test_the_stream_tells_everything_and_ends_by_itself(case: Case) -> None:
    id = case.asked()
    head, *blocks = case.stream(id).rest()
    logged = case.store.log(id)

    assert head == {"retry": "2000"}
    assert [block["id"] for block in blocks] == [entry.id for entry in logged]
    for block, record in zip(blocks, logged, strict=True):
        assert record.entry is not None
        assert block["event"] == record.entry.kind
        assert json.loads(block["data"]) == record.entry.to_wire()
    assert blocks[-1]["event"] == "ended"


def test_the_stream_goes_on_after_the_last_one_that_was_received(case: Case) -> None:
    id = case.asked()
    places = [entry.id for entry in case.store.log(id)]
    _, *blocks = case.stream(id, **{"Last-Event-ID": places[2]}).rest()

    assert [block["id"] for block in blocks] == places[3:]
    assert case.stream(id, **{"Last-Event-ID": places[-1]}).rest() == [{"retry": "2000"}]


def test_a_stream_resumed_beyond_the_log_reports_missed_entries(case: Case) -> None:
    id = case.asked()
    _, missed, *rest = case.stream(id, **{"Last-Event-ID": f"{2**60}-0"}).rest()

    assert missed == {"event": "missed", "data": "{}"}
    assert rest == []


@pytest.mark.parametrize("sent", ["x", "1", f"{2**64}-0"])
def test_an_id_that_is_none_is_refused(case: Case, sent: str) -> None:
    path = f"/investigations/{case.asked()}/events"

    assert case.get(path, headers={"Last-Event-ID": sent}).status_code == 400


def test_entries_are_streamed_as_they_are_written(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks by himself, so what arrives was pushed.
    monkeypatch.setattr(event_streams, "LOOK", 60.0)
    monkeypatch.setattr(event_streams, "SOON", 60.0)
    id = case.pending()
    stream = case.stream(id)
    assert [stream.next(), stream.next()["event"]] == [{"retry": "2000"}, "asked"]
    began = time.monotonic()
    worker = threading.Thread(target=case.site.lab.deliver)
    worker.start()
    kinds = [block["event"] for block in stream.rest()]
    worker.join()

    assert [kind for kind in kinds if kind != "delta"] == [
        *("said", "started", "result", "said", "ended")
    ]
    assert time.monotonic() - began < 50


def test_an_entry_of_an_unknown_kind_is_streamed_as_an_id_only(case: Case) -> None:
    id = case.pending()
    case.write(id, '{"kind":"sung"}', Asked(text="known").to_json())
    stream = case.stream(id)
    blocks = [stream.next() for _ in range(4)]
    stream.answer.close()
    places = [entry.id for entry in case.store.log(id)]

    assert blocks[2] == {"id": places[1]}
    assert (blocks[3]["id"], blocks[3]["event"]) == (places[2], "asked")


def test_an_entry_without_content_only_keeps_its_place(case: Case) -> None:
    id = case.pending()
    case.site.lab.client.xadd(f"boyd:{{disks}}:log:{id}", {"foo": "bar"})

    assert [entry.entry is None for entry in case.store.log(id)] == [False, True]


def test_a_long_log_is_sent_in_parts(case: Case) -> None:
    id = case.asked()
    last = case.entries(id)[-1]
    assert last is not None
    case.write(id, *[Said(step=9, text="x" * 50_000).to_json()] * 50, last.to_json())
    answer = case.get(f"/investigations/{id}/events", buffered=False)
    sizes = [len(chunk) for chunk in answer.response]
    answer.close()

    assert max(sizes) < 1.5 * routes.STEP * 50_000
    assert sum(sizes) > 50 * 50_000


def test_the_stream_stays_while_a_person_is_waited_for(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT", 0.01)
    monkeypatch.setattr(event_streams, "LOOK", 0.01)
    monkeypatch.setattr(event_streams, "SOON", 0.01)
    case.site.dispatcher.held = True
    id = case.asked()
    case.site.lab.client.hset(f"boyd:{{disks}}:investigation:{id}", "status", "waiting")
    stream = case.get(f"/investigations/{id}/events", buffered=False).response
    assert [next(stream), next(stream)[:4]] == [b"retry: 2000\n\n", b"id: "]
    assert [next(stream) for _ in range(3)] == [b":\n\n"] * 3
    [key] = case.site.store.api_keys.all()
    case.site.store.api_keys.revoke(key.id, MAKER)

    assert set(stream) <= {b":\n\n"}


def test_the_stream_of_one_that_is_kept_no_longer_ends(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "SOON", 0.01)
    id = case.pending()
    stream = case.stream(id)
    assert [stream.next(), stream.next()["event"]] == [{"retry": "2000"}, "asked"]
    case.site.lab.client.delete(f"boyd:{{disks}}:investigation:{id}", f"boyd:{{disks}}:log:{id}")

    assert stream.rest() == []


def test_a_conversation_that_went_on_is_followed_to_its_last_end(case: Case) -> None:
    id = case.asked()
    case.post(f"/investigations/{id}/messages", {"text": "And now?"})
    stream = case.stream(id)
    stream.next()
    assert stream.next()["event"] == "asked"
    kinds = [block["event"] for block in stream.rest()]

    assert kinds.count("ended") == 2
    assert kinds[-1] == "ended"


def test_a_limit_may_be_written_as_json_writes_whole_numbers(case: Case) -> None:
    limits = {"maxSteps": 7.0, "maxTokens": 370.0}

    assert case.post("/investigations", {**QUESTION, "limits": limits}).status_code == 201
    refused = case.post("/investigations", {**QUESTION, "limits": {"maxSteps": 7.5}})
    assert refused.status_code == 422


def test_all_streams_share_their_places(case: Case) -> None:
    id = case.pending()
    case.site.services.streams.slots = Slots(8)
    paths = ["/events", f"/investigations/{id}/events"] * 4
    streams = [case.get(path, buffered=False) for path in paths]
    refused = case.get(f"/investigations/{id}/events")
    for stream in streams:
        stream.close()

    assert refused.status_code == 503
    assert refused.headers["Retry-After"]
    assert case.site.open("HEAD", f"/investigations/{id}/events").status_code == 200


# Go on


def test_a_follow_up_question_continues_an_ended_investigation(case: Case) -> None:
    id = case.asked()
    case.site.dispatcher.held = True
    answer = case.post(f"/investigations/{id}/messages", {"text": "Since when?"})
    going = answer.json
    case.site.lab.deliver()

    assert (answer.status_code, going["id"], going["status"]) == (202, id, "running")
    assert "text" not in going
    assert case.get(f"/investigations/{id}").json["status"] == "ended"
    contents = [
        m["content"] for m in case.model.requests[-1].body["messages"] if m["role"] == "user"
    ]
    assert contents[-1] == "Since when?"


def test_a_follow_up_question_before_the_answer_is_refused(case: Case) -> None:
    id = case.pending()
    answer = case.post(f"/investigations/{id}/messages", {"text": "Well?"})

    assert (answer.status_code, answer.json["type"]) == (409, "/problems/busy")
    assert id in answer.json["detail"]
    assert len(case.entries(id)) == 1


def test_a_follow_up_question_waits_for_the_last_task_to_finish(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd_api.routes.investigation_routes.SETTLE", 120.0)
    id = case.asked()
    name = f"boyd:{{disks}}:investigation:{id}"
    case.site.lab.client.hset(name, "executionState", "running")
    left = threading.Timer(
        0.1, lambda: case.site.lab.client.hset(name, "executionState", "succeeded")
    )
    left.start()
    answer = case.post(f"/investigations/{id}/messages", {"text": "And?"})
    left.join()

    assert answer.status_code == 202


@pytest.mark.parametrize("body", [{}, {"text": ""}, {"text": "x" * 100_001}, {"text": 1}])
def test_an_invalid_message_is_refused_with_its_pointer(case: Case, body: Any) -> None:
    answer = case.post(f"/investigations/{case.asked()}/messages", body)

    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] == "/text"


def test_a_message_repeated_with_its_key_is_recorded_once(case: Case) -> None:
    id = case.asked()
    for _ in range(2):
        case.post(f"/investigations/{id}/messages", {"text": "And?"}, headers=KEY)

    messages = [entry for entry in case.entries(id) if isinstance(entry, Asked)]
    assert [entry.text for entry in messages] == ["Why?", "And?"]


# Cancel


def test_a_worker_ends_a_cancelled_investigation(case: Case) -> None:
    id = case.pending()
    answer = case.post(f"/investigations/{id}/cancel")
    case.site.lab.deliver()
    investigation = case.get(f"/investigations/{id}").json

    assert (answer.status_code, answer.json["cancelledBy"]) == (202, "alice")
    assert (investigation["status"], investigation["ending"]) == ("ended", "cancelled")
    assert "alice" in investigation["detail"]
    assert case.model.requests == []


def test_an_ended_investigation_cannot_be_cancelled(case: Case) -> None:
    answer = case.post(f"/investigations/{case.asked()}/cancel")

    assert (answer.status_code, answer.json["type"]) == (409, "/problems/finished")
    assert (answer.json["state"], answer.json["ending"]) == ("ended", "final_answer")


# An answer that was lost


def test_a_message_retried_with_its_key_is_recorded_once(case: Case) -> None:
    id = case.asked()
    answers = case.twice(f"/investigations/{id}/messages", {"text": "And?"})
    another = case.post(f"/investigations/{id}/messages", {"text": "And?"})

    assert [answer.status_code for answer in answers] == [202, 202]
    assert another.status_code == 202
    messages = [entry for entry in case.entries(id) if isinstance(entry, Asked)]
    assert [entry.text for entry in messages] == ["Why?", "And?", "And?"]


def test_a_cancellation_retried_with_its_key_succeeds_again(case: Case) -> None:
    id = case.pending()
    path = f"/investigations/{id}/cancel"
    case.site.dispatcher.held = False
    answers = case.twice(path, meanwhile=case.site.lab.deliver)

    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[1].json["status"] == "ended"
    assert case.post(path).status_code == 409


# Approvals


@pytest.fixture
def waiting(server: Any) -> Iterator[Case]:
    """A site whose model wants what a person has to allow."""
    with ScriptedModel([call("clean", {"path": "/var"}), say("It is clean now.")]) as model:
        new_case = Case(server, model)
        yield new_case
        new_case.site.services.stop()


def test_the_asker_may_not_approve_actions_of_the_investigation(waiting: Case) -> None:
    people = {
        name: waiting.site.key("read", "runs", "approvals", principal=name, person=True)
        for name in ("ann", "bob")
    }
    investigation = waiting.post("/investigations", QUESTION, headers=people["ann"]).json
    waiting_state = waiting.get(f"/investigations/{investigation['id']}").json
    approve = f"/approvals/{waiting_state['approvalId']}/approve"
    own = waiting.post(approve, headers=people["ann"])
    item = waiting.get(f"/approvals/{waiting_state['approvalId']}").json
    other = waiting.post(approve, headers=people["bob"])
    waiting.site.lab.sweeper.sweep()
    waiting.site.lab.deliver()

    assert waiting_state["status"] == "waiting"
    assert item["requestedBy"] == ["ann"]
    assert (own.status_code, own.json["type"]) == (403, "/problems/requester")
    assert (other.status_code, other.json["result"]["success"]) == (200, True)
    assert waiting.disk.cleaned == ["/var"]
    conclusion = waiting.get(f"/investigations/{investigation['id']}").json
    assert conclusion["text"] == "It is clean now."


def test_the_submitter_of_the_run_may_not_approve_actions_of_its_investigation(
    waiting: Case,
) -> None:
    ann = waiting.site.key("admin", principal="ann", person=True)
    id = waiting.post("/runs", RUN, headers=ann).json["id"]
    approval = waiting.get(f"/investigations/{id}").json["approvalId"]
    answer = waiting.post(f"/approvals/{approval}/approve", headers=ann)

    assert answer.json["type"] == "/problems/requester"
    assert waiting.disk.cleaned == []


def test_cancelling_an_investigation_withdraws_its_approval(waiting: Case) -> None:
    id = waiting.asked()
    approval = waiting.get(f"/investigations/{id}").json["approvalId"]
    waiting.post(f"/investigations/{id}/cancel")
    waiting.site.lab.sweeper.sweep()
    waiting.site.lab.deliver()

    assert waiting.get(f"/investigations/{id}").json["ending"] == "cancelled"
    assert waiting.get(f"/approvals/{approval}").json["status"] == "withdrawn"


# Runs


def test_a_run_of_that_kind_is_investigated_without_an_iteration(case: Case) -> None:
    context = {"host": "web1", "ticket": {"id": 7}}
    answer = case.post("/runs", {**RUN, "context": context})
    run = case.get(f"/runs/{answer.json['id']}").json
    investigation = case.get(f"/investigations/{run['id']}").json

    assert answer.status_code == 201
    assert set(answer.json) == {"id", "status", "createdAt"}
    assert answer.headers["Location"] == f"/api/v0/agents/disks/runs/{run['id']}"
    assert (run["status"], run["kind"]) == ("completed", "investigation")
    assert run["result"]["summary"] == investigation["text"]
    assert (investigation["source"], investigation["askedBy"]) == ("run", "alice")
    title, description, context_text = investigation["question"].split("\n\n")
    assert (title, description) == (RUN["title"], RUN["description"])
    assert json.loads(context_text.removeprefix("Context:\n")) == context
    assert case.get("/loop/status").json["iteration"] == 0


def test_such_a_run_is_investigated_from_the_beginning(case: Case) -> None:
    case.site.dispatcher.held = True
    answer = case.post("/runs", RUN, headers=KEY)
    again = case.post("/runs", RUN, headers=KEY)

    assert answer.json["status"] == "investigating"
    assert again.json == answer.json
    assert case.get("/runs?status=investigating").json["total"] == 1


def test_a_run_that_is_cancelled_takes_its_investigation_with_it(case: Case) -> None:
    case.site.dispatcher.held = True
    id = case.post("/runs", RUN).json["id"]
    answer = case.post(f"/runs/{id}/cancel")
    case.site.lab.deliver()
    investigation = case.get(f"/investigations/{id}").json

    assert answer.json["status"] == "cancelled"
    assert (investigation["ending"], investigation["cancelledBy"]) == ("cancelled", "alice")


def test_a_context_that_makes_the_question_too_long_is_named(case: Case) -> None:
    answer = case.post("/runs", {**RUN, "context": {"dump": "x" * 100_000}})

    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] == "/context"
    assert case.get("/runs").json["total"] == 0


def test_such_a_run_calls_back_only_where_it_may(case: Case) -> None:
    answer = case.post("/runs", {**RUN, "callbackUrl": "http://127.0.0.1/"})

    assert answer.json["errors"][0]["pointer"] == "/callbackUrl"


# What it costs those who have no model

_IMPORTED = """
import sys
import fakeredis
from api_kit import Site, make_desk
server = fakeredis.FakeServer()
lab, _ = make_desk(server)
site = Site(lab, server)
asked = site.post("/investigations", {"question": "x"})
answers = [site.get("/state"), site.get("/investigations"), asked]
print([answer.status_code for answer in answers])
theirs = ("boyd.llm", "boyd.runtime.investigations", "httpx2", "jsonschema")
print(sorted(name for name in sys.modules if name.startswith(theirs)))
"""


@pytest.mark.long
def test_without_a_model_nothing_of_it_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )

    assert done.stdout.splitlines() == ["[200, 200, 409]", "[]"]


@pytest.fixture
def past_id(case: Case, tmp_path: Path) -> Iterator[str]:
    """The id of an answered investigation that only the archive has."""
    with only_archived(case, case.asked(), tmp_path) as id:
        yield id


@pytest.mark.parametrize(("path", "body"), [("/messages", {"text": "And now?"}), ("/cancel", None)])
def test_an_archived_investigation_has_ended_for_good(
    case: Case, past_id: str, path: str, body: Any
) -> None:
    assert case.get(f"/investigations/{past_id}").json["ending"] == "final_answer"
    answer = case.post(f"/investigations/{past_id}{path}", body)

    assert (answer.status_code, answer.json["type"]) == (409, "/problems/finished")
    assert "only the archive has it" in answer.json["detail"]


def test_the_events_of_an_archived_investigation_are_those_of_its_log(
    case: Case, past_id: str
) -> None:
    logged = case.get(f"/investigations/{past_id}/log").json["entries"]
    events = [block for block in case.stream(past_id).rest() if "id" in block]
    resumed = case.stream(past_id, **{"Last-Event-ID": logged[1]["id"]}).rest()

    assert [event["id"] for event in events] == [entry["id"] for entry in logged]
    assert "missed" not in [block.get("event") for block in resumed]
    assert [block["id"] for block in resumed if "id" in block] == [e["id"] for e in logged[2:]]
