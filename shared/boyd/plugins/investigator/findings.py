"""The answer format of an investigation, and the outcome kept from it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from boyd.models import Confidence, JsonObject, Level, Model
from boyd.models.investigation import Ending, Investigation

#: The confidence of an answer that states none, of an incomplete answer, and without an answer.
UNSTATED, INCOMPLETE, NONE = 0.85, 0.6, 0.2
#: The most findings and affected resources kept, and characters of a text.
MOST, LONGEST = 20, 2000

_ANSWERS = ("final_answer", "final_synthesis")


class InvestigationAnswer(BaseModel):
    """Your findings."""

    findings: list[str] = Field(
        min_length=1, description="your findings, one fact each, with its source"
    )
    root_cause: str | None = Field(default=None, description="why it happens, if you know")
    impact: str | None = Field(default=None, description="who is affected, and how badly")
    affected: list[str] = Field(
        default=[], description="names of the affected hosts, services and so on"
    )
    recommended_action: str | None = Field(default=None, description="what should be done")
    confidence: float | None = Field(
        default=None, ge=0, le=1, description="how sure you are of the root cause"
    )


class InvestigationOutcome(Model):
    """The outcome of an investigation, as stored and given to strategies."""

    investigation: str
    ending: Ending
    confidence: Confidence
    findings: list[str]
    root_cause: str | None = None
    impact: str | None = None
    affected: list[str] = Field(default_factory=list)
    recommended_action: str | None = None
    detail: str | None = None
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tokens: int = 0
    cost: float = 0.0
    reflection: JsonObject = Field(default_factory=dict)


class AnswerEvidence(InvestigationOutcome):
    """An outcome with further evidence for strategies.

    Attributes:
        episode: the iteration in which it began.
        late: the situation is over.
        priority: the least priority of the situation, if it is late.
    """

    status: Literal["ended"] = "ended"
    fingerprint: str
    episode: int
    late: bool = False
    priority: Level | None = None


def outcome_of(found: Investigation) -> InvestigationOutcome:
    """The outcome of an ended investigation."""
    ending = found.ending or "error"
    answer = _answer(found.findings)
    counters = found.counters
    usage = counters.usage
    known: dict[str, Any] = {
        "investigation": found.id,
        "ending": ending,
        "detail": _short(found.detail),
        "turns": counters.steps,
        "tool_calls": counters.tool_calls,
        "tool_errors": counters.errors,
        "tokens": usage.input_tokens + usage.output_tokens,
        "cost": counters.cost,
        "reflection": found.reflection,
    }
    if answer is None:
        confidence = NONE if ending in ("cancelled", "error") else INCOMPLETE
        text = _short(found.text) or f"The investigation ended: {ending}"
        return InvestigationOutcome(**known, confidence=confidence, findings=[text])
    sure = UNSTATED if answer.confidence is None else answer.confidence
    return InvestigationOutcome(
        **known,
        # A conclusion forced by a limit may be incomplete.
        confidence=sure if ending in _ANSWERS else min(sure, INCOMPLETE),
        findings=_texts(answer.findings),
        root_cause=_short(answer.root_cause),
        impact=_short(answer.impact),
        affected=_texts(answer.affected),
        recommended_action=_short(answer.recommended_action),
    )


def _answer(findings: JsonObject | None) -> InvestigationAnswer | None:
    if findings is None:
        return None
    try:
        return InvestigationAnswer.model_validate(findings)
    except ValidationError:
        return None


def _texts(texts: list[str]) -> list[str]:
    return [short for text in texts[:MOST] if (short := _short(text))]


def _short(text: str | None) -> str | None:
    plain = (text or "").strip()
    return (plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…") or None
