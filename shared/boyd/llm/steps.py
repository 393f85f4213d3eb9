"""The rules of one investigation: what comes next, and what each thing that happens adds (T1, G7).

Plain functions over a conversation: workers execute what these decide.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.llm import instructions, loop_detection, toolbox
from boyd.llm.budget import UNPRICED, Spent, spent, within
from boyd.llm.call_history import CallHistory, observed
from boyd.llm.conclusion import Ends
from boyd.llm.context_window import ContextWindow
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.messages import Message, ModelRequest, ToolSpec, Turn
from boyd.llm.model_errors import ContextFull
from boyd.llm.output_view import bounded
from boyd.llm.replies import SPOKEN, Replies
from boyd.llm.steering import Steering
from boyd.llm.tool_call_parsing import SpokenCalls, spoken_calls
from boyd.llm.toolbox import ANSWER, READ_OUTPUT, Toolbox, answer_spec
from boyd.models import to_ms
from boyd.models.investigation import (
    Ended,
    Entry,
    InvestigationRequest,
    Profile,
    Result,
    Said,
    Steered,
    ToolCall,
    ToolObservation,
    Warned,
)
from boyd.settings.model import ModelSettings


@dataclass(frozen=True)
class Think:
    """Ask the model for a turn."""

    request: ModelRequest


@dataclass(frozen=True)
class Use:
    """Execute a tool, or go on with one that was begun."""

    called: ToolCallRecord


@dataclass(frozen=True)
class Write:
    """Write those entries, and look again."""

    entries: Sequence[Entry]


@dataclass(frozen=True)
class Finish:
    """There is nothing left to do."""

    ended: Ended


Next = Think | Use | Write | Finish


class InvestigationSteps:
    """The rules of one investigation.

    Attributes:
        ends: makes its ends.
        steering: says what the model is told in between.
    """

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
        self._limits = within(request.limits, settings.limits)
        profile = request.profile or settings.profile or _usual(toolbox)
        self._calls = CallHistory(toolbox)
        self.ends = Ends(self._calls, settings.prices)
        most = self._limits.max_tool_calls
        self.steering = Steering(self._calls, profile, request.answer, most)
        self._marker = settings.answer_marker if request.answer is None else None
        self._replies = Replies(self.ends, self.steering, request.answer, self._marker)
        self._context = ContextWindow(settings)

    def next(self, conversation: Conversation, now: datetime) -> Next:
        """What comes next at *now*."""
        if conversation.ended is not None:
            return Finish(conversation.ended)
        budgets = self._spent(conversation, now)
        if conversation.open:
            return self._next_call(conversation, budgets, now)
        if self._limits.max_cost is not None and not self._settings.prices.are_set:
            return Write([self.ends.ended(conversation, "error", UNPRICED)])
        near = [one for one in budgets if one.near and one.what not in conversation.warned]
        if near:
            return Write([Warned(what=one.what, text=str(one)) for one in near])
        over = next((one for one in budgets if one.stops_turns), None)
        if over is not None:
            return Write(self.ends.stopped(conversation, over.ending, str(over), now))
        conclusion = self._conclusion(conversation, budgets)
        return Write([conclusion]) if conclusion else self._think(conversation)

    def said(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """What a turn of the model adds: the turn, and what follows from it at once."""
        spoken = self._spoken(conversation, turn)
        if spoken is not None and spoken.calls:
            return self._passed_on(conversation, turn, spoken)
        said = self._said(conversation, turn, turn.text)
        after = conversation.after([said])
        if turn.finish == "filtered":
            why = "The model's server has withheld the answer"
            return [said, self.ends.ended(after, "error", why)]
        if conversation.stripped:
            return [said, self._replies.without_tools(after, turn)]
        if said.calls:
            return [said]
        if spoken is not None:
            known = [tool.name for tool in self._tools(conversation)]
            return [said, *self._replies.spoken(after, turn, spoken, known)]
        cut = self._room_after(after, turn)
        return [said, *cut, *self._replies.words(after, turn)]

    def full(self, conversation: Conversation, error: ContextFull, now: datetime) -> list[Entry]:
        """What it adds that the model's server refuses the conversation as too long."""
        compacted = self._context.full(conversation, self._ask(conversation), error)
        if compacted is not None:
            return [compacted]
        why = f"the conversation does not fit into the context of the model: {error}"
        return self.ends.stopped(conversation, "error", why, now, error)

    def _said(self, conversation: Conversation, turn: Turn, text: str) -> Said:
        refused = turn.finish == "filtered" or conversation.stripped
        calls = [
            ToolCall(id=conversation.next_id(n), name=call.name, arguments=call.arguments)
            for n, call in enumerate([] if refused else turn.calls)
        ]
        return Said(
            step=conversation.step + 1,
            text=bounded(text),
            calls=calls,
            finish=turn.finish,
            usage=turn.usage,
            requests=turn.requests,
        )

    def _spoken(self, conversation: Conversation, turn: Turn) -> SpokenCalls | None:
        """Calls that the server has passed on as text; None: there are none."""
        known = {tool.name for tool in self._tools(conversation)}
        if conversation.stripped or turn.calls or turn.finish != "stop" or not known:
            return None
        return None if self._replies.fits(turn.text) else spoken_calls(turn.text, known)

    def _passed_on(
        self, conversation: Conversation, turn: Turn, spoken: SpokenCalls
    ) -> list[Entry]:
        """What a turn adds whose calls came as text: they are calls like any others."""
        calls = [
            ToolCall(id=name, name=name, arguments=json.dumps(arguments, ensure_ascii=False))
            for name, arguments in spoken.calls
        ]
        entries: list[Entry] = [
            self._said(conversation, turn.patched({"calls": calls}), spoken.before)
        ]
        if SPOKEN not in conversation.warned:
            entries.append(Warned(what=SPOKEN, text=instructions.UNPARSED))
        return entries

    def _room_after(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """How the conversation is compacted after a turn that it has left no room for."""
        if turn.finish != "length":
            return []
        compacted = self._context.cut(conversation, self._ask(conversation), turn)
        return [compacted] if compacted else []

    def failed(
        self, conversation: Conversation, called: ToolCallRecord, why: str, now: datetime
    ) -> list[Entry]:
        """What it adds that a call was not made."""
        return self.result(conversation, observed(called, "failed", why, now))

    def result(self, conversation: Conversation, observation: ToolObservation) -> list[Entry]:
        """What a call's result adds; after the last one of a turn, what Boyd has to say to it."""
        result, at = Result(observation=observation), observation.time
        after = conversation.after([result], to_ms(at))
        conclusion = None
        if not after.open:
            conclusion = self._conclusion(after, self._spent(after, at))
        return [result, *self.steering.after_results(after, conclusion)]

    def left(self, conversation: Conversation, now: datetime) -> float:
        """Seconds until the last question's time is up."""
        found = {one.what: one for one in self._spent(conversation, now)}["seconds"]
        return found.limit - found.used

    def _spent(self, conversation: Conversation, now: datetime) -> list[Spent]:
        at = int(now.timestamp() * 1000)
        return spent(conversation, self._limits, self._settings.prices, at)

    def _conclusion(self, conversation: Conversation, budgets: Sequence[Spent]) -> Steered | None:
        """What asks the model to conclude, before the last turn that a limit allows; once."""
        if conversation.stripped or conversation.concluding or not conversation.turns:
            return None
        if any(one.stops_turns for one in budgets):
            return None
        last = next((one for one in budgets if one.last), None)
        return self.steering.conclusion(conversation, last) if last else None

    def _think(self, conversation: Conversation) -> Next:
        """Ask the model, after the conversation was made to fit."""
        request = self._ask(conversation)
        compacted = self._context.near(conversation, request)
        return Write([compacted]) if compacted else Think(request)

    def _tools(self, conversation: Conversation) -> list[ToolSpec]:
        tools = self._toolbox.specs()
        if conversation.has_more:
            tools.append(toolbox.spec())
        if self._request.answer is not None:
            tools.append(answer_spec(self._request.answer))
        return tools

    def _ask(self, conversation: Conversation) -> ModelRequest:
        tools = self._tools(conversation)
        opening = instructions.opening(
            self._agent,
            self._settings.system,
            self._request.instructions,
            instructions.marking(self._marker) if self._marker else "",
        )
        return ModelRequest(
            messages=[Message(role="system", text=opening), *conversation.compaction.view()],
            tools=tools,
            use_tools=bool(tools) and not conversation.stripped,
        )

    def _next_call(self, conversation: Conversation, budgets: list[Spent], now: datetime) -> Next:
        """The first open call, checked before it is made: the one that trips a guard never is."""
        called = conversation.open[0]
        if called.started:
            return Use(called)
        over = next((one for one in budgets if one.stops_calls), None)
        if over is not None:
            return Write(self._beyond(conversation, called, over, now))
        history = [self._calls.executed(one) for one in conversation.done]
        trip = loop_detection.check(history, self._calls.planned(called))
        if trip is not None:
            return Write(self.ends.stopped(conversation, trip.ending, trip.sentence, now))
        return self._make(conversation, called, now)

    def _make(self, conversation: Conversation, called: ToolCallRecord, now: datetime) -> Next:
        """Make a call that no limit and no guard forbids: here, or where its tool is."""
        answers = called.call.name == ANSWER and self._request.answer is not None
        refusal = self._replies.misfit(called) if answers else self._calls.refusal(called)
        if refusal is not None:
            return Write(self.failed(conversation, called, refusal, now))
        if answers:
            return Write(self._replies.given(conversation, called, now))
        if called.call.name != READ_OUTPUT:
            return Use(called)
        try:
            page = toolbox.page(conversation, called)
        except ValueError as error:
            return Write(self.failed(conversation, called, str(error), now))
        return Write(self.result(conversation, observed(called, "succeeded", page, now)))

    def _beyond(
        self, conversation: Conversation, called: ToolCallRecord, over: Spent, now: datetime
    ) -> list[Entry]:
        """What a call adds for which nothing is left: it is not made."""
        if over.what != "tool_calls":
            return self.ends.stopped(conversation, over.ending, str(over), now)
        why = f"It was not made: {over}"
        return self.result(conversation, observed(called, "skipped", why, now))


def _usual(toolbox: Toolbox) -> Profile:
    """How eager an investigation with those tools is to come to an end (F7)."""
    acts = bool(toolbox) and all(tool.category == "execution" for tool in toolbox.values())
    return "execution" if acts else "general"
