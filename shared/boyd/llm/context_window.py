"""Keeps a conversation within the context of its model: before it is full, and when it was."""

from __future__ import annotations

from boyd.llm.compaction import TRIES, Target, Why
from boyd.llm.conversation import Conversation
from boyd.llm.messages import ModelRequest, Turn
from boyd.llm.model_errors import ContextFull
from boyd.models.investigation import Compacted
from boyd.settings.model import ModelSettings

#: Characters of a token, about and rather few, until the server has counted some.
PER_TOKEN = 3.0
#: And the most: servers that cut a conversation off without a word have counted only what was left.
MOST_PER_TOKEN = 6.0
#: A conversation that reaches this share of its room is compacted to that one.
NEAR = 0.9
ROOMY = 0.6
#: The same where nobody knows the room: the share of what was refused.
HALF = 0.5


class ContextWindow:
    """The context of one agent's model."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings

    def near(self, conversation: Conversation, request: ModelRequest) -> Compacted | None:
        """How to compact a conversation before it is sent; None: it fits, as far as is known."""
        fixed = _fixed(request)
        room = self._room(conversation, fixed)
        if room is None or conversation.compactions:
            return None
        compaction = conversation.compaction
        if compaction.size(fixed) < NEAR * room:
            return None
        return compaction.shorter("near", Target(ROOMY * room, fixed))

    def full(
        self, conversation: Conversation, request: ModelRequest, error: ContextFull
    ) -> Compacted | None:
        """How to compact a conversation that was refused as too long; None: nothing helps."""
        found = self._compacted("full", conversation, request)
        if found is None:
            return None
        return found.patched({"usage": error.usage, "requests": error.requests})

    def cut(
        self, conversation: Conversation, request: ModelRequest, turn: Turn
    ) -> Compacted | None:
        """The same for one that has left no room for the answer; None: the answer was too long."""
        usage = turn.usage
        if usage.estimated or usage.output_tokens >= NEAR * self._settings.max_output_tokens:
            return None
        return self._compacted("cut", conversation, request)

    def _compacted(
        self, why: Why, conversation: Conversation, request: ModelRequest
    ) -> Compacted | None:
        if conversation.compactions >= TRIES:
            return None
        fixed, compaction = _fixed(request), conversation.compaction
        sizes = [HALF * compaction.size(fixed)]
        room = self._room(conversation, fixed)
        if room is not None:
            sizes.append(ROOMY * room)
        return compaction.shorter(why, Target(min(sizes), fixed))

    def _room(self, conversation: Conversation, fixed: int) -> float | None:
        """How many characters a conversation may have; None: nobody knows."""
        known = []
        whole = self._settings.context_tokens
        if whole is not None:
            tokens = whole - min(self._settings.max_output_tokens, whole // 2)
            known.append(tokens * _per_token(conversation, fixed))
        if conversation.refused is not None:
            known.append(float(conversation.refused))
        return min(known, default=None)


def _per_token(conversation: Conversation, fixed: int) -> float:
    """How many characters a token has, as the server has counted last."""
    sent = conversation.sent
    before = conversation.was_sent
    if sent is None or before is None or not sent.tokens:
        return PER_TOKEN
    return min(MOST_PER_TOKEN, max(1.0, before.size(fixed) / sent.tokens))


def _fixed(request: ModelRequest) -> int:
    """Characters of a request that no compaction changes."""
    opening = sum(len(one.text) for one in request.messages if one.role == "system")
    return opening + sum(len(tool.to_json()) for tool in request.tools)
