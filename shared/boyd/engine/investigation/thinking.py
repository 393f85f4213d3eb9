"""What plugins are given as `ctx.llm`: the agent's model, for an answer or an investigation."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from boyd import naming, queues
from boyd.engine.courier import Courier
from boyd.engine.investigation.asking import Asking
from boyd.engine.investigation.meter import StoredMeter
from boyd.llm.errors import ModelRefused
from boyd.llm.messages import Message, ModelRequest, Turn
from boyd.llm.shape import object_in
from boyd.llm.toolbox import ANSWER, answer_spec
from boyd.model_settings import ModelSettings
from boyd.models import JsonObject, explain
from boyd.models.investigation import (
    MOST_TITLED,
    Investigation,
    InvestigationRequest,
    Profile,
    Wanted,
)
from boyd.redaction import redactor
from boyd.store import AgentStore, Retention

_M = TypeVar("_M", bound=BaseModel)

#: How often an answer that does not fit is asked for again.
REPAIRS = 1


class Thinking:
    """The model of one agent, for one plugin; implements `boyd.plugin.Llm`."""

    def __init__(
        self,
        settings: ModelSettings,
        store: AgentStore,
        courier: Courier,
        retention: Retention,
        plugin_id: str,
    ) -> None:
        self._settings = settings
        self._store = store
        self._courier = courier
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
            self._courier.order(self._store.agent_id, name, 1, queues.THINK)
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
