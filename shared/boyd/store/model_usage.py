"""Requests, tokens and cost of an agent's model, added up."""

from __future__ import annotations

from collections.abc import Mapping

from boyd.models.investigation import ModelTotals, RequestOutcome, Usage
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts

#: The most fields of totals; models beyond that count as `OTHERS`.
ROOM = 100
#: The name for models beyond `ROOM`, and the most characters of a model's name.
OTHERS = "(others)"
LONGEST = 100
#: The field for the last time when a tool call came as text.
SPOKEN = "spoken at"
#: The most tokens to count for one request, because a broken server may report any number.
MOST_TOTALS = 10**9
#: The most to count for one request, in the currency of the prices.
MOST_COST = 1e6


class ModelUsage:
    """The running totals of one agent's model."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._key = keys.usage

    def count(self, model: str, outcome: RequestOutcome, usage: Usage, cost: float = 0.0) -> None:
        """Count a request to *model* with its outcome, tokens and cost."""
        tokens = [min(MOST_TOTALS, number) for number in (usage.input_tokens, usage.output_tokens)]
        self._scripts.run(
            "count_model_request",
            model=model[:LONGEST],
            others=OTHERS,
            room=ROOM,
            outcome=outcome,
            input=tokens[0],
            output=tokens[1],
            price=round(min(MOST_COST, cost) * 1e6),
        )

    def note_text_call(self, at: int) -> None:
        """Record that a tool call came as text, *at* a time in milliseconds since the epoch."""
        with translate_errors():
            self._client.hset(self._key, SPOKEN, at)


def read_totals(fields: Mapping[str, str]) -> ModelTotals:
    """The totals in a hash; unknown ones of a later release are ignored."""
    totals = ModelTotals(spoken_at=_seconds(fields.get(SPOKEN)))
    for name, number in fields.items():
        kind, _, rest = name.partition(" ")
        label, _, model = rest.partition(" ")
        if kind == "tokens":
            totals.tokens[model, label] = int(number)
        elif kind == "requests":
            totals.requests[model, label] = int(number)
        elif kind == "price":
            totals.cost[rest] = int(number) / 1e6
        elif kind == "ended":
            totals.ended[label] = int(number)
    return totals


def _seconds(ms: str | None) -> float | None:
    return int(ms) / 1000 if ms else None
