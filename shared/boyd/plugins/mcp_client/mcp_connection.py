"""The protocol on a connection to an MCP server: agree on a revision, list tools, call one.

The messages are those of `mcp-types`, the transport is Boyd's own: each call has one deadline, and
HTTP goes through the guarded session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, Protocol, TypeVar

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    DiscoverResult,
    InitializeResult,
    ListToolsResult,
    Tool,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import BaseModel, ValidationError

from boyd.models import JsonObject, explain
from boyd.plugins.mcp_client.remote_server import RequestRefused, ServerFailure
from boyd.text.json_limits import check_values
from boyd.text.version import VERSION

#: The most bytes of a message, and of all messages of a connection.
MAX_MESSAGE = 2_097_152
MAX_RECEIVED = 8_388_608
#: The most pages and tools of a list.
MAX_PAGES = 50
MAX_LISTED = 1000
#: The most seconds of the attempt with the newest revision.
PROBE = 5.0
#: The most characters that are shown of what is no message.
EXCERPT = 80
METHOD_NOT_FOUND = -32601
VERSION_HEADER = "MCP-Protocol-Version"

_M = TypeVar("_M", bound=BaseModel)
_CLIENT = {"name": "boyd", "version": VERSION}


class Deadline:
    """The time by which everything has to be done."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Seconds until then; never negative."""
        return max(0.0, self._at - time.monotonic())

    def within(self, seconds: float) -> Deadline:
        """An earlier one, if *seconds* are less than what is left."""
        return Deadline(min(seconds, self.seconds_left()))


class MessageWire(Protocol):
    """Carries messages to a server and back; every method raises `ServerFailure`."""

    def exchange(
        self, message: JsonObject, headers: Mapping[str, str], until: Deadline
    ) -> JsonObject:
        """Send a request; the response to it."""

    def send(self, message: JsonObject, headers: Mapping[str, str], until: Deadline) -> None:
        """Send a notification."""

    def close(self) -> None:
        """End the connection and whatever it has started."""


def parse_message(text: str | bytes) -> JsonObject:
    """The message in *text*.

    Raises:
        ServerFailure: it is none.
    """
    try:
        check_values(text)
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise _no_message(text) from None
    if not isinstance(message, dict):
        raise _no_message(text)
    return message


def _no_message(text: str | bytes) -> ServerFailure:
    beginning = text[:EXCERPT]
    if isinstance(beginning, bytes):
        beginning = beginning.decode("utf-8", "replace")
    return ServerFailure(f"it sent something that is not a message: {beginning!r}", sent=True)


def reply_to(message: JsonObject) -> JsonObject | None:
    """The answer to a request of the server: there is nothing that it may ask for but a ping."""
    if "method" not in message or message.get("id") is None:
        return None
    answer: JsonObject = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "ping":
        return {**answer, "result": {}}
    return {**answer, "error": {"code": METHOD_NOT_FOUND, "message": "not offered by this client"}}


def _is_other_revision(failure: ServerFailure) -> bool:
    return isinstance(failure, RequestRefused) and failure.code == UNSUPPORTED_PROTOCOL_VERSION


def _common_revisions(refusal: RequestRefused) -> list[str]:
    """The revisions that we share with a server, by its refusal of another one; newest last."""
    offered = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    if not _is_other_revision(refusal) or not isinstance(offered, list):
        return []
    return [revision for revision in MODERN_PROTOCOL_VERSIONS if revision in offered]


class McpConnection:
    """A conversation with a server, until a deadline."""

    def __init__(self, wire: MessageWire, until: Deadline, revision: str = "") -> None:
        """Agree on a revision of the protocol; try *revision* first.

        Raises:
            ServerFailure: there is no answer, or no common revision.
        """
        self._wire = wire
        self._until = until
        self._ids = count(1)
        self.revision = ""
        if revision in HANDSHAKE_PROTOCOL_VERSIONS:
            self._first_initialize()
        else:
            self._first_discover()

    def _first_discover(self) -> None:
        try:
            self._discover(self._until.within(PROBE))
        except ServerFailure as why:
            try:
                self._initialize()
            except ServerFailure as failure:
                # A server that knows only newer revisions says more in its first answer.
                if _is_other_revision(why):
                    raise why from None
                # One that was too slow for the first attempt goes on as that began.
                if isinstance(why, RequestRefused) or not _is_other_revision(failure):
                    raise failure from None
                self._discover(self._until)

    def _first_initialize(self) -> None:
        try:
            self._initialize()
        except RequestRefused:
            self._discover(self._until)

    def _discover(self, until: Deadline) -> None:
        self.revision = MODERN_PROTOCOL_VERSIONS[-1]
        try:
            result = self._ask("server/discover", {}, DiscoverResult, until=until)
        except RequestRefused as refusal:
            # A server may refuse the first request whatever its revision, to name what it speaks.
            common = _common_revisions(refusal)
            if not common:
                raise
            self.revision = common[-1]
            result = self._ask("server/discover", {}, DiscoverResult, until=until)
        if self.revision not in result.supported_versions:
            raise ServerFailure("it speaks no revision of the protocol that Boyd knows")

    def _initialize(self) -> None:
        self.revision = ""
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": _CLIENT,
        }
        result = self._ask("initialize", params, InitializeResult)
        if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise ServerFailure("it speaks no revision of the protocol that Boyd knows")
        self.revision = str(result.protocol_version)
        ready: JsonObject = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self._wire.send(ready, self._headers("notifications/initialized", {}), self._until)

    def tools(self) -> list[Tool]:
        """All tools that the server offers now.

        Raises:
            ServerFailure: it gives no list, or one that is too long.
        """
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = {"cursor": cursor} if cursor else {}
            page = self._ask("tools/list", params, ListToolsResult)
            tools += page.tools
            cursor = page.next_cursor
            if len(tools) > MAX_LISTED:
                break
            if not cursor:
                return tools
        raise ServerFailure(f"it offers more than {MAX_LISTED} tools, or its list does not end")

    def call(
        self, tool: str, arguments: Mapping[str, Any], headers: Mapping[str, str]
    ) -> CallToolResult:
        """Call a tool, once; *headers* repeat some arguments.

        Raises:
            ServerFailure: it failed; if `sent`, the outcome is unknown.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        extra = {"Mcp-Name": tool, **headers} if self._is_modern else {}
        return self._ask("tools/call", params, CallToolResult, extra)

    @property
    def _is_modern(self) -> bool:
        return self.revision in MODERN_PROTOCOL_VERSIONS

    def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        shape: type[_M],
        headers: Mapping[str, str] | None = None,
        until: Deadline | None = None,
    ) -> _M:
        message: JsonObject = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**params, **self._meta()},
        }
        mirrored = self._headers(method, headers or {})
        response = self._wire.exchange(message, mirrored, until or self._until)
        if isinstance(refused := response.get("error"), dict):
            code, text = refused.get("code"), " ".join(str(refused.get("message", "")).split())
            code = code if isinstance(code, int) else 0
            raise RequestRefused(f"it refused {method}: {text[:500]}", code, refused.get("data"))
        result = response.get("result")
        kind = result.get("resultType", "complete") if isinstance(result, dict) else "complete"
        if kind != "complete":
            problem = f"it answered {method} with {str(kind)[:50]!r}, and Boyd answers no questions"
            raise ServerFailure(problem)
        try:
            return shape.model_validate(result)
        except ValidationError as error:
            problem = f"its answer to {method} is not valid: {explain(error)[:300]}"
            raise ServerFailure(problem, sent=True) from None

    def _meta(self) -> JsonObject:
        if not self._is_modern:
            return {}
        return {
            "_meta": {
                PROTOCOL_VERSION_META_KEY: self.revision,
                CLIENT_INFO_META_KEY: dict(_CLIENT),
                CLIENT_CAPABILITIES_META_KEY: {},
            }
        }

    def _headers(self, method: str, more: Mapping[str, str]) -> dict[str, str]:
        if not self.revision:
            return {}
        headers = {VERSION_HEADER: self.revision}
        return {**headers, "Mcp-Method": method, **more} if self._is_modern else headers
