"""`boyd runs submit|list|show|cancel|wait|redeliver`: tasks for an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, get_args

import click

from boyd.models import LEVELS, Callback, Run, RunResult, RunStatus
from boyd.models.responses import Redelivering, RunCancelled, RunCreated
from boyd.text.formatting import counted
from boyd_cli import api_access, completion, output
from boyd_cli.api_access import Api, find_by_prefix
from boyd_cli.commands.control_commands import timeout_option
from boyd_cli.options import Whole, api_options, data_options, id_argument, object_option
from boyd_cli.output import label, sentence, whole
from boyd_cli.terminal import Spinner

_ENDED = ("completed", "failed", "cancelled")
COLUMNS = (
    *(whole("id"), whole("status"), whole("priority", drop=2), whole("age")),
    *(label("source", drop=3), label("asked by", drop=1), sentence("title", least=30)),
)

run_argument = id_argument("run", completion.runs)


@click.group()
def runs() -> None:
    """Submit runs, tasks for an agent, and show their results."""


@runs.command()
@click.argument("title")
@click.option("--description", help="Description of the task; `-` reads standard input.")
@click.option("--priority", type=click.Choice(LEVELS), default="medium", show_default=True)
@object_option("--context", help="Facts about the task; `-` reads standard input.")
@click.option("--source", default="cli", show_default=True, help="Origin of the run.")
@click.option("--callback-url", help="URL to notify when the run ends.")
@click.option("--kind", help="Free-form label.")
@click.option("--wait", is_flag=True, help="Wait for the run to end, like `boyd runs wait`.")
@timeout_option
@data_options
def submit(
    api: Api,
    title: str,
    description: str | None,
    wait: bool,
    timeout: float | None,
    form: str,
    callback_url: str | None,
    **more: Any,
) -> None:
    """Submit a run, and print its id.

    The description defaults to the title. --timeout implies --wait.
    """
    if not title.strip():
        raise click.BadParameter("it must not be empty", param_hint="TITLE")
    text = sys.stdin.read() if description == "-" else description
    body = {"title": title, "description": text or title, "callbackUrl": callback_url, **more}
    created = api.agent.post("/runs", RunCreated, body)
    if wait or timeout is not None:
        output.note(f"run {created.id} is {created.status}")
        _finish(api, created.id, timeout, form)
    elif not output.print_data(form, created):
        output.say(created.id)


@runs.command("list")
@click.option(
    "--status", type=click.Choice(get_args(RunStatus)), help="Only runs with this status."
)
@click.option("--priority", type=click.Choice(LEVELS), help="Only runs with this priority.")
@click.option("--source", help="Only runs from this source.")
@click.option("--limit", type=Whole(1, 5000), default=20, show_default=True)
@data_options
def list_(api: Api, limit: int, form: str, **query: str | None) -> None:
    """List runs, newest first."""
    page = api_access.runs(api, limit, **query)
    now = api.agent.now()
    rows = [
        [
            *(
                output.short(run.id),
                run.status,
                run.priority,
                output.short_age(run.created_at, now),
            ),
            *(run.source, ", ".join(run.requested_by), run.title),
        ]
        for run in page
    ]
    output.print_list(form, page, COLUMNS, rows, "No runs found.")


@runs.command()
@run_argument
@data_options
def show(api: Api, run: str, form: str) -> None:
    """Show a run, and its result if it has ended."""
    item = _find(api, run)
    path = f"/runs/{item.id}/callback"
    callback = api_access.find_item(api, path, Callback) if item.callback_url else None
    document = {**item.to_wire(), **({"callback": callback} if callback else {})}
    if not output.print_data(form, document):
        _show(api, item, callback)


def _find(api: Api, prefix: str) -> Run:
    return find_by_prefix(api, prefix, "run", "/runs", Run, api_access.runs)


def _show(api: Api, run: Run, callback: Callback | None = None) -> None:
    output.say(output.one_line(f"{run.title}: {run.status}"))
    now = api.agent.now()
    output.print_pairs(
        ("id", run.id),
        ("what", run.description if run.description != run.title else ""),
        ("priority", run.priority),
        ("source", run.source),
        ("kind", run.kind or ""),
        ("asked by", ", ".join(run.requested_by)),
        ("submitted", output.age(run.created_at, now)),
        ("ended", output.age(run.completed_at, now) if run.completed_at else ""),
        ("iteration", str(run.iteration or "")),
        ("approval", run.approval_id or ""),
        ("reason", run.reason or ""),
        *((f"  {name}", str(value)) for name, value in run.context.items()),
        ("callback", _callback_text(callback) if callback else run.callback_url or ""),
    )
    if run.result is not None:
        output.print_pairs(*_result_rows(run.result))


def _callback_text(callback: Callback) -> str:
    tries = counted(callback.attempts, "attempt")
    last = callback.deliveries[-1] if callback.deliveries else None
    outcome = f", last: {last.error or last.status}" if last else ""
    return f"{callback.url}: {callback.state}, {tries}{outcome}"


def _result_rows(result: RunResult) -> Iterator[tuple[str, str]]:
    yield "summary", result.summary
    yield from (("finding", text) for text in result.findings)
    for action in result.actions_performed:
        yield (
            "action",
            f"{action.action} {'ok' if action.success else 'failed'}: {action.description}",
        )
    yield from (("recommended", text) for text in result.recommendations)
    yield "took", output.duration(result.duration)


@runs.command()
@run_argument
@click.option("--reason", help="Reason; stored with the run.")
@api_options
def cancel(api: Api, run: str, reason: str | None) -> None:
    """Cancel a run that has not ended."""
    item = _find(api, run)
    done = api.agent.post(f"/runs/{item.id}/cancel", RunCancelled, {"reason": reason})
    output.say(f"run {output.short(done.id)} is {done.status}")


@runs.command()
@run_argument
@timeout_option
@data_options
def wait(api: Api, run: str, timeout: float | None, form: str) -> None:
    """Wait until a run has ended; exit status 1 unless it is completed."""
    _finish(api, _find(api, run).id, timeout, form)


def _finish(api: Api, run_id: str, timeout: float | None, form: str) -> None:
    run = _await(api, run_id, timeout)
    if not output.print_data(form, run):
        _show(api, run)
    output.fail_if(run.status != "completed")


def _await(api: Api, run_id: str, timeout: float | None) -> Run:
    run: Run | None = None
    with Spinner(timeout) as waiting:
        while True:
            run = waiting.ask(lambda: api.agent.get(f"/runs/{run_id}", Run)) or run
            if run is not None and run.status in _ENDED:
                return run
            state = run.status if run else "pending"
            if waiting.is_over:
                text = f"run {output.short(run_id)} is {state}"
                output.stop(output.TIMED_OUT, f"{text} after {output.seconds(timeout or 0)}")
            waiting.pause(f"run {output.short(run_id)}: {state}")


@runs.command()
@run_argument
@api_options
def redeliver(api: Api, run: str) -> None:
    """Send the callback of an ended run again."""
    item = _find(api, run)
    api.agent.post(f"/runs/{item.id}/callback/redeliver", Redelivering)
    output.say(f"the callback of run {output.short(item.id)} will be sent again")
