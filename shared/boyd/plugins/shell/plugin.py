"""The plugin: two names of one action, the policy as its guard, and what a run came to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from boyd.errors import PluginError, Veto
from boyd.models import ActionResult, Decision, JsonObject, Model
from boyd.models.investigation import ToolObservation
from boyd.plugin import Action, Context, Plugin, hook
from boyd.plugins.shell import runner
from boyd.plugins.shell.policy import Policy, PolicyVerdict, prefix

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


@dataclass(frozen=True)
class _Limit:
    """A time limit in seconds, and what is to be said of it."""

    seconds: float
    note: str = ""


class Shell(Plugin):
    """Runs command lines, each with the approval of a person unless the policy covers it.

    As a guard it vetoes what the policy denies, whoever asks for it. Hooks run in plugin order and
    may change a decision, so put this plugin behind those that do.
    """

    id = "shell"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            allow: commands that need no approval, by their first words.
            deny: commands that are never run, by their program and words that follow.
            user: whom commands run as; None: whom the worker runs as.
            workdir: the folder they run in; None: the home of `user`, or that of the worker.
            timeout: seconds a command may take if it does not say.
            max_output: bytes of output that are kept.
            environment: names of the worker's variables that commands get, too.
            queue: the queue of the workers on the right host; None: any worker.
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
            tool=True,
            category="execution",
            timeout=MAX_TIMEOUT + runner.MARGIN,
            queue=self.options.queue,
            params=CommandParams,
            execute=partial(self.run, name),
            dry_run=self.would_run,
        )

    def init(self, ctx: Context) -> None:
        """Make sure that commands can be run as the user of the options."""
        self._account()

    @hook(fail_closed=True)
    def on_decide(
        self, decision: Decision, action: Action | None, ctx: Context
    ) -> dict[str, Any] | None:
        """Require approval for what the policy does not cover; veto what it denies."""
        if action is None or not self._is_ours(action):
            return None
        verdict = self._judge(decision.params)
        if verdict.denied:
            raise Veto(verdict.refused)
        # What is refused anyway is not worth asking for: it says so without running anything.
        if decision.requires_approval or verdict.refused or not verdict.uncovered:
            return None
        rationale = f"{decision.rationale}; not allowed without a person: {verdict.uncovered}"
        return {"requires_approval": True, "rationale": rationale}

    @hook(fail_closed=True)
    def on_before_act(self, action: Action, params: Mapping[str, Any]) -> None:
        """Veto what the policy denies, whichever way it was asked for."""
        if self._is_ours(action):
            verdict = self._judge(params)
            if verdict.denied:
                raise Veto(verdict.refused)

    def run(self, tool: str, params: CommandParams, ctx: Context) -> ActionResult:
        """Run a command line, unless it is refused."""
        workdir = self._workdir(params.workdir)
        seen = ToolObservation(
            time=ctx.now(), tool=tool, command=params.command, workdir=workdir, status="refused"
        )
        verdict = self._policy.judge(params.command)
        refused = verdict.refused or self._no_folder(workdir)
        if refused:
            changes = {"output": refused, "interactive": verdict.interactive}
            return self._result(seen.patched(changes), refused)
        try:
            return self._ran(seen, params)
        except (OSError, ValueError) as error:
            reason = f"The command cannot be started: {error}"
            return self._result(seen.patched({"status": "failed", "output": reason}), reason)

    def _ran(self, seen: ToolObservation, params: CommandParams) -> ActionResult:
        user = self._account()
        limit = self._limit(params.timeout)
        ended = runner.run(
            params.command,
            timeout=limit.seconds,
            workdir=self._workdir(params.workdir),
            limit=self.options.max_output - len(limit.note),
            env=runner.environment(self.options.environment, user),
            user=user,
        )
        error = f"exit code {ended.code}" if ended.code else None
        if ended.timed_out:
            error = f"timed out after {limit.seconds:g} s"
        changes = {
            "status": "failed" if ended.code else "succeeded",
            "exit_code": ended.code,
            "timed_out": ended.timed_out,
            "truncated": ended.output.truncated,
            "total_bytes": ended.output.total,
            "duration": round(ended.seconds * 1000, 3),
            "output": ended.output.text() + limit.note,
        }
        return self._result(seen.patched(changes), error)

    def would_run(self, params: CommandParams) -> JsonObject:
        """What would be run, and what the policy says of it."""
        verdict = self._judge(params.to_wire())
        workdir = self._workdir(params.workdir)
        return {
            "command": params.command,
            "workdir": workdir,
            "user": self.options.user,
            "timeout": self._limit(params.timeout).seconds,
            "allowed": not (verdict.refused or verdict.uncovered),
            "denied": verdict.denied,
            "interactive": verdict.interactive,
            "says": self._says(verdict),
        }

    def _says(self, verdict: PolicyVerdict) -> str:
        if verdict.refused:
            return f"Would refuse it: {verdict.refused}"
        if verdict.uncovered:
            return f"Would run it with an approval: {verdict.uncovered}"
        return "Would run it without an approval"

    def _is_ours(self, action: Action) -> bool:
        return action.plugin_id == self.id

    def _judge(self, params: Mapping[str, Any]) -> PolicyVerdict:
        """What the policy says of params that nobody has validated yet."""
        command, workdir = params.get("command"), params.get("workdir")
        if not isinstance(command, str) or not isinstance(workdir, str | None):
            return PolicyVerdict(uncovered="its parameters are not valid")
        verdict = self._policy.judge(command)
        if verdict.refused or verdict.uncovered or workdir is None:
            return verdict
        ours, asked = Path(self._workdir(None)), Path(self._workdir(workdir))
        # A program may do what a file in the folder says.
        outside = self.options.workdir is None or not asked.is_relative_to(ours)
        reason = f"the folder {asked} is not within the `workdir` of the options"
        return PolicyVerdict(uncovered=reason) if outside else verdict

    def _workdir(self, asked: str | None) -> str:
        user = self._account()
        ours = self.options.workdir or (user.home if user else str(Path.cwd()))
        return os.path.normpath(os.path.join(ours, asked)) if asked else ours  # noqa: PTH118

    def _no_folder(self, workdir: str) -> str | None:
        if "\0" in workdir or not Path(workdir).is_dir():
            return f"There is no folder {workdir!r}"
        return None

    def _limit(self, asked: float | None) -> _Limit:
        if asked is None or asked <= 0:
            return _Limit(self.options.timeout)
        if asked > MAX_TIMEOUT:
            note = f"\n[the time limit of {asked:g} s was lowered to {MAX_TIMEOUT:g} s]\n"
            return _Limit(MAX_TIMEOUT, note)
        return _Limit(asked)

    def _account(self) -> runner.Account | None:
        if self.options.user is None:
            return None
        try:
            return runner.account(self.options.user)
        except ValueError as error:
            raise PluginError(self.id, str(error)) from None

    def _result(self, seen: ToolObservation, error: str | None) -> ActionResult:
        # The loop measures the duration and fills in the id.
        return ActionResult(
            action=seen.tool,
            success=error is None,
            duration=0.0,
            output=seen.to_wire(),
            error=error,
        )
