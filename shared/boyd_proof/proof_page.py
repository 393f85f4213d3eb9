"""The console page of the proof that was published last: plot, scores and labels."""

from __future__ import annotations

from boyd_api.console.declared_pages import NavigationLink, PageResult, Pages
from boyd_api.console.page_request import PageRequest, read_part
from boyd_api.console.rendering import render_page, when
from boyd_api.console.time_plot import HEIGHT, WIDTH
from boyd_proof import proof_plot, proof_words
from boyd_proof.proof_report import PublishedProof

pages = Pages("boyd_proof", NavigationLink("Proof", "proof", "/proof"))

#: The name under which `boyd prove --publish` leaves the report.
REPORT = "proof"
#: Labels that the page lists.
_LISTED = 200


@pages.get("/agents/<agent>/proof")
def latest_proof(page: PageRequest) -> PageResult:
    """Show how well the agent detects, by the latest proof that was published."""
    store = page.ctx.agent.store
    part = read_part(store.latest_report(REPORT, PublishedProof).read)
    report = part.value.report if part.value else None
    sweep = report.sweep if report else None
    best = sweep.recommendation if sweep else None
    values = [point.value for point in sweep.points] if sweep else []
    return render_page(
        page,
        "proof/proof.html",
        problem=part.why,
        published=part.value,
        plot=proof_plot.plot(report) if report else None,
        curves=proof_plot.curves(sweep) if sweep else [],
        best_x=proof_plot.x_of(best.value, values) if best else None,
        alike_x=(
            [proof_plot.x_of(value, values) for value in (best.low, best.high)] if best else None
        ),
        words=proof_words,
        clock=when,
        width=WIDTH,
        height=HEIGHT,
        listed=_LISTED,
    )
