"""The transcript of an investigation: a part of its log, with each call beside its result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from boyd.models import from_ms
from boyd.models.investigation import (
    Asked,
    Compacted,
    Delta,
    Discarded,
    Ended,
    Entry,
    Logged,
    Result,
    Said,
    Started,
    Steered,
    ToolCall,
    ToolObservation,
    Waits,
    Warned,
    call_label,
    call_number,
)
from boyd_api.routes.investigation_routes import InvestigationLog

#: Entries that tell what Boyd did.
_Note = Discarded | Steered | Warned | Compacted

#: Entries of one part, without pieces of turns, and its largest size in characters.
PART = 60
_SIZE = 1_000_000
#: Entries to read at once, and the most that one part reads.
_STEP = 20
_MOST = 1000
#: The largest serial number of an entry.
_LAST = 2**64 - 1
#: Characters of a result that the transcript shows.
SHOWN = 1500


@dataclass
class CallView:
    """A tool call, and what became of it.

    Attributes:
        place: the entry of the log to look for it from.
        state: `chosen`, `running`, `waiting`, or the status of its result; `no result` if the
            investigation ended before.
    """

    number: int
    name: str
    arguments: str
    place: str
    state: str = "chosen"
    approval_id: str | None = None
    seen: ToolObservation | None = None

    @property
    def short(self) -> str:
        """The beginning of its output."""
        return self.seen.output[:SHOWN] if self.seen else ""

    @property
    def is_cut(self) -> bool:
        """True if there is more output than `short`."""
        return self.seen is not None and len(self.seen.output) > SHOWN


@dataclass
class TranscriptTurn:
    """A part of the transcript: a turn of the model, or what somebody told it.

    Attributes:
        kind: `asked`, `said`, `writing` (a turn that has not ended), `results` (of calls that an
            earlier part shows), `note` (of Boyd) or `ended`.
        who: the person that asked.
        why: the reason of a note or of the end, with more about it in `detail`.
        tokens: sent and received.
    """

    id: str
    kind: str
    at: datetime
    step: int = 0
    text: str = ""
    thought: str = ""
    who: str = ""
    why: str = ""
    detail: str = ""
    tokens: tuple[int, int] = (0, 0)
    calls: list[CallView] = field(default_factory=list)


@dataclass(frozen=True)
class TranscriptPart:
    """Turns in order; `older` is where the part before it ends, None if there is none."""

    turns: list[TranscriptTurn]
    older: str | None


def read_part(log: InvestigationLog, id: str, before: str | None = None) -> TranscriptPart:
    """The last part of a log, or the one *before* an entry."""
    rows, size, items, more = list[Logged](), 0, 0, True
    while more and items < PART and size < _SIZE and len(rows) < _MOST:
        step = log.entries_before(id, rows[-1].id if rows else before, _STEP)
        more = len(step) == _STEP
        rows += step
        size += sum(len(row.to_json()) for row in step)
        # Pieces of a turn are one item, however many they are.
        items += sum(not isinstance(row.entry, Delta) for row in step)
    rows.reverse()
    # A turn is shown together with its calls.
    begin = next((at for at, row in enumerate(rows) if _begins(row)), 0) if more else 0
    return TranscriptPart(turns_of(rows[begin:]), rows[begin].id if more and rows else None)


def _begins(row: Logged) -> bool:
    return isinstance(row.entry, (Asked, Said))


def end_calls(turns: Iterable[TranscriptTurn]) -> None:
    """Mark calls without a result: the investigation has ended, so none will come."""
    for call in (call for turn in turns for call in turn.calls):
        call.state = "no result" if call.seen is None else call.state


def turns_of(rows: Iterable[Logged]) -> list[TranscriptTurn]:
    """The turns in entries, oldest first."""
    transcript = _Transcript()
    for row in rows:
        if row.entry is not None:
            transcript.add(row.id, row.entry)
    return transcript.turns


class _Transcript:
    """Puts entries together."""

    def __init__(self) -> None:
        self.turns: list[TranscriptTurn] = []
        self._calls: dict[str, CallView] = {}

    def add(self, id: str, entry: Entry) -> None:
        """Add an entry."""
        at = from_ms(float(id.partition("-")[0]))
        match entry:
            case Asked():
                self.turns.append(TranscriptTurn(id, "asked", at, text=entry.text, who=entry.by))
            case Delta():
                self._add_piece(id, at, entry)
            case Said():
                self._add_said(id, at, entry)
            case Started():
                self._call(id, at, entry.call_id).state = "running"
            case Waits():
                call = self._call(id, at, entry.call_id)
                call.state, call.approval_id = "waiting", entry.approval_id
            case Result():
                self._add_result(id, at, entry.observation)
            case Ended():
                self._drop_pieces()
                self._add_end(id, at, entry)
            case Discarded() | Steered() | Warned() | Compacted():
                self._add_note(id, at, entry)

    def _add_note(self, id: str, at: datetime, entry: _Note) -> None:
        if isinstance(entry, Discarded):
            self._drop_pieces()
        reason, text = _note(entry)
        self.turns.append(TranscriptTurn(id, "note", at, text=text, why=reason))

    def _add_piece(self, id: str, at: datetime, piece: Delta) -> None:
        if not self.turns or self.turns[-1].kind != "writing":
            self.turns.append(TranscriptTurn(id, "writing", at, piece.step))
        turn = self.turns[-1]
        if piece.channel == "text":
            turn.text += piece.text
        else:
            turn.thought += piece.text

    def _drop_pieces(self) -> None:
        self.turns = [turn for turn in self.turns if turn.kind != "writing"]

    def _add_said(self, id: str, at: datetime, turn: Said) -> None:
        self._drop_pieces()
        calls = [_view(call, id) for call in turn.calls]
        self._calls.update((call.id, view) for call, view in zip(turn.calls, calls, strict=True))
        tokens = (turn.usage.input_tokens, turn.usage.output_tokens)
        self.turns.append(
            TranscriptTurn(id, "said", at, turn.step, turn.text, tokens=tokens, calls=calls)
        )

    def _add_end(self, id: str, at: datetime, end: Ended) -> None:
        last_text = next((turn.text for turn in reversed(self.turns) if turn.kind == "said"), "")
        text = "" if end.text.strip() == last_text.strip() else end.text
        self.turns.append(
            TranscriptTurn(id, "ended", at, text=text, why=end.ending, detail=end.detail or "")
        )

    def _add_result(self, id: str, at: datetime, result: ToolObservation) -> None:
        call = self._call(id, at, result.call_id or "", result.tool)
        call.state, call.seen = result.status, result

    def _call(self, id: str, at: datetime, call_id: str, name: str = "") -> CallView:
        """The call of that id; one that an earlier part shows gets a place of its own."""
        view = self._calls.get(call_id)
        if view is None:
            view = CallView(call_number(call_id), name or call_label(call_id), "", "0-0")
            self._calls[call_id] = view
            if not self.turns or self.turns[-1].kind != "results":
                self.turns.append(TranscriptTurn(id, "results", at))
            self.turns[-1].calls.append(view)
        view.name = name or view.name
        return view


def _note(entry: _Note) -> tuple[str, str]:
    """The deed of Boyd, and more about it."""
    match entry:
        case Discarded():
            return "tries again, because a turn of the model failed", entry.why
        case Steered():
            tools = ", and took its tools away" if entry.strip else ""
            return f"told the model ({entry.why}){tools}", entry.text
        case Warned():
            return "noticed", entry.text
        case Compacted():
            sizes = f"{entry.before} → {entry.after} characters"
            return "shortened the conversation for the model", sizes


def _view(call: ToolCall, place: str) -> CallView:
    return CallView(call_number(call.id), call.name, _pretty(call.arguments), place)


def _pretty(arguments: str) -> str:
    """JSON as the model wrote it, indented if it can be read."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return arguments


def find_call(log: InvestigationLog, id: str, number: int, place: str = "0-0") -> CallView | None:
    """The call of that number in full; the search begins with the entry at *place*."""
    transcript, view, after = _Transcript(), None, _just_before(place)
    while page := log.entries(id, after, _STEP):
        after = page[-1].id
        for row in page:
            if isinstance(row.entry, (Said, Started, Waits, Result)):
                transcript.add(row.id, row.entry)
        calls = (call for turn in transcript.turns for call in turn.calls)
        view = next((call for call in calls if call.number == number), None)
        if view is not None and view.seen is not None:
            break
    return view


def _just_before(place: str) -> str:
    """The position from which on reading includes the entry at *place*."""
    milliseconds, _, serial = place.partition("-")
    if int(serial):
        return f"{milliseconds}-{int(serial) - 1}"
    return f"{max(0, int(milliseconds) - 1)}-{_LAST}"
