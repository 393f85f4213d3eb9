"""Every process as a user of Redis that may do what it needs and nothing else (deploy/redis)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis
import requests
from click.testing import CliRunner
from redis.exceptions import NoPermissionError

from archive_kit import read_archive_status, read_trace_status
from boyd.models import Actor, ApprovalItem, from_ms
from boyd.store import Store, connect
from boyd.store.hashes import Position, read_page
from boyd.store.keys import Keys
from boyd.store.server.scripts import Scripts, source_of
from boyd.testing.model_server import ScriptedModel
from boyd_api.app import ALL
from boyd_api.http.routing import BASE
from boyd_cli import boyd
from guarded_redis import REDIS, Guarded
from harness import Deployment, wait_until
from lua_scripts import NAMES
from route_kit import BODIES, LAST, PATHS, Client, Known, ask_everything, model_reply
from tracing_kit import Sink

pytestmark = pytest.mark.real

STORE = Path(__file__).parents[2] / "shared" / "boyd" / "store"
HEALTH = STORE.parent / "health"


@pytest.fixture
def redis_with_users(tmp_path: Path, redis_server: str) -> Iterator[Guarded]:
    """A Redis with users; `redis_server` is asked for to skip where there is none."""
    guarded_redis = Guarded(tmp_path)
    yield guarded_redis
    guarded_redis.end()


@pytest.fixture
def running(redis_with_users: Guarded, tmp_path: Path) -> Iterator[Deployment]:
    """Two agents with every process there is, each as its user."""
    with Deployment(redis_with_users.urls["admin"], tmp_path) as deployment:
        agents = ["--agent", "agents.traced:careful", "--agent", "agents.traced:ticking"]
        act = ["--queues", "act", "--pool", "prefork", "--concurrency", "1"]
        deployment.environment["BOYD_CALLBACKS__ALLOW_PRIVATE"] = "true"
        deployment.environment["BOYD_AUDIT_KEY"] = "for the tests only"
        deployment.environment["BOYD_REDIS_URL"] = redis_with_users.urls["worker"]
        deployment.start(
            "worker", "worker", *agents, "--queues", "loop,observe,host,callback,think"
        )
        deployment.start("act", "worker", *agents, *act)
        deployment.environment["BOYD_REDIS_URL"] = redis_with_users.urls["beat"]
        deployment.start("beat", "beat", *agents)
        deployment.environment["BOYD_REDIS_URL"] = redis_with_users.urls["archive"]
        deployment.environment["BOYD_ARCHIVE_URL"] = f"sqlite:///{tmp_path}/archive.db"
        deployment.start("archive", "archive", ready=False)
        deployment.environment["BOYD_REDIS_URL"] = redis_with_users.urls["traces"]
        with Sink() as sink:
            deployment.environment["BOYD_TRACES__ENDPOINT"] = sink.url
            deployment.start("traces", "traces", ready=False)
            yield deployment


def asking(running: Deployment, redis_with_users: Guarded) -> Client:
    """A client of an API that is the user of the API."""
    running.environment["BOYD_REDIS_URL"] = redis_with_users.urls["api"]
    return Client(running, running.api("api"))


def copy_time(running: Deployment) -> datetime:
    """The time up to which everything was archived and exported."""
    client = running.store.client
    states = (read_archive_status(client), read_trace_status(client))
    return min((state and state.copied_at) or from_ms(0) for state in states)


def waiting(running: Deployment) -> list[ApprovalItem]:
    return running.agent("careful").approvals.page(50).pending


@pytest.mark.long
def test_every_process_works_as_its_user_and_is_refused_nothing(
    redis_with_users: Guarded, running: Deployment
) -> None:
    ask = asking(running, redis_with_users)
    api = "/api/v0/agents/careful"
    wait_until(lambda: running.agent("ticking").history.get(2))
    ask("POST", "/api/v0/agents/ticking/pause", {"reason": "enough"})

    # A run that leads to an approval, which is approved and executed by another process.
    run = {"title": "t", "description": "d", "callbackUrl": "http://127.0.0.1:9/"}
    created = ask("POST", f"{api}/runs", run, 201)
    [item] = wait_until(lambda: waiting(running))
    done = ask("POST", f"{api}/approvals/{item.id}/approve?wait=15", {}, by="bob")
    assert done["success"], done
    wait_until(lambda: ask("GET", f"{api}/runs/{created['id']}")["status"] == "completed")
    wait_until(lambda: ask("GET", f"{api}/runs/{created['id']}/callback")["attempts"] >= 1)

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
    wait_until(lambda: copy_time(running) > begins)
    for name in ("worker", "act", "beat", "api", "archive", "traces"):
        assert running.stop(name) == 0, running.log(name)

    assert redis_with_users.refusals() == []


def test_every_route_works_as_the_user_of_the_api_and_is_refused_nothing(
    redis_with_users: Guarded, tmp_path: Path
) -> None:
    with (
        ScriptedModel([model_reply], forever=True) as model,
        Deployment(redis_with_users.urls["admin"], tmp_path) as running,
    ):
        running.environment["MODEL_URL"] = f"{model.url}/v1"
        running.environment["BOYD_CALLBACKS__ALLOW_PRIVATE"] = "true"
        running.environment["BOYD_REDIS_URL"] = redis_with_users.urls["worker"]
        queues = "loop,observe,host,callback,think,act"
        running.start("worker", "worker", "--agent", "agents.routed:routed", "--queues", queues)
        ask = asking(running, redis_with_users)
        ids = Known(ask, running)
        ask("POST", f"{BASE}/agents/routed/loop/trigger", {})

        failed = list(ask_everything(ask, ids))

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
    assert (failed, redis_with_users.refusals()) == ([], [])


@pytest.mark.parametrize("role", ["api", "worker", "beat"])
@pytest.mark.parametrize("newest_first", [True, False])
def test_users_who_run_scripts_can_read_every_page_of_a_list(
    redis_with_users: Guarded, role: str, newest_first: bool
) -> None:
    client = connect(redis_with_users.urls[role])
    scripts = Scripts(client).of(Keys("a"))
    redis_with_users.admin.zadd("boyd:{a}:executions", {f"call:{n}": n for n in range(5)})
    names: list[str] = []
    position: Position = None
    while page := read_page(scripts, "boyd:{a}:executions", position, 2, newest_first):
        names += [name for name, _ in page]
        position = page[-1]
    client.close()

    assert sorted(names) == [f"call:{n}" for n in range(5)]
    assert redis_with_users.refusals() == []


def test_a_route_is_only_complete_with_an_example_for_its_test() -> None:
    queries = {route.name: route.query.model_fields.values() for route in ALL if route.query}
    names = {route.name for route in ALL if route.parts}
    names |= {name for name, fields in queries.items() if any(it.is_required() for it in fields)}
    sent = {route.name for route in ALL if route.body is not None and not route.body_optional}

    assert names == PATHS.keys()
    assert sent <= BODIES.keys() <= {route.name for route in ALL}


#: Upper-case words of the scripts that are arguments of commands.
OPTIONS = {"BYSCORE", "LIMIT", "MAXLEN", "MINID", "PX", "REV", "WITHSCORES", "XX"}


#: The scripts of users that do not run all.
SOME = {"traces": ["hold_traces"]}


def test_users_who_run_scripts_may_run_every_command_in_them() -> None:
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
NO_COMMANDS = {"close", "cluster", "execute", "parse_response", "pipeline"}
NAMED = {"config_get": "config|get", "delete": "del", "sscan_iter": "sscan"}
NAMED |= {"xinfo_stream": "xinfo|stream"}


def test_the_api_may_send_every_command_of_the_store() -> None:
    lines = (REDIS / "users.acl").read_text().splitlines()
    [permitted] = [set(line.split()) for line in lines if line.startswith("user api ")]
    methods = {name for name in dir(redis.Redis) if name.islower()} - NO_COMMANDS
    sent = {
        NAMED.get(call.func.attr, call.func.attr)
        for path in sorted([*STORE.glob("*.py"), *HEALTH.glob("*.py")])
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if re.search(r"(client|pipe)\b", ast.unparse(call.func.value))
        if call.func.attr in methods
    }

    assert {"getdel", "hgetall", "xadd"} <= sent
    assert {f"+{name}" for name in sent} <= permitted


def test_a_link_signs_in_once_with_the_rights_of_the_api(redis_with_users: Guarded) -> None:
    client = connect(redis_with_users.urls["api"])
    store = Store(client)
    key, _ = store.api_keys.create("ann", "ann", ["admin"], by=Actor(principal="root"))
    token = store.login_sessions.create_link(key.id)
    signed_in, again = store.login_sessions.use_link(token), store.login_sessions.use_link(token)
    client.close()

    assert signed_in is not None
    assert signed_in.id == key.id
    assert again is None
    assert redis_with_users.refusals() == []


def command(url: str, *arguments: str) -> Any:
    """Run a command as the user of *url*; its answer as JSON."""
    environment = {"BOYD_REDIS_URL": url}
    result = CliRunner().invoke(boyd, [*arguments, "-o", "json"], env=environment)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def test_the_first_key_and_the_doctor_need_no_more(redis_with_users: Guarded) -> None:
    key = ("keys", "create", "ann", "--principal", "ann", "--person", "--scope", "admin")

    assert command(redis_with_users.urls["api"], *key)["key"].startswith("boyd_")
    command(redis_with_users.urls["api"], "keys", "list")
    command(redis_with_users.urls["api"], "audit", "verify", "--deployment")
    findings = command(redis_with_users.urls["metrics"], "doctor")["findings"]
    levels = {
        f["subject"]: f["level"] for f in findings if f["subject"] in ("persistence", "eviction")
    }
    assert levels == {"persistence": "ok", "eviction": "ok"}
    assert redis_with_users.refusals() == []


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
def test_no_user_may_do_more(
    redis_with_users: Guarded, role: str, forbidden: tuple[str, ...]
) -> None:
    client = connect(redis_with_users.urls[role])
    for words in forbidden:
        with pytest.raises(NoPermissionError):
            client.execute_command(*words.split())
    client.close()


def test_the_probe_may_ask_whether_redis_answers_and_nobody_may_do_without_a_user(
    redis_with_users: Guarded,
) -> None:
    probe: Any = redis.Redis(
        port=redis_with_users.port, username="probe", password=redis_with_users.probe
    )
    nobody: Any = redis.Redis(port=redis_with_users.port)

    assert probe.execute_command("PING")
    with pytest.raises(NoPermissionError):
        probe.info()
    with pytest.raises(redis.AuthenticationError):
        nobody.execute_command("PING")
    probe.close()
    nobody.close()
