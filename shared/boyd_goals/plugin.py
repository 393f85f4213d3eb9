"""The plugin `goals`: one iteration of the loop is one cycle of work on a goal.

Beginning, choice and outcome of a cycle each change the session in one step, and once, however
often a phase is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from boyd.errors import BoydError, PluginError, StoreError, Veto
from boyd.models import Catalog, Decision, LoopResult, Situation, no_op
from boyd.plugin import Action, Context, hook, strategy
from boyd_goals import cycle, memory, psyche, scoring
from boyd_goals import outcome as outcomes
from boyd_goals.cycle import GOALS, Orientation
from boyd_goals.goal_endpoints import Endpoints
from boyd_goals.goal_tree import active_goals, add_standing, missing_goals, standing_errors
from boyd_goals.outcome import DecisionOutcome
from boyd_goals.sessions import Questions, Sessions
from boyd_goals.state import GoalSession


class Goals(Endpoints, Orientation):
    """An agent that works towards goals and remembers what it learns.

    This class has the phases of a cycle; its bases have the tools, the endpoints and orientation.
    """

    id = "goals"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for library in ("numpy", "rdflib"):
            if find_spec(library) is None:
                raise PluginError(self.id, f"it needs {library}: run `pip install 'boyd[goals]'`")

    def init(self, ctx: Context) -> None:
        """Refuse to start with options that do not fit the actions of the agent."""
        for error in self.misfits(ctx.catalog):
            raise PluginError(self.id, error)

    def misfits(self, catalog: Catalog) -> list[str]:
        """Errors in the options about actions of other plugins, and in the goals."""
        return [*self.toolbox.errors(catalog), *standing_errors(self.options.goals, self.config)]

    def on_loop_start(self, ctx: Context) -> None:
        """Apply the answers of people, add the goals of the agent file, and begin a cycle."""
        sessions = self.sessions(ctx)
        session = self._apply_approvals(sessions, ctx)
        session = self._add_standing_goals(sessions, session, ctx)
        if session.iteration == ctx.iteration:
            sessions.repair(session)
            return
        if session.cycle >= self.config.max_cycles or not active_goals(session):
            return
        asks = any(goal.question for goal in session.goals.values())
        questions = Questions(ctx.state).all() if asks else []
        number, now, own = ctx.iteration or 0, ctx.now(), self.options.psyche
        sessions.change(
            lambda current: cycle.begin(current, number, questions, now, self.config, psyche=own),
            session.id,
        )

    def _add_standing_goals(
        self, sessions: Sessions, session: GoalSession, ctx: Context
    ) -> GoalSession:
        goals, now = self.options.goals, ctx.now()
        if not missing_goals(session, goals):
            return session
        return sessions.change(
            lambda current: add_standing(current, goals, now, self.config), session.id
        )

    def _apply_approvals(self, sessions: Sessions, ctx: Context) -> GoalSession:
        session = sessions.pin(sessions.read())
        resolved = cycle.approval_outcomes(session, ctx.approvals, self.toolbox, self.graph(ctx))
        if not resolved:
            return session
        seconds = outcomes.VERDICT_SECONDS / len(resolved)
        judged = [self._with_verdict(session, outcome, ctx, seconds) for outcome in resolved]

        def change(current: GoalSession) -> GoalSession:
            for outcome in judged:
                current = cycle.record_outcome(current, outcome, ctx.now(), self.config)
            return current

        return sessions.change(change, session.id)

    @strategy(name="utility")
    def choose(self, situation: Situation, ctx: Context) -> Decision:
        """Choose the tool with the highest score for the goal, and remember the reason."""
        sessions, toolbox = self.sessions(ctx), self.toolbox
        decisions: list[Decision] = []

        def decide(session: GoalSession) -> GoalSession:
            goal = session.goals.get(session.at_work or "")
            if session.iteration != ctx.iteration or goal is None or goal.status != "Active":
                decisions[:] = [no_op("the goal was suspended or has ended in the meantime")]
                return session
            own = session.psyche if self.options.with_psyche else None
            outlook = self.outlook(goal, situation, own)
            options = scoring.list_options(session, outlook, toolbox, ctx.catalog)
            if not options:
                decisions[:] = [no_op("every possible call waits for approval or was refused")]
                return session
            decisions[:] = [scoring.decide(options, goal, toolbox, ctx.catalog)]
            best, now = options[0], ctx.now()
            return scoring.remember_choice(
                session, outlook, best, toolbox.profiles, now, self.config
            )

        sessions.change(decide, sessions.snapshot().id)
        return decisions[0]

    @choose.applicable_when
    def _has_goal(self, situation: Situation, ctx: Context) -> bool:
        # An idle iteration reads nothing here, so that a replay can tell that it is one.
        return self.is_oriented(situation) and self.sessions(ctx).working_session() is not None

    @hook(fail_closed=True)
    def on_decide(self, decision: Decision, action: Action | None) -> dict[str, Any] | None:
        """Ask a person before a file is written."""
        writes = action is not None and action.id == f"{self.id}:file_io"
        if writes and decision.params.get("action") == "write":
            return {"requires_approval": True}
        return None

    @hook(fail_closed=True)
    def on_before_act(self, action: Action, params: Mapping[str, Any], ctx: Context) -> None:
        """Veto actions that the shadow forbids, whichever strategy chose them."""
        if not self.options.with_psyche:
            return
        toolbox = self.toolbox
        name = toolbox.tool_of(action.id) or action.id
        danger = toolbox.danger_of(action.id, action.risk, params)
        text = psyche.action_text(name, params)
        verdict = psyche.check_shadow(self.options.psyche, name, danger, text)
        if verdict.veto:
            raise Veto(f"shadow pattern {verdict.veto.name!r}: {verdict.veto.explanation}")
        if verdict.against:
            reasons = ", ".join(
                f"{pattern.name}: {pattern.explanation}" for pattern in verdict.against
            )
            ctx.logger.info("the shadow advises against %s (%.1f): %s", name, verdict.bias, reasons)

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Apply the outcome of the cycle, and consolidate memory when it is nearly full."""
        sessions = self.sessions(ctx)
        session = sessions.working_session()
        if session is None and any(
            observation.source == GOALS for observation in result.observations
        ):
            # Another worker began the cycle after this one had read the session.
            sessions.pin(sessions.read())
            session = sessions.working_session()
        if session is None:
            return
        strategy, graph = f"{self.id}:utility", self.graph(ctx)
        outcome = cycle.outcome_of(session, result, strategy, self.toolbox, graph)
        if outcome is not None and cycle.is_open(session, result.iteration):
            outcome = self._with_verdict(session, outcome, ctx, outcomes.VERDICT_SECONDS)
        is_new: list[bool] = []

        def end(current: GoalSession) -> GoalSession:
            is_new[:] = [cycle.is_open(current, result.iteration)]
            return cycle.end(current, outcome, ctx.now(), self.config) if is_new[0] else current

        after = sessions.change(end, session.id)
        if not is_new[0]:
            sessions.repair(after)
        if memory.is_consolidation_due(after, self.config):
            self.consolidate_memory(ctx, on_demand=False)

    def _with_verdict(
        self, session: GoalSession, outcome: DecisionOutcome, ctx: Context, seconds: float
    ) -> DecisionOutcome:
        """The outcome with the model's verdict on a step that found or did something.

        Without a model or a usable answer the words decide.
        """
        asks_model = self.options.judge_with_model and ctx.has_llm
        if not asks_model or outcome.condition or not (outcome.findings or outcome.is_act):
            return outcome
        try:
            verdict = outcomes.judge_by_model(ctx.llm, session, outcome, seconds)
        except StoreError:
            raise
        except BoydError as error:
            ctx.logger.warning("the model failed to judge goal %s: %s", outcome.goal, error)
            return outcome
        return outcome.patched({"verdict": verdict})
