"""Recorded deployments with work in every state are upgraded and rolled back while they run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from archive_kit import postgresql, require_postgresql, wait_for_copies
from boyd.store import connect
from boyd.testing.model_server import ScriptedModel
from cli_kit import Cli
from clusters import RedisCluster, every_key
from faults.clocks import Clock, missing, tidy
from faults.world import RedisProcess
from harness import BROKERS, Deployment, wait_until
from releases.record import Site, prepare, reply_at_once
from releases.release_data import FOLDER, Change, Release
from tracing_kit import Sink

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).parents[2]
RELEASES = sorted(path.name for path in FOLDER.glob("*.*.*"))
#: The version of the older code where both run side by side.
OLDER = "0.0.1"
#: What was running when its worker was killed, and must not run again.
CUT_OFF = ("turn:v11", "rinse:v12", "rinse:v8", "vent:venting:1", "renew:f2")
#: What only comes of the work that the recording left.
LEFT = (
    *("turn:v1", "turn:v2", "grease:v6", "flush:v7", "shut:v9", "turn:v13", "rinse:v14"),
    *("vent:looking:1", "vent:choosing:1", "vent:sent:1", "vent:resting:1", "vent:plant:2"),
    *("renew:f4", "unlock:v16:sesame", "turn:n1"),
)
#: What may be done twice: nothing is changed by looking, and greasing is idempotent.
REPEATABLE = ("look:", "choose:", "grease:v10")
#: Commands that read records of each kind, with a text that each one prints.
READS = {
    "status": "plant",
    "history": "vent",
    "approvals list --all": "plant:turn",
    "procedures list": "procedures:service",
    "investigations list": "shut",
    "actions executions": "plant:grease",
    "autonomy list --agent tuner": "plant:tune",
    "goals list --agent scholar": "whale",
    "graph show Whale --agent scholar": "Mammal",
    "runs list --agent resting": "completed",
    "audit verify --all": "plant",
    "keys list": "ann",
    "actions holds --agent holder": "plant:singe",
    "procedures list --agent fleet": "succeeded",
    "ack": "bob",
}
PAGES = ("", "agents/plant", "agents/plant/approvals", "agents/plant/history", "agents/tuner")


@pytest.fixture(autouse=True)
def _past() -> Iterator[None]:
    """Skip where no server can run at the time of a recording."""
    if reason := missing():
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    yield
    tidy()


@contextmanager
def servers(release: Release, folder: Path, masters: int = 0) -> Iterator[str]:
    """The URL of a Redis, or of a cluster, at the time of the recording."""
    clock = Clock(folder / "clock", release.recording["at"] - time.time())
    if masters:
        with RedisCluster(folder, masters, prefix=clock.command) as cluster:
            yield cluster.url
        return
    redis = RedisProcess(folder, clock=clock)
    try:
        yield redis.url
    finally:
        redis.signal(signal.SIGKILL)


@contextmanager
def load_deployment(
    release: Release, folder: Path, url: str, archive: str, change: Change
) -> Iterator[Site]:
    """The recorded deployment, of which no process runs, at the URLs of its servers."""
    with (
        ScriptedModel([reply_at_once], forever=True) as model,
        Sink() as callbacks,
        Sink() as hook,
        Deployment(url, folder) as deployment,
        connect(BROKERS.get(url, url)) as broker,
    ):
        prepare(deployment, release.agents_in(folder, model.url, hook.url))
        deployment.environment["BOYD_ARCHIVE_URL"] = archive
        release.load(deployment.store.client, broker, callbacks.url, change)
        lines = release.recording["effects"]
        deployment.effects_file.write_text("".join(f"{line}\n" for line in lines))
        site = Site(deployment, "", model, release.recording["people"])
        site.notifications = hook.bodies
        yield site


def older_code(release: Release, folder: Path) -> str:
    """The path of packages of the code that process the recording; else of the present code."""
    commit = release.recording["commit"]
    command = ["git", "-C", str(ROOT), "archive", commit, "shared", "worker", "api"]
    process = subprocess.run(command, capture_output=True, check=False)
    if process.returncode:  # a shallow clone
        command[4] = "HEAD"
        process = subprocess.run(command, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(process.stdout)) as archive:
        archive.extractall(folder, filter="data")
    (folder / "shared/boyd/text/version.py").write_text(f'VERSION = "{OLDER}"\n')
    return os.pathsep.join(str(folder / name) for name in ("shared", "worker", "api"))


@contextmanager
def running(deployment: Deployment, path: str) -> Iterator[None]:
    """Start processes with the code at *path* in the body."""
    forks, Deployment.forks = Deployment.forks, False
    deployment.environment["PYTHONPATH"] = path
    yield
    del deployment.environment["PYTHONPATH"]
    Deployment.forks = forks


def answer(site: Site, action: str, valve: str, by: str = "bob", agent: str = "plant") -> None:
    """Approve the action on a valve."""
    [item] = [
        item
        for item in site.send("GET", "/approvals", agent=agent)["pending"]
        if item["actionId"] == action and valve in str(item["params"])
    ]
    site.answer(item["id"], "approve", by=by, agent=agent)


def finish(site: Site) -> None:
    """Do what people have to do until all work has ended."""
    site.deployment.effects_file.with_name("effects.calm").touch()
    site.wait_for("rinse:v14")
    # Until its verdict, an action is in flight, and is not repeated on its target.
    wait_until(lambda: not any(name.startswith("verify:") for name in open_jobs(site.deployment)))
    answer(site, "plant:turn", "v2")
    answer(site, "plant:grease", "v6", by="cid")
    answer(site, "procedures:ask", "v7")
    answer(site, "plant:shut", "v9")
    answer(site, "plant:unlock", "v16")
    wait_until(lambda: site.notifications)
    answer(site, "plant:turn", "n1", agent="pager")
    site.trigger("holder")
    site.send("POST", "/unfreeze", agent="resting")
    site.send("POST", "/resume", agent="resting")
    site.trigger("tuner")
    site.trigger("plant")
    site.trigger("scholar")
    [id] = wait_until(lambda: procedures(site, "stopped"))
    site.send("POST", f"/procedures/{id}/cancel")
    wait_until(lambda: not open_jobs(site.deployment))


def procedures(site: Site, state: str) -> list[str]:
    """The ids of the procedures in a state."""
    items = site.send("GET", "/procedures")["procedures"]
    return [item["id"] for item in items if item["state"] == state]


def open_jobs(deployment: Deployment) -> list[str]:
    """The names of all jobs that have not ended."""
    client = deployment.store.client
    agents = client.hkeys("boyd:{*}:agents")
    return [name for agent in agents for name in client.smembers(f"boyd:{{{agent}}}:jobs")]


def check_effects(site: Site) -> None:
    """Check that nothing was lost, and nothing done twice."""
    counts = Counter(site.deployment.effects())
    twice = [line for line, count in counts.items() if count > 1]

    assert [line for line in twice if not line.startswith(REPEATABLE)] == []
    assert [line for line in (*LEFT, *CUT_OFF) if not counts[line]] == []
    assert sum(line.startswith("tune:loop:") for line in counts) == 1, "the grant is gone"
    assert sum(line.startswith("singe:") for line in counts) == 1, "the hold is gone"
    assert sum(b"Approval needed" in body for body in site.notifications) == 1


def check_reading(site: Site, folder: Path) -> None:
    """Check that records of each kind can be read in each way."""
    key = site.people["ann"]["Authorization"].removeprefix("Bearer ")
    cli = Cli(folder, BOYD_URL=site.url, BOYD_API_KEY=key, BOYD_AGENT="plant")
    missing_texts = {
        line: output for line, text in READS.items() if text not in (output := cli(*line.split()))
    }
    assert missing_texts == {}


def check_logs(site: Site) -> None:
    """Check that no process had an error."""
    for name in site.deployment.processes:
        log = site.deployment.log(name)
        assert "Traceback" not in log, log
        assert "passed over" not in log, log


@contextmanager
def serve_archive(release: Release, folder: Path, on_server: bool) -> Iterator[str]:
    """The URL of the recorded archive, in PostgreSQL or in an SQLite file."""
    if not on_server:
        yield release.load_sqlite(folder / "archive.db")
        return
    with postgresql(require_postgresql()) as server:
        yield release.load_postgresql(server.url)


@pytest.mark.parametrize("masters", [0, 3], ids=["redis-sqlite", "cluster-postgresql"])
@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_upgraded_and_rolled_back_while_it_works(
    name: str, masters: int, tmp_path: Path
) -> None:
    release = Release(name)
    older = older_code(release, tmp_path / "older")
    with (
        servers(release, tmp_path, masters) as url,
        serve_archive(release, tmp_path, masters > 0) as archive,
        load_deployment(release, tmp_path, url, archive, lambda _, described: described) as site,
    ):
        deployment = site.deployment
        with running(deployment, older):
            deployment.start("older", "worker")
            site.url = deployment.api("older-api")
        deployment.start("worker", "worker", "--concurrency", "16")
        deployment.start("archive", "archive", ready=False)
        answer(site, "plant:turn", "v1")
        assert deployment.stop("older") == 0
        older_url, site.url = site.url, deployment.api("api")
        finish(site)
        check_effects(site)
        check_reading(site, tmp_path)
        wait_for_copies(site.deployment.store)

        with running(deployment, older):
            deployment.start("oldest", "worker")
        assert deployment.stop("worker") == 0
        site.url = older_url
        for agent in ("plant", "tuner", "scholar"):
            site.trigger(agent)
        site.answer(site.propose("turn", "v20"), "approve")
        assert "turn:v20" in deployment.effects()
        check_logs(site)


#: What a later release adds to each record and message.
FUTURE = "fromTheFuture"
#: Streams of entries whose seals cover every field.
SEALED = (":audit", ":audit:open")
#: Values that a process writes anew, without those that were there, as keys and fields.
REPLACED = re.compile(
    r"(\{\*\}:agents \w+|:observers:health .*|:symptoms |:(call|execution):\S+ result|"
    r":investigation:\S+ (counters|reflection))$"
)
#: Kinds of hashes that are one record each; the fields of others are names of things.
ONE_RECORD = (
    *("approval", "call", "execution", "investigation", "iteration", "loop", "procedure"),
    *("run", "verify", "hold", "wave", "target", "notice", "delivery"),
)
#: Objects whose names are those of things, not of fields.
MAPS = (
    *("params", "orders", "values", "ranges", "context", "data", "metadata", "output", "blind"),
    *("used", "fingerprints", "goals", "plans", "writes", "weights", "counts"),
)


def as_later(key: str, described: dict[str, Any]) -> dict[str, Any]:
    """The value of a key as a later release would have written it: with more fields everywhere."""
    value = described["value"]
    if key.endswith(SEALED):
        return described
    match described["type"]:
        case "string":
            value = _more(value)
        case "hash":
            value = {
                n: t if n in MAPS or n.startswith("ran:") else _more(t) for n, t in value.items()
            }
            # The fields of others are names of things.
            if key.rpartition("}:")[2].partition(":")[0] in ONE_RECORD:
                value[FUTURE] = '{"kind": "x"}'
        case "list":
            value = [_more(text) for text in value]
        case "stream":
            value = [[id, {**fields, FUTURE: "x"}] for id, fields in value]
    return {**described, "value": value}


def _more(text: str) -> str:
    """A JSON object with one more field, also each object in it; any other text as it is."""
    return json.dumps(_add_everywhere(json.loads(text))) if text.startswith(("{", "[")) else text


def _add_everywhere(value: Any) -> Any:
    if isinstance(value, list):
        return [_add_everywhere(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {name: item if name in MAPS else _add_everywhere(item) for name, item in value.items()}
    return {**inner, FUTURE: {"kind": "x"}}


def places(client: Any) -> set[tuple[str, str]]:
    """The keys, with the fields of hashes, that hold what a later release has added."""
    added = set()
    for key in every_key(client, "boyd:{*"):
        match client.type(key):
            case "hash":
                pairs = client.hgetall(key).items()
                added |= {(key, name) for name, text in pairs if FUTURE in name + text}
            case "string" if FUTURE in client.get(key):
                added.add((key, ""))
    return added


@pytest.mark.parametrize("name", RELEASES)
def test_records_of_a_later_release_are_worked_on_and_kept(name: str, tmp_path: Path) -> None:
    """On a cluster, with an archive in PostgreSQL."""
    release = Release(name)
    with (
        servers(release, tmp_path, masters=3) as url,
        serve_archive(release, tmp_path, on_server=True) as archive,
        load_deployment(release, tmp_path, url, archive, as_later) as site,
    ):
        client = site.deployment.store.client
        added = places(client)
        site.deployment.start("worker", "worker", "--concurrency", "16")
        site.deployment.start("archive", "archive", ready=False)
        site.url = site.deployment.api("api")
        answer(site, "plant:turn", "v1")
        finish(site)
        check_effects(site)
        check_reading(site, tmp_path)
        wait_for_copies(site.deployment.store)
        check_logs(site)
        lost = {
            (key, field)
            for key, field in added - places(client)
            if not REPLACED.search(f"{key} {field}")
            and (client.hexists(key, field) if field else client.exists(key))
        }
        assert lost == set()
