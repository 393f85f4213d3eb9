"""Follows the log of an investigation over the API, which may go away and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from boyd.cli import output, pages
from boyd.cli.connection import Api
from boyd.errors import ApiProblem, ApiUnavailable
from boyd.models.investigation import Ended, Investigation, Logged

if TYPE_CHECKING:
    from boyd.client import Client

#: Seconds between two tries while the API is away.
_PAUSE = 1.0
#: Refusals that are over soon: too many streams or requests, and an API that cannot work now.
_PASSING = (429, 503)


class Following:
    """The entries of one investigation, each once, whatever becomes of the connection."""

    def __init__(
        self, api: Api, id: str, last: str | None = None, note: Callable[[str], None] = output.note
    ) -> None:
        """Begin after the entry *last*, or with the first one; *note* is told of the connection."""
        self._api = api
        self._client: Client = api.agent
        self._id = id
        self.note = note
        self.last = last

    def question(self) -> Iterator[Logged]:
        """What comes until the question that is being worked on has ended."""
        for logged in self._all():
            yield logged
            if isinstance(logged.entry, Ended):
                return

    def everything(self) -> Iterator[Logged]:
        """What comes until nothing follows an end any more."""
        for logged in self._all():
            yield logged
            if isinstance(logged.entry, Ended) and not self.missed():
                return

    def missed(self) -> list[Logged]:
        """What is in the log already and has not been told."""
        return list(pages.entries(self._api, self._id, self.last))

    def _all(self) -> Iterator[Logged]:
        """All that comes, without end."""
        away = False
        while True:
            try:
                with closing(self._client.entries(self._id, self.last)) as found:
                    if away:
                        self.note("the API answers again")
                    away = False
                    for logged in found:
                        if logged.id:
                            self.last = logged.id
                            yield logged
                        else:
                            self.note("Redis has lost some of what was shown")
                ended = self._ended()
                if ended is not None:
                    yield ended
            except ApiUnavailable as error:
                away = self._gone(error, away)
            except ApiProblem as problem:
                if problem.status not in _PASSING:
                    raise
                away = self._gone(problem, away)
            time.sleep(_PAUSE)

    def _ended(self) -> Logged | None:
        """The end that the investigation has and its log has not; None: something follows."""
        found = self._client.get(f"/investigations/{self._id}", Investigation)
        if found.status != "ended" or found.ending is None or self.missed():
            return None
        text = found.text or found.detail or "Its log is gone."
        ended = Ended(ending=found.ending, text=text, detail=found.detail, counters=found.counters)
        return Logged(id=self.last or "0-0", entry=ended)

    def _gone(self, error: Exception, away: bool) -> bool:
        if not away:
            self.note(f"{output.one_line(str(error))}; waiting for it to come back")
        return True
