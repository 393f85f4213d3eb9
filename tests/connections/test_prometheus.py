"""The plugin `prometheus` with a real Prometheus and a real Alertmanager."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from alertmanager_kit import Alertmanager, alertmanager
from boyd.plugins.http_service import ServiceError, StateError
from boyd_connectors.prometheus import Prometheus
from connection_kit import UpAgent
from harness import free_port, wait_until
from plugin_kit import Rig, Site, data_by_kind, site
from prometheus_kit import PrometheusServer

pytestmark = [pytest.mark.real, pytest.mark.long]

QUEUE = {"name": "queue", "expr": "queue_length", "above": 50, "clear": 20, "samples": 1}
ALERT = {"matchers": 'alertname="QueueLong"'}

AGENT = """
id = "connected"
mode = "continuous"
loop_interval = 1
[[plugins]]
use = "prometheus"
[plugins.options]
url = "{url}"
alertmanager_url = "{alertmanager_url}"
interval = 1
timeout = 5
[plugins.options.actions.silence]
[plugins.options.actions.expire_silence]
"""


class Shop:
    """A service with a queue, watched by a Prometheus that alerts through an Alertmanager."""

    def __init__(self, service: Site, manager: Alertmanager, server: PrometheusServer) -> None:
        self.service = service
        self.manager = manager
        self.server = server

    def queue(self, length: int) -> None:
        """Set the length of the queue, and wait until Prometheus knows."""
        self.service.body = f"queue_length {length}\n".encode()
        wait_until(lambda: [sample["value"][1] for sample in self.series()] == [str(length)])

    def series(self) -> list[Any]:
        return self.server.query("queue_length")

    def alerts(self) -> list[str]:
        """The alerts that Alertmanager would tell people of."""
        filters = {"active": "true", "silenced": "false", "inhibited": "false"}
        body = requests.get(f"{self.manager.url}/api/v2/alerts", params=filters, timeout=30).json()
        return [alert["labels"]["alertname"] for alert in body]

    def plugin(self, *actions: str) -> Prometheus:
        return Prometheus(
            url=self.server.url,
            alertmanager_url=self.manager.url,
            queries=[QUEUE],
            target_samples=1,
            timeout=10,
            actions={name: {} for name in actions},
        )


@pytest.fixture(scope="module")
def running_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with site() as service, alertmanager(folder, "http://127.0.0.1:9/", "key") as manager:
        service.body = b"queue_length 0\n"
        service.headers = {"Content-Type": "text/plain; version=0.0.4"}
        target = service.url.removeprefix("http://")
        with PrometheusServer(folder, [target], manager.url) as server:
            yield Shop(service, manager, server)


@pytest.fixture
def shop(running_shop: Shop) -> Shop:
    running_shop.service.status = 200
    wait_until(lambda: running_shop.server.query("up == 1"))
    running_shop.queue(0)
    wait_until(lambda: not running_shop.alerts(), 60)
    return running_shop


def test_a_series_is_in_trouble_until_it_is_below_the_lower_threshold(shop: Shop) -> None:
    rig = Rig(shop.plugin())
    assert "query" not in data_by_kind(rig.observe())
    shop.queue(60)
    [row] = data_by_kind(rig.observe())["query"]
    assert row["query"], row["above"] == ("queue", 50)
    assert (row["value"], row["labels"]["job"]) == (60, "shop")
    shop.queue(30)
    assert "query" in data_by_kind(rig.observe())
    shop.queue(10)
    assert "query" not in data_by_kind(rig.observe())


def test_a_target_that_cannot_be_scraped_is_observed_until_it_is_back(shop: Shop) -> None:
    rig = Rig(shop.plugin())
    assert data_by_kind(rig.observe())["targets"] == [{"targets": 1, "down": 0, "omitted": 0}]
    shop.service.status = 500
    wait_until(lambda: shop.server.query("up == 0"))
    [down] = data_by_kind(rig.observe())["target"]
    assert down["job"] == "shop"
    assert "500" in down["error"]
    shop.service.status = 200
    wait_until(lambda: "target" not in data_by_kind(rig.observe()))


def test_the_tools_query_what_prometheus_knows(shop: Shop) -> None:
    rig = Rig(shop.plugin())
    rig.clock.time = datetime.now(UTC)

    def ask(name: str, **params: Any) -> Any:
        tool = rig.host.tools[f"prometheus:{name}"]
        assert tool.params is not None
        return tool.call("run", params=tool.params.model_validate(params), ctx=rig.ctx)

    [sample_series] = ask("query", expr="queue_length")["series"]
    assert (sample_series["labels"]["job"], sample_series["value"]) == ("shop", "0")
    [series] = ask("query_range", expr="vector(1)", seconds=86_400)["series"]
    assert series["values"] == [1.0] * 60
    with pytest.raises(ServiceError, match="parse error"):
        ask("query", expr="sum(")


@pytest.fixture(scope="module")
def agent(running_shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpAgent]:
    text = AGENT.format(url=running_shop.server.url, alertmanager_url=running_shop.manager.url)
    with UpAgent(tmp_path_factory.mktemp("agent"), text) as running:
        yield running


def test_an_alert_is_silenced_with_approval_verified_and_undone(shop: Shop, agent: UpAgent) -> None:
    shop.queue(200)
    alert = agent.observed("prometheus/alert")
    assert alert["summary"] == "the queue is long"
    silence_request = {"matchers": alert["matchers"], "duration": 600, "comment": "known"}

    assert agent.preview("prometheus:silence", **silence_request)["output"]["silences"] == [
        "QueueLong"
    ]
    assert shop.alerts() == ["QueueLong"]
    item, silence = agent.perform("prometheus:silence", **silence_request)
    assert "+comment: known" in item["preview"]["output"]["difference"]
    assert silence["result"]["output"]["silenced"] == ["QueueLong"]
    assert agent.verified(silence)["verdict"] == "effective"
    assert shop.alerts() == []

    assert agent.undo(silence)["state"] == "succeeded"
    wait_until(shop.alerts)


def test_a_silence_is_expired_and_made_again(shop: Shop, agent: UpAgent) -> None:
    shop.queue(200)
    wait_until(shop.alerts, 60)
    _, silence = agent.perform("prometheus:silence", **ALERT)
    params = {"silenceId": silence["result"]["output"]["silenceId"]}
    assert shop.alerts() == []

    _, expired = agent.perform("prometheus:expire_silence", **params)
    assert agent.verified(expired)["verdict"] == "effective"
    wait_until(shop.alerts)
    assert "has expired already" in agent.preview("prometheus:expire_silence", **params)["error"]

    assert agent.undo(expired)["state"] == "succeeded"
    wait_until(lambda: not shop.alerts())


def test_values_with_control_characters_are_matched(shop: Shop) -> None:
    rig = Rig(shop.plugin("silence"))
    rig.clock.time = datetime.now(UTC)
    shop.manager.fire("Odd", path='a\t"b"\\')
    params = {"matchers": r'alertname="Odd",path="a\t\"b\"\\"'}
    wait_until(lambda: rig.act("silence", params, "dry_run")["silences"] == ["Odd"])
    rig.act("silence", params)
    wait_until(lambda: rig.act("silence", params, "verify").verdict == "effective")
    assert "Odd" not in shop.alerts()


def test_a_silence_that_somebody_has_extended_is_left_alone(shop: Shop) -> None:
    rig = Rig(shop.plugin("silence", "expire_silence"))
    rig.clock.time = datetime.now(UTC)
    params = {"matchers": 'alertname="Extended"'}
    output = rig.act("silence", params)
    url = f"{shop.manager.url}/api/v2/silence"
    body = requests.get(f"{url}/{output['silenceId']}", timeout=30).json()
    later = (rig.clock.time + timedelta(hours=2)).isoformat()
    mine = {key: body[key] for key in ("id", "matchers", "startsAt", "comment")}
    requests.post(f"{url}s", json={**mine, "endsAt": later, "createdBy": "ann"}, timeout=30)
    with pytest.raises(StateError, match="ann has changed"):
        rig.roll_back("silence", params, output)


def test_a_silence_that_had_not_begun_begins_in_time_when_it_is_made_again(shop: Shop) -> None:
    rig = Rig(shop.plugin("expire_silence"))
    rig.clock.time = datetime.now(UTC)
    url, hour = f"{shop.manager.url}/api/v2/silence", timedelta(hours=1)
    begin, end = ((rig.clock.time + n * hour).isoformat() for n in (1, 2))
    body = requests.post(
        f"{url}s",
        json={
            "matchers": [{"name": "a", "value": "b", "isRegex": False}],
            "startsAt": begin,
            "endsAt": end,
            "createdBy": "ann",
            "comment": "upgrade",
        },
        timeout=30,
    ).json()
    params = {"silenceId": body["silenceID"]}
    again = rig.roll_back("expire_silence", params, rig.act("expire_silence", params))
    state = requests.get(f"{url}/{again['silenceId']}", timeout=30).json()
    assert state["status"]["state"] == "pending"


def test_an_alertmanager_killed_midway_leaves_a_true_record(shop: Shop, agent: UpAgent) -> None:
    matchers = 'alertname="Other"'
    called = agent.ask(
        "POST", "/actions/prometheus:silence?wait=60", {"params": {"matchers": matchers}}
    )

    # While it is stopped, it takes the request and gives no answer.
    shop.manager.send(signal.SIGSTOP)
    agent.ask("POST", f"/approvals/{called['approvalId']}/approve?wait=0", {})
    execution = f"/executions/{agent.wait_until_running(called)}"
    shop.manager.send(signal.SIGKILL)
    wait_until(lambda: agent.ask("GET", execution)["state"] != "running")
    execution_after = agent.ask("GET", execution)
    assert execution_after["state"] == "unknown" or "refused" in execution_after["result"]["error"]
    assert "cannot be reached" in execution_after["result"]["error"]
    assert "cannot be reached" in agent.observer_error("prometheus:alerts")

    shop.manager.start()
    _, again = agent.perform("prometheus:silence", matchers=matchers, comment="again")
    assert agent.verified(again)["verdict"] == "effective"
    agent.observed("prometheus/alerts")


def test_a_silence_cannot_be_verified_without_alertmanager(shop: Shop) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    options = {"url": shop.server.url, "alertmanager_url": nowhere, "actions": {"silence": {}}}
    with pytest.raises(ServiceError, match="cannot be reached"):
        Rig(Prometheus(**options)).act("silence", ALERT, "verify")
