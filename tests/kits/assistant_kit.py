"""MCP for tests: what the official suite expects of a server, over our transport, and its runs."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from flask import Flask, Response, request
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import LATEST_MODERN_VERSION
from werkzeug.serving import make_server

from boyd.models import Model
from boyd_api.mcp.assistant_resources import AssistantPrompt
from boyd_api.mcp.assistant_tool import (
    TASKS,
    AssistantRequest,
    AssistantTool,
    TaskState,
    TaskStatus,
)
from boyd_api.mcp.mcp_server import McpServer
from boyd_api.mcp.protocol_message import McpRefusal
from npm_kit import conformance

_Result = dict[str, Any]
#: How the suite says that nothing came before it stopped to wait.
_MISSED = re.compile(r"\bframes\b|frame structures")


class Anything(Model):
    """Arguments of which each is optional."""

    name: str = ""
    seconds: float = 0
    label: str = ""
    filename: str = ""


def tool_result(*texts: str, failed: bool = False) -> _Result:
    """The result of a tool."""
    return {"content": [{"type": "text", "text": text} for text in texts], "isError": failed}


def _elicitation(message: str, name: str) -> _Result:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def _lacking(**capabilities: Any) -> McpRefusal:
    data: Any = {"requiredCapabilities": capabilities}
    return McpRefusal(MISSING_REQUIRED_CLIENT_CAPABILITY, "missing", status=400, data=data)


@dataclass
class MadeTask:
    """A task of a test: it ends at *until*, or when everything it asks for was answered."""

    state: TaskState
    end: Mapping[str, Any]
    until: datetime | None = None


@dataclass
class MadeTasks:
    """Tasks in memory."""

    known: dict[str, MadeTask] = field(default_factory=dict)

    def begin(self, seconds: float | None, asks: Mapping[str, Any] | None, **end: Any) -> TaskState:
        """A new task that ends so."""
        now = datetime.now(UTC)
        status: TaskStatus = "input_required" if asks else "working"
        state = TaskState(uuid.uuid4().hex, status, "begun", now, now, 60_000, 100, asks=asks)
        until = None if seconds is None else now + timedelta(seconds=seconds)
        self.known[state.id] = MadeTask(state, end, until)
        return state

    def get(self, request: AssistantRequest, name: str) -> TaskState:
        task = self._find(name)
        if task.state.status == "working" and (not task.until or task.until <= datetime.now(UTC)):
            task.state = replace(task.state, **task.end)
        return task.state

    def update(self, request: AssistantRequest, name: str, answers: object) -> None:
        task = self._find(name)
        assert isinstance(answers, dict)
        left = {key: ask for key, ask in (task.state.asks or {}).items() if key not in answers}
        status: TaskStatus = "input_required" if left else "working"
        task.state = replace(task.state, status=status, asks=left or None)

    def cancel(self, request: AssistantRequest, name: str) -> None:
        if self.get(request, name).status in ("working", "input_required"):
            task = self._find(name)
            task.state = replace(task.state, status="cancelled", asks=None)

    def _find(self, name: str) -> MadeTask:
        if name not in self.known:
            raise McpRefusal(INVALID_PARAMS, "no such task")
        return self.known[name]


TASKS_HERE = MadeTasks()


def greet(request: AssistantRequest, arguments: Anything) -> _Result:
    """Greet."""
    return tool_result(f"Hello, {arguments.name}!")


def slow_compute(request: AssistantRequest, arguments: Anything) -> _Result | TaskState:
    """Take its time."""
    if not request.takes_tasks:
        return tool_result("done")
    return TASKS_HERE.begin(arguments.seconds, None, status="completed", result=tool_result("done"))


def failing_job(request: AssistantRequest, arguments: Anything) -> TaskState:
    """Fail, as a task only."""
    if not request.takes_tasks:
        raise _lacking(extensions={TASKS: {}})
    return TASKS_HERE.begin(
        0.3, None, status="completed", result=tool_result("failed", failed=True)
    )


def protocol_error_job(request: AssistantRequest, arguments: Anything) -> TaskState:
    """Fail as a request does."""
    error = {"code": INTERNAL_ERROR, "message": "broken"}
    return TASKS_HERE.begin(0.3, None, status="failed", error=error)


def confirm_delete(request: AssistantRequest, arguments: Anything) -> TaskState:
    """Ask once."""
    asks = {uuid.uuid4().hex: _elicitation("Delete?", "confirm")}
    return TASKS_HERE.begin(None, asks, status="completed", result=tool_result("deleted"))


def multi_input(request: AssistantRequest, arguments: Anything) -> TaskState:
    """Ask twice."""
    asks = {uuid.uuid4().hex: _elicitation("Who?", "name") for _ in range(2)}
    return TASKS_HERE.begin(None, asks, status="completed", result=tool_result("thanks"))


def with_task(request: AssistantRequest, arguments: Anything) -> _Result | TaskState:
    """Ask, and go on as a task."""
    answers = request.message.params.get("inputResponses") or {}
    if "who" not in answers:
        ask = {"who": _elicitation("Who?", "name")}
        return {"resultType": "input_required", "inputRequests": ask}
    name = answers["who"]["content"]["name"]
    return TASKS_HERE.begin(0, None, status="completed", result=tool_result(f"for {name}"))


def needs_sampling(request: AssistantRequest, arguments: Anything) -> _Result:
    """Need what no client here has."""
    if "sampling" not in request.message.capabilities:
        raise _lacking(sampling={})
    return tool_result("sampled")


def error(request: AssistantRequest, arguments: Anything) -> _Result:
    """Fail."""
    return tool_result("This tool intentionally returns an error for testing", failed=True)


def _fixture_tool(name: str, result: _Result) -> AssistantTool:
    def run(request: AssistantRequest, arguments: Anything) -> _Result:
        """Answer always the same."""
        return result

    return AssistantTool(name, run, Anything)


_TEXT = "This is a simple text response for testing."
TOOLS = (
    AssistantTool("greet", greet, Anything),
    AssistantTool("slow_compute", slow_compute, Anything),
    AssistantTool("failing_job", failing_job, Anything),
    AssistantTool("protocol_error_job", protocol_error_job, Anything),
    AssistantTool("confirm_delete", confirm_delete, Anything),
    AssistantTool("multi_input", multi_input, Anything),
    AssistantTool("test_tool_with_task", with_task, Anything),
    AssistantTool("test_missing_capability", needs_sampling, Anything),
    AssistantTool("test_error_handling", error, Anything),
    _fixture_tool("test_simple_text", tool_result(_TEXT)),
    _fixture_tool("test_streaming_elicitation", tool_result("one frame")),
    _fixture_tool("test_logging_tool", tool_result("nothing logged")),
)


class MadeResources:
    """The resources that the suite reads."""

    def list(self, request: AssistantRequest, cursor: str | None) -> _Result:
        return {"resources": [{"uri": "test://static-text", "name": "text"}]}

    def templates(self) -> _Result:
        template = {"uriTemplate": "test://template/{id}/data", "name": "data"}
        return {"resourceTemplates": [template]}

    def read(self, request: AssistantRequest, uri: str) -> _Result:
        kind: _Result = {"uri": uri, "mimeType": "text/plain"}
        if uri == "test://static-text":
            content = {**kind, "text": "This is the content of the static text resource."}
        elif uri == "test://template/123/data":
            document = {"id": "123", "templateTest": True, "data": "Data for ID: 123"}
            content = {**kind, "mimeType": "application/json", "text": json.dumps(document)}
        else:
            raise McpRefusal(INVALID_PARAMS, "no such resource", data={"uri": uri})
        return {"contents": [content]}


def _prompt(name: str, text: Callable[[Mapping[str, str]], str], *names: str) -> AssistantPrompt:
    return AssistantPrompt(name, "For the suite.", dict.fromkeys(names, "text"), text)


PROMPTS = (
    _prompt("test_simple_prompt", lambda _: "This is a simple prompt for testing."),
    _prompt(
        "test_prompt_with_arguments",
        lambda arguments: (
            f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"
        ),
        "arg1",
        "arg2",
    ),
)


@contextmanager
def suite_server() -> Iterator[str]:
    """Serve what the suite expects, without keys; the address."""
    app = Flask("suite")
    server = McpServer(TOOLS, MadeResources(), TASKS_HERE, PROMPTS)

    class Open:
        """An admitted request without a key."""

        key = None

    @app.post("/mcp")
    def answer() -> Response:
        status, body = server.respond(Open(), request.get_data(), request.headers)  # type: ignore[arg-type]
        text = "" if body is None else json.dumps(body)
        return Response(text, status, mimetype="application/json")

    running = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.port}/mcp"
    finally:
        running.shutdown()
        thread.join()


def failures(url: str, scenario: str, version: str, folder: Path) -> list[str]:
    """Run a scenario of the official suite; the checks that did not succeed.

    The suite itself waits half a second for the frames of some answers, which a busy machine does
    not always keep: if nothing but frames was missed, it is tried again, twice. Whatever else
    fails, fails at once. Scenarios of extensions belong to no *version*.
    """
    chosen = [] if scenario.startswith("tasks-") else ["--spec-version", version]
    messages: list[str] = []
    for attempt in range(3):
        checked = folder / str(attempt)
        checked.mkdir()
        messages = _failures(url, scenario, chosen, checked)
        if not messages or not all(_MISSED.search(message) for message in messages):
            break
    return messages


def _failures(url: str, scenario: str, chosen: Sequence[str], folder: Path) -> list[str]:
    ran = conformance(
        *("server", "--url", url, "--scenario", scenario, *chosen, "--output-dir", str(folder)),
        cwd=folder,
    )
    result = list(folder.rglob("checks.json"))
    checks = json.loads(result[0].read_text()) if result else []
    bad = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    messages = [f"{check['name']}: {check.get('errorMessage')}" for check in bad]
    passed = [check for check in checks if check["status"] == "SUCCESS"]
    return messages or ([] if passed and ran.returncode == 0 else [ran.stdout + ran.stderr])


def rpc_parts(method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers of a request of a client that knows everything."""
    meta = {
        PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
        CLIENT_CAPABILITIES_META_KEY: {"extensions": {TASKS: {}}, "elicitation": {"url": {}}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}
    name = params.get("name") or params.get("uri") or params.get("taskId")
    headers = {"MCP-Protocol-Version": LATEST_MODERN_VERSION, "Mcp-Method": method}
    return body, headers | ({"Mcp-Name": str(name)} if name else {})


def rpc(url: str, key: Mapping[str, str], method: str, **params: Any) -> Any:
    """The result of a request to an API."""
    body, headers = rpc_parts(method, **params)
    answer = requests.post(f"{url}/mcp", json=body, headers={**headers, **key}, timeout=60)
    assert "result" in answer.json(), answer.text
    return answer.json()["result"]
