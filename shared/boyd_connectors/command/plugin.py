"""The plugin `command`: observers and actions that are programs in any language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from boyd.errors import PluginError
from boyd.models import (
    ActionResult,
    Autonomy,
    AutonomyMode,
    Catalog,
    EffectVerdict,
    JsonObject,
    Level,
    Observation,
    Reversibility,
    explain,
)
from boyd.models.effect import EffectChecks
from boyd.plugin import Action, Context, Observer, Plugin, Secret
from boyd.plugin.components import Concurrency, Scope
from boyd.plugin.composed_action import NoParams
from boyd.plugin.plugin_boundary import params_to_json
from boyd.plugins.results import uncertain
from boyd.plugins.schema_params import SchemaAction, SchemaParams, check_schema
from boyd.plugins.shell import runner
from boyd.sandbox.accounts import account
from boyd.text.redaction import register_referenced
from boyd_connectors.command.program_call import (
    ProgramAnswer,
    ProgramCall,
    ProgramFailure,
    converse,
)

#: The version of the protocol, which is the member `boyd` of each request.
PROTOCOL = 1
#: The most lines of standard error of a call that are logged.
MAX_LINES = 200
#: Seconds that the end of a program may take beyond its time limit.
MARGIN = 3 * runner.GRACE + runner.DRAIN

_M = TypeVar("_M", bound=BaseModel)
ComponentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    argv: list[str] = Field(min_length=1)
    description: str = ""
    timeout: float
    secrets: dict[str, Secret] = Field(default_factory=dict)


class ObserverCommand(_Command):
    """A program that observes; times in seconds.

    Attributes:
        argv: the program and its arguments, without a shell.
        description: one line for people.
        secrets: secrets that each request brings, by name.
        interval: between two runs, in continuous mode; absent: every iteration.
        timeout: that one run may take.
        scope: `every_host` runs it on each host.
    """

    interval: float | None = Field(default=None, gt=0)
    timeout: float = Field(default=20.0, gt=0, le=3600)
    scope: Scope = "anywhere"


class ActionCommand(_Command):
    """A program that acts; its settings are those of an action in Python.

    Attributes:
        argv: the program and its arguments, without a shell.
        description: one line for people.
        secrets: secrets that each request brings, by name.
        title: the name that people see.
        params: the JSON Schema of its parameters, an object; without one it takes none.
        dry_run: whether it can say what it would do.
        verify: when it is asked whether it had its effect; absent: it is not.
        rollback: whether it can undo a success.
        doubt: whether it is asked for a reason to ask a person.
        timeout: seconds that one call may take.
        risk: how much damage it may do.
        reversibility: how far its effect can be undone, if it has no rollback.
        autonomy: when it may run without a person.
        min_confidence: the confidence below which a person must approve it.
        idempotent: whether it may run again after its outcome was lost.
        target: the parameter that names what it acts on.
        concurrency: how many executions may be in flight per target; 0: any number.
        tool: whether models may use it.
    """

    title: str = ""
    params: JsonObject = Field(default_factory=dict)
    dry_run: bool = False
    verify: EffectChecks | None = None
    rollback: bool = False
    doubt: bool = False
    timeout: float = Field(default=60.0, gt=0, le=86400)
    risk: Level = "low"
    reversibility: Reversibility = "unknown"
    autonomy: AutonomyMode = "auto"
    min_confidence: float | None = Field(default=None, ge=0, le=1)
    idempotent: bool = False
    target: str | None = None
    concurrency: Concurrency = None
    tool: bool = False

    @field_validator("params")
    @classmethod
    def _usable(cls, params: JsonObject) -> JsonObject:
        check_schema(params)
        return params


class CommandPrograms(Plugin):
    """Runs programs that observe and act, each call as a process of its own."""

    id = "command"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            observers: the programs that observe, by name.
            actions: the programs that act, by name.
            environment: names of further variables of the worker that they get.
            user: the user they run as; the worker's user if absent.
            max_output: bytes that one call may print.
            queue: the queue of the workers that have them; any worker if absent.
        """

        observers: dict[ComponentName, ObserverCommand] = Field(default_factory=dict)
        actions: dict[ComponentName, ActionCommand] = Field(default_factory=dict)
        environment: list[VariableName] = Field(default_factory=list)
        user: str | None = None
        max_output: int = Field(default=1_000_000, ge=1024, le=10_000_000)
        queue: str | None = None

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._folder = Path.cwd()
        observers, actions = self.options.observers, self.options.actions
        self.components = (
            *(self._observer(name, command) for name, command in observers.items()),
            *(self._action(name, command) for name, command in actions.items()),
        )

    def use_folder(self, folder: Path) -> None:
        """Find programs from the *folder* of the agent file, and name their version."""
        self._folder = folder.resolve()
        commands = [*self.options.observers.values(), *self.options.actions.values()]
        paths = {self._folder / word for command in commands for word in command.argv}
        digests = [_digest(path) for path in sorted(paths) if path.is_relative_to(self._folder)]
        if any(digests):
            self.version = sha256(b"".join(digests)).hexdigest()[:12]

    def component_queue(self) -> str | None:
        """The queue of the workers that have the programs."""
        return self.options.queue

    def init(self, ctx: Context) -> None:
        """Check that programs can run as the configured user."""
        if self.options.user is not None:
            try:
                account(self.options.user)
            except ValueError as error:
                raise PluginError(self.id, str(error)) from None

    def misfits(self, catalog: Catalog) -> Iterable[str]:
        """Programs that this host lacks, if every worker may have to run them."""
        if self.options.queue is not None:
            return
        for kind in ("observers", "actions"):
            for name, command in getattr(self.options, kind).items():
                try:
                    self._call(command).path()
                except ProgramFailure as failure:
                    yield f"{kind}.{name}: {failure}"

    def _observer(self, name: str, command: ObserverCommand) -> Observer:
        return Observer(
            name=name,
            description=command.description or f"Run {command.argv[0]}.",
            interval=command.interval,
            timeout=command.timeout + MARGIN,
            scope=command.scope,
            observe=partial(self._observe, name, command),
        )

    def _action(self, name: str, command: ActionCommand) -> Action:
        functions: dict[str, Callable[..., Any]] = {
            "dry_run": partial(self._ask, "dry_run"),
            "doubt": partial(self._ask, "doubt"),
            "verify": self._verify,
            "rollback": self._roll_back,
        }
        offered = {key: call for key, call in functions.items() if getattr(command, key)}
        return SchemaAction(
            name=name,
            title=command.title,
            description=command.description or f"Run {command.argv[0]}.",
            params=SchemaParams.of(command.params) if command.params else NoParams,
            timeout=command.timeout + MARGIN,
            risk=command.risk,
            reversibility=command.reversibility,
            autonomy=Autonomy(mode=command.autonomy, min_confidence=command.min_confidence),
            idempotent=command.idempotent,
            target=command.target,
            concurrency=command.concurrency,
            tool=command.tool,
            checks=command.verify or EffectChecks(),
            execute=partial(self._execute, name, command),
            **{key: partial(call, name, command) for key, call in offered.items()},
        )

    def _observe(self, name: str, command: ObserverCommand, ctx: Context) -> list[Observation]:
        answer = self._converse("observe", name, command, ctx)
        common = {"source": f"{self.id}/{name}", "timestamp": ctx.now()}
        return [
            self._read(Observation, content, common, f"observation {number}")
            for number, content in enumerate(answer.observations, 1)
        ]

    def _execute(
        self, name: str, command: ActionCommand, params: Any, ctx: Context
    ) -> ActionResult:
        return self._change("execute", name, command, ctx, params=params_to_json(params))

    def _roll_back(
        self, name: str, command: ActionCommand, params: Any, result: ActionResult, ctx: Context
    ) -> ActionResult:
        more = {"params": params_to_json(params), "result": result.to_wire()}
        return self._change("rollback", name, command, ctx, **more)

    def _ask(
        self, function: str, name: str, command: ActionCommand, params: Any, ctx: Context
    ) -> Any:
        answer = self._converse(function, name, command, ctx, params=params_to_json(params))
        return answer.content.get("result")

    def _verify(
        self,
        name: str,
        command: ActionCommand,
        params: Any,
        result: ActionResult | None,
        ctx: Context,
    ) -> Any:
        more = {"params": params_to_json(params), "result": result and result.to_wire()}
        content = self._converse("verify", name, command, ctx, **more).content
        verdict, evidence = content.get("result"), content.get("evidence")
        if evidence is None:
            return verdict
        final = content.get("final", verdict is True or isinstance(verdict, str))
        if verdict is None:
            verdict = "cannot tell"
        elif isinstance(verdict, bool):
            verdict = "effective" if verdict else "no effect"
        fields = {"evidence": evidence, "final": final}
        return self._read(EffectVerdict, fields, {"verdict": verdict}, "the verdict")

    def _change(
        self, function: str, name: str, command: ActionCommand, ctx: Context, **more: Any
    ) -> ActionResult:
        try:
            content = self._converse(function, name, command, ctx, **more).content
            common = {"action": "", "success": True, "duration": 0.0, "output": content["result"]}
            extra = {key: content[key] for key in ("sideEffects", "metrics") if key in content}
            return self._read(ActionResult, extra, common, "the result")
        except ProgramFailure as failure:
            if failure.unknown:
                return uncertain(failure)
            raise

    def _read(self, model: type[_M], content: Any, common: Mapping[str, Any], subject: str) -> _M:
        """A model of what a program said; raises `ProgramFailure` if it makes no sense."""
        try:
            return model.model_validate({**common, **content})
        except (TypeError, ValidationError) as error:
            reason = explain(error) if isinstance(error, ValidationError) else "is no JSON object"
            raise ProgramFailure(f"{subject}: {reason}", unknown=True) from None

    def _converse(
        self, function: str, name: str, command: _Command, ctx: Context, **more: Any
    ) -> ProgramAnswer:
        """The answer of a program; what it says on standard error goes to the log.

        Raises:
            ProgramFailure: it gave none that counts.
            ConfigError: a secret cannot be read.
        """
        secrets = {key: secret.read() for key, secret in command.secrets.items()}
        register_referenced(*secrets.values())
        request = {
            "boyd": PROTOCOL,
            "call": function,
            "component": f"{self.id}:{name}",
            "agent": ctx.agent.id,
            "host": ctx.host,
            "iteration": ctx.iteration,
            "execution": ctx.execution_id,
            "requester": ctx.requester,
            "timeout": command.timeout,
            "secrets": secrets,
            **more,
        }
        answer, failure = converse(self._call(command, function), request)
        for line in answer.log.splitlines()[:MAX_LINES]:
            ctx.logger.info("%s: %s", name, line)
        if failure:
            raise failure
        return answer

    def _call(self, command: _Command, *arguments: str) -> ProgramCall:
        user = account(self.options.user) if self.options.user else None
        return ProgramCall(
            argv=[*command.argv, *arguments],
            folder=self._folder,
            env=runner.environment(self.options.environment, user),
            user=user,
            timeout=command.timeout,
            max_output=self.options.max_output,
        )


def _digest(path: Path) -> bytes:
    """The digest of a file; empty for what is none, as most arguments are."""
    try:
        return sha256(path.read_bytes()).digest()
    except (OSError, ValueError):
        return b""
