"""Goals: the bundle that makes an agent work towards something (spec goals).

One iteration is one cycle. What a cycle begins with, decides and leads to is taken into the session
in one step each, and once, however often a phase is run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boyd.errors import PluginError, Veto
from boyd.models import (
    Catalog,
    Decision,
    LoopResult,
    Observation,
    Situation,
    SituationAssessment,
    no_op,
)
from boyd.plugin import Action, Context, hook, observer, orienter, strategy
from boyd.plugins.goals import choice, cycle, memory, orientation, psyche
from boyd.plugins.goals.endpoints import Endpoints
from boyd.plugins.goals.goal_tree import active_goals
from boyd.plugins.goals.orientation import Assessments
from boyd.plugins.goals.sessions import Sessions
from boyd.plugins.goals.state import GoalSession
from boyd.plugins.goals.tools.questions import Questions


class Goals(Endpoints):
    """An agent that works towards goals and remembers what it learns.

    Its tools are in `boyd.plugins.goals.tools` and its endpoints in `boyd.plugins.goals.endpoints`;
    this module is one cycle, in the order in which it happens.
    """

    id = "goals"

    def init(self, ctx: Context) -> None:
        """Refuse to start with what no action takes."""
        for misfit in self.misfits(ctx.catalog):
            raise PluginError(self.id, misfit)

    def misfits(self, catalog: Catalog) -> list[str]:
        """What the options say of actions that the agent does not have, or that do not take it."""
        return self.toolbox.misfits(catalog)

    def on_loop_start(self, ctx: Context) -> None:
        """Take in what people have answered, and begin a cycle if there is a goal to work on."""
        sessions = self.sessions(ctx)
        session = self._with_answers(sessions, ctx)
        if session.iteration == ctx.iteration:
            sessions.repair(session)
            return
        if session.cycle >= self.config.max_cycles or not active_goals(session):
            return
        asks = any(goal.question for goal in session.goals.values())
        questions = Questions(ctx.state).all() if asks else []
        sessions.change(
            lambda current: cycle.begun(
                current,
                ctx.iteration or 0,
                questions,
                ctx.now(),
                self.config,
                psyche=self.options.psyche,
            ),
            session.id,
        )

    def _with_answers(self, sessions: Sessions, ctx: Context) -> GoalSession:
        """The session, with what has come of what a person was to allow."""
        session = sessions.see(sessions.read())
        found = cycle.outcomes(session, ctx.approvals, self.graph(ctx))
        if not found:
            return session

        def change(current: GoalSession) -> GoalSession:
            for outcome in found:
                current = cycle.taken(current, outcome, ctx.now(), self.config)
            return current

        return sessions.change(change, session.id)

    @observer(name="active_goals")
    def observe_goals(self, ctx: Context) -> list[Observation]:
        """The goals that are worked on, the most important first."""
        session = self.sessions(ctx).at_work()
        return [cycle.seen_goals(session, self.graph(ctx))] if session else []

    @observer(name="working_memory")
    def observe_memory(self, ctx: Context) -> list[Observation]:
        """How full working memory is, and what is newest in it."""
        session = self.sessions(ctx).at_work()
        return [cycle.seen_memory(session, self.config)] if session else []

    @observer(name="recalled_episodes")
    def observe_episodes(self, ctx: Context) -> list[Observation]:
        """The episodes that the goals bring back."""
        session = self.sessions(ctx).at_work()
        return [cycle.seen_episodes(session)] if session else []

    @property
    def _assessments(self) -> Assessments:
        return Assessments(self.id)

    @orienter(name=orientation.KNOWLEDGE)
    def orient_knowledge(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """The facts around what the goal speaks of, and around what was learned before."""
        return self._assessments.knowledge(observations, self.graph(ctx))

    @orienter(name=orientation.ACTIVATION)
    def orient_activation(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """What comes to mind when the goal is thought of (M12)."""
        return self._assessments.activation(observations, self.graph(ctx))

    @orienter(name=orientation.EPISODIC)
    def orient_episodes(self, observations: list[Observation]) -> SituationAssessment:
        """What was remembered."""
        return self._assessments.episodic(observations)

    @orienter(name=orientation.PRESSURE)
    def orient_pressure(self, observations: list[Observation]) -> SituationAssessment:
        """How full working memory is."""
        return self._assessments.pressure(observations)

    @hook()
    def on_orient(self, situation: Situation) -> dict[str, Any] | None:
        """Take back what our orienters had to say although there is nothing to do (L19)."""
        return orientation.without_idle(situation)

    @strategy(name="utility")
    def choose(self, situation: Situation, ctx: Context) -> Decision:
        """Choose the tool that is worth most for the goal (M2), and remember why (M8)."""
        sessions, toolbox = self.sessions(ctx), self.toolbox
        made: list[Decision] = []

        def chosen(session: GoalSession) -> GoalSession:
            goal = session.goals.get(session.at_work or "")
            if session.iteration != ctx.iteration or goal is None or goal.status != "Active":
                made[:] = [no_op("the goal was put off or has ended meanwhile")]
                return session
            leanings = session.psyche if self.options.with_psyche else None
            outlook = self._assessments.outlook(goal, situation, leanings)
            options = choice.possible(session, outlook, toolbox, ctx.catalog)
            if not options:
                made[:] = [no_op("everything that could be done waits for approval or was refused")]
                return session
            made[:] = [choice.decision(options, goal, toolbox, ctx.catalog)]
            best, now = options[0], ctx.now()
            return choice.remembered(session, outlook, best, toolbox.profiles, now, self.config)

        sessions.change(chosen, sessions.seen().id)
        return made[0]

    @choose.applicable_when
    def _has_goal(self, ctx: Context) -> bool:
        return self.sessions(ctx).at_work() is not None

    @hook(fail_closed=True)
    def on_decide(self, decision: Decision, action: Action | None) -> dict[str, Any] | None:
        """Ask a person before a file is written."""
        writes = action is not None and action.id == f"{self.id}:file_io"
        if writes and decision.params.get("action") == "write":
            return {"requires_approval": True}
        return None

    @hook(fail_closed=True)
    def on_before_act(self, action: Action, params: Mapping[str, Any], ctx: Context) -> None:
        """Let the shadow forbid what it forbids, whoever asks (M5)."""
        if not self.options.with_psyche:
            return
        toolbox = self.toolbox
        name = toolbox.tool_of(action.id) or action.id
        danger = toolbox.danger_of(action.id, action.risk, params)
        verdict = psyche.shadow(self.options.psyche, name, danger, psyche.action_text(name, params))
        if verdict.veto:
            raise Veto(f"shadow pattern {verdict.veto.name!r}: {verdict.veto.explanation}")
        if verdict.against:
            why = ", ".join(f"{one.name}: {one.explanation}" for one in verdict.against)
            ctx.logger.info(
                "the shadow would rather not use %s (%.1f): %s", name, verdict.bias, why
            )

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Take in what came of the cycle, and do what follows from it (M5 to M9, M13)."""
        sessions = self.sessions(ctx)
        session = sessions.at_work()
        if session is None and any(one.source == cycle.GOALS for one in result.observations):
            # Another worker has begun the cycle after this one had looked.
            sessions.see(sessions.read())
            session = sessions.at_work()
        if session is None:
            return
        strategy, graph = f"{self.id}:utility", self.graph(ctx)
        outcome = cycle.outcome_of(session, result, strategy, self.toolbox, graph)
        is_new: list[bool] = []

        def end(current: GoalSession) -> GoalSession:
            is_new[:] = [cycle.is_open(current, result.iteration)]
            return cycle.ended(current, outcome, ctx.now(), self.config) if is_new[0] else current

        after = sessions.change(end, session.id)
        if not is_new[0]:
            sessions.repair(after)
        if memory.is_consolidation_due(after, self.config):
            self.consolidated(ctx, on_demand=False)
