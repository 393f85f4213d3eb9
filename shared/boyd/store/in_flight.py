"""Executions in flight: those of an action on a target that are queued, running or being verified.

Redis keeps them in the order of their turns, for each action that limits how many there may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from boyd import naming
from boyd.models import ApprovalItem, Hold, from_ms
from boyd.store.hashes import readable
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts

#: Targets that the hold by executions on others names.
_NAMED = 5


class InFlight:
    """The executions in flight of one agent, where no more of their action may be."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def hold(self, action: str, target: str) -> Hold | None:
        """The hold of an action on a target by executions there, or by those on all targets."""
        here = place_of(action, target)
        holds = self._at([here, action])
        if here in holds:
            return holds[here][0]
        return _limit(holds[action], target) if action in holds else None

    def find(self, action: str, target: str, execution: str) -> Hold | None:
        """An execution in flight on a target, or else on any."""
        holds = self._at([place_of(action, target), action], only_full=False)
        each = {hold.execution: hold for place in holds.values() for hold in place}
        return each.get(execution)

    def all(self, limit: int) -> list[Hold]:
        """All executions, at most *limit*, and those actions of which too many are in flight."""
        places = self._at([], limit=limit).items()
        holds = [_holds_at(place, each) for place, each in places]
        return [hold for each in holds for hold in each][:limit]

    def ahead_of(self, job: str) -> list[Hold]:
        """The executions that a queued job waits for."""
        names = ["executionTurn", "executionTurnAt"]
        with translate_errors():
            execution, place = self._client.hmget(self._keys.job(job), names)
        if not place:
            return []
        everywhere = _everywhere(place)
        holds = self._at([place, everywhere])
        ahead = _ahead(holds.get(place, []), execution)
        return ahead or _ahead(holds.get(everywhere, []), execution)

    def show_in(self, items: Sequence[ApprovalItem]) -> list[ApprovalItem]:
        """The *items*, each with the executions that it waits for, or would if it was approved."""
        places = {item.id: place_of(item.action_id, item.target) for item in items if _waits(item)}
        if not places:
            return list(items)
        both = {*places.values(), *map(_everywhere, places.values())}
        in_flight = self._at(sorted(both))
        return [
            _with_ahead(item, in_flight, places[item.id]) if item.id in places else item
            for item in items
        ]

    def _at(
        self, places: Sequence[str], limit: int = 0, only_full: bool = True
    ) -> dict[str, list[Hold]]:
        """The executions by place, by default where no more of them may be.

        Without any *places*, those of the first *limit*.
        """
        (_, now), *rows = self._scripts.run("read_in_flight", fields=places, limit=limit)
        by_place: dict[str, list[Hold]] = {}
        limits: dict[str, int] = {}
        for place, most, *entry in rows:
            read = partial(_read, place, now=float(now))
            hold = readable(f"an execution in flight, {place}", read, entry)
            if hold is not None:
                by_place.setdefault(place, []).append(hold)
                limits[place] = int(float(most))
        return {
            place: holds
            for place, holds in by_place.items()
            if not only_full or len(holds) >= limits[place]
        }


def place_of(action: str, target: str | None) -> str:
    """The field of the hash in which an action on a target is; the action's is for all targets."""
    return f"{action}:{target or ''}"


def calls_in(fields: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The actions and targets among the fields of the hash, in which actions have fields, too."""
    places = sorted(place for place in fields if place != _everywhere(place))
    return tuple((_everywhere(place), place.split(":", 2)[2]) for place in places)


def _everywhere(place: str) -> str:
    """The place of the same action on all targets."""
    return ":".join(place.split(":")[:2])


def _holds_at(place: str, holds: Sequence[Hold]) -> Sequence[Hold]:
    """The holds by executions at a place; those on all targets count as one hold."""
    return [_limit(holds, "")] if place == _everywhere(place) else holds


def _limit(holds: Sequence[Hold], target: str) -> Hold:
    """The hold on a target by so many executions on others."""
    first = holds[0]
    names = [hold.target or naming.short(hold.execution) for hold in holds]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    listed = ", ".join(names[:_NAMED]) + more
    evidence = f"{len(names)} {verb} in flight, and no more may be: {listed}"
    changes = {"kind": "limit", "target": target, "evidence": evidence}
    return first.patched({**changes, "by": None, "approved": False, "host": None})


def _waits(item: ApprovalItem) -> bool:
    """Check whether executions in flight may delay an item that has not begun."""
    queued = item.execution is not None and item.execution.state == "queued"
    return item.concurrency is not None and (item.status == "pending" or queued)


def _with_ahead(
    item: ApprovalItem, in_flight: Mapping[str, Sequence[Hold]], place: str
) -> ApprovalItem:
    own = item.execution_id
    ahead = _ahead(in_flight.get(place, []), own)
    if not ahead and not item.undoes:
        ahead = _ahead(in_flight.get(_everywhere(place), []), own)
    return item.patched({"in_flight": ahead}) if ahead else item


def _ahead(holds: Sequence[Hold], execution: str) -> list[Hold]:
    """Those of *holds* that have to end before an execution begins, as `in_the_way` has it.

    A rollback comes before all that is only queued, and does not wait for what it undoes.
    """
    undoes = naming.parts(execution)[1] if naming.is_rollback(execution) else None
    names = [hold.execution for hold in holds]
    place = names.index(execution) if execution in names else len(holds)
    follows = 0 if undoes else place
    return [
        hold
        for position, hold in enumerate(holds)
        if hold.execution not in (execution, undoes)
        and (hold.kind != "queued" or position < follows)
    ]


def _read(place: str, entry: Sequence[str], now: float) -> Hold:
    """An execution from a row of the script `read_in_flight`."""
    execution, target, stage, since, host, requester, approver = entry
    plugin, name, *rest = place.split(":", 2)
    agent = naming.parts(requester)[0] == "agent"
    return Hold.model_validate(
        {
            "action": f"{plugin}:{name}",
            "target": rest[0] if rest else target,
            "kind": stage,
            "execution": execution,
            "since": from_ms(float(since)),
            "by": approver or (requester if requester and not agent else None),
            "approved": bool(approver),
            "host": host or None,
            "age": max(0.0, (now - float(since)) / 1000),
        }
    )
