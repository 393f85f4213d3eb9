"""The latest replay of an agent that was published: what a changed agent would have decided."""

from __future__ import annotations

from typing import get_args

from boyd.models.replayed import Difference
from boyd_api.console.pages import PageRequest, PageResult, Pages
from boyd_api.console.parts import read_part

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
    part = read_part(page.ctx.agent.store.replay.read)
    return page.render(
        "replay.html",
        problem=part.why,
        found=part.value,
        kinds=get_args(Difference),
        shapes=SHAPES,
    )
