"""Cases that wait before the action, to learn how many end without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from boyd import naming
from boyd.models import Fence, Holdout, JsonObject, from_ms
from boyd.store.keys import Keys
from boyd.store.server.scripts import KeyedScripts

#: The end of a wait: the case has ended by itself, or not, or nobody can tell.
WaitVerdict = Literal["well", "not well", "unclear"]


@dataclass(frozen=True)
class Wait:
    """A case that waits: its action, what it is about, and until when."""

    id: str
    action: str
    target: str
    params: JsonObject
    situation: str
    started_at: datetime
    until: datetime

    @classmethod
    def of(cls, id: str, fields: Mapping[str, str]) -> Wait:
        """The case of an execution from the fields of its job."""
        return cls(
            id=id,
            action=fields["action"],
            target=fields["target"],
            params=json.loads(fields["params"]),
            situation=fields["class"],
            started_at=from_ms(float(fields["startedAt"])),
            until=from_ms(float(fields["until"])),
        )


@dataclass(frozen=True)
class CaseDraw:
    """The draw for the case of an execution, and how it would wait, as the scripts read it."""

    id: str
    action: str
    target: str
    plan: JsonObject


class Holdouts:
    """The cases of one agent, and their waits."""

    def __init__(self, scripts: KeyedScripts, keys: Keys) -> None:
        self._scripts = scripts
        self._keys = keys

    def draw(self, case: CaseDraw, fence: Fence) -> Holdout | None:
        """Record the draw of a case; None if it is no new one, or must not wait.

        Repeating it for the same iteration returns the same.
        """
        arm, until = self._scripts.run(
            "draw_case",
            n=fence.origin,
            epoch=fence.token,
            worker=fence.entered,
            id=case.id,
            action=case.action,
            target=case.target,
            plan=case.plan,
        )
        if arm not in ("act", "wait"):
            return None
        ends = from_ms(float(until)) if until else None
        plan = case.plan
        return Holdout.model_validate({"draw": plan["draw"], "share": plan["share"], "until": ends})

    def end(self, wait: Wait, fence: Fence, verdict: WaitVerdict, evidence: str) -> bool:
        """Record how a wait has ended, and let the action run; False when the job was lost."""
        is_ended = self._scripts.run(
            "end_wait",
            job=self._keys.job(naming.wait(wait.id)),
            attempt=fence.token,
            worker=fence.entered,
            id=wait.id,
            action=wait.action,
            target=wait.target,
            started=int(wait.started_at.timestamp() * 1000),
            verdict=verdict,
            evidence=evidence,
            **{"class": wait.situation},
        )
        return bool(is_ended)
