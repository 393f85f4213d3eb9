"""The observers of an agent: their last runs and their health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boyd.models import ObserverHealth
from boyd.store.hashes import readable
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors


class Observers:
    """The observers of one agent: their last runs and their health."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def last_runs(self) -> tuple[dict[str, float], dict[str, ObserverHealth]]:
        """The last run of each observer, in seconds since the epoch, and its health."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(self._keys.observers_ran)
            pipe.hgetall(self._keys.observers_health)
            ran, health = pipe.execute()
        return {name: float(ms) / 1000 for name, ms in ran.items()}, _read(health)

    def health(self, observers: Sequence[str]) -> dict[str, ObserverHealth]:
        """The health of these *observers*."""
        if not observers:
            return {}
        with translate_errors():
            texts = self._client.hmget(self._keys.observers_health, list(observers))
        pairs = zip(observers, texts, strict=True)
        return _read({name: text for name, text in pairs if text})


def _read(texts: Mapping[str, str]) -> dict[str, ObserverHealth]:
    read = {
        name: readable(f"the health of observer {name}", ObserverHealth.from_json, text)
        for name, text in texts.items()
    }
    return {name: health for name, health in read.items() if health is not None}
