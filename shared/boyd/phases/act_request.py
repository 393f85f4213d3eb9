"""A request to the act phase: the action, on whose behalf, and on which terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.models import Decision, Fence, Gate, JsonObject, ProcedureStep, Situation, TrackRecord


@dataclass(frozen=True)
class Requester:
    """The principals on whose behalf an action is executed, and what they expect.

    Attributes:
        by: the principal that the audit names; empty: the agent itself.
        principals: all who request the action.
        for_model: redact secrets from the result before it is stored.
        may_wait: whether it waits until what is in flight on its target has ended.
        by_hand: whether they have ordered just this: it is executed even where all is well.
        ordered_at: when a person has ordered it; a revocation since then ends it.
        decided_at: when an approved action was decided on; harm since then ends it.
        writer: the strategy or procedure that has written the params, which decides on the secrets
            that they may name; empty: a client or a model.
        limits: the rights of each principal that has only some.
    """

    by: str = ""
    principals: tuple[str, ...] = ()
    limits: Sequence[Sequence[str]] = ()
    for_model: bool = False
    may_wait: bool = True
    by_hand: bool = False
    ordered_at: datetime | None = None
    decided_at: datetime | None = None
    writer: str = ""


@dataclass(frozen=True)
class ProposalTerms:
    """The terms of a proposal to a person, beside the action and its requester.

    Attributes:
        origin: identifies it, if it does not go by the id of the execution.
        run_ids: the runs that it serves.
        wakes: the job that waits for it; other requests do not join it.
        by_person: a person has to approve it, whatever hooks, policies and grants say.
        instead_of: the reasons why the actions that were decided first are not repeated.
        plan: the steps of a procedure, with their targets, once a person has approved them.
    """

    origin: str = ""
    run_ids: tuple[str, ...] = ()
    wakes: str = ""
    by_person: bool = False
    instead_of: tuple[str, ...] = ()
    plan: tuple[ProcedureStep, ...] = ()


@dataclass(frozen=True)
class CountingTerms:
    """The track record for the outcome of an approved action, and the draw for its case.

    Attributes:
        record: as it was when the action was proposed; none if it counts in none.
        trial: the draw, as `CaseDraws` plans it; none if the case must not wait.
    """

    record: TrackRecord | None = None
    trial: JsonObject | None = None


@dataclass(frozen=True)
class ActRequest:
    """An action to execute or propose.

    Attributes:
        execution_id: stays the same when the request is repeated.
        situation: the one in which it was decided, if it is known.
        approved: a person has approved it, or the procedure that it is a step of.
        counting: how an approved action counts.
        gate: the verdict when it was decided, if a person has to approve it.
        asked_by: the plugin whose hook requires an approval.
        retry: an earlier attempt may be in the ledger.
        undoes: roll back this execution instead; all requesters share that one rollback.
        obstacle: the reason not to execute it, if set: it is only proposed, without a dry run,
            or forgone.
        within: the prefix of the executions of its procedure, whose holds do not bind it.
        compensates: whether it undoes a step of its procedure; no hold binds it then.
        fence: it is executed only while this holds; absent: always.
    """

    execution_id: str
    decision: Decision
    situation: Situation | None = None
    requester: Requester = Requester()
    proposal: ProposalTerms = ProposalTerms()
    approved: bool = False
    counting: CountingTerms = CountingTerms()
    gate: Gate | None = None
    asked_by: str | None = None
    retry: bool = False
    undoes: str | None = None
    obstacle: str = ""
    within: str = ""
    compensates: bool = False
    fence: Fence | None = None
