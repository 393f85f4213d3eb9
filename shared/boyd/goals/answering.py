"""How endpoints read a request, and refuse it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pydantic import ValidationError

from boyd.goals.goal_book import GoalError
from boyd.models import EndpointReply, EndpointRequest, JsonObject, Model, explain

#: How many entries a list has unless its reader says, and at most.
USUAL, MOST = 50, 500

_P = ParamSpec("_P")
_M = TypeVar("_M", bound=Model)


class Refused(Exception):
    """A request cannot be granted."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def answering(
    handle: Callable[_P, Model | EndpointReply],
) -> Callable[_P, JsonObject | EndpointReply]:
    """Let an endpoint return a model, and raise what it refuses."""

    @functools.wraps(handle)
    def answered(*args: _P.args, **more: _P.kwargs) -> JsonObject | EndpointReply:
        try:
            answer = handle(*args, **more)
        except Refused as refused:
            return _error(refused.status, refused)
        except GoalError as error:
            return _error(409, error)
        return answer if isinstance(answer, EndpointReply) else answer.to_wire()

    return answered


def made(what: Model) -> EndpointReply:
    """The answer that something is there now that was not."""
    return EndpointReply(status=201, body=what.to_wire())


def body(kind: type[_M], request: EndpointRequest) -> _M:
    """What a request holds; without a body, the defaults.

    Raises:
        Refused: it does not fit.
    """
    try:
        return kind.model_validate(request.body or {})
    except ValidationError as error:
        raise Refused(422, explain(error)) from None


def number(request: EndpointRequest, name: str, usual: int = USUAL) -> int:
    """How many entries are asked for.

    Raises:
        Refused: it is no number, or too great.
    """
    text = request.query.get(name, str(usual))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST:
        raise Refused(422, f"{name}: {text!r} is no number from 1 to {MOST}")
    return int(text)


def _error(status: int, error: Exception) -> EndpointReply:
    return EndpointReply(status=status, body={"error": str(error)})
