"""The inbox of approvals, and the page of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from heapq import merge

from flask import redirect, request
from werkzeug.wrappers import Response as AnyResponse

from boyd import naming
from boyd.health.agent_condition import stop_text
from boyd.models import (
    ActionInfo,
    ApprovalItem,
    ApprovalOutcome,
    ExecutionEntry,
    LoopResult,
    ProcedureRecord,
    describe_outcome,
)
from boyd.store import Resolution, Verdict
from boyd_api.console.agent_page import VitalSign, read_vital_signs
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.inbox_list import (
    ANSWERABLE,
    InboxFilter,
    InboxList,
    ReadProcedure,
    read_stops,
)
from boyd_api.console.page_request import (
    HOME,
    PageRequest,
    Part,
    read_note,
    read_part,
    read_seconds,
    read_version,
)
from boyd_api.console.pages import to_login
from boyd_api.console.rendering import read_frame, render_page
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import WaitQuery
from boyd_api.routes import action_routes, approval_routes

inbox_pages = Pages(section="inbox")
pages = Pages()

#: The verdict of each button.
VERDICTS: dict[str, Verdict] = {"approve": "approved", "deny": "denied", "withdraw": "withdrawn"}
#: Answered approvals of an agent on one page.
_PAST = 50


@dataclass(frozen=True)
class Answered:
    """The outcome of an answer to one of several approvals."""

    item: ApprovalItem | None
    id: str
    counts: bool
    text: str


@dataclass(frozen=True)
class StopNotice:
    """The longest stopped procedure of an agent that waits for somebody, and how many more do."""

    agent_id: str
    first: ReadProcedure
    more: int

    @property
    def text(self) -> str:
        """The stop in one line."""
        return stop_text(self.first.record, self.more)


@inbox_pages.get("/")
def inbox(page: PageRequest) -> PageResult:
    """Show the approvals that wait."""
    view = InboxFilter.parse(request.args)
    frame = read_frame(page)
    listing = InboxList(view, frame.inbox.mine if view.tab == "mine" else frame.inbox.others)
    signs = read_vital_signs(page)
    values = {
        "view": view,
        "listing": listing,
        "items": listing.read(page),
        "health": _signs_of_items(signs, listing),
        "stopped": _stop_notices(page, signs, view),
    }
    return render_page(page, "inbox.html", frame=frame, **values)


def _signs_of_items(signs: list[VitalSign], listing: InboxList) -> list[VitalSign]:
    """The vital signs of the agents whose approvals are shown, or of all if none waits."""
    names = {item.agent_id for item in listing.items}
    return [sign for sign in signs if sign.agent_id in names or not listing.everything]


def _stop_notices(page: PageRequest, signs: list[VitalSign], view: InboxFilter) -> list[StopNotice]:
    """Describe by agent the stops that the reader may end, or in the tab `others` may not."""
    notices = []
    for sign in signs:
        if sign.has_stops and view.agent in ("", sign.agent_id):
            stops = read_stops(page, sign.agent_id)
            waiting = [stop for stop in stops if bool(stop.no_resume) == (view.tab == "others")]
            if waiting:
                notices.append(StopNotice(sign.agent_id, waiting[0], len(waiting) - 1))
    return notices


@inbox_pages.get("/answered")
def show_answered(page: PageRequest) -> PageResult:
    """Show the approvals that were answered, newest first."""
    agent_id, cursor = request.args.get("agent"), request.args.get("cursor")
    names = [agent_id] if agent_id else list(page.ctx.agents)
    agents = [page.of(name).ctx.agent for name in names]
    queues = [agent.past_work.approvals(_PAST, cursor if agent_id else None) for agent in agents]
    # Each agent's items stay in their order, although an execution has changed some of them since.
    past = merge(*(queue.history for queue in queues), key=lambda i: i.updated_at, reverse=True)
    # Older ones of one agent follow its own page; several agents have no common position.
    after = queues[0].next_cursor if len(queues) == 1 else None
    older = f"/console/answered?agent={names[0]}&cursor={after}" if after else ""
    missing = next((queue.missing for queue in queues if queue.missing), None)
    return render_page(
        page, "answered.html", items=list(past), older=older, names=names, missing=missing
    )


@inbox_pages.post("/answer-several", scope="approvals")
def answer_several(page: PageRequest) -> PageResult:
    """Confirm, then answer, the ticked approvals of one action, or all of a view."""
    all_of = request.form.get("all", "")
    verb = all_of or request.form.get("verb", "")
    if verb not in VERDICTS:
        raise HttpProblem("bad-request", f"{verb!r} is no answer")
    chosen = _choices_of_view(page) if all_of else _selection()
    if not chosen:
        raise HttpProblem("bad-request", "no approval was ticked: go back, and tick some")
    if "confirmed" not in request.form:
        items = [_find_approval(page, agent, id) for agent, id, _ in chosen]
        pending = [item for item in items if item is not None and item.status == "pending"]
        if any(page.needs_login(item, verb) for item in pending):
            return to_login("confirm", HOME)
        if len({item.title for item in pending}) > 1:
            raise HttpProblem("bad-request", "the ticked approvals are for different actions")
        agents, freezes = {item.agent_id for item in pending}, page.services.store.freezes
        stops = {name: stop for name in sorted(agents) if (stop := freezes.stop_of(name))}
        values = {"items": pending, "gone": len(items) - len(pending), "stops": stops}
        return render_page(page, "confirm_several.html", verb=verb, **values)
    note = read_note() or None
    done = [_answer(page, agent, id, verb, note, version) for agent, id, version in chosen]
    return render_page(page, "answered_several.html", verb=verb, results=done)


def _selection() -> list[tuple[str, str, int]]:
    chosen = request.form.getlist("chosen")
    if len(chosen) > ANSWERABLE:
        raise HttpProblem("bad-request", f"at most {ANSWERABLE} approvals are answered at once")
    return [_parse_choice(text) for text in chosen]


def _choices_of_view(page: PageRequest) -> list[tuple[str, str, int]]:
    """All approvals of a view, as it is now, to be listed before they are answered."""
    view = InboxFilter.parse(request.form)
    listing = InboxList(view, read_frame(page).inbox.mine)
    if not listing.is_one_action:
        raise HttpProblem(
            "bad-request",
            f"at most {ANSWERABLE} approvals of one action are answered at once: filter them",
        )
    return [(item.agent_id, item.id, item.version) for item in listing.matching]


def _parse_choice(text: str) -> tuple[str, str, int]:
    agent, _, rest = text.partition("/")
    id, _, version = rest.partition("/")
    number = read_version(version)
    if number is None:
        raise HttpProblem("bad-request", "the form is not one of the console")
    return agent, id, number


def _find_approval(page: PageRequest, agent: str, id: str) -> ApprovalItem | None:
    """The approval; None if the reader may see none of that name."""
    if agent not in page.ctx.agents:
        return None
    ctx = page.of(agent).ctx
    item = ctx.agent.approval(id)
    return approval_routes.for_reader(ctx, item) if item is not None else None


def _answer(
    page: PageRequest, agent: str, id: str, verb: str, note: str | None, version: int
) -> Answered:
    item = _find_approval(page, agent, id)
    if item is None:
        return Answered(None, id, False, "no longer known")
    if page.needs_login(item, verb):
        return Answered(item, id, False, "it is risky: open it, and sign in again")
    resolution = approval_routes.answer(page.of(agent).ctx, id, VERDICTS[verb], note, version)
    text = resolution.outcome.value
    if not resolution.counts:
        text = approval_routes.refusal_of(resolution)
    return Answered(resolution.item, id, resolution.counts, text)


#: The age of a preview after which the dry run is repeated.
OLD = timedelta(minutes=1)
#: Earlier executions of the same action that are shown.
_EARLIER = 5


@dataclass(frozen=True)
class Evidence:
    """The grounds of a request.

    Attributes:
        iteration: the iteration that proposed it, as far as it has ended and is kept.
        is_outside: True if no iteration proposed it.
        action: the action, with its reversibility; None if the agent no longer has it.
        earlier: its latest executions.
        investigations: the ids of the investigations that wait for it.
        procedure: the procedure that it has started.
    """

    iteration: Part[LoopResult | None]
    is_outside: bool
    action: ActionInfo | None
    earlier: list[ExecutionEntry]
    investigations: list[str]
    procedure: ProcedureRecord | None


@pages.get("/agents/<agent>/approvals/<id>")
def approval(page: PageRequest, id: str) -> PageResult:
    """Show an approval, and the form to answer it."""
    return _show(page, _item(page, id), note=request.args.get("note", ""))


@pages.post("/agents/<agent>/approvals/<id>/answer", scope="approvals")
def answer(page: PageRequest, id: str) -> PageResult:
    """Answer the approval as it was shown; the page then tells what is so."""
    verb, note = request.form.get("verb", ""), read_note()
    version = read_version(request.form.get("version", ""))
    if verb not in VERDICTS or version is None:
        raise HttpProblem("bad-request", "the form is not one of this page: open it again")
    item = _item(page, id)
    if page.needs_login(item, verb):
        return to_login("confirm", f"{address(item)}?answer=approve", note=note)
    resolution = approval_routes.answer(page.ctx, id, VERDICTS[verb], note or None, version)
    if resolution.counts:
        return redirect(address(item), 303)
    return _show_refusal(page, id, resolution, note)


@pages.post("/agents/<agent>/approvals/<id>/acknowledge", scope="approvals")
def acknowledge(page: PageRequest, id: str) -> PageResult:
    """Take care of the approval, or leave it to others; nothing happens to one that is answered."""
    item, store = _item(page, id), page.ctx.agent.store.acknowledgements
    if request.form.get("verb") == "release":
        store.release_approval(item.id, page.ctx.actor)
    else:
        store.acknowledge_approval(item.id, page.ctx.actor, read_seconds())
    return redirect(address(item), 303)


@pages.post("/agents/<agent>/approvals/<id>/preview", scope="approvals")
def preview(page: PageRequest, id: str) -> PageResult:
    """Repeat the dry run."""
    approval_routes.preview(page.ctx, id, WaitQuery(wait=10.0))
    if page.is_live:
        return AnyResponse(status=204, headers={"HX-Trigger": "boyd:changed"})
    return redirect(address(_item(page, id)), 303)


def _show_refusal(page: PageRequest, id: str, resolution: Resolution, note: str) -> PageResult:
    """The page with the reason why the answer does not count, and the note that was written."""
    if resolution.item is None:
        raise not_found(f"no approval {id!r}")
    reason = approval_routes.refusal_of(resolution)
    return _show(page, resolution.item, 409, note=note, refused=reason)


def _is_open(item: ApprovalItem) -> bool:
    """Check whether something is still to become of the approval."""
    is_verified = item.effect is None or item.effect.verdict is not None
    is_over = item.result is not None and is_verified
    return item.status == "pending" or (item.status == "approved" and not is_over)


def _show(
    page: PageRequest, item: ApprovalItem, status: int = 200, note: str = "", refused: str = ""
) -> PageResult:
    refusal = item.refusal(page.ctx.actor)
    why_not = approval_routes.refusal_text(refusal, item) if refusal else ""
    item = approval_routes.for_reader(page.ctx, item)
    why_not = item.no_right or why_not
    if not page.allows("approvals"):
        why_not = "your key lacks the scope 'approvals'"
    stop = page.services.store.freezes.stop_of(item.agent_id)
    verb = request.values.get("answer", request.form.get("verb", ""))
    return render_page(
        page,
        "approval.html",
        status,
        item=item,
        evidence=_evidence(page, item),
        outcome=describe_outcome(item) if item.effect else None,
        undo=_undo(page, item),
        describe_outcome=describe_outcome,
        why_not=why_not,
        stop=stop,
        signs=read_vital_signs(page, item.agent_id) if _is_open(item) else [],
        asked=verb if _can_be_given(item, verb, stop) else "",
        may_deny=item.status == "pending" and page.allows("approvals") and not item.no_right,
        is_risky=item.is_risky,
        is_old=_is_old(page, item),
        note=note,
        refused=refused,
        is_offer=item.action_id == naming.GRANT,
        NOT_PENDING=ApprovalOutcome.NOT_PENDING,
    )


def _undo(page: PageRequest, item: ApprovalItem) -> ApprovalItem | None:
    """Read the approval of the rollback, if the action did harm and its rollback needs one."""
    done = item.effect.compensation if item.effect else None
    return page.ctx.agent.past_approval(done.approval) if done and done.approval else None


def _can_be_given(item: ApprovalItem, verb: str, stop: str | None) -> bool:
    """Check that an answer can be given now, as far as neither policy nor key decide it."""
    may = item.status == "pending" and verb in VERDICTS and not item.no_right
    return may and not (stop and verb == "approve")


def _evidence(page: PageRequest, item: ApprovalItem) -> Evidence:
    agent = page.ctx.agent
    actions = agent.entry.catalog.actions
    query = action_routes.ExecutionsQuery(limit=_EARLIER, action=item.action_id)
    iteration = _iteration_by_number(page, item)
    is_outside = not item.loop_iteration or (
        iteration.value is not None and not _has_asked(iteration.value, item)
    )
    return Evidence(
        Part(None) if is_outside else iteration,
        is_outside,
        next((manifest for manifest in actions if manifest.id == item.action_id), None),
        action_routes.executions(page.ctx, query).executions,
        [id for kind, id in map(naming.parts, item.wakes) if kind == "investigation"],
        agent.store.procedures.get(naming.approval(item.id)) if item.plan else None,
    )


def _iteration_by_number(page: PageRequest, item: ApprovalItem) -> Part[LoopResult | None]:
    """The iteration with the number of the item, which need not have asked for it.

    Requests of clients and verifications bear the number of the latest iteration at their time.
    """
    number = item.loop_iteration
    return read_part(lambda: page.ctx.agent.past.get(str(number)) if number else None)


def _has_asked(iteration: LoopResult, item: ApprovalItem) -> bool:
    """Check that an iteration asked for it: numbers may have begun again since."""
    if iteration.success:
        return any(result.waits_for == item.id for result in iteration.action_results)
    # One that was abandoned has no results.
    decision, began = iteration.decision, iteration.started_at
    return decision is not None and decision.action == item.action_id and began <= item.created_at


def _is_old(page: PageRequest, item: ApprovalItem) -> bool:
    """Check that the dry run is too old for a decision."""
    now, preview_time = page.ctx.now, item.preview_at
    return item.status == "pending" and bool(now and preview_time and now - preview_time > OLD)


def _item(page: PageRequest, id: str) -> ApprovalItem:
    item = page.ctx.agent.past_approval(id)
    if item is None:
        raise not_found(f"agent {page.ctx.agent.entry.id!r} has no approval {id!r}")
    return item


def address(item: ApprovalItem) -> str:
    """The address of the approval's page."""
    return f"/console/agents/{item.agent_id}/approvals/{item.id}"
