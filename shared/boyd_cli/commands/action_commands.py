"""`boyd actions …` and `boyd procedures …`: run actions, see whether they helped, lift holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

import click

from boyd import naming
from boyd.errors import ApiProblem, BoydError
from boyd.models import (
    ActionResult,
    ExecutionEntry,
    Hold,
    HoldList,
    ProcedureList,
    ProcedureRecord,
    WaveProgress,
)
from boyd.models.responses import ActionList, Execution, LiftedHold, Taken
from boyd.text.formatting import call_text
from boyd_cli import api_access, completion, output
from boyd_cli.api_access import Api, resolve_prefix
from boyd_cli.options import (
    Pairs,
    Whole,
    data_options,
    id_argument,
    object_option,
    pairs_option,
    period_options,
    wait_option,
)
from boyd_cli.output import label, long_id, sentence, whole
from boyd_cli.terminal import Spinner
from boyd_cli.views import iteration_view
from boyd_cli.views.approval_view import fields_of, show_manifest

EXECUTION_COLUMNS = (
    *(long_id("execution", least=24), whole("started", drop=1), label("action")),
    *(whole("state"), whole("effect"), label("target", drop=2)),
    *(whole("took", drop=4), label("host", drop=3), label("by", drop=5)),
)


@click.command()
@click.option("--host", help="Only executions on this host.")
@click.option("--worker", help="Only executions by this worker.")
@click.option("--action", help="Only executions of this action.")
@click.option("--target", help="Only executions on this target.")
@click.option(
    "--state",
    type=click.Choice(["running", "succeeded", "failed", "unknown"]),
    help="Only executions in this state.",
)
@click.option("--limit", type=Whole(1, 100_000), default=50, show_default=True)
@data_options
@period_options
def executions(api: Api, limit: int, form: str, **query: Any) -> None:
    """List the executions of the last seven days, newest first."""
    items = api_access.executions(api, limit, **query)
    rows = map(_execution_row, items)
    output.print_list(form, items, EXECUTION_COLUMNS, rows, "No executions found.")


def _execution_row(entry: ExecutionEntry) -> list[str]:
    took = entry.ended_at - entry.started_at if entry.ended_at and entry.started_at else None
    return [
        naming.short(entry.id),
        output.short_date(entry.started_at or entry.ended_at),
        entry.action,
        iteration_view.state_text(entry),
        iteration_view.effect(entry.verification),
        entry.target,
        output.duration(took.total_seconds() * 1000) if took is not None else "",
        entry.host or "",
        entry.by or "",
    ]


#: The number of executions among which a shortened id is looked up.
_RECENT = 1000
#: Seconds within which a required approval is created.
_ASKING = 3.0
COLUMNS = (
    *(whole("action"), whole("risk"), whole("autonomy")),
    *(whole("dry run", drop=3), whole("reversibility", drop=2)),
    *(sentence("params", least=12), sentence("description", drop=1)),
)

rationale_option = click.option(
    "--reason", "rationale", help="Reason; shown in the audit trail and to approvers."
)
approval_option = click.option(
    "--require-approval", is_flag=True, help="Require an approval in any case."
)


@click.group()
def actions() -> None:
    """List, run, dry-run and roll back the actions of an agent."""


actions.add_command(executions)

HOLD_COLUMNS = (
    *(whole("action"), label("target"), whole("kind"), long_id("execution", least=17, drop=3)),
    *(whole("until"), label("or gone", drop=2), sentence("evidence", drop=1)),
)


@actions.command()
@data_options
def holds(api: Api, form: str) -> None:
    """List the actions that are not repeated on a target for now."""
    items = api.agent.get("/holds", HoldList).holds
    rows = [
        [
            *(hold.action, hold.target, hold.kind, hold.execution),
            *(_until(hold), ", ".join(hold.symptoms), _evidence(hold)),
        ]
        for hold in items
    ]
    output.print_list(form, items, HOLD_COLUMNS, rows, "No action is held.")


def _until(hold: Hold) -> str:
    return "its end" if hold.in_flight else output.short_date(hold.until) or "lifted"


def _evidence(hold: Hold) -> str:
    denied = [f"by {hold.by}"] if hold.kind == "denied" else []
    return ": ".join([*denied, *([hold.evidence] if hold.evidence else [])])


@actions.command()
@id_argument("action", completion.actions)
@click.argument("target", default="")
@click.option("--reason", "note", help="Reason; shown in the audit trail.")
@data_options
def lift(api: Api, action: str, target: str, note: str | None, form: str) -> None:
    """Let a held action run again on its target.

    A suspended action did harm: find out why first.
    """
    body = {"action": action, "target": target, "note": note or ""}
    lifted = api.agent.post("/holds/lift", LiftedHold, body)
    if not output.print_data(form, lifted):
        on = f" on {output.one_line(target)}" if target else ""
        output.say(f"{output.one_line(action)} may run again{on}")


@actions.command("list")
@data_options
def list_(api: Api, form: str) -> None:
    """List the actions of an agent with their parameters."""
    manifests = api.agent.get("/actions", ActionList).actions
    rows = [
        [
            *(action.id, action.risk, action.autonomy.mode, "yes" if action.dry_run else "no"),
            *(action.reversibility, fields_of(action.params), action.description),
        ]
        for action in manifests
    ]
    output.print_list(form, manifests, COLUMNS, rows, "The agent has no actions.")


@actions.command()
@id_argument("action", completion.actions)
@data_options
def show(api: Api, action: str, form: str) -> None:
    """Show the manifest of an action: what it may do, and its limits."""
    manifests = {
        manifest.id: manifest for manifest in api.agent.get("/actions", ActionList).actions
    }
    if action not in manifests:
        text = f"the agent has no action {output.one_line(action)!r}"
        output.stop(output.NOT_FOUND, f"{text}; {_suggest_actions(api, action)}")
    if not output.print_data(form, manifests[action]):
        show_manifest(manifests[action])


param_option = pairs_option(
    "-p", "--param", help="One parameter; the value is JSON if it parses, otherwise text."
)
params_option = object_option("--params", help="All parameters; `-` reads standard input.")


@actions.command()
@id_argument("action", completion.actions)
@param_option
@params_option
@rationale_option
@approval_option
@wait_option
@data_options
def run(
    api: Api,
    action: str,
    param: Pairs,
    params: dict[str, Any],
    rationale: str | None,
    require_approval: bool,
    wait: float,
    form: str,
) -> None:
    """Run an action, subject to the same checks as in the loop.

    Exit status 124: it is queued, still running, or waits for an approval.
    """
    body = {
        "params": {**params, **param},
        "rationale": rationale,
        "requiresApproval": require_approval,
    }
    with _suggesting(api, action):
        error = _job(api, f"/actions/{quote(action, safe=':/')}", body, wait, form)
    _fail_if(error, param)


@actions.command("dry-run")
@id_argument("action", completion.actions)
@param_option
@params_option
@wait_option
@data_options
def dry_run(
    api: Api, action: str, param: Pairs, params: dict[str, Any], wait: float, form: str
) -> None:
    """Show the effect of an action without running it."""
    path = f"/actions/{quote(action, safe=':/')}/dry-run"
    with _suggesting(api, action):
        error = _job(api, path, {"params": {**params, **param}}, wait, form)
    _fail_if(error, param)


@actions.command()
@id_argument("execution", completion.executions)
@rationale_option
@approval_option
@wait_option
@data_options
def rollback(
    api: Api, execution: str, rationale: str | None, require_approval: bool, wait: float, form: str
) -> None:
    """Undo a successful execution, once; exit status 5: it cannot be undone, or not again.

    EXECUTION is `loop:12` for iteration 12, `approval:` and the id of an approval, `call:` and the
    id that `boyd actions run` has printed, or what `boyd actions executions` shows.
    """
    body = {"rationale": rationale, "requiresApproval": require_approval}
    path = f"/executions/{quote(_complete_id(api, execution), safe=':')}/rollback"
    _fail_if(_job(api, path, body, wait, form, undoes=execution), Pairs())


@actions.command()
@id_argument("execution", completion.cancellable_executions)
@click.option("--reason", "note", default="", help="Reason; shown in the audit trail.")
@data_options
def cancel(api: Api, execution: str, note: str, form: str) -> None:
    """Cancel an execution that is queued, so that it never starts; exit status 5: it has started.

    EXECUTION is `call:` and the id that `boyd actions run` has printed; of one that waits for its
    turn, as `boyd actions holds` shows, the beginning of the id suffices.
    """
    if naming.short(execution) == execution:
        execution = resolve_prefix(
            "queued execution",
            execution,
            (name for name, _ in completion.cancellable_executions(api)),
        )
    path = f"/executions/{quote(execution, safe=':')}/cancel"
    cancelled = api.agent.post(path, Execution, {"note": note})
    if not output.print_data(form, cancelled):
        output.say(f"{naming.short(cancelled.id)}: {cancelled.action} is cancelled")


def _complete_id(api: Api, execution: str) -> str:
    """Complete a shortened id in the name of an execution."""
    kind, beginning = naming.parts(execution)
    if kind == "approval":
        if not beginning.strip():
            raise click.BadParameter(
                f"{execution!r} has an empty id: give the id or a prefix of it",
                param_hint="EXECUTION",
            )
        ids = (item.id for item in api_access.every_approval(api))
        return naming.approval(resolve_prefix("approval", beginning, ids))
    if "loop:" in execution or naming.short(execution) != execution:
        return execution
    names = {naming.short(entry.id): entry.id for entry in api_access.executions(api, _RECENT)}
    return names[resolve_prefix("execution", execution, names)]


def _fail_if(error: str | None, param: Pairs) -> None:
    """End the command if the action failed, with a hint if a value in *param* is to blame."""
    for name, typed in param.typed.items():
        if f"{name}: Input should be a valid string" in (error or ""):
            quoted = shlex.quote(f"{name}={json.dumps(typed, ensure_ascii=False)}")
            pair = f"{name}={output.one_line(typed)}"
            hint = f"{pair} was parsed as JSON; to pass it as text, use -p {quoted}"
            output.note(f"boyd: {hint}")
    output.fail_if(error is not None)


@contextmanager
def _suggesting(api: Api, action: str) -> Iterator[None]:
    """Suggest actions with similar names if there is no such action."""
    try:
        yield
    except ApiProblem as problem:
        if problem.status != 404 or "has no action" not in problem.detail:
            raise
        text = f"{output.one_line(problem.detail)}; {_suggest_actions(api, action)}"
        output.stop(output.NOT_FOUND, text)


def _suggest_actions(api: Api, action: str) -> str:
    listing = f"`{output.command_name()} actions list` lists the actions"
    try:
        ids = [manifest.id for manifest in api.agent.get("/actions", ActionList).actions]
    except ApiProblem:  # a key that may act need not be one that may look
        return listing
    close = " or ".join(get_close_matches(action, ids))
    return f"did you mean {close}?" if close else listing


def _job(
    api: Api, path: str, body: dict[str, Any], wait: float, form: str, undoes: str | None = None
) -> str | None:
    """Have it done, show the result, and return its error; exit with 124 without a result."""
    job = api.agent.post(path, Taken, body, wait=0)
    if body.get("requiresApproval"):  # whoever asks for an approval wants to know its id
        wait = max(wait, _ASKING)
    if wait and job.result is None and not job.queued:
        job = _await(api, job, wait)
    is_data = output.print_data(form, job)
    if job.result is None:
        output.stop(output.TIMED_OUT, _pending_text(api, job))
    if not is_data:
        show_result(job.result, job.execution_id, naming.title(job.result.action, undoes))
    return None if job.result.is_fine else job.result.error or ""


def _pending_text(api: Api, job: Taken) -> str:
    """The state of a job without a result, and what to do about it."""
    command = output.command_name()
    if job.approval_id:
        name = output.short(job.approval_id)
        return f"it waits for approval {name}; see `{command} approvals show {name}`"
    try:
        state = api.agent.get(_execution_path(job), Execution).state
    except BoydError:  # a key that may act need not be one that may look
        return f"it has not ended; {job.execution_id} continues without this command"
    if state == "queued":
        advice = f"`{command} actions cancel {job.execution_id}` cancels it"
        return f"it is queued; {job.execution_id} continues without this command; {advice}"
    return f"it is still running; {job.execution_id} continues without this command"


def _execution_path(job: Taken) -> str:
    return f"/executions/{quote(job.execution_id, safe=':')}"


def _await(api: Api, job: Taken, seconds: float) -> Taken:
    with Spinner(seconds) as waiting:
        while True:
            execution = waiting.ask(lambda: api.agent.get(_execution_path(job), Execution))
            result = execution.result if execution else None
            if result is not None and not result.waits_for:
                changes = {"queued": None, "result": result, "success": result.success}
                return job.patched(changes)
            if execution is not None and (result is not None or execution.state == "waiting"):
                approval = result.waits_for if result is not None else execution.approval_id
                return job.patched({"queued": True, "approval_id": approval})
            if waiting.is_over:
                return job
            waiting.pause(_course(execution) if execution else job.execution_id)


def _course(job: Execution) -> str:
    """The progress of a job, in one line."""
    if job.in_flight:
        return f"{job.action} waits for its turn: {job.in_flight[0].course}"
    return f"{job.action} {job.state}" + (f" on {job.worker}" if job.worker else "")


def show_result(result: ActionResult, execution_id: str, title: str = "") -> None:
    """Print the outcome of an execution; *title* replaces the action's name."""
    output.say(iteration_view.action_outcome(result, title))
    output.print_pairs(
        iteration_view.error_row(result),
        ("took", iteration_view.action_duration(result)),
        ("output", output.text_of(result.output)),
        ("effects", ", ".join(result.side_effects or [])),
        ("violation", _violation(result)),
        ("execution", execution_id),
    )


def _violation(result: ActionResult) -> str:
    violation = result.violation
    return f"{violation.limit}: {violation.detail}" if violation else ""


PROCEDURE_COLUMNS = (
    *(long_id("procedure", least=17), label("action"), label("target", drop=2), whole("started")),
    *(sentence("progress", least=20), sentence("reason", drop=1)),
)
STEP_COLUMNS = (
    *(whole("step"), label("action"), whole("state"), whole("undone")),
    *(long_id("execution", least=17, drop=1), sentence("detail", drop=2)),
)

TARGET_COLUMNS = (
    *(label("target"), whole("state"), long_id("execution", least=17, drop=1)),
    sentence("detail", least=20),
)
#: Characters of a bar.
_BAR = 20

procedure_argument = id_argument("procedure", completion.procedures)
note_option = click.option("--reason", "note", default="", help="Reason; shown in the audit trail.")


@click.group()
def procedures() -> None:
    """Show procedures, cancel them, and resume those that wait for a person."""


@procedures.command("list")
@click.option("--limit", type=Whole(1, 500), default=20, show_default=True)
@data_options
def list_procedures(api: Api, limit: int, form: str) -> None:
    """List the procedures that were started, latest first; `boyd actions list` has the others."""
    records = api.agent.get("/procedures", ProcedureList, limit=limit).procedures
    rows = [
        [
            *(record.id, record.action, record.target, output.short_date(record.started_at)),
            *(record.summary, record.reason or ""),
        ]
        for record in records
    ]
    output.print_list(form, records, PROCEDURE_COLUMNS, rows, "No procedure has been started.")


@procedures.command("show")
@procedure_argument
@click.option("--wait", is_flag=True, help="Wait until it has ended, or is stopped for a person.")
@data_options
def show_procedure(api: Api, procedure: str, wait: bool, form: str) -> None:
    """Show a procedure with the state of each step.

    With --wait, the exit status is 1 unless it has succeeded.
    """
    path = _path(api, procedure)
    record = _await_procedure(api, path) if wait else api.agent.get(path, ProcedureRecord)
    if not output.print_data(form, record):
        _show(record)
    if wait and record.state != "succeeded":
        output.stop(output.FAILED, f"procedure {naming.short(record.id)}: {record.summary}")


def _await_procedure(api: Api, path: str) -> ProcedureRecord:
    with Spinner(None) as waiting:
        while True:
            record = waiting.insist(lambda: api.agent.get(path, ProcedureRecord))
            if record.has_ended or record.state == "stopped":
                return record
            waiting.pause(" ".join(_course_of(record)))


def _course_of(record: ProcedureRecord) -> Iterator[str]:
    """The progress of a procedure in one line, with a bar for the targets of its step."""
    wave = record.progress[record.at].wave if record.at < len(record.steps) else None
    if wave is not None:
        yield _bar(wave)
    yield f"{record.action}: {record.summary}"


def _bar(wave: WaveProgress) -> str:
    """A bar of the targets that are over."""
    full = _BAR * wave.over // max(1, wave.total)
    return "━" * full + "·" * (_BAR - full)


@procedures.command("cancel")
@procedure_argument
@note_option
@data_options
def cancel_procedure(api: Api, procedure: str, note: str, form: str) -> None:
    """Start no further step, and undo those that took effect, the latest first."""
    _change(api, procedure, "cancel", {"note": note}, form)


@procedures.command()
@procedure_argument
@click.option("--repeat", is_flag=True, help="Execute again what was lost or failed.")
@note_option
@data_options
def resume(api: Api, procedure: str, repeat: bool, note: str, form: str) -> None:
    """Let a stopped procedure go on.

    A step or compensation whose outcome is unknown counts as done: find out first.
    """
    _change(api, procedure, "resume", {"note": note, "repeat": repeat}, form)


def _change(api: Api, procedure: str, verb: str, body: dict[str, Any], form: str) -> None:
    changed = api.agent.post(f"{_path(api, procedure)}/{verb}", ProcedureRecord, body)
    if not output.print_data(form, changed):
        done = "cancelled" if verb == "cancel" else changed.summary
        output.say(f"procedure {naming.short(changed.id)}: {done}")


def _path(api: Api, procedure: str) -> str:
    ids = (
        record.id for record in api.agent.get("/procedures", ProcedureList, limit=500).procedures
    )
    return f"/procedures/{quote(resolve_prefix('procedure', procedure, ids), safe=':')}"


def _show(record: ProcedureRecord) -> None:
    call = call_text(record.action, record.target)
    output.say(output.one_line(f"{call}: {record.summary}"))
    output.print_pairs(
        ("id", record.id),
        ("started", output.short_date(record.started_at)),
        ("by", record.by),
        ("reason", record.reason or ""),
        ("cancelled by", record.cancelled_by or ""),
        *((f"  {name}", str(value)) for name, value in record.params.items()),
    )
    pairs = list(zip(record.steps, record.progress, strict=True))
    rows = [list(_row(record, index)) for index in range(len(pairs))]
    output.print_list("table", pairs, STEP_COLUMNS, rows, "")
    for step, progress in pairs:
        if progress.wave is not None and progress.state != "pending":
            _show_wave(step.id, progress.wave)


def _show_wave(step: str, wave: WaveProgress) -> None:
    """Print how far a step is with its targets, and those that failed or wait."""
    output.say("")
    output.say(f"{step} {_bar(wave)} {wave.summary}")
    if not wave.problems:
        return
    rows = [
        [target.label, target.state, target.execution or "", target.detail or target.approval or ""]
        for target in wave.problems
    ]
    output.print_list("table", wave.problems, TARGET_COLUMNS, rows, "")


def _row(record: ProcedureRecord, index: int) -> Iterator[str]:
    step, progress = record.steps[index], record.progress[index]
    undone = progress.compensation
    yield step.id
    yield step.action or "asks a person"
    yield record.step_state(index)
    yield undone.state if undone else ""
    yield progress.execution or ""
    detail = (undone.detail if undone else None) or progress.detail or progress.approval
    yield detail or (progress.wave.summary if progress.wave else "")
