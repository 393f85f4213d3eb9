"""What an investigation may still use up (G7, T5)."""

from __future__ import annotations

from dataclasses import dataclass

from boyd.llm.conversation import Conversation
from boyd.model_settings import Prices
from boyd.models.investigation import Ending, Limits, Usage, Wanted

#: The share of a limit at which those who watch are told.
WARN = 0.8
#: Why nothing is asked for whoever limits the money of an agent whose model has no prices.
UNPRICED = "limits.max_cost was asked for and could not be kept: the agent's llm.prices are not set"


@dataclass(frozen=True)
class Spent:
    """How much of one limit is used up; `unit` as people say it."""

    what: str
    used: float
    limit: float
    unit: str
    ending: Ending = "budget_exhausted"

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.used >= self.limit

    @property
    def near(self) -> bool:
        """Whether little is left."""
        return self.used >= WARN * self.limit

    def __str__(self) -> str:
        return f"{self.used:g} of {self.limit:g} {self.unit} are used up"


def within(wanted: Wanted, allowed: Limits) -> Limits:
    """The limits that were asked for, as far as they are allowed."""
    least: dict[str, float | None] = {}
    for name in Limits.model_fields:
        both = (getattr(wanted, name), getattr(allowed, name))
        least[name] = min((one for one in both if one is not None), default=None)
    return Limits.model_validate(least)


def cost(usage: Usage, prices: Prices) -> float:
    """What so many tokens cost."""
    spent = usage.input_tokens * prices.input + usage.output_tokens * prices.output
    return round(spent / 1e6, 9)


def spent(conversation: Conversation, limits: Limits, prices: Prices, now: int) -> list[Spent]:
    """How much of each limit the last question has used up, at *now* in ms since the epoch.

    Time spent waiting for people does not count. Steps come last: of several limits that are
    reached, any other says more.
    """
    used = conversation.used
    seconds = (now - conversation.asked_at - conversation.waited) / 1000
    found = [
        Spent("seconds", round(seconds, 1), limits.max_seconds, "seconds", "deadline"),
        Spent("tool_calls", used.tool_calls, limits.max_tool_calls, "tool calls"),
    ]
    steps = Spent("steps", used.steps, limits.max_steps, "steps", "max_steps")
    return [*found, *spent_on(used.usage, limits, prices), steps]


def spent_on(usage: Usage, limits: Limits, prices: Prices) -> list[Spent]:
    """How much of the limits on tokens and money so much *usage* is."""
    found = []
    if limits.max_tokens is not None:
        tokens = usage.input_tokens + usage.output_tokens
        found.append(Spent("tokens", tokens, limits.max_tokens, "tokens"))
    if limits.max_cost is not None:
        found.append(Spent("cost", cost(usage, prices), limits.max_cost, "of the money"))
    return found
