"""Errors of a model's server, and whether another attempt may succeed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from boyd.errors import BoydError
from boyd.llm.messages import parse_object
from boyd.models.investigation import Usage

#: Error codes and types that mean "context full", letters only.
_FULL_NAMES = re.compile(
    "contextlengthexceeded|(model)?contextwindowexceeded|contextwindowexceedederror|"
    "exceedcontextsizeerror|requesttoolarge"
)
#: Messages of Anthropic, Ollama, vLLM, Gemini and Text Generation Inference with that meaning.
_FULL_MESSAGES = (
    "prompt is too long",
    "prompt too long",
    "maximum model length",
    "input token count",
    "inputs` tokens + `max_new_tokens`",
)
#: Names of the context; with a word for "too much" they mean it as well.
_CONTEXT = (
    *("context length", "context size", "context window", "context limit"),
    *("maximum context", "max_model_len"),
)
_TOO_MUCH = ("exceed", "longer than", "too large", "too long", "maximum", "greater than", "only")
#: HTTP statuses of such errors: OpenAI, Anthropic, TGI, and older versions of llama.cpp.
_FULL_STATUSES = frozenset({400, 413, 422, 500})
#: Characters of an error that are inspected.
_INSPECTED = 4000
#: Upper bound for `Retry-After`, in seconds.
MAX_RETRY_AFTER = 60.0

_IN_STREAM = "the stream reported an error"
_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
#: Error types within a stream that are about the request.
_PERMANENT_TYPES = re.compile(
    "(authentication|badrequest|billing|invalidrequest|notfound|permission|permissiondenied|"
    "unprocessableentity)error|contentfilter|invalidapikey|invalidprompt|modelnotfound"
)


class ModelError(BoydError):
    """The model produced no turn, after so many requests.

    Attributes:
        status: HTTP status of the last response; None without a response.
        usage: tokens that the failed attempts used, as far as the server reported them.
    """

    def __init__(
        self,
        message: str,
        *,
        requests: int = 1,
        status: int | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.requests = requests
        self.status = status
        self.usage = usage or Usage()


class ModelUnavailable(ModelError):
    """Every attempt failed for a transient reason."""


class ModelRefused(ModelError):
    """The server rejects the request; it is not retried."""


class ContextFull(ModelRefused):
    """The conversation is too long for the model; a shorter one may be accepted."""


class Stopped(BoydError):
    """The watch gave up the turn; `requests` and `usage` are those until then."""

    def __init__(self, *, requests: int = 0, usage: Usage | None = None) -> None:
        super().__init__()
        self.requests = requests
        self.usage = usage or Usage()


class Fault(Exception):
    """A failed attempt.

    Attributes:
        details: the server's message, which may be long and may contain secrets.
        permanent: the same request would fail again.
        full: the conversation exceeds the model's context.
        status: HTTP status; None without a response.
        wait: seconds the server asks us to wait.
    """

    def __init__(
        self,
        reason: str,
        details: str = "",
        *,
        permanent: bool = False,
        full: bool = False,
        status: int | None = None,
        wait: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.details = details
        self.permanent = permanent or full
        self.full = full
        self.status = status
        self.wait = wait


def fault_of_response(status: int, headers: Mapping[str, str], body: str, now: float) -> Fault:
    """The fault of a response that is not an event stream.

    *headers* have names in lower case; *now* (seconds since the epoch) is the reference for dates
    in `Retry-After`.
    """
    document = parse_object(body) or {}
    details, reason = _error_message(document, body), f"it answered {status}"
    hint = "" if document else " (is llm.base_url complete?)"
    if status < 300:
        kind = headers.get("content-type", "nothing")
        reason = f"it answered with {kind} instead of an event stream{hint}"
    elif status < 400:
        reason += "; redirects are not followed"
    elif status == 404:
        reason += hint
    if status < 400:
        return Fault(reason, details, permanent=True, status=status)
    full = _is_context_full(status, _error_names(document), details)
    wait = retry_after(headers.get("retry-after", ""), now)
    permanent = not _is_transient(status)
    return Fault(reason, details, permanent=permanent, full=full, status=status, wait=wait)


def fault_of_event(error: Any) -> Fault:
    """The fault of an error event within a stream, an object or text."""
    if not isinstance(error, Mapping):
        return Fault(_IN_STREAM, _single_line(str(error)))
    names = code, kind = _error_names(error)
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else None
    permanent = any(map(_PERMANENT_TYPES.fullmatch, map(_letters, names)))
    permanent = permanent or (status is not None and not _is_transient(status))
    details = _single_line(str(error.get("message") or kind or json.dumps(error, default=str)))
    full = _is_context_full(status, names, details)
    return Fault(_IN_STREAM, details, permanent=permanent, full=full, status=status)


def retry_after(header: str, now: float) -> float:
    """Seconds to wait by a `Retry-After` header (seconds or a date); 0 if it is unusable."""
    if re.fullmatch(r"\s*\d{1,9}(\.\d{0,9})?\s*", header):
        return min(float(header), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(date.timestamp() - now, 0.0), MAX_RETRY_AFTER)


def _is_context_full(status: int | None, names: Iterable[str], message: str) -> bool:
    """Report whether the error says that the context is full; no *status* within a stream."""
    if status is not None and status not in _FULL_STATUSES:
        return False
    letters = list(map(_letters, names))
    if any("ratelimit" in name for name in letters):
        return False
    text = message[:_INSPECTED].lower()
    return bool(
        any(map(_FULL_NAMES.fullmatch, letters))
        or any(phrase in text for phrase in _FULL_MESSAGES)
        or (any(name in text for name in _CONTEXT) and any(word in text for word in _TOO_MUCH))
    )


def _letters(name: str) -> str:
    """The letters of a code or type, which servers spell in many ways."""
    return re.sub(r"[^a-z]", "", name.lower())


def _is_transient(status: int) -> bool:
    return status in _TRANSIENT_STATUSES or status >= 500


def _error_names(document: Mapping[str, Any]) -> tuple[str, str]:
    error = document.get("error")
    source = error if isinstance(error, Mapping) else document
    return str(source.get("code") or ""), str(source.get("type") or "")


def _error_message(document: Mapping[str, Any], body: str) -> str:
    """The message of an error document, or the *body* itself."""
    error = document.get("error", document)
    message = error.get("message") if isinstance(error, Mapping) else error
    return _single_line(message if isinstance(message, str) and message.strip() else body)


def _single_line(text: str) -> str:
    return " ".join(text.split())
