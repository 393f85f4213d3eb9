"""Delegation: the rights that an agent gives to other agents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.base import Model

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

    def allows(self, what: Delegable, agent_id: str) -> bool:
        """Tell whether that agent may do *what*."""
        allowed: list[str] = getattr(self, what)
        return agent_id in allowed or (what == "read_graph" and agent_id in self.write_graph)
