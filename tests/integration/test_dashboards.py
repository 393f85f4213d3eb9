"""A real Prometheus scrapes a real Boyd at work, and answers every panel of the dashboards."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from agents.measured import ASKING
from archive_kit import sqlite
from boyd.models import Actor
from boyd.models.investigation import InvestigationRequest
from boyd.store import Retention
from boyd.testing.model_server import ScriptedModel, call, say
from connection_kit import program
from dashboard_kit import dashboards, fill, legend_labels, queries, variables
from deploy_kit import DEPLOY
from harness import Deployment, wait_until
from kit import person
from plugin_kit import site
from prometheus_kit import PrometheusServer

pytestmark = [pytest.mark.real, pytest.mark.long]

MODULE = "agents.measured:agent"
ALERTS = DEPLOY / "prometheus" / "boyd-alerts.yml"
#: What panels of the chosen agent ask for.
VALUES = {"datasource": "p", "job": "boyd", "agent": "measured"}


def labels_of_series(server: PrometheusServer, target: dict[str, Any]) -> list[dict[str, str]]:
    """The labels of each series that a panel would draw of a query."""
    expr = fill(target["expr"], VALUES)
    if target.get("instant"):
        result = server.query(expr)
        return [series["metric"] for series in result if math.isfinite(float(series["value"][1]))]
    now = time.time()
    result = server.get("query_range", query=expr, start=now - 60, end=now, step=1)["result"]
    return [
        series["metric"]
        for series in result
        if any(math.isfinite(float(number)) for _, number in series["values"])
    ]


@pytest.fixture
def boyd(deployment: Deployment) -> Iterator[str]:
    """The URL of the API of a Boyd that observes, acts, asks and archives."""
    client = deployment.store.client
    client.config_set("maxmemory", "1gb")
    model = ScriptedModel([call("meter:look", {}), say("It is well.")] * 3, forever=True)
    with model, site() as chat:
        deployment.environment |= {
            "MODEL_URL": f"{model.url}/v1",
            "NOTIFIED": chat.url,
            "BOYD_ARCHIVE_URL": sqlite(deployment.folder),
        }
        deployment.worker("worker", MODULE)
        deployment.start("archive", "archive", ready=False)
        url = deployment.api("api")
        deployment.beat("beat", MODULE)
        yield url
        client.config_set("maxmemory", "0")


def work(deployment: Deployment, url: str) -> None:
    """Have people answer and ask, and others send what fits and what does not."""
    agent = deployment.agent("measured")
    wait_until(lambda: len(agent.approvals.page(9).pending) == ASKING)
    items = agent.approvals.page(9).pending
    resolver = deployment.resolver("measured")
    resolver.answer(items[0].id, "approved", person("ann"))
    resolver.answer(items[1].id, "denied", person("ann"))
    launcher, headers = deployment.launcher("measured"), deployment.key("ann", "admin")
    ids = [
        launcher.ask(InvestigationRequest(question="Why?"), Actor(principal="ann"), Retention())
        for _ in range(3)
    ]
    sent = [{"source": "test", "type": "event", "data": {}}, {"data": "wrong"}]
    for body in sent:
        requests.post(f"{url}/api/v0/intake/json", json=body, headers=headers, timeout=30)
    wait_until(lambda: {agent.investigations.status(id) for id in ids} == {"ended"})


def empty(server: PrometheusServer) -> list[str]:
    """The queries of panels that would draw nothing."""
    return [place for place, target in queries() if not labels_of_series(server, target)]


def test_every_panel_shows_data_of_a_boyd_at_work(
    deployment: Deployment, boyd: str, tmp_path: Path
) -> None:
    key = tmp_path / "boyd-key"
    key.write_text(deployment.key("prometheus", "read", person=False)["Authorization"].split()[1])
    server = PrometheusServer(
        tmp_path,
        [boyd.removeprefix("http://")],
        job="boyd",
        rules=yaml.safe_load(ALERTS.read_text("utf-8")),
        authorization={"credentials_file": str(key)},
        scrape_interval="500ms",
        scrape_timeout="500ms",
    )
    with server:
        wait_until(lambda: server.query("boyd_up"))
        work(deployment, boyd)
        deadline = time.monotonic() + 120
        while (missing := empty(server)) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert missing == []
        counters_count_what_was_done(server)
        every_series_has_the_labels_of_its_legend(server)
        annotations_mark_what_happened(server, deployment)
        variables_offer_what_there_is(server)
        (group,) = server.get("rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} == {"ok"}


def counters_count_what_was_done(server: PrometheusServer) -> None:
    """Check some numbers, once the audit trail is sealed."""
    for count in (
        'boyd_approvals_resolved_total{status="approved"} == 1',
        'boyd_approvals_resolved_total{status="denied"} == 1',
        'boyd_investigations_ended_total{ending="final_answer"} == 3',
        "round(1000 * boyd_model_cost_total) == 360",
    ):
        wait_until(partial(server.query, count))


def every_series_has_the_labels_of_its_legend(server: PrometheusServer) -> None:
    """Check the legends."""
    for place, target in queries():
        for labels in labels_of_series(server, target):
            assert legend_labels(target) <= set(labels), place


def annotations_mark_what_happened(server: PrometheusServer, deployment: Deployment) -> None:
    """Check the annotations: first actions were executed, then somebody freezes the agent."""
    lists = [dashboard["annotations"]["list"] for dashboard in dashboards().values()]
    for actions, stopped in filter(None, lists):
        assert {"agent": "measured", "state": "succeeded"} in labels_of_series(server, actions)
        assert labels_of_series(server, stopped) == []
    deployment.store.freezes.freeze("for the test", "measured")
    for _, stopped in filter(None, lists):
        wait_until(partial(labels_of_series, server, stopped))


def variables_offer_what_there_is(server: PrometheusServer) -> None:
    """Check the choices of job and agent."""
    for dashboard in dashboards().values():
        for name, variable in variables(dashboard).items():
            if variable["type"] == "query":
                text = fill(variable["query"]["query"], VALUES)
                series, _, label = (
                    text.removeprefix("label_values(").removesuffix(")").rpartition(", ")
                )
                values = server.get(f"label/{label}/values", **{"match[]": series})
                assert values == [VALUES[name]]


def test_the_alerts_are_rules_that_prometheus_takes() -> None:
    command = [program("promtool", "prometheus"), "check", "rules", str(ALERTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
