"""The end of an investigation: its limits, the reason it ends, and the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from boyd.llm import synthesis
from boyd.llm.conversation import Conversation
from boyd.llm.model_errors import ModelError, Stopped
from boyd.llm.reply_text import is_substantive
from boyd.llm.toolbox import Toolbox
from boyd.models import JsonObject
from boyd.models.investigation import (
    Discarded,
    Ended,
    Ending,
    Entry,
    Limits,
    Result,
    ToolStatus,
    Usage,
    Wanted,
    call_number,
)
from boyd.settings.model import Prices
from boyd.text.formatting import dollars

#: The share of a limit at which a warning is logged.
WARN = 0.8
#: Time reserved for a conclusion: this share of the limit, at most this many seconds.
_SHARE = 0.05
_RESERVE = 15.0
#: The error for `limits.max_cost` on an agent without prices.
UNPRICED = "limits.max_cost was set but cannot be enforced: the agent has no llm.prices"


@dataclass(frozen=True)
class Spent:
    """Use of one limit.

    Attributes:
        what: the limit.
        unit: unit for people.
        ending: ending of an investigation that exhausts the limit.
        turn: estimated amount for another turn.
    """

    what: str
    used: float
    limit: float
    unit: str
    ending: Ending = "budget_exhausted"
    turn: float = 0.0

    @property
    def over(self) -> bool:
        """Nothing is left."""
        return self.used >= self.limit

    @property
    def near(self) -> bool:
        """A warning is due; the last step or call has a message of its own."""
        has_own_message = self.what in ("steps", "tool_calls") and (self.over or self.last)
        return self.used >= WARN * self.limit and not has_own_message

    @property
    def last(self) -> bool:
        """One more turn is possible, and none after it."""
        if self.what == "tool_calls":
            return self.over  # a conclusion needs none
        return not self.over and self.used + 2 * self.turn > self.limit

    @property
    def stops_turns(self) -> bool:
        """No further turn is allowed."""
        return self.over and self.what != "tool_calls"

    @property
    def stops_calls(self) -> bool:
        """The calls of the last turn are not made any more.

        They still belong to the last step, and the cost of that turn is paid already.
        """
        return self.over and self.what in ("seconds", "tool_calls")

    def __str__(self) -> str:
        if self.what == "cost":
            return f"{dollars(self.used)} of {dollars(self.limit)} are used up"
        return f"{self.used:g} of {self.limit:g} {self.unit} are used up"


def restrict(requested: Wanted, allowed: Limits) -> Limits:
    """The lower of the *requested* and the *allowed* limits."""
    limits = dict(allowed)
    for name, limit in requested:
        if limit is not None:
            limits[name] = limit if limits[name] is None else min(limit, limits[name])
    return Limits.model_validate(limits)


def cost(usage: Usage, prices: Prices) -> float:
    """The price of *usage*."""
    price = usage.input_tokens * prices.input + usage.output_tokens * prices.output
    return round(price / 1e6, 9)


def limit_usage(
    conversation: Conversation, limits: Limits, prices: Prices, now: int
) -> list[Spent]:
    """Use of every limit by the last question at *now*, in milliseconds since the epoch.

    Time spent waiting for people does not count. Steps come last: of several exhausted limits, any
    other explains more.
    """
    used = conversation.used
    seconds = (now - conversation.asked_at - conversation.waited) / 1000
    turn = max(conversation.longest_turn / 1000, min(limits.max_seconds * _SHARE, _RESERVE))
    last = conversation.turns[-1].usage if conversation.turns else Usage()
    return [
        Spent("seconds", round(seconds, 1), limits.max_seconds, "seconds", "deadline", turn),
        Spent("tool_calls", used.tool_calls, limits.max_tool_calls, "tool calls"),
        *model_limit_usage(used.usage, limits, prices, last),
        Spent("steps", used.steps, limits.max_steps, "steps", "max_steps", 1),
    ]


def model_limit_usage(
    usage: Usage,
    limits: Limits,
    prices: Prices,
    turn: Usage = Usage(),  # noqa: B008 - it is frozen
) -> list[Spent]:
    """Use of the limits on tokens and money by *usage*; *turn* is the usage of a typical turn."""
    usages = []
    if (limit := limits.max_tokens) is not None:
        usages.append(Spent("tokens", _tokens(usage), limit, "tokens", turn=_tokens(turn)))
    if (price := limits.max_cost) is not None:
        used, next_cost = cost(usage, prices), cost(turn, prices)
        usages.append(Spent("cost", used, price, "money", turn=next_cost))
    return usages


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


@dataclass(frozen=True)
class Conclusion:
    """Writes the end of one investigation."""

    toolbox: Toolbox
    prices: Prices

    def end(
        self,
        conversation: Conversation,
        ending: Ending,
        detail: str | None = None,
        text: str | None = None,
        findings: JsonObject | None = None,
        lost: ModelError | Stopped | None = None,
    ) -> Ended:
        """The end; without a *text* of the model, a digest of the results.

        *lost* is a turn that failed; its usage counts.
        """
        usage, requests = (lost.usage, lost.requests) if lost else (Usage(), 0)
        total = conversation.total.plus(usage, requests=requests)
        return Ended(
            ending=ending,
            text=text or self.digest(conversation, detail or ending),
            detail=detail,
            findings=findings,
            counters=total.patched({"cost": cost(total.usage, self.prices)}),
            usage=usage,
            requests=requests,
        )

    def stop(
        self,
        conversation: Conversation,
        ending: Ending,
        reason: str,
        now: datetime,
        lost: ModelError | Stopped | None = None,
    ) -> list[Entry]:
        """The entries that end it now: discard partial output, close each open call, and end."""
        rest: list[Entry] = []
        if conversation.shown:
            rest.append(Discarded(step=conversation.step + 1, why=reason))
        for called in conversation.open:
            status: ToolStatus = "interrupted" if called.started else "skipped"
            outcome = "Its outcome is unknown" if called.started else "Not called"
            rest.append(Result(observation=called.observe(status, f"{outcome}: {reason}", now)))
        return [*rest, self.end(conversation.after(rest), ending, reason, lost=lost)]

    def digest(self, conversation: Conversation, reason: str) -> str:
        """A summary of the results, made without a model."""
        evidence: list[synthesis.GatheredEvidence] = []
        calls = [
            called for called in conversation.finished_calls if called.result.status != "skipped"
        ]
        for position, called in enumerate(calls, 1):
            number = call_number(called.call.id) or position
            use, outcome = self.toolbox.use(called), called.outcome
            evidence = synthesis.collect(evidence, use, outcome, number, called.step)
        summary = synthesis.digest(evidence, reason)
        last = next((t.text for t in reversed(conversation.turns) if is_substantive(t.text)), "")
        return f"{summary}\n\nThe model's last message was:\n\n{last}" if last else summary


def fields_of(end: Ended) -> dict[str, str]:
    """The end as fields of the investigation's hash."""
    return {
        "ending": end.ending,
        "detail": end.detail or "",
        "text": end.text,
        "findings": "" if end.findings is None else json.dumps(end.findings),
    }
