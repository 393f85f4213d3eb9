"""What an agent's model was asked, and how its investigations ended: running totals (G7).

One hash for each agent, kept as long as the agent. Its fields are the kind of a total, what is
counted, and the model, apart by spaces: `tokens input qwen3:8b`, `requests failed qwen3:8b`,
`ended final_answer`. It has room for some models; whatever more there are counts as one. `spoken
at` is when the model's server last passed a tool call on as text.
"""

from __future__ import annotations

from collections.abc import Mapping

from boyd.models.investigation import RequestOutcome, Usage
from boyd.store.client import Client, translated
from boyd.store.keys import Keys
from boyd.store.scripts import Scripts
from boyd.store.vitals import ModelTotals

#: How many fields there may be before another model finds no room.
ROOM = 100
#: What models count as that found none, and characters of a name that are kept.
OTHERS = "(others)"
LONGEST = 100
#: When a tool call last came as text.
SPOKEN = "spoken at"
#: Tokens that one request may have used: what a broken server claims must not end all counting.
MOST = 10**9


class ModelUsage:
    """The totals of one agent."""

    def __init__(self, client: Client, scripts: Scripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._key = keys.usage

    def count(self, model: str, outcome: RequestOutcome, usage: Usage) -> None:
        """Count a request to *model* that ended so."""
        tokens = [min(MOST, number) for number in (usage.input_tokens, usage.output_tokens)]
        args = [model[:LONGEST], OTHERS, ROOM, outcome, *tokens]
        self._scripts.run("count_request", [self._key], args)

    def spoken(self, at: int) -> None:
        """Note that a tool call came as text, *at* so many milliseconds since the epoch."""
        with translated():
            self._client.hset(self._key, SPOKEN, at)


def read_totals(fields: Mapping[str, str]) -> ModelTotals:
    """The totals that a hash holds; what a later release counts besides is passed over."""
    found = ModelTotals(spoken_at=_seconds(fields.get(SPOKEN)))
    for field, number in fields.items():
        kind, _, rest = field.partition(" ")
        what, _, model = rest.partition(" ")
        if kind == "tokens":
            found.tokens[model, what] = int(number)
        elif kind == "requests":
            found.requests[model, what] = int(number)
        elif kind == "ended":
            found.ended[what] = int(number)
    return found


def _seconds(ms: str | None) -> float | None:
    return int(ms) / 1000 if ms else None
