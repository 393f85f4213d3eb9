"""Procedures: each is a hash, which is also its job, with the progress of its steps.

The targets of a step are in `waves`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from boyd import naming
from boyd.models import (
    MAX_NAMED,
    ActionResult,
    Actor,
    Fence,
    ProcedureRecord,
    ProcedureState,
    ProcedureStep,
    StepProgress,
    WaveProgress,
)
from boyd.store.executions import KEEP
from boyd.store.hashes import flatten, readable, reading, restore
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, replies_by_type, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, flat, milliseconds

#: Set by the scripts, in milliseconds, or stored by step.
_SCRIPTED = frozenset({"progress", "startedAt", "until", "stoppedAt", "endedAt"})
_STEP = "step:"

ResumeMode = Literal["go on", "repeat"]


class ProcedureStore:
    """The procedures of one agent."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def begin(self, token: str, record: ProcedureRecord, result: ActionResult) -> bool:
        """Turn the execution claimed by *token* into a procedure; False: the claim was lost."""
        waves, progress = [], {}
        for index, step in enumerate(record.steps):
            if isinstance(step.for_each, list):
                waves.append({"step": step.id, "items": list(map(json.dumps, step.for_each))})
                wave = WaveProgress.of(len(step.for_each))
                progress[step_field(index)] = StepProgress(wave=wave).to_json()
        record = record.patched({"steps": list(map(_with_few_targets, record.steps))})
        fields = dict(zip(*[iter(flatten(record))] * 2, strict=True))
        own = {name: text for name, text in fields.items() if name not in _SCRIPTED}
        has_begun = self._scripts.run(
            "begin_procedure",
            execution=self._keys.execution(record.id),
            job=self._job(record.id),
            id=record.id,
            token=token,
            result=result.to_json(),
            within=milliseconds((record.until - record.started_at).total_seconds()),
            keep=milliseconds(KEEP),
            waves=waves,
            fields=flat({**own, **progress}),
        )
        return bool(has_begun)

    def get(self, id: str) -> ProcedureRecord | None:
        """One procedure, by the id of its execution."""
        with translate_errors():
            fields = self._client.hgetall(self._job(id))
        with reading(f"procedure {id}"):
            return read_procedure(fields) if "id" in fields else None

    def all(self, limit: int = 100) -> list[ProcedureRecord]:
        """The procedures, latest first; at most *limit*."""
        with translate_errors():
            names = self._client.zrange(self._keys.procedures, 0, limit - 1, desc=True)
        return self._read(names)

    def list_stopped(self, limit: int, start: int = 0) -> list[ProcedureRecord]:
        """Those that wait for a person, longest first; at most *limit*, from the place *start*."""
        with translate_errors():
            names = self._client.zrange(self._keys.procedures_stopped, start, start + limit - 1)
        return self._read(names)

    def _read(self, names: Sequence[str]) -> list[ProcedureRecord]:
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in names:
                pipe.hgetall(self._job(name))
            rows = zip(names, replies_by_type(pipe), strict=True)
        read = [
            readable(f"procedure {name}", read_procedure, fields)
            for name, fields in rows
            if fields and "id" in fields
        ]
        return [record for record in read if record is not None]

    def record(
        self,
        record: ProcedureRecord,
        fence: Fence,
        fields: Mapping[str, str],
        kind: str = "",
        note: str = "",
    ) -> bool:
        """Store *fields* of *record*; an empty one is removed. False: the job was lost.

        *kind* is what happened, for the audit and the totals: `stopped` or `compensating`.
        """
        recorded = self._scripts.run(
            "record_procedure",
            job=self._job(record.id),
            execution=self._keys.execution(record.id),
            attempt=fence.token,
            worker=fence.entered,
            id=record.id,
            kind=kind,
            note=note,
            progress=record.summary,
            fields=dict(fields),
        )
        return bool(recorded)

    def end(
        self,
        record: ProcedureRecord,
        fence: Fence,
        state: ProcedureState,
        result: ActionResult,
        note: str,
        hold_for: float,
    ) -> bool:
        """End a procedure and its execution; False: the job was lost.

        For *hold_for* seconds the action is not repeated while its symptoms last.
        """
        has_ended = self._scripts.run(
            "end_procedure",
            job=self._job(record.id),
            execution=self._keys.execution(record.id),
            attempt=fence.token,
            worker=fence.entered,
            id=record.id,
            state=state,
            outcome=result.state,
            result=result.to_json(),
            note=note,
            hold_for=milliseconds(hold_for),
            keep=milliseconds(KEEP),
            waves=[step.id for step in record.steps if step.for_each is not None],
        )
        return bool(has_ended)

    def cancel(self, id: str, by: Actor, note: str = "") -> Literal["ok", "over", "unknown"]:
        """Cancel a procedure; its worker undoes the steps that took effect."""
        outcome: Literal["ok", "over", "unknown"] = self._scripts.run(
            "cancel_procedure",
            job=self._job(id),
            id=id,
            by=by.principal,
            note=note,
            actor=actor_fields(by),
        )
        return outcome

    def resume(
        self, id: str, mode: ResumeMode, by: Actor, note: str = ""
    ) -> Literal["ok", "not stopped", "unknown"]:
        """Let a stopped procedure go on.

        `go on`: what was lost or failed counts as done; `repeat`: it is executed again.
        """
        outcome: Literal["ok", "not stopped", "unknown"] = self._scripts.run(
            "resume_procedure",
            job=self._job(id),
            id=id,
            how=mode,
            note=note,
            actor=actor_fields(by),
        )
        return outcome

    def _job(self, id: str) -> str:
        return self._keys.job(naming.procedure(id))


def _with_few_targets(step: ProcedureStep) -> ProcedureStep:
    """A step as the record has it, which every move reads: with the first of its targets."""
    if not isinstance(step.for_each, list):
        return step
    return step.patched({"for_each": step.for_each[:MAX_NAMED]})


def step_field(index: int) -> str:
    """The field of a step's progress."""
    return f"{_STEP}{index}"


def read_procedure(fields: Mapping[str, str]) -> ProcedureRecord:
    """A procedure from its hash."""
    record = restore(ProcedureRecord, fields)
    progress = [
        StepProgress.from_json(fields[step_field(index)])
        if step_field(index) in fields
        else StepProgress()
        for index in range(len(record.steps))
    ]
    return record.patched({"progress": progress})
