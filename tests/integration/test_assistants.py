"""The MCP server, asked by the official suite and the official clients, over a real API."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import fakeredis
import httpx2
import pytest
import requests
from mcp import Client
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Request, RequestParams, Result

from api_kit import Site, make_desk
from assistant_kit import failures, rpc, suite_server
from boyd_api.commands import listen
from boyd_api.http.server import ApiServer
from boyd_api.mcp.assistant_tool import TASKS
from harness import Deployment, free_port, wait_until
from npm_kit import MCP

pytestmark = pytest.mark.long

MODERN, LEGACY = "2026-07-28", "2025-11-25"
#: What needs tools, resources or tasks of a certain name: served by the same code.
FIXTURES = [
    "server-stateless",
    "tools-call-simple-text",
    "tools-call-error",
    "resources-read-text",
    "resources-templates-read",
    "prompts-get-simple",
    "prompts-get-with-args",
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
]
#: What any server can be asked, so that Boyd's own tools and resources answer.
ANY = [
    (MODERN, "tools-list"),
    (MODERN, "resources-list"),
    (MODERN, "prompts-list"),
    (MODERN, "caching"),
    (MODERN, "http-header-validation"),
    (MODERN, "dns-rebinding-protection"),
    (MODERN, "sep-2164-resource-not-found"),
    (MODERN, "server-sse-multiple-streams"),
    (LEGACY, "server-initialize"),
    (LEGACY, "ping"),
    (LEGACY, "tools-list"),
    (LEGACY, "dns-rebinding-protection"),
]
OLD = ["tools-call-simple-text", "tools-call-error", "resources-read-text", "prompts-get-simple"]


@pytest.fixture(scope="module")
def suite() -> Iterator[str]:
    """A server with what the suite looks for; its address."""
    MCP.require()
    with suite_server() as url:
        yield url


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python client takes a server for an old one that does not answer for ten seconds."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 120.0)


class Served:
    """The API of the agent `desk` on a port."""

    def __init__(self, **api: Any) -> None:
        lab, self.plugin = make_desk(server := fakeredis.FakeServer())
        port = free_port()
        self.site = Site(lab, server, max_wait=10, rate=1000, burst=1000, **api)
        self._server = ApiServer(
            self.site.app, listen("127.0.0.1", port), self.site.services.settings
        )
        stop = self.site.services.stop
        self._thread = threading.Thread(target=self._server.run, args=(stop,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{port}/mcp"

    def stop(self) -> None:
        """End it."""
        self._server.stop()
        self._thread.join(60)


@pytest.fixture(scope="module")
def open_desk() -> Iterator[Served]:
    """An API that needs no key, as the suite has none."""
    MCP.require()
    served = Served(allow_unauthenticated=True)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def desk() -> Iterator[Served]:
    """An API that needs a key."""
    served = Served()
    yield served
    served.stop()


@pytest.mark.parametrize("scenario", FIXTURES)
def test_the_official_suite_passes_over_our_transport(
    suite: str, scenario: str, tmp_path: Path
) -> None:
    assert failures(suite, scenario, MODERN, tmp_path) == []


@pytest.mark.parametrize("scenario", OLD)
def test_clients_of_the_revision_before_are_served_as_the_suite_wants(
    suite: str, scenario: str, tmp_path: Path
) -> None:
    assert failures(suite, scenario, LEGACY, tmp_path) == []


@pytest.mark.parametrize(("version", "scenario"), ANY)
def test_the_official_suite_passes_over_the_tools_of_boyd(
    open_desk: Served, version: str, scenario: str, tmp_path: Path
) -> None:
    assert failures(open_desk.url, scenario, version, tmp_path) == []


class TaskResult(Result):
    """The result of a call that goes on as a task."""

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str


class TaskParams(RequestParams):
    task_id: str


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class TaskNow(Result):
    status: str
    status_message: str
    result: CallToolResult | None = None


class Follows(ClientExtension):
    """Follows a task; has a person approve what it waits for, in the console of a test."""

    identifier = TASKS

    def __init__(self, site: Site) -> None:
        self.site = site
        self.seen: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskResult, resolve=self._follow)]

    async def _follow(self, task_result: TaskResult, ctx: ClaimContext) -> CallToolResult:
        task = GetTask(params=TaskParams(task_id=task_result.task_id))
        while True:
            now = await ctx.session.send_request(task, TaskNow)
            self.seen.append(now.status)
            if now.result is not None:
                return now.result
            [item] = self.site.get("/approvals").json["pending"]
            assert f"/console/agents/desk/approvals/{item['id']}" in now.status_message
            ann = self.site.key("approvals", principal="ann", person=True)
            await asyncio.to_thread(self.site.post, f"/approvals/{item['id']}/approve", headers=ann)


async def talk(desk: Served, mode: str, calls: list[tuple[str, Any]], *extensions: Any) -> Any:
    """Call tools with the official Python client."""
    headers = desk.site.key("read", "runs", "actions", principal="robot")
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(desk.url, http_client=http)
        async with Client(transport, mode=mode, extensions=extensions) as client:
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
            return client.protocol_version, results


def run_talk(talk: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread; the tests with a browser leave an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, talk).result()


PROPOSAL = {"action": "desk:write", "params": {"text": "x"}, "rationale": "the test wants it"}


def text_of(result: CallToolResult) -> Any:
    return json.loads(result.content[0].text)["untrusted"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("mode", "version"), [("auto", MODERN), ("legacy", LEGACY)])
def test_the_official_python_client_calls_tools(desk: Served, mode: str, version: str) -> None:
    calls: list[tuple[str, Any]] = [("boyd_status", {}), ("boyd_propose_action", PROPOSAL)]
    spoken, (status, proposed) = run_talk(talk(desk, mode, calls))

    assert spoken == version
    assert [agent["id"] for agent in text_of(status)["agents"]] == ["desk"]
    assert text_of(proposed)["status"] == "input_required"


def test_a_proposal_is_a_task_that_the_python_client_follows_until_a_person_has_decided(
    desk: Served,
) -> None:
    for item in desk.site.get("/approvals").json["pending"]:
        desk.site.post(f"/approvals/{item['id']}/deny")
    follows = Follows(desk.site)
    calls = [("boyd_propose_action", {**PROPOSAL, "params": {"text": "followed"}})]
    _, [result] = run_talk(talk(desk, "auto", calls, follows))

    assert follows.seen == ["input_required", "completed"]
    assert text_of(result)["result"]["output"] == "wrote followed"
    assert "write followed" in desk.plugin.done


@pytest.mark.parametrize(("mode", "version"), [("auto", MODERN), ("legacy", LEGACY)])
def test_the_official_typescript_client_calls_tools(desk: Served, mode: str, version: str) -> None:
    script = MCP.require() / "client.mjs"
    script.write_text((Path(__file__).parents[1] / "data/mcp/client.mjs").read_text())
    key = desk.site.key("read", "actions", principal="robot")["Authorization"]
    calls = ["boyd_status", "{}", "boyd_propose_action", json.dumps(PROPOSAL)]
    ran = subprocess.run(
        ["node", script, desk.url, key, mode, *calls], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)

    assert data["version"] == version
    assert "boyd_history" in data["tools"]
    assert "boyd_runs_submit" not in data["tools"]
    assert data["read"]["contents"][0]["uri"] == "boyd://agent/desk/approvals"
    assert [result["isError"] for result in data["results"]] == [False, False]


def test_a_proposal_outlives_the_api_that_took_it(redis_url: str, tmp_path: Path) -> None:
    with Deployment(redis_url, tmp_path) as running:
        running.worker("worker", "agents.routed:routed", "--queues", "loop,act,host")
        robot = running.key("robot", "read", "actions", person=False)
        url = running.api("api")
        arguments = {"action": "counter:add", "rationale": "why not"}
        reply = rpc(url, robot, "tools/call", name="boyd_propose_action", arguments=arguments)
        running.kill("api")
        url = running.api("another")
        task = rpc(url, robot, "tasks/get", taskId=reply["taskId"])
        [request] = task["inputRequests"].values()
        approval = request["params"]["url"].rpartition("/")[2]
        answer = f"{url}/api/v0/agents/routed/approvals/{approval}/approve"
        refused = requests.post(answer, headers=running.key("bot", "approvals", person=False))
        response = requests.post(answer, headers=running.key("ann", "approvals"))

        def completed_task() -> Any:
            current = rpc(url, robot, "tasks/get", taskId=reply["taskId"])
            return current if current["status"] == "completed" else None

        result = wait_until(completed_task, 30)["result"]
    assert (reply["resultType"], task["status"]) == ("task", "input_required")
    assert (refused.status_code, response.status_code) == (403, 200)
    assert not result["isError"]
    assert "added" in result["content"][0]["text"]
