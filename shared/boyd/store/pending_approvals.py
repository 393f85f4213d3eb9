"""Pending approvals in brief: what lists filter and sort by, without the texts of each item."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from boyd.models import Actor, ApprovalOutcome, ApprovalPolicy, Level
from boyd.models.approval import refuse
from boyd.store.hashes import ByteBudget, read_page, readable
from boyd.store.keys import Keys
from boyd.store.server.scripts import KeyedScripts
from boyd.store.timing import ServerClock

#: The most approvals of one agent that are read; those with the latest deadlines are left out.
MOST = 5000
_FIELDS = (
    *("status", "title", "actionId", "risk", "target", "createdAt", "expiresAt", "version"),
    *("required", "requestedBy"),
)
_Refusal = Callable[[str, str, bool], ApprovalOutcome | None]


class PendingApproval(NamedTuple):
    """A pending approval in brief.

    Attributes:
        title: what approving it does; approvals with one title are of one action.
        created_at: in milliseconds since the epoch.
        deadline: likewise; infinity if it has none.
        refusal: the outcome with which the reader's approval would be refused now, if any.
    """

    agent_id: str
    id: str
    action_id: str
    title: str
    risk: Level | None
    target: str
    created_at: float
    deadline: float
    version: int
    refusal: ApprovalOutcome | None


@dataclass(frozen=True)
class PendingPage:
    """Pending approvals by deadline; `more`: others with later deadlines were left out."""

    items: list[PendingApproval]
    more: bool


class PendingApprovals:
    """The pending approvals of one agent, for lists."""

    def __init__(
        self, scripts: KeyedScripts, keys: Keys, clock: ServerClock, agent_id: str
    ) -> None:
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._agent_id = agent_id

    def first(self, reader: Actor) -> PendingPage:
        """Those that wait now, as *reader* sees them: at most `MOST`, within a `ByteBudget`."""
        places = read_page(self._scripts, self._keys.approvals_pending, None, MOST, False)
        now = self._clock.now().timestamp() * 1000
        names = [name for name, deadline in places if deadline > now]
        vote = f"vote:{reader.principal}"
        hashes = list(ByteBudget(self._scripts).read("approval", names, [*_FIELDS, vote]))
        refusal = cache(partial(_refusal, reader))
        read = (
            readable(f"approval {name}", partial(self._read, name, vote, refusal), texts)
            for name, texts in zip(names, hashes, strict=False)
        )
        items = [item for item in read if item is not None]
        return PendingPage(items, len(places) == MOST or len(hashes) < len(names))

    def _read(
        self, name: str, vote: str, refusal: _Refusal, texts: Mapping[str, str]
    ) -> PendingApproval | None:
        if texts.get("status") != "pending":
            return None
        risk: Level | None = texts.get("risk")  # type: ignore[assignment]
        return PendingApproval(
            agent_id=self._agent_id,
            id=name,
            action_id=texts["actionId"],
            title=texts.get("title") or texts["actionId"],
            risk=risk,
            target=texts.get("target", ""),
            created_at=float(texts["createdAt"]),
            deadline=float(texts.get("expiresAt", "inf")),
            version=int(texts["version"]),
            refusal=refusal(texts["required"], texts.get("requestedBy", ""), vote in texts),
        )


def _refusal(
    reader: Actor, policy: str, requesters: str, has_voted: bool
) -> ApprovalOutcome | None:
    required = ApprovalPolicy.model_validate(json.loads(policy), extra="ignore")
    return refuse(reader, required, requesters.split(), has_voted)
