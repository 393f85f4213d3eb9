"""The latest replay of an agent that was published: what a changed agent would have decided."""

from __future__ import annotations

from typing import get_args

from boyd.models.tape import Difference
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.forms import read_part
from boyd_api.console.page_request import PageRequest
from boyd_api.console.rendering import render_page

pages = Pages()

#: The mark of each difference.
SHAPES = {
    "newly automatic": "warning",
    "newly refused": "failed",
    "cannot tell": "unknown",
}


@pages.get("/agents/<agent>/replay")
def latest_replay(page: PageRequest) -> PageResult:
    """Show the differences by action, then the iterations."""
    part = read_part(page.ctx.agent.store.latest_replay.read)
    return render_page(
        page,
        "replay.html",
        problem=part.why,
        found=part.value,
        kinds=get_args(Difference),
        shapes=SHAPES,
    )
