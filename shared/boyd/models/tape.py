"""The tape of an iteration: what its decision depended on, besides what flowed through it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field

from boyd.models.action import Autonomy, Budget, Reversibility
from boyd.models.approval import ApprovalPolicy
from boyd.models.base import Json, Level, Model, Timestamp
from boyd.models.track_record import TrackRecord


class PluginVersion(Model):
    """A plugin that took part: its version, or else a digest of its file."""

    id: str
    version: str | None = None
    digest: str | None = None

    @property
    def text(self) -> str:
        """The plugin and what tells its code apart, in one line."""
        return f"{self.id} {self.version or self.digest or 'of unknown code'}"


class AgentBuild(Model):
    """The agent as a worker ran it.

    Attributes:
        id: a digest of all the rest.
        settings: a digest of the agent's settings and the options of its plugins, with defaults.
        boyd: the release of Boyd.
        plugins: in their order.
    """

    id: str
    settings: str
    boyd: str
    plugins: list[PluginVersion]

    @classmethod
    def of(cls, settings: str, boyd: str, plugins: Sequence[PluginVersion]) -> Self:
        """A build with its id."""
        build = cls(id="", settings=settings, boyd=boyd, plugins=list(plugins))
        return build.patched({"id": digest_of(build.to_json())})


GateOutcome = Literal["automatic", "asked", "refused"]


class Gate(Model):
    """The fate of a decided action before it was executed, and why.

    Attributes:
        outcome: `automatic`: it was executed without a person; `asked`: a person has to approve it;
            `refused`: it was not executed.
        reason: in one line.
        autonomy: of the action; absent: no such action exists.
        risk: of the action, as it declares it.
        reversibility: of the action, likewise.
        budget: of the action.
        used: executions that counted against the budget before this one.
        required: the policy for its approval, if a person was asked.
        at: the time at which windows and conditions were evaluated; absent: none was.
        record: the track record of the action in this class of situation, so far.
        at_least: the share of effective executions that it has to have shown to run alone; absent:
            it needs none.
        grant: by which it ran alone, if it needed one.
    """

    outcome: GateOutcome
    reason: str
    autonomy: Autonomy | None = None
    risk: Level | None = None
    reversibility: Reversibility | None = None
    budget: Budget | None = None
    used: int | None = Field(default=None, ge=0)
    required: ApprovalPolicy | None = None
    at: Timestamp | None = None
    record: TrackRecord | None = None
    at_least: float | None = None
    grant: str | None = None


ReadSource = Literal["state", "graph", "approvals", "model", "playbooks", "http", "holds"]
#: Why a read has no value, or not all of it.
ReadNote = Literal["absent", "redacted", "too large", "not JSON"]
#: The phases in which reads are recorded; in act, only those of hooks before the action.
TapedPhase = Literal["orient", "decide", "act"]


class Read(Model):
    """Something that a component or hook read besides what it was given.

    Attributes:
        of: where it was read; of `http` only the use is known.
        key: of the state, or the function that was called with its arguments or their digest.
        value: what was read.
        note: `absent`: there was none; `redacted`: it lacks secrets; `too large`: only its digest
            is kept; `not JSON`: it cannot be kept.
        digest: of a value that is too large.
    """

    of: ReadSource
    key: str
    value: Json = None
    note: ReadNote | None = None
    digest: str | None = None


class PluginReads(Model):
    """The reads of one component or hook in a phase.

    Attributes:
        by: the component's id, or `plugin.hook`.
        phase: in which it ran.
        clock: the times that `ctx.now()` gave.
        reads: each once, in their order.
        omitted: the number of further reads, which are not kept.
    """

    by: str
    phase: TapedPhase
    clock: list[Timestamp] = Field(default_factory=list)
    reads: list[Read] = Field(default_factory=list)
    omitted: int = 0


def digest_of(text: str) -> str:
    """A digest of *text* that tells different texts apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
