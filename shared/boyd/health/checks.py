"""Checks of a deployment: problems and remedies, from a health snapshot.

`boyd doctor` prints the findings, `/metrics` counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import combinations
from typing import Literal

from boyd.health.agent_health import AgentHealth
from boyd.health.roster import Roster
from boyd.health.server_health import MasterHealth, ServerHealth
from boyd.health.snapshot import HealthSnapshot, seconds_behind, works
from boyd.models import Model
from boyd.models.archived import FollowerStatus
from boyd.settings.model import PARSE_CALLS
from boyd.settings.process_settings import Settings
from boyd.settings.schedules import Schedule
from boyd.store.fleet import WorkerInfo
from boyd.store.server.connection import Client, connect
from boyd.store.server.scripts import FORMAT
from boyd.store.server.server_release import OLDEST
from boyd.text import queues
from boyd.text.formatting import counted
from boyd.text.version import VERSION

Level = Literal["ok", "warning", "error"]
#: The components that need each queue, by agent and the queue's short name.
Needs = Mapping[str, Mapping[str, list[str]]]

#: The largest accepted difference of clocks, in seconds.
SKEW = 1.0
#: Slots without a tick after which a beat has stalled, and the least seconds of them.
STILL, STILL_AT_LEAST = 2.5, 5.0
#: Seconds by which a start by the schedule may be late.
SCHEDULE_LATE = 60.0
#: Seconds that a step may wait for a worker, or be past its deadline.
LATE = 10.0
#: The longest usual phase, in seconds.
LONG = 600.0
#: Seconds after its deadline within which an approval should expire.
OVERDUE = 60.0
#: Intervals without a new iteration after which an agent is blind, and the least seconds.
BLIND, BLIND_AT_LEAST = 5.0, 60.0
#: Seconds for which lost events are reported.
LOST_EVENTS = 3600.0
#: Seconds for which tool calls in plain text are reported.
TEXT_CALLS = 86400.0
#: Seconds by which archive and traces may be behind.
BEHIND = 60.0
#: Seconds after which a server of a cluster may count as down: not before Boyd waits no longer for
#: it, and soon enough that its agents go on within ten seconds.
LEAST, MOST = 2.0, 4.0
#: Used fractions of Redis' memory and connections for a warning and for an error.
_FULL, _ALMOST_FULL = 0.8, 0.95
_NOT_ALLOWED = "permission denied"


class Finding(Model):
    """The result of one check.

    Attributes:
        level: `error`: something does not work or state gets lost; `warning`: it may.
        subject: the part that was checked.
        what: the result.
        what_to_do: the remedy; empty if none is needed.
    """

    level: Level
    subject: str
    what: str
    what_to_do: str = ""


def ok(subject: str, what: str) -> Finding:
    """A check that passed."""
    return Finding(level="ok", subject=subject, what=what)


def warning(subject: str, what: str, what_to_do: str) -> Finding:
    """A possible problem."""
    return Finding(level="warning", subject=subject, what=what, what_to_do=what_to_do)


def error(subject: str, what: str, what_to_do: str) -> Finding:
    """A problem."""
    return Finding(level="error", subject=subject, what=what, what_to_do=what_to_do)


def examine(health: HealthSnapshot, needs: Needs | None = None) -> list[Finding]:
    """Run all checks; *needs* has the queues that plugins name, of agents with known files."""
    needs = needs or {}
    return [
        *_redis(health),
        *_processes(health.roster),
        *_approval_keys(health.roster.live("worker")),
        *_intakes(health.roster),
        archive_state(health),
        *_traces(health),
        *(f for agent in health.agents for f in _agent(health, agent, needs)),
        *_unknown(health.roster, needs),
        *_paused_or_frozen(health),
    ]


def brokers_of(settings: Settings, timeout: float) -> list[Client]:
    """Clients for the brokers, in order; empty if there is none but the Redis with the state."""
    urls = settings.broker_urls
    if urls == [settings.redis_url]:
        return []
    return [connect(url, timeout=timeout) for url in urls]


# Redis and the broker


def _redis(health: HealthSnapshot) -> Iterator[Finding]:
    server = health.server
    if server is None:
        yield warning("redis settings", _NOT_ALLOWED, "allow INFO for this user (ACL +info)")
    elif health.cluster:
        yield from _cluster(health)
    else:
        yield from _server(server, health.roster.now)
    yield _clock(health.skew)
    if health.broker_error is not None:
        yield error("broker", health.broker_error, "start it, or correct BOYD_BROKER_URL")


def _server(server: ServerHealth, now: float) -> Iterator[Finding]:
    yield _version(server)
    if server.role == "master":
        yield ok("role", "master")
    else:
        yield error("role", server.role, "use the master: a replica does not accept writes")
    yield _persistence(server)
    yield _snapshots(server, now)
    yield _eviction(server)
    yield _memory(server)
    yield _connections(server)


def _cluster(health: HealthSnapshot) -> Iterator[Finding]:
    """The masters, first together, then what is wrong with one of them."""
    masters = health.cluster
    unserved = max(master.unserved for master in masters)
    if unserved:
        advice = "start the missing master, or let a replica take its place"
        yield error("cluster", f"{counted(unserved, 'slot')} of 16384 without a server", advice)
    else:
        yield ok("cluster", f"{counted(len(masters), 'master')} serve all slots")
    for master in masters:
        for finding in _master(master, health.roster.now):
            if finding.level != "ok":
                yield finding.patched({"what": f"{master.name}: {finding.what}"})
            elif master is masters[0]:
                yield finding
    for agent in health.unreached:
        what = "the server with its state does not answer"
        yield error(f"agent {agent}", what, "start it, or let a replica take its place")


def _master(master: MasterHealth, now: float) -> Iterator[Finding]:
    if master.server is None:
        yield error("cluster", "does not answer", "start it, or let a replica take its place")
        return
    if not master.replicas:
        yield warning("replicas", "no replica: its agents stop when it fails", "add one")
    if master.full_coverage:
        advice = "set cluster-require-full-coverage no"
        yield warning("coverage", "stops when another master is away", advice)
    if master.node_timeout is not None and not LEAST <= master.node_timeout <= MOST:
        what = f"others count as down after {span(master.node_timeout)}"
        advice = f"set cluster-node-timeout between {LEAST * 1000:.0f} and {MOST * 1000:.0f}"
        yield warning("failover", what, advice)
    yield from _server(master.server, now)


def _version(server: ServerHealth) -> Finding:
    subject, release = "version", server.release
    if release.too_old:
        oldest = ".".join(map(str, OLDEST))
        return error(subject, str(release), f"Boyd needs Redis {oldest} or later, or Valkey")
    hole = release.hole
    if hole is None:
        return ok(subject, str(release))
    later = f"to {hole.fixed} or later" if hole.fixed else "to a newer release series"
    advice = f"update it {later}, unless your distribution has backported the fix"
    return warning(subject, f"{release} lets clients execute code ({hole.name})", advice)


def _persistence(server: ServerHealth) -> Finding:
    subject, advice = "persistence", "set appendonly yes"
    if server.aof and not server.aof_ok:
        return error(subject, "the append-only file cannot be written", "check for a full disk")
    if server.aof:
        return ok(subject, "append-only file")
    if server.rdb is None:
        what = "no append-only file; no permission to check for snapshots"
        return warning(subject, what, advice)
    if not server.rdb:
        what = "nothing is written to disk: a Redis restart loses all state"
        return warning(subject, what, f"{advice}; completed work may run again")
    worst = max(seconds for seconds, _ in server.rdb)
    what = f"snapshots only: a crash may lose up to the last {span(worst)}"
    return warning(subject, what, advice)


def _snapshots(server: ServerHealth, now: float) -> Finding:
    if not server.rdb_ok:
        advice = "check its log and the disk: it may refuse writes"
        return error("snapshots", "the last snapshot failed", advice)
    if server.rdb and server.unsaved:
        age, changes = span(max(0.0, now - server.saved_at)), counted(server.unsaved, "change")
        return ok("snapshots", f"the last one was {age} ago, {changes} since")
    return ok("snapshots", "no failure")


def _eviction(server: ServerHealth) -> Finding:
    advice = "set maxmemory-policy noeviction to prevent data loss"
    if server.policy is None:
        return warning("eviction", _NOT_ALLOWED, "make sure that maxmemory-policy is noeviction")
    if server.policy == "noeviction":
        return ok("eviction", server.policy)
    if server.limit:
        what = f"{server.policy}: Redis evicts keys when its memory is full"
        return error("eviction", what, advice)
    return warning("eviction", f"{server.policy}, no memory limit yet", advice)


def _memory(server: ServerHealth) -> Finding:
    if not server.limit:
        return ok("memory", f"{_megabytes(server.used)} used, no limit")
    text = f"{_megabytes(server.used)} of {_megabytes(server.limit)} used"
    if server.used >= _ALMOST_FULL * server.limit:
        advice = "raise maxmemory: at the limit Redis refuses writes and all work stops"
        return error("memory", text, advice)
    if server.used >= _FULL * server.limit:
        return warning("memory", text, "raise maxmemory, or keep less history")
    return ok("memory", text)


def _connections(server: ServerHealth) -> Finding:
    if not server.most_clients:
        return ok("connections", f"{server.clients}, limit unknown")
    text = f"{server.clients} of {server.most_clients} used"
    advice = "raise maxclients of Redis: at the limit no process can connect"
    if server.clients >= _ALMOST_FULL * server.most_clients:
        return error("connections", text, advice)
    if server.clients >= _FULL * server.most_clients:
        return warning("connections", text, advice)
    return ok("connections", text)


def _megabytes(size: float) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _clock(skew: float) -> Finding:
    if abs(skew) <= SKEW:
        return ok("clock", "this host and Redis agree")
    where = "ahead of" if skew > 0 else "behind"
    text = f"Redis is {span(abs(skew))} {where} this host"
    return warning("clock", text, "synchronise the clocks (NTP)")


# Workers and beats


def _processes(roster: Roster) -> Iterator[Finding]:
    workers = roster.live("worker")
    if workers:
        hosts = ", ".join(sorted({worker.host for worker in workers}))
        yield ok("workers", f"{counted(len(workers), 'worker')} alive on {hosts}")
    else:
        advice = "start one with `boyd worker --agent FILE` or `boyd up`"
        yield error("workers", "none is alive", advice)
    yield from _versions(roster.live())
    yield from _brokers(roster.live())
    yield from _namesakes(workers)
    for process in roster.live():
        if process.problem:
            yield warning(_label(process), process.problem, "check its log")
    for process in roster.silent():
        advice = "it was killed, hangs, or cannot reach Redis: check its log and restart it"
        yield warning(_label(process), f"no heartbeat for {span(roster.age(process))}", advice)
    for name in roster.unreadable:
        advice = "it may run a newer version: use the same one everywhere"
        yield warning(name, "its record cannot be read", advice)
    if not roster.agents:
        advice = "start one with `boyd up` or `boyd worker --agent FILE`"
        yield warning("agents", "none has been started yet", advice)


def _approval_keys(workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """The secret or key with which workers check approvals."""
    keys = sorted({worker.approval_key or "none" for worker in workers})
    advice = "set the same approval_secret, or pair of keys, for all workers and the API"
    if keys == ["none"]:
        what = "they are not signed: whoever can write to Redis can approve"
        yield warning("approvals", what, advice)
    elif len(keys) > 1:
        what = f"workers check them with different secrets or keys: {' and '.join(keys)}"
        yield error("approvals", what, advice)
    elif keys:
        yield ok("approvals", f"signed, secret or key {keys[0]}")


def _intakes(roster: Roster) -> Iterator[Finding]:
    """Libraries that intakes of agents need, and that are not installed here."""
    present = [entry for name, entry in roster.agents.items() if not roster.retired(name)]
    used = [(entry.id, one) for entry in present for one in entry.intakes]
    needs = {
        "jmespath": sorted({agent for agent, one in used if one.mapping}),
        "cryptography": sorted({agent for agent, one in used if one.auth.method == "sns"}),
    }
    for library, agents in needs.items():
        if agents and find_spec(library) is None:
            what = f"those of {', '.join(agents)} need {library}, which is not installed here"
            advice = (
                "run `pip install 'boyd[intakes]'` where the API runs; until then it answers 503"
            )
            yield warning("intakes", what, advice)


def _label(process: WorkerInfo) -> str:
    return f"{process.role} {process.name}"


def _brokers(live: Iterable[WorkerInfo]) -> Iterator[Finding]:
    """Processes that do not agree on the brokers look for messages where others send none."""
    numbers = sorted({process.brokers for process in live})
    if len(numbers) > 1:
        text = f"processes spread messages over {' and '.join(map(str, numbers))} brokers"
        yield error("brokers", text, "give all of them the same BOYD_BROKER_URL, and restart them")


def _namesakes(workers: Iterable[WorkerInfo]) -> Iterator[Finding]:
    """Machines with one name: each look at their host reaches only one of them."""
    by_host: dict[str, list[WorkerInfo]] = {}
    for worker in workers:
        if queues.of_host(worker.host) in worker.queues:
            by_host.setdefault(worker.host, []).append(worker)
    for host, there in sorted(by_host.items()):
        if any(_differ(one.machine, other.machine) for one, other in combinations(there, 2)):
            names = ", ".join(sorted(worker.name for worker in there))
            what = f"several machines have this name, so only one of them is observed: {names}"
            advice = "give each its own BOYD_WORKER__HOST, or another host name, and restart them"
            yield error(f"host {host}", what, advice)


def _differ(one: str | None, other: str | None) -> bool:
    """Tell whether two machines differ in boot or system, as far as both are known."""
    parts = zip((one or "").split("."), (other or "").split("."), strict=False)
    return any(mine and theirs and mine != theirs for mine, theirs in parts)


def _versions(live: Iterable[WorkerInfo]) -> Iterator[Finding]:
    versions = sorted({process.version for process in live})
    if len(versions) > 1:
        text = f"{' and '.join(versions)} run side by side"
        yield warning("versions", text, "finish the upgrade")
    elif versions and versions[0] != VERSION:
        text = f"workers run {versions[0]}, this is {VERSION}"
        yield warning("versions", text, "use the same version everywhere")
    elif versions:
        yield ok("versions", versions[0])


def archive_state(health: HealthSnapshot) -> Finding:
    """The state of the archive."""
    if health.archive is None:
        return ok("archive", "none runs; history is what Redis keeps")
    return _follower(health, health.archive, "archive", "database")


def _traces(health: HealthSnapshot) -> Iterator[Finding]:
    if health.traces is not None:
        yield _follower(health, health.traces, "traces", "collector")


def _follower(health: HealthSnapshot, status: FollowerStatus, name: str, into: str) -> Finding:
    """The state of a process that copies ended work."""
    behind = seconds_behind(status, health.roster.now)
    if not works(status, health.roster.now):
        kept = "nothing is lost while Redis keeps its last iterations"
        age = span(max(0.0, health.roster.now - (status.down_since or status.at).timestamp()))
        if status.down_since is None:
            advice = f"start `boyd {name}` again, or check its log; {kept}"
            return error(name, f"silent for {age}", advice)
        return error(name, f"down for {age}: {status.error}", f"check its {into}; {kept}")
    if behind is None:
        return ok(name, "starts")
    if behind > BEHIND:
        return warning(name, f"{span(behind)} behind", f"check its log and its {into}")
    return ok(name, f"{span(behind)} behind")


# One agent


def _agent(health: HealthSnapshot, agent: AgentHealth, needs: Needs) -> Iterator[Finding]:
    roster, subject = health.roster, _subject(agent)
    if roster.retired(agent.entry.id):
        why = f"unused for {_unused(roster, agent)}"
        if agent.entry.retired_at is not None:
            why = f"since {agent.entry.retired_at:%Y-%m-%d %H:%M} UTC"
        yield ok(subject, f"retired: {why}")
        return
    live = roster.live("worker", agent.entry.id)
    if not live:
        yield _without_workers(roster, agent)
    own = needs.get(agent.entry.id)
    found = [
        *_fingerprints(roster, agent, roster.live(None, agent.entry.id)),
        *(_no_worker(one) for one in (unserved(health, agent, own) if live else ())),
        *_beat(roster, agent),
        *_flight(roster, agent, bool(live)),
        *_blind(roster, agent),
        *_stored(roster, agent),
        *_text_calls(roster, agent),
        *_approvals(roster, agent),
    ]
    yield from found
    if live and not found:
        yield ok(subject, f"its queues are served by {counted(len(live), 'worker')}")


def _subject(agent: AgentHealth) -> str:
    return f"agent {agent.entry.id}"


def _without_workers(roster: Roster, agent: AgentHealth) -> Finding:
    name = agent.entry.id
    advice = f"start one with `boyd worker --agent FILE`, or `boyd retire --agent {name}`"
    found = "no live worker runs it"
    swept = roster.swept.get(agent.entry.id)
    if swept is not None and roster.now - swept > LATE and not roster.live(None, agent.entry.id):
        found += f"; unused for {_unused(roster, agent)}"
    return warning(_subject(agent), found, advice)


def _unused(roster: Roster, agent: AgentHealth) -> str:
    return span(roster.now - roster.swept[agent.entry.id])


def _fingerprints(
    roster: Roster, agent: AgentHealth, live: Iterable[WorkerInfo]
) -> Iterator[Finding]:
    name = agent.entry.id
    running: dict[str, list[WorkerInfo]] = {}
    for process in sorted(live, key=lambda one: (one.started_at, one.name)):
        if name in process.fingerprints:
            running.setdefault(process.fingerprints[name], []).append(process)
    if len(running) > 1:
        # The last group has the youngest process: in a rolling restart that is the new file.
        groups = sorted(running.values(), key=lambda group: group[-1].started_at)
        texts = "; ".join(_group_text(roster, n, group) for n, group in enumerate(groups, 1))
        what = f"its processes run {len(groups)} different agent files: {texts}"
        advice = (
            "restart the processes with the old file; if none is old, give all the same file,"
            " plugins and options"
        )
        yield warning(_subject(agent), what, advice)


def _group_text(roster: Roster, number: int, group: Sequence[WorkerInfo]) -> str:
    """The processes with the same file: the last one started, and the number of others."""
    last, others = group[-1], len(group) - 1
    more = f" and {counted(others, 'other')}" if others else ""
    started = span(max(0.0, roster.now - last.started_at.timestamp()))
    return f"file {number}: {last.role} {last.name} (started {started} ago){more}"


@dataclass(frozen=True)
class UnservedQueue:
    """A queue that an agent needs, or that holds its work, and that no live worker consumes."""

    agent_id: str
    queue: str
    why: str


def unserved(
    health: HealthSnapshot, agent: AgentHealth, needs: Mapping[str, list[str]] | None = None
) -> Iterator[UnservedQueue]:
    """Required, named or non-empty queues without a worker; *needs* is from the agent file."""
    needed = agent.named_queues  # by the catalogue
    for queue, parts in (needs or {}).items():
        needed[queue] = list(dict.fromkeys([*parts, *needed.get(queue, ())]))
    served = health.roster.served(agent.entry.id)
    wanted = dict.fromkeys((queues.LOOP, queues.OBSERVE, queues.ACT), "")
    if agent.entry.model:
        wanted[queues.THINK] = ", which sends its model requests"
    wanted |= {queue: _need_text(parts) for queue, parts in needed.items()}
    for queue, since in agent.oldest.items():
        waited = span(health.roster.now - since)
        wanted[queue] = f"{wanted.get(queue, '')}; work has been waiting for {waited}"
    for (name, queue), number in (health.messages or {}).items():
        # A lost host leaves its queue behind; its observations time out.
        if name == agent.entry.id and number and not queue.startswith(f"{queues.HOST}."):
            wanted.setdefault(queue, f", which holds {counted(number, 'message')}")
    for queue, why in wanted.items():
        if queue not in served:
            yield UnservedQueue(agent.entry.id, queue, why)


def _unknown(roster: Roster, needs: Needs) -> Iterator[Finding]:
    for name in needs:
        if name in roster.agents:
            continue
        what = "it has never been started against this Redis"
        yield warning(f"agent {name}", what, "start it with `boyd worker --agent FILE`")
        served = roster.served(name)
        for queue, parts in needs[name].items():
            if queue not in served:
                yield _no_worker(UnservedQueue(name, queue, _need_text(parts)))


def _need_text(parts: Iterable[str]) -> str:
    return f", needed by {', '.join(parts)}"


def _no_worker(missing: UnservedQueue) -> Finding:
    what = f"no live worker consumes queue {missing.queue!r}{missing.why}"
    advice = f"start one with `boyd worker --agent FILE -Q {missing.queue}`"
    return error(f"agent {missing.agent_id}", what, advice)


def _beat(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that an agent whose iterations beat starts has a ticking beat."""
    entry = agent.entry
    if not entry.needs_beat:
        return
    beats = roster.live("beat", entry.id)
    if not beats:
        advice = "start one with `boyd beat --agent FILE`: without one no iterations start"
        yield error(_subject(agent), "no live beat runs for it", advice)
        return
    if agent.stops.paused is not None:
        return
    since = max(agent.stops.resumed_at or 0.0, min(beat.started_at.timestamp() for beat in beats))
    silence = roster.now - max(agent.beat.slot or 0.0, since)
    advice = "check the log of beat and restart it"
    if entry.mode == "continuous" and silence > max(STILL * entry.loop_interval, STILL_AT_LEAST):
        every = span(entry.loop_interval)
        what = f"beat has stalled: no tick for {span(silence)}, although one is due every {every}"
        yield error(_subject(agent), what, advice)
    late = datetime.fromtimestamp(roster.now - SCHEDULE_LATE, UTC)
    due = entry.schedule and Schedule(tuple(entry.schedule), entry.timezone).last(late).timestamp()
    if due and due > max(agent.beat.scheduled or 0.0, since):
        what = (
            f"beat has stalled: the start by the schedule {span(roster.now - due)} ago is missing"
        )
        yield error(_subject(agent), what, advice)


def _flight(roster: Roster, agent: AgentHealth, alive: bool) -> Iterator[Finding]:
    """Check that running work makes progress."""
    subject, now = _subject(agent), roster.now
    if agent.progress.deadline is not None and now - agent.progress.deadline > LATE:
        what = f"{_step(agent)} has stalled: no process has handled it for"
        what += f" {span(now - agent.progress.deadline)}"
        yield error(subject, what, "start a worker for it; it resumes where it stopped")
        return
    if agent.progress.flight is not None and agent.progress.flight.is_stuck(now):
        what = f"{_step(agent)} has stalled: no process will pick it up"
        advice = f"check the logs of its workers; `boyd abandon --agent {agent.entry.id}` ends it"
        yield error(subject, what, advice)
        return
    late = [step for step in agent.backlog.waiting if now - step.since > LATE]
    for step in sorted(late, key=lambda step: step.since):
        if alive and step.queue in roster.served(agent.entry.id):
            waited = span(now - step.since)
            what = f"{step.what} has been waiting for {waited} in queue {step.queue!r}"
            advice = "its workers are busy: start another one, or check whether they hang"
            yield warning(subject, what, advice)
            break
    if (
        agent.progress.phase_since is not None
        and now - agent.progress.phase_since > LONG
        and not late
    ):
        where = f" on {agent.progress.worker}" if agent.progress.worker else ""
        what = (
            f"{_step(agent)} has been running for {span(now - agent.progress.phase_since)}{where}"
        )
        advice = "check the log of its worker, unless it is expected to take that long"
        yield warning(subject, what, advice)


def _blind(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that a continuous agent keeps observing."""
    entry = agent.entry
    if (
        entry.mode != "continuous"
        or agent.stops.paused is not None
        or agent.progress.observed is None
    ):
        return
    silence = roster.now - agent.progress.observed
    beats = roster.live("beat", entry.id)
    if beats and silence > max(BLIND * entry.loop_interval, BLIND_AT_LEAST):
        what = f"it has made no observations for {span(silence)}: {_step(agent)}"
        advice = f"check what it is waiting for; `boyd abandon --agent {entry.id}` ends it"
        yield warning(_subject(agent), what, advice)


def _stored(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that Redis accepts the agent's events, and that this release can read its state."""
    if agent.state.events_lost is not None and roster.now - agent.state.events_lost < LOST_EVENTS:
        age = span(max(0.0, roster.now - agent.state.events_lost))
        what = f"an event could not be written {age} ago: {agent.state.events_error}"
        yield warning(_subject(agent), what, "allow XADD for the Redis user")
    if agent.state.format > FORMAT:
        newest = agent.state.format
        what = f"a newer release keeps it in format {newest}; this one reads up to {FORMAT}"
        advice = "upgrade all processes, or keep the newer ones running"
        yield warning(_subject(agent), what, advice)


def _text_calls(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that the model server parses tool calls."""
    at = agent.totals.model.spoken_at
    if at is not None and roster.now - at < TEXT_CALLS:
        age = span(max(0.0, roster.now - at))
        what = f"its model server returned a tool call as plain text {age} ago"
        yield warning(_subject(agent), what, PARSE_CALLS)


def _step(agent: AgentHealth) -> str:
    if agent.progress.phase == "idle":
        return "an approved action, a call or a callback"
    return f"iteration {agent.progress.iterations} in phase {agent.progress.phase}"


def _approvals(roster: Roster, agent: AgentHealth) -> Iterator[Finding]:
    """Check that expired approvals are moved to the history."""
    if agent.backlog.next_deadline is None or roster.now - agent.backlog.next_deadline <= OVERDUE:
        return
    what = f"{counted(agent.backlog.expired, 'approval')} still pending"
    what += f" {span(roster.now - agent.backlog.next_deadline)} after the deadline"
    yield warning(_subject(agent), what, "start a worker or beat for it: both expire approvals")


# What somebody has stopped on purpose, so that nobody looks for it elsewhere


def _paused_or_frozen(health: HealthSnapshot) -> Iterator[Finding]:
    if health.frozen is not None:
        what = f"actions of all agents are frozen: {health.frozen}"
        yield warning("freeze", what, "boyd unfreeze --all")
    for agent in health.agents:
        subject, option = _subject(agent), f"--agent {agent.entry.id}"
        if agent.stops.frozen is not None:
            yield warning(subject, f"frozen: {agent.stops.frozen}", f"boyd unfreeze {option}")
        if agent.stops.revoked is not None:
            yield warning(subject, f"revoked: {agent.stops.revoked}", f"boyd restore {option}")
        if agent.stops.paused is not None:
            yield warning(subject, f"paused: {agent.stops.paused}", f"boyd resume {option}")


def span(seconds: float) -> str:
    """A number of seconds in words, as in `1.5 s`, `12 min` or `3 h`."""
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    for size, batch in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {batch}"
    return f"{seconds:.0f} s"
