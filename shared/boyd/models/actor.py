"""Actors, the API keys that identify them, and the rights that an agent gives to others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.base import Model, Timestamp

Scope = Literal["read", "trigger", "runs", "actions", "approvals", "admin", "kiosk"]

SCOPES: tuple[Scope, ...] = (
    *("read", "trigger", "runs", "actions", "approvals", "admin"),
    "kiosk",
)

#: The beginning of the principal of an agent.
_AGENT = "agent:"


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
    """

    principal: str = Field(min_length=1, max_length=200, pattern=r"^\S+$")
    person: bool = False
    name: str | None = None
    groups: list[str] = Field(default_factory=list)
    key: str | None = None
    address: str | None = None
    claims: str | None = None
    link: str | None = None


def actor_fields(actor: Actor | None) -> list[str]:
    """An actor as field, value, field, value, as scripts and the audit trail take it."""
    if actor is None:
        return []
    fields = {
        "who": actor.principal,
        "name": actor.name,
        "key": actor.key,
        "from": actor.address,
        "claims": actor.claims,
        "link": actor.link,
    }
    return [text for name, value in fields.items() if value for text in (name, value)]


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
        hash: SHA-256 of the secret part, in hex; empty for an identity.
    """

    id: str
    name: str = Field(min_length=1, max_length=200)
    principal: str = Field(min_length=1, max_length=200, pattern=r"^\S+$")
    person: bool = False
    scopes: list[Scope] = Field(min_length=1)
    groups: list[str] = Field(default_factory=list)
    agents: list[str] = Field(default_factory=list)
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
