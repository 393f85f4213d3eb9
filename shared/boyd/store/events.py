"""An agent's event stream: a line for every change, written by the script that makes it."""

from __future__ import annotations

from boyd.models import Event, JsonObject, from_ms
from boyd.store.client import Client, translated
from boyd.store.keys import Keys


class Events:
    """The events of several agents, read in order of time."""

    def __init__(self, client: Client, agent_ids: list[str]) -> None:
        """Begin with what happens from now on."""
        self._client = client
        self._streams = {Keys(agent_id).events: (agent_id, "$") for agent_id in agent_ids}

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        """What has happened since the last call, as (agent id, event); waits for the first."""
        after = {stream: last for stream, (_, last) in self._streams.items()}
        with translated():
            # `$` means another thing in each call, so it is replaced by a real position first.
            for stream, last in after.items():
                if last == "$":
                    newest = self._client.xrevrange(stream, count=1)
                    after[stream] = newest[0][0] if newest else "0-0"
                    self._streams[stream] = (self._streams[stream][0], after[stream])
            found = self._client.xread(after, count=200, block=max(1, int(seconds * 1000)))
        events = []
        for stream, entries in found or []:
            agent_id = self._streams[stream][0]
            for entry_id, fields in entries:
                self._streams[stream] = (agent_id, entry_id)
                events.append((agent_id, _event(entry_id, fields)))
        return events


def _event(entry_id: str, fields: dict[str, str]) -> Event:
    data: JsonObject = {key: value for key, value in fields.items() if key != "kind"}
    at = from_ms(float(entry_id.partition("-")[0]))
    return Event(id=entry_id, kind=fields["kind"], at=at, data=data)
