"""What goes wrong with one attempt at a turn, and whether another one may go better (G3)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from boyd.errors import BoydError
from boyd.models.investigation import Usage


class ModelError(BoydError):
    """The model gave no turn.

    Attributes:
        requests: how many were sent.
        status: of HTTP, of the last answer; None when there was none.
        usage: what the failed attempts have cost, as far as the server said.
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
    """Every attempt at a turn failed for a reason that may pass."""


class ModelRefused(ModelError):
    """The server refuses the request itself; it is not sent again."""


class ContextFull(ModelRefused):
    """The conversation is too long for the model; a shorter one may be taken."""


class Stopped(BoydError):
    """The turn was given up because its watch has stopped.

    Attributes:
        requests: how many were sent until then.
        usage: what they have cost, as far as the server said.
    """

    def __init__(self, *, requests: int = 0, usage: Usage | None = None) -> None:
        super().__init__()
        self.requests = requests
        self.usage = usage or Usage()


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


#: How long a server may ask to be left alone, in seconds; it is asked again then, whatever it said.
MAX_RETRY_AFTER = 60.0

_IN_STREAM = "an error came in the stream"
_PASSING_STATUSES = frozenset({408, 409, 425, 429})
#: Kinds of errors within a stream that are about the request, as the servers call them.
_LASTING_KINDS = frozenset(
    {
        "authenticationerror",
        "badrequesterror",
        "billingerror",
        "contentfilter",
        "invalidapikey",
        "invalidprompt",
        "invalidrequesterror",
        "modelnotfound",
        "notfounderror",
        "permissiondeniederror",
        "permissionerror",
        "unprocessableentityerror",
    }
)


class Fault(Exception):
    """An attempt failed.

    Attributes:
        said: the server's own words, which may be long and may hold secrets.
        lasting: the same request would fail again.
        full: the conversation does not fit into the context of the model.
        status: of HTTP; None when there was no answer.
        wait: how many seconds the server wants to be left alone.
    """

    def __init__(
        self,
        why: str,
        said: str = "",
        *,
        lasting: bool = False,
        full: bool = False,
        status: int | None = None,
        wait: float = 0.0,
    ) -> None:
        super().__init__(why)
        self.said = said
        self.lasting = lasting or full
        self.full = full
        self.status = status
        self.wait = wait


def of_status(status: int, headers: Mapping[str, str], body: str, now: float) -> Fault:
    """The fault of an answer that is no stream of events.

    Args:
        status: of HTTP.
        headers: their names in lower case.
        body: as much of it as was read.
        now: seconds since the epoch, against which a date to retry after is held.
    """
    said, why = _told_by(body), f"it answered {status}"
    if status < 300:
        kind = headers.get("content-type", "nothing")
        why = f"it answered with {kind} and not with a stream of events{_hint(body)}"
        return Fault(why, said, lasting=True, status=status)
    if status < 400:
        return Fault(f"{why}; redirects are not followed", said, lasting=True, status=status)
    if status == 404:
        why += _hint(body)
    wait = retry_after(headers.get("retry-after", ""), now)
    full = is_overflow(status, _names(_document(body)), said)
    return Fault(why, said, lasting=not _may_pass(status), full=full, status=status, wait=wait)


def of_error(error: Any) -> Fault:
    """The fault of an error that came within a stream, as an object or as text."""
    if not isinstance(error, Mapping):
        return Fault(_IN_STREAM, _plain(str(error)))
    names = _names(error)
    code, kind = names
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else None
    known = bool({letters(name) for name in names} & _LASTING_KINDS)
    lasting = known or (status is not None and not _may_pass(status))
    said = _plain(str(error.get("message") or kind or json.dumps(error, default=str)))
    return Fault(
        _IN_STREAM, said, lasting=lasting, full=is_overflow(status, names, said), status=status
    )


def retry_after(header: str, now: float) -> float:
    """The seconds that a `Retry-After` header asks for, at most a minute; 0 when it says nothing.

    Args:
        header: seconds or a date of HTTP.
        now: seconds since the epoch.
    """
    if re.fullmatch(r"\s*\d{1,9}(\.\d{0,9})?\s*", header):
        return min(float(header), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(date.timestamp() - now, 0.0), MAX_RETRY_AFTER)


def _may_pass(status: int) -> bool:
    return status in _PASSING_STATUSES or status >= 500


def _names(document: Mapping[str, Any]) -> tuple[str, str]:
    """The code and the type of an error."""
    error = document.get("error", document)
    if not isinstance(error, Mapping):
        error = document
    return str(error.get("code") or ""), str(error.get("type") or "")


def _told_by(body: str) -> str:
    """What an error document says, or else its text."""
    document = _document(body)
    error = document.get("error", document)
    said = error.get("message") if isinstance(error, Mapping) else error
    return _plain(said if isinstance(said, str) and said.strip() else body)


def _document(body: str) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _hint(body: str) -> str:
    """Where nothing speaks of models, the address is the likely mistake."""
    return "" if _document(body) else " (is llm.base_url complete?)"


def _plain(text: str) -> str:
    """*text* in one line."""
    return " ".join(text.split())
