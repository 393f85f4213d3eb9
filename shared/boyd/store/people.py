"""The readable names of principals that a provider of identities vouches for."""

from __future__ import annotations

from boyd.store.keys import PEOPLE
from boyd.store.server.connection import Client, translate_errors


class People:
    """The names of a deployment's people and programs; several may have the same one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> dict[str, str]:
        """Every known name, by principal."""
        with translate_errors():
            names: dict[str, str] = self._client.hgetall(PEOPLE)
        return names

    def remember(self, principal: str, name: str) -> None:
        """Keep the name that a principal has now."""
        with translate_errors():
            self._client.hset(PEOPLE, principal, name)
