"""Acknowledgements: who takes care of an approval or an open anomaly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from boyd.models import Actor, OpenAnomaly
from boyd.store.iterations import read_anomalies
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds

#: What came of a change: it took place, it was so already, or its subject waits no longer.
Acknowledged = Literal["done", "unchanged", "not-pending", "not-open"]


class Acknowledgements:
    """The acknowledgements of one agent's approvals and anomalies.

    An approval has its latest one in its hash, an anomaly beside it in the list of those that are
    open: it ends with the anomaly.
    """

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys

    def anomalies(self) -> tuple[OpenAnomaly, ...]:
        """The open anomalies, worst first."""
        with translate_errors():
            return read_anomalies(self._client.get(self._keys.symptoms))

    def acknowledge_approval(
        self, approval_id: str, by: Actor, seconds: float | None = None, note: str = ""
    ) -> Acknowledged:
        """Acknowledge a pending item for *seconds*, or until it is answered.

        It replaces an acknowledgement by another principal.
        """
        return self._change_approval(approval_id, by, _change(by, seconds, note))

    def release_approval(self, approval_id: str, by: Actor) -> Acknowledged:
        """End the acknowledgement of a pending item."""
        return self._change_approval(approval_id, by, {"by": by.principal, "release": True})

    def acknowledge_anomaly(
        self, anomaly: OpenAnomaly, by: Actor, seconds: float | None = None, note: str = ""
    ) -> Acknowledged:
        """Acknowledge an open anomaly for *seconds*, or until it ends."""
        return self._change_anomaly(anomaly, by, _change(by, seconds, note))

    def release_anomaly(self, anomaly: OpenAnomaly, by: Actor) -> Acknowledged:
        """End the acknowledgement of an open anomaly."""
        return self._change_anomaly(anomaly, by, {"by": by.principal, "release": True})

    def _change_approval(
        self, approval_id: str, by: Actor, change: Mapping[str, object]
    ) -> Acknowledged:
        outcome: Acknowledged = self._scripts.run(
            "acknowledge_approval",
            approval=self._keys.approval(approval_id),
            id=approval_id,
            change=change,
            actor=actor_fields(by),
        )
        return outcome

    def _change_anomaly(
        self, anomaly: OpenAnomaly, by: Actor, change: Mapping[str, object]
    ) -> Acknowledged:
        outcome: Acknowledged = self._scripts.run(
            "acknowledge_anomaly",
            plugin=anomaly.plugin_id,
            symptom=anomaly.symptom,
            change=change,
            actor=actor_fields(by),
        )
        return outcome


def _change(by: Actor, seconds: float | None, note: str) -> dict[str, object]:
    fields = {"by": by.principal, "name": by.name, "note": note or None}
    change: dict[str, object] = {name: value for name, value in fields.items() if value}
    return change if seconds is None else {**change, "ms": milliseconds(seconds)}
