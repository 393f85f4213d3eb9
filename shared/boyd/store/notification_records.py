"""The notifications of an agent's approvals: a record on the approval and a job for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boyd import naming
from boyd.models import Fence, NotificationRecord
from boyd.store.keys import Keys
from boyd.store.server.scripts import KeyedScripts, milliseconds

#: The prefix of a record's field in the hash of its approval.
NOTIFIED = "notified:"


class NotificationRecords:
    """The notifications of one agent."""

    def __init__(self, scripts: KeyedScripts, keys: Keys, resend_after: float) -> None:
        self._scripts = scripts
        self._keys = keys
        self._resend_after = milliseconds(resend_after)

    def plan(
        self,
        approval_id: str,
        records: Mapping[str, NotificationRecord],
        waits: Mapping[str, float],
        obsolete: Sequence[str],
    ) -> list[str]:
        """Store new records and their jobs; return the jobs to send now.

        Args:
            approval_id: the approval.
            records: the notifications by name; those that exist stay as they are.
            waits: seconds until the first attempt, for those that must wait.
            obsolete: names of earlier notifications that these replace.
        """
        planned = [
            {"name": name, "record": record.to_json(), "wait": milliseconds(waits.get(name, 0.0))}
            for name, record in records.items()
        ]
        sent = self._scripts.run(
            "plan_notifications",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            resend_after=self._resend_after,
            planned=planned,
            obsolete=obsolete,
        )
        return [str(name) for name in sent]

    def store(self, approval_id: str, record: NotificationRecord, fence: Fence) -> bool:
        """Store the state of a notification; False: its job was lost, or the approval is gone."""
        stored = self._scripts.run(
            "record_notification",
            job=self._keys.job(naming.delivery(approval_id, record.name)),
            approval=self._keys.approval(approval_id),
            attempt=fence.token,
            worker=fence.entered,
            id=approval_id,
            name=record.name,
            record=record.to_json(),
            stage=record.stage,
            ended=record.state if record.has_ended else "",
        )
        return bool(stored)
