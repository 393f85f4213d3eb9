"""The rules of one investigation: the next step, and the entries that each event adds.

These are plain functions of a conversation; workers execute what they decide.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.llm import loop_detection, steering, toolbox
from boyd.llm.conclusion import UNPRICED, Conclusion, Spent, limit_usage, restrict
from boyd.llm.context_window import Compaction, ContextWindow
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.messages import Message, ModelRequest, ToolSpec, Turn, limit_reply
from boyd.llm.model_errors import ContextFull
from boyd.llm.replies import SPOKEN, Replies
from boyd.llm.reply_text import TextCalls, find_text_calls
from boyd.llm.steering import Steering
from boyd.llm.toolbox import ANSWER, READ_OUTPUT, Toolbox
from boyd.models import to_ms
from boyd.models.investigation import (
    Ended,
    Entry,
    InvestigationRequest,
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
    """Execute a tool, or continue one that was started."""

    called: ToolCallRecord


@dataclass(frozen=True)
class Write:
    """Append the entries and look again."""

    entries: Sequence[Entry]


@dataclass(frozen=True)
class Finish:
    """Nothing is left to do."""

    ended: Ended


Next = Think | Use | Write | Finish


class InvestigationSteps:
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
        self.toolbox = toolbox
        self._limits = restrict(request.limits, settings.limits)
        acts = bool(toolbox) and all(tool.category == "execution" for tool in toolbox.values())
        profile = request.profile or settings.profile or ("execution" if acts else "general")
        max_calls = self._limits.max_tool_calls
        self.conclusion = Conclusion(toolbox, settings.prices)
        self.steering = Steering(toolbox, profile, request.answer, max_calls)
        self._marker = settings.answer_marker if request.answer is None else None
        self._replies = Replies(self.conclusion, self.steering, request.answer, self._marker)
        self._context = ContextWindow(settings)

    def next(self, conversation: Conversation, now: datetime) -> Next:
        """The next step at *now*."""
        if conversation.ended is not None:
            return Finish(conversation.ended)
        budgets = self._limit_usage(conversation, now)
        if conversation.open:
            return self._next_call(conversation, budgets, now)
        if self._limits.max_cost is not None and not self._settings.prices.are_set:
            return Write([self.conclusion.end(conversation, "error", UNPRICED)])
        near = [each for each in budgets if each.near and each.what not in conversation.warned]
        if near:
            return Write([Warned(what=each.what, text=str(each)) for each in near])
        if over := next((each for each in budgets if each.stops_turns), None):
            return Write(self.conclusion.stop(conversation, over.ending, str(over), now))
        if conclusion := self._ask_to_conclude(conversation, budgets):
            return Write([conclusion])
        request = self._request_turn(conversation)
        compacted = self._context.compact_early(conversation, request)
        return Write([compacted]) if compacted else Think(request)

    def seconds_left(self, conversation: Conversation, now: datetime) -> float:
        """Seconds until the deadline of the last question."""
        seconds = {each.what: each for each in self._limit_usage(conversation, now)}["seconds"]
        return seconds.limit - seconds.used

    def add_turn(self, conversation: Conversation, turn: Turn) -> list[Entry]:
        """The entries for a turn of the model and its immediate consequences."""
        text_calls = self._find_text_calls(conversation, turn)
        if text_calls is not None and text_calls.calls:
            return self._add_text_calls(conversation, turn, text_calls)
        entry = self._say(conversation, turn, turn.text)
        after = conversation.after([entry])
        if turn.finish == "filtered":
            reason = "The model server withheld the answer"
            return [entry, self.conclusion.end(after, "error", reason)]
        if conversation.stripped:
            return [entry, self._replies.handle_last_turn(after, turn)]
        if entry.calls:
            return [entry]
        if text_calls is not None:
            tool_names = [tool.name for tool in self._tools(conversation)]
            return [entry, *self._replies.handle_unread_calls(after, turn, text_calls, tool_names)]
        reaction = self._replies.handle_text(after, turn)
        if turn.finish == "length":
            compacted = self._context.compact_truncated(after, self._request_turn(after), turn)
            return [entry, *([compacted] if compacted else []), *reaction]
        return [entry, *reaction]

    def add_context_full(
        self, conversation: Conversation, error: ContextFull, now: datetime
    ) -> list[Entry]:
        """The entries after the server refused the conversation as too long."""
        request = self._request_turn(conversation)
        if compacted := self._context.compact_refused(conversation, request, error):
            return [compacted]
        reason = f"the conversation does not fit into the model's context: {error}"
        return self.conclusion.stop(conversation, "error", reason, now, error)

    def add_failure(
        self, conversation: Conversation, called: ToolCallRecord, reason: str, now: datetime
    ) -> list[Entry]:
        """The entries for a call that was not made."""
        return self.add_result(conversation, called.observe("failed", reason, now))

    def add_result(self, conversation: Conversation, observation: ToolObservation) -> list[Entry]:
        """The entries for a result; after the last one of a turn, with a message to the model."""
        result, at = Result(observation=observation), observation.time
        after = conversation.after([result], to_ms(at))
        if after.open:
            return [result]
        conclusion = self._ask_to_conclude(after, self._limit_usage(after, at))
        return [result, *self.steering.after_results(after, conclusion)]

    def _say(self, conversation: Conversation, turn: Turn, text: str) -> Said:
        refused = turn.finish == "filtered" or conversation.stripped
        calls = [
            ToolCall(id=conversation.next_id(n), name=call.name, arguments=call.arguments)
            for n, call in enumerate([] if refused else turn.calls)
        ]
        return Said(
            step=conversation.step + 1,
            text=limit_reply(text),
            calls=calls,
            finish=turn.finish,
            usage=turn.usage,
            requests=turn.requests,
        )

    def _find_text_calls(self, conversation: Conversation, turn: Turn) -> TextCalls | None:
        tool_names = {tool.name for tool in self._tools(conversation)}
        if conversation.stripped or turn.calls or turn.finish != "stop" or not tool_names:
            return None
        return None if self._replies.fits(turn.text) else find_text_calls(turn.text, tool_names)

    def _add_text_calls(
        self, conversation: Conversation, turn: Turn, text_calls: TextCalls
    ) -> list[Entry]:
        calls = [
            ToolCall(id=name, name=name, arguments=json.dumps(arguments, ensure_ascii=False))
            for name, arguments in text_calls.calls
        ]
        entry = self._say(conversation, turn.patched({"calls": calls}), text_calls.before)
        if SPOKEN in conversation.warned:
            return [entry]
        return [entry, Warned(what=SPOKEN, text=steering.UNPARSED)]

    def _limit_usage(self, conversation: Conversation, now: datetime) -> list[Spent]:
        at = int(now.timestamp() * 1000)
        return limit_usage(conversation, self._limits, self._settings.prices, at)

    def _ask_to_conclude(
        self, conversation: Conversation, budgets: Sequence[Spent]
    ) -> Steered | None:
        """The message before the last turn that a limit allows; sent once."""
        if conversation.stripped or conversation.concluding or not conversation.turns:
            return None
        if any(each.stops_turns for each in budgets):
            return None
        last = next((each for each in budgets if each.last), None)
        return self.steering.conclusion(conversation, last) if last else None

    def _tools(self, conversation: Conversation) -> list[ToolSpec]:
        tools = self.toolbox.specs()
        if conversation.has_more:
            tools.append(toolbox.read_output_spec())
        if self._request.answer is not None:
            tools.append(toolbox.answer_spec(self._request.answer))
        return tools

    def _request_turn(self, conversation: Conversation) -> ModelRequest:
        tools = self._tools(conversation)
        opening = steering.opening(
            self._agent,
            self._settings.system,
            self._request.instructions,
            steering.explain_marker(self._marker) if self._marker else "",
        )
        view = Compaction.of(conversation).view()
        return ModelRequest(
            messages=[Message(role="system", text=opening), *view],
            tools=tools,
            use_tools=bool(tools) and not conversation.stripped,
        )

    def _next_call(self, conversation: Conversation, budgets: list[Spent], now: datetime) -> Next:
        """The first open call, unless a limit or loop detection forbids it."""
        called = conversation.open[0]
        if called.started:
            return Use(called)
        over = next((each for each in budgets if each.stops_calls), None)
        if over is not None and over.what == "tool_calls":
            skipped = called.observe("skipped", f"Not called: {over}", now)
            return Write(self.add_result(conversation, skipped))
        if over is not None:
            return Write(self.conclusion.stop(conversation, over.ending, str(over), now))
        call_history = self.toolbox.call_history(conversation)
        if violation := loop_detection.check_call(call_history, self.toolbox.plan(called)):
            ending, sentence = violation.ending, violation.sentence
            return Write(self.conclusion.stop(conversation, ending, sentence, now))
        return self._make_call(conversation, called, now)

    def _make_call(self, conversation: Conversation, called: ToolCallRecord, now: datetime) -> Next:
        """Answer a call of a built-in tool here; let a worker execute any other."""
        is_answer = called.call.name == ANSWER and self._request.answer is not None
        check = self._replies.check_answer_call if is_answer else self.toolbox.refusal
        if refusal := check(called):
            return Write(self.add_failure(conversation, called, refusal, now))
        if is_answer:
            return Write(self._replies.accept_answer_call(conversation, called, now))
        if called.call.name != READ_OUTPUT:
            return Use(called)
        try:
            page = toolbox.read_page(conversation, called)
        except ValueError as error:
            return Write(self.add_failure(conversation, called, str(error), now))
        return Write(self.add_result(conversation, called.observe("succeeded", page, now)))
