"""Checks of the Redis servers and brokers, of workers and beats, and of archive and traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import combinations

from packaging.version import InvalidVersion, Version

from boyd.health.finding import Finding, error, ok, span, warning
from boyd.health.server_health import MasterHealth, ServerHealth
from boyd.health.snapshot import HealthSnapshot, Roster, seconds_behind, works
from boyd.models import from_ms
from boyd.models.loop import FollowerStatus
from boyd.store.fleet import WorkerInfo
from boyd.store.keys import AGENTS, SHARED_TYPES
from boyd.store.server.server_release import OLDEST
from boyd.text import queues
from boyd.text.formatting import counted
from boyd.text.version import VERSION

#: Seconds by which archive and traces may be behind.
BEHIND = 60.0
#: Processes of a version that are named.
_NAMED = 3


def check_processes(roster: Roster) -> Iterator[Finding]:
    """Check that workers live and agree, and that no process is silent or unreadable."""
    workers = roster.live("worker")
    if workers:
        hosts = ", ".join(sorted({worker.host for worker in workers}))
        yield ok("workers", f"{counted(len(workers), 'worker')} alive on {hosts}")
    else:
        advice = "start one with `boyd worker --agent FILE` or `boyd up`"
        yield error("workers", "none is alive", advice)
    yield from _check_versions(roster.live())
    yield from _check_brokers(roster.live())
    yield from _check_host_names(workers)
    yield from _check_host_clocks(roster.live())
    for process in roster.live():
        if process.problem:
            yield warning(_label(process), process.problem, "check its log")
    for process in roster.silent():
        advice = "it was killed, hangs, or cannot reach Redis: check its log and restart it"
        yield warning(_label(process), f"no heartbeat for {span(roster.age(process))}", advice)
    for name in roster.unreadable:
        advice = "it may run a newer version: use the same one everywhere"
        yield warning(name, "its record cannot be read", advice)
    if not roster.agents and AGENTS not in roster.foreign:
        advice = "start one with `boyd up` or `boyd worker --agent FILE`"
        yield warning("agents", "none has been started yet", advice)


def _check_versions(live: Iterable[WorkerInfo]) -> Iterator[Finding]:
    by_version = processes_by_version(live)
    versions = list(by_version)
    if len(versions) > 1:
        texts = (f"{version} ({_names(group)})" for version, group in by_version.items())
        text = f"{' and '.join(texts)} run side by side"
        yield warning("versions", text, "finish the upgrade: `boyd upgrade --check` says how")
    elif versions and versions[0] != VERSION:
        text = f"workers run {versions[0]}, this is {VERSION}"
        yield warning("versions", text, "use the same version everywhere")
    elif versions:
        yield ok("versions", versions[0])


def processes_by_version(live: Iterable[WorkerInfo]) -> dict[str, list[WorkerInfo]]:
    """The live processes of each version of Boyd, the oldest version first."""
    by_version: dict[str, list[WorkerInfo]] = {}
    for process in live:
        by_version.setdefault(process.version, []).append(process)
    return {version: by_version[version] for version in sorted(by_version, key=order)}


def order(version: str) -> tuple[bool, Version]:
    """A key to sort versions by; texts that are not versions come first."""
    try:
        return True, Version(version)
    except InvalidVersion:
        return False, Version("0")


def _names(processes: Sequence[WorkerInfo]) -> str:
    names = [_label(process) for process in processes[:_NAMED]]
    more = len(processes) - len(names)
    return ", ".join(names) + (f" and {counted(more, 'other')}" if more else "")


def _check_brokers(live: Iterable[WorkerInfo]) -> Iterator[Finding]:
    """Check that processes agree on the brokers: others look for messages where none are sent."""
    numbers = sorted({process.brokers for process in live})
    if len(numbers) > 1:
        text = f"processes spread messages over {' and '.join(map(str, numbers))} brokers"
        yield error("brokers", text, "give all of them the same BOYD_BROKER_URL, and restart them")


def _check_host_names(workers: Iterable[WorkerInfo]) -> Iterator[Finding]:
    """Check that no two machines have one name: a look at their host reaches only one of them."""
    by_host: dict[str, list[WorkerInfo]] = {}
    for worker in workers:
        if queues.of_host(worker.host) in worker.queues:
            by_host.setdefault(worker.host, []).append(worker)
    for host, there in sorted(by_host.items()):
        if any(_differ(a.machine, b.machine) for a, b in combinations(there, 2)):
            names = ", ".join(sorted(worker.name for worker in there))
            problem = f"several machines have this name, so only one of them is observed: {names}"
            advice = "give each its own BOYD_WORKER__HOST, or another host name, and restart them"
            yield error(f"host {host}", problem, advice)


def _differ(first: str | None, second: str | None) -> bool:
    """Compare two machines by those of boot and system that are known of both."""
    pairs = zip((first or "").split("."), (second or "").split("."), strict=False)
    return any(left and right and left != right for left, right in pairs)


def _check_host_clocks(live: Iterable[WorkerInfo]) -> Iterator[Finding]:
    """Check that hosts agree with Redis on the time: logs and certificates follow their host."""
    by_host: dict[str, float] = {}
    for process in live:
        by_host[process.host] = max(process.clock_skew, by_host.get(process.host, 0.0), key=abs)
    for host, skew in sorted(by_host.items()):
        if abs(skew) > SKEW:
            yield _skew_warning(f"clock of {host}", skew, "it")


def check_approval_keys(workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Check that all workers check approvals with the same secret or key."""
    keys = sorted({worker.approval_key or "none" for worker in workers})
    advice = "set the same approval_secret, or pair of keys, for all workers and the API"
    if keys == ["none"]:
        problem = "they are not signed: whoever can write to Redis can approve"
        yield warning("approvals", problem, advice)
    elif len(keys) > 1:
        problem = f"workers check them with different secrets or keys: {' and '.join(keys)}"
        yield error("approvals", problem, advice)
    elif keys:
        yield ok("approvals", f"signed, secret or key {keys[0]}")


def check_intakes(roster: Roster) -> Iterator[Finding]:
    """Check that the libraries are installed here that intakes of agents need."""
    present = [entry for name, entry in roster.agents.items() if not roster.is_retired(name)]
    intakes = [(entry.id, intake) for entry in present for intake in entry.intakes]
    needs = {
        "jmespath": sorted({agent for agent, intake in intakes if intake.mapping}),
        "cryptography": sorted({agent for agent, intake in intakes if intake.auth.method == "sns"}),
    }
    for library, agents in needs.items():
        if agents and find_spec(library) is None:
            problem = f"those of {', '.join(agents)} need {library}, which is not installed here"
            advice = (
                "run `pip install 'boyd[intakes]'` where the API runs; until then it answers 503"
            )
            yield warning("intakes", problem, advice)


def _label(process: WorkerInfo) -> str:
    return f"{process.role} {process.name}"


def check_archive(health: HealthSnapshot) -> Finding:
    """Check the archive."""
    if "archive" in health.unread:
        return _unread("archive")
    if health.archive is None:
        return ok("archive", "none runs; history is what Redis keeps")
    return _check_follower(health, health.archive, "archive", "database")


def check_traces(health: HealthSnapshot) -> Iterator[Finding]:
    """Check the export of traces, if it has run within a week."""
    if "traces" in health.unread:
        yield _unread("traces")
    elif health.traces is not None:
        yield _check_follower(health, health.traces, "traces", "collector")


def _unread(name: str) -> Finding:
    advice = "allow GET of its key for this user, and use the same version everywhere"
    return warning(name, "its announcement cannot be read", advice)


def _check_follower(
    health: HealthSnapshot, status: FollowerStatus, name: str, into: str
) -> Finding:
    """Check a process that copies ended work *into* something."""
    if not works(status, health.roster.now):
        reassurance = "nothing is lost while Redis keeps its last iterations"
        if status.is_silent_at(from_ms(health.roster.now * 1000)):
            advice = f"start `boyd {name}` again, or check its log; {reassurance}"
            return error(name, "silent", advice).patched({"since": status.at})
        down = error(name, "down", f"check its {into}; {reassurance}")
        return down.patched({"since": status.down_since, "detail": status.error or ""})
    behind = seconds_behind(status, health.roster.now)
    if behind is None:
        return ok(name, "starts")
    advice = f"check its log and its {into}"
    finding = warning(name, "behind", advice) if behind > BEHIND else ok(name, "behind")
    return finding.patched({"since": status.copied_at})


#: The largest accepted difference of clocks, in seconds.
SKEW = 1.0
#: Seconds after which a server of a cluster may count as down: not before Boyd waits no longer for
#: it, and soon enough that its agents go on within ten seconds.
LEAST, MOST = 2.0, 4.0
#: Used fractions of Redis' memory and connections for a warning and for an error.
_FULL, ALMOST_FULL = 0.8, 0.95
_NOT_ALLOWED = "permission denied"


def check_redis(health: HealthSnapshot) -> Iterator[Finding]:
    """Check Redis, its clock and the brokers."""
    server = health.server
    if server is None:
        yield warning("redis settings", _NOT_ALLOWED, "allow INFO for this user (ACL +info)")
    elif health.cluster:
        yield from _check_cluster(health)
    else:
        yield from _check_server(server, health.roster.now)
    yield _check_clock(health.skew)
    for key in health.roster.foreign:
        advice = "another program has overwritten it: delete it, or restore it from a backup"
        yield error(key, f"it holds something else than a {SHARED_TYPES[key]}", advice)
    if health.broker_error is not None:
        yield error("broker", health.broker_error, "start it, or correct BOYD_BROKER_URL")


def _check_server(server: ServerHealth, now: float) -> Iterator[Finding]:
    yield _check_version(server)
    if server.role == "master":
        yield ok("role", "master")
    else:
        yield error("role", server.role, "use the master: a replica does not accept writes")
    yield _check_persistence(server)
    yield _check_snapshots(server, now)
    yield _check_eviction(server)
    yield _check_memory(server)
    yield _check_connections(server)


def _check_cluster(health: HealthSnapshot) -> Iterator[Finding]:
    """The masters, first together, then what is wrong with one of them."""
    masters = health.cluster
    unserved = max(master.unserved for master in masters)
    if unserved:
        advice = "start the missing master, or let a replica take its place"
        yield error("cluster", f"{counted(unserved, 'slot')} of 16384 without a server", advice)
    else:
        yield ok("cluster", f"{counted(len(masters), 'master')} serve all slots")
    for master in masters:
        for finding in _check_master(master, health.roster.now):
            if finding.level != "ok":
                yield finding.patched({"what": f"{master.name}: {finding.what}"})
            elif master is masters[0]:
                yield finding
    for agent in health.unreached:
        problem = "the server with its state does not answer"
        yield error(f"agent {agent}", problem, "start it, or let a replica take its place")


def _check_master(master: MasterHealth, now: float) -> Iterator[Finding]:
    if master.server is None:
        yield error("cluster", "does not answer", "start it, or let a replica take its place")
        return
    if not master.replicas:
        yield warning("replicas", "no replica: its agents stop when it fails", "add one")
    if master.full_coverage:
        advice = "set cluster-require-full-coverage no"
        yield warning("coverage", "stops when another master is away", advice)
    if master.node_timeout is not None and not LEAST <= master.node_timeout <= MOST:
        problem = f"others count as down after {span(master.node_timeout)}"
        advice = f"set cluster-node-timeout between {LEAST * 1000:.0f} and {MOST * 1000:.0f}"
        yield warning("failover", problem, advice)
    yield from _check_server(master.server, now)


def _check_version(server: ServerHealth) -> Finding:
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


def _check_persistence(server: ServerHealth) -> Finding:
    subject, advice = "persistence", "set appendonly yes"
    if server.aof and not server.aof_ok:
        return error(subject, "the append-only file cannot be written", "check for a full disk")
    if server.aof:
        return ok(subject, "append-only file")
    if server.rdb is None:
        problem = "no append-only file; no permission to check for snapshots"
        return warning(subject, problem, advice)
    if not server.rdb:
        problem = "nothing is written to disk: a Redis restart loses all state"
        return warning(subject, problem, f"{advice}; completed work may run again")
    worst = max(seconds for seconds, _ in server.rdb)
    problem = f"snapshots only: a crash may lose up to the last {span(worst)}"
    return warning(subject, problem, advice)


def _check_snapshots(server: ServerHealth, now: float) -> Finding:
    if not server.rdb_ok:
        advice = "check its log and the disk: it may refuse writes"
        return error("snapshots", "the last snapshot failed", advice)
    if server.rdb and server.unsaved:
        age, changes = span(max(0.0, now - server.saved_at)), counted(server.unsaved, "change")
        return ok("snapshots", f"the last one was {age} ago, {changes} since")
    return ok("snapshots", "no failure")


def _check_eviction(server: ServerHealth) -> Finding:
    advice = "set maxmemory-policy noeviction to prevent data loss"
    if server.policy is None:
        return warning("eviction", _NOT_ALLOWED, "make sure that maxmemory-policy is noeviction")
    if server.policy == "noeviction":
        return ok("eviction", server.policy)
    if server.limit:
        problem = f"{server.policy}: Redis evicts keys when its memory is full"
        return error("eviction", problem, advice)
    return warning("eviction", f"{server.policy}, no memory limit yet", advice)


def _check_memory(server: ServerHealth) -> Finding:
    if not server.limit:
        return ok("memory", f"{_megabytes(server.used)} used, no limit")
    text = f"{_megabytes(server.used)} of {_megabytes(server.limit)} used"
    if server.used >= ALMOST_FULL * server.limit:
        advice = "raise maxmemory: at the limit Redis refuses writes and all work stops"
        return error("memory", text, advice)
    if server.used >= _FULL * server.limit:
        return warning("memory", text, "raise maxmemory, or keep less history")
    return ok("memory", text)


def _check_connections(server: ServerHealth) -> Finding:
    if not server.most_clients:
        return ok("connections", f"{server.clients}, limit unknown")
    text = f"{server.clients} of {server.most_clients} used"
    advice = "raise maxclients of Redis: at the limit no process can connect"
    if server.clients >= ALMOST_FULL * server.most_clients:
        return error("connections", text, advice)
    if server.clients >= _FULL * server.most_clients:
        return warning("connections", text, advice)
    return ok("connections", text)


def _megabytes(size: float) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _check_clock(skew: float) -> Finding:
    if abs(skew) <= SKEW:
        return ok("clock", "this host and Redis agree")
    return _skew_warning("clock", skew, "this host")


def _skew_warning(subject: str, skew: float, host: str) -> Finding:
    where = "ahead of" if skew > 0 else "behind"
    text = f"Redis is {span(abs(skew))} {where} {host}"
    return warning(subject, text, "synchronise the clocks (NTP)")
