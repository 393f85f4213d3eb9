"""Failures of an MCP server: apart from the protocol, whose package is an extra."""

from __future__ import annotations

from typing import Any


class ServerFailure(Exception):
    """The server could not be reached, or did not behave; `sent`: the request may have arrived."""

    def __init__(self, message: str, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class RequestRefused(ServerFailure):
    """The server refused a request with an error of the protocol."""

    def __init__(self, message: str, code: int, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
