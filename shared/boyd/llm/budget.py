"""What an investigation may still use up (G7, T5)."""

from __future__ import annotations

from dataclasses import dataclass

from boyd.llm.conversation import Conversation
from boyd.model_settings import Prices
from boyd.models.investigation import Ending, Limits, Usage

#: The share of a limit at which those who watch are told.
WARN = 0.8


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


def cost(usage: Usage, prices: Prices) -> float:
    """What so many tokens cost."""
    spent = usage.input_tokens * prices.input + usage.output_tokens * prices.output
    return round(spent / 1e6, 9)


def spent(conversation: Conversation, limits: Limits, prices: Prices, now: int) -> list[Spent]:
    """How much of each limit the last question has used up, at *now* in ms since the epoch.

    Time spent waiting for people does not count.
    """
    used = conversation.used
    seconds = (now - conversation.asked_at - conversation.waited) / 1000
    tokens = used.usage.input_tokens + used.usage.output_tokens
    found = [
        Spent("steps", used.steps, limits.max_steps, "steps", "max_steps"),
        Spent("seconds", round(seconds, 1), limits.max_seconds, "seconds", "deadline"),
        Spent("tool_calls", used.tool_calls, limits.max_tool_calls, "tool calls"),
    ]
    if limits.max_tokens is not None:
        found.append(Spent("tokens", tokens, limits.max_tokens, "tokens"))
    if limits.max_cost is not None:
        found.append(Spent("cost", cost(used.usage, prices), limits.max_cost, "of the money"))
    return found
