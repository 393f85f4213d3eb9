"""Why a turn of a model did not come about (G3).

    BoydError
    ├── ModelError          carries what was sent and spent until then
    │   ├── ModelUnavailable   every attempt failed; later may be better
    │   └── ModelRefused       the same request would be refused again
    │       └── ContextFull       because it does not fit into the context of the model
    └── Stopped             nobody wants the turn any more: an intent, not an error

Messages hold neither the key nor more than 500 characters of an answer.
"""

from __future__ import annotations

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
