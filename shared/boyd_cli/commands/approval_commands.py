"""`boyd approvals …` and `boyd autonomy …`: answer approvals, and list earned grants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import click

from boyd import naming
from boyd.errors import ApiProblem
from boyd.models import (
    FROZEN,
    REVOKED,
    ApprovalItem,
    LoopStatus,
    TrackRecord,
    TrackRecordList,
)
from boyd.models.responses import Resolved, RevokedAutonomy
from boyd.text.formatting import counted
from boyd_cli import api_access, completion, output
from boyd_cli.api_access import WHOLE, Api, find_by_prefix, resolve_prefix
from boyd_cli.options import data_options, id_argument, wait_option, yes_option
from boyd_cli.output import sentence, whole
from boyd_cli.terminal import Spinner
from boyd_cli.views import approval_view, iteration_view

#: Seconds after which a preview is refreshed, and to wait for the new one.
_FRESH = 10.0
_PREVIEW_WAIT = 15.0
#: How often an answer is repeated because the same item was proposed again meanwhile.
_TRIES = 10
#: Fields that may change within the same proposal.
_PASSING = {
    *("preview_at", "first_preview"),
    *("seen", "version", "updated_at", "situation_summary", "run_ids", "requested_by"),
    *("asked", "approvals", "in_flight", "acknowledgement"),
}


@dataclass
class AnswerOutcome:
    """The result of one answer: an exit status, the item as far as it is known, what went wrong."""

    item: ApprovalItem
    status: int = 0
    problem: str = ""

    def to_wire(self) -> dict[str, Any]:
        """As it is printed."""
        problem = {"problem": self.problem} if self.problem else {}
        return {"id": self.item.id, "success": not self.status, **problem, "approval": self.item}


def find(api: Api, beginning: str) -> ApprovalItem:
    """Find an approval by a unique prefix of its id; exit with an error otherwise."""
    every = api_access.every_approval
    return find_by_prefix(api, beginning, "approval", "/approvals", ApprovalItem, every)


def _find_all(api: Api, beginnings: Sequence[str]) -> list[ApprovalItem]:
    """Find all items first, so that nothing is answered if one id is wrong."""
    if all(len(beginning) == WHOLE for beginning in beginnings):
        items = [find(api, beginning) for beginning in beginnings]
    else:
        items_by_id = {item.id: item for item in api_access.every_approval(api)}
        items = [
            items_by_id[resolve_prefix("approval", beginning, items_by_id)]
            for beginning in beginnings
        ]
    return list({item.id: item for item in items}.values())


def _confirm(api: Api, verb: str, item: ApprovalItem) -> ApprovalItem:
    """Show the item and ask for confirmation; exit with an error if it is refused."""
    if item.status != "pending":
        return item
    if verb == "approve":
        item = refresh_preview(api, item)
    approval_view.show(item, api.agent.now())
    if verb == "approve" and (obstacle := _obstacle(api, item)):
        output.stop(output.CONFLICT, obstacle)
    output.confirm(f"{verb.capitalize()}?", f"{output.short(item.id)} stays {item.status}")
    return item


def _obstacle(api: Api, item: ApprovalItem) -> str | None:
    """The freeze or revocation that keeps a pending item from being approved now."""
    state = api.agent.get("/loop/status", LoopStatus)
    stopped = f"{FROZEN}: {state.frozen}" if state.frozen is not None else ""
    if state.revoked is not None:
        stopped = f"{REVOKED}: {state.revoked}"
    if not stopped or item.status != "pending":
        return None
    text = f"{stopped}. It stays pending: approve it once that is lifted, or deny it"
    return output.one_line(text)


def refresh_preview(api: Api, item: ApprovalItem) -> ApprovalItem:
    """Refresh the item's dry run; on failure return the old preview with a note."""
    preview_time = item.preview_at
    # The evidence of an offer to run alone is that of its time; nothing repeats it.
    if item.status != "pending" or preview_time is None or item.action_id == naming.GRANT:
        return item
    if item.no_right:
        return item
    if (api.agent.now() - preview_time).total_seconds() < _FRESH:
        return item
    path = f"/approvals/{item.id}/preview"
    try:
        refreshed = api.agent.post(path, ApprovalItem, wait=_PREVIEW_WAIT)
    except ApiProblem as problem:
        if problem.name == "not-pending":
            return api.agent.get(f"/approvals/{item.id}", ApprovalItem)
        output.note(f"boyd: the preview is outdated: {output.one_line(problem.detail)}")
        return item
    if refreshed.preview_at == preview_time:
        output.note("boyd: the preview is outdated: the dry run timed out")
    return refreshed


def answer(api: Api, verb: str, item: ApprovalItem, note: str | None, ask: bool) -> AnswerOutcome:
    """Give the answer to what *item* was when it was shown."""
    path = f"/approvals/{item.id}/{verb}"
    query = {"wait": 0} if verb == "approve" else {}
    current = item
    for _ in range(_TRIES):
        try:
            body = {"note": note}
            done = api.agent.post(path, Resolved, body, if_match=current.version, **query)
            return AnswerOutcome(done.approval)
        except ApiProblem as problem:
            if problem.name != "changed":
                return _explain_refusal(api, item, problem)
        current = api.agent.get(f"/approvals/{item.id}", ApprovalItem)
        is_same = current.model_dump(exclude=_PASSING) == item.model_dump(exclude=_PASSING)
        if current.status == "pending" and not is_same:
            if not ask:
                return AnswerOutcome(current, output.CONFLICT, "it has changed since it was shown")
            output.note("It has changed in the meantime:")
            item = _confirm(api, verb, current)
    return AnswerOutcome(current, output.CONFLICT, "it keeps changing: try again")


def _explain_refusal(api: Api, item: ApprovalItem, problem: ApiProblem) -> AnswerOutcome:
    """Return the outcome of an answer that did not count: too late, or not allowed."""
    status = output.status_of(problem)
    document = problem.document.get("approval")
    if isinstance(document, dict):
        item = ApprovalItem.model_validate(document, strict=False, extra="ignore")
    if problem.name == "not-pending" and item.status != "pending":
        return AnswerOutcome(item, status, approval_view.refusal(item, api.agent.now()))
    return AnswerOutcome(item, status, output.one_line(problem.detail))


def say_answer(api: Api, outcome: AnswerOutcome, several: bool) -> None:
    """Print what an answer has led to so far; with *several*, of which item."""
    item = outcome.item
    which = f"{output.short(item.id)} " if several else ""
    if outcome.problem:
        return  # reported at the end, on standard error
    if item.status != "pending":
        output.say(output.one_line(f"{which}{item.title} is {item.status}"))
        return
    have, need = len(item.counting), item.required.min_approvals
    left = approval_view.time_left(item, api.agent.now())
    output.say(
        f"{which}{output.one_line(item.title)} has {have} of {need} approvals, and waits for"
        f" {counted(need - have, 'more approval')}; time left: {left}"
    )


def _await(api: Api, outcome: AnswerOutcome, waiting: Spinner) -> None:
    """Wait until the action has ended, if this answer has started it."""
    item = outcome.item
    path = f"/approvals/{item.id}"
    while not outcome.problem and item.status == "approved" and item.result is None:
        if waiting.is_over:
            outcome.status = output.TIMED_OUT
            text = f"{item.title} is approved and has not finished: {approval_view.progress(item)}"
            outcome.problem = (
                f"{text}; see `{output.command_name()} approvals show {output.short(item.id)}`"
            )
            return
        waiting.pause(f"{item.title} {approval_view.progress(item)}")
        outcome.item = item = waiting.ask(lambda: api.agent.get(path, ApprovalItem)) or item


def _finish(outcomes: Sequence[AnswerOutcome], form: str) -> None:
    several = len(outcomes) > 1
    for outcome in outcomes:
        result = outcome.item.result
        which = f"{output.short(outcome.item.id)} " if several else ""
        if outcome.problem:
            output.note(f"boyd: {which}{outcome.problem}")
        elif result is not None:
            outcome.status = 0 if result.is_fine else output.FAILED
            if form == "table":
                output.say(f"{which}{approval_view.outcome(outcome.item)}")
                rows = [iteration_view.error_row(result), ("output", output.text_of(result.output))]
                output.print_pairs(*rows)
    wires = [outcome.to_wire() for outcome in outcomes]
    output.print_data(form, wires if several else wires[0])
    statuses = {outcome.status for outcome in outcomes}
    if statuses != {0}:
        wrong = statuses - {0}
        raise click.exceptions.Exit(wrong.pop() if len(wrong) == 1 else output.FAILED)


#: How many resolved items `--all` lists.
_HISTORY = 50

ids_argument = id_argument(
    "approvals", completion.pending_approvals, nargs=-1, required=True, metavar="APPROVAL..."
)
note_option = click.option("--reason", "note", help="Reason; stored with the answer.")


@click.group()
def approvals() -> None:
    """List pending approvals, and answer them."""


@approvals.command("list")
@click.option("--all", "everything", is_flag=True, help="Also list resolved approvals.")
@click.option("--watch", is_flag=True, help="Keep running and show each change until Ctrl-C.")
@data_options
def list_(api: Api, everything: bool, watch: bool, form: str) -> None:
    """List pending approvals, the next to expire first."""
    if watch:
        approval_view.watch_queue(api, lambda: _read(api, everything), form)
    else:
        approval_view.show_queue(_read(api, everything), api.agent.now(), form)


def _read(api: Api, everything: bool) -> list[ApprovalItem]:
    pending: list[ApprovalItem] = []
    history: list[ApprovalItem] = []
    for page in api_access.approvals(api, history=everything):
        pending += page.pending
        history += page.history
        if everything and len(history) >= _HISTORY and not page.pending:
            break
    return [*pending, *history[:_HISTORY]]


@approvals.command()
@id_argument("approval", completion.approvals)
@data_options
def show(api: Api, approval: str, form: str) -> None:
    """Show everything about an approval.

    Action, reason, exact parameters, requirements and votes. The table includes a fresh preview
    from a worker; json and yaml include the last one.
    """
    item = find(api, approval)
    if not output.print_data(form, item):
        approval_view.show(refresh_preview(api, item), api.agent.now())
        if (obstacle := _obstacle(api, item)) is not None:
            output.note(obstacle)


@approvals.command()
@ids_argument
@note_option
@yes_option
@wait_option
@data_options
def approve(
    api: Api, approvals: Sequence[str], note: str | None, ask: bool, wait: float, form: str
) -> None:
    """Approve: a worker executes the action, even if this command is interrupted.

    It shows each item and asks first. Exactly the shown item is approved.
    """
    outcomes = _answer_each(api, "approve", approvals, note, ask, form)
    if wait:
        with Spinner(wait) as waiting:
            for outcome in outcomes:
                _await(api, outcome, waiting)
    _finish(outcomes, form)


def _answer_each(
    api: Api, verb: str, beginnings: Sequence[str], note: str | None, ask: bool, form: str
) -> list[AnswerOutcome]:
    """Give each item the answer, and print it."""
    outcomes = []
    for item in _find_all(api, beginnings):
        confirmed = _confirm(api, verb, item) if ask else item
        outcome = answer(api, verb, confirmed, note, ask)
        if form == "table":
            say_answer(api, outcome, len(beginnings) > 1)
        outcomes.append(outcome)
    return outcomes


@approvals.command()
@ids_argument
@note_option
@yes_option
@data_options
def deny(api: Api, approvals: Sequence[str], note: str | None, ask: bool, form: str) -> None:
    """Deny approvals: the action is not executed."""
    _finish(_answer_each(api, "deny", approvals, note, ask, form), form)


@approvals.command()
@ids_argument
@note_option
@yes_option
@data_options
def withdraw(api: Api, approvals: Sequence[str], note: str | None, ask: bool, form: str) -> None:
    """Withdraw approvals that are no longer needed: the action is not executed."""
    _finish(_answer_each(api, "withdraw", approvals, note, ask, form), form)


COLUMNS = (
    *(whole("action"), sentence("situation", least=12), whole("worked"), whole("at least")),
    *(whole("waiting", drop=2), whole("better by", drop=1), whole("alone until")),
    *(sentence("limited to", drop=3), whole("Brier", drop=5), whole("base rate", drop=5)),
    *(whole("class", drop=4), sentence("note", drop=2)),
)


@click.group()
def autonomy() -> None:
    """Show what actions have earned, and revoke their right to run alone."""


@autonomy.command("list")
@data_options
def list_grants(api: Api, form: str) -> None:
    """List the track records of the actions by class of situation.

    AT LEAST is the lower bound of the share that works, with 95 % confidence at any time. WAITING
    has the cases that were well without the action, of those that have waited, and BETTER
    BY the lower bound of what the action adds.
    """
    records = api.agent.get("/autonomy", TrackRecordList).records
    nothing = "No outcome was verified yet."
    output.print_list(form, records, COLUMNS, map(_row, records), nothing)


def _row(record: TrackRecord) -> list[str]:
    grant, trial = record.grant, record.trial
    waited = f"{trial.well_without} of {trial.waited}" if trial.waited else ""
    return [
        *(record.action, record.label, f"{record.effective} of {record.outcomes}"),
        *(_percent(record.lower_bound), waited, _uplift(record.uplift)),
        output.short_date(grant.until) if grant else "",
        grant.covers.words if grant else "",
        *(_share(record.brier), _share(record.base_brier), record.situation, record.ended or ""),
    ]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{floor(100 * value)} %"


def _uplift(value: float | None) -> str:
    return "not shown" if value is not None and value <= 0 else _percent(value)


@autonomy.command()
@id_argument("action", completion.actions)
@click.argument("situation", metavar="[CLASS]", default="")
@click.option("--reason", "note", help="Reason; shown in the audit trail.")
@data_options
def revoke(api: Api, action: str, situation: str, note: str | None, form: str) -> None:
    """Have a person approve an action again, in one class of situation or in all."""
    body = {"action": action, "situation": situation, "note": note or ""}
    done = api.agent.post("/autonomy/revoke", RevokedAutonomy, body)
    if not output.print_data(form, done):
        output.say(f"{output.one_line(action)}: {counted(done.revoked, 'grant')} revoked")
