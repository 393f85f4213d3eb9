"""The report of a run of the benchmarks."""

from __future__ import annotations

from typing import Any


class Report:
    """Rows of measure, value and target."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, value: float, unit: str, target: str, met: bool | None) -> None:
        """Add a row and print it."""
        self.rows.append({"name": name, "value": value, "unit": unit, "target": target, "met": met})
        mark = {True: "met", False: "NOT MET", None: ""}[met]
        print(f"{name:58} {value:9.3g} {unit:10} {target:22} {mark}", flush=True)

    def most(self, name: str, value: float, unit: str, limit: float) -> None:
        """Add a row whose value may be at most that large."""
        self.add(name, value, unit, f"<= {limit:g}", value <= limit)

    def least(self, name: str, value: float, unit: str, limit: float) -> None:
        """Add a row whose value has to be at least that large."""
        self.add(name, value, unit, f">= {limit:g}", value >= limit)

    def compare(self, name: str, value: float, expected: float, unit: str, factor: float) -> None:
        """Add a row whose value may differ from the expected one by that factor."""
        met = expected / factor <= value <= expected * factor
        self.add(name, value, unit, f"{expected:.3g}, x {factor:g}", met)

    def tell(self, name: str, value: float, unit: str) -> None:
        """Add a row that has no target."""
        self.add(name, value, unit, "", None)

    def miss(self, name: str, reason: str) -> None:
        """Say that something is not measured."""
        print(f"{name:58} not measured: {reason}", flush=True)
