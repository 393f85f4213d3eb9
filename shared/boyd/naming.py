"""Names of executions and jobs: a kind, a colon, and an id.

The ledger names executions, and workers name jobs; `call:<id>` is both. Users see and type the
names of executions, so the formats never change.
"""

from __future__ import annotations

import re
import uuid

#: The name of a process: host, process id and a random part.
_WORKER = re.compile(r"(.+)\.\d+\.[0-9a-f]{4}")
#: The action that a person approves to let another run alone in a class of situation.
GRANT = "boyd:let-run-alone"
_LOOP = "loop"
_ROLLBACK = "rollback"
_STEP = "step"
_VERIFICATION = "verify"
#: An approval in the name of an execution.
_APPROVAL = re.compile(r"(?:^|:)approval:([^:@]+)")
#: The part of a UUID that is shown, and the rest.
_UUID = re.compile(r"\b([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def worker(host: str, pid: int) -> str:
    """A unique name for a process."""
    return f"{host}.{pid}.{uuid.uuid4().hex[:4]}"


def host_of(worker: str) -> str | None:
    """Return the host in a name made by `worker`, or None if the name has another form."""
    match = _WORKER.fullmatch(worker)
    return match[1] if match else None


def iteration(number: int, timeline: str) -> str:
    """The unique name of an iteration.

    Numbers may restart when Redis loses data; the timeline then differs.
    """
    return f"{number}.{timeline}" if timeline else str(number)


def iteration_execution(iteration: str) -> str:
    """The execution decided by an iteration, named by `iteration`."""
    return f"{_LOOP}:{iteration}"


def loop_number(name: str) -> int | None:
    """The iteration's number if *name* is that of its execution, without a timeline."""
    kind, number = parts(name)
    return int(number) if kind == _LOOP and number.isdecimal() and len(number) < 16 else None


def approval(approval_id: str) -> str:
    """The job that executes an approved action, and that execution."""
    return f"approval:{approval_id}"


def approval_in(execution: str) -> str | None:
    """Return the approval of an execution, its procedure, or what it undoes, if it says one."""
    match = _APPROVAL.search(execution)
    return match[1] if match else None


def call(call_id: str) -> str:
    """The job of a client's call, and its execution."""
    return f"call:{call_id}"


def rollback(undone: str) -> str:
    """The only execution that undoes *undone*."""
    return f"{_ROLLBACK}:{undone}"


def procedure(execution: str) -> str:
    """The job of the procedure that *execution* has started."""
    return f"procedure:{execution}"


def steps_of(execution: str) -> str:
    """The beginning of the names of the executions of a procedure's steps."""
    return f"{_STEP}:{execution}:"


def step(execution: str, step_id: str, number: int = 0) -> str:
    """The execution of a step; *number* counts its repetitions."""
    return f"{steps_of(execution)}{step_id}" + (f".{number}" if number else "")


def compensation(execution: str, step_id: str, number: int = 0) -> str:
    """The execution that undoes a step by an action of its own."""
    return f"compensation:{execution}:{step_id}" + (f".{number}" if number else "")


def wave(execution: str, step_id: str) -> str:
    """The targets of a procedure's step."""
    return f"{execution}:{step_id}"


def parts_of_wave(wave: str) -> tuple[str, str]:
    """The execution of the procedure, and the id of the step, in a name by `wave`."""
    execution, _, step_id = wave.rpartition(":")
    return execution, step_id


def target(wave: str, number: int) -> str:
    """The job that is at work on a target of a step."""
    return f"target:{wave}@{number}"


def procedure_of(job: str) -> str | None:
    """The execution of the procedure that a job goes on with, or a target of which."""
    kind, id = parts(job)
    if kind == "target":
        return parts_of_wave(parts_of_target(id)[0])[0]
    return id if kind == "procedure" else None


def parts_of_target(target: str) -> tuple[str, int]:
    """The wave and the number of a target in the id of its job, `<wave>@<number>`."""
    wave, _, number = target.rpartition("@")
    return wave, int(number)


def of_target(step_id: str, number: int) -> str:
    """A step for one of its targets; its executions and what undoes them have this name."""
    return f"{step_id}@{number}"


def is_target(name: str) -> bool:
    """Report whether that is the name of a step for one of its targets."""
    return "@" in name


def step_of(name: str) -> str:
    """The id of the step in the end of an execution's name, as in `drain@17.1`."""
    return name.partition(".")[0].partition("@")[0]


def verification(execution: str) -> str:
    """The job that verifies the effect of an execution."""
    return f"{_VERIFICATION}:{execution}"


def is_verification(job: str) -> bool:
    """Report whether that job verifies the effect of an execution."""
    return parts(job)[0] == _VERIFICATION


def wait(execution: str) -> str:
    """The job that looks whether a case ends before its action is executed."""
    return f"wait:{execution}"


def investigation(investigation_id: str) -> str:
    """The job of an investigation."""
    return f"investigation:{investigation_id}"


def tool_call(investigation_id: str, call_id: str) -> str:
    """The execution of a tool call in an investigation."""
    return f"{investigation(investigation_id)}:{call_id}"


def callback(run_id: str) -> str:
    """The job of a run's callback."""
    return f"callback:{run_id}"


def notice(approval_id: str) -> str:
    """The job that plans the notifications of an approval."""
    return f"notice:{approval_id}"


def delivery(approval_id: str, notification: str) -> str:
    """The job that sends one notification of an approval."""
    return f"delivery:{approval_id}:{notification}"


def offer(execution: str) -> str:
    """The proposal to let its action run alone, after the outcome of an execution."""
    return f"offer:{execution}"


def title(action: str, undoes: str | None) -> str:
    """The title of an approval or a call: its action, or the undo of an execution."""
    return f"undo of {action} ({short(undoes)})" if undoes else action


def short(name: str) -> str:
    """*name* with shortened ids, which commands accept as well."""
    return _UUID.sub(r"\1", name)


def parts(name: str) -> tuple[str, str]:
    """The kind and the id in a name; the whole text and an empty id if it is not a name."""
    kind, _, id = name.partition(":")
    return kind, id


def is_rollback(name: str) -> bool:
    """Report whether that execution undoes another one."""
    return parts(name)[0] == _ROLLBACK
