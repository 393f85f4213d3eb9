"""The context of a phase: its agent, what its plugins may use, and what failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast, get_args

from boyd.agent import Agent
from boyd.agent.agent_rules import Circumstances
from boyd.errors import Overrun, Veto
from boyd.models import (
    Change,
    Decision,
    Hold,
    NotDue,
    Phase,
    PluginReads,
    Problem,
    Refusal,
    Situation,
    TapedPhase,
    TrackRecord,
)
from boyd.phases import time_limit
from boyd.phases.phase_tape import ABSENT, Tape
from boyd.plugin import Action, Context, Hook
from boyd.plugin.plugin_boundary import Exited
from boyd.settings.validation import saying
from boyd.text.formatting import message_of
from boyd.text.redaction import clean

if TYPE_CHECKING:
    from boyd.phases.action_call import Confiner

#: Seconds one hook may take.
HOOK_TIMEOUT = 30.0
#: The most keys of the state of one plugin that are prefetched.
MAX_PREFETCHED = 20
#: The hooks that may raise a veto.
MAY_VETO = ("on_decide", "on_before_act")
#: Maximum length of a stored error, in characters.
MAX_ERROR = 2000
#: Characters of an error that are redacted: truncated secrets would not be recognized.
_READ = 10 * MAX_ERROR

log = logging.getLogger("boyd.phases")


@dataclass(frozen=True)
class PastActions:
    """The memory of an agent's actions.

    Attributes:
        hold: the hold of an action on a target.
        record: the track record of an action in a class of situation; none outside of iterations.
    """

    hold: Callable[[str, str], Hold | None] = lambda action, target: None
    record: Callable[[str, str], TrackRecord | None] | None = None


NO_PAST_ACTIONS = PastActions()


class PhaseContext:
    """One phase of an iteration, or an action outside of one.

    Attributes:
        problems: components and hooks that failed and were skipped.
        blocks: failed guards; they block the iteration's action.
        not_due: observers skipped because their intervals have not passed.
        changes: those that hooks made to the situation.
        tape: what components and hooks read, in a phase of an iteration that replay repeats.
        confiner: makes sandboxes; without it, actions that need one do not run.
    """

    def __init__(
        self,
        agent: Agent,
        phase: Phase,
        contexts: Callable[[str, int | None], Context],
        iteration: int | None = None,
        past: PastActions = NO_PAST_ACTIONS,
        confiner: Confiner | None = None,
    ) -> None:
        """The context of *agent* in *phase*."""
        self.agent = agent
        self.host = agent.host
        self.phase: Phase = phase
        self.iteration = iteration
        self.problems: list[Problem] = []
        self.blocks: list[Refusal] = []
        self.not_due: list[NotDue] = []
        self.changes: list[Change] = []
        taped = iteration is not None and phase in get_args(TapedPhase)
        self.tape = Tape(cast(TapedPhase, phase)) if taped else None
        self._contexts = contexts
        self._past = past
        self.confiner = confiner

    def context(self, plugin_id: str, by: str = "") -> Context:
        """The `ctx` of the plugin *plugin_id*.

        The tape, if there is one, records what the component or hook *by* reads.
        """
        context = self._contexts(plugin_id, self.iteration)
        if self.not_due:
            context = replace(context, not_due={late.id: late.due_at for late in self.not_due})
        return self.tape.context(context, by) if by and self.tape else context

    def prefetch_state(self) -> None:
        """Record the state that strategies may read, for a replay that chooses another one.

        It takes one read of the store per plugin with such a strategy.
        """
        if self.tape is None:
            return
        for plugin_id, keys in self.agent.state_keys.items():
            names = [*keys]  # another thread may add one meanwhile
            if names:
                values = self._contexts(plugin_id, self.iteration).state.get_many(names)
                self.tape.keep(plugin_id, {name: values.get(name, ABSENT) for name in names})

    def learn_state_keys(self) -> None:
        """Remember the keys that strategies have read, to prefetch them from now on."""
        if self.tape is None:
            return
        for strategy in self.host.strategies.values():
            keys = self.agent.state_keys[strategy.plugin_id]
            for key in self.tape.state_keys(strategy.id):
                if len(keys) < MAX_PREFETCHED:
                    keys[key] = None

    def now(self, plugin_id: str) -> datetime:
        """The time for windows and conditions of the actions of a plugin."""
        return self.context(plugin_id).now()

    def circumstances(
        self, action: Action, decision: Decision, situation: Situation, undoes: bool = False
    ) -> Circumstances:
        """The circumstances of a decision, now; with *undoes* it is to undo the action."""

        def now() -> datetime:
            return self.now(action.plugin_id)

        return Circumstances(action, decision, situation, now, self.record, undoes)

    def hold(self, action: Action, target: str) -> Hold | None:
        """The hold of an action on a target, if there is one; it is recorded as a read."""
        bound = self.agent.may_hold(action)
        hold = self._past.hold(action.id, target)
        if hold and not bound and hold.kind != "denied":
            # Verdicts do not bind an action that is verified no more; a denial binds any.
            hold = hold if hold.in_flight and action.in_flight_limit is not None else None
        if self.tape and (hold or bound):
            self.tape.note(action.id, "holds", target, hold)
        return hold

    def record(self, circumstances: Circumstances) -> TrackRecord | None:
        """Return the track record of an action in such situations, if it can have one."""
        action = circumstances.action
        if self._past.record is None or not action.has("verify"):
            return None
        key, label = circumstances.situation_class.key, circumstances.situation_class.label
        record = self._past.record(action.id, key)
        if record is None:
            record = TrackRecord(action=action.id, situation=key, label=label)
        return record.patched({"label": label, "concerns": list(circumstances.scope.targets)})

    def call_all(self, calls: Sequence[time_limit.TimedCall]) -> list[time_limit.CallOutcome]:
        """Run all *calls*, side by side if possible; outcomes in their order."""
        return time_limit.call_all(calls)

    def reads(self) -> list[PluginReads]:
        """The reads of components and hooks, in a phase of which these are recorded."""
        return self.tape.reads() if self.tape else []

    def report(self, id: str, error: object, duration: float = 0.0) -> None:
        """Log and record that the component or hook *id* failed."""
        text = describe(error)
        log.warning("%s failed: %s", id, text, extra=self._extra())
        self.problems.append(
            Problem(id=id, phase=self.phase, error=text, duration=round(duration, 3))
        )

    def run_hooks(self, name: str, **values: Any) -> None:
        """Call the hook *name* of each plugin in turn, for those that return nothing."""
        for hook in self.host.hooks(name):
            self.hook(hook, **values)

    def hook(self, hook: Hook, **values: Any) -> Any:
        """Call one hook; None if it failed, the `Veto` if it raised one."""
        began = time.perf_counter()
        # What is read after the action decides nothing.
        by = "" if hook.name == "on_after_act" else f"{hook.plugin_id}.{hook.name}"
        ctx = self.context(hook.plugin_id, by) if "ctx" in hook.taker.takes else None
        try:
            return time_limit.call(lambda: hook(ctx=ctx, **values), HOOK_TIMEOUT)
        except Veto as veto:
            if hook.name in MAY_VETO:
                return Veto(message_of(veto))
            self.report_hook(hook, f"only {' and '.join(MAY_VETO)} may veto")
            return None
        except (Exception, Overrun) as error:  # noqa: BLE001 - logged, and the loop goes on
            self.report_hook(hook, error, (time.perf_counter() - began) * 1000)
            return None

    def report_hook(self, hook: Hook, error: object, duration: float = 0.0) -> None:
        """Log and record that a hook failed; a failed guard blocks the action."""
        name = f"{hook.plugin_id}.{hook.name}"
        self.report(name, error, duration)
        if hook.fail_closed:
            reason = f"guard {name} failed: {describe(error)}"
            self.blocks.append(Refusal(by=hook.plugin_id, reason=reason, action=""))

    def _extra(self) -> dict[str, object]:
        return {"agent": self.agent.id, "iteration": self.iteration, "phase": self.phase}


def describe(error: object) -> str:
    """An error as one redacted line: its type, unless uninformative, and its message."""
    if isinstance(error, Exited):
        error = error.cause
    text = " ".join(saying(error).split())
    if isinstance(error, BaseException) and not isinstance(error, Overrun):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    # File names may hold bytes that are not UTF-8.
    text = text.encode("utf-8", "backslashreplace").decode()
    text = clean(text[:_READ])
    return text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} …"
