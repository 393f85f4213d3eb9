"""The lock file: what each server said of its tools when a person last looked at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from boyd.errors import ConfigError
from boyd.models import JsonObject, explain
from boyd.plugins.mcp_client.server_options import ServerName
from boyd.plugins.mcp_client.tool_check import MAX_TOOLS, ambiguous, digest, flaw

#: The most bytes of a lock file.
MAX_BYTES = 8_388_608


class LockedTool(BaseModel):
    """A server's description of a tool; the annotations are only shown, never trusted."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    digest: str
    description: str = ""
    schema_: JsonObject = Field(alias="inputSchema")
    annotations: JsonObject = Field(default_factory=dict)

    @classmethod
    def of(cls, description: str, schema: JsonObject, annotations: JsonObject) -> LockedTool:
        """The tool with its digest."""
        return cls(
            digest=digest(description, schema),
            description=description,
            schema_=schema,
            annotations=annotations,
        )


class LockedServer(BaseModel):
    """The tools of a server, and the revision of the protocol that it spoke."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: str
    tools: dict[str, LockedTool] = Field(default_factory=dict, max_length=MAX_TOOLS)


class ToolLock(BaseModel):
    """The content of a lock file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    servers: dict[ServerName, LockedServer] = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ToolLock:
        """Read a file; without one, no tool is known.

        Raises:
            ConfigError: it cannot be read, or is not what `boyd mcp sync` writes.
        """
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        try:
            if len(raw) > MAX_BYTES:
                raise ValueError(f"is longer than {MAX_BYTES} bytes")
            lock = cls.model_validate_json(raw)
            lock.check()
        except ValueError as error:
            problem = explain(error) if isinstance(error, ValidationError) else str(error)
            raise ConfigError(f"{path}: {problem}; run `boyd mcp sync`") from None
        return lock

    def check(self) -> None:
        """Check each tool as when it was written.

        Raises:
            ValueError: one has a flaw, or was edited.
        """
        for name, server in self.servers.items():
            for tool, locked in server.tools.items():
                problem = flaw(tool, locked.description, locked.schema_)
                if not problem and locked.digest != digest(locked.description, locked.schema_):
                    problem = "its digest is not that of its description and schema"
                if not problem and ambiguous(server.tools.keys()):
                    problem = "another tool has a name that can be mistaken for its own"
                if problem:
                    raise ValueError(f"{name}/{tool}: {problem}")

    def write(self, path: Path) -> None:
        """Replace the file."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), indent=2, sort_keys=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(f"{text}\n", encoding="utf-8")
        temporary.replace(path)
