"""What Boyd says to a model between its turns: one message at most, after all results (F9)."""

from __future__ import annotations

import json

from boyd.llm import instructions, loop_detection, synthesis
from boyd.llm.budget import Spent
from boyd.llm.call_history import CallHistory, outcome
from boyd.llm.conversation import Conversation
from boyd.llm.reflection import OODAReflection, ReflectionAction
from boyd.models import JsonObject
from boyd.models.investigation import Profile, Steered

#: Characters of the evidence that a model is told again which has to conclude with little room.
_EVIDENCE = 8000


class Steering:
    """Steers one investigation.

    Args:
        calls: tells what its calls are.
        profile: how eager it is to come to an end.
        schema: that its answer has to fit; None: it answers in prose.
        limit: how many calls it may make.
    """

    def __init__(
        self, calls: CallHistory, profile: Profile, schema: JsonObject | None, limit: int
    ) -> None:
        self._calls = calls
        self._profile = profile
        self._schema = schema
        self._limit = limit

    def stats(self, conversation: Conversation) -> JsonObject:
        """What the reflection has counted in the turns that are complete (F8)."""
        reflection, _ = self._reflected(conversation)
        return reflection.stats

    def after_results(
        self, conversation: Conversation, conclusion: Steered | None = None
    ) -> list[Steered]:
        """What is said after the last result of a turn; nothing while calls are open (F9).

        A *conclusion* that a limit asks for goes before advice.
        """
        if conversation.open:
            return []
        _, action = self._reflected(conversation)
        if action is not None and action.strip_tools:
            return [self._synthesis(action)]
        if conclusion is not None:
            return [conclusion]
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

    def conclusion(self, conversation: Conversation, last: Spent) -> Steered:
        """What is said before the last turn that a limit allows.

        The tools are taken away; with the profile `off` only if no call would be made any more.
        """
        strip = self._profile != "off" or last.stops_calls
        text = instructions.last_step(str(last))
        if strip:
            text = self._concluding(conversation, str(last))
        return Steered(text=text, why=str(last), strip=strip, ending=last.ending)

    def _concluding(self, conversation: Conversation, why: str) -> str:
        reflection, _ = self._reflected(conversation)
        parts = [instructions.conclude(why, synthesis.instruction(reflection.kind))]
        if conversation.compacted is not None:  # not all of it is in what the model is shown
            parts.append(synthesis.section(synthesis.fitted(reflection.evidence, _EVIDENCE)))
        if self._schema is not None:
            parts.append(instructions.in_shape(json.dumps(self._schema)))
        return "\n\n".join(parts)

    def _nudge(self, conversation: Conversation) -> loop_detection.LoopWarning | None:
        history = [self._calls.executed(one) for one in conversation.done]
        return loop_detection.warning(history, len(conversation.of_step(conversation.step)))

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
        reflection, action = OODAReflection(self._profile, limit=self._limit), None
        for one in conversation.rounds:
            turn = conversation.of_step(one.step)
            if (turn or one.stripped) and all(called.observation for called in turn):
                uses = [self._calls.use(called) for called in turn]
                action = reflection.observe(uses, [outcome(called) for called in turn])
        return reflection, action
