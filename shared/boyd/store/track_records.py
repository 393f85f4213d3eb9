"""Track records of actions by class of situation, and the grants to run alone that they earned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from boyd.models import Actor, Coverage, EarnedAutonomy, Fence, TrackRecord, from_ms
from boyd.models.situation import is_related
from boyd.store.hashes import readable
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, replies_by_type, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds

#: The row of what is counted over all classes, and those of earlier builds.
_NO_CLASS = re.compile(r"\*|[0-9a-f]{16}")
_TIMES = ("since", "updated", "until")


class TrackRecords:
    """The track records of one agent."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def get(self, action: str, situation: str) -> TrackRecord | None:
        """The record of an action in a class of situation, if there is one.

        Where that has no grant, it comes with one for the same anomalies on other targets.
        """
        with translate_errors():
            texts = self._client.hgetall(self._keys.track(action))
        record = _read(action, situation, texts.get(situation))
        if record is not None and record.grant:
            return record
        related = [
            other.grant
            for name, text in texts.items()
            if is_related(name, situation)
            and (other := _readable(action, name, text))
            and other.grant
        ]
        if not related:
            return record
        latest = max(related, key=lambda grant: grant.until)
        record = record or TrackRecord(action=action, situation=situation, label="")
        return record.patched({"related": latest})

    def all(self, actions: Iterable[str]) -> list[TrackRecord]:
        """The records of these actions, latest outcome first."""
        names = list(actions)
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for action in names:
                pipe.hgetall(self._keys.track(action))
            hashes = replies_by_type(pipe)
        records = [
            record
            for action, texts in zip(names, hashes, strict=True)
            for situation, text in (texts or {}).items()
            if not _NO_CLASS.fullmatch(situation)
            and (record := _readable(action, situation, text)) is not None
        ]
        records.sort(key=lambda record: record.updated.timestamp() if record.updated else 0.0)
        return records[::-1]

    def grant(
        self,
        record: TrackRecord,
        grant_id: str,
        by: list[str],
        rule: EarnedAutonomy,
        covers: Coverage,
        fence: Fence,
    ) -> bool:
        """Let an action run alone, under a *rule* and within the calls that *covers* names.

        Returns False if the job or the record is another one. Repeating it changes nothing, also
        after the grant has ended.
        """
        granted = self._scripts.run(
            "grant_autonomy",
            job=self._keys.job(str(fence.origin)),
            attempt=fence.token,
            worker=fence.entered,
            action=record.action,
            withdrawn=record.withdrawn,
            lasts=milliseconds(rule.lasts),
            grant={
                "id": grant_id,
                "atLeast": rule.at_least,
                "by": by,
                "covers": covers.to_wire(),
            },
            **{"class": record.situation},
        )
        return bool(granted)

    def revoke(self, action: str, situation: str, by: Actor, note: str = "") -> int:
        """Revoke the grants of an action, in all classes if *situation* is empty; their number."""
        revoked = self._scripts.run(
            "revoke_autonomy",
            tracks=self._keys.track(action),
            action=action,
            note=note,
            actor=actor_fields(by),
            **{"class": situation},
        )
        return int(revoked)

    def note_offer(self, record: TrackRecord) -> None:
        """Note that a person was asked to let the action run alone."""
        self._scripts.run(
            "note_offer",
            tracks=self._keys.track(record.action),
            action=record.action,
            offered=record.outcomes,
            **{"class": record.situation},
        )


def _readable(action: str, situation: str, text: str) -> TrackRecord | None:
    name = f"the track record of {action} in {situation!r}"
    return readable(name, partial(_read, action, situation), text)


def _read(action: str, situation: str, text: str | None) -> TrackRecord | None:
    try:
        fields: Any = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    values = {**_read_times(fields), "action": action, "situation": situation}
    if isinstance(values.get("grant"), dict):
        values["grant"] = _read_times(values["grant"])
        _restore_lists(values["grant"])
    _restore_lists(values)
    return TrackRecord.model_validate(values, extra="ignore").with_rates()


def _restore_lists(fields: Mapping[str, Any]) -> None:
    """Make empty lists of what Lua has encoded as an empty object."""
    covers = fields.get("covers")
    if isinstance(covers, dict):
        covers["targets"] = covers.get("targets") or []
        covers.update({name: covers.get(name) or {} for name in ("ranges", "values")})


def _read_times(fields: Mapping[str, Any]) -> dict[str, Any]:
    times = {name: from_ms(float(fields[name])) for name in _TIMES if name in fields}
    return {**fields, **times}
