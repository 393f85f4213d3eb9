"""The inbox: approvals of all agents, by who may answer; filters, orders and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from boyd.models import LEVELS, ApprovalItem, ProcedureRecord
from boyd.store import Store
from boyd.store.hashes import readable
from boyd.store.pending_approvals import PendingApproval, PendingPage
from boyd_api.console.page_request import PageRequest
from boyd_api.http.request_context import RequestContext
from boyd_api.routes.action_routes import cancel_refusal, resume_refusal
from boyd_api.routes.approval_routes import for_reader

#: Approvals on one page.
PAGE_SIZE = 50
#: The most approvals that are answered at once.
ANSWERABLE = 500
#: Stopped procedures of an agent among which those for the reader are looked for.
MOST_STOPPED = 500
#: How many of them are read at once.
_STOPPED = 50

Tab = Literal["mine", "others"]
Order = Literal["deadline", "risk", "age"]


@dataclass(frozen=True)
class Inbox:
    """The pending approvals, for both badge and list.

    Attributes:
        mine: those that the reader may approve.
        others: those that wait for other people.
        more: whether an agent has others, with later deadlines.
    """

    mine: list[PendingApproval]
    others: list[PendingApproval]
    more: bool

    @property
    def badge(self) -> str:
        """The number of approvals for the reader, with a `+` if there are others."""
        return f"{len(self.mine)}{'+' * self.more}"

    @cached_property
    def mine_of(self) -> set[str]:
        """The agents with approvals for the reader."""
        return {item.agent_id for item in self.mine}


def read_inbox(page: PageRequest, agents: list[str]) -> Inbox:
    """Read the approvals of these agents that wait, and sort them by who may answer."""
    store = page.services.store
    read = [
        readable(f"the approvals of agent {name}", partial(_waiting, page, store), name)
        for name in agents
    ]
    mine: list[PendingApproval] = []
    others: list[PendingApproval] = []
    may_answer = page.allows("approvals")
    pages = [pending for pending in read if pending is not None]
    for item in (item for pending in pages for item in pending.items):
        has_right = page.ctx.may("approve", item.action_id, item.target).allowed
        (mine if may_answer and has_right and item.refusal is None else others).append(item)
    return Inbox(mine, others, any(pending.more for pending in pages))


def _waiting(page: PageRequest, store: Store, agent_id: str) -> PendingPage:
    return store.agent(agent_id).pending_approvals.first(page.ctx.actor)


@dataclass(frozen=True)
class ReadProcedure:
    """A procedure, and why the reader may not cancel or resume it; empty if they may."""

    record: ProcedureRecord
    no_cancel: str
    no_resume: str

    @classmethod
    def of(cls, page: PageRequest, record: ProcedureRecord) -> ReadProcedure:
        """The procedure as the reader of an agent's page sees it."""
        lack = page.lacks("approvals")
        refusals = cancel_refusal(page.ctx, record), resume_refusal(page.ctx, record)
        return cls(record, lack or refusals[0], lack or refusals[1])


def read_stops(page: PageRequest, agent_id: str) -> Iterator[ReadProcedure]:
    """Read the stopped procedures of an agent, as far as needed, the longest stopped first."""
    own = page.of(agent_id)
    procedures = own.ctx.agent.store.procedures
    for start in range(0, MOST_STOPPED, _STOPPED):
        records = procedures.list_stopped(_STOPPED, start)
        if not records:
            return
        yield from (ReadProcedure.of(own, record) for record in records)


@dataclass(frozen=True)
class InboxFilter:
    """A view of the inbox, as its address has it; empty fields match everything.

    Attributes:
        action: the title of what approving does.
        target: a part of the target, in any case.
        page: the number of the page, from 1.
    """

    tab: Tab = "mine"
    agent: str = ""
    action: str = ""
    risk: str = ""
    target: str = ""
    order: Order = "deadline"
    page: int = 1

    @classmethod
    def parse(cls, values: Any) -> InboxFilter:
        """The filter in a query or form; what it does not understand is left out."""
        number = values.get("page", "1")
        tab, order = values.get("tab", ""), values.get("order", "")
        return cls(
            tab=tab if tab in get_args(Tab) else "mine",
            agent=values.get("agent", ""),
            action=values.get("action", ""),
            risk=values.get("risk", ""),
            target=values.get("target", ""),
            order=order if order in get_args(Order) else "deadline",
            page=max(1, int(number)) if number.isdecimal() and len(number) < 6 else 1,
        )

    def matches(self, item: PendingApproval) -> bool:
        """Check an approval against all fields."""
        return (
            self.agent in ("", item.agent_id)
            and self.action in ("", item.title)
            and self.risk in ("", item.risk or "unknown")
            and self.target.lower() in item.target.lower()
        )

    @property
    def fields(self) -> dict[str, str]:
        """The fields with other than default values, as forms and addresses have them."""
        return {
            name: str(value)
            for name, value in vars(self).items()
            if value != getattr(InboxFilter, name)
        }

    @property
    def is_narrow(self) -> bool:
        """True if it leaves out any approval of its tab."""
        return any((self.agent, self.action, self.risk, self.target))

    def address(self, **changes: Any) -> str:
        """The address of this view with *changes*."""
        fields = replace(self, **changes).fields
        return f"/console/?{urlencode(fields)}" if fields else "/console/"


def _read_now(ctx: RequestContext, ids: list[str]) -> list[ApprovalItem]:
    """The items as the reader sees them now."""
    items = ctx.agent.of_now(ctx.agent.store.approvals.some(ids))
    return [for_reader(ctx, item) for item in items]


def _risk(item: PendingApproval) -> int:
    # Nobody knows how bad an unknown risk is.
    return -LEVELS.index(item.risk) if item.risk in LEVELS else -len(LEVELS)


_ORDERS: dict[Order, Callable[[PendingApproval], Any]] = {
    "deadline": lambda item: (item.deadline, item.created_at, item.id),
    "risk": lambda item: (_risk(item), item.deadline, item.id),
    "age": lambda item: (item.created_at, item.id),
}


@dataclass(frozen=True)
class InboxList:
    """The approvals of a view, in its order."""

    filter: InboxFilter
    everything: Sequence[PendingApproval]

    @cached_property
    def matching(self) -> list[PendingApproval]:
        """All that match, over all pages."""
        matching = filter(self.filter.matches, self.everything)
        return sorted(matching, key=_ORDERS[self.filter.order])

    @property
    def pages(self) -> int:
        """The number of pages, at least 1."""
        return max(1, -(-len(self.matching) // PAGE_SIZE))

    @property
    def page(self) -> int:
        """The number of the page; the last one if there are fewer."""
        return min(self.filter.page, self.pages)

    @property
    def first(self) -> int:
        """The place of the first approval on the page, from 1."""
        return (self.page - 1) * PAGE_SIZE + 1

    @property
    def items(self) -> list[PendingApproval]:
        """Those on the page."""
        return self.matching[self.first - 1 :][:PAGE_SIZE]

    def read(self, page: PageRequest) -> list[ApprovalItem]:
        """The whole items on the page; those answered since are left out."""
        ids: dict[str, list[str]] = {}
        for item in self.items:
            ids.setdefault(item.agent_id, []).append(item.id)
        whole = {
            (name, item.id): item
            for name, own in ids.items()
            for item in _read_now(page.of(name).ctx, own)
            if item.status == "pending"
        }
        order = [(item.agent_id, item.id) for item in self.items]
        return [whole[place] for place in order if place in whole]

    @property
    def agents(self) -> list[tuple[str, int]]:
        """The agents of the tab with their numbers of approvals."""
        return self._counts(lambda item: item.agent_id)

    @property
    def actions(self) -> list[tuple[str, int]]:
        """The actions likewise."""
        return self._counts(lambda item: item.title)

    @property
    def risks(self) -> list[tuple[str, int]]:
        """The risks likewise."""
        return self._counts(lambda item: item.risk or "unknown")

    @property
    def is_one_action(self) -> bool:
        """True if all that match can be answered at once."""
        same = {item.title for item in self.matching}
        return len(same) == 1 and len(self.matching) <= ANSWERABLE

    def _counts(self, key: Callable[[PendingApproval], str]) -> list[tuple[str, int]]:
        return sorted(Counter(map(key, self.everything)).items())
