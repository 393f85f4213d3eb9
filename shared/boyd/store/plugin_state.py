"""The state of a plugin: JSON values with a time to live and compare-and-set."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from boyd.errors import PayloadTooLarge, PluginError, StoreError
from boyd.plugin import News
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translated
from boyd.store.server.scripts import KeyedScripts

#: The default time to live in seconds, and the largest value in bytes.
DEFAULT_TTL = 7 * 86400.0
MAX_BYTES = 1_000_000
_UPDATE_ATTEMPTS = 200


class PluginState:
    """Implements `boyd.plugin.State`."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, plugin_id: str) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._plugin_id = plugin_id

    def get(self, key: str, default: Any = None) -> Any:
        """The value of *key*, or *default*."""
        text = self._read(key)
        return default if text is None else json.loads(text)

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        """The values of the *keys* that are set, in one round trip."""
        if not keys:
            return {}
        with translated():
            texts = self._client.mget([self._key(key) for key in keys])
        return {k: json.loads(text) for k, text in zip(keys, texts, strict=True) if text}

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Set *key* unconditionally.

        Raises:
            PluginError: the value is not JSON, or too large.
        """
        text = self._dump(key, value)
        with translated():
            self._client.set(self._key(key), text, px=_ms(ttl))

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        """Set *key* only if its value is *expected* (None: absent); return whether it was set."""
        before = "" if expected is None else self._dump(key, expected)
        return self._swap(key, before, self._dump(key, value), ttl)

    def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        ttl: float | None = None,
        *,
        news: Callable[[], Sequence[News]] | None = None,
    ) -> Any:
        """Set *key* to `change(current)`, retrying on conflicts; return the new value.

        *news* is called after *change*; each item becomes an event in the same step.
        """
        for attempt in range(_UPDATE_ATTEMPTS):
            text = self._read(key)
            value = change(None if text is None else json.loads(text))
            events = news() if news else ()
            if self._swap(key, text or "", self._dump(key, value), ttl, events):
                return value
            # Random delays keep competing workers from colliding again.
            time.sleep(random.uniform(0, 0.001) * min(attempt, 20))
        raise StoreError(f"state {key!r} of {self._plugin_id!r} has too many concurrent changes")

    def delete(self, key: str) -> None:
        """Remove *key*."""
        with translated():
            self._client.delete(self._key(key))

    def _read(self, key: str) -> str | None:
        with translated():
            text: str | None = self._client.get(self._key(key))
            return text

    def _swap(
        self, key: str, before: str, text: str, ttl: float | None, news: Sequence[News] = ()
    ) -> bool:
        swapped = self._scripts.run(
            "set_state",
            state=self._key(key),
            expected=before,
            value=text,
            ttl=_ms(ttl),
            plugin=self._plugin_id,
            news=[*news],
        )
        return bool(swapped)

    def _key(self, key: str) -> str:
        return self._keys.state(self._plugin_id, key)

    def _dump(self, key: str, value: Any) -> str:
        try:
            text = json.dumps(value, allow_nan=False, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise PluginError(self._plugin_id, f"state {key!r} is not JSON: {error}") from None
        if len(text) > MAX_BYTES:
            size = f"{len(text)} bytes; the limit is {MAX_BYTES}"
            raise PayloadTooLarge(f"state {key!r} of {self._plugin_id!r} has {size}")
        return text


def _ms(ttl: float | None) -> int:
    return max(1, int((DEFAULT_TTL if ttl is None else ttl) * 1000))
