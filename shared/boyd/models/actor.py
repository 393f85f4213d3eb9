"""Who is asking: keys, and the actors that they stand for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.base import Model, Timestamp

Scope = Literal["read", "trigger", "runs", "actions", "approvals", "admin"]

SCOPES: tuple[Scope, ...] = ("read", "trigger", "runs", "actions", "approvals", "admin")


class Actor(Model):
    """Somebody who asks for something, as authenticated; it is this that the audit names.

    Attributes:
        principal: whom it is done for: `alice@example.com`, or `agent:watch` for an agent itself.
        person: whether a person is behind it, not a program.
        groups: the groups of the principal.
        key: the id of the key that was shown, if one was.
        address: where the request came from, if from another process.
        claims: who the caller says to act for (`actedBy`); never takes the principal's place.
    """

    principal: str = Field(min_length=1, max_length=200, pattern=r"^\S+$")
    person: bool = False
    groups: list[str] = Field(default_factory=list)
    key: str | None = None
    address: str | None = None
    claims: str | None = None


class ApiKey(Model):
    """A key as it is kept: of its secret only the hash.

    Attributes:
        id: the part of the key that finds it.
        name: what its owner calls it.
        principal: whom it stands for.
        person: whether that is a person; `human-only` actions need one.
        scopes: what it may do; `admin` includes all others.
        groups: the groups of the principal, for approval policies.
        agents: the agents it may see; empty: all.
        hash: SHA-256 of the secret part, in hex.
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

    def actor(self, address: str | None = None) -> Actor:
        """Who asks, when this key is shown from *address*."""
        return Actor(
            principal=self.principal,
            person=self.person,
            groups=self.groups,
            key=self.id,
            address=address,
        )

    def allows(self, scope: Scope) -> bool:
        """Whether the key carries *scope*."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, agent_id: str) -> bool:
        """Whether the key is good for that agent."""
        return not self.agents or agent_id in self.agents
