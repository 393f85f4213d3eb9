"""Checks of the Redis server, or of the masters of a cluster, and of the brokers."""

from __future__ import annotations

from collections.abc import Iterator

from boyd.health.finding import Finding, error, ok, span, warning
from boyd.health.server_health import MasterHealth, ServerHealth
from boyd.health.snapshot import HealthSnapshot
from boyd.store.keys import SHARED_TYPES
from boyd.store.server.server_release import OLDEST
from boyd.text.formatting import counted

#: The largest accepted difference of clocks, in seconds.
SKEW = 1.0
#: Seconds after which a server of a cluster may count as down: not before Boyd waits no longer for
#: it, and soon enough that its agents go on within ten seconds.
LEAST, MOST = 2.0, 4.0
#: Used fractions of Redis' memory and connections for a warning and for an error.
_FULL, _ALMOST_FULL = 0.8, 0.95
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
        what = "the server with its state does not answer"
        yield error(f"agent {agent}", what, "start it, or let a replica take its place")


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
        what = f"others count as down after {span(master.node_timeout)}"
        advice = f"set cluster-node-timeout between {LEAST * 1000:.0f} and {MOST * 1000:.0f}"
        yield warning("failover", what, advice)
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
        what = "no append-only file; no permission to check for snapshots"
        return warning(subject, what, advice)
    if not server.rdb:
        what = "nothing is written to disk: a Redis restart loses all state"
        return warning(subject, what, f"{advice}; completed work may run again")
    worst = max(seconds for seconds, _ in server.rdb)
    what = f"snapshots only: a crash may lose up to the last {span(worst)}"
    return warning(subject, what, advice)


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
        what = f"{server.policy}: Redis evicts keys when its memory is full"
        return error("eviction", what, advice)
    return warning("eviction", f"{server.policy}, no memory limit yet", advice)


def _check_memory(server: ServerHealth) -> Finding:
    if not server.limit:
        return ok("memory", f"{_megabytes(server.used)} used, no limit")
    text = f"{_megabytes(server.used)} of {_megabytes(server.limit)} used"
    if server.used >= _ALMOST_FULL * server.limit:
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
    if server.clients >= _ALMOST_FULL * server.most_clients:
        return error("connections", text, advice)
    if server.clients >= _FULL * server.most_clients:
        return warning("connections", text, advice)
    return ok("connections", text)


def _megabytes(size: float) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _check_clock(skew: float) -> Finding:
    if abs(skew) <= SKEW:
        return ok("clock", "this host and Redis agree")
    where = "ahead of" if skew > 0 else "behind"
    text = f"Redis is {span(abs(skew))} {where} this host"
    return warning("clock", text, "synchronise the clocks (NTP)")
