"""What a plugin's functions are given: agent, logger, shared state, HTTP, a model and the time."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel

from boyd.errors import ConfigError
from boyd.models import ApprovalItem, Catalog, Mode, Triple, utc_now
from boyd.models.situation import Place

if TYPE_CHECKING:
    from boyd.models.investigation import Investigation, Profile, Wanted
    from boyd.plugin.http_session import Session


class ApprovalReader(Protocol):
    """The agent's approvals, those that wait and those of its history."""

    def get(self, approval_id: str) -> ApprovalItem | None:
        """An approval as it is now; None: there is none, or it is not kept any more."""

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        """Those of them that nobody has answered yet, in one round trip; none for none."""


class Graph(Protocol):
    """Facts that all workers share, found by subject, object, predicate and word.

    A fact is there once, with the greatest confidence it was ever added with. Labels that a graph
    does not know have no facts. Lists are in the order of their labels. Each call but `all`,
    `page` and a large `add` is one round trip or two, however many labels it is given.
    """

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts; how many were new, or surer than before.

        Raises:
            PayloadTooLarge: the graph would become too large.
            ValueError: a label cannot be stored.
        """

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; whether it was there."""

    def out(self, symbol: str) -> list[Triple]:
        """The facts about a symbol."""

    def into(self, symbol: str) -> list[Triple]:
        """The facts that name a symbol as their object."""

    def out_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts about each of those symbols."""

    def into_many(self, symbols: Sequence[str]) -> dict[str, list[Triple]]:
        """The facts that name each of those symbols as their object."""

    def with_predicate(self, predicate: str, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts with that predicate, the first ones in the order of their labels."""

    def degrees(self, symbols: Sequence[str]) -> dict[str, int]:
        """How many facts each of those symbols is subject or object of."""

    def symbols_with(self, words: Collection[str], limit: int = 1000) -> dict[str, list[str]]:
        """For each of those words, as `boyd.tokenizer` has them, up to *limit* labels that hold it.

        Those with the fewest other words come first, then by label. They are labels of subjects,
        predicates and objects of knowledge: what an agent notes of its own work (`agent:…`) is
        none.
        """

    def size(self) -> int:
        """How many facts there are."""

    def revision(self) -> int:
        """How often it was changed."""

    def page(self, after: Place | None = None, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts in the order of their labels: the first ones, or those *after* one.

        Whoever reads page by page sees each fact once that is there all the while.
        """

    def all(self) -> Iterator[Triple]:
        """Every fact, in the order of their labels.

        What is added or removed meanwhile may be among them or not.
        """


_M = TypeVar("_M", bound=BaseModel)

_sessions = threading.local()


class State(Protocol):
    """A plugin's key-value state, shared by all workers; values are anything JSON can hold.

    Every value has a time to live in seconds (a week unless given): state that nobody writes any
    more goes away by itself.
    """

    def get(self, key: str, default: Any = None) -> Any:
        """The value of *key*, or *default*."""

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        """The values of those *keys* that are set, in one round trip."""

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Set *key*, whoever wrote it last."""

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        """Set *key* only if it still is *expected* (None: absent); say whether that was so."""

    def update(self, key: str, change: Callable[[Any], Any], ttl: float | None = None) -> Any:
        """Replace *key* by `change(current)` until no other worker came between; the new value."""

    def delete(self, key: str) -> None:
        """Remove *key*."""


class Llm(Protocol):
    """The agent's model: for one answer, or for an investigation."""

    def ask(self, prompt: str, *, instructions: str = "") -> str:
        """One answer in prose, without tools.

        Raises:
            ModelError: the model did not answer, or refused.
        """

    def answer(self, prompt: str, shape: type[_M], *, instructions: str = "") -> _M:
        """One answer of that *shape*; an answer that does not fit is put right once.

        Raises:
            ModelError: the model did not answer, refused, or its answer does not fit.
        """

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
        """Begin the investigation that this plugin knows as *key*, or find it; never waits for it.

        Lists call it by its *title*, or else by the beginning of the question.
        It is stored with the agent, and forgotten like a run; then the same key begins anew.
        When it ends, an iteration begins that finds it ended: see its `text` and, with *answer*,
        its `findings`.

        Raises:
            QueueFull: there are too many already.
        """

    def find(self, key: str) -> Investigation | None:
        """The investigation that this plugin knows as *key*, if it has begun and is kept."""


@dataclass(frozen=True)
class AgentInfo:
    """Whose plugin this is."""

    id: str
    name: str
    mode: Mode


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, {**kwargs, "extra": extra}


@dataclass(frozen=True)
class Context:
    """Handed to every function of a plugin as `ctx`.

    `iteration` is None where no iteration is running (`init`, an action a person started).
    `execution_id` names the execution of an action, wherever it was asked for: no other one ever
    has it, so it fits as an idempotency key of another system. It is None elsewhere.
    `catalog` tells what the agent can do. `host` is the host that this runs on, by the name that
    its worker has in the fleet; `worker` names the process. `not_due` tells orienters and hooks
    which of the agent's observers this iteration left out because of their intervals, and when
    they are due.
    """

    agent: AgentInfo
    plugin_id: str
    state: State
    iteration: int | None = None
    now: Callable[[], datetime] = field(default=utc_now)
    _llm: Callable[[str], Llm] | None = None
    catalog: Catalog = field(default_factory=Catalog)
    _playbooks: Callable[[], Mapping[str, Sequence[str]]] = dict
    _graph: Callable[[str, str | None], Graph] | None = None
    _approvals: ApprovalReader | None = None
    host: str = field(default_factory=socket.gethostname)
    worker: str = ""
    not_due: Mapping[str, datetime] = field(default_factory=dict)
    execution_id: str | None = None

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry agent, plugin and iteration."""
        extra: Mapping[str, object] = {
            "agent": self.agent.id,
            "plugin": self.plugin_id,
            "iteration": self.iteration,
        }
        return _Logger(logging.getLogger(f"boyd.plugin.{self.plugin_id}"), extra)

    @property
    def llm(self) -> Llm:
        """The agent's model.

        Raises:
            ConfigError: it has none.
        """
        if self._llm is None:
            why = "its file has no table [llm], or this is an isolated observer"
            raise ConfigError(f"agent {self.agent.id!r} has no model here: {why}")
        return self._llm(self.plugin_id)

    @property
    def has_llm(self) -> bool:
        """Whether the agent has a model."""
        return self._llm is not None

    def playbooks(self) -> Mapping[str, Sequence[str]]:
        """The playbooks that plugins give, by plugin, as Markdown."""
        return self._playbooks()

    def graph(self, name: str = "facts", of: str | None = None) -> Graph:
        """A graph of facts that all workers share: this agent's, or the agent's named by *of*.

        Raises:
            ConfigError: there is none here.
        """
        if self._graph is None:
            raise ConfigError("there is no graph in isolated observers, nor in `boyd observe`")
        return self._graph(name, of)

    @property
    def approvals(self) -> ApprovalReader:
        """The agent's approvals, to look at.

        Raises:
            ConfigError: there are none here.
        """
        if self._approvals is None:
            raise ConfigError("there are no approvals in isolated observers, nor in `boyd observe`")
        return self._approvals

    @property
    def http(self) -> Session:
        """An HTTP session with time limits, one per thread."""
        if not hasattr(_sessions, "session"):
            # Slow to import, and most plugins never ask for it.
            from boyd.plugin.http_session import Session

            _sessions.session = Session()
        session: Session = _sessions.session
        return session
