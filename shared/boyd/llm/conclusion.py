"""How investigations end: the reason, what was used up, and what was found so far (T5, T6)."""

from __future__ import annotations

import json
from datetime import datetime

from boyd.llm import synthesis
from boyd.llm.budget import cost
from boyd.llm.call_history import CallHistory, observed, outcome
from boyd.llm.conversation import Conversation
from boyd.llm.model_errors import ModelError, Stopped
from boyd.llm.reply_text import is_substantive
from boyd.models import JsonObject
from boyd.models.investigation import (
    Discarded,
    Ended,
    Ending,
    Entry,
    Result,
    ToolStatus,
    Usage,
    call_number,
)
from boyd.settings.model import Prices


class Ends:
    """Makes the ends of one investigation."""

    def __init__(self, calls: CallHistory, prices: Prices) -> None:
        self._calls = calls
        self._prices = prices

    def ended(
        self,
        conversation: Conversation,
        ending: Ending,
        detail: str | None = None,
        text: str | None = None,
        findings: JsonObject | None = None,
        lost: ModelError | Stopped | None = None,
    ) -> Ended:
        """The end; without a *text* of the model, what was found so far (T6).

        *lost* is the turn that did not come about; what it has used up counts.
        """
        usage, requests = (lost.usage, lost.requests) if lost else (Usage(), 0)
        total = conversation.total.plus(usage, requests=requests)
        return Ended(
            ending=ending,
            text=text or self.digest(conversation, detail or ending),
            detail=detail,
            findings=findings,
            counters=total.patched({"cost": cost(total.usage, self._prices)}),
            usage=usage,
            requests=requests,
        )

    def stopped(
        self,
        conversation: Conversation,
        ending: Ending,
        why: str,
        now: datetime,
        lost: ModelError | Stopped | None = None,
    ) -> list[Entry]:
        """What it adds that it ends now.

        What was shown of a turn that did not come about is withdrawn (G6). Each open call has its
        result, and none is made (T1).
        """
        rest: list[Entry] = []
        if conversation.shown:
            rest.append(Discarded(step=conversation.step + 1, why=why))
        for one in conversation.open:
            status: ToolStatus = "interrupted" if one.started else "skipped"
            said = "Its outcome is unknown" if one.started else "It was not made"
            rest.append(Result(observation=observed(one, status, f"{said}: {why}", now)))
        return [*rest, self.ended(conversation.after(rest), ending, why, lost=lost)]

    def digest(self, conversation: Conversation, reason: str) -> str:
        """What was found so far, without a model."""
        evidence: list[synthesis.GatheredEvidence] = []
        made = [one for one in conversation.done if outcome(one).status != "skipped"]
        for number, called in enumerate(made, 1):
            use, came = self._calls.use(called), outcome(called)
            label = call_number(called.call.id) or number
            evidence = synthesis.collect(evidence, use, came, label, called.step)
        found = synthesis.digest(evidence, reason)
        last = next((t.text for t in reversed(conversation.turns) if is_substantive(t.text)), "")
        return f"{found}\n\nThe model's last words were:\n\n{last}" if last else found


def fields_of(ended: Ended) -> dict[str, str]:
    """How it ended, as the fields of its hash; an empty one is not there."""
    return {
        "ending": ended.ending,
        "detail": ended.detail or "",
        "text": ended.text,
        "findings": "" if ended.findings is None else json.dumps(ended.findings),
    }
