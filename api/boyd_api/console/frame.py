"""The frame of every page: agents, stops, and the approvals that wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from boyd.models import ApprovalItem, ApprovalQueue
from boyd.store import DEPLOYMENT, Store
from boyd.store.freezes import Stop
from boyd.store.hashes import readable
from boyd_api.console.page_request import PageRequest

#: The most approvals that one list shows.
LISTED = 200


@dataclass(frozen=True)
class AgentLink:
    """An agent in the switch, and what stops it."""

    id: str
    name: str
    paused: Stop | None
    frozen: Stop | None
    revoked: Stop | None


@dataclass(frozen=True)
class Inbox:
    """The first approvals that wait, by deadline; the badge and the list show the same.

    Attributes:
        mine: those that the reader may approve.
        others: those that wait for other people.
        more: True if further ones wait.
    """

    mine: list[ApprovalItem]
    others: list[ApprovalItem]
    more: bool

    @property
    def badge(self) -> str:
        """The number that wait for the reader."""
        return f"{len(self.mine)}+" if self.more else str(len(self.mine))


@dataclass(frozen=True)
class Frame:
    """The state of the deployment, as each page shows it.

    Attributes:
        agents: those in service that the reader may see.
        agent: the id of the agent that links lead to: that of the page, else the default one.
        frozen: the deployment-wide freeze.
    """

    page: PageRequest
    agents: list[AgentLink]
    agent: str | None
    frozen: Stop | None

    @property
    def inactive_agents(self) -> list[AgentLink]:
        """The agents that are paused or revoked, or frozen by themselves."""
        return [link for link in self.agents if link.paused or link.frozen or link.revoked]

    @cached_property
    def inbox(self) -> Inbox:
        """The approvals that wait."""
        return read_inbox(self.page, [agent.id for agent in self.agents])


def read_frame(page: PageRequest) -> Frame:
    """Read the frame for a page."""
    store, entries = page.services.store, page.ctx.agents
    serving = {name: entry for name, entry in entries.items() if entry.retired_at is None}
    freezes, paused = store.freezes.all(), store.fleet.pauses(list(serving))
    revoked = store.freezes.revocations()
    links = [
        AgentLink(name, entry.name, paused.get(name), freezes.get(name), revoked.get(name))
        for name, entry in serving.items()
    ]
    return Frame(page, links, _agent(page, serving), freezes.get(DEPLOYMENT))


def _agent(page: PageRequest, serving: Mapping[str, object]) -> str | None:
    if page.ctx.chosen is not None:
        return page.ctx.chosen.entry.id
    default = page.services.settings.agent
    return default if default in serving else next(iter(serving), None)


def read_inbox(page: PageRequest, agents: list[str]) -> Inbox:
    """The approvals of these agents that wait, sorted by who may answer."""
    store = page.services.store
    read = [
        readable(f"the approvals of agent {name}", partial(_waiting, store), name)
        for name in agents
    ]
    queues = [queue for queue in read if queue is not None]
    waiting = [item for queue in queues for item in queue.pending]
    waiting.sort(key=lambda item: (item.expires_at is None, item.expires_at or item.created_at))
    listed = waiting[:LISTED]
    mine: list[ApprovalItem] = []
    others: list[ApprovalItem] = []
    for item in listed:
        (mine if may_answer(page, item) else others).append(item)
    more = len(waiting) > LISTED or any(queue.next_cursor for queue in queues)
    return Inbox(mine, others, more)


def _waiting(store: Store, agent_id: str) -> ApprovalQueue:
    return store.agent(agent_id).approvals.page(LISTED, history=False)


def may_answer(page: PageRequest, item: ApprovalItem) -> bool:
    """Check that the reader's answer to *item* would count now."""
    return page.allows("approvals") and item.refusal(page.ctx.actor) is None
