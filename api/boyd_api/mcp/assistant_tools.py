"""The tools of assistants: they read, start runs and investigations, and propose actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from boyd.models import CallRequest, JsonObject, Level, Model, RunStatus
from boyd.models.investigation import MOST_ASKED, Investigation, InvestigationRequest
from boyd.models.responses import ActionList
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import RequestContext
from boyd_api.mcp.assistant_tasks import (
    find_task,
    investigation_task,
    proposal_name,
    proposal_task,
)
from boyd_api.mcp.assistant_tool import AssistantRequest, AssistantTool, TaskState, tool_result
from boyd_api.routes import (
    action_routes,
    agent_routes,
    approval_routes,
    investigation_routes,
    loop_routes,
    run_routes,
)

_Result = dict[str, Any]

AGENT = Field(default=None, max_length=200, description="Id of the agent; absent: the default one.")
_ID = Field(min_length=1, max_length=200, description="The id, as a list shows it.")
_LIMIT = Field(default=10, ge=1, le=50)
_CURSOR = Field(
    default=None, max_length=500, description="`nextCursor` of the page before; absent: the first."
)


class AgentArguments(Model):
    """Names an agent."""

    agent: str | None = AGENT


class PageArguments(AgentArguments):
    """Selects a page."""

    limit: int = _LIMIT
    cursor: str | None = _CURSOR


class HistoryArguments(PageArguments):
    """Selects iterations."""

    query: str | None = Field(
        default=None, max_length=200, description="Words in situation, decision or errors."
    )


class IterationArguments(AgentArguments):
    """Names an iteration."""

    iteration: str | None = Field(
        default=None, max_length=100, description="Its number; absent: the newest that has ended."
    )


class RunsArguments(PageArguments):
    """Selects runs."""

    status: RunStatus | None = None


class ApprovalsArguments(PageArguments):
    """Selects approvals."""

    resolved: bool = Field(default=False, description="Also those that were answered or expired.")


class ActionsArguments(AgentArguments):
    """Selects actions."""

    part: str | None = Field(
        default=None, max_length=200, description="Part of the id, if the list is too long."
    )


class ItemArguments(AgentArguments):
    """Names a run or an approval."""

    id: str = _ID


def status(request: AssistantRequest, arguments: AgentArguments) -> _Result:
    """Show what an agent does now, or list all agents.

    It shows the phase, the last situation and decision, what waits, and who has paused or frozen
    it. Without an agent it lists all of them.
    """
    if arguments.agent is None:
        return tool_result(agent_routes.show(request.http, agent_routes.AgentsQuery()))
    return tool_result(loop_routes.status(request.at(arguments.agent)).body)


def history(request: AssistantRequest, arguments: HistoryArguments) -> _Result:
    """List past iterations of an agent, newest first: what it saw, decided and did."""
    query = loop_routes.HistoryQuery(
        limit=arguments.limit, cursor=arguments.cursor, q=arguments.query
    )
    return tool_result(loop_routes.history(request.at(arguments.agent), query))


def explain_iteration(request: AssistantRequest, arguments: IterationArguments) -> _Result:
    """Show one iteration in full.

    It shows the situation, why the decision was taken and what else was considered, what the gate
    said, what the action led to, and what was observed.
    """
    return tool_result(iteration_record(request, arguments.agent, arguments.iteration))


def iteration_record(request: AssistantRequest, agent: str | None, name: str | None) -> _Result:
    """An iteration with what explains it first, and its observations last."""
    ctx = request.at(agent)
    last = loop_routes.last_result(ctx.agent.store) if name is None else None
    if name is None and last is None:
        raise not_found("no iteration has ended yet")
    wire = (last or loop_routes.one(ctx, name or "")).to_wire()
    observations = wire.pop("observations", [])
    return {**wire, "observations": observations}


def runs_list(request: AssistantRequest, arguments: RunsArguments) -> _Result:
    """List the runs of an agent, newest first: the work that people and programs gave it."""
    query = run_routes.RunsQuery(
        limit=arguments.limit, cursor=arguments.cursor, status=arguments.status
    )
    return tool_result(run_routes.runs(request.at(arguments.agent), query))


def runs_show(request: AssistantRequest, arguments: ItemArguments) -> _Result:
    """Show one run, with its result when it has ended."""
    return tool_result(run_routes.show(request.at(arguments.agent), arguments.id))


def actions_list(request: AssistantRequest, arguments: ActionsArguments) -> _Result:
    """List the actions that can be proposed, with the JSON Schema of their parameters."""
    manifests = action_routes.actions(request.at(arguments.agent)).actions
    return tool_result(
        ActionList(
            actions=[manifest for manifest in manifests if (arguments.part or "") in manifest.id]
        )
    )


def approvals_list(request: AssistantRequest, arguments: ApprovalsArguments) -> _Result:
    """List the actions that wait for a person's approval, first deadline first.

    Only people answer them, in the console; no tool does.
    """
    query = approval_routes.QueueQuery(
        limit=arguments.limit, cursor=arguments.cursor, include_history=arguments.resolved
    )
    return tool_result(approval_routes.queue(request.at(arguments.agent), query))


def approvals_show(request: AssistantRequest, arguments: ItemArguments) -> _Result:
    """Show one approval: what is to be done and why, who may answer, and what became of it."""
    return tool_result(approval_routes.show(request.at(arguments.agent), arguments.id).body)


READING: Sequence[AssistantTool] = (
    AssistantTool("boyd_status", status, AgentArguments),
    AssistantTool("boyd_history", history, HistoryArguments),
    AssistantTool("boyd_explain_iteration", explain_iteration, IterationArguments),
    AssistantTool("boyd_runs_list", runs_list, RunsArguments),
    AssistantTool("boyd_runs_show", runs_show, ItemArguments),
    AssistantTool("boyd_actions_list", actions_list, ActionsArguments),
    AssistantTool("boyd_approvals_list", approvals_list, ApprovalsArguments),
    AssistantTool("boyd_approvals_show", approvals_show, ItemArguments),
)


#: The source of runs that assistants submit.
_SOURCE = "mcp"
#: Seconds to wait for a proposal to become an approval.
_PROPOSED = 5.0
#: Proposals of one principal that may wait for people: more are not read by anybody.
MOST_WAITING = 20
#: Pending approvals that are looked at, first deadline first.
_READ = 500


class SubmitArguments(AgentArguments):
    """Describes a run."""

    title: str = Field(min_length=1, max_length=500)
    description: str = Field(min_length=1, max_length=50_000)
    priority: Level = "medium"
    context: JsonObject = Field(default_factory=dict)


class QuestionArguments(AgentArguments):
    """Asks a question."""

    question: str = Field(min_length=1, max_length=MOST_ASKED)


class ProposalArguments(AgentArguments):
    """Describes a proposal."""

    action: str = Field(
        min_length=1, max_length=200, description="Id of the action, as boyd_actions_list has it."
    )
    params: JsonObject = Field(default_factory=dict)
    rationale: str = Field(
        min_length=1, max_length=5000, description="Why; the person who decides reads it."
    )


class TaskArguments(Model):
    """Names a task."""

    task: str = Field(min_length=1, max_length=400, description="The taskId.")


def runs_submit(request: AssistantRequest, arguments: SubmitArguments) -> dict[str, Any]:
    """Give an agent work to do.

    It observes, decides and acts as its own rules allow, and asks people where they say so.
    boyd_runs_show tells how far it is.
    """
    fields = {name: getattr(arguments, name) for name in ("title", "description", "priority")}
    run = run_routes.SentRun(**fields, context=arguments.context, source=_SOURCE)
    return tool_result(run_routes.submit(request.at(arguments.agent, "runs"), run).body)


def investigate(request: AssistantRequest, arguments: QuestionArguments) -> Any:
    """Have the agent's own model investigate a question with its tools.

    It takes minutes: the answer is a task, or its id for boyd_task_show.
    """
    ctx = request.at(arguments.agent, "runs")
    investigation = investigation_routes.ask(
        ctx, InvestigationRequest(question=arguments.question)
    ).body
    assert isinstance(investigation, Investigation)
    return _task_or_state(request, investigation_task(request, ctx, investigation))


def propose_action(request: AssistantRequest, arguments: ProposalArguments) -> Any:
    """Propose an action to the people who decide on it.

    It is executed only after a person has approved it in the console, whatever the agent may do
    alone: tell your user the address of the approval. The answer is a task, or its id for
    boyd_task_show.
    """
    ctx = request.at(arguments.agent, "actions")
    actions = {manifest.id: manifest for manifest in ctx.agent.entry.catalog.actions}
    action = actions.get(arguments.action)
    if action is None:
        raise not_found(f"agent {ctx.agent.entry.id!r} has no action {arguments.action!r}")
    _check_waiting(ctx)
    work = CallRequest(
        kind="execute",
        action=action.id,
        params=arguments.params,
        rationale=arguments.rationale,
        requires_approval=True,
        by_person=True,
        actor=ctx.actor,
    )
    call_id = ctx.call_worker(work, action.queue)
    call = ctx.await_call(call_id, _PROPOSED) or ctx.agent.store.calls.get(call_id)
    assert call is not None, "a call is stored when it is submitted"
    name = proposal_name(ctx.agent.entry.id, call_id)
    return _task_or_state(request, proposal_task(request, ctx, name, call))


def _check_waiting(ctx: RequestContext) -> None:
    """Refuse a proposal while too many of the same principal wait."""
    pending = ctx.agent.store.approvals.page(_READ, history=False).pending
    waiting = sum(ctx.actor.principal in item.requested_by for item in pending)
    if waiting >= MOST_WAITING:
        problem = f"{waiting} proposals of {ctx.actor.principal} wait for people already"
        raise HttpProblem("too-many-requests", f"{problem}; first they have to decide on those")


def task_show(request: AssistantRequest, arguments: TaskArguments) -> dict[str, Any]:
    """Show how far an investigation or a proposal is, by its taskId.

    It is for clients that do not follow tasks themselves.
    """
    return _task_result(find_task(request, arguments.task))


def _task_or_state(request: AssistantRequest, task: TaskState) -> dict[str, Any] | TaskState:
    """The task, if it goes on, or what it says to clients that do not know tasks."""
    return task if request.takes_tasks and task.result is None else _task_result(task)


def _task_result(task: TaskState) -> dict[str, Any]:
    """The result of the task, or else its state."""
    return tool_result(task.handle) if task.result is None else dict(task.result)


WORKING: Sequence[AssistantTool] = (
    AssistantTool("boyd_runs_submit", runs_submit, SubmitArguments, "runs"),
    AssistantTool("boyd_investigate", investigate, QuestionArguments, "runs"),
    AssistantTool("boyd_propose_action", propose_action, ProposalArguments, "actions"),
    AssistantTool("boyd_task_show", task_show, TaskArguments),
)
