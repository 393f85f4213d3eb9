"""The storm agents as a later release would run them: everything that it writes says more."""

from __future__ import annotations

from typing import Any

from agents.storm import storm0, storm1
from boyd.models import Model

__all__ = ["storm0", "storm1"]

_to_json, _to_wire = Model.to_json, Model.to_wire


def _more_json(self: Model) -> str:
    text = _to_json(self)
    return text if text == "{}" else f'{text[:-1]},"fromTheFuture":{{"kind":"x"}}}}'


def _more_wire(self: Model) -> dict[str, Any]:
    return {**_to_wire(self), "fromTheFuture": {"kind": "x"}}


Model.to_json = _more_json  # type: ignore[method-assign]
Model.to_wire = _more_wire  # type: ignore[method-assign]
