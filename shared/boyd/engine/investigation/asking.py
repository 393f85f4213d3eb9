"""One question of a plugin to the agent's model: its turns, and what they may use up (G7)."""

from __future__ import annotations

import json
import time
from typing import Literal

from boyd.llm.answer import Watch
from boyd.llm.budget import spent_on
from boyd.llm.errors import ModelError, ModelRefused, ModelUnavailable, Stopped
from boyd.llm.gateway import Gateway
from boyd.llm.messages import ModelRequest, Turn
from boyd.llm.meter import Meter
from boyd.llm.substance import is_substantive
from boyd.model_settings import ModelSettings
from boyd.models.investigation import Usage
from boyd.redaction import redactor

#: What is wrong with a turn that is no answer, by how it ended.
_WRONG = {"length": "is cut off", "filtered": "is withheld"}


class Asking:
    """Asks for the turns of one question, as long as the agent's limits allow."""

    def __init__(self, settings: ModelSettings, meter: Meter) -> None:
        self._settings = settings
        self._meter = meter
        self._until = time.monotonic() + settings.limits.max_seconds
        self._used = Usage()

    def turn(self, request: ModelRequest) -> Turn:
        """The next turn, asked for without secrets.

        Raises:
            ModelError: the model did not answer, or refused, or a limit is reached.
            ConfigError: its key is not there.
        """
        self._check_budget()
        key = self._settings.api_key()
        safe = ModelRequest.from_json(json.dumps(redactor().redact_json(request.to_wire())))
        until = min(self._until, time.monotonic() + self._settings.timeouts.total)
        with Gateway(self._settings, key, meter=self._meter) as gateway:
            try:
                turn = gateway.turn(safe, _Until(until))
            except Stopped as late:
                why = "the model took too long"
                raise ModelUnavailable(why, requests=late.requests, usage=late.usage) from None
        self._used += turn.usage
        if turn.finish in _WRONG or not (turn.calls or is_substantive(turn.text)):
            what = _WRONG.get(turn.finish, "is empty")
            why = f"the model's answer {what}"
            raise ModelRefused(why, requests=turn.requests, usage=turn.usage)
        return turn

    def _check_budget(self) -> None:
        """Check what the turns before have left of the limits.

        Raises:
            ModelError: nothing is left.
        """
        for one in spent_on(self._used, self._settings.limits, self._settings.prices):
            if one.over:
                raise ModelError(f"the model is not asked again: {one}", requests=0)


class _Until(Watch):
    """Shows nobody anything, and gives up when the time is up."""

    def __init__(self, until: float) -> None:
        self._until = until

    def delta(self, kind: Literal["text", "reasoning"], text: str) -> None:
        """Let it pass."""

    def discarded(self, why: str) -> None:
        """Let it pass."""

    def stopped(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._until
