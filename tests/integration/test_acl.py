"""Every process as a user of Redis that may do what it needs and nothing else (deploy/redis)."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
import requests
from click.testing import CliRunner
from redis.exceptions import NoPermissionError

from boyd.cli import boyd
from boyd.models import Actor, ApprovalItem, from_ms
from boyd.store import Store, connect
from boyd.store.archive_status import read_archive_status, read_trace_status
from boyd.store.keys import Keys
from boyd.store.paging import Position, read_page
from boyd.store.scripts import Scripts, source_of
from boyd.testing.model_server import Received, Reply, ScriptedModel, hang, say
from boyd_api.routes import ALL
from boyd_api.routing import BASE
from harness import Deployment, free_port, server_program, wait_until
from lua_scripts import NAMES
from tracing_kit import Sink

pytestmark = pytest.mark.real

REDIS = Path(__file__).parents[2] / "deploy" / "redis"
STORE = Path(__file__).parents[2] / "shared" / "boyd" / "store"
ROLES = ("admin", "api", "worker", "beat", "archive", "traces", "metrics")


class Guarded:
    """A Redis with the settings, users and secrets of `deploy/redis`, as they are deployed.

    Attributes:
        urls: the URL of each user that has one.
    """

    def __init__(self, folder: Path) -> None:
        port = free_port()
        address = f"redis://127.0.0.1:{port}/0"
        secrets = folder / "secrets"
        subprocess.run([REDIS / "make-secrets", address, secrets], check=True, capture_output=True)
        self.urls = {role: (secrets / f"redis-url-{role}").read_text().strip() for role in ROLES}
        self.probe = (secrets / "redis-password-probe").read_text().strip()
        self.port = port
        acl = str(secrets / "users.acl")
        argv = [str(server_program()), str(REDIS / "redis.conf"), "--dir", str(folder)]
        argv += ["--port", str(port), "--bind", "127.0.0.1", "--aclfile", acl]
        with (folder / "redis.log").open("w") as log:
            self._process = subprocess.Popen(argv, stdout=log)
        self.admin = connect(self.urls["admin"])
        wait_until(self._answers, 10)

    def refused(self) -> list[str]:
        """What was refused to whom, in the words of `ACL LOG`.

        Without what redis-py tells of itself when it connects: it goes on when that is refused, and
        no rule allows it that both Redis 6.2 and 7.0 understand.
        """
        return [
            f"{entry['username']}: {entry['reason']} {entry['object']} ({entry['context']})"
            for entry in self.admin.acl_log(count=100)
            if not entry["object"].startswith("client")
        ]

    def end(self) -> None:
        """Stop it."""
        self.admin.close()
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self.admin.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


@pytest.fixture
def guarded(tmp_path: Path, redis_server: str) -> Iterator[Guarded]:
    """A Redis with users; `redis_server` is asked for to skip where there is none."""
    made = Guarded(tmp_path)
    yield made
    made.end()


@pytest.fixture
def running(guarded: Guarded, tmp_path: Path) -> Iterator[Deployment]:
    """Two agents with every process there is, each as its user."""
    with Deployment(guarded.urls["admin"], tmp_path) as made:
        agents = ["--agent", "agents.traced:careful", "--agent", "agents.traced:ticking"]
        act = ["--queues", "act", "--pool", "prefork", "--concurrency", "1"]
        made.environment["BOYD_CALLBACKS__ALLOW_PRIVATE"] = "true"
        made.environment["BOYD_AUDIT_KEY"] = "for the tests only"
        made.environment["BOYD_REDIS_URL"] = guarded.urls["worker"]
        made.start("worker", "worker", *agents, "--queues", "loop,observe,host,callback,think")
        made.start("act", "worker", *agents, *act)
        made.environment["BOYD_REDIS_URL"] = guarded.urls["beat"]
        made.start("beat", "beat", *agents)
        made.environment["BOYD_REDIS_URL"] = guarded.urls["archive"]
        made.environment["BOYD_ARCHIVE_URL"] = f"sqlite:///{tmp_path}/archive.db"
        made.start("archive", "archive", ready=False)
        made.environment["BOYD_REDIS_URL"] = guarded.urls["traces"]
        with Sink() as sink:
            made.environment["BOYD_TRACES__ENDPOINT"] = sink.url
            made.start("traces", "traces", ready=False)
            yield made


class Client:
    """Asks the API about one agent."""

    def __init__(self, running: Deployment, url: str) -> None:
        running.environment["BOYD_REDIS_URL"] = url
        self.base = running.api("api")
        self.headers = {name: running.key(name, "admin") for name in ("ann", "bob")}
        self.headers["bot"] = running.key("bot", "admin", person=False)

    def __call__(
        self, method: str, path: str, body: Any = None, expect: int = 200, by: str = "ann"
    ) -> Any:
        url, headers = f"{self.base}{path}", self.headers[by]
        got = requests.request(method, url, json=body, headers=headers, timeout=60)
        assert got.status_code == expect, (path, got.text)
        return got.json() if got.headers["Content-Type"].startswith("application/") else got.text


def copied_at(running: Deployment) -> datetime:
    """The time up to which everything was archived and exported."""
    client = running.store.client
    states = (read_archive_status(client), read_trace_status(client))
    return min((one and one.copied_at) or from_ms(0) for one in states)


def waiting(running: Deployment) -> list[ApprovalItem]:
    return running.agent("careful").approvals.page(50).pending


@pytest.mark.long
def test_every_process_works_as_its_user_and_is_refused_nothing(
    guarded: Guarded, running: Deployment
) -> None:
    ask = Client(running, guarded.urls["api"])
    api = "/api/v0/agents/careful"
    wait_until(lambda: running.agent("ticking").history.get(2))
    ask("POST", "/api/v0/agents/ticking/pause", {"reason": "enough"})

    # A run that leads to an approval, which is approved and executed by another process.
    run = {"title": "t", "description": "d", "callbackUrl": "http://127.0.0.1:9/"}
    made = ask("POST", f"{api}/runs", run, 201)
    [item] = wait_until(lambda: waiting(running))
    done = ask("POST", f"{api}/approvals/{item.id}/approve?wait=15", {}, by="bob")
    assert done["success"], done
    wait_until(lambda: ask("GET", f"{api}/runs/{made['id']}")["status"] == "completed")
    wait_until(lambda: ask("GET", f"{api}/runs/{made['id']}/callback")["attempts"] >= 1)

    # Everything else that the API does.
    assert ask("POST", f"{api}/loop/trigger", {})["success"]
    [item] = wait_until(lambda: waiting(running))
    ask("POST", f"{api}/approvals/deny", {"ids": [item.id], "note": "no"}, by="bob")
    ask("POST", f"{api}/intake/json", {"source": "s", "type": "event", "data": {}}, 202)
    ask("POST", f"{api}/actions/traced:act/dry-run", {})
    for path in ("state", "loop/status", "loop/history", "observations", "situation", "observers"):
        ask("GET", f"{api}/{path}")
    for path in ("actions", "approvals?includeHistory=true", "runs", "audit", "audit/verify"):
        ask("GET", f"{api}/{path}")
    for change in ("pause", "resume", "freeze", "unfreeze", "revoke", "restore"):
        ask("POST", f"{api}/{change}", {})
    for change in ("freeze-all", "unfreeze-all"):
        ask("POST", f"/api/v0/{change}", {})
    for path in ("/api/v0/agents", "/api/v0/workers", "/api/v0/keys", "/metrics", "/readyz"):
        ask("GET", path)
    key = ask("POST", "/api/v0/keys", {"name": "n", "principal": "p", "scopes": ["read"]}, 201)
    ask("DELETE", f"/api/v0/keys/{key['id']}")
    begins = running.store.clock.now()
    wait_until(lambda: copied_at(running) > begins)
    for name in ("worker", "act", "beat", "api", "archive", "traces"):
        assert running.stop(name) == 0, running.log(name)

    assert guarded.refused() == []


#: Where the routes with a name in their path lie, with the names of things that there are.
PATHS = {
    "loop.one": "/loop/history/1",
    "loop.testimony": "/loop/history/1",
    "actions.take": "/actions/counter:add",
    "actions.dry_run": "/actions/counter:add/dry-run",
    "actions.execution": "/executions/{known.execution}",
    "actions.rollback": "/executions/{known.execution}/rollback",
    "procedures.show": "/procedures/{known.procedure}",
    "procedures.cancel": "/procedures/{known.procedure}/cancel",
    "procedures.resume": "/procedures/{known.procedure}/resume",
    "approvals.show": "/approvals/{known.approval}",
    "approvals.preview": "/approvals/{known.approval}/preview",
    "approvals.approve": "/approvals/{known.approval}/approve",
    "approvals.deny": "/approvals/{known.approval}/deny",
    "approvals.withdraw": "/approvals/{known.approval}/withdraw",
    "runs.show": "/runs/{known.run}",
    "runs.cancel": "/runs/{known.waiting_run}/cancel",
    "runs.callback": "/runs/{known.run}/callback",
    "runs.redeliver": "/runs/{known.run}/callback/redeliver",
    "investigations.show": "/investigations/{known.investigation}",
    "investigations.log": "/investigations/{known.investigation}/log",
    "investigations.follow": "/investigations/{known.investigation}/events",
    "investigations.say": "/investigations/{known.investigation}/messages",
    "investigations.cancel": "/investigations/{known.open_investigation}/cancel",
    "intake.take": "/intake/json",
    "plugins.read": "/plugins/counter/",
    "plugins.post": "/plugins/counter/",
    "plugins.put": "/plugins/counter/",
    "plugins.patch": "/plugins/counter/",
    "plugins.delete": "/plugins/counter/",
    "keys.revoke": "/keys/{known.key}",
    "documents.asset": "/docs/swagger-ui.css",
    "documents.problem": "/problems/not-found",
}
#: What is sent to the routes that need a body.
BODIES: dict[str, Any] = {
    "actions.lift_hold": {"action": "{known.held}"},
    "autonomy.revoke_autonomy": {"action": "{known.granted}"},
    "approvals.approve_all": {"ids": ["{known.approval}"]},
    "approvals.deny_all": {"ids": ["{known.approval}"]},
    "approvals.withdraw_all": {"ids": ["{known.approval}"]},
    "runs.submit": {"title": "t", "description": "d"},
    "investigations.ask": {"question": "Why?"},
    "investigations.say": {"text": "And now?"},
    "intake.take": {"source": "s", "type": "event", "data": {}},
    "mcp.answer": {
        "jsonrpc": "2.0",
        "id": "1",
        "method": "tools/call",
        "params": {
            "name": "boyd_propose_action",
            "arguments": {"agent": "routed", "action": "counter:add", "rationale": "r"},
        },
    },
    "keys.create": {"name": "n", "principal": "p", "scopes": ["read"]},
}


#: What is asked once no worker runs the agent any more, in this job.
LAST = ("loop.abandon", "control.retire")


#: A question over which the model thinks for long.
SLOW = "Why, after all?"


def replied(request: Received) -> Reply:
    """The model's answer."""
    return hang(60, say("Because.")) if SLOW in str(request.body["messages"]) else say("Because.")


class Known:
    """Things of the agent `routed` that paths can name; each is made when it is asked for."""

    def __init__(self, ask: Client, running: Deployment) -> None:
        self._ask = ask
        self._running = running

    @property
    def execution(self) -> str:
        return str(self._post("/actions/counter:add")["executionId"])

    @property
    def held(self) -> str:
        """An action that is held."""
        fields = {"action": "counter:add", "kind": "suspended", "execution": "loop:1"}
        self._running.store.client.hset("boyd:{routed}:hold:counter:add:", mapping=fields)
        return fields["action"]

    @property
    def granted(self) -> str:
        """An action that was let run alone."""
        grant = {"id": "g", "atLeast": 0.9, "since": 1, "until": 2e12, "by": ["ann"]}
        record = json.dumps({"label": "l", "effective": 99, "grant": grant})
        self._running.store.client.hset("boyd:{routed}:track:counter:add", "s", record)
        return "counter:add"

    @property
    def procedure(self) -> str:
        """One that waits for a person."""
        id = f"loop:{uuid4()}"
        fields = {
            "id": id,
            "action": "counter:add",
            "state": "stopped",
            "params": "{}",
            "steps": "[]",
            "at": 0,
            "startedAt": 1,
            "until": 2,
            "stoppedAt": 1,
        }
        self._running.store.client.hset(f"boyd:{{routed}}:procedure:{id}", mapping=fields)
        return id

    @property
    def approval(self) -> str:
        return str(self._post("/actions/counter:reset", expect=202)["approvalId"])

    @property
    def waiting_run(self) -> str:
        run = {"title": "t", "description": "d", "callbackUrl": "http://127.0.0.1:9/"}
        self._post("/pause")
        return str(self._post("/runs", run, 201)["id"])

    @property
    def run(self) -> str:
        """One that has ended, so that it has a callback."""
        made = self.waiting_run
        self._post(f"/runs/{made}/cancel")
        self._post("/resume")
        return made

    @property
    def open_investigation(self) -> str:
        return self._asked(SLOW)

    @property
    def investigation(self) -> str:
        """One that has ended."""
        made = self._asked("Why?")
        store = self._running.agent("routed").investigations
        wait_until(lambda: (found := store.get(made)) is not None and found.status == "ended")
        return made

    @property
    def key(self) -> str:
        return str(self._ask("POST", f"{BASE}/keys", BODIES["keys.create"], 201)["id"])

    def _asked(self, question: str) -> str:
        return str(self._post("/investigations", {"question": question}, 201)["id"])

    def _post(self, path: str, body: Any = None, expect: int = 200) -> Any:
        return self._ask("POST", f"{BASE}/agents/routed{path}", body or {}, expect)


def filled(value: Any, known: Known) -> Any:
    """A path or body with the names of things that there are."""
    if isinstance(value, str):
        return value.format(known=known)
    if isinstance(value, list):
        return [filled(one, known) for one in value]
    return {name: filled(inner, known) for name, inner in value.items()}


def asked_everything(ask: Client, known: Known) -> Iterator[str]:
    """Ask every route of the API; those that do not answer with success."""
    for route in (one for one in ALL if one.name not in LAST):
        path = filled(PATHS.get(route.name, route.path), known)
        body = filled(BODIES[route.name], known) if route.name in BODIES else None
        url = ask.base + list(route.rules.values())[-1].removesuffix(route.path) + path
        url = url.replace("<agentId>", "routed")
        headers = ask.headers["bot" if route.noun == "mcp" else "bob"]
        got = requests.request(
            route.method, url, json=body, headers=headers, timeout=30, stream=True
        )
        if got.headers["Content-Type"].startswith("text/event-stream"):
            next(got.iter_content(1))
            got.close()
        if not 200 <= got.status_code < 400:
            yield f"{route.method} {path}: {got.text}"


def test_every_route_works_as_the_user_of_the_api_and_is_refused_nothing(
    guarded: Guarded, tmp_path: Path
) -> None:
    with (
        ScriptedModel([replied], forever=True) as model,
        Deployment(guarded.urls["admin"], tmp_path) as running,
    ):
        running.environment["MODEL_URL"] = f"{model.url}/v1"
        running.environment["BOYD_CALLBACKS__ALLOW_PRIVATE"] = "true"
        running.environment["BOYD_REDIS_URL"] = guarded.urls["worker"]
        queues = "loop,observe,host,callback,think,act"
        running.start("worker", "worker", "--agent", "agents.routed:routed", "--queues", queues)
        ask = Client(running, guarded.urls["api"])
        known = Known(ask, running)
        ask("POST", f"{BASE}/agents/routed/loop/trigger", {})

        failed = list(asked_everything(ask, known))

        # A stream that is gone on from an event which is kept no longer has to find that out.
        url, old = f"{ask.base}{BASE}/agents/routed/events", {"Last-Event-ID": "1-0"}
        with requests.get(url, headers=ask.headers["ann"] | old, stream=True, timeout=60) as got:
            assert got.status_code == 200, got.text

        assert running.stop("worker") == 0
        base = f"{BASE}/agents/routed"
        ask("POST", f"{base}/loop/trigger", {"async": True}, 202)
        paths = {route.name: route.path for route in ALL}
        for name in LAST:
            ask("POST", f"{base}{paths[name]}", {})
    assert (failed, guarded.refused()) == ([], [])


@pytest.mark.parametrize("role", ["api", "worker", "beat"])
@pytest.mark.parametrize("newest_first", [True, False])
def test_whoever_runs_scripts_reads_every_page_of_a_list(
    guarded: Guarded, role: str, newest_first: bool
) -> None:
    client = connect(guarded.urls[role])
    scripts = Scripts(client).of(Keys("a"))
    guarded.admin.zadd("boyd:{a}:executions", {f"call:{n}": n for n in range(5)})
    found: list[str] = []
    position: Position = None
    while page := read_page(scripts, "boyd:{a}:executions", position, 2, newest_first):
        found += [name for name, _ in page]
        position = page[-1]
    client.close()

    assert sorted(found) == [f"call:{n}" for n in range(5)]
    assert guarded.refused() == []


def test_a_route_is_only_complete_with_an_example_for_its_test() -> None:
    named = {route.name for route in ALL if route.parts}
    sent = {route.name for route in ALL if route.body is not None and not route.body_optional}

    assert named == PATHS.keys()
    assert sent <= BODIES.keys() <= {route.name for route in ALL}


#: Upper-case words of the scripts that are arguments of commands.
OPTIONS = {"BYSCORE", "LIMIT", "MAXLEN", "MINID", "PX", "REV", "WITHSCORES", "XX"}


#: The scripts of users that do not run all.
SOME = {"traces": ["hold_traces"]}


def test_whoever_runs_scripts_may_run_every_command_in_them() -> None:
    # Every quoted word, as some scripts choose a command before they call it.
    words_of = {name: set(re.findall(r"'([A-Z]{2,})'", source_of(name).text)) for name in NAMES}
    assert set().union(*words_of.values()) >= OPTIONS
    for line in (REDIS / "users.acl").read_text().splitlines():
        words = line.split()
        if "+evalsha" in words:
            scripts = SOME.get(words[1], NAMES)
            used = set().union(*(words_of[name] for name in scripts)) - OPTIONS
            assert {f"+{command.lower()}" for command in used} <= set(words), words[1]


#: Methods of the client that send no command, or one with a part, and those with another name.
NO_COMMANDS = {"close", "cluster", "execute", "pipeline"}
NAMED = {"config_get": "config|get", "delete": "del", "sscan_iter": "sscan"}
NAMED |= {"xinfo_stream": "xinfo|stream"}
#: Sent by a class of the client that is no part of the store's interface, or only on a cluster.
OTHERWISE = {"cluster_client.py", "connection.py", "slot_map.py", "stream_tail.py"}


def test_the_api_may_send_every_command_of_the_store() -> None:
    lines = (REDIS / "users.acl").read_text().splitlines()
    [permitted] = [set(line.split()) for line in lines if line.startswith("user api ")]
    methods = {name for name in dir(redis.Redis) if name.islower()} - NO_COMMANDS
    sent = {
        NAMED.get(call.func.attr, call.func.attr)
        for path in sorted(STORE.glob("*.py"))
        if path.name not in OTHERWISE
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if re.search(r"(client|pipe)\b", ast.unparse(call.func.value))
        if call.func.attr in methods
    }

    assert {"getdel", "hgetall", "xadd"} <= sent
    assert {f"+{name}" for name in sent} <= permitted


def test_a_link_signs_in_once_with_the_rights_of_the_api(guarded: Guarded) -> None:
    client = connect(guarded.urls["api"])
    store = Store(client)
    key, _ = store.access.create("ann", "ann", ["admin"], by=Actor(principal="root"))
    token = store.sessions.create_link(key.id)
    signed_in, again = store.sessions.use_link(token), store.sessions.use_link(token)
    client.close()

    assert signed_in is not None
    assert signed_in.id == key.id
    assert again is None
    assert guarded.refused() == []


def command(url: str, *arguments: str) -> Any:
    """Run a command as the user of *url*; its answer as JSON."""
    known = {"BOYD_REDIS_URL": url}
    result = CliRunner().invoke(boyd, [*arguments, "-o", "json"], env=known)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def test_the_first_key_and_the_doctor_need_no_more(guarded: Guarded) -> None:
    key = ("keys", "create", "ann", "--principal", "ann", "--person", "--scope", "admin")

    assert command(guarded.urls["api"], *key)["key"].startswith("boyd_")
    command(guarded.urls["api"], "keys", "list")
    command(guarded.urls["api"], "audit", "verify", "--deployment")
    found = command(guarded.urls["metrics"], "doctor")["findings"]
    kept = {f["subject"]: f["level"] for f in found if f["subject"] in ("persistence", "eviction")}
    assert kept == {"persistence": "ok", "eviction": "ok"}
    assert guarded.refused() == []


#: What only the administrator of Redis may do.
OF_ADMIN = (
    "FLUSHALL", "KEYS *", "CONFIG SET maxmemory 1", "ACL LIST", "MONITOR", "SHUTDOWN",
    "CLIENT LIST", "PUBLISH a b", "GET other", "SCRIPT FLUSH", "REPLICAOF NO ONE",
)  # fmt: skip
#: The keys of the HTTP API, and its answers, concern the API alone.
OF_API = ("HGETALL boyd:{*}:keys", "HSET boyd:{*}:keys a b", "GET boyd:{*}:answer:a")
#: Only a worker takes messages.
OF_WORKER = ("BRPOP boyd.act.a 1", "RPOP boyd.act.a")
WRITES = ("HSET boyd:{a}:loop a b", "EVAL return 0", "LPUSH boyd.act.a b")


@pytest.mark.parametrize(
    ("role", "forbidden"),
    [
        ("api", OF_ADMIN + OF_WORKER),
        ("worker", OF_ADMIN + OF_API),
        ("beat", OF_ADMIN + OF_API + OF_WORKER),
        ("metrics", OF_ADMIN + OF_API + OF_WORKER + WRITES),
    ],
)
def test_no_user_may_do_more(guarded: Guarded, role: str, forbidden: tuple[str, ...]) -> None:
    client = connect(guarded.urls[role])
    for words in forbidden:
        with pytest.raises(NoPermissionError):
            client.execute_command(*words.split())
    client.close()


def test_the_probe_may_ask_whether_redis_answers_and_nobody_may_do_without_a_user(
    guarded: Guarded,
) -> None:
    probe: Any = redis.Redis(port=guarded.port, username="probe", password=guarded.probe)
    nobody: Any = redis.Redis(port=guarded.port)

    assert probe.execute_command("PING")
    with pytest.raises(NoPermissionError):
        probe.info()
    with pytest.raises(redis.AuthenticationError):
        nobody.execute_command("PING")
    probe.close()
    nobody.close()
