"""What a tool is given for a goal, as far as the goal's own words tell; None: they do not."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from boyd.models import Confidence, JsonObject, Model
from boyd.plugins.goals.state import Goal
from boyd.tokenizer import URL

Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


class QueryParams(Model):
    """What is known about a symbol."""

    symbol: Label
    direction: Literal["both", "out", "into"] = "both"


class MutateParams(Model):
    """A fact to add."""

    subject: Label
    predicate: Label
    object: Label
    confidence: Confidence = 0.8


class RecallParams(Model):
    """What to remember."""

    query_symbols: list[Label] = Field(min_length=1, max_length=20)
    top_k: int = Field(default=5, gt=0, le=50)


class ReasonParams(Model):
    """An expression, as in `(and b a)`."""

    expression: str = Field(min_length=1, max_length=10_000)


class SimilarParams(Model):
    """What to find the like of."""

    symbol: Label
    top_k: int = Field(default=5, gt=0, le=50)


class InferParams(Model):
    """How far to go."""

    max_iterations: int = Field(default=5, gt=0, le=20)
    min_confidence: Confidence = 0.1


class GapParams(Model):
    """What to look around: a symbol, usually a goal."""

    goal: Label
    max_gaps: int = Field(default=10, gt=0, le=100)


class FileParams(Model):
    """What to do with a file below one of the allowed folders."""

    action: Literal["read", "write", "list"] = "read"
    path: str = Field(min_length=1, max_length=4000)
    content: str | None = None


class FetchParams(Model):
    """What to fetch."""

    url: str = Field(min_length=1, max_length=2000)
    timeout: float = Field(default=10.0, gt=0, le=60)


class ShellParams(Model):
    """A command line for bash."""

    command: str = Field(min_length=1, max_length=10_000)
    timeout: float = Field(default=30.0, gt=0, le=600)


class AskParams(Model):
    """What to ask a person."""

    question: str = Field(min_length=1, max_length=2000)


class IngestParams(Model):
    """A text to take in: itself, a file, or an address."""

    title: Annotated[Label, Field(max_length=300)]
    text: str | None = Field(default=None, max_length=1_000_000)
    path: str | None = None
    url: str | None = None


class SearchParams(Model):
    """What to look for."""

    query: str = Field(min_length=1, max_length=2000)
    top_k: int = Field(default=5, gt=0, le=50)


_URL = re.compile(URL)
_PATH = re.compile(r"(?<![\w/.:])(?:/[\w.-]+)+|(?<![\w/.:-])(?:[\w-]+/)*[\w-]+\.[A-Za-z]\w{0,7}\b")
# They look like names of files.
_NO_PATHS = frozenset({"e.g", "i.e", "a.m", "p.m", "u.s"})
#: A goal that says what to ask, as in "Ask the user which colour the bike should have".
_ASKING = re.compile(
    r"(?:please\s+)?ask\s+(?:the\s+|an?\s+|my\s+)?"
    r"(?:users?|persons?|people|humans?|operators?|somebody|someone|me)\s+"
    r"(?:for\s+|(?P<to>to\s+))?(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_COMMAND = re.compile(r"`([^`]+)`")


def params_for(tool: str, goal: Goal, found: JsonObject) -> JsonObject | None:
    """The params of *tool*: those that scoring has *found*, or what the goal says; None: none."""
    if found:
        return found
    return _INPUTS[tool](goal) if tool in _INPUTS else {}


def digest(params: JsonObject) -> str:
    """What stands for *params* where it only matters whether they are the same."""
    canonical = json.dumps(params, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _file_io(goal: Goal) -> JsonObject | None:
    path = _path(goal.description)
    return {"action": "read", "path": path} if path else None


def _http_fetch(goal: Goal) -> JsonObject | None:
    url = _URL.search(goal.description)
    return {"url": url[0]} if url else None


def _shell_exec(goal: Goal) -> JsonObject | None:
    command = _COMMAND.search(goal.description)
    return {"command": command[1]} if command else None


def _user_interact(goal: Goal) -> JsonObject | None:
    # Nobody is asked the same again, whether there was an answer or is none yet.
    if goal.question is not None or goal.used.get("user_interact", 0) > 0:
        return None
    return {"question": _question(goal.description)}


def _question(description: str) -> str:
    """What to ask: what the goal says is to be asked, else what helps with it."""
    found = _ASKING.match(description)
    if found is None:
        return f'What can you tell me that helps with the goal "{description}"?'
    wanted = found["what"].rstrip(" .?!")
    if found["to"]:
        return f"Please {wanted}."
    return f"Please tell me {wanted}."


def _content_ingest(goal: Goal) -> JsonObject | None:
    url = _URL.search(goal.description)
    if url:
        return {"title": url[0][:300], "url": url[0]}
    path = _path(goal.description)
    return {"title": path[:300], "path": path} if path else None


def _library_search(goal: Goal) -> JsonObject:
    return {"query": goal.description, "top_k": 5}


def _path(text: str) -> str | None:
    found = (one[0].rstrip(".") for one in _PATH.finditer(_URL.sub(" ", text)))
    return next((one for one in found if one and one.lower() not in _NO_PATHS), None)


_INPUTS: dict[str, Callable[[Goal], JsonObject | None]] = {
    "file_io": _file_io,
    "http_fetch": _http_fetch,
    "shell_exec": _shell_exec,
    "user_interact": _user_interact,
    "content_ingest": _content_ingest,
    "library_search": _library_search,
    "infer_rules": lambda goal: {"max_iterations": 5, "min_confidence": 0.1},
    "consolidate": lambda goal: {},
}
