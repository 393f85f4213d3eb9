"""An MCP server as the agent file describes it, with the rules for its tools, and its failures.

Nothing here needs `mcp-types`, which is an extra.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from boyd.models import LEVELS, Autonomy, AutonomyMode, Level
from boyd.plugin import Secret
from boyd.plugins.http_service import HttpAccess
from boyd.settings.validation import BaseUrl

#: No underscore: models call a tool `<server>_<tool>`, and no other pair may give the same name.
ServerName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Home = Annotated[Path, AfterValidator(Path.expanduser)]

#: The level of a tool of which the agent file says nothing.
DEFAULT_RISK: Level = "high"


class ToolPin(BaseModel):
    """The rules of the agent file for a tool. Whatever eases the default needs the digest.

    Attributes:
        digest: of the description and the schema that this was decided for.
        risk: the risk of the tool as an action.
        autonomy: who decides on a call, as for any action.
        read_only: whether it changes nothing.
        idempotent: whether it may be called again after its outcome was lost.
        target: the parameter that names what it acts on, for budgets.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: Digest | None = None
    risk: Level = DEFAULT_RISK
    autonomy: AutonomyMode = "approval-required"
    read_only: bool = False
    idempotent: bool = False
    target: str | None = None

    @model_validator(mode="after")
    def _require_digest(self) -> Self:
        lower = LEVELS.index(self.risk) < LEVELS.index(DEFAULT_RISK)
        eased = [
            *(["risk"] if lower else []),
            *(["autonomy"] if self.autonomy == "auto" else []),
            *(name for name in ("read_only", "idempotent") if getattr(self, name)),
        ]
        if eased and self.digest is None:
            raise ValueError(
                f"{', '.join(eased)}: needs the `digest` it is set for; `boyd mcp list` shows it"
            )
        return self

    def for_digest(self, digest: str) -> ToolPin:
        """The rules that hold for a tool with that digest: nothing eased for another one does."""
        if self.digest in (None, digest):
            return self
        strict: AutonomyMode = (
            "human-only" if self.autonomy == "human-only" else "approval-required"
        )
        return ToolPin(
            risk=max(self.risk, DEFAULT_RISK, key=LEVELS.index),
            autonomy=strict,
            target=self.target,
        )

    @property
    def gate(self) -> Autonomy:
        """When the tool may be called without a person."""
        return Autonomy(mode=self.autonomy)


class RemoteServer(BaseModel):
    """An MCP server: one at *url* (streamable HTTP), or a program that is started for each call.

    Attributes:
        url: of a server that runs already, over HTTP.
        access: credentials for HTTP.
        headers: secrets that are sent as HTTP headers, by the header's name.
        allow_private: allow addresses that are not public.
        argv: the program and its arguments, without a shell.
        cwd: the folder it is started in; that of the agent file if absent.
        env: its environment, besides a few variables such as PATH and HOME.
        secrets: secrets in its environment, by the variable's name.
        timeout: seconds for one call, with everything that it takes.
        include: patterns of the tools to use.
        queue: the queue of the workers that can reach it; any worker if absent.
        tools: what is decided about single tools.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: BaseUrl | None = None
    access: HttpAccess = HttpAccess()
    headers: dict[str, Secret] = Field(default_factory=dict)
    allow_private: bool = False
    argv: list[str] = Field(default_factory=list)
    cwd: Home | None = None
    env: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, Secret] = Field(default_factory=dict)
    timeout: float = Field(default=60.0, gt=0, le=3600)
    include: list[str] = ["*"]
    queue: str | None = None
    tools: dict[str, ToolPin] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.url is None) == (not self.argv):
            raise ValueError("needs either `url` or `argv`")
        http = {"access", "headers", "allow_private"}
        needless = self.model_fields_set & ({"cwd", "env", "secrets"} if self.url else http)
        if needless:
            kind = "argv" if self.url else "url"
            raise ValueError(f"{', '.join(sorted(needless))}: only with `{kind}`")
        return self

    def includes(self, tool: str) -> bool:
        """Report whether that tool is used."""
        return any(fnmatchcase(tool, pattern) for pattern in self.include)


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
