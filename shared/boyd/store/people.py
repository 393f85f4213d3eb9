"""The readable names of principals that a provider of identities vouches for."""

from __future__ import annotations

from boyd.store.keys import PEOPLE
from boyd.store.server.connection import Client, translated


class People:
    """The names of a deployment's people and programs; several may have the same one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> dict[str, str]:
        """Every known name, by principal."""
        with translated():
            names: dict[str, str] = self._client.hgetall(PEOPLE)
        return names

    def remember(self, principal: str, name: str) -> None:
        """Keep the name that a principal has now."""
        with translated():
            self._client.hset(PEOPLE, principal, name)
