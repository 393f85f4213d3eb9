"""Messages of the Model Context Protocol: read and checked, each by itself.

Revision 2026-07-28 repeats version and capabilities in every request, mirrored in headers. Clients
of earlier revisions open with `initialize`, and are served without a session.

The official types check parameters and results; the transport of the official SDK is ASGI, while
this API is WSGI, so what is around them is read here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from werkzeug.datastructures import Headers

from boyd import intake
from boyd.models import JsonObject
from boyd.text.json_limits import MAX_VALUES

#: The versions that we serve, newest first; before 2025-03-26 the transport was another one.
VERSIONS = (*reversed(MODERN_PROTOCOL_VERSIONS), *reversed(HANDSHAKE_PROTOCOL_VERSIONS[1:]))
#: What a request means that names no version in any way.
_UNNAMED = "2025-03-26"
#: The parameter that the header `Mcp-Name` repeats, by method.
_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_BEGIN, _END = "=?base64?", "?="


class McpRefusal(Exception):
    """Raised to answer a message with a JSON-RPC error, and that HTTP status."""

    def __init__(
        self, code: int, message: str, *, status: int = 200, data: JsonObject | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.data = data

    def to_wire(self) -> dict[str, Any]:
        """The error object."""
        data = {} if self.data is None else {"data": self.data}
        return {"code": self.code, "message": str(self), **data}


@dataclass(frozen=True)
class McpMessage:
    """A message; one without an id is a notification, which gets no answer.

    Attributes:
        version: the revision of the protocol by which it is meant.
        capabilities: those of the client, which earlier revisions do not repeat.
    """

    method: str
    version: str
    id: int | str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_modern(self) -> bool:
        """True from revision 2026-07-28 on."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    def extends(self, extension: str) -> bool:
        """Look for *extension* among the capabilities of the client."""
        return self.is_modern and extension in _object(self.capabilities.get("extensions"))

    @property
    def opens_pages(self) -> bool:
        """True if the client can show its user a link to a page."""
        return self.is_modern and "url" in _object(self.capabilities.get("elicitation"))


@dataclass(frozen=True)
class Envelope:
    """A JSON-RPC message whose meaning is still unread."""

    method: str
    id: int | str | None
    params: dict[str, Any]


def read_envelope(body: bytes) -> Envelope:
    """Read one JSON-RPC request or notification; raises `McpRefusal`."""
    try:
        value = intake.read_json(body, MAX_VALUES)
    except intake.BadIntake as error:
        raise McpRefusal(PARSE_ERROR, f"the body is {error}", status=400) from None
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise _invalid("the body must be one JSON-RPC 2.0 message, not a list")
    method, id, params = value.get("method"), value.get("id"), value.get("params", {})
    if not isinstance(method, str):
        raise _invalid("a message without a method is no request; clients send no responses")
    if "id" in value and (isinstance(id, bool) or not isinstance(id, int | str)):
        raise _invalid("the id of a request must be text or a whole number")
    if not isinstance(params, dict):
        raise _invalid("params must be an object")
    return Envelope(method, id, params)


def read_message(envelope: Envelope, headers: Headers) -> McpMessage:
    """Read version and capabilities, and check the headers; raises `McpRefusal`."""
    meta = _object(envelope.params.get("_meta"))
    revision, header = meta.get(PROTOCOL_VERSION_META_KEY), headers.get("MCP-Protocol-Version")
    if revision is None and header not in MODERN_PROTOCOL_VERSIONS:
        version = header or str(envelope.params.get("protocolVersion") or _UNNAMED)
        if envelope.method == "initialize":
            version = version if version in VERSIONS[1:] else VERSIONS[1]
        _check_known(version)
        return McpMessage(envelope.method, version, envelope.id, envelope.params)
    capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY)
    if not isinstance(revision, str) or not isinstance(capabilities, dict):
        missing = f"_meta must have {PROTOCOL_VERSION_META_KEY} and {CLIENT_CAPABILITIES_META_KEY}"
        raise McpRefusal(INVALID_PARAMS, missing, status=400)
    _check_header("MCP-Protocol-Version", header, revision)
    _check_known(revision)
    if revision not in MODERN_PROTOCOL_VERSIONS:
        raise _invalid(f"revision {revision} has no requests with a version of their own")
    _check_header("Mcp-Method", headers.get("Mcp-Method"), envelope.method)
    parameter = _NAMED.get(envelope.method)
    if parameter is not None and parameter in envelope.params:
        name = headers.get("Mcp-Name")
        name = name and _decode(name.strip(" \t"))
        _check_header("Mcp-Name", name, envelope.params[parameter])
    return McpMessage(envelope.method, revision, envelope.id, envelope.params, capabilities)


def _check_known(version: str) -> None:
    if version not in VERSIONS:
        data: JsonObject = {"supported": list(VERSIONS), "requested": version}
        problem = f"unsupported protocol version {version[:50]!r}"
        raise McpRefusal(UNSUPPORTED_PROTOCOL_VERSION, problem, status=400, data=data)


def _check_header(name: str, value: str | None, expected: object) -> None:
    """Raise `McpRefusal` unless a header repeats the body: proxies decide by headers."""
    if value is None:
        raise McpRefusal(HEADER_MISMATCH, f"the header {name} is missing", status=400)
    if value.strip(" \t") != expected:
        problem = f"the header {name} does not match the body"
        raise McpRefusal(HEADER_MISMATCH, problem, status=400)


def _decode(header: str) -> str:
    """The value of a header that may be Base64 of UTF-8, marked as such."""
    if not (header.startswith(_BEGIN) and header.endswith(_END)):
        return header
    try:
        return base64.b64decode(header[len(_BEGIN) : -len(_END)], validate=True).decode()
    except (binascii.Error, ValueError):
        raise McpRefusal(HEADER_MISMATCH, "the header Mcp-Name is no Base64", status=400) from None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _invalid(problem: str) -> McpRefusal:
    return McpRefusal(INVALID_REQUEST, problem, status=400)
