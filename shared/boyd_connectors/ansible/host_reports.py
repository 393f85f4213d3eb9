"""The reports of a playbook: what happened on each host, read from its events."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from boyd.models import JsonObject
from boyd.text.redaction import clean

#: The most bytes of events that are read, and the most changes and hosts that are told.
MAX_EVENTS, MAX_CHANGES, MAX_HOSTS = 8_000_000, 50, 200

HostState = Literal["unchanged", "changed", "failed", "unreachable", "unfinished"]


@dataclass
class HostReport:
    """The events of a playbook on one host.

    Attributes:
        changes: tasks with their differences.
        left_out: tasks that check mode skips.
        ran: tasks that changed something although only check mode was asked for.
        late: whether it was lost, or a task ran out of time, after others had begun.
        counts: those of Ansible's recap; None: the playbook did not end.
    """

    changes: list[JsonObject] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    error: str = ""
    unreachable: bool = False
    late: bool = False
    facts: JsonObject = field(default_factory=dict)
    counts: Mapping[str, int] | None = None

    @property
    def state(self) -> HostState:
        """The state in which it ended."""
        if self.unreachable:
            return "unreachable"
        if self.counts is None:
            return "failed" if self.error else "unfinished"
        if self.counts.get("failures"):
            return "failed"
        return "changed" if self.counts.get("changed") or self.changes else "unchanged"

    def details(self) -> JsonObject:
        """All but its state and facts."""
        told: dict[str, Any] = {}
        if self.changes:
            told["changes"] = list(self.changes[:MAX_CHANGES])
        if len(self.changes) > MAX_CHANGES:
            told["moreChanges"] = len(self.changes) - MAX_CHANGES
        for name, tasks in (("notPreviewed", self.left_out), ("ranInCheckMode", self.ran)):
            if tasks:
                told[name] = list(dict.fromkeys(tasks))[:MAX_CHANGES]
        if self.error and self.state != "unchanged":
            told["error"] = self.error
        return told


@dataclass
class PlaybookReport:
    """The reports of all hosts, by name; `ended`: the playbook came to its end."""

    hosts: dict[str, HostReport]
    ended: bool

    def names(self, *states: HostState) -> list[str]:
        """The hosts in one of *states*."""
        return sorted(name for name, one in self.hosts.items() if one.state in states)

    def output(self) -> JsonObject:
        """The states of all hosts, and what happened on those of which there is more to tell.

        Hosts on which the same happened are told together.
        """
        states: dict[str, list[str]] = defaultdict(list)
        alike: dict[str, list[str]] = defaultdict(list)
        for name, one in sorted(self.hosts.items())[:MAX_HOSTS]:
            states[one.state].append(name)
            if details := one.details():
                alike[json.dumps(details, sort_keys=True)].append(name)
        told: dict[str, Any] = {"hosts": dict(states)}
        if len(self.hosts) > MAX_HOSTS:
            told["moreHosts"] = len(self.hosts) - MAX_HOSTS
        told["details"] = [{"hosts": names, **json.loads(one)} for one, names in alike.items()]
        return told


def read_events(path: Path) -> PlaybookReport:
    """The report that the callback's events make; lines that were cut are left out."""
    hosts: dict[str, HostReport] = defaultdict(HostReport)
    ended = False
    for event in _events(path):
        kind = event.get("event")
        if kind == "ended":
            ended = True
            for name, counts in event["hosts"].items():
                hosts[name].counts = counts
        else:
            _note(hosts[event["host"]], kind, event)
    return PlaybookReport(dict(hosts), ended)


def _note(host: HostReport, kind: str | None, event: Mapping[str, Any]) -> None:
    task = clean(event.get("task", ""))
    if kind == "changed":
        diff = clean(event["diff"])
        host.changes.append({"task": task, "diff": diff} if diff else {"task": task})
    elif kind == "left out":
        host.left_out.append(task)
    elif kind == "ran":
        host.ran.append(task)
    elif kind == "facts":
        host.facts = event["facts"]
    elif kind in ("failed", "unreachable"):
        host.error = clean(f"{task}: {event['error']}")
        host.unreachable = kind == "unreachable"
        host.late = host.late or event["late"]


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines.read(MAX_EVENTS).splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # it was killed while it wrote
                continue
