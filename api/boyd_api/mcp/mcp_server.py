"""The methods of the Model Context Protocol, over whatever tools, resources and tasks there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    SERVER_INFO_META_KEY,
    methods,
)
from pydantic import ValidationError
from werkzeug.datastructures import Headers

from boyd.models import explain
from boyd.text.version import VERSION
from boyd_api.http.problems import problem_of
from boyd_api.http.request_context import RequestContext
from boyd_api.mcp.assistant_resources import AssistantPrompt
from boyd_api.mcp.assistant_tool import (
    TASKS,
    AssistantRequest,
    AssistantTool,
    TaskState,
    tool_error,
)
from boyd_api.mcp.protocol_message import VERSIONS, McpRefusal, read_envelope, read_message

_SERVER = {"name": "boyd", "title": "Boyd", "version": VERSION}
_CAPABILITIES: Mapping[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
#: Milliseconds for which clients may keep what only another release changes.
_LASTING = 300_000
#: The refusal of a key of a person.
_PERSON = (
    "the key {!r} belongs to a person: an assistant may not act as its user; create one without"
    " --person for it"
)
_Result = dict[str, Any]


class Resources(Protocol):
    """Whatever can be read by address."""

    def list(self, request: AssistantRequest, cursor: str | None) -> _Result:
        """A page of the resources with a fixed address."""

    def templates(self) -> _Result:
        """The addresses of further resources."""

    def read(self, request: AssistantRequest, uri: str) -> _Result:
        """A resource; raises `McpRefusal` if there is none at that address."""


class Tasks(Protocol):
    """Whatever goes on after the answer to a tool call."""

    def get(self, request: AssistantRequest, name: str) -> TaskState:
        """The state of a task; raises `McpRefusal` if the caller has none of that name."""

    def update(self, request: AssistantRequest, name: str, answers: object) -> None:
        """Take the client's answers to what the task asks for; raises `McpRefusal` likewise."""

    def cancel(self, request: AssistantRequest, name: str) -> None:
        """End a task, if that is possible; raises `McpRefusal` likewise."""


@dataclass(frozen=True)
class McpServer:
    """Answers requests of the protocol; it remembers nothing between them."""

    tools: Sequence[AssistantTool]
    resources: Resources
    tasks: Tasks
    prompts: Sequence[AssistantPrompt] = ()
    instructions: str = ""

    def respond(
        self, http: RequestContext, body: bytes, headers: Headers
    ) -> tuple[int, _Result | None]:
        """The HTTP status and the JSON-RPC response to a message, if it gets one."""
        id = None
        try:
            envelope = read_envelope(body)
            id = envelope.id
            if http.key is not None and http.key.person:
                raise McpRefusal(403, _PERSON.format(http.key.name), status=403)
            if id is None:
                return 202, None
            request = AssistantRequest(read_message(envelope, headers), http)
            return 200, {"jsonrpc": "2.0", "id": id, "result": self.answer(request)}
        except McpRefusal as refusal:
            status, error = refusal.status, refusal.to_wire()
        except Exception as cause:  # noqa: BLE001  # any error becomes a JSON-RPC error
            problem = problem_of(cause)
            status, error = problem.kind.status, {"code": INTERNAL_ERROR, "message": str(problem)}
        return status, {"jsonrpc": "2.0", "id": id, "error": error}

    def answer(self, request: AssistantRequest) -> _Result:
        """The result of a request; raises `McpRefusal`."""
        message = request.message
        run = self._methods(message.is_modern).get(message.method)
        if run is None:
            status = 404 if message.is_modern else 200
            problem = f"no method {message.method[:100]!r}"
            raise McpRefusal(METHOD_NOT_FOUND, problem, status=status)
        if message.method.startswith("tasks/"):
            return _complete(run(request))
        try:
            methods.validate_client_request(message.method, message.version, message.params)
        except ValidationError as error:
            raise McpRefusal(INVALID_PARAMS, explain(error)[:2000]) from None
        result = run(request)
        if result.get("resultType") == "task":
            return _complete(result)
        whole = _complete(result) if message.is_modern else result
        return methods.serialize_server_result(message.method, message.version, whole)

    def _methods(self, modern: bool) -> Mapping[str, Callable[[AssistantRequest], _Result]]:
        common = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": lambda _: {**self.resources.templates(), **_lasting()},
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
        }
        if not modern:
            return {"initialize": self._initialize, "ping": lambda _: {}, **common}
        tasks = {
            "tasks/get": self._get_task,
            "tasks/update": self._update_task,
            "tasks/cancel": self._cancel_task,
        }
        return {"server/discover": self._discover, **common, **tasks}

    def _discover(self, _: AssistantRequest) -> _Result:
        description = {"supportedVersions": list(VERSIONS), "instructions": self.instructions}
        capabilities = {**_CAPABILITIES, "extensions": {TASKS: {}}}
        return {**description, "capabilities": capabilities, **_lasting()}

    def _initialize(self, request: AssistantRequest) -> _Result:
        return {
            "protocolVersion": request.message.version,
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER,
            "instructions": self.instructions,
        }

    def _list_tools(self, request: AssistantRequest) -> _Result:
        return {"tools": [tool.info for tool in self._tools_for(request)], **_lasting()}

    def _call_tool(self, request: AssistantRequest) -> _Result:
        name = request.message.params["name"]
        tool = next((tool for tool in self._tools_for(request) if tool.name == name), None)
        if tool is None:
            detail = f"no tool {name[:100]!r}, or the key lacks its scope"
            raise McpRefusal(INVALID_PARAMS, detail)
        try:
            result = tool.call(request, request.message.params.get("arguments") or {})
        except McpRefusal:
            raise
        except ValidationError as error:
            return tool_error(f"invalid arguments: {explain(error)}")
        except ValueError as error:
            return tool_error(str(error))
        except Exception as error:  # noqa: BLE001  # any error becomes an answer
            problem = problem_of(error)
            if problem.kind.name == "internal":
                raise McpRefusal(INTERNAL_ERROR, str(problem), status=500) from None
            wait = problem.headers.get("Retry-After")
            again = f"; try again in {wait} s" if wait else ""
            return tool_error(f"{problem}{again}")
        if isinstance(result, TaskState):
            return {"resultType": "task", **result.handle}
        return result

    def _tools_for(self, request: AssistantRequest) -> Sequence[AssistantTool]:
        return [tool for tool in self.tools if request.allows(tool.scope)]

    def _list_resources(self, request: AssistantRequest) -> _Result:
        return {**self.resources.list(request, request.message.params.get("cursor")), **_fresh()}

    def _read_resource(self, request: AssistantRequest) -> _Result:
        return {**self.resources.read(request, request.message.params["uri"]), **_fresh()}

    def _list_prompts(self, _: AssistantRequest) -> _Result:
        return {"prompts": [prompt.info for prompt in self.prompts], **_lasting()}

    def _get_prompt(self, request: AssistantRequest) -> _Result:
        name, arguments = request.message.params["name"], request.message.params.get("arguments")
        prompt = next((prompt for prompt in self.prompts if prompt.name == name), None)
        if prompt is None:
            raise McpRefusal(INVALID_PARAMS, f"no prompt {name[:100]!r}")
        return prompt.messages(arguments or {})

    def _get_task(self, request: AssistantRequest) -> _Result:
        return self.tasks.get(request, _task(request)).to_wire()

    def _update_task(self, request: AssistantRequest) -> _Result:
        answers = request.message.params.get("inputResponses")
        name = _task(request)
        if not isinstance(answers, dict):
            raise McpRefusal(INVALID_PARAMS, "inputResponses must be an object")
        self.tasks.update(request, name, answers)
        return {}

    def _cancel_task(self, request: AssistantRequest) -> _Result:
        self.tasks.cancel(request, _task(request))
        return {}


def _task(request: AssistantRequest) -> str:
    """The name of the task of a request, whose client knows tasks."""
    if not request.takes_tasks:
        data: Any = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        problem = f"the client has not declared {TASKS}"
        raise McpRefusal(MISSING_REQUIRED_CLIENT_CAPABILITY, problem, status=400, data=data)
    name = request.message.params.get("taskId")
    if not isinstance(name, str):
        raise McpRefusal(INVALID_PARAMS, "taskId must be text")
    return name


def _complete(result: _Result) -> _Result:
    return {"resultType": "complete", **result, "_meta": {SERVER_INFO_META_KEY: _SERVER}}


def _lasting() -> _Result:
    return {"ttlMs": _LASTING, "cacheScope": "private"}


def _fresh() -> _Result:
    return {"ttlMs": 0, "cacheScope": "private"}
