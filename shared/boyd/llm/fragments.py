"""Tool calls from the pieces that servers cut them into (G4).

Servers disagree about the pieces: some number every call 0, some number none, some leave the id
out, or give each piece another one, or repeat the name in each. Whatever they do, two calls never
melt into one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count

from boyd.llm.arguments import parsed
from boyd.llm.characters import storable
from boyd.llm.messages import CallFragment
from boyd.models.investigation import ToolCall


@dataclass
class _Draft:
    """A call that may still grow."""

    index: int | None
    id: str | None = None
    name: str = ""
    parts: list[str] = field(default_factory=list)
    is_complete: bool = False

    def grow(self, fragment: CallFragment) -> None:
        self.id = self.id or fragment.id or None
        # Once and for all: a name that is repeated is not a piece of it.
        self.name = self.name or fragment.name or ""
        text = _text(fragment)
        if text:
            self.parts.append(text)
        if text.strip():
            # Only a brace can complete an object; parsing at every piece would take quadratic time.
            self.is_complete = text.rstrip().endswith("}") and parsed(self.arguments) is not None

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    @property
    def is_void(self) -> bool:
        return not (self.id or self.name or self.arguments.strip())


class Fragments:
    """The calls of one turn, in the order in which they began."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []

    def add(self, fragment: CallFragment) -> None:
        """Take the next piece."""
        draft = self._target(fragment)
        if draft is None:
            draft = _Draft(fragment.index)
            self._drafts.append(draft)
        draft.grow(fragment)

    def calls(self, taken: Collection[str] = (), prefix: str = "call") -> list[ToolCall]:
        """The calls as they are now; no arguments mean `{}`.

        A call without an id, or with one that another call has, is given one.

        Args:
            taken: ids that calls of earlier turns have.
            prefix: what given ids begin with.
        """
        used = set(taken)
        given = (f"{prefix}_{number}" for number in count(1))
        calls = []
        for draft in self._drafts:
            if not draft.is_void:
                id_ = _unused(storable(draft.id or ""), used, given)
                used.add(id_)
                arguments = draft.arguments if draft.arguments.strip() else "{}"
                name, arguments = storable(draft.name), storable(arguments)
                calls.append(ToolCall(id=id_, name=name, arguments=arguments))
        return calls

    @property
    def are_complete(self) -> bool:
        """Whether every call has the arguments that it began with: none is a half."""
        return all(draft.is_complete for draft in self._drafts if not draft.is_void)

    @property
    def size(self) -> int:
        """How many characters of names and arguments there are."""
        return sum(len(draft.name) + len(draft.arguments) for draft in self._drafts)

    def _target(self, fragment: CallFragment) -> _Draft | None:
        """The call that a piece belongs to; None: it begins a new one."""
        candidate = self._candidate(fragment)
        if candidate is None or _begins_anew(fragment, candidate):
            return None
        return candidate

    def _candidate(self, fragment: CallFragment) -> _Draft | None:
        index, id_ = fragment.index, fragment.id
        for draft in reversed(self._drafts):
            # Numbers of their own outweigh an id: some servers give every call the same one.
            if id_ and draft.id == id_ and (index is None or draft.index in (None, index)):
                return draft
        for draft in reversed(self._drafts):
            if index is not None and draft.index == index:
                return draft
        can_begin = bool(id_ or fragment.name)
        if not self._drafts or (index is not None and can_begin):
            return None
        return self._drafts[-1]


def _begins_anew(fragment: CallFragment, draft: _Draft) -> bool:
    """Whether a piece is the first of another call than the one it seems to belong to."""
    has_other_name = bool(fragment.name and draft.name and fragment.name != draft.name)
    if has_other_name:
        return True
    if fragment.id and draft.id and fragment.id != draft.id:
        # A piece of half a call that names nothing is its next one, from a server that makes up an
        # id for each piece; anything else with another id is another call.
        return bool(fragment.name) or draft.is_complete or not draft.name
    return bool(fragment.name and draft.is_complete and _text(fragment).strip())


def _text(fragment: CallFragment) -> str:
    """The arguments in a piece as text; an empty object says no more than none."""
    if isinstance(fragment.arguments, dict):
        return json.dumps(fragment.arguments, ensure_ascii=False) if fragment.arguments else ""
    return fragment.arguments or ""


def _unused(wanted: str, used: Collection[str], given: Iterator[str]) -> str:
    if wanted and wanted not in used:
        return wanted
    return next(id_ for id_ in given if id_ not in used)
