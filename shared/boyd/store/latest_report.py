"""The latest report of a kind about an agent that somebody published, for the console."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import ValidationError

from boyd.models.base import Model
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import milliseconds

_M = TypeVar("_M", bound=Model)

#: Seconds to keep it.
KEPT = 30 * 86_400.0


class LatestReport(Generic[_M]):
    """The latest published report of one kind about one agent; a new one replaces it."""

    def __init__(self, client: Client, key: str, model: type[_M]) -> None:
        self._client = client
        self._key = key
        self._model = model

    def publish(self, report: _M) -> None:
        """Publish a report."""
        with translate_errors():
            self._client.set(self._key, report.to_json(), px=milliseconds(KEPT))

    def read(self) -> _M | None:
        """The latest one; None if there is none, or a later release has written it."""
        with translate_errors():
            text = self._client.get(self._key)
        try:
            return self._model.from_json(text) if text else None
        except ValidationError:
            return None
