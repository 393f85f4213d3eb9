"""`boyd history`: what past iterations came to, or everything of one of them."""

from __future__ import annotations

import click

from boyd.cli import completing, iteration_view, output
from boyd.cli.columns import label, sentence, whole
from boyd.cli.connection import Api
from boyd.cli.options import api_options
from boyd.cli.values import Whole
from boyd.errors import ApiProblem
from boyd.models import (
    NO_OP,
    LoopResult,
    LoopStatus,
)
from boyd.models.answers import IterationList, IterationSummary

#: The columns of the list.
COLUMNS = (
    *(whole("#"), whole("ended"), whole("outcome")),
    *(whole("took", drop=2), whole("seen", drop=4), label("trigger", drop=3)),
    *(sentence("situation", drop=1), label("action", least=44)),
)
#: The most that one request may ask for, and that are read at once.
_PAGE = 500
_TOGETHER = 100_000


@click.command()
@click.argument(
    "iteration",
    required=False,
    type=Whole(1),
    shell_complete=completing.offered(completing.iterations),
)
@click.option("--limit", type=Whole(1, _TOGETHER), default=20, show_default=True)
@click.option(
    "--before", type=Whole(2), metavar="N", help="Go on with what came before iteration N."
)
@output.output_option
@api_options
def history(api: Api, iteration: int | None, limit: int, before: int | None, form: str) -> None:
    """Show past iterations, newest first.

    With ITERATION, show everything of that one.
    """
    if iteration is None:
        _list(api, limit, before, form)
    else:
        _one(api, iteration, form)


def _list(api: Api, limit: int, before: int | None, form: str) -> None:
    shown = _read(api, limit, before)
    if output.print_data(form, shown):
        return
    if not shown.iterations:
        output.say("There are no past iterations.")
        return
    output.print_table(COLUMNS, map(_row, shown.iterations))
    if shown.next_cursor:
        output.note(f"Older ones: --before {shown.next_cursor}")


def _read(api: Api, limit: int, before: int | None) -> IterationList:
    """So many past iterations, page by page; a page may hold fewer than it was asked for."""
    found: list[IterationSummary] = []
    cursor = str(before) if before else None
    while True:
        wanted = min(limit - len(found), _PAGE)
        page = api.agent.get("/loop/history", IterationList, limit=wanted, cursor=cursor)
        found += page.iterations
        cursor = page.next_cursor
        if cursor is None or len(found) >= limit:
            return IterationList(iterations=found, next_cursor=cursor)


def _row(result: IterationSummary) -> list[str]:
    return [
        str(result.iteration),
        output.short_date(result.ended_at),
        "ok" if result.success else "failed",
        output.duration(result.duration),
        str(result.observations),
        result.trigger,
        result.situation or "",
        _action(result),
    ]


def _action(result: IterationSummary) -> str:
    """What it came to; of an iteration that an earlier release has kept, what was decided."""
    if not result.success:
        return result.error or "no reason given"
    done = "; ".join(map(output.action_outcome, result.results))
    return done or result.decision or NO_OP


def _one(api: Api, iteration: int, form: str) -> None:
    try:
        result = api.agent.get(f"/loop/history/{iteration}", LoopResult)
    except ApiProblem as problem:
        if problem.name != "not-found":
            raise
        running = api.agent.get("/loop/status", LoopStatus)
        if running.iteration == iteration and running.phase != "idle":
            output.stop(output.NOT_FOUND, f"iteration {iteration} is not over: {running.phase}")
        output.stop(output.NOT_FOUND, f"no iteration {iteration} of {running.agent_id} is kept")
    if not output.print_data(form, result):
        iteration_view.show(result)
