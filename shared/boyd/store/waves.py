"""Waves: the targets of a procedure's step, each with a state, and a job while something is done.

The scripts begin them a few at a time. Reading takes as many commands for ten targets as for a
thousand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from boyd import naming
from boyd.models import MAX_NAMED, Fence, TargetState, WaveProgress, WaveTarget
from boyd.store.hashes import reading
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts

#: The states in the order of their numbers in Redis.
_STATES: tuple[TargetState, ...] = get_args(TargetState)
#: The states of targets that people should know by name.
_PROBLEMS: tuple[TargetState, ...] = (
    *("worse", "unknown", "stuck", "failed", "not effective", "asked", "undo asked", "left"),
)


class WaveStore:
    """The targets of one agent's procedures; `wave` names the procedure and its step."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def open(
        self, wave: str, fence: Fence, limits: Mapping[str, Any], resumed: bool = False
    ) -> list[str] | None:
        """Begin targets; return the names of their jobs, or None if that of *fence* was lost.

        *limits* are the fields of the script; *resumed*: what has failed counts no longer.
        """
        return self._begin("open_wave", fence, id=wave, resumed=resumed, fields=limits)

    def move(
        self, wave: str, fence: Fence, target: WaveTarget, halts: str = ""
    ) -> list[str] | None:
        """Record the state of a target; the reply is that of `open`.

        With the reason *halts* no other target begins.
        """
        own = {"number", "item", "state", "tries"}
        details = {name: value for name, value in target.to_wire().items() if name not in own}
        return self._begin(
            "move_target",
            fence,
            procedure=naming.parts_of_wave(wave)[0],
            id=wave,
            number=target.number,
            state=_STATES.index(target.state),
            details=details or "",
            halts=halts,
        )

    def halt(self, wave: str, fence: Fence, reason: str) -> bool:
        """Begin no other target, and none that waits for its worker; False: the job was lost."""
        return bool(self._scripts.run("halt_wave", **self._holder(fence), id=wave, why=reason))

    def repeat(self, wave: str, fence: Fence, back: bool) -> bool:
        """Let what has failed, or with *back* what could not be undone, be executed again."""
        names = ("stuck", "stuck", "done") if back else ("failed", "unknown", "pending")
        first, last, state = (_STATES.index(name) for name in names)
        holder = self._holder(fence)
        repeated = self._scripts.run(
            "repeat_targets", **holder, id=wave, first=first, last=last, state=state
        )
        return bool(repeated)

    def get(self, wave: str, number: int) -> WaveTarget | None:
        """One target."""
        with translate_errors():
            member, pipe = f"{number:05}", self._client.pipeline(transaction=False)
            pipe.zscore(self._key("states", wave), member)
            pipe.hget(self._key("targets", wave), member)
            pipe.hget(self._key("details", wave), member)
            pipe.hget(self._keys.job(naming.target(wave, number)), "tries")
            score, item, details, tries = pipe.execute()
        if score is None:
            return None
        with reading(f"target {number} of {wave}"):
            return _target(member, int(score), item, details).patched({"tries": int(tries or 0)})

    def progress(self, wave: str) -> WaveProgress | None:
        """The progress of a step, without the ends of its waves, if its targets are kept."""
        states = self._key("states", wave)
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hmget(self._keys.of("wave", wave), "limit", "halted", "mode")
            for number in range(len(_STATES)):
                pipe.zcount(states, number, number)
            (limit, halted, mode), *counts = pipe.execute()
        total = sum(counts)
        if not total:
            return None
        return WaveProgress(
            total=total,
            ends=[],
            begun=int(limit or 0),
            counts={s: n for s, n in zip(_STATES, counts, strict=True) if n},
            problems=list(self._problems(wave)) if total > counts[4] else [],
            halted=halted,
            back=mode == "back",
        )

    def _problems(self, wave: str) -> Iterator[WaveTarget]:
        """The first targets in a state of `_PROBLEMS`."""
        states, numbers = self._key("states", wave), [_STATES.index(name) for name in _PROBLEMS]
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for number in numbers:
                pipe.zrange(states, number, number, byscore=True, offset=0, num=MAX_NAMED)
            lists = pipe.execute()
            pairs = [
                (member, number)
                for number, members in zip(numbers, lists, strict=True)
                for member in members
            ][:MAX_NAMED]
            if not pairs:
                return
            members = [member for member, _ in pairs]
            pipe.hmget(self._key("targets", wave), members)
            pipe.hmget(self._key("details", wave), members)
            items, details = pipe.execute()
        with reading(f"targets of {wave}"):
            for (member, number), item, text in zip(pairs, items, details, strict=True):
                yield _target(member, number, item, text)

    def _begin(self, script: str, fence: Fence, **values: Any) -> list[str] | None:
        held, *names = self._scripts.run(script, **self._holder(fence), **values)
        return list(map(str, names)) if held else None

    def _holder(self, fence: Fence) -> dict[str, Any]:
        job = self._keys.job(str(fence.origin))
        return {"job": job, "attempt": fence.token, "worker": fence.entered}

    def _key(self, part: str, wave: str) -> str:
        return self._keys.of(f"wave-{part}", wave)


def _target(member: str, state: int, item: str | None, details: str | None) -> WaveTarget:
    own = {"number": int(member), "state": _STATES[state], "item": json.loads(item or "null")}
    return WaveTarget.from_json(json.dumps({**json.loads(details or "{}"), **own}))
