"""What Boyd says to a model between its turns: one message at most, after all results (F9)."""

from __future__ import annotations

import json

from boyd.llm import guards, instructions
from boyd.llm.calls import Calls, outcome
from boyd.llm.conversation import Conversation
from boyd.llm.reflection import OODAReflection, ReflectionAction
from boyd.models import JsonObject
from boyd.models.investigation import Profile, Steered


class Steering:
    """Steers one investigation.

    Args:
        calls: tells what its calls are.
        profile: how eager it is to come to an end.
        schema: that its answer has to fit; None: it answers in prose.
    """

    def __init__(self, calls: Calls, profile: Profile, schema: JsonObject | None) -> None:
        self._calls = calls
        self._profile = profile
        self._schema = schema

    def stats(self, conversation: Conversation) -> JsonObject:
        """What the reflection has counted in the turns that are complete (F8)."""
        reflection, _ = self._reflected(conversation)
        return reflection.stats

    def after_results(self, conversation: Conversation) -> list[Steered]:
        """What is said after the last result of a turn; nothing while calls are open (F9)."""
        if conversation.open:
            return []
        _, action = self._reflected(conversation)
        if action is not None and action.strip_tools:
            return [self._synthesis(action)]
        nudge = self._nudge(conversation)
        if nudge:  # what is about to end it is graver than advice
            return [Steered(text=nudge.text, why=nudge.pattern)]
        advice = action.inject_message if action else None
        return [Steered(text=advice, why=action.kind)] if action and advice else []

    def once_more(self, conversation: Conversation) -> Steered | None:
        """What is said to a model that has not answered without tools; None: no more (F6)."""
        _, action = self._reflected(conversation)
        if action is None or action.terminate or not action.inject_message:
            return None
        return Steered(text=action.inject_message, why="synthesis", strip=True)

    def _nudge(self, conversation: Conversation) -> guards.Nudge | None:
        history = [self._calls.executed(one) for one in conversation.done]
        return guards.warning(history, len(conversation.of_step(conversation.step)))

    def _synthesis(self, action: ReflectionAction) -> Steered:
        """What is said when the tools are taken away (F5)."""
        text = action.inject_message or ""
        if self._schema is not None:
            text = f"{text}\n\n{instructions.in_shape(json.dumps(self._schema))}"
        return Steered(text=text, why=action.reason or action.kind, strip=True)

    def _reflected(
        self, conversation: Conversation
    ) -> tuple[OODAReflection, ReflectionAction | None]:
        """The reflection after all turns that are complete, and what it says to the last one."""
        reflection, action = OODAReflection(self._profile), None
        for one in conversation.rounds:
            turn = conversation.of_step(one.step)
            if (turn or one.stripped) and all(called.observation for called in turn):
                uses = [self._calls.use(called) for called in turn]
                action = reflection.observe(uses, [outcome(called) for called in turn])
        return reflection, action
