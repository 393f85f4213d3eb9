"""The plugin `shell`: one action under two names, and the policy as its guard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from boyd.errors import PluginError, Veto
from boyd.models import ActionResult, Decision, JsonObject, Model
from boyd.models.investigation import ToolObservation
from boyd.plugin import Action, Context, Plugin, hook
from boyd.plugins.command import check_limit
from boyd.plugins.shell import runner
from boyd.plugins.shell.policy import Policy, PolicyVerdict, prefix
from boyd.sandbox.accounts import Account, account

DEFAULT_TIMEOUT = 60.0
MAX_TIMEOUT = 600.0
MAX_OUTPUT = 65536
NAMES = ("bash", "run_command")


def _absolute(text: str) -> str:
    path = os.path.expanduser(text)  # noqa: PTH111 - it is text that the command line needs
    if not path.startswith("/"):
        raise ValueError(f"{text!r} is not an absolute path")
    return os.path.normpath(path)


class CommandParams(Model):
    """A command line and how to run it."""

    command: str = Field(description="a command line for bash; it has no terminal and no input")
    timeout: float | None = Field(
        default=None, description=f"seconds it may take, at most {MAX_TIMEOUT:g}"
    )
    workdir: str | None = Field(default=None, description="the folder to run it in")


class Shell(Plugin):
    """Runs command lines, with an approval unless the policy covers them.

    As a guard it vetoes commands that the policy denies, from any plugin. Hooks run in plugin
    order and may change a decision, so place this plugin after those that do.
    """

    id = "shell"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            allow: first words of commands that need no approval.
            deny: program and following words of commands that never run.
            user: the user commands run as; the worker's user if absent.
            workdir: the folder they run in; the home of `user` or the folder of the worker.
            timeout: default time limit in seconds.
            max_output: bytes of output to keep.
            environment: names of further variables to pass on from the worker.
            queue: the queue of the workers on the right host; any worker if absent.
        """

        allow: list[str] = Field(default_factory=list)
        deny: list[str] = Field(default_factory=list)
        user: str | None = None
        workdir: Annotated[str, AfterValidator(_absolute)] | None = None
        timeout: float = Field(default=DEFAULT_TIMEOUT, gt=0, le=MAX_TIMEOUT)
        max_output: int = Field(default=MAX_OUTPUT, ge=1024, le=MAX_OUTPUT)
        environment: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field(
            default_factory=list
        )
        queue: str | None = None

        @field_validator("allow")
        @classmethod
        def _allowable(cls, allow: list[str]) -> list[str]:
            Policy(allow=allow)
            return allow

        @field_validator("deny")
        @classmethod
        def _plain(cls, deny: list[str]) -> list[str]:
            for text in deny:
                prefix(text)
            return deny

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._policy = Policy(self.options.allow, self.options.deny)
        self.components = tuple(self._action(name) for name in NAMES)

    def _action(self, name: str) -> Action:
        return Action(
            name=name,
            description="Run a command line in bash and return what it printed.",
            risk="high",
            reversibility="irreversible",
            concurrency=0,  # command lines act on whatever they name
            tool=True,
            category="execution",
            timeout=MAX_TIMEOUT + runner.MARGIN,
            queue=self.options.queue,
            params=CommandParams,
            execute=partial(self.run, name),
            dry_run=self.would_run,
        )

    def init(self, ctx: Context) -> None:
        """Check that commands can run as the configured user."""
        self._account()

    @hook(fail_closed=True)
    def on_decide(
        self, decision: Decision, action: Action | None, ctx: Context
    ) -> dict[str, Any] | None:
        """Require approval for commands the policy does not cover; veto those it denies."""
        if action is None or action.plugin_id != self.id:
            return None
        verdict = self._judge(decision.params)
        if verdict.denied:
            raise Veto(verdict.refused)
        # A refused command needs no approval: it reports the reason without running anything.
        if decision.requires_approval or verdict.refused or not verdict.uncovered:
            return None
        rationale = f"{decision.rationale}; not allowed without approval: {verdict.uncovered}"
        return {"requires_approval": True, "rationale": rationale}

    @hook(fail_closed=True)
    def on_before_act(self, action: Action, params: Mapping[str, Any]) -> None:
        """Veto commands that the policy denies, from any source."""
        if action.plugin_id == self.id:
            verdict = self._judge(params)
            if verdict.denied:
                raise Veto(verdict.refused)

    def run(self, tool: str, params: CommandParams, ctx: Context) -> ActionResult:
        """Run a command line, unless it is refused."""
        workdir = self._workdir(params.workdir)
        observation = ToolObservation(
            time=ctx.now(), tool=tool, command=params.command, workdir=workdir, status="refused"
        )
        verdict = self._policy.judge(params.command)
        refused = verdict.refused
        if not refused and ("\0" in workdir or not Path(workdir).is_dir()):
            refused = f"Folder not found: {workdir!r}"
        if refused:
            changes = {"output": refused, "interactive": verdict.interactive}
            return self._result(observation.patched(changes), refused)
        try:
            return self._execute(observation, params)
        except (OSError, ValueError) as error:
            reason = f"The command cannot be started: {error}"
            return self._result(observation.patched({"status": "failed", "output": reason}), reason)

    def _execute(self, observation: ToolObservation, params: CommandParams) -> ActionResult:
        user = self._account()
        seconds, note = self._limit(params.timeout)
        finished = runner.run(
            params.command,
            timeout=seconds,
            workdir=self._workdir(params.workdir),
            limit=self.options.max_output - len(note),
            env=runner.environment(self.options.environment, user),
            user=user,
        )
        check_limit("bash", finished.code)
        error = f"exit code {finished.code}" if finished.code else None
        if finished.timed_out:
            error = f"timed out after {seconds:g} s"
        changes = {
            "status": "failed" if finished.code else "succeeded",
            "exit_code": finished.code,
            "timed_out": finished.timed_out,
            "truncated": finished.output.is_truncated,
            "total_bytes": finished.output.total,
            "duration": round(finished.seconds * 1000, 3),
            "output": finished.output.text() + note,
        }
        return self._result(observation.patched(changes), error)

    def would_run(self, params: CommandParams) -> JsonObject:
        """The command as it would run, and the verdict of the policy."""
        verdict = self._judge(params.to_wire())
        says = "Would run it without an approval"
        if verdict.refused:
            says = f"Would refuse it: {verdict.refused}"
        elif verdict.uncovered:
            says = f"Would run it with an approval: {verdict.uncovered}"
        return {
            "command": params.command,
            "workdir": self._workdir(params.workdir),
            "user": self.options.user,
            "timeout": self._limit(params.timeout)[0],
            "allowed": not (verdict.refused or verdict.uncovered),
            "denied": verdict.denied,
            "interactive": verdict.interactive,
            "says": says,
        }

    def _judge(self, params: Mapping[str, Any]) -> PolicyVerdict:
        """The verdict on params that have not been validated yet."""
        command, workdir = params.get("command"), params.get("workdir")
        if not isinstance(command, str) or not isinstance(workdir, str | None):
            return PolicyVerdict(uncovered="its parameters are not valid")
        verdict = self._policy.judge(command)
        if verdict.refused or verdict.uncovered or workdir is None:
            return verdict
        ours, folder = Path(self._workdir(None)), Path(self._workdir(workdir))
        # Files in the folder may control what a program does.
        outside = self.options.workdir is None or not folder.is_relative_to(ours)
        reason = f"the folder {folder} is not inside the configured `workdir`"
        return PolicyVerdict(uncovered=reason) if outside else verdict

    def _workdir(self, folder: str | None) -> str:
        user = self._account()
        ours = self.options.workdir or (user.home if user else str(Path.cwd()))
        return os.path.normpath(os.path.join(ours, folder)) if folder else ours  # noqa: PTH118

    def _limit(self, seconds: float | None) -> tuple[float, str]:
        """The time limit in seconds, and a note about it for the output."""
        if seconds is None or seconds <= 0:
            return self.options.timeout, ""
        if seconds <= MAX_TIMEOUT:
            return seconds, ""
        lowered = f"\n[the time limit of {seconds:g} s was lowered to {MAX_TIMEOUT:g} s]\n"
        return MAX_TIMEOUT, lowered

    def _account(self) -> Account | None:
        if self.options.user is None:
            return None
        try:
            return account(self.options.user)
        except ValueError as error:
            raise PluginError(self.id, str(error)) from None

    def _result(self, observation: ToolObservation, error: str | None) -> ActionResult:
        # The loop measures the duration and sets the id.
        return ActionResult(
            action=observation.tool,
            success=error is None,
            duration=0.0,
            output=observation.to_wire(),
            error=error,
        )
