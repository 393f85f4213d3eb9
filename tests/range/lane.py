"""The part that the agents of the range have in common: see, decide, act, verify."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, TypeAlias

from boyd import (
    Action,
    Agent,
    Context,
    Decision,
    EffectVerdict,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    observer,
    orienter,
    strategy,
)
from boyd.models import ActionResult, Anomaly, EffectName, ExecutionEntry, Hold
from boyd.models.effect import EffectChecks
from range.layout import Layout, layout
from range.lines import write_line

#: Seconds after its end in which an action has to show its effect.
PATIENCE = 4.0
#: Seconds until Boyd gives a verdict in any case.
_WITHIN = 60.0
#: Seconds before and after the effect, in which a worker may be killed.
_BEFORE, _AFTER = 0.3, 0.2

#: Does something with the params, and with a mistake unless that is empty; Undo takes its result.
Do: TypeAlias = Callable[[dict[str, Any], str], Any]
Undo: TypeAlias = Callable[[Any], None]


class Lane(Plugin):
    """Sees the faults of one lane of the range, and what suffers that should not.

    The first remedy may be done wrong: then the file `mistake` names how. When its verdict was bad,
    and no harm is left, the second remedy follows. Neither is tried while there is no verdict on
    the other one: Boyd holds the same action only, and nobody could tell which of them has helped.
    """

    #: By fault: the first remedy, and the second one.
    remedies: ClassVar[dict[str, tuple[str, str]]] = {}

    @property
    def layout(self) -> Layout:
        """The layout of the range."""
        return layout()

    def faults(self) -> dict[str, dict[str, Any]]:
        """The faults now, and the params for their remedies."""
        raise NotImplementedError

    def harm(self) -> list[str]:
        """Whatever suffers that has nothing to do with the faults."""
        raise NotImplementedError

    @observer(timeout=60)
    def look(self, ctx: Context) -> list[Observation]:
        """See faults and harm."""
        began = ctx.now()
        data: Any = {"faults": self.faults(), "harm": self.harm()}
        return [Observation(source=f"{self.id}/look", type="state", timestamp=began, data=data)]

    @orienter()
    def judge(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Name what is wrong."""
        look = next(look for look in observations if look.source == f"{self.id}/look")
        evidence: Any = look.data
        wrong = [*evidence["faults"], *evidence["harm"]]
        # A look from before the verdict does not tell that all is well since.
        if not wrong and look.timestamp.timestamp() > ctx.state.get("tried", 0):
            ctx.state.delete("tried")
        return SituationAssessment(
            source=f"{self.id}:judge",
            findings=wrong,
            confidence=1.0,
            data=evidence,
            anomalies=[
                Anomaly(type=trouble, description=trouble, severity="high") for trouble in wrong
            ],
        )

    @strategy()
    def first(self, situation: Situation) -> Decision:
        """Try the first remedy."""
        return self._decide(situation, 0)

    @first.applicable_when
    def _is_faulty(self, situation: Situation, ctx: Context) -> bool:
        return self._may_try(0, situation, ctx)

    @strategy()
    def second(self, situation: Situation) -> Decision:
        """Try the second remedy."""
        return self._decide(situation, 1)

    @second.applicable_when
    def _first_has_failed(self, situation: Situation, ctx: Context) -> bool:
        # What harms goes first; until then nobody can tell what a remedy did.
        harm = situation.evidence(f"{self.id}:judge").get("harm")
        return self._may_try(1, situation, ctx) and not harm and bool(ctx.state.get("tried"))

    def on_suspend(self, hold: Hold, execution: ExecutionEntry) -> None:
        """Tell people."""
        write_line(self.layout.lines(self.id), "told", execution.id, hold.action)

    def remedy(self, name: str, target: str, do: Do, undo: Undo | None = None) -> Action:
        """An action of that name, which is verified; *do* learns what it is to do wrong, if so."""

        def execute(params: dict[str, Any], ctx: Context) -> Any:
            lines = self.layout.lines(self.id)
            ctx.state.set("open", name, ttl=_WITHIN)
            ctx.state.delete("tried")
            ctx.state.set("began", ctx.now().timestamp())
            write_line(lines, "act", ctx.execution_id or "", name)
            time.sleep(_BEFORE)
            done = do(params, self._mistake())
            write_line(lines, "acted", ctx.execution_id or "", name)
            ctx.state.set("began", ctx.now().timestamp())
            time.sleep(_AFTER)
            return done

        def rollback(result: ActionResult, ctx: Context) -> str:
            lines = self.layout.lines(self.id)
            execution = (ctx.execution_id or "").removeprefix("rollback:")
            write_line(lines, "undo", execution, name)
            time.sleep(_BEFORE)
            assert undo is not None
            undo(result.output)
            write_line(lines, "undone", execution, name)
            time.sleep(_AFTER)
            return "it is as it was"

        return Action(
            name=name,
            target=target,
            execute=execute,
            verify=self._verify,
            # It remembers what it says, so it is asked after the action only.
            checks=EffectChecks(within=_WITHIN, every=0.5, before=False),
            **({"rollback": rollback} if undo else {}),
        )

    def _verify(self, ctx: Context) -> EffectVerdict | bool:
        write_line(self.layout.lines(self.id), "look", ctx.execution_id or "")
        harm, faults = self.harm(), self.faults()
        if harm:
            return self._verdict("worse", ", ".join(harm), ctx)
        if not faults:
            return self._verdict("effective", "no fault is left", ctx)
        if ctx.now().timestamp() - ctx.state.get("began", 0) > PATIENCE:
            return self._verdict("no effect", f"still: {', '.join(faults)}", ctx)
        return False

    def _verdict(self, verdict: EffectName, evidence: str, ctx: Context) -> EffectVerdict:
        if verdict != "effective":
            ctx.state.set("tried", ctx.now().timestamp())
        ctx.state.delete("open")
        return EffectVerdict(verdict=verdict, evidence=evidence)

    def _may_try(self, which: int, situation: Situation, ctx: Context) -> bool:
        """Check for a fault, and for no open verdict on another remedy than this one."""
        evidence: Any = situation.evidence(f"{self.id}:judge")
        mine = [self.remedies[fault][which] for fault in evidence.get("faults", ())]
        return bool(mine) and ctx.state.get("open", mine[0]) == mine[0]

    def _decide(self, situation: Situation, which: int) -> Decision:
        evidence: Any = situation.evidence(f"{self.id}:judge")
        fault, params = next(iter(evidence["faults"].items()))
        action = f"{self.id}:{self.remedies[fault][which]}"
        return Decision(action=action, params=params, rationale=fault, confidence=1.0)

    def _mistake(self) -> str:
        path = self.layout.mistake(self.id)
        with suppress(FileNotFoundError):
            mistake = path.read_text()
            path.unlink()
            return mistake
        return ""


def lane_agent(plugin: Lane) -> Agent:
    """An agent for one lane, which looks once a second."""
    return Agent(f"range-{plugin.id}", mode="continuous", loop_interval=1, plugins=[plugin])
