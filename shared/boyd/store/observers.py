"""Observers: when each last ran, and how it has been doing (L10, L15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boyd.models import ObserverHealth
from boyd.store.client import Client, translated
from boyd.store.keys import Keys


class Observers:
    """The observers of one agent, as its iterations have left them."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def last_runs(self) -> tuple[dict[str, float], dict[str, ObserverHealth]]:
        """When each observer last ran, in seconds since the epoch, and how it has been doing."""
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(self._keys.ran)
            pipe.hgetall(self._keys.health)
            ran, health = pipe.execute()
        return {name: float(ms) / 1000 for name, ms in ran.items()}, _read(health)

    def health(self, observers: Sequence[str]) -> dict[str, ObserverHealth]:
        """How those *observers* have been doing (L15)."""
        if not observers:
            return {}
        with translated():
            texts = self._client.hmget(self._keys.health, list(observers))
        found = zip(observers, texts, strict=True)
        return _read({name: text for name, text in found if text})


def _read(texts: Mapping[str, str]) -> dict[str, ObserverHealth]:
    return {name: ObserverHealth.from_json(text) for name, text in texts.items()}
