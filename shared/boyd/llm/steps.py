"""What comes next in an investigation, and what each thing that happens adds to its log.

Plain functions over a conversation: workers execute what these decide (T1, T5, F1 to F9, G7).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.llm import guards, instructions, shape, synthesis
from boyd.llm.budget import Spent, cost, spent
from boyd.llm.conversation import Called, Conversation
from boyd.llm.errors import ModelError, Stopped
from boyd.llm.messages import Message, ModelRequest, Turn
from boyd.llm.reflection import OODAReflection, ReflectionAction
from boyd.llm.substance import is_empty, is_substantive
from boyd.llm.toolbox import ANSWER, Toolbox, answer_spec
from boyd.llm.tooling import ToolOutcome, ToolUse, is_error
from boyd.model_settings import ModelSettings
from boyd.models import JsonObject
from boyd.models.investigation import (
    Ended,
    Ending,
    Entry,
    InvestigationRequest,
    Limits,
    Profile,
    Result,
    Said,
    Steered,
    ToolCall,
    ToolObservation,
    ToolStatus,
    Usage,
    Wanted,
    Warned,
)
from boyd.redaction import MARK

#: How often a model is asked again that was cut off, or does not answer without tools.
TRIES = 2


@dataclass(frozen=True)
class Think:
    """Ask the model for a turn."""

    request: ModelRequest


@dataclass(frozen=True)
class Use:
    """Execute a tool, or go on with one that was begun."""

    called: Called


@dataclass(frozen=True)
class Write:
    """Write those entries, and look again."""

    entries: Sequence[Entry]


@dataclass(frozen=True)
class Over:
    """There is nothing left to do."""

    ended: Ended


Next = Think | Use | Write | Over


class Steps:
    """The rules of one investigation."""

    def __init__(
        self,
        agent: str,
        settings: ModelSettings,
        request: InvestigationRequest,
        toolbox: Toolbox,
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._request = request
        self._toolbox = toolbox
        self._profile = request.profile or settings.profile or _usual(toolbox)
        self.limits = within(request.limits, settings.limits)

    def next(self, conversation: Conversation, now: datetime) -> Next:
        """What comes next at *now*."""
        if conversation.ended is not None:
            return Over(conversation.ended)
        budgets = self._spent(conversation, now)
        over = next((one for one in budgets if one.over and one.what != "steps"), None)
        if conversation.open:
            first = conversation.open[0]
            if over is None or first.started:
                return self._before(conversation, first, now)
            return Write(self.stopped(conversation, over.ending, str(over), now))
        over = over or next((one for one in budgets if one.over), None)
        if over is not None:
            return Write([self.ended(conversation, over.ending, str(over))])
        warnings = [_warned(one) for one in budgets if one.near]
        new = [warned for warned in warnings if warned.what not in conversation.warned]
        return Write(new) if new else Think(self._ask(conversation))

    def said(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """What a turn of the model adds: the turn, and what follows from it at once."""
        refused = turn.finish == "filtered" or conversation.stripped
        calls = [
            ToolCall(id=conversation.next_id(n), name=call.name, arguments=call.arguments)
            for n, call in enumerate([] if refused else turn.calls)
        ]
        said = Said(
            step=conversation.step + 1,
            text=turn.text,
            calls=calls,
            finish=turn.finish,
            usage=turn.usage,
            requests=turn.requests,
        )
        after = _with(conversation, [said])
        if turn.finish == "filtered":
            why = "The model's server has withheld the answer"
            return [said, self.ended(after, "error", why)]
        if conversation.stripped:
            return [said, *self._said_without_tools(after, turn)]
        return [said] if calls else [said, *self._said_words(after, turn)]

    def failed(
        self,
        conversation: Conversation,
        called: Called,
        status: ToolStatus,
        why: str,
        now: datetime,
    ) -> list[Entry]:
        """What it adds that a call was not made."""
        return self.result(conversation, observed(called, status, why, now))

    def result(self, conversation: Conversation, observation: ToolObservation) -> list[Entry]:
        """What a call's result adds; after the last one of a turn, what Boyd has to say to it."""
        after = _with(conversation, [Result(observation=observation)])
        return [Result(observation=observation), *self._steering(after)]

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
        counters = total.patched({"cost": cost(total.usage, self._settings.prices)})
        return Ended(
            ending=ending,
            text=text or self.digest(conversation, detail or ending),
            detail=detail,
            findings=findings,
            counters=counters,
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
        """What it adds that it ends now: a result for each open call, none of which is made."""
        rest: list[Entry] = []
        for one in conversation.open:
            status: ToolStatus = "interrupted" if one.started else "skipped"
            said = "Its outcome is unknown" if status == "interrupted" else "It was not made"
            rest.append(Result(observation=observed(one, status, f"{said}: {why}", now)))
        after = _with(conversation, rest)
        return [*rest, self.ended(after, ending, why, lost=lost)]

    def digest(self, conversation: Conversation, reason: str) -> str:
        """What was found so far, without a model."""
        evidence: list[synthesis.Evidence] = []
        made = [called for called in conversation.done if _made(called)]
        for number, called in enumerate(made, 1):
            use, outcome = self._use(called), _outcome(called)
            evidence = synthesis.collect(evidence, use, outcome, number, called.step)
        last = next((t.text for t in reversed(conversation.turns) if is_substantive(t.text)), "")
        found = synthesis.digest(evidence, reason)
        return f"{found}\n\nThe model's last words were:\n\n{last}" if last else found

    def reflection(self, conversation: Conversation) -> OODAReflection:
        """The reflection as it stands after the turns that are complete (F1)."""
        reflection, _ = self._reflected(conversation)
        return reflection

    def left(self, conversation: Conversation, now: datetime) -> float:
        """Seconds until the last question's time is up."""
        found = {one.what: one for one in self._spent(conversation, now)}["seconds"]
        return found.limit - found.used

    def _spent(self, conversation: Conversation, now: datetime) -> list[Spent]:
        at = int(now.timestamp() * 1000)
        return spent(conversation, self.limits, self._settings.prices, at)

    def _ask(self, conversation: Conversation) -> ModelRequest:
        tools = self._toolbox.specs()
        if self._request.answer is not None:
            tools.append(answer_spec(self._request.answer))
        opening = instructions.opening(
            self._agent, self._settings.system, self._request.instructions
        )
        return ModelRequest(
            messages=[Message(role="system", text=opening), *conversation.messages],
            tools=tools,
            use_tools=bool(tools) and not conversation.stripped,
        )

    def _before(self, conversation: Conversation, called: Called, now: datetime) -> Next:
        """Check a call before it is made: the one that trips a guard never is."""
        if called.started:
            return Use(called)
        history = [self._executed(one) for one in conversation.done]
        trip = guards.check(history, self._planned(called))
        if trip is not None:
            return Write(self.stopped(conversation, trip.ending, trip.sentence, now))
        if called.call.name == ANSWER and self._request.answer is not None:
            return Write(self._answered(conversation, called, now))
        refusal = self._unrunnable(called)
        if refusal is not None:
            return Write(self.failed(conversation, called, "failed", refusal, now))
        return Use(called)

    def _unrunnable(self, called: Called) -> str | None:
        """Why a call cannot be made at all."""
        if called.call.name not in self._toolbox:
            return instructions.unknown_tool(called.call.name, list(self._toolbox))
        if MARK in called.call.arguments:
            return instructions.UNSAID
        if called.arguments is None:
            why = "it is no object" if _is_json(called.call.arguments) else "it cannot be read"
            return instructions.unreadable(called.call.arguments, why)
        return None

    def _answered(self, conversation: Conversation, called: Called, now: datetime) -> list[Entry]:
        """What a call of the tool `answer` adds: the end, if the answer fits."""
        schema = self._request.answer or {}
        found = called.arguments
        wrong = "it is no object of JSON" if found is None else shape.misfit(found, schema)
        if wrong or found is None:
            why = f"The answer does not fit its form: {wrong}"
            return self.failed(conversation, called, "failed", why, now)
        accepted = observed(called, "succeeded", "The answer was taken.", now)
        rest = [
            Result(observation=observed(one, "skipped", "The answer was given before.", now))
            for one in conversation.open
            if one is not called
        ]
        text = _in_words(found)
        ended = self.ended(conversation, "final_answer", text=text, findings=found)
        return [Result(observation=accepted), *rest, ended]

    def _said_words(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """What follows from a turn without calls."""
        turns = conversation.turns
        if turn.finish == "length":
            if sum(one.finish == "length" for one in turns) > TRIES:
                why = "The model was cut off again and again"
                return [self.ended(conversation, "error", why)]
            return [Steered(text=instructions.CUT, why="cut")]
        trip = guards.check_turns(turns)
        if trip is not None:
            return [self.ended(conversation, trip.ending, trip.sentence)]
        nudge = guards.turn_warning(turns)
        if is_empty(turn):
            return [Steered(text=nudge.text if nudge else instructions.EMPTY, why="empty")]
        if self._request.answer is None:
            return [self.ended(conversation, "final_answer", text=turn.text)]
        findings = shape.found_in(turn.text, self._request.answer)
        again = sum(not one.calls for one in turns) < TRIES
        if findings is None and again:
            return [Steered(text=instructions.SHAPE, why="shape")]
        unfit = None if findings else "the answer is not in the form that was asked for"
        text = turn.text
        return [self.ended(conversation, "final_answer", unfit, text=text, findings=findings)]

    def _said_without_tools(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """What follows from a turn in which the model had to answer (F5, F6)."""
        if is_substantive(turn.text) and not turn.calls and turn.finish == "stop":
            schema = self._request.answer
            findings = shape.found_in(turn.text, schema) if schema is not None else None
            text = turn.text
            return [self.ended(conversation, "final_synthesis", text=text, findings=findings)]
        _, action = self._reflected(conversation)
        if action is not None and action.inject_message and not action.terminate:
            return [Steered(text=action.inject_message, why="synthesis", strip=True)]
        why = "the model did not answer without its tools"
        return [self.ended(conversation, "final_synthesis", why)]

    def _steering(self, conversation: Conversation) -> list[Entry]:
        """What is said to the model after the last result of a turn; one message at most (F9)."""
        if conversation.open:
            return []
        _, action = self._reflected(conversation)
        if action is not None and action.strip_tools:
            return [self._synthesis(action)]
        turn = conversation.of_step(conversation.step)
        history = [self._executed(one) for one in conversation.done]
        nudge = guards.warning(history, len(turn))
        if nudge:  # what is about to end it is graver than advice
            return [Steered(text=nudge.text, why=nudge.pattern)]
        advice = action.inject_message if action else None
        return [Steered(text=advice, why=action.kind)] if action and advice else []

    def _synthesis(self, action: ReflectionAction) -> Steered:
        """What is said when the tools are taken away (F5)."""
        text = action.inject_message or ""
        if self._request.answer is not None:
            text = f"{text}\n\n{instructions.in_shape(json.dumps(self._request.answer))}"
        return Steered(text=text, why=action.reason or action.kind, strip=True)

    def _reflected(
        self, conversation: Conversation
    ) -> tuple[OODAReflection, ReflectionAction | None]:
        """The reflection after all turns that are complete, and what it says to the last one."""
        reflection, action = OODAReflection(self._profile), None
        for one in conversation.rounds:
            turn = conversation.of_step(one.step)
            if (turn or one.stripped) and all(called.observation for called in turn):
                uses = [self._use(called) for called in turn]
                action = reflection.observe(uses, [_outcome(called) for called in turn])
        return reflection, action

    def _planned(self, called: Called) -> guards.Planned:
        use = self._use(called)
        runnable = self._unrunnable(called) is None
        return guards.Planned(use.name, use.signature, use.poll, runnable)

    def _executed(self, called: Called) -> guards.Executed:
        use = self._use(called)
        seen = called.observation
        assert seen is not None, "only calls with a result are history"
        failed = is_error(seen.status)
        return guards.Executed(
            name=use.name,
            signature=use.signature,
            result=guards.result_digest(f"{seen.status} {seen.exit_code} {seen.output}"),
            error=seen.output if failed else None,
            poll=use.poll,
            runnable=self._unrunnable(called) is None,
        )

    def _use(self, called: Called) -> ToolUse:
        name = called.call.name
        tool = self._toolbox.get(name)
        return ToolUse(
            id=called.call.id,
            name=name,
            arguments=called.call.arguments if called.arguments is None else called.arguments,
            category=tool.category if tool else "search",
            poll=getattr(tool, "poll", False),
        )


def _usual(toolbox: Toolbox) -> Profile:
    """How eager an investigation with those tools is to come to an end (F7)."""
    acts = bool(toolbox) and all(tool.category == "execution" for tool in toolbox.values())
    return "execution" if acts else "general"


def within(wanted: Wanted, allowed: Limits) -> Limits:
    """The limits that were asked for, as far as they are allowed."""
    least: dict[str, float | None] = {}
    for name in Limits.model_fields:
        both = (getattr(wanted, name), getattr(allowed, name))
        least[name] = min((one for one in both if one is not None), default=None)
    return Limits.model_validate(least)


def observed(called: Called, status: ToolStatus, output: str, now: datetime) -> ToolObservation:
    """A result that says *output*."""
    return ToolObservation(
        time=now,
        step=called.step,
        tool=called.call.name,
        call_id=called.call.id,
        status=status,
        total_bytes=len(output.encode()),
        output=output,
    )


def _outcome(called: Called) -> ToolOutcome:
    seen = called.observation
    assert seen is not None, "only calls with a result have an outcome"
    failed = is_error(seen.status)
    return ToolOutcome(called.call.id, seen.status, seen.output, failed)


def _made(called: Called) -> bool:
    """Whether a call was more than asked for."""
    return called.observation is not None and called.observation.status != "skipped"


def _with(conversation: Conversation, entries: Sequence[Entry]) -> Conversation:
    """The conversation with more entries; what it was stays as it was."""
    after = conversation.apart()
    for entry in entries:
        after.add(entry, 0)
    return after


def _warned(one: Spent) -> Warned:
    return Warned(what=one.what, text=str(one))


def _in_words(found: JsonObject) -> str:
    """An answer in a form, for those who read."""
    lines = []
    for name, value in found.items():
        said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"{name}: {said}")
    return "\n".join(lines) or "{}"


def outcome(ended: Ended) -> dict[str, str]:
    """How it ended, as the fields of its hash."""
    found = "" if ended.findings is None else json.dumps(ended.findings)
    return {
        "ending": ended.ending,
        "detail": ended.detail or "",
        "text": ended.text,
        "findings": found,
    }


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
