"""Conclusions from a run: what a preview shows, and whether a playbook had its effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from boyd.models import EffectVerdict, JsonObject
from boyd_connectors.ansible.host_reports import PlaybookReport
from boyd_connectors.ansible.playbook_run import CompletedRun

#: The names of hosts that are told in a line.
SHOWN = 20


def previewed(run: CompletedRun) -> JsonObject:
    """The changes that check mode reports, and what it cannot know, by host."""
    report = run.report
    states: dict[str, list[str]] = {}
    for name, one in sorted(report.hosts.items()):
        state = {"changed": "would change", "unchanged": "would not change"}.get(one.state)
        if state is None or run.trouble:
            state = "unreachable" if one.unreachable else "check mode failed"
        elif one.left_out and not one.changes:
            state = "cannot know"
        states.setdefault(state, []).append(name)
    told: dict[str, Any] = {"hosts": states, "details": report.output()["details"]}
    if any(one.left_out for one in report.hosts.values()):
        told["note"] = "check mode cannot know what the tasks in notPreviewed do"
    if run.trouble:
        told["error"] = run.trouble
    return told


def checked_by(playbook: str, run: CompletedRun) -> EffectVerdict:
    """Effective if the *playbook* that checks it has succeeded on all hosts."""
    report = run.report
    if run.trouble or not report.hosts or report.names("unreachable", "unfinished"):
        return _undecided(run)
    if report.names("failed"):
        says = f"{playbook}: {'; '.join(troubled(report))}"
        return EffectVerdict(verdict="no effect", evidence=says, final=False)
    says = f"{playbook} succeeded on {listed(sorted(report.hosts))}"
    return EffectVerdict(verdict="effective", evidence=says)


def unchanged(run: CompletedRun) -> EffectVerdict:
    """Effective if check mode would change nothing, and knows.

    A task that would change something without showing a difference, such as a restart, may always
    say so.
    """
    report = run.report
    if run.trouble or not report.hosts or report.names("failed", "unreachable", "unfinished"):
        return _undecided(run)
    hosts = report.hosts.items()
    differ = [name for name, one in hosts if any("diff" in change for change in one.changes)]
    if differ:
        says = f"check mode still shows differences on {listed(sorted(differ))}"
        return EffectVerdict(verdict="no effect", evidence=says, final=False)
    again = [name for name, one in hosts if one.changes or one.left_out or one.ran]
    if again:
        says = f"check mode cannot know for {listed(sorted(again))}; give the playbook a `verify`"
        return EffectVerdict(verdict="cannot tell", evidence=says)
    says = f"check mode would change nothing on {listed(report.names('unchanged'))}"
    return EffectVerdict(verdict="effective", evidence=says)


def _undecided(run: CompletedRun) -> EffectVerdict:
    says = "; ".join(filter(None, [run.trouble, *troubled(run.report)]))
    return EffectVerdict(verdict="cannot tell", evidence=says or "it matched no host", final=False)


def troubled(report: PlaybookReport) -> Iterator[str]:
    """The hosts in trouble, each with its reason."""
    for name in report.names("failed", "unreachable", "unfinished")[:SHOWN]:
        one = report.hosts[name]
        yield f"{name} {one.state}{': ' if one.error else ''}{one.error[:200]}"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
