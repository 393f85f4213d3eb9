"""Holds: actions that are not repeated on a target for now, and the verdicts that cause them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from boyd import naming
from boyd.models import Actor, Compensation, EffectName, Hold, HoldKind, from_ms
from boyd.store.audit_trail import actor_fields
from boyd.store.connection import Client, translated
from boyd.store.executions import Fence
from boyd.store.keys import Keys
from boyd.store.scripts import KeyedScripts, flat
from boyd.store.timing import milliseconds

_TIMES = ("since", "until")


@dataclass(frozen=True)
class NewHold:
    """A hold to begin, for so many *seconds*; None: until a person lifts it."""

    kind: HoldKind
    seconds: float | None = None


class Holds:
    """The held actions of one agent, and the verdicts on its executions."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def get(self, action: str, target: str) -> Hold | None:
        """The hold of an action on a target or, if it is suspended on all, that one."""
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(self._keys.hold(action, ""))
            pipe.hgetall(self._keys.hold(action, target))
            everywhere, here = map(_read, pipe.execute())
        if everywhere is not None and everywhere.because == "violations":
            return everywhere
        return here

    def all(self, limit: int = 500) -> list[Hold]:
        """The holds, latest end first; at most *limit*."""
        with translated():
            members = self._client.zrange(self._keys.held_actions, 0, limit - 1, desc=True)
            pipe = self._client.pipeline(transaction=False)
            for member in members:
                pipe.hgetall(self._keys.of("hold", member))
            found = map(_read, pipe.execute())
        return [hold for hold in found if hold is not None]

    def lift(self, action: str, target: str, by: Actor, note: str = "") -> bool:
        """Lift a hold; False: there is none."""
        lifted = self._scripts.run(
            "lift_hold", action=action, target=target, note=note, actor=actor_fields(by)
        )
        return bool(lifted)

    def judge(
        self,
        execution_id: str,
        fence: Fence,
        verdict: EffectName,
        evidence: str,
        checks: int,
        hold: NewHold | None,
    ) -> EffectName | None:
        """Record the verdict on an execution; None: its job was lost, or it is no longer kept.

        Its action is held on its target by *hold* from then on; None: not any more. The verdict
        that counts is returned: an effect that another execution may have had cannot be credited.
        """
        fields = {"verdict": verdict, "evidence": evidence, "checks": checks}
        change = _change(execution_id, hold, evidence)
        counts: EffectName | Literal[""] = self._record(
            execution_id, fence, "verified", evidence, fields, change
        )
        return counts or None

    def compensated(
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


def _change(execution_id: str, hold: NewHold | None, evidence: str) -> dict[str, object]:
    """The change of a hold as the script takes it."""
    if hold is None:
        return {"for": -1}
    fields = {"kind": hold.kind, "execution": execution_id}
    if evidence:
        fields["evidence"] = evidence
    return {"for": milliseconds(hold.seconds or 0.0), "fields": fields}


def _read(fields: Mapping[str, str]) -> Hold | None:
    if not fields:
        return None
    times = {name: from_ms(float(fields[name])) for name in _TIMES if name in fields}
    texts = {name: text for name, text in fields.items() if name not in _TIMES}
    known = {**texts, **times, "situations": fields.get("situations", "").split()}
    return Hold.model_validate(known, extra="ignore")
