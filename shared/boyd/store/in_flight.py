"""Executions in flight: those of an action on a target that are queued, running or being verified.

Redis keeps them in the order of their turns, for each action that limits how many there may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from boyd import naming
from boyd.models import ApprovalItem, Hold, from_ms
from boyd.store.hashes import readable
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts


class InFlight:
    """The executions in flight of one agent, where no more of their action may be."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def of(self, action: str, target: str) -> list[Hold]:
        """The executions of an action on a target."""
        place = _place(action, target)
        return self._at([place]).get(place, [])

    def all(self, limit: int) -> list[Hold]:
        """All executions, at most *limit*."""
        return [hold for holds in self._at([], limit).values() for hold in holds][:limit]

    def ahead_of(self, job: str) -> list[Hold]:
        """The executions that a queued job waits for."""
        names = ["executionTurn", "executionTurnAt"]
        with translate_errors():
            execution, place = self._client.hmget(self._keys.job(job), names)
        return _ahead(self._at([place]).get(place, []), execution) if place else []

    def show_in(self, items: Sequence[ApprovalItem]) -> list[ApprovalItem]:
        """The *items*, each with the executions that it waits for, or would if it was approved."""
        places = {item.id: _place(item.action_id, item.target) for item in items if _waits(item)}
        if not places:
            return list(items)
        in_flight = self._at(sorted(set(places.values())))
        return [_with_ahead(item, in_flight.get(places.get(item.id, ""), [])) for item in items]

    def _at(self, places: Sequence[str], limit: int = 0) -> dict[str, list[Hold]]:
        """The executions by place; without any *places*, those of the first *limit*."""
        (_, now), *rows = self._scripts.run("read_in_flight", fields=places, limit=limit)
        by_place: dict[str, list[Hold]] = {}
        for place, *entry in rows:
            read = partial(_read, place, now=float(now))
            hold = readable(f"an execution in flight, {place}", read, entry)
            if hold is not None:
                by_place.setdefault(place, []).append(hold)
        return by_place


def _place(action: str, target: str | None) -> str:
    """The field of the hash in which an action on a target is."""
    return f"{action}:{target or ''}"


def _waits(item: ApprovalItem) -> bool:
    """Check whether executions in flight may delay an item that has not begun."""
    queued = item.execution is not None and item.execution.state == "queued"
    return item.concurrency is not None and (item.status == "pending" or queued)


def _with_ahead(item: ApprovalItem, in_flight: Sequence[Hold]) -> ApprovalItem:
    own = naming.rollback(item.undoes) if item.undoes else naming.approval(item.id)
    ahead = _ahead(in_flight, own)
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
    execution, stage, since, host, requester, approver = entry
    plugin, name, target = place.split(":", 2)
    agent = naming.parts(requester)[0] == "agent"
    return Hold.model_validate(
        {
            "action": f"{plugin}:{name}",
            "target": target,
            "kind": stage,
            "execution": execution,
            "since": from_ms(float(since)),
            "by": approver or (requester if requester and not agent else None),
            "approved": bool(approver),
            "host": host or None,
            "age": max(0.0, (now - float(since)) / 1000),
        }
    )
