"""The dashboards for Grafana: their shape, and what they ask Prometheus."""

from __future__ import annotations

import itertools
import re
from typing import Any

import promql_parser
import pytest
import yaml

from dashboard_kit import (
    BUILT_IN,
    FOLDER,
    dashboards,
    expressions,
    fill,
    legend_labels,
    panels,
    queries,
    variables,
    variables_in,
)
from deploy_kit import DEPLOY
from reference import generate

DASHBOARDS = dashboards()
#: Metrics that Prometheus itself has.
PROMETHEUS = {"up", "ALERTS"}
VALUES = {"datasource": "p", "job": "boyd", "agent": "shop"}
BY = re.compile(r"by \(([\w, ]+)\)")
every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))


def selectors(expr: str) -> list[tuple[str, set[str]]]:
    """The metrics in an expression, each with the labels that it is matched by."""
    pairs = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            pairs.append((str(node.name), {matcher.name for matcher in node.matchers.matchers}))
        return True

    promql_parser.walk(promql_parser.parse(expr), visit)
    assert pairs
    return pairs


def test_there_is_one_dashboard_for_each_question() -> None:
    assert set(DASHBOARDS) == {"boyd-agent", "boyd-approvals", "boyd-deployment", "boyd-models"}
    for name, dashboard in DASHBOARDS.items():
        assert dashboard["uid"] == name
        # What Grafana 10 to 12 read without converting it first.
        assert 39 <= dashboard["schemaVersion"] <= 41


@every_dashboard
def test_panels_have_ids_titles_descriptions_and_units(dashboard: Any) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]

    assert len(set(ids)) == len(ids)
    assert dashboard["description"]
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters))
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles)


@every_dashboard
def test_no_panel_lies_on_another_or_outside(dashboard: Any) -> None:
    titles: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x, y in itertools.product(range(place["w"]), range(place["h"])):
            cell = (place["x"] + x, place["y"] + y)
            assert cell not in titles, f"{panel['title']} lies on {titles[cell]}"
            titles[cell] = panel["title"]
    rows = {y for _, y in titles}
    assert rows == set(range(max(rows) + 1))


@every_dashboard
def test_a_variable_is_defined_exactly_if_it_is_used(dashboard: Any) -> None:
    variables_defined = variables(dashboard)
    texts = [expr for _, expr in expressions(dashboard)]
    queries = [
        variable["query"]["query"]
        for variable in variables_defined.values()
        if variable["type"] == "query"
    ]

    names_used = set().union(*map(variables_in, [*texts, *queries]), {"datasource"})
    assert names_used - set(BUILT_IN) == set(variables_defined)
    if variables_defined.get("agent", {}).get("multi"):
        assert not [expr for expr in texts if 'agent="$agent"' in expr]


@every_dashboard
def test_expressions_rest_on_metrics_and_labels_that_exist(dashboard: Any) -> None:
    metrics = generate.families()
    for title, expr in expressions(dashboard):
        for name, labels in selectors(fill(expr, VALUES)):
            if name in PROMETHEUS:
                continue
            family = name.removesuffix("_bucket")
            assert family in metrics, title
            labels_known = {"job", *filter(None, metrics[family][0].split(", "))}
            assert "job" in labels, title
            assert labels <= labels_known, title


@every_dashboard
def test_an_agent_is_chosen_wherever_there_is_one_to_choose(dashboard: Any) -> None:
    if "agent" not in variables(dashboard):
        return
    for title, expr in expressions(dashboard):
        for _, labels in selectors(fill(expr, VALUES)):
            assert "agent" in labels, title


def test_legends_name_labels_that_the_expression_keeps() -> None:
    for place, target in queries():
        kept_labels = {
            label for clause in BY.findall(target["expr"]) for label in clause.split(", ")
        }
        assert legend_labels(target) <= kept_labels, place


def test_grafana_provisions_the_dashboards_from_the_documented_folder() -> None:
    provisioning = yaml.safe_load((FOLDER / "provisioning" / "boyd.yml").read_text("utf-8"))
    (provider,) = provisioning["providers"]

    assert provider["type"] == "file"
    operations = (DEPLOY.parent / "docs" / "operations.md").read_text("utf-8")
    assert provider["options"]["path"] in operations
