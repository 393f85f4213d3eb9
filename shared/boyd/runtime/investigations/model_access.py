"""Access to the agent's model: for plugins as `ctx.llm`, and the live output of a turn."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ValidationError

from boyd import naming
from boyd.errors import StoreError
from boyd.llm.conclusion import cost, model_limit_usage
from boyd.llm.gateway import Gateway, Meter
from boyd.llm.messages import Message, ModelRequest, Turn
from boyd.llm.model_errors import ModelError, ModelRefused, ModelUnavailable, Stopped
from boyd.llm.replies import object_in
from boyd.llm.reply_text import is_substantive
from boyd.llm.toolbox import ANSWER, answer_spec
from boyd.llm.turn_accumulator import Watch
from boyd.messaging.dispatcher import Dispatcher
from boyd.models import JsonObject, explain
from boyd.models.investigation import (
    MOST_TITLED,
    Delta,
    Discarded,
    Entry,
    Investigation,
    InvestigationRequest,
    Profile,
    RequestOutcome,
    Usage,
    Wanted,
)
from boyd.settings.model import ModelSettings
from boyd.store import AgentStore, ModelUsage, Retention
from boyd.store.investigations import Origin
from boyd.text import queues
from boyd.text.redaction import RedactedStream, redactor

#: Seconds between two pieces: each costs a command, and people read more slowly.
SHOW_INTERVAL = 0.2
#: Seconds between checks whether the turn is still wanted.
CHECK_INTERVAL = 1.0

Channel = Literal["text", "reasoning"]
#: Returns the reason if the model is halted.
Halt = Callable[[], str | None]


class LiveOutput:
    """Shows a turn while it arrives, without secrets; implements `Watch`."""

    def __init__(self, write: Callable[[Sequence[Entry]], bool], step: int, seconds: float) -> None:
        """Show the turn *step* with *write*, which returns False once the turn is unwanted.

        The turn must end within *seconds*.
        """
        self._until = time.monotonic() + seconds
        self._write = write
        self._redactor = redactor()
        self._step = step
        self._stopped = False
        self._looked = time.monotonic()
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._show([(channel, stream.flush()) for channel, stream in self._streams.items()])

    def delta(self, kind: Channel, text: str) -> None:
        """Buffer a piece, and show the buffer from time to time."""
        self._held[kind] += self._streams[kind].feed(text)
        if time.monotonic() - self._looked >= SHOW_INTERVAL:
            self._show([])

    def discard_deltas(self, reason: str) -> None:
        """Withdraw the output of a failed attempt."""
        self._begin()
        self._append([Discarded(step=self._step, why=reason)])

    def is_stopped(self) -> bool:
        """Report whether the turn is no longer wanted."""
        if time.monotonic() - self._looked >= CHECK_INTERVAL:
            self._show([])
        return self._stopped or self.is_late

    @property
    def is_late(self) -> bool:
        """True once its time is up."""
        return time.monotonic() >= self._until

    def _begin(self) -> None:
        self._streams: dict[Channel, RedactedStream] = {
            "reasoning": RedactedStream(self._redactor),
            "text": RedactedStream(self._redactor),
        }
        self._held: dict[Channel, str] = {"reasoning": "", "text": ""}

    def _show(self, rest: Sequence[tuple[Channel, str]]) -> None:
        for channel, text in rest:
            self._held[channel] += text
        pieces = [
            Delta(step=self._step, channel=channel, text=text)
            for channel, text in self._held.items()
            if text
        ]
        self._held = {"reasoning": "", "text": ""}
        self._append(pieces)

    def _append(self, entries: Sequence[Entry]) -> None:
        self._looked = time.monotonic()
        self._stopped = not self._write(entries) or self._stopped


#: Faults of a turn that is not an answer, by its finish reason.
_WRONG = {"length": "was cut off", "filtered": "was withheld"}


class Asking:
    """Requests the turns of one question within the agent's limits."""

    def __init__(
        self, settings: ModelSettings, meter: Meter, halt: Halt, timeout: float | None = None
    ) -> None:
        """*timeout* in seconds shortens the limit of the agent."""
        self._settings = settings
        self._meter = meter
        self._halt = halt
        longest = settings.limits.max_seconds
        self._until = time.monotonic() + (longest if timeout is None else min(longest, timeout))
        self._used = Usage()

    def turn(self, request: ModelRequest) -> Turn:
        """Request the next turn, without secrets.

        Raises:
            ModelError: the model did not answer, refused or is halted, or a limit is reached.
            ConfigError: its API key is missing.
        """
        self._check_budget()
        if reason := self._halt():
            raise ModelUnavailable(f"no request to the model: {reason}", requests=0)
        key = self._settings.api_key()
        safe = ModelRequest.from_json(json.dumps(redactor().redact_json(request.to_wire())))
        until = min(self._until, time.monotonic() + self._settings.timeouts.total)
        with Gateway(self._settings, key, meter=self._meter) as gateway:
            try:
                turn = gateway.turn(safe, _Until(until, self._halt))
            except Stopped as late:
                reason = self._halt() or "the model took too long"
                raise ModelUnavailable(reason, requests=late.requests, usage=late.usage) from None
        self._used += turn.usage
        if turn.finish in _WRONG or not (turn.calls or is_substantive(turn.text)):
            fault = _WRONG.get(turn.finish, "was empty")
            reason = f"the model's answer {fault}"
            raise ModelRefused(reason, requests=turn.requests, usage=turn.usage)
        return turn

    def _check_budget(self) -> None:
        """Check the limits against the usage so far.

        Raises:
            ModelError: a limit is used up.
        """
        for spending in model_limit_usage(self._used, self._settings.limits, self._settings.prices):
            if spending.over:
                raise ModelError(f"no further request to the model: {spending}", requests=0)


class _Until(Watch):
    """Ignores the output, and stops at a deadline or when the model is halted."""

    def __init__(self, until: float, halt: Halt) -> None:
        self._until = until
        self._halt = halt
        self._looked = time.monotonic()
        self._halted = False

    def delta(self, kind: Literal["text", "reasoning"], text: str) -> None:
        """Ignore it."""

    def discard_deltas(self, reason: str) -> None:
        """Ignore it."""

    def is_stopped(self) -> bool:
        """True once the time is up, or the model is halted."""
        now = time.monotonic()
        if now - self._looked >= CHECK_INTERVAL:
            self._looked = now
            with suppress(StoreError):
                self._halted = self._halt() is not None
        return self._halted or now >= self._until


class StoredMeter:
    """Implements `boyd.llm.gateway.Meter` for one model."""

    def __init__(self, usage: ModelUsage, settings: ModelSettings) -> None:
        self._usage = usage
        self._settings = settings

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """Count a request; a turn is expensive and continues if counting fails."""
        with suppress(StoreError):
            price = cost(usage, self._settings.prices)
            self._usage.count(self._settings.model, outcome, usage, price)


_M = TypeVar("_M", bound=BaseModel)

#: Times an answer that does not fit is requested again.
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
        """Request one answer in prose, without tools.

        Raises:
            ModelError: the model did not answer or refused.
            ConfigError: its API key is missing.
        """
        messages = self._opening(instructions, prompt)
        return self._asking().turn(ModelRequest(messages=messages, use_tools=False)).text

    def answer(
        self,
        prompt: str,
        shape: type[_M],
        *,
        instructions: str = "",
        timeout: float | None = None,
    ) -> _M:
        """Request one answer of that *shape*; one that does not fit is requested once more.

        It takes at most *timeout* seconds, and never longer than the limits of the agent allow.

        Raises:
            ModelError: the model did not answer, refused, gave an answer that does not fit, or a
                limit of the agent is used up.
            ConfigError: its API key is missing.
        """
        schema: JsonObject = shape.model_json_schema(by_alias=True)
        text = f"{instructions}\n\nAnswer by calling the tool `{ANSWER}`."
        messages = self._opening(text, prompt)
        asking, wrong = self._asking(timeout), ""
        for _ in range(1 + REPAIRS):
            turn = asking.turn(ModelRequest(messages=messages, tools=[answer_spec(schema)]))
            value = object_in(turn.calls[0].arguments if turn.calls else turn.text)
            try:
                return shape.model_validate_json(json.dumps(value))
            except ValidationError as error:
                wrong = explain(error) if value is not None else "it is not a JSON object"
            messages = [
                *messages,
                *_rejection(turn, f"The answer does not match its schema: {wrong}"),
            ]
        raise ModelRefused(f"the answer does not match its schema: {wrong}", requests=1 + REPAIRS)

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
        """Start the investigation that the plugin calls *key*, or find it.

        Raises:
            QueueFull: too many investigations are waiting.
        """
        investigation = self.find(key)
        if investigation is not None:
            return investigation
        investigations, id = self._store.investigations, self._id(key)
        origin = Origin(f"plugin:{self._plugin_id}", key)
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
        _, new = investigations.ask(request, queues.THINK, self._retention, id=id, origin=origin)
        if new:
            name = naming.investigation(id)
            self._dispatcher.job(self._store.agent_id, name, 1, queues.THINK)
        began = investigations.get(id)
        assert began is not None, "it has just been stored"
        return began

    def find(self, key: str) -> Investigation | None:
        """The investigation that the plugin calls *key*, if it was started and is kept."""
        return self._store.investigations.get(self._id(key))

    def _id(self, key: str) -> str:
        name = f"{self._store.agent_id}:plugin:{self._plugin_id}:{key}"
        return str(uuid.uuid5(uuid.NAMESPACE_OID, name))

    def _opening(self, instructions: str, prompt: str) -> list[Message]:
        parts = [part.strip() for part in (self._settings.system, instructions) if part.strip()]
        opening = [Message(role="system", text="\n\n".join(parts))] if parts else []
        return [*opening, Message(role="user", text=prompt)]

    def _asking(self, timeout: float | None = None) -> Asking:
        meter = StoredMeter(self._store.model_usage, self._settings)
        return Asking(self._settings, meter, self._store.halt, timeout)


def _rejection(turn: Turn, reason: str) -> list[Message]:
    """Return the messages that reject an answer."""
    answer = Message(role="assistant", text=turn.text, calls=turn.calls)
    results = [
        Message(role="tool", text=reason, call_id=call.id, failed=True) for call in turn.calls
    ]
    return [answer, *(results or [Message(role="user", text=reason)])]
