"""Records a deployment with work in every state, which later releases have to go on with.

In `tests`, `PYTHONPATH=.:kits python -m releases.record 0.2.0` writes keys and archives into the
folder of that release, which has the agent files and their plugin already. The code that writes
them is that which Python imports: a checkout of the release comes first in `PYTHONPATH`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests

from archive_kit import Archive, postgresql, require_postgresql
from boyd import naming
from boyd.models import Actor, CallRequest, JsonObject
from boyd.store.track_records import TrackRecords
from boyd.testing.model_server import Received, Reply, ScriptedModel, call, hang, say
from faults.world import RedisProcess
from harness import Deployment, wait_until
from releases.release_data import NOWHERE, People, Release

#: Seconds that the model ponders, which outlast the recording.
FOREVER = 600.0
#: The action that has earned to run alone.
TUNE = "plant:tune"
#: Where the worker is when it is killed.
HELD = (
    *("look:looking:1", "choose:choosing:1", "vent:venting:1"),
    *("grease:v10", "turn:v11", "rinse:v12", "rinse:v8", "renew:f2"),
)
#: A secret of the processes, which the recording holds only by its reference.
CODE = {
    "BOYD_SECRETS__PROVIDERS": '{"locks": {"use": "environment", "prefix": "LOCK_"}}',
    "LOCK_CODE": "sesame",
}


def reply(request: Received) -> Reply:
    """The answer of the model: it shuts v9 first, and ponders over one question for ever."""
    messages = request.body["messages"]
    if "ponder" in str(messages) and not any(
        message["role"] == "assistant" for message in messages
    ):
        return hang(FOREVER, say("At last."))
    if any(message["role"] == "tool" for message in messages):
        return say("It is shut.")
    return call("shut", {"valve": "v9"})


def reply_at_once(request: Received) -> Reply:
    """The same, for those who finish what was recorded."""
    return say("At last.") if "ponder" in str(request.body["messages"]) else reply(request)


class Site:
    """A deployment of the agents of a release, and people who use its API."""

    def __init__(
        self, deployment: Deployment, url: str, model: ScriptedModel, people: People
    ) -> None:
        self.deployment = deployment
        self.model = model
        self.url = url
        self.people = people
        #: What those have received who are notified.
        self.notifications: list[bytes] = []

    def send(
        self, method: str, path: str, body: Any = None, *, by: str = "ann", agent: str = "plant"
    ) -> Any:
        """The body of a successful response."""
        response = requests.request(
            method,
            f"{self.url}/api/v0/agents/{agent}{path}",
            json=None if method == "GET" else body or {},
            headers=self.people[by],
            timeout=60,
        )
        assert response.ok, (path, response.status_code, response.text)
        return response.json()

    def propose(self, action: str, valve: str, agent: str = "plant", **params: str) -> str:
        """The id of the pending approval of an action."""
        body = {"params": {"valve": valve, **params}}
        path = f"/actions/plant:{action}"
        return str(self.send("POST", path, body, agent=agent)["approvalId"])

    def answer(
        self, approval: str, verb: str, *, by: str = "bob", agent: str = "plant", wait: int = 30
    ) -> Any:
        """Answer an approval."""
        path = f"/approvals/{approval}/{verb}?wait={wait}"
        return self.send("POST", path, by=by, agent=agent)

    def pending(self, agent: str, action: str) -> str:
        """The id of the approval of an action, once it is pending."""

        def find() -> str | None:
            items = self.send("GET", "/approvals", agent=agent)["pending"]
            return next((item["id"] for item in items if item["actionId"] == action), None)

        return str(wait_until(find))

    def trigger(self, agent: str) -> None:
        """Start an iteration, and wait for its end."""
        launcher = self.deployment.launcher(agent)
        assert self.deployment.ended(agent, launcher.trigger("test").iteration).success

    def wait_for(self, line: str) -> None:
        """Wait for an effect."""
        wait_until(lambda: line in self.deployment.effects())


def fill(site: Site) -> None:
    """Do work that ends, or that waits for somebody."""
    site.trigger("plant")
    site.propose("turn", "v1")
    site.send("POST", f"/approvals/{site.propose('turn', 'v2')}/acknowledge", by="bob")
    site.answer(site.propose("turn", "v3"), "deny")
    site.answer(site.propose("turn", "v4"), "withdraw", by="ann")
    site.answer(site.propose("turn", "v5"), "approve")
    site.propose("unlock", "v16", code="secret://locks/LOCK_CODE")
    [anomaly] = site.send("GET", "/anomalies")["anomalies"]
    site.send("POST", f"/anomalies/{anomaly['id']}/acknowledge", {"note": "mine"}, by="bob")


def fill_more(site: Site) -> None:
    """Do more of that, which the archive has not got yet."""
    site.answer(site.propose("grease", "v6"), "approve")
    site.send("POST", "/actions/procedures:service", {"params": {"valve": "v7"}})
    site.wait_for("rinse:v7")
    site.send("POST", "/investigations", {"question": "Is it shut?"})
    site.pending("plant", "plant:shut")
    _earn(site)
    site.trigger("holder")
    wait_until(lambda: site.send("GET", "/holds", agent="holder")["holds"])
    site.propose("turn", "n1", agent="pager")
    turtle = "@prefix : <http://example.org/> . :Whale :is-a :Mammal . :Mammal :is-a :Animal ."
    base = "/plugins/goals/"
    site.send("POST", f"{base}graph/import", {"turtle": turtle, "source": "t"}, agent="scholar")
    goal = {"description": "Find out what a whale is", "criteria": "whale habitat"}
    site.send("POST", f"{base}goals", goal, agent="scholar")
    site.trigger("scholar")


def _earn(site: Site) -> None:
    """Let the action of the agent `tuner` earn to run alone."""
    records = site.deployment.agent("tuner").track_records
    for number in range(1, 4):
        site.trigger("tuner")
        site.answer(site.pending("tuner", TUNE), "approve", agent="tuner")
        wait_until(partial(_has_counted, records, number))
    site.answer(site.pending("tuner", naming.GRANT), "approve", agent="tuner")
    wait_until(lambda: any(record.grant for record in records.all([TUNE])))


def _has_counted(records: TrackRecords, number: int) -> bool:
    return sum(record.outcomes for record in records.all([TUNE])) == number


def leave_work(site: Site) -> None:
    """Kill the worker in the middle of everything, and give it work that it never gets."""
    deployment = site.deployment
    waiting = site.propose("turn", "v13")
    for line in HELD:
        deployment.effects_file.with_name(f"{deployment.effects_file.name}.hold.{line}").touch()
    for agent in ("looking", "choosing", "venting"):
        deployment.launcher(agent).trigger("test")
    grease = site.propose("grease", "v10")
    site.answer(grease, "approve")
    site.answer(grease, "approve", by="cid", wait=0)
    site.answer(site.propose("turn", "v11"), "approve", wait=0)
    plant = deployment.launcher("plant")
    plant.call(_rinsing("v12"), "act")
    site.send("POST", "/actions/procedures:service?wait=0", {"params": {"valve": "v8"}})
    site.send("POST", "/actions/procedures:renew?wait=0", agent="fleet")
    site.wait_for("renew:f3")
    site.send("POST", "/investigations", {"question": "Please ponder."})
    for line in HELD:
        site.wait_for(line)
    wait_until(lambda: "ponder" in str(site.model.requests[-1].body))
    deployment.kill("worker")

    site.answer(waiting, "approve", wait=0)
    plant.call(_rinsing("v14"), "act")
    deployment.launcher("sent").trigger("test")
    observation = {"source": "s", "type": "event", "data": {"valve": "v15"}}
    site.send("POST", "/intake/json", observation)
    site.send("POST", "/pause", {"reason": "it rests"}, agent="resting")
    run = {"title": "t", "description": "d", "callbackUrl": f"{NOWHERE}/done"}
    site.send("POST", "/runs", run, agent="resting")
    site.send("POST", "/freeze", {"reason": "it rests"}, agent="resting")


def _rinsing(valve: str) -> CallRequest:
    params: JsonObject = {"valve": valve}
    return CallRequest(
        kind="execute", action="plant:rinse", params=params, actor=Actor(principal="ann")
    )


def prepare(deployment: Deployment, agents: Sequence[str]) -> None:
    """Have the processes of a deployment run the agents of a release."""
    deployment.environment["BOYD_AGENTS"] = ",".join(agents)
    deployment.environment.update(CODE)
    deployment.environment["BOYD_CALLBACKS__ALLOW_PRIVATE"] = "true"


def record(release: Release) -> None:
    """Record the data of a release, which the code of now writes."""
    with TemporaryDirectory() as name, postgresql(require_postgresql()) as server:
        folder = Path(name)
        redis = RedisProcess(folder)
        try:
            with (
                ScriptedModel([reply], forever=True) as model,
                Deployment(redis.url, folder) as deployment,
            ):
                prepare(deployment, release.agents_in(folder, model.url))
                deployment.start("worker", "worker", "--concurrency", "16")
                people = {name: deployment.key(name, "admin") for name in ("ann", "bob", "cid")}
                site = Site(deployment, deployment.api("api"), model, people)
                fill(site)
                for url in (f"sqlite:///{folder}/archive.db", server.url):
                    copy_work(deployment, url)
                fill_more(site)
                leave_work(site)
                release.write(deployment, people, model.url, folder / "archive.db", server)
        finally:
            redis.signal(signal.SIGKILL)


def copy_work(deployment: Deployment, url: str) -> None:
    """Copy the work of one agent that has ended into an archive."""
    archive = Archive(url, deployment.store, agent_id="plant")
    try:
        archive.copy()
    finally:
        archive.close()


if __name__ == "__main__":
    record(Release(sys.argv[1]))
