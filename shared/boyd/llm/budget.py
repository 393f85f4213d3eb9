"""What an investigation may still use up (G7, T5)."""

from __future__ import annotations

from dataclasses import dataclass

from boyd.formatting import dollars
from boyd.llm.conversation import Conversation
from boyd.models.investigation import Ending, Limits, Usage, Wanted
from boyd.settings.model import Prices

#: The share of a limit at which those who watch are told.
WARN = 0.8
#: Of the time, what is kept for a conclusion at least: a share of it, and at most so many seconds.
_SHARE = 0.05
_LEAST = 15.0
#: Why nothing is asked for whoever limits the money of an agent whose model has no prices.
UNPRICED = "limits.max_cost was asked for and could not be kept: the agent's llm.prices are not set"


@dataclass(frozen=True)
class Spent:
    """How much of one limit is used up.

    Attributes:
        what: the limit.
        used: of it until now.
        limit: how much may be used.
        unit: as people say it.
        ending: what an investigation ends with that has used it up.
        turn: how much another turn will use, about.
    """

    what: str
    used: float
    limit: float
    unit: str
    ending: Ending = "budget_exhausted"
    turn: float = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.used >= self.limit

    @property
    def near(self) -> bool:
        """Whether little is left; of steps and calls the last one is told to the model itself."""
        told = self.counts_calls and (self.over or self.last)
        return self.used >= WARN * self.limit and not told

    @property
    def last(self) -> bool:
        """Whether one more turn may be asked for, and after it none."""
        if self.what == "tool_calls":
            return self.over  # a conclusion needs none
        return not self.over and self.used + 2 * self.turn > self.limit

    @property
    def stops_turns(self) -> bool:
        """Whether no turn may be asked for."""
        return self.over and self.what != "tool_calls"

    @property
    def stops_calls(self) -> bool:
        """Whether what the last turn has asked for is not made any more.

        What the last step has asked for belongs to it, and what a turn has cost is paid already.
        """
        return self.over and self.what in ("seconds", "tool_calls")

    @property
    def counts_calls(self) -> bool:
        """Whether it counts steps or calls."""
        return self.what in ("steps", "tool_calls")

    def __str__(self) -> str:
        if self.what == "cost":
            return f"{dollars(self.used)} of {dollars(self.limit)} are used up"
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
    turn = max(conversation.longest_turn / 1000, min(limits.max_seconds * _SHARE, _LEAST))
    last = conversation.turns[-1].usage if conversation.turns else Usage()
    found = [
        Spent("seconds", round(seconds, 1), limits.max_seconds, "seconds", "deadline", turn),
        Spent("tool_calls", used.tool_calls, limits.max_tool_calls, "tool calls"),
    ]
    steps = Spent("steps", used.steps, limits.max_steps, "steps", "max_steps", 1)
    return [*found, *spent_on(used.usage, limits, prices, last), steps]


def spent_on(
    usage: Usage,
    limits: Limits,
    prices: Prices,
    turn: Usage = Usage(),  # noqa: B008 - it is frozen
) -> list[Spent]:
    """How much of the limits on tokens and money so much *usage* is; *turn* is that of one turn."""
    found = []
    if limits.max_tokens is not None:
        used, more = _tokens(usage), _tokens(turn)
        found.append(Spent("tokens", used, limits.max_tokens, "tokens", turn=more))
    if limits.max_cost is not None:
        used_up, costs = cost(usage, prices), cost(turn, prices)
        found.append(Spent("cost", used_up, limits.max_cost, "money", turn=costs))
    return found


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
