"""Chat completions as OpenAI made them and Ollama, vLLM, llama.cpp and others speak them (G1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from boyd.llm.messages import (
    CallFragment,
    Message,
    ModelRequest,
    ReasoningDelta,
    StreamEnded,
    StreamEvent,
    TextDelta,
    ToolSpec,
    TurnFinished,
    Used,
)
from boyd.llm.model_errors import Fault, of_error
from boyd.llm.providers.wire import Wire, document, frame, index, number, part, prepared, text
from boyd.models.investigation import Finish, ToolCall, Usage
from boyd.settings.model import ModelSettings

_END = "[DONE]"
_FINISHES: Mapping[str, Finish] = {
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "filtered",
}
#: Reasons to finish that mean that the server has failed.
_FAILURES = frozenset({"error", "abort", "insufficient_system_resource"})
#: Hosts that refuse `max_tokens` for some models; other servers may not know the newer word.
_NEWER = ("openai.com", "openai.azure.com")


def url(settings: ModelSettings) -> str:
    """Where requests go."""
    return settings.base_url.rstrip("/") + "/chat/completions"


def headers(key: SecretStr | None) -> dict[str, str]:
    """The key, if there is one."""
    return {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}


def body(settings: ModelSettings, request: ModelRequest) -> dict[str, Any]:
    """The JSON object of a request; without `use_tools` it names no tools at all (F5)."""
    system, messages = prepared(request, takes_system=settings.steering == "system")
    said = [{"role": "system", "content": system}] if system else []
    made = {
        **frame(settings, _longest(settings)),
        "messages": said + [_message(one) for one in messages],
        "stream_options": {"include_usage": True},
    }
    if request.tools and request.use_tools:
        made["tools"] = [_tool(one) for one in request.tools]
    return made


def _longest(settings: ModelSettings) -> str:
    host = urlsplit(settings.base_url).hostname or ""
    newer = any(host == name or host.endswith(f".{name}") for name in _NEWER)
    return "max_completion_tokens" if newer else "max_tokens"


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [_call(one) for one in message.calls]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "function": tool.to_wire()}


class OpenAIDecoder:
    """Reads the chunks of one answer."""

    def decode(self, data: str) -> Iterable[StreamEvent]:
        """What one chunk says.

        Raises:
            Fault: an error, or nothing that belongs on this wire.
        """
        if data.strip() == _END:
            return [StreamEnded()]
        chunk = document(data)
        if chunk.get("error"):
            raise of_error(chunk["error"])
        if chunk.get("object") == "error":
            raise of_error(chunk)
        return list(_events(chunk))


def _events(chunk: Mapping[str, Any]) -> Iterator[StreamEvent]:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            yield from _delta(part(choice, "delta"))
            yield from _finish(text(choice, "finish_reason"))
    usage = part(chunk, "usage")
    spent = Usage(
        input_tokens=number(usage, "prompt_tokens"),
        output_tokens=number(usage, "completion_tokens"),
    )
    if spent != Usage():
        yield Used(spent)


def _delta(delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
    # Some servers send the same thought under both names.
    thought = text(delta, "reasoning_content") or text(delta, "reasoning")
    if thought:
        yield ReasoningDelta(thought)
    yield from _content(delta.get("content"))
    if said := text(delta, "refusal"):
        yield TextDelta(said)
    calls = delta.get("tool_calls")
    for fragment in calls if isinstance(calls, list) else []:
        if isinstance(fragment, dict):
            yield _fragment(fragment)


def _content(content: Any) -> Iterator[StreamEvent]:
    if isinstance(content, str) and content:
        yield TextDelta(content)
    for piece in content if isinstance(content, list) else []:
        if isinstance(piece, dict) and text(piece, "text"):
            yield TextDelta(text(piece, "text"))
        elif isinstance(piece, dict):
            for thought in _content(piece.get("thinking")):
                assert isinstance(thought, TextDelta)
                yield ReasoningDelta(thought.text)


def _fragment(fragment: Mapping[str, Any]) -> CallFragment:
    function = part(fragment, "function")
    arguments = function.get("arguments")
    id_ = fragment.get("id")
    return CallFragment(
        index=index(fragment),
        id=str(id_) if id_ else None,
        name=text(function, "name") or None,
        arguments=arguments if isinstance(arguments, str | dict) else None,
    )


def _finish(reason: str) -> Iterator[StreamEvent]:
    if reason in _FAILURES:
        raise Fault(f"the server gave up in the middle of the answer: {reason}")
    if reason:
        yield TurnFinished(_FINISHES.get(reason, "stop"))


WIRE = Wire(url, headers, body, OpenAIDecoder)
