"""The `ctx` of a plugin's functions: agent, logger, shared state, HTTP, model and time."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from boyd.errors import ConfigError
from boyd.models import Actor, ApprovalItem, Catalog, JsonObject, Mode, Place, Triple, utc_now

if TYPE_CHECKING:
    from boyd.models.investigation import Investigation, Profile, Wanted
    from boyd.plugin.http_session import Session


class ApprovalReader(Protocol):
    """The agent's pending and resolved approvals, read-only."""

    def get(self, approval_id: str) -> ApprovalItem | None:
        """Return the current approval, or None if it does not exist or is no longer kept."""

    def waiting(self, approval_ids: Collection[str]) -> set[str]:
        """The pending ones among *approval_ids*, in one round trip."""


class Graph(Protocol):
    """Facts shared by all workers, indexed by subject, object, predicate and word.

    Each fact exists once, with the highest confidence it was added with. Lists are sorted by label.
    Each call except `all`, `page` and a large `add` takes one or two round trips.
    """

    def add(self, triples: Iterable[Triple]) -> int:
        """Add facts; the number that are new or have a higher confidence.

        Raises:
            PayloadTooLarge: the graph would become too large.
            ValueError: a label cannot be stored.
        """

    def remove(self, subject: str, predicate: str, object: str) -> bool:
        """Remove a fact; return False if it did not exist."""

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
        """The number of facts with each symbol as subject or object."""

    def symbols_with(self, words: Collection[str], limit: int = 1000) -> dict[str, list[str]]:
        """For each word, split as by `boyd.text.tokenizer`, up to *limit* labels that hold it.

        Those with the fewest other words come first, then by label. They are labels of subjects,
        predicates and objects of knowledge: what an agent notes of its own work (`agent:…`) is
        none.
        """

    def size(self) -> int:
        """The number of facts."""

    def revision(self) -> int:
        """The number of changes so far."""

    def page(self, after: Place | None = None, limit: int = 1000) -> list[Triple]:
        """Up to *limit* facts in the order of their labels: the first ones, or those *after* one.

        Reading page by page gives each fact once that exists all the while.
        """

    def all(self) -> Iterator[Triple]:
        """Every fact, in the order of their labels.

        What is added or removed meanwhile may be among them or not.
        """


_M = TypeVar("_M", bound=BaseModel)
_R = TypeVar("_R")

_sessions = threading.local()


class News(NamedTuple):
    """An event of a plugin: its name, what it is about, and a text."""

    name: str
    about: str
    text: str = ""


#: Seconds for which a value of the state is kept, unless it is written with another time.
DEFAULT_TTL = 7 * 86400.0


class State(Protocol):
    """A plugin's key-value state, shared by all workers; values are JSON.

    Every value has a time to live in seconds, one week by default.
    """

    def get(self, key: str, default: Any = None) -> Any:
        """The value of *key*, or *default*."""

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        """The values of those *keys* that are set, in one round trip."""

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Set *key*, regardless of its present value."""

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        """Set *key* if it equals *expected* (None: absent), and report whether it did."""

    def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        ttl: float | None = None,
        *,
        news: Callable[[], Sequence[News]] | None = None,
    ) -> Any:
        """Replace *key* by `change(current)` atomically, with retries; the new value.

        *news* is called after *change*; each item becomes an event `plugin.news` in the same step.
        """

    def delete(self, key: str) -> None:
        """Remove *key*."""


class Llm(Protocol):
    """The agent's model, for one answer or an investigation."""

    def ask(self, prompt: str, *, instructions: str = "") -> str:
        """Request one answer in prose, without tools.

        Raises:
            ModelError: the model did not answer or refused.
        """

    def answer(
        self,
        prompt: str,
        shape: type[_M],
        *,
        instructions: str = "",
        timeout: float | None = None,
    ) -> _M:
        """Request one answer of that *shape*; one that does not fit is requested once more.

        It takes at most *timeout* seconds, and never longer than the limits of the agent allow.

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
        """Start the investigation that this plugin calls *key*, or find it, without waiting.

        Its *title* in lists defaults to the beginning of the question. It is kept like a run;
        afterwards the same key starts a new one. Its end starts an iteration: see its `text` and,
        with *answer*, its `findings`.

        Raises:
            QueueFull: too many investigations are waiting.
        """

    def find(self, key: str) -> Investigation | None:
        """The investigation that this plugin calls *key*, if it was started and is kept."""


class IdentitySigner(Protocol):
    """Signs identity tokens."""

    def __call__(
        self, agent_id: str, audience: str, requester: str | None, execution: str | None
    ) -> str:
        """A token for *audience*."""


class ReadWatch(Protocol):
    """Notes what a plugin reads through its context."""

    def state(self, state: State) -> State:
        """A state that notes what is read."""

    def clock(self, now: Callable[[], datetime]) -> Callable[[], datetime]:
        """A clock that notes each time it gives."""

    def reader(self, source: str, reader: _R, name: str = "") -> _R:
        """A graph *name*, a model or approvals, whose functions note what they return."""

    def note_use(self, source: str, found: Any = None) -> None:
        """Note that the plugin used *source*."""


@dataclass(frozen=True)
class AgentInfo:
    """The agent of a plugin."""

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

    `iteration` is None outside an iteration. `execution_id` is unique to one execution of an action
    and serves as an idempotency key for other systems, `requester` is the principal for whom it is
    executed; both are None elsewhere. `catalog` lists the agent's components. `host` and `worker`
    name the host and process. `not_due` tells orienters and hooks which observers this iteration
    skipped because of their intervals, and their due times. `latest_data` returns that of the last
    observations of an observer.
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
    _link: Callable[[ApprovalItem, Actor | None, datetime], str] | None = None
    host: str = field(default_factory=socket.gethostname)
    worker: str = ""
    not_due: Mapping[str, datetime] = field(default_factory=dict)
    execution_id: str | None = None
    requester: str | None = None
    _identity: IdentitySigner | None = None
    #: Hears what the plugin reads.
    _watch: ReadWatch | None = None
    latest_data: Callable[[str], Sequence[JsonObject]] = lambda observer: ()
    #: The only ones that `http` reaches; None: any.
    _destinations: Sequence[str] | None = None

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
            ConfigError: it has no model here.
        """
        if self._llm is None:
            reason = "its file has no table [llm], or this is an isolated observer"
            raise ConfigError(f"agent {self.agent.id!r} has no model here: {reason}")
        return self._reader("model", self._llm(self.plugin_id))

    @property
    def has_llm(self) -> bool:
        """True if the agent has a model here."""
        return self._llm is not None

    def playbooks(self) -> Mapping[str, Sequence[str]]:
        """The playbooks of each plugin, as Markdown."""
        playbooks = self._playbooks()
        if self._watch:
            self._watch.note_use("playbooks", playbooks)
        return playbooks

    def graph(self, name: str = "facts", of: str | None = None) -> Graph:
        """A graph of facts shared by all workers: of this agent, or of the agent *of*.

        Raises:
            ConfigError: there is no graph here.
            NotDelegated: the agent *of* does not let this one read its graphs.
        """
        if self._graph is None:
            raise ConfigError("isolated observers and `boyd observe` have no graph")
        return self._reader("graph", self._graph(name, of), f"{of}/{name}" if of else name)

    @property
    def approvals(self) -> ApprovalReader:
        """The agent's approvals, read-only.

        Raises:
            ConfigError: there are no approvals here.
        """
        if self._approvals is None:
            raise ConfigError("isolated observers and `boyd observe` have no approvals")
        return self._reader("approvals", self._approvals)

    def approval_link(self, approval: ApprovalItem, to: Actor | None = None) -> str:
        """The link to the page of *approval*; empty without `api.url`, or if its policy says so.

        If the policy and its risk permit, *to* can answer with it once, without a login.
        """
        return self._link(approval, to, self.now()) if self._link else ""

    def identity_token(self, audience: str) -> str:
        """A JWT with which this agent identifies itself to *audience* for five minutes.

        It names the agent, the execution and its requester.

        Raises:
            ConfigError: there is no `identity_key` here.
            AgentRevoked: the agent's right to act is revoked.
        """
        if self._identity is None:
            raise ConfigError("identity tokens need the setting identity_key on this worker")
        return self._identity(self.agent.id, audience, self.requester, self.execution_id)

    @property
    def http(self) -> Session:
        """An HTTP session with time limits, one per thread."""
        if self._watch:
            self._watch.note_use("http")
        if not hasattr(_sessions, "session"):
            # Slow to import, and most plugins never ask for it.
            from boyd.plugin.http_session import Session

            _sessions.session = Session(self._destinations)
        session: Session = _sessions.session
        return session

    def _reader(self, source: str, reader: _R, name: str = "") -> _R:
        return self._watch.reader(source, reader, name) if self._watch else reader
