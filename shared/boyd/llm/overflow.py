"""Tells the refusal of a conversation that is too long for the context of a model from others.

Each server has its own code or wording. They are searched as plain words, in the beginning of what
the server says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Codes and types of errors that say it, letters only.
_NAMES = frozenset(
    {
        "contextlengthexceeded",
        "contextwindowexceeded",
        "contextwindowexceedederror",
        "exceedcontextsizeerror",
        "modelcontextwindowexceeded",
        "requesttoolarge",
    }
)
#: Wordings of Anthropic, Ollama, vLLM, Gemini, Text Generation Inference.
_SENTENCES = (
    "prompt is too long",
    "prompt too long",
    "maximum model length",
    "input token count",
    "inputs` tokens + `max_new_tokens`",
)
#: And those that name what is full, together with a word for too much.
_FULL = (
    "context length",
    "context size",
    "context window",
    "context limit",
    "maximum context",
    "max_model_len",
)
_TOO_MUCH = ("exceed", "longer than", "too large", "too long", "maximum", "greater than", "only")
#: Statuses of HTTP with which servers say it: OpenAI, Anthropic, TGI, and older ones of llama.cpp.
_STATUSES = frozenset({400, 413, 422, 500})
#: Characters of an error that are looked at.
_LOOKED_AT = 4000


def is_overflow(status: int | None, names: Iterable[str], said: str) -> bool:
    """Whether an error means that the conversation does not fit into the context.

    Args:
        status: of HTTP; None: it came within a stream.
        names: its code and its type.
        said: its message.
    """
    if status is not None and status not in _STATUSES:
        return False
    plain = {letters(name) for name in names}
    if any("ratelimit" in name for name in plain):
        return False
    return bool(plain & _NAMES) or _means_it(said[:_LOOKED_AT].lower())


def letters(name: str) -> str:
    """The letters of a code or type: servers write them in many ways."""
    return re.sub(r"[^a-z]", "", name.lower())


def _means_it(said: str) -> bool:
    if any(sentence in said for sentence in _SENTENCES):
        return True
    return any(full in said for full in _FULL) and any(word in said for word in _TOO_MUCH)
