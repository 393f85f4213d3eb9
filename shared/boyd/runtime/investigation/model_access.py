"""What plugins are given as `ctx.llm`: the agent's model, for an answer or an investigation."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from boyd import naming, queues
from boyd.errors import StoreError
from boyd.llm.budget import spent_on
from boyd.llm.exchange import Watch
from boyd.llm.gateway import Gateway, Meter
from boyd.llm.messages import Message, ModelRequest, Turn
from boyd.llm.model_errors import ModelError, ModelRefused, ModelUnavailable, Stopped
from boyd.llm.replies import object_in
from boyd.llm.reply_text import is_substantive
from boyd.llm.toolbox import ANSWER, answer_spec
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import JsonObject, explain
from boyd.models.investigation import (
    MOST_TITLED,
    Investigation,
    InvestigationRequest,
    Profile,
    RequestOutcome,
    Usage,
    Wanted,
)
from boyd.redaction import redactor
from boyd.settings.model import ModelSettings
from boyd.store import AgentStore, ModelUsage, Retention

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


class StoredMeter:
    """Implements `boyd.llm.gateway.Meter` for one model."""

    def __init__(self, usage: ModelUsage, model: str) -> None:
        self._usage = usage
        self._model = model

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """See `Meter`: a turn is dear, and goes on when it cannot be counted."""
        with suppress(StoreError):
            self._usage.count(self._model, outcome, usage)


_M = TypeVar("_M", bound=BaseModel)

#: How often an answer that does not fit is asked for again.
REPAIRS = 1


class ModelAccess:
    """The model of one agent, for one plugin; implements `boyd.plugin.Llm`."""

    def __init__(
        self,
        settings: ModelSettings,
        store: AgentStore,
        dispatcher: Dispatcher,
        retention: Retention,
        plugin_id: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._dispatcher = dispatcher
        self._retention = retention
        self._plugin_id = plugin_id

    def ask(self, prompt: str, *, instructions: str = "") -> str:
        """One answer in prose, without tools.

        Raises:
            ModelError: the model did not answer, or refused.
            ConfigError: its key is not there.
        """
        messages = self._opening(instructions, prompt)
        return self._asking().turn(ModelRequest(messages=messages, use_tools=False)).text

    def answer(self, prompt: str, shape: type[_M], *, instructions: str = "") -> _M:
        """One answer of that *shape*; an answer that does not fit is put right once.

        Raises:
            ModelError: the model did not answer, refused, its answer does not fit, or a limit of
                the agent leaves nothing to put it right.
            ConfigError: its key is not there.
        """
        schema: JsonObject = shape.model_json_schema(by_alias=True)
        said = f"{instructions}\n\nAnswer by calling the tool `{ANSWER}`."
        messages = self._opening(said, prompt)
        asking, wrong = self._asking(), ""
        for _ in range(1 + REPAIRS):
            turn = asking.turn(ModelRequest(messages=messages, tools=[answer_spec(schema)]))
            found = object_in(turn.calls[0].arguments if turn.calls else turn.text)
            try:
                return shape.model_validate_json(json.dumps(found))
            except ValidationError as error:
                wrong = explain(error) if found is not None else "it is no object of JSON"
            messages = [*messages, *_refused(turn, f"The answer does not fit: {wrong}")]
        raise ModelRefused(f"the answer does not fit its form: {wrong}", requests=1 + REPAIRS)

    def investigate(
        self,
        key: str,
        question: str,
        *,
        instructions: str = "",
        tools: Sequence[str] = ("*",),
        profile: Profile | None = None,
        limits: Wanted | None = None,
        answer: type[BaseModel] | None = None,
        title: str = "",
    ) -> Investigation:
        """Begin the investigation that the plugin knows as *key*, or find it.

        Raises:
            QueueFull: there are too many already.
        """
        found = self.find(key)
        if found is not None:
            return found
        investigations, id = self._store.investigations, self._id(key)
        source = f"plugin:{self._plugin_id}"
        safe = redactor().redact
        request = InvestigationRequest(
            question=safe(question),
            instructions=safe(instructions),
            tools=list(tools),
            profile=profile,
            limits=limits or Wanted(),
            answer=answer.model_json_schema(by_alias=True) if answer else None,
            title=safe(title)[:MOST_TITLED],
        )
        _, new = investigations.ask(
            request, queues.THINK, self._retention, id=id, source=source, key=key
        )
        if new:
            name = naming.investigation(id)
            self._dispatcher.job(self._store.agent_id, name, 1, queues.THINK)
        began = investigations.get(id)
        assert began is not None, "it has just begun"
        return began

    def find(self, key: str) -> Investigation | None:
        """The investigation that the plugin knows as *key*, if it has begun and is kept."""
        return self._store.investigations.get(self._id(key))

    def _id(self, key: str) -> str:
        name = f"{self._store.agent_id}:plugin:{self._plugin_id}:{key}"
        return str(uuid.uuid5(uuid.NAMESPACE_OID, name))

    def _opening(self, instructions: str, prompt: str) -> list[Message]:
        parts = [part.strip() for part in (self._settings.system, instructions) if part.strip()]
        opening = [Message(role="system", text="\n\n".join(parts))] if parts else []
        return [*opening, Message(role="user", text=prompt)]

    def _asking(self) -> Asking:
        return Asking(self._settings, StoredMeter(self._store.usage, self._settings.model))


def _refused(turn: Turn, why: str) -> list[Message]:
    """What a model is told whose answer does not fit, after what it has said."""
    said = Message(role="assistant", text=turn.text, calls=turn.calls)
    results = [Message(role="tool", text=why, call_id=call.id, failed=True) for call in turn.calls]
    return [said, *(results or [Message(role="user", text=why)])]
