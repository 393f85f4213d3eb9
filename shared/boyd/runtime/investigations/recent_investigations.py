"""The investigations that this process moved last: a move reads and computes only what is new.

The log alone counts. It is read from its beginning where it does not have what is known, as after
Redis has lost the last entries.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from boyd.llm.conversation import Conversation
from boyd.llm.steps import InvestigationSteps
from boyd.llm.toolbox import Toolbox
from boyd.models.investigation import Delta
from boyd.store.investigations import Investigations

#: The most investigations of an agent that are remembered; a long one takes a few megabytes.
MOST = 8


@dataclass(frozen=True)
class _Known:
    """An investigation up to a log entry that stays: pieces of a turn are removed after it.

    Attributes:
        read_to: the id of that entry; empty before the first one.
    """

    conversation: Conversation
    steps: InvestigationSteps
    read_to: str = ""


class RecentInvestigations:
    """The last investigations of one agent, shared by its threads."""

    def __init__(self, store: Investigations) -> None:
        self._store = store
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, id: str, toolbox: Toolbox, make: Callable[[Toolbox], InvestigationSteps]
    ) -> tuple[Conversation, InvestigationSteps]:
        """The conversation in the log, and its rules, which *make* makes for other tools.

        Raises:
            Unreadable: a later release wrote an entry.
        """
        known = self._known.get(id)
        if known is None or known.steps.toolbox != toolbox:
            known = _Known(Conversation(), make(toolbox))
        log = self._store.log_from(id, known.read_to) if known.read_to else []
        if log:
            log = log[1:]
        else:
            known, log = _Known(Conversation(), known.steps), self._store.log(id)
        stays = len(log)
        while stays and isinstance(log[stays - 1].entry, Delta):
            stays -= 1
        if stays:
            settled = known.conversation.followed_by(log[:stays])
            known = _Known(settled, known.steps, log[stays - 1].id)
        self._remember(id, known)
        return known.conversation.followed_by(log[stays:]), known.steps

    def forgot_pieces(self, id: str) -> None:
        """Forget the pieces of turns of an investigation, which were removed from its log."""
        if known := self._known.get(id):
            known.conversation.pieces.clear()

    def _remember(self, id: str, known: _Known) -> None:
        with self._lock:
            self._known[id] = known
            self._known.move_to_end(id)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
