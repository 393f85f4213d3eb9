"""The dashboards for Grafana, as tests read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
#: What Grafana puts in place of its own variables; the others come from the dashboard.
BUILT_IN = {"__rate_interval": "10s", "__range": "2m"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

Panel = dict[str, Any]


def dashboards() -> dict[str, Any]:
    """Every dashboard by the name of its file."""
    return {
        path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))
    }


def panels(dashboard: Any) -> list[Panel]:
    """Its panels that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def variables(dashboard: Any) -> dict[str, Any]:
    """Its variables by name."""
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def variables_in(text: str) -> set[str]:
    """The variables in a text."""
    return {match[1] or match[2] for match in _VARIABLE.finditer(text)}


def fill(expr: str, values: dict[str, str]) -> str:
    """An expression with values in place of its variables."""
    return _VARIABLE.sub(lambda match: (BUILT_IN | values)[match[1] or match[2]], expr)


def queries() -> Iterator[tuple[str, Panel]]:
    """The queries of all panels, each with the place where it is."""
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}: {target['expr']}", target


def legend_labels(target: Panel) -> set[str]:
    """The labels that the legend of a query names."""
    return set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))


def expressions(dashboard: Any) -> list[tuple[str, str]]:
    """The queries of a dashboard: the title of a panel or annotation, and the expression."""
    expressions_asked = [
        (p["title"], target["expr"]) for p in panels(dashboard) for target in p["targets"]
    ]
    return expressions_asked + [
        (annotation["name"], annotation["expr"]) for annotation in dashboard["annotations"]["list"]
    ]
