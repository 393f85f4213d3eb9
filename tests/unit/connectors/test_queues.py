"""Queues: what is reported of them, and what is refused, whatever server keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import ActionResult
from boyd_connectors.message_queues.message_queue import (
    ChangeLost,
    MessageQueue,
    QueueError,
    excerpt,
)
from boyd_connectors.message_queues.plugin import Queues
from plugin_kit import Rig, site


class Server:
    """Queues in memory."""

    def __init__(self, *queues: MessageQueue) -> None:
        self.found = list(queues)
        self.error: Exception | None = None
        self.purged: list[str] = []

    def queues(self, ctx: object) -> list[MessageQueue]:
        return self.found

    def samples(self, queue: str, number: int, ctx: object) -> list[str]:
        return ["sample"] * number

    def check_purge(self, queue: str) -> None: ...

    def purge(self, queue: str, ctx: object) -> int | None:
        self.purged.append(queue)
        if self.error:
            raise self.error
        return None


def rig(server: Server, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Rig:
    plugin = Queues(redis={"lists": ["a"]}, actions={"purge": {}}, **{"samples": 1, **more})
    monkeypatch.setattr(plugin, "_server", lambda action=None: server)
    return Rig(plugin)


def alarms(rig: Rig) -> set[str]:
    observations = rig.observe()
    return {
        f"{observation.source}:{observation.data['queue']}"
        for observation in observations
        if observation.severity != "info"
    }


def test_only_queues_that_the_patterns_choose_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(*(MessageQueue(name, 9, consumers=0) for name in ("a.1", "a.2", "b.1")))
    watching = rig(server, monkeypatch, include=["a.*"], exclude=["*.2"])
    assert alarms(watching) == {"queues/no-consumer:a.1"}


def test_a_queue_that_is_down_does_not_look_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as server:
        item = {"name": "a", "vhost": "/", "state": "down"}
        server.body = json.dumps({"items": [item], "page_count": 1}).encode()
        assert alarms(Rig(Queues(rabbitmq={"url": server.url}, samples=1))) == {"queues/down:a"}
        server.body = json.dumps({"items": [], "page_count": 21}).encode()
        watching = Rig(Queues(rabbitmq={"url": server.url}))
        assert "more than 10000 queues" in str(watching.observe()[0].data["error"])


def test_an_alarm_goes_on_when_a_queue_is_no_longer_down(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    watching = rig(server, monkeypatch, samples=2, max_depth=10)
    reports = []
    for queue in (10, 10, "down", 9):
        depth, state = (queue, "") if isinstance(queue, int) else (0, queue)
        server.found = [MessageQueue("a", depth, down=state)]
        reports.append(alarms(watching))

    assert reports == [set(), {"queues/depth:a"}, set(), {"queues/depth:a"}]


def test_messages_are_as_old_as_the_clock_of_redis_says() -> None:
    with site() as server:
        watching = Rig(Queues(rabbitmq={"url": server.url}, samples=1, max_age=600))
        sent_at = watching.clock.time.timestamp()
        item = {"name": "a", "vhost": "/", "messages_ready": 1, "consumers": 1}
        item["head_message_timestamp"] = sent_at
        server.body = json.dumps({"items": [item], "page_count": 1}).encode()
        assert alarms(watching) == set()
        watching.clock.forward(900)
        assert alarms(watching) == {"queues/age:a"}


def test_a_queue_that_is_worked_on_keeps_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(MessageQueue("a", 5, head="x"))
    watching = rig(server, monkeypatch, max_age=60)
    watching.observe()
    for head in ("y", "z"):
        server.found = [MessageQueue("a", 5, head=head)]
        watching.clock.forward(50)
        assert alarms(watching) == set()
    watching.clock.forward(60)
    assert alarms(watching) == {"queues/age:a"}


def test_growth_is_that_of_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(MessageQueue("a", 10))
    watching = rig(server, monkeypatch, max_growth=20)
    watching.observe()
    watching.clock.forward(30)
    server.found = [MessageQueue("a", 19)]
    assert alarms(watching) == set()
    watching.clock.forward(30)
    server.found = [MessageQueue("a", 29)]
    assert alarms(watching) == {"queues/growth:a"}


def test_a_purge_of_more_than_was_agreed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(MessageQueue("a", 10))
    purging = rig(server, monkeypatch, sample_messages=2)
    with pytest.raises(QueueError, match="a has 10 messages, more than 9: none was deleted"):
        purging.act("purge", {"queue": "a", "at_most": 9})
    assert purging.act("purge", {"queue": "a", "at_most": 10}, "dry_run") == {
        "would delete messages": 10,
        "samples": ["sample", "sample"],
    }
    assert server.purged == []


def test_a_purge_without_an_answer_is_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(MessageQueue("a", 10))
    server.error = ChangeLost("gone")
    result = rig(server, monkeypatch).act("purge", {"queue": "a", "at_most": 10})
    assert isinstance(result, ActionResult)
    assert (result.unknown, result.error) == (True, "gone; it may have taken effect")


def test_only_a_person_may_purge() -> None:
    host = Rig(Queues(redis={}, actions={"purge": {}})).host
    action = host.actions["queues:purge"]
    assert (action.autonomy.mode, action.reversibility) == ("human-only", "irreversible")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"redis": {}, "rabbitmq": {"url": "http://a"}},
        {"rabbitmq": {"url": "http://a"}, "actions": {"requeue": {}}},
        {"redis": {}, "access": {"username": "ann"}},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PluginError):
        Queues(**options)


def test_a_long_message_is_cut() -> None:
    assert excerpt(b"a" * 201) == "a" * 200 + "…"
