"""Actors, the API keys that identify them, their rights, and those that an agent gives to others.

The rights of a key decide what it may do with actions, or else those of its groups in the settings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from boyd.models.base import Model, Timestamp
from boyd.models.rights import Verb, describe_right, find_right, select_rights

Scope = Literal["read", "trigger", "runs", "actions", "approvals", "admin", "kiosk"]

SCOPES: tuple[Scope, ...] = (
    *("read", "trigger", "runs", "actions", "approvals", "admin"),
    "kiosk",
)

#: The beginning of the principal of an agent.
_AGENT = "agent:"
#: Fillers, selectors and blanks that count as printable, and show nothing of their own.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def _check_seen(text: str) -> str:
    for char in text:
        if not char.isprintable() or _UNSEEN.match(char):
            title = f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()
            raise ValueError(
                f"has the invisible character {title}, so it reads as another one: {text!a}"
            )
    return text


#: A person or program.
Principal = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S+$")]
#: Those of a new key or setting, which people read; older records may hold what nobody sees.
NewPrincipal = Annotated[Principal, AfterValidator(_check_seen)]
NewName = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_seen)]


class Actor(Model):
    """The authenticated author of a request, as the audit names it.

    Attributes:
        principal: `alice@example.com`, or `agent:watch` for an agent itself.
        person: whether it is a person, not a program.
        name: the name of the principal, if a provider has told it; several may have the same one.
        groups: the groups of the principal.
        key: the id of the API key used, if any.
        address: the address of the client, if remote.
        claims: whom the caller claims to act for (`actedBy`); never replaces the principal.
        link: the id of the signed link used, if any.
        rights: all that it may do; absent: as far as scopes and the rights of its groups allow.
    """

    principal: Principal
    person: bool = False
    name: str | None = None
    groups: list[str] = Field(default_factory=list)
    key: str | None = None
    address: str | None = None
    claims: str | None = None
    link: str | None = None
    rights: list[str] | None = None


class ApiKey(Model):
    """An API key as stored, with only the hash of its secret, or an identity without a key.

    Attributes:
        id: the public part of the key; for an identity, `oidc-` and a digest of the principal.
        name: chosen by its owner.
        principal: whom it identifies.
        person: whether the principal is a person, as `human-only` actions require.
        scopes: its permissions; `admin` includes all others.
        groups: the groups of the principal, for approval policies.
        agents: the agents it may see; empty: all.
        may: all that it may do with actions; empty: whatever its scopes, or groups, allow.
        hash: SHA-256 of the secret part, in hex; empty for an identity.
    """

    id: str
    name: str = Field(min_length=1, max_length=200)
    principal: Principal
    person: bool = False
    scopes: list[Scope] = Field(min_length=1)
    groups: list[str] = Field(default_factory=list)
    agents: list[str] = Field(default_factory=list)
    may: list[str] = Field(default_factory=list)
    hash: str
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None = None

    @property
    def is_identity(self) -> bool:
        """True if a provider vouches for it: there is no key."""
        return not self.hash

    def actor(self, address: str | None = None) -> Actor:
        """The actor that uses this key from *address*."""
        return Actor(
            principal=self.principal,
            person=self.person,
            name=self.name if self.is_identity else None,
            groups=self.groups,
            key=None if self.is_identity else self.id,
            address=address,
            rights=self.may or None,
        )

    def allows(self, scope: Scope) -> bool:
        """Check whether the key has *scope*; `admin` includes all, and `read` the kiosk."""
        is_part = scope == "kiosk" and "read" in self.scopes
        return scope in self.scopes or "admin" in self.scopes or is_part

    @property
    def is_kiosk(self) -> bool:
        """True for the key of a display, which may do nothing but show the overview."""
        return self.scopes == ["kiosk"]

    def sees(self, agent_id: str) -> bool:
        """Check whether the key may access that agent."""
        return not self.agents or agent_id in self.agents


def agent_of(principal: str) -> str | None:
    """The id of the agent that acts as *principal*, if it is one."""
    return principal.removeprefix(_AGENT) if principal.startswith(_AGENT) else None


Delegable = Literal["read_graph", "write_graph", "runs", "actions"]


class Delegation(Model):
    """The ids of the agents that may use this one; nobody by default.

    Attributes:
        read_graph: may read its graphs of facts.
        write_graph: may read and change them.
        runs: may submit runs, questions and observations to it, and start its iterations.
        actions: may call its actions and endpoints.
    """

    read_graph: list[str] = Field(default_factory=list)
    write_graph: list[str] = Field(default_factory=list)
    runs: list[str] = Field(default_factory=list)
    actions: list[str] = Field(default_factory=list)

    def allows(self, right: Delegable, agent_id: str) -> bool:
        """Check whether that agent has *right*; writing a graph includes reading it."""
        agents: list[str] = getattr(self, right)
        return agent_id in agents or (right == "read_graph" and agent_id in self.write_graph)


#: The scope that each verb needs as well.
SCOPE_OF: Mapping[Verb, Scope] = {
    "propose": "actions",
    "run": "actions",
    "rollback": "actions",
    "approve": "approvals",
}


class Permission(Model):
    """The answer of the rights to one question, with its reason.

    `right` is the one that allows it; none where nobody has limited the caller to any.
    """

    allowed: bool
    right: str | None = None
    reason: str


_UNLIMITED = Permission(allowed=True, reason="no rights are set: scopes alone decide")


@dataclass(frozen=True)
class GroupRights:
    """The rights of groups in the settings; those of a key come before them."""

    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def limits(self, actor: Actor, action: str | None = None) -> list[str] | None:
        """The rights that limit *actor*, if any do; with an *action*, those about it."""
        rights = actor.rights
        if rights is None:
            limiting = [group for group in actor.groups if group in self.groups]
            if not limiting:
                return None
            rights = [right for group in limiting for right in self.groups[group]]
        return rights if action is None else select_rights(rights, action)

    def judge(self, actor: Actor, verb: Verb, action: str, target: str | None) -> Permission:
        """Decide whether the rights of *actor* allow it; without a *target*, on any target."""
        limits = self.limits(actor)
        if limits is None:
            return _UNLIMITED
        source, advice = self._source(actor)
        if right := find_right(limits, verb, action, target):
            return Permission(allowed=True, right=right, reason=f"{source} may {right!r}")
        missing = describe_right(verb, action, target)
        reason = f"{source} lacks the right {missing!r}; {advice}"
        return Permission(allowed=False, reason=reason)

    def _source(self, actor: Actor) -> tuple[str, str]:
        """The holder of the rights that limit *actor*, and the way to get others."""
        if actor.rights is not None:
            key = f"the key {actor.key}" if actor.key else "the caller"
            return f"{key} of {actor.principal}", "an administrator can create a key with it"
        groups = [group for group in actor.groups if group in self.groups]
        words = f"the {'group' if len(groups) == 1 else 'groups'} {', '.join(groups)}"
        advice = f"an administrator can add it to the setting rights.{groups[0]}"
        return f"{actor.principal} in {words}", advice
