"""The rules of one investigation: what comes next, and what each thing that happens adds (T1, G7).

Plain functions over a conversation: workers execute what these decide.
"""

from __future__ import annotations

from datetime import datetime

from boyd.llm import guards, instructions
from boyd.llm.budget import UNPRICED, Spent, spent, within
from boyd.llm.calls import Calls, observed
from boyd.llm.conversation import Called, Conversation
from boyd.llm.ends import Ends
from boyd.llm.messages import Message, ModelRequest, Turn
from boyd.llm.plan import Next, Over, Think, Use, Write
from boyd.llm.replies import Replies
from boyd.llm.steering import Steering
from boyd.llm.toolbox import ANSWER, Toolbox, answer_spec
from boyd.model_settings import ModelSettings
from boyd.models.investigation import (
    Entry,
    InvestigationRequest,
    Profile,
    Result,
    Said,
    ToolCall,
    ToolObservation,
    Warned,
)


class Steps:
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
        self._calls = Calls(toolbox)
        self.ends = Ends(self._calls, settings.prices)
        self.steering = Steering(self._calls, profile, request.answer)
        self._marker = settings.answer_marker if request.answer is None else None
        self._replies = Replies(self.ends, self.steering, request.answer, self._marker)

    def next(self, conversation: Conversation, now: datetime) -> Next:
        """What comes next at *now*."""
        if conversation.ended is not None:
            return Over(conversation.ended)
        budgets = self._spent(conversation, now)
        if conversation.open:
            return self._next_call(conversation, budgets, now)
        if self._limits.max_cost is not None and not self._settings.prices.are_set:
            return Write([self.ends.ended(conversation, "error", UNPRICED)])
        over = next((one for one in budgets if one.over), None)
        if over is not None:
            return Write(self.ends.stopped(conversation, over.ending, str(over), now))
        near = [one for one in budgets if one.near and one.what not in conversation.warned]
        if near:
            return Write([Warned(what=one.what, text=str(one)) for one in near])
        return Think(self._ask(conversation))

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
        after = conversation.after([said])
        if turn.finish == "filtered":
            why = "The model's server has withheld the answer"
            return [said, self.ends.ended(after, "error", why)]
        if conversation.stripped:
            return [said, self._replies.without_tools(after, turn)]
        return [said] if calls else [said, *self._replies.words(after, turn)]

    def failed(
        self, conversation: Conversation, called: Called, why: str, now: datetime
    ) -> list[Entry]:
        """What it adds that a call was not made."""
        return self.result(conversation, observed(called, "failed", why, now))

    def result(self, conversation: Conversation, observation: ToolObservation) -> list[Entry]:
        """What a call's result adds; after the last one of a turn, what Boyd has to say to it."""
        result = Result(observation=observation)
        return [result, *self.steering.after_results(conversation.after([result]))]

    def left(self, conversation: Conversation, now: datetime) -> float:
        """Seconds until the last question's time is up."""
        found = {one.what: one for one in self._spent(conversation, now)}["seconds"]
        return found.limit - found.used

    def _spent(self, conversation: Conversation, now: datetime) -> list[Spent]:
        at = int(now.timestamp() * 1000)
        return spent(conversation, self._limits, self._settings.prices, at)

    def _ask(self, conversation: Conversation) -> ModelRequest:
        tools = self._toolbox.specs()
        if self._request.answer is not None:
            tools.append(answer_spec(self._request.answer))
        opening = instructions.opening(
            self._agent,
            self._settings.system,
            self._request.instructions,
            instructions.marking(self._marker) if self._marker else "",
        )
        return ModelRequest(
            messages=[Message(role="system", text=opening), *conversation.messages],
            tools=tools,
            use_tools=bool(tools) and not conversation.stripped,
        )

    def _next_call(self, conversation: Conversation, budgets: list[Spent], now: datetime) -> Next:
        """The first open call, checked before it is made: the one that trips a guard never is."""
        called = conversation.open[0]
        if called.started:
            return Use(called)
        # What the last step has asked for belongs to it, and is still made.
        over = next((one for one in budgets if one.over and one.what != "steps"), None)
        if over is not None:
            return Write(self.ends.stopped(conversation, over.ending, str(over), now))
        history = [self._calls.executed(one) for one in conversation.done]
        trip = guards.check(history, self._calls.planned(called))
        if trip is not None:
            return Write(self.ends.stopped(conversation, trip.ending, trip.sentence, now))
        answers = called.call.name == ANSWER and self._request.answer is not None
        refusal = self._replies.misfit(called) if answers else self._calls.refusal(called)
        if refusal is not None:
            return Write(self.failed(conversation, called, refusal, now))
        return Write(self._replies.given(conversation, called, now)) if answers else Use(called)


def _usual(toolbox: Toolbox) -> Profile:
    """How eager an investigation with those tools is to come to an end (F7)."""
    acts = bool(toolbox) and all(tool.category == "execution" for tool in toolbox.values())
    return "execution" if acts else "general"
