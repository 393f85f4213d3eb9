"""Checks of workers and beats, and of the processes that follow ended work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import combinations

from boyd.health.finding import Finding, error, ok, span, warning
from boyd.health.roster import Roster
from boyd.health.snapshot import HealthSnapshot, seconds_behind, works
from boyd.models.archived import FollowerStatus
from boyd.store.fleet import WorkerInfo
from boyd.store.keys import AGENTS
from boyd.text import queues
from boyd.text.formatting import counted
from boyd.text.version import VERSION

#: Seconds by which archive and traces may be behind.
BEHIND = 60.0


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
    versions = sorted({process.version for process in live})
    if len(versions) > 1:
        text = f"{' and '.join(versions)} run side by side"
        yield warning("versions", text, "finish the upgrade")
    elif versions and versions[0] != VERSION:
        text = f"workers run {versions[0]}, this is {VERSION}"
        yield warning("versions", text, "use the same version everywhere")
    elif versions:
        yield ok("versions", versions[0])


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
        if any(_differ(one.machine, other.machine) for one, other in combinations(there, 2)):
            names = ", ".join(sorted(worker.name for worker in there))
            what = f"several machines have this name, so only one of them is observed: {names}"
            advice = "give each its own BOYD_WORKER__HOST, or another host name, and restart them"
            yield error(f"host {host}", what, advice)


def _differ(one: str | None, other: str | None) -> bool:
    """Tell whether two machines differ in boot or system, as far as both are known."""
    parts = zip((one or "").split("."), (other or "").split("."), strict=False)
    return any(mine and theirs and mine != theirs for mine, theirs in parts)


def check_approval_keys(workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Check that all workers check approvals with the same secret or key."""
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


def check_intakes(roster: Roster) -> Iterator[Finding]:
    """Check that the libraries are installed here that intakes of agents need."""
    present = [entry for name, entry in roster.agents.items() if not roster.retired(name)]
    intakes = [(entry.id, intake) for entry in present for intake in entry.intakes]
    needs = {
        "jmespath": sorted({agent for agent, intake in intakes if intake.mapping}),
        "cryptography": sorted({agent for agent, intake in intakes if intake.auth.method == "sns"}),
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


def check_archive(health: HealthSnapshot) -> Finding:
    """Check the archive."""
    if health.archive is None:
        return ok("archive", "none runs; history is what Redis keeps")
    return _check_follower(health, health.archive, "archive", "database")


def check_traces(health: HealthSnapshot) -> Iterator[Finding]:
    """Check the export of traces, if it has run within a week."""
    if health.traces is not None:
        yield _check_follower(health, health.traces, "traces", "collector")


def _check_follower(
    health: HealthSnapshot, status: FollowerStatus, name: str, into: str
) -> Finding:
    """Check a process that copies ended work *into* something."""
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
