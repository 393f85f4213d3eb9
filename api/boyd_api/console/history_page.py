"""The past iterations of an agent: a list with a search."""

from __future__ import annotations

from dataclasses import dataclass

from flask import request

from boyd.models.outcomes import outcome, outcome_kind
from boyd.models.responses import IterationList, IterationSummary
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.filters import read_filter
from boyd_api.console.page_request import PageRequest
from boyd_api.console.parts import Part, read_part
from boyd_api.console.rendering import render_page
from boyd_api.console.strip import SHAPES, WORDS
from boyd_api.console.vital_signs import read_vital_signs
from boyd_api.routes import loop_routes
from boyd_api.routes.loop_routes import HistoryQuery

pages = Pages()

#: Iterations on one page.
_SHOWN = "50"


@dataclass(frozen=True)
class HistoryRow:
    """An iteration of the list.

    Attributes:
        name: what follows the agent in its id; it names the iteration's page.
        shape: the shape of its outcome, and `word` the word for it.
        text: the outcome in full; empty if nothing was done.
    """

    iteration: IterationSummary
    name: str
    shape: str
    word: str
    text: str


@pages.get("/agents/<agent>/history")
def history(page: PageRequest) -> PageResult:
    """Show the iterations that match, newest first."""
    filter = read_filter(page, HistoryQuery, limit=_SHOWN)
    part = _read(page, filter.query)
    rows = [_row(one) for one in part.value.iterations] if part.value else []
    nothing = not rows and filter.is_open and not part.why
    return render_page(
        page,
        "history.html",
        filter=filter,
        problem=filter.problem or part.why,
        found=part.value,
        rows=rows,
        is_first="cursor" not in request.args,
        health=read_vital_signs(page, [page.agent_id]) if nothing else [],
        catalog=page.ctx.agent.entry.catalog,
    )


def _read(page: PageRequest, query: HistoryQuery | None) -> Part[IterationList]:
    """The iterations, or why they cannot be read; neither without a query."""
    return Part(None) if query is None else read_part(lambda: loop_routes.history(page.ctx, query))


def _row(one: IterationSummary) -> HistoryRow:
    name = (one.id or "").partition(":")[2] or str(one.iteration)
    kind = outcome_kind(one)
    text = "" if kind == "idle" else outcome(one)
    return HistoryRow(one, name, SHAPES[kind], WORDS[kind], text)
