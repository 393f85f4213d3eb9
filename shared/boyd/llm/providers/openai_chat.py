"""Chat completions of OpenAI, which Ollama, vLLM, llama.cpp and others also speak."""

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
    TurnFinished,
    UsageReport,
)
from boyd.llm.model_errors import Fault, fault_of_event
from boyd.llm.providers.wire import (
    Wire,
    common_fields,
    index,
    number,
    parse_event,
    part,
    prepare,
    text,
)
from boyd.models.investigation import Finish, Usage
from boyd.settings.model import ModelSettings

_END = "[DONE]"
_FINISHES: Mapping[str, Finish] = {
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "filtered",
}
#: Finish reasons that mean a failure of the server.
_FAILURES = frozenset({"error", "abort", "insufficient_system_resource"})
#: Hosts that reject `max_tokens` for some models; others may not know the newer name.
_NEWER = ("openai.com", "openai.azure.com")


def url(settings: ModelSettings) -> str:
    """The address of requests."""
    return settings.base_url.rstrip("/") + "/chat/completions"


def headers(key: SecretStr | None) -> dict[str, str]:
    """The key, if there is one."""
    return {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}


def body(settings: ModelSettings, request: ModelRequest) -> dict[str, Any]:
    """The JSON object of a request; without `use_tools` it lists no tools."""
    system, messages = prepare(request, takes_system=settings.steering == "system")
    opening = [{"role": "system", "content": system}] if system else []
    result = {
        **common_fields(settings, _max_tokens_field(settings)),
        "messages": opening + [_message(message) for message in messages],
        "stream_options": {"include_usage": True},
    }
    if request.tools and request.use_tools:
        tools = [tool.to_wire() for tool in request.tools]
        result["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return result


def _max_tokens_field(settings: ModelSettings) -> str:
    host = urlsplit(settings.base_url).hostname or ""
    newer = any(host == name or host.endswith(f".{name}") for name in _NEWER)
    return "max_completion_tokens" if newer else "max_tokens"


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    functions = [(c.id, {"name": c.name, "arguments": c.arguments}) for c in message.calls]
    calls = [{"id": id_, "type": "function", "function": each} for id_, each in functions]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


class OpenAIDecoder:
    """Decodes the chunks of one answer."""

    def decode(self, data: str) -> Iterable[StreamEvent]:
        """See `Decoder`."""
        if data.strip() == _END:
            return [StreamEnded()]
        chunk = parse_event(data)
        if chunk.get("error"):
            raise fault_of_event(chunk["error"])
        if chunk.get("object") == "error":
            raise fault_of_event(chunk)
        return list(_events(chunk))


def _events(chunk: Mapping[str, Any]) -> Iterator[StreamEvent]:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            yield from _delta(part(choice, "delta"))
            yield from _finish(text(choice, "finish_reason"))
    usage = part(chunk, "usage")
    sent, received = number(usage, "prompt_tokens"), number(usage, "completion_tokens")
    if sent or received:
        yield UsageReport(Usage(input_tokens=sent, output_tokens=received))


def _delta(delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
    # Some servers send the same reasoning under both names.
    thought = text(delta, "reasoning_content") or text(delta, "reasoning")
    if thought:
        yield ReasoningDelta(thought)
    yield from _content(delta.get("content"))
    if refusal := text(delta, "refusal"):
        yield TextDelta(refusal)
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
        raise Fault(f"the server stopped in the middle of the answer: {reason}")
    if reason:
        yield TurnFinished(_FINISHES.get(reason, "stop"))


WIRE = Wire(url, headers, body, OpenAIDecoder)
