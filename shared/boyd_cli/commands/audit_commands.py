"""`boyd audit show|verify|export`: the audit trails, over the API or from Redis."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from boyd.models import AuditEntry, AuditFilter, AuditHead, AuditPage, Verification
from boyd.models.responses import AgentList
from boyd.text.formatting import counted, visible
from boyd_cli import output
from boyd_cli.api_access import CommandAccess, choose_agent, note_missing, open_store
from boyd_cli.options import (
    Whole,
    access_options,
    agent_option,
    lines_option,
    output_option,
    period_options,
)

if TYPE_CHECKING:
    from boyd.store import Audit
    from boyd_cli.client import Client

#: The largest page.
_PAGE = 500


@dataclass(frozen=True)
class AuditQuery:
    """A filter and a period for entries of a trail."""

    filter: AuditFilter = field(default_factory=AuditFilter)
    since: datetime | None = None
    until: datetime | None = None

    def query(self) -> dict[str, object]:
        """The query parameters for the API."""
        filters = {name: getattr(self.filter, name) for name in AuditFilter.model_fields}
        return {**filters, "since": self.since, "until": self.until}


class Trail(ABC):
    """One chain of entries."""

    def newest(self, limit: int, query: AuditQuery) -> list[AuditEntry]:
        """Read the last entries page by page, and return them oldest first."""
        entries: list[AuditEntry] = []
        cursor: str | None = None
        while len(entries) < limit:
            read = self.page(min(_PAGE, limit - len(entries)), cursor, query)
            if read.missing:
                note_missing(read.missing)
            entries += read.entries
            cursor = read.next_cursor
            if cursor is None:
                break
        return entries[::-1]

    @abstractmethod
    def page(self, limit: int, cursor: str | None, query: AuditQuery) -> AuditPage:
        """Read a page of entries, newest first."""

    @abstractmethod
    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """Wait at most *seconds* for entries after *seq*."""

    @abstractmethod
    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """Check the chain; only a trail on Redis can begin at a head."""

    @abstractmethod
    def export(self, query: AuditQuery) -> Iterator[str]:
        """Read the entries as lines of JSON, oldest first."""


class _DirectTrail(Trail):
    """A trail on Redis; seals entries that nobody else has sealed."""

    def __init__(self, chain: Audit) -> None:
        self._chain = chain

    def page(self, limit: int, cursor: str | None, query: AuditQuery) -> AuditPage:
        if cursor is None:
            self._chain.seal()
        return self._chain.page(limit, cursor, query.since, query.until, query.filter)

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        self._chain.seal()
        return self._chain.wait(seq, seconds)

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        self._chain.seal()
        return self._chain.verify(expect, begin)

    def export(self, query: AuditQuery) -> Iterator[str]:
        self._chain.seal()
        return self._chain.export(query.since, query.until, query.filter)


class RemoteTrail(Trail):
    """A trail over the API."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def page(self, limit: int, cursor: str | None, query: AuditQuery) -> AuditPage:
        """See `Trail`."""
        params = query.query()
        return self._client.get(self._path, AuditPage, **params, limit=limit, cursor=cursor)

    def after(self, seq: int, seconds: float) -> list[AuditEntry]:
        """See `Trail`; the API is asked after *seconds*, for one page after the other."""
        time.sleep(seconds)
        page = self.page(_PAGE, None, AuditQuery())
        newer = list(page.entries)
        while page.next_cursor and newer and newer[-1].seq > seq + 1:
            page = self.page(_PAGE, page.next_cursor, AuditQuery())
            newer += page.entries
        return [entry for entry in reversed(newer) if entry.seq > seq]

    def verify(self, expect: AuditHead | None, begin: AuditHead | None) -> Verification:
        """See `Trail`."""
        assert begin is None, "whoever begins at a head is on Redis"
        return self._client.get(f"{self._path}/verify", Verification, expect=expect)

    def export(self, query: AuditQuery) -> Iterator[str]:
        """See `Trail`."""
        return self._client.lines(f"{self._path}/export", **query.query())


#: Seconds to wait for an entry before sealing unsealed ones.
_BLOCK = 1.0
#: The name of the deployment's chain.
EVERYWHERE = "deployment"

deployment_option = click.option(
    "--deployment", is_flag=True, help="The deployment's trail: keys and deployment-wide freezes."
)


def _head(_ctx: click.Context, _param: click.Parameter, value: str | None) -> AuditHead | None:
    try:
        return AuditHead.parse(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


#: An option for a position in a chain, as `verify` prints it.
head_option = functools.partial(click.option, metavar="SEQ:HASH", callback=_head)


def query_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* the options that select entries, as `query`."""

    @functools.wraps(command)
    def with_query(
        *args: Any, since: datetime | None, until: datetime | None, **options: Any
    ) -> None:
        filters = {name: options.pop(name) for name in AuditFilter.model_fields}
        command(*args, query=AuditQuery(AuditFilter(**filters), since, until), **options)

    for name, help_ in (
        ("--worker", "Only executions by this worker."),
        ("--host", "Only executions on this host."),
        ("--action", "Only entries about this action."),
        ("--kind", "Only this kind, as in action.started; `action` matches all of its kinds."),
        ("--by", "Only changes made by this principal or on its behalf."),
    ):
        with_query = click.option(name, help=help_)(with_query)
    decorated: Callable[..., None] = period_options(with_query)
    return decorated


@click.group()
def audit() -> None:
    """Show, verify and export the audit trails."""


@audit.command()
@agent_option
@deployment_option
@click.option("--limit", type=Whole(1, 1000), default=20, show_default=True)
@click.option("--follow", is_flag=True, help="Keep following until Ctrl-C.")
@lines_option
@access_options
@query_options
def show(
    access: CommandAccess,
    agent: str | None,
    deployment: bool,
    query: AuditQuery,
    limit: int,
    follow: bool,
    form: str,
) -> None:
    """Show the last changes, newest last."""
    _, trail = _trail(access, agent, deployment)
    # First, so that nothing is missed between the two.
    last_seq = max((last.seq for last in trail.newest(1, AuditQuery())), default=0) if follow else 0
    entries = trail.newest(limit, query)
    if not entries and not follow and form == "table":
        nothing = query == AuditQuery()
        output.say("No changes recorded yet." if nothing else "No matching entries.")
    _print(entries, form)
    if not follow:
        return
    last_seq = max([last_seq, *(entry.seq for entry in entries)])
    try:
        while True:
            entries = trail.after(last_seq, _BLOCK)
            _print([entry for entry in entries if query.filter.fits(entry)], form)
            last_seq = entries[-1].seq if entries else last_seq
    except KeyboardInterrupt:
        return


def _print(entries: list[AuditEntry], form: str) -> None:
    for entry in entries:
        if not output.print_item(form, entry):
            output.say(_line(entry))


def _line(entry: AuditEntry) -> str:
    """A change as one line: when, who, what, from and to, reason."""
    claims = f" for {entry.claims}" if entry.claims else ""
    address = f" from {entry.address}" if entry.address else ""
    principal = f"{entry.name} ({entry.who})" if entry.name else entry.who or "boyd"
    who = f"{principal}{claims}{address}"
    details = " ".join(f"{name}={value}" for name, value in entry.what.items())
    change = f"{entry.before or ''} → {entry.after}".strip() if entry.after else ""
    parts = [output.date(entry.at), f"#{entry.seq}", who, entry.kind, details, change]
    line = "  ".join(output.one_line(part) for part in parts if part)
    return f"{line}: {output.one_line(entry.note)}" if entry.note else line


@audit.command()
@agent_option
@deployment_option
@click.option("--all", "everything", is_flag=True, help="All agents and the deployment.")
@head_option("--expect", help="A head noted earlier; it must still be in the chain.")
@head_option("--from", "begin", help="A trusted head; only later entries are checked.")
@output_option
@access_options
def verify(
    access: CommandAccess,
    agent: str | None,
    deployment: bool,
    everything: bool,
    expect: AuditHead | None,
    begin: AuditHead | None,
    form: str,
) -> None:
    """Check that no entry was changed, removed, added or moved.

    Exit status 1 names the first entry that fails. Note the printed head elsewhere and pass it to
    --expect later: this detects a truncated or replaced chain.
    """
    if everything and (agent or deployment or expect or begin):
        raise click.UsageError(
            "--all cannot be combined with --agent, --deployment, --expect or --from"
        )
    if everything:
        trails = _all_trails(access)
    else:
        trails = dict([_trail(access, agent, deployment, directly=begin is not None)])
    results = {name: trail.verify(expect, begin) for name, trail in trails.items()}
    if not output.print_data(form, results):
        for name, result in results.items():
            _say(name, result)
    output.fail_if(not all(result.ok for result in results.values()))


def _say(name: str, result: Verification) -> None:
    waiting = f", {result.waiting} not sealed yet" if result.waiting else ""
    trimmed = f" (up to {result.trimmed.seq}: trimmed)" if result.trimmed else ""
    if result.misfit:
        misfit = result.misfit
        at = f" ({misfit.id})" if misfit.id else ""
        text = f"entry {misfit.seq}{at} fails verification: {misfit.why}: {misfit.detail}"
        output.say(f"fail  {name}  {output.one_line(text)}{waiting}")
        return
    head = f", head {result.head}" if result.head else ""
    fit = counted(result.checked, "valid entry", "valid entries")
    output.say(f"ok    {name}  {fit}{trimmed}{head}{waiting}")


@audit.command()
@agent_option
@deployment_option
@access_options
@query_options
def export(access: CommandAccess, agent: str | None, deployment: bool, query: AuditQuery) -> None:
    """Print the entries as lines of JSON, oldest first."""
    _, trail = _trail(access, agent, deployment)
    for line in trail.export(query):
        output.say(visible(line))


def _all_trails(access: CommandAccess) -> dict[str, Trail]:
    """The chains of the deployment and of all agents, also retired ones."""
    api = access.api()
    if api is not None:
        client = api.deployment
        agents = client.get("/agents", AgentList, retired="true").agents
        remote: dict[str, Trail] = {EVERYWHERE: RemoteTrail(client, "/deployment/audit")}
        return remote | {entry.id: RemoteTrail(client.of(entry.id), "/audit") for entry in agents}
    store = open_store(access.settings)
    direct: dict[str, Trail] = {EVERYWHERE: _DirectTrail(store.audit_trail)}
    return direct | {
        name: _DirectTrail(store.agent(name).audit_trail) for name in store.fleet.agents()
    }


def _trail(
    access: CommandAccess, agent: str | None, deployment: bool, *, directly: bool = False
) -> tuple[str, Trail]:
    """Open a chain and return its name: over the API, or from Redis if necessary."""
    if agent and deployment:
        raise click.UsageError("give either --agent or --deployment, not both")
    api = None if directly else access.api(agent)
    if api is not None and deployment:
        return EVERYWHERE, RemoteTrail(api.deployment, "/deployment/audit")
    if api is not None:
        return api.agent_id, RemoteTrail(api.agent, "/audit")
    store = open_store(access.settings)
    if deployment:
        return EVERYWHERE, _DirectTrail(store.audit_trail)
    entry, agent_store = choose_agent(store, access.settings, agent)
    return entry.id, _DirectTrail(agent_store.audit_trail)
