"""The context of a phase: an agent, the contexts of its plugins, and failures so far."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

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
from boyd.phases.recording import Tape
from boyd.plugin import Action, Context, Hook
from boyd.settings.validation import saying
from boyd.text.redaction import clean

if TYPE_CHECKING:
    from boyd.phases.action_call import Confiner

#: Seconds one hook may take.
HOOK_TIMEOUT = 30.0
#: The hooks that may raise a veto.
MAY_VETO = ("on_decide", "on_before_act")
#: Maximum length of a stored error, in characters.
MAX_ERROR = 2000
#: Characters of an error that are redacted: truncated secrets would not be recognized.
_READ = 10 * MAX_ERROR

log = logging.getLogger("boyd.phases")


class PhaseContext:
    """One phase of an iteration, or an action outside of one.

    Attributes:
        problems: components and hooks that failed and were skipped.
        blocks: failed guards; they block the iteration's action.
        not_due: observers skipped because their intervals have not passed.
        changes: those that hooks made to the situation.
        tape: what components and hooks read.
        confiner: makes sandboxes; without it, actions that need one do not run.
    """

    def __init__(
        self,
        agent: Agent,
        phase: Phase,
        contexts: Callable[[str, int | None], Context],
        iteration: int | None = None,
        holds: Callable[[str, str], Hold | None] | None = None,
        records: Callable[[str, str], TrackRecord | None] | None = None,
        confiner: Confiner | None = None,
    ) -> None:
        """The context of *agent* in *phase*.

        *holds* gives the hold of an action on a target, *records* the track record of an action in
        a class of situation; *confiner* makes sandboxes.
        """
        self.agent = agent
        self.host = agent.host
        self.phase: Phase = phase
        self.iteration = iteration
        self.problems: list[Problem] = []
        self.blocks: list[Refusal] = []
        self.not_due: list[NotDue] = []
        self.changes: list[Change] = []
        self.tape = Tape()
        self._contexts = contexts
        self._holds = holds
        self._records = records
        self.confiner = confiner

    def context(self, plugin_id: str, by: str = "") -> Context:
        """The `ctx` of the plugin *plugin_id*.

        In the taped phases of an iteration, it records what the component or hook *by* reads.
        """
        context = self._contexts(plugin_id, self.iteration)
        if self.not_due:
            context = replace(context, not_due={late.id: late.due_at for late in self.not_due})
        taped = by and self.iteration is not None and self.phase in get_args(TapedPhase)
        return self.tape.context(context, by) if taped else context

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
        if not bound and action.in_flight_limit is None:
            return None
        hold = self._holds(action.id, target) if self._holds else None
        if hold and not bound and not hold.in_flight:
            return None
        if hold or bound:
            self.tape.note(action.id, "holds", target, hold)
        return hold

    def record(self, action: Action, situation: Situation) -> TrackRecord | None:
        """Return the track record of an action in such situations, if it can have one."""
        if self._records is None or not action.has("verify"):
            return None
        classed = situation.class_for(action.plugin_id)
        record = self._records(action.id, classed)
        label = situation.label_for(action.plugin_id)
        return record or TrackRecord(action=action.id, situation=classed, label=label)

    def call_all(self, calls: Sequence[time_limit.TimedCall]) -> list[time_limit.CallOutcome]:
        """Run all *calls*, side by side if possible; outcomes in their order."""
        return time_limit.call_all(calls)

    def reads(self) -> list[PluginReads]:
        """The reads of components and hooks, in a phase of which these are recorded."""
        phase = self.phase
        if phase == "orient" or phase == "decide" or phase == "act":
            return self.tape.reads(phase)
        return []

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
        ctx = self.context(hook.plugin_id, by)
        try:
            return time_limit.call(lambda: hook(ctx=ctx, **values), HOOK_TIMEOUT)
        except Veto as veto:
            if hook.name in MAY_VETO:
                return veto
            self.report_hook(hook, f"only {' and '.join(MAY_VETO)} may veto")
            return None
        except (Exception, Overrun) as error:  # noqa: BLE001 - L25: logged, and the loop goes on
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
    if isinstance(error, time_limit.Exited):
        error = error.cause
    text = " ".join(saying(error).split())
    if isinstance(error, BaseException) and not isinstance(error, Overrun):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    # File names may hold bytes that are not UTF-8.
    text = text.encode("utf-8", "backslashreplace").decode()
    text = clean(text[:_READ])
    return text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} …"
