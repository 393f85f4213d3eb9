"""Actions: their catalog and sandboxes, calls of clients, executions and results."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

from boyd.models.actor import Actor
from boyd.models.base import Confidence, Duration, Json, JsonObject, Level, Model, Timestamp
from boyd.models.effect import EarnedAutonomy, EffectVerification, VerificationPlan
from boyd.text.formatting import counted

#: What an action went beyond: a limit, its writable folders, or its destinations.
LimitName = Literal["cpu", "memory", "processes", "file size", "files", "network", "time"]

_DESTINATION = re.compile(r"(?=.{1,253}:)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?:(\d{1,5})")
_MEGABYTE = 1_000_000


def _folder(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or path == PurePosixPath("/"):
        raise ValueError(f"{text!r} is not an absolute path of a folder below the root")
    return str(path)


def _destination(text: str) -> str:
    match = _DESTINATION.fullmatch(text)
    if match is None or not 0 < int(match[1]) < 65536:
        raise ValueError(f"{text!r} is not a destination such as api.example.com:443")
    return text.lower()


Folder = Annotated[str, AfterValidator(_folder)]
Destination = Annotated[str, AfterValidator(_destination)]


class Sandbox(Model):
    """The limits of a process that executes an action; an absent one does not limit it.

    Attributes:
        user: the user it runs as; absent: that of the worker.
        cpu: seconds of CPU time of each process.
        memory: bytes of address space of each process.
        processes: how many processes and threads there may be at the same time.
        file_size: bytes of the largest file it may write.
        time: seconds it may take; the time limit of the action, if that is shorter.
        files: folders in which it may write, besides a temporary one of its own.
        network: destinations (`host:port`) it may connect to by TCP, or `any`.
        violations: how many violations within `window` seconds suspend the action.
    """

    user: str | None = Field(default=None, min_length=1)
    cpu: int | None = Field(default=None, gt=0)
    memory: int | None = Field(default=None, ge=64 * _MEGABYTE)
    processes: int | None = Field(default=None, gt=0)
    file_size: int | None = Field(default=None, ge=0)
    time: float | None = Field(default=None, gt=0)
    files: list[Folder] = Field(default_factory=list)
    network: list[Destination] | Literal["any"] = Field(default_factory=list)
    violations: int = Field(default=3, gt=0)
    window: float = Field(default=3600.0, gt=0)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Its privileges and limits for people, by name."""
        any_address = "any address" if self.network == "any" else ""
        limits = {
            "cpu": self.cpu and f"{self.cpu} s",
            "time": self.time and f"{self.time:g} s",
            "memory": self.memory and f"{self.memory / _MEGABYTE:g} MB",
            "file size": None if self.file_size is None else f"{self.file_size / _MEGABYTE:g} MB",
            "processes": self.processes and str(self.processes),
        }
        return [
            ("user", self.user or "of the worker"),
            ("writes to", ", ".join(self.files) or "nothing"),
            ("reaches", any_address or ", ".join(self.network) or "nothing"),
            *((name, text) for name, text in limits.items() if text),
            ("suspended after", f"{counted(self.violations, 'violation')} in {self.window:g} s"),
        ]

    def tighten(self, ours: Sandbox) -> Self:
        """Copy the sandbox with the limits that *ours* sets.

        Raises:
            ValueError: one of them is looser; the message names it.
        """
        limits = {name: getattr(ours, name) for name in ours.model_fields_set}
        for name, value in limits.items():
            if not _is_tighter(name, getattr(self, name), value):
                raise ValueError(f"{name}: it is looser than what the action declares")
        return self.patched(limits)


def _is_tighter(name: str, declared: object, value: object) -> bool:
    """Check that the limit *value* allows nothing that the *declared* one does not."""
    if name == "user":
        return declared is None or declared == value
    if name == "network":
        within = isinstance(declared, list) and isinstance(value, list)
        return declared == "any" or (within and set(_texts(value)) <= set(_texts(declared)))
    if name == "files":
        folders = [PurePosixPath(text) for text in _texts(declared)]
        return all(any(PurePosixPath(g).is_relative_to(f) for f in folders) for g in _texts(value))
    if not isinstance(declared, int | float):
        return True
    if not isinstance(value, int | float):
        return False
    return value >= declared if name == "window" else value <= declared


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


class LimitViolation(Model):
    """An attempt of an action to go beyond its sandbox, which was prevented."""

    limit: LimitName
    detail: str


AutonomyMode = Literal["auto", "approval-required", "human-only"]
#: How far the effect of an action can be undone: it has none; its rollback undoes it; only others
#: can undo it, outside of Boyd; nothing can; nobody has declared it.
Reversibility = Literal[
    "read-only", "reversible", "externally-reversible", "irreversible", "unknown"
]
#: The reason why an action was not executed: a hook or guard, a freeze or revocation, the end of
#: its runs, a difference to what was approved, no worker, a hold, a closed window, a sandbox
#: that the host cannot enforce, that its target was well already, or a secret that cannot be read.
Prevention = Literal[
    "vetoed",
    "frozen",
    "revoked",
    "cancelled",
    "refused",
    "unserved",
    "held",
    "closed",
    "unsandboxed",
    "unneeded",
    "unresolved",
]

#: The error of a result that says that an action waits for a person.
APPROVAL_REQUIRED = "Approval required"
#: The metric in which its wire format names that approval.
_APPROVAL = "approvalId"
#: The start of the error of an action whose target was well already.
UNNEEDED = "Not needed any more: it was well already"
#: The start of the error of an action that a freeze has prevented.
FROZEN = "Actions are frozen"
#: The start of the error of an action that a revocation has prevented.
REVOKED = "The agent's right to act is revoked"


class Autonomy(Model):
    """When an action may run without a person."""

    mode: AutonomyMode = "auto"
    min_confidence: Confidence | None = None


class Budget(Model):
    """At most *limit* executions of an action per target within *window* seconds.

    It counts only while the condition `when` is true.
    """

    limit: int = Field(gt=0)
    window: Duration = Field(gt=0)
    when: str | None = None


class ActionResult(Model):
    """The outcome of one action; `duration` is in milliseconds.

    `procedure` is the procedure that it started, until that has ended. `unknown` is true when
    the action was started and its outcome lost. Boyd sets the `host` and the `worker` process that
    executed it, or `prevented` if it was not executed, and `violation` if it tried to go beyond its
    sandbox.
    """

    action: str
    success: bool
    duration: float = Field(ge=0)
    output: Json = None
    error: str | None = None
    side_effects: list[str] | None = None
    metrics: dict[str, float | str] | None = None
    procedure: str | None = None
    unknown: bool | None = None
    prevented: Prevention | None = None
    violation: LimitViolation | None = None
    host: str | None = None
    worker: str | None = None
    #: The approval that it waits for; `metrics.approvalId` on the wire.
    waits_for: SkipJsonSchema[str | None] = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _read_approval(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or fields.get("error") != APPROVAL_REQUIRED:
            return fields
        metrics = fields.get("metrics")
        if not isinstance(metrics, dict) or not metrics.get(_APPROVAL):
            return fields
        rest = {name: value for name, value in metrics.items() if name != _APPROVAL}
        return {**fields, "metrics": rest or None, "waits_for": str(metrics[_APPROVAL])}

    @model_serializer(mode="wrap")
    def _write_approval(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        if self.waits_for:
            fields["metrics"] = {**(self.metrics or {}), _APPROVAL: self.waits_for}
        return fields

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # What is written has the shape of what is read.
        shape = {name: part for name, part in schema.items() if name != "serialization"}
        return handler(cast(CoreSchema, shape))

    @property
    def state(self) -> Literal["succeeded", "failed", "unknown", "unneeded"]:
        """The state in one word."""
        if self.unknown:
            return "unknown"
        if self.is_unneeded:
            return "unneeded"
        return "succeeded" if self.success else "failed"

    @property
    def is_unneeded(self) -> bool:
        """True if nothing was executed because the target was well already."""
        return self.prevented == "unneeded"

    @property
    def is_fine(self) -> bool:
        """True if it succeeded, or was not needed."""
        return self.success or self.is_unneeded

    @property
    def has_started(self) -> bool:
        """True if the action was started, whatever came of it."""
        return self.host is not None or bool(self.unknown)


class ActionPerformed(Model):
    """An action in a run's result."""

    action: str
    success: bool
    description: str

    @classmethod
    def of(cls, result: ActionResult) -> ActionPerformed:
        """The short form of *result*."""
        description = result.error or (result.output if isinstance(result.output, str) else "done")
        return cls(action=result.action, success=result.is_fine, description=description)


class JobExecution(Model):
    """The state of a job's execution.

    `unknown`: it was started and its outcome lost; `unneeded`: its target was well already.
    `progress` is that of the procedure that it has started, if it was read with it. `held_until` is
    the end of the wait of a queued one that is held out, to learn whether its case ends by itself.
    """

    state: Literal["queued", "running", "succeeded", "failed", "unknown", "unneeded"]
    progress: str | None = None
    worker: str | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    held_until: Timestamp | None = None

    @property
    def delay(self) -> str:
        """The delay of a queued execution, in words."""
        if self.held_until is None:
            return "waits for a worker"
        return f"held out until {self.held_until:%H:%M} UTC to learn whether it heals by itself"


class ActionInfo(Model):
    """The manifest of an action; times are in seconds.

    `params` and `output` are the JSON Schemas of its parameters and of its output, `sandbox` has
    its privileges and limits. `target` is the parameter that names what it acts on, `concurrency`
    how many executions of it may be in flight per target; null: any number. `windows` are the names
    of those in which it may run alone, `alone_when` is the condition, and `earned` what it has to
    show first. `code` is its plugin with its version, or a digest of its file.
    """

    id: str
    name: str
    description: str
    risk: Level
    autonomy: Autonomy
    params: JsonObject | None = None
    output: JsonObject | None = None
    timeout: float
    sandbox: Sandbox | None = None
    idempotent: bool = False
    queue: str | None = None
    dry_run: bool = False
    rollback: bool = False
    reversibility: Reversibility = "unknown"
    target: str | None = None
    concurrency: int | None = None
    budget: Budget | None = None
    verify: VerificationPlan | None = None
    windows: list[str] = Field(default_factory=list)
    alone_when: str | None = None
    earned: EarnedAutonomy | None = None
    code: str | None = None


class EndpointInfo(Model):
    """An HTTP endpoint of a plugin; `path` lies below `/plugins/<plugin>`, with `{name}` parts."""

    id: str
    plugin: str
    method: str
    path: str
    description: str
    timeout: float
    queue: str | None = None

    def match(self, path: str) -> dict[str, str] | None:
        """The values of the path's parts when *path* fits; None when it does not."""
        ours, theirs = self.path.split("/"), path.split("/")
        if len(ours) != len(theirs):
            return None
        values = {}
        for part, text in zip(ours, theirs, strict=True):
            if part.startswith("{") and text:
                values[part[1:-1]] = text
            elif part != text:
                return None
        return values


class Catalog(Model):
    """The components of an agent."""

    observers: list[str] = Field(default_factory=list)
    orienters: list[str] = Field(default_factory=list)
    strategies: list[str] = Field(default_factory=list)
    actions: list[ActionInfo] = Field(default_factory=list)
    endpoints: list[EndpointInfo] = Field(default_factory=list)


CallKind = Literal["execute", "dry-run", "rollback", "endpoint"]


class EndpointRequest(Model):
    """A request to a plugin's endpoint; `path` holds the values of the path's `{name}` parts."""

    method: str
    path: dict[str, str] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    body: Json = None
    actor: Actor


class EndpointReply(Model):
    """The answer of an endpoint: a status and a JSON body.

    Boyd sets `failed` to the reason when the endpoint failed.
    """

    status: int = Field(default=200, ge=200, le=599)
    body: Json = None
    failed: str | None = None


def default_rationale(principal: str) -> str:
    """The rationale of a call for which *principal* gave none."""
    return f"requested by {principal}"


class CallRequest(Model):
    """A job to a worker.

    Attributes:
        kind: what is to be done.
        action: the action's id; of an endpoint its plugin and name, `plugin:name`.
        params: for an action.
        rationale: for the audit and for approvers.
        requires_approval: ask a person in any case.
        by_person: only a person may approve it; hooks and grants change nothing about that.
        undoes: the execution to roll back.
        previews: the approval for which a dry run is made, which keeps what it says.
        endpoint: the request to an endpoint.
        actor: who asks.
    """

    kind: CallKind
    action: str
    params: JsonObject = Field(default_factory=dict)
    rationale: str = ""
    requires_approval: bool = False
    by_person: bool = False
    undoes: str | None = None
    previews: str | None = None
    endpoint: EndpointRequest | None = None
    actor: Actor


class Call(CallRequest):
    """A job and how far it is; `approval_id` is what its action waits for."""

    id: str
    created_at: Timestamp
    execution: JobExecution | None = None
    result: ActionResult | None = None
    approval_id: str | None = None
    reply: EndpointReply | None = None


class ExecutionEntry(Model):
    """An execution as the ledger has it; `id` is `loop:<n>`, `approval:<id>` or `call:<id>`.

    `succeeded` means only that the call returned; `verification` tells whether it had its effect,
    if the action can be verified. `counted_in` is the class of situation in whose track record its
    outcome counts. `progress` tells where a procedure stands. `approval_id` is that of the
    execution, of what it undoes, or of the procedure that it is a step of.
    """

    id: str
    state: Literal["running", "succeeded", "failed", "unknown"]
    action: str
    params: JsonObject
    target: str
    by: str | None = None
    host: str | None = None
    worker: str | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    result: ActionResult | None = None
    verification: EffectVerification | None = None
    counted_in: str | None = None
    progress: str | None = None
    approval_id: str | None = None


class ExecutionPage(Model):
    """Executions without their results, newest first; `nextCursor` goes on from there.

    `missing` says why archived ones are missing, if the archive does not answer.
    """

    executions: list[ExecutionEntry]
    next_cursor: str | None = None
    missing: str | None = None
