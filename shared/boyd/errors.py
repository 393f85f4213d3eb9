"""Exceptions of Boyd.

    BoydError
    ├── ConfigError         invalid settings or agent file
    │   └── SecretUnavailable  a secret cannot be read
    ├── PluginError         a faulty plugin; carries its id
    │   └── InitFailed         its `init` raised
    ├── StoreError
    │   ├── StoreUnavailable   Redis did not answer
    │   │   └── StoreReadOnly     Redis accepts no writes now
    │   ├── UnreadableRecord   a record in Redis cannot be read
    │   │   └── ForeignKey        a key that the whole deployment needs holds another type
    │   └── PayloadTooLarge    a value is too large for Redis
    ├── ArchiveUnavailable  the database of the archive did not answer
    │   └── ArchiveRefused     it refused a statement
    ├── CollectorUnavailable  the collector of traces did not answer
    ├── TooManyMatches      a search is too wide
    ├── BadCursor           an invalid cursor of a page
    ├── QueueFull           a queue is full
    ├── UnknownAgent        no such agent in this deployment
    ├── RollbackRefused     an execution cannot be rolled back now
    ├── AgentPaused         the agent accepts no triggers now
    ├── AgentRevoked        the agent's right to act is revoked
    ├── NotDelegated        an agent does not let another one do this
    ├── ApiUnavailable      for clients: the HTTP API did not answer
    └── ApiProblem          for clients: the HTTP API refused a request; carries its answer

    LimitExceeded  a program was ended for a limit of its sandbox
    Veto        raised by a hook to stop an action: an intent, not an error
    Overrun     a time limit passed; a BaseException, so that plugin code cannot swallow it

The docstring of an error is its default message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

#: The exit status of a process that ends with `InitFailed`.
INIT_FAILED = 78


class BoydError(Exception):
    """Something in Boyd went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class ConfigError(BoydError):
    """The configuration cannot be used."""


class SecretUnavailable(ConfigError):
    """A secret that a reference names cannot be read."""


class PluginError(BoydError):
    """A plugin cannot be used."""

    def __init__(self, plugin: str, message: str) -> None:
        super().__init__(f"plugin {plugin!r}: {message}")
        self.plugin = plugin
        self.reason = message


class InitFailed(PluginError):
    """The `init` of a plugin raised: no process that runs the agent can start."""


class StoreError(BoydError):
    """Redis refused an operation.

    Attributes:
        advice: what to do about it.
    """

    advice = "start it, or set BOYD_REDIS_URL to another server"


class StoreUnavailable(StoreError):
    """Redis did not answer; check that it runs and that BOYD_REDIS_URL names it."""


class StoreLoginRefused(StoreUnavailable):
    """Redis refused the login; check the user and the password in BOYD_REDIS_URL."""

    advice = "check user and password in BOYD_REDIS_URL"


class StoreConnectionFailed(StoreUnavailable):
    """Redis and Boyd do not agree on a connection; check the port and the certificates of both."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self.advice = advice


class StoreReadOnly(StoreUnavailable):
    """Redis answers and takes no writes now; check its disk, its memory and its replicas."""


class NewerFormat(StoreError):
    """A newer release has written this in a format unknown to this one, which leaves it alone."""


class UnreadableRecord(StoreError):
    """A record in Redis cannot be read: something else than Boyd has written it; it is named."""


class ForeignKey(UnreadableRecord):
    """A key that the whole deployment needs holds a value of another type; it is named."""


class PayloadTooLarge(StoreError):
    """A value is larger than Boyd keeps in Redis."""


class ArchiveUnavailable(BoydError):
    """The database of the archive did not answer; check that BOYD_ARCHIVE_URL names it."""


class ArchiveRefused(ArchiveUnavailable):
    """The database of the archive refused a statement, but answers others."""


class CollectorUnavailable(BoydError):
    """The collector of traces did not acknowledge spans; check its address and its log."""


class TooManyMatches(BoydError):
    """The search is too wide; write more of its words."""


class BadCursor(BoydError):
    """The cursor is none that was given out; begin again without one."""


class QueueFull(BoydError):
    """Too much waits already; nothing was taken."""


class UnknownAgent(BoydError):
    """No agent of that id has been started against this Redis."""


class RollbackRefused(BoydError):
    """The execution cannot be rolled back."""


class AgentPaused(BoydError):
    """The agent is paused; resume it first."""


class ActionsFrozen(BoydError):
    """No action of the agent starts now: it is frozen, or its right to act is revoked."""


class AgentRevoked(BoydError):
    """The agent's right to act is revoked; restore it first."""


class ActionHeld(BoydError):
    """An action is not proposed: it is in flight on the same target, or was just denied."""


class NotDelegated(BoydError):
    """An agent does not let another agent do this; see the table [delegation] of its file."""


class AgentRuns(BoydError):
    """A live process runs the agent, so it cannot be retired."""


class ApiUnavailable(BoydError):
    """The API did not answer."""


class ApiProblem(BoydError):
    """The API refused a request; `str()` returns the detail.

    Attributes:
        name: the stable last part of the problem's type, such as `not-found`.
        status: the HTTP status.
        detail: what is wrong.
        document: the whole response.
    """

    def __init__(
        self, name: str, status: int, detail: str, document: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.name = name
        self.status = status
        self.detail = detail
        self.document = dict(document or {})


class LimitExceeded(Exception):
    """A program was ended because it went beyond a limit of its sandbox, which `limit` names."""

    def __init__(self, limit: Literal["cpu", "file size"], message: str) -> None:
        super().__init__(message)
        self.limit = limit


class Veto(Exception):
    """Raised by an `on_decide` or `on_before_act` hook to stop the action."""


class Overrun(BaseException):
    """The time limit of a component has expired."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and what is behind it, down to the error of the system.

    HTTP libraries keep a cause as `reason` or among the arguments, not where Python looks for it.
    """
    visited: set[int] = set()
    cause: object = error
    while isinstance(cause, BaseException) and id(cause) not in visited:
        yield cause
        visited.add(id(cause))
        inner = (getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__)
        cause = next((item for item in inner if isinstance(item, BaseException)), None)
