"""Holds: actions that are not repeated on a target for now, and the verdicts that cause them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from boyd import naming
from boyd.models import Actor, Compensation, EffectName, Fence, Hold, HoldKind, from_ms
from boyd.store.hashes import readable
from boyd.store.in_flight import InFlight
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, replies_by_type, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, flat, milliseconds

_TIMES = ("since", "until")


@dataclass(frozen=True)
class NewHold:
    """A hold to begin, for so many *seconds*, or until a person lifts it.

    Unless it begins *at_once*, it begins with the second such verdict in a row on the target.
    The action is stopped on all targets for *stops_for* seconds.
    """

    kind: HoldKind
    seconds: float | None = None
    at_once: bool = True
    stops_for: float | None = None


class Holds:
    """The held actions of one agent, and the verdicts on its executions."""

    def __init__(
        self, client: Client, scripts: KeyedScripts, keys: Keys, in_flight: InFlight
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._in_flight = in_flight

    def get(self, action: str, target: str) -> Hold | None:
        """The hold of an action on a target, by an execution in flight or a lasting one.

        A suspension comes first: it does not end with an execution.
        """
        with translate_errors():
            pipe = self._lasting(action, target)
            pipe.hmget(self._keys.in_flight, f"{action}:{target}", action)
            *holds, (here, everywhere) = pipe.execute()
        hold = _closest(holds)
        flies = here or _may_be_full(everywhere)
        if not flies or (hold is not None and hold.kind == "suspended"):
            return hold
        return self._in_flight.hold(action, target) or hold

    def lasting(self, action: str, target: str) -> Hold | None:
        """The hold after an execution, on this target or on all."""
        with translate_errors():
            return _closest(self._lasting(action, target).execute())

    def _lasting(self, action: str, target: str) -> Any:
        """A pipeline that reads the hold on all targets, and the one on that target, if any."""
        pipe = self._client.pipeline(transaction=False)
        for place in dict.fromkeys(("", target)):
            pipe.hgetall(self._keys.hold(action, place))
        return pipe

    def all(self, limit: int = 500) -> list[Hold]:
        """The executions in flight, and the holds, latest end first; at most *limit* of each."""
        with translate_errors():
            members = self._client.zrange(self._keys.held_actions, 0, limit - 1, desc=True)
            pipe = self._client.pipeline(transaction=False)
            for member in members:
                pipe.hgetall(self._keys.of("hold", member))
            rows = zip(members, replies_by_type(pipe), strict=True)
        lasting = [readable(f"hold {name}", read_hold, fields or {}) for name, fields in rows]
        in_flight = self._in_flight.all(limit)
        return [*in_flight, *(hold for hold in lasting if hold is not None)]

    def lift(
        self, action: str, target: str, by: Actor, note: str = ""
    ) -> Literal["lifted", "not held", "running"]:
        """Lift a hold, also that of an open verification; `running`: an execution has to end."""
        outcome: Literal["lifted", "not held", "running"] = self._scripts.run(
            "lift_hold", action=action, target=target, note=note, actor=actor_fields(by)
        )
        return outcome

    def judge(
        self,
        execution_id: str,
        fence: Fence,
        verdict: EffectName,
        evidence: str,
        checks: int,
        hold: NewHold | Literal["as it is"] | None,
    ) -> EffectName | None:
        """Record the verdict on an execution, and create, lift or keep the hold of its action.

        Returns the verdict that counts: an effect that another execution may have had cannot be
        credited. None if the job was lost, or the execution is no longer kept.
        """
        fields = {"verdict": verdict, "evidence": evidence, "checks": checks}
        change = {} if hold == "as it is" else _change(execution_id, hold, evidence)
        counts: EffectName | Literal[""] = self._record(
            execution_id, fence, "verified", evidence, fields, change
        )
        return counts or None

    def record_compensation(
        self,
        execution_id: str,
        fence: Fence,
        compensation: Compensation,
        hold: NewHold | Literal["as it is"] | None = "as it is",
        evidence: str = "",
    ) -> bool:
        """Record the fate of an action that did harm; *hold* as for `judge`."""
        fields = {"compensation": compensation.to_json()}
        note = f"{compensation.state}: {compensation.detail}".removesuffix(": ")
        change = {} if hold == "as it is" else _change(execution_id, hold, evidence)
        return bool(self._record(execution_id, fence, "compensated", note, fields, change))

    def _record(
        self,
        execution_id: str,
        fence: Fence,
        kind: str,
        note: str,
        fields: Mapping[str, object],
        change: Mapping[str, object],
    ) -> Any:
        return self._scripts.run(
            "record_effect",
            job=self._keys.job(naming.verification(execution_id)),
            execution=self._keys.execution(execution_id),
            attempt=fence.token,
            worker=fence.entered,
            id=execution_id,
            kind=kind,
            note=note,
            hold_for=change.get("for", ""),
            held=change.get("fields", {}),
            fields=flat(fields),
        )


def _may_be_full(text: str | None) -> bool:
    """Check if as many executions as may be are in flight, or if that is not known."""
    try:
        place = json.loads(text or '{"ids": [], "limit": 1}')
        return bool(len(place["ids"]) >= place["limit"])
    except (ValueError, KeyError, TypeError):
        return True


def _change(execution_id: str, hold: NewHold | None, evidence: str) -> dict[str, object]:
    """The change of a hold as the script takes it."""
    if hold is None:
        return {"for": -1}
    fields = {"kind": hold.kind, "execution": execution_id}
    if evidence:
        fields["evidence"] = evidence
    if not hold.at_once:
        fields["second"] = "1"
    if hold.stops_for is not None:
        fields["everywhere"] = str(milliseconds(hold.stops_for))
    return {"for": milliseconds(hold.seconds or 0.0), "fields": fields}


def _closest(holds: Sequence[Mapping[str, str]]) -> Hold | None:
    """The suspension on all targets, or else the hold on this one, or else a stop on all."""
    whole, own = read_hold(holds[0]), read_hold(holds[-1])
    if whole is not None and whole.because == "violations":
        return whole
    return whole if own is None and whole is not None and whole.kind == "stopped" else own


def read_hold(fields: Mapping[str, str]) -> Hold | None:
    """A hold from the fields of its hash; None if it has ended. Raises for invalid fields."""
    if not fields:
        return None
    times = {name: from_ms(float(fields[name])) for name in _TIMES if name in fields}
    texts = {name: text for name, text in fields.items() if name not in _TIMES}
    symptoms = fields["symptoms"].split("\n") if fields.get("symptoms") else []
    cause = {"because": "harm"} if fields["kind"] == "suspended" else {}
    return Hold.model_validate({**cause, **texts, **times, "symptoms": symptoms}, extra="ignore")
