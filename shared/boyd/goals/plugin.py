"""Goals: the bundle that makes an agent work towards something (spec goals).

One iteration is one cycle. What a cycle begins with, decides and leads to is taken into the session
in one step each, and once, however often a phase is run again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator

from boyd.errors import Veto
from boyd.goals import memory, psyche
from boyd.goals.claims import claim, release
from boyd.goals.endpoints import Endpoints
from boyd.goals.goal_book import active_goals, symbol, wanted
from boyd.goals.inputs import params_for
from boyd.goals.knowledge.activation import activate
from boyd.goals.outcome import Outcome, apply_outcome, begin_cycle
from boyd.goals.planning import Need, ensure_plan
from boyd.goals.profiles import ToolProfile
from boyd.goals.progress import is_metadata
from boyd.goals.reflection import is_due, reflect
from boyd.goals.scoring import Candidate, Outlook, affinity, rank
from boyd.goals.shapes import Config, Danger, Episode, Goal, MemoryKind, Session
from boyd.goals.splitting import decompose_stalled, give_up_stuck
from boyd.goals.tools.answers import listened
from boyd.goals.tools.questions import Questions
from boyd.models import (
    ActionResult,
    Decision,
    JsonObject,
    Level,
    LoopResult,
    Observation,
    Situation,
    SituationAssessment,
    Triple,
    no_op,
)
from boyd.plugin import Action, Context, Plugin, hook, observer, orienter, strategy
from boyd.words import words

#: How much of what is known goes into an assessment.
FACTS = 60
ACTIVATED = 5
STARTS = 40
#: Seconds that the end of a cycle may come after what it has asked a person for is done.
EARLY = 3600.0
RECALLED = 3
NEWEST = 5
#: What orienters say when there is nothing to do: they have to say something (L19).
_IDLE = "no goal is worked on"
OutcomeState = Literal["done", "failed", "vetoed", "pending"]
_RISKS: dict[Danger, Level] = {"Safe": "low", "Cautious": "medium", "Danger": "high"}
#: How results begin of what was not executed: what a hook or a guard has stopped (L25, L30), and
#: what was not to be done at all, which says nothing of the tool.
_STOPPED = re.compile(r"Vetoed by |guard \S+ failed: ")
_NOT_DONE = ("Acting is frozen", "Cancelled: ")
#: How lines begin in which the agent tells of itself; they hold the words of the goal.
_OF_ITSELF = re.compile(
    r"\S+ \S+ (?:Decide: tool=|What do you know that helps to: |Cycle \d+: |Orient: )"
)
#: Labels looked at to see whether one of them is knowledge.
_LABELS = 5


class Goals(Endpoints):
    """An agent that works towards goals and remembers what it learns."""

    id = "goals"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            graph: the name of the graph of facts.
            graph_of: the agent whose graph it is; absent: this one's own.
            with_psyche: whether it has leanings and a shadow that forbids some things.
            roots: the folders below which files may be read and written; none: no file may.
            allow_private: whether addresses that are not public may be fetched.
            tools: what scoring must know of actions of other plugins, by their ids.
            working_memory_capacity: how many entries working memory holds.
            auto_consolidate: whether memory consolidates by itself when it is nearly full.
            max_cycles: how many cycles a session may have.
            max_backtrack_attempts: how many plans of a goal may fail.
            stall_threshold: cycles without progress before a goal is split, unless it says.
            completion_ratio: the share of its keywords that completes a goal.
            reflect_every: cycles from one reflection to the next; 0: never.
        """

        graph: str = Field(default="facts", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
        graph_of: str | None = None
        with_psyche: bool = True
        roots: list[Path] = Field(default_factory=list)
        allow_private: bool = False
        tools: dict[str, ToolProfile] = Field(default_factory=dict)
        working_memory_capacity: int = Field(default=100, gt=0, le=1000)
        auto_consolidate: bool = True
        max_cycles: int = Field(default=1000, gt=0)
        max_backtrack_attempts: int = Field(default=3, gt=0)
        stall_threshold: int = Field(default=5, gt=0)
        completion_ratio: float = Field(default=0.5, gt=0, le=1)
        reflect_every: int = Field(default=5, ge=0)

        @field_validator("tools", mode="before")
        @classmethod
        def _named(cls, tools: Any) -> Any:
            """Files say it with lists, and a tool's name is the id that it stands under."""
            if not isinstance(tools, Mapping):
                return tools
            return {id: _profile(id, one) for id, one in tools.items()}

    options: Options

    def on_loop_start(self, ctx: Context) -> None:
        """Begin a cycle, if a goal is to be worked on, and take the goal; else write nothing."""
        sessions = self.sessions(ctx)
        session = sessions.see(sessions.read())
        if session.iteration == ctx.iteration:
            sessions.repair(session)
            return
        if session.cycle >= self.config.max_cycles or not active_goals(session):
            return
        waiting = any(goal.question for goal in session.goals.values())
        questions = Questions(ctx.state).all() if waiting else []

        def begin(current: Session) -> Session:
            if current.iteration == ctx.iteration:
                return current
            now = ctx.now()
            current = listened(_let_go(current, now), questions, now, self.config)
            if current.psyche is None and self.options.with_psyche:
                current = current.patched({"psyche": psyche.new_psyche()})
            over = current.cycle >= self.config.max_cycles
            owner = _owner(ctx.iteration or 0)
            claimed, goal = claim(current, owner, now, self.config) if not over else (current, None)
            began = begin_cycle(claimed, now) if goal else claimed
            at_work = goal.id if goal else None
            return began.patched({"iteration": ctx.iteration or 0, "at_work": at_work})

        sessions.change(begin, session.id)

    @observer(name="active_goals")
    def observe_goals(self, ctx: Context) -> list[Observation]:
        """The goals that are worked on, the most important first."""
        session = self.sessions(ctx).at_work()
        if session is None:
            return []
        goals: list[JsonValue] = [
            {"id": goal.id, "description": goal.description, "priority": goal.priority}
            for goal in active_goals(session)[:20]
        ]
        symbols = self._symbols(ctx, session)
        data: JsonObject = {
            "goals": goals,
            "atWork": session.at_work,
            "cycle": session.cycle,
            "symbols": [*symbols],
        }
        return [Observation(source="goals", type="state", data=data)]

    @observer(name="working_memory")
    def observe_memory(self, ctx: Context) -> list[Observation]:
        """How full working memory is, and what is newest in it."""
        session = self.sessions(ctx).at_work()
        if session is None:
            return []
        recent = [entry.id for entry in memory.newest(session, NEWEST)]
        data: JsonObject = {
            "size": len(session.memory),
            "pressure": memory.pressure(session, self.config),
            "recent": [*recent],
        }
        return [Observation(source="working-memory", type="state", data=data)]

    @observer(name="recalled_episodes")
    def observe_episodes(self, ctx: Context) -> list[Observation]:
        """The episodes that the goals bring back."""
        session = self.sessions(ctx).at_work()
        if session is None:
            return []
        recalled = self._recalled(session)
        data: JsonObject = {"episodes": [episode.to_wire() for episode in recalled]}
        return [Observation(source="episodes", type="state", data=data)]

    @orienter(name="knowledge")
    def orient_knowledge(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """The facts around what the goal speaks of, and around what was learned before."""
        starts = _starts(observations)
        if not starts:
            return _assessed(f"{self.id}:knowledge", [_IDLE], {})
        facts = self._facts(ctx, starts)
        told = [f"{one.subject} {one.predicate} {one.object}" for one in facts[:5]]
        return _assessed(f"{self.id}:knowledge", told, {"facts": [one.to_wire() for one in facts]})

    @orienter(name="activation")
    def orient_activation(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """What comes to mind when the goal is thought of (M12)."""
        starts = _starts(observations, with_learned=False)
        if not starts:
            return _assessed(f"{self.id}:activation", [_IDLE], {})
        graph = self.graph(ctx)
        symbols = [one.symbol for one in activate(graph, starts, top_k=ACTIVATED)]
        about = graph.out_many(symbols) if symbols else {}
        outgoing = {one: len(facts) for one, facts in about.items()}
        data: JsonObject = {"symbols": [*symbols], "outgoing": {**outgoing}}
        return _assessed(f"{self.id}:activation", symbols, data)

    @orienter(name="episodic")
    def orient_episodes(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """What was remembered."""
        found = next((one for one in observations if one.source == "episodes"), None)
        if found is None:
            return _assessed(f"{self.id}:episodic", [_IDLE], {})
        episodes = found.data["episodes"]
        assert isinstance(episodes, list), "it is our own observation"
        told = [str(one["summary"]) for one in episodes if isinstance(one, dict)]
        return _assessed(f"{self.id}:episodic", told, {"episodes": episodes})

    @orienter(name="pressure")
    def orient_pressure(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """How full working memory is."""
        found = next((one for one in observations if one.source == "working-memory"), None)
        if found is None:
            return _assessed(f"{self.id}:pressure", [_IDLE], {})
        pressure = found.data["pressure"]
        return _assessed(
            f"{self.id}:pressure", [f"memory pressure {pressure:.2f}"], {"pressure": pressure}
        )

    @hook()
    def on_orient(self, situation: Situation) -> dict[str, Any] | None:
        """Take back what our orienters had to say although there is nothing to do (L19)."""
        others = [one for one in situation.assessments if one.findings != [_IDLE]]
        if len(others) == len(situation.assessments):
            return None
        changes: dict[str, Any] = {"assessments": others}
        if situation.summary == _summary(situation.assessments):
            changes["summary"] = _summary(others) if others else Situation().summary
        if situation.confidence == _mean(situation.assessments):
            changes["confidence"] = _mean(others)
        return changes

    @strategy(name="utility")
    def choose(self, situation: Situation, ctx: Context) -> Decision:
        """Choose the tool that is worth most for the goal (M2), and remember why (M8)."""
        sessions = self.sessions(ctx)
        made: list[Decision] = []

        def chosen(session: Session) -> Session:
            goal = session.goals.get(session.at_work or "")
            if session.iteration != ctx.iteration or goal is None or goal.status != "Active":
                made[:] = [no_op("the goal was put off or has ended meanwhile")]
                return session
            outlook = self._outlook(session, goal, situation)
            possible = self._possible(session, outlook, ctx)
            if not possible:
                made[:] = [no_op("everything that could be done waits for approval")]
                return session
            best, *others = [self._decision(*one, goal, ctx) for one in possible]
            made[:] = [best.patched({"alternatives": others[:8] or None})]
            return self._remembered(session, goal, outlook, possible[0][0], ctx.now())

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
        if ctx.iteration is None:
            self.memo.params[action.id] = _digest(dict(params))
        if not self.options.with_psyche:
            return
        name = self.tool_of(action.id) or action.id
        danger = self.danger_of(action.id, action.risk, params)
        mind = self.sessions(ctx).seen().psyche or psyche.new_psyche()
        verdict = psyche.shadow(mind, name, danger, psyche.action_text(name, params))
        if verdict.veto:
            raise Veto(f"shadow pattern {verdict.veto.name!r}: {verdict.veto.explanation}")

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Take in what came of the cycle, and do what follows from it (M5 to M9, M13)."""
        sessions = self.sessions(ctx)
        session = sessions.at_work()
        if session is None and any(one.source == "goals" for one in result.observations):
            # Another worker has begun the cycle after this one had looked.
            sessions.see(sessions.read())
            session = sessions.at_work()
        if session is None:
            return
        outcome = self._outcome(session, result, ctx)
        now = ctx.now()
        is_new: list[bool] = []

        def conclude(current: Session) -> Session:
            is_new[:] = [current.iteration == result.iteration and current.applied < current.cycle]
            if not is_new[0]:
                return current
            if outcome is None:
                return self._idle(current, now)
            return self._concluded(current, outcome, result.iteration, now)

        after = sessions.change(conclude, session.id)
        if not is_new[0]:
            sessions.repair(after)
        if outcome is not None and outcome.state == "pending":
            early = _early(outcome.cycle, outcome.tool, outcome.params_digest)
            if (found := ctx.state.get(early)) is not None:
                done = ActionResult.model_validate(found)
                self._answered(outcome.tool, outcome.params_digest, done, ctx)
        if memory.is_consolidation_due(after, self.config):
            self.consolidated(ctx, on_demand=False)

    def on_after_act(self, result: ActionResult, ctx: Context) -> None:
        """Take in what came of an action that a person has allowed meanwhile."""
        if ctx.iteration is not None:
            return
        digest = self.memo.params.pop(result.action, None)
        tool = self.tool_of(result.action)
        if tool is None or digest is None or self._answered(tool, digest, result, ctx):
            return
        session = self.sessions(ctx).read()
        if session.at_work is None or session.applied >= session.cycle:
            return
        # A person may be quicker than the cycle that has asked: its end looks here.
        early = _early(session.cycle, tool, digest)
        ctx.state.set(early, result.to_wire(), EARLY)
        self._answered(tool, digest, result, ctx)

    def _answered(self, tool: str, digest: str, result: ActionResult, ctx: Context) -> bool:
        """Take in what came of what has waited; False: nothing has."""
        sessions = self.sessions(ctx)
        session = sessions.read()
        # Results do not say which approval they are of; what was asked for with them does.
        wanted_one = ("Pending", tool, digest)
        waiting = (
            one
            for one in reversed(session.decisions)
            if (one.progress, one.tool, one.params_digest) == wanted_one
        )
        decision = next(waiting, None)
        goal = session.goals.get(decision.goal) if decision else None
        if decision is None or goal is None:
            return False
        outcome = Outcome(
            cycle=decision.cycle,
            goal=goal.id,
            # No claim: whoever works on the goal now goes on.
            fence=0,
            tool=decision.tool,
            state="done" if result.success else "failed",
            output=_told(tool, _output(result)),
            known=self._known(session, goal, ctx),
            params_digest=decision.params_digest,
            breakdown=decision.breakdown,
            duration=result.duration / 1000,
        )
        iteration = decision.iteration or 0
        sessions.change(
            lambda current: self._taken(current, outcome, iteration, ctx.now()), session.id
        )
        return True

    def _recalled(self, session: Session) -> list[Episode]:
        query = [symbol(goal.id) for goal in active_goals(session)[:5]]
        goal = session.goals[session.at_work or ""]
        return memory.recall(session.episodes, [*query, *words(goal.description)], RECALLED)

    def _symbols(self, ctx: Context, session: Session) -> list[str]:
        """The symbols that the goal speaks of, and the goal itself."""
        goal = session.goals[session.at_work or ""]
        found = self.graph(ctx).symbols_with(words(f"{goal.description} {goal.criteria}"), 20)
        return [symbol(goal.id), *sorted({one for labels in found.values() for one in labels})[:30]]

    def _facts(self, ctx: Context, starts: Sequence[str]) -> list[Triple]:
        graph = self.graph(ctx)
        outgoing, incoming = graph.out_many(starts), graph.into_many(starts)
        every = [fact for one in starts for fact in (*outgoing[one], *incoming[one])]
        known = [fact for fact in every if not fact.is_metadata]
        return list({(f.subject, f.predicate, f.object): f for f in known}.values())[:FACTS]

    def _outlook(self, session: Session, goal: Goal, situation: Situation) -> Outlook:
        activation: Any = situation.evidence(f"{self.id}:activation")
        facts: Any = situation.evidence(f"{self.id}:knowledge").get("facts", [])
        episodes: Any = situation.evidence(f"{self.id}:episodic").get("episodes", [])
        pressure: Any = situation.evidence(f"{self.id}:pressure").get("pressure", 0.0)
        return Outlook(
            goal=goal,
            knowledge=[Triple.model_validate(one) for one in facts],
            inferred=activation.get("symbols", []),
            outgoing=activation.get("outgoing", {}),
            episodes=[Episode.model_validate(one, strict=False) for one in episodes],
            pressure=pressure,
            psyche=session.psyche if self.options.with_psyche else None,
        )

    def _possible(
        self, session: Session, outlook: Outlook, ctx: Context
    ) -> list[tuple[Candidate, JsonObject]]:
        """The tools that could be used, the best first, each with what it is given.

        What the goal waits for a person to allow is not asked for again.
        """
        goal = outlook.goal
        actions = {one.id for one in ctx.catalog.actions}
        waiting = {
            (one.tool, one.params_digest)
            for one in session.decisions
            if one.goal == goal.id and one.progress == "Pending"
        }
        found = []
        for one in rank(outlook, self.profiles().values()):
            params = params_for(one.tool, goal, one.params)
            if params is None or self.action_of(one.tool) not in actions:
                continue
            path = params.get("path")
            if isinstance(path, str) and ":" not in one.tool and not self.files.allows(path):
                continue
            if (one.tool, _digest(params)) not in waiting:
                found.append((one, params))
        return found

    def _decision(
        self, candidate: Candidate, params: JsonObject, goal: Goal, ctx: Context
    ) -> Decision:
        id = self.action_of(candidate.tool)
        risk: Level = next((one.risk for one in ctx.catalog.actions if one.id == id), "medium")
        return Decision(
            action=id,
            params=params,
            rationale=f"{goal.description}: {candidate.rationale}",
            confidence=min(1.0, candidate.score.total),
            risk=_RISKS[self.danger_of(id, risk, params)],
        )

    def _remembered(
        self, session: Session, goal: Goal, outlook: Outlook, candidate: Candidate, now: datetime
    ) -> Session:
        """Note what was seen, inferred and decided in this cycle, and have a plan (M6, M8)."""
        cycle = session.cycle
        if any(one.source_cycle == cycle and one.kind == "Decision" for one in session.memory):
            return session
        seen = (
            f"Cycle {cycle}: {len(active_goals(session))} active goals, "
            f"{len(session.memory)} WM entries, {len(outlook.episodes)} recalled episodes"
        )
        session = memory.consult(session, [one.id for one in memory.newest(session, NEWEST)])
        push = _Pusher(cycle, now, self.config)
        session = push(session, seen, "Observation", 0.6, [symbol(goal.id)])
        if outlook.facts or outlook.inferred:
            inferred = (
                f"Orient: {len(outlook.facts)} relevant triples, {len(outlook.inferred)} "
                f"inferences, {len(outlook.episodes)} episodes, pressure {outlook.pressure:.2f}"
            )
            session = push(session, inferred, "Inference", 0.5, outlook.inferred)
        decided = (
            f'Decide: tool={candidate.tool}, goal="{goal.description}", '
            f"reason={candidate.rationale}"
        )
        session = push(session, decided, "Decision", 0.7, [symbol(goal.id)], candidate.tool)
        needs, external = _needs(goal, self.profiles())
        return ensure_plan(
            session, goal.id, needs, has_knowledge=bool(outlook.facts), external=external
        )

    def _outcome(self, session: Session, result: LoopResult, ctx: Context) -> Outcome | None:
        """What came of this cycle's decision; None: it was not ours, or nothing was decided."""
        decision, trace = result.decision, result.trace
        goal = session.goals.get(session.at_work or "")
        if decision is None or trace is None or goal is None:
            return None
        refusal = trace.vetoed or trace.invalid
        tool = self.tool_of(refusal.action if refusal else decision.action)
        if tool is None or trace.chosen != f"{self.id}:utility":
            return None
        done = result.action_results[0] if result.action_results else None
        state = _state(done, is_vetoed=trace.vetoed is not None)
        if state is None:
            return None
        said = _output(done) if done else (refusal.reason if refusal else "")
        return Outcome(
            cycle=session.cycle,
            goal=goal.id,
            fence=goal.fence,
            tool=tool,
            state=state,
            output=_told(tool, said) if state == "done" else said,
            known=self._known(session, goal, ctx),
            params_digest=_digest(decision.params),
            breakdown=_breakdown(decision.rationale),
            duration=done.duration / 1000 if done else None,
        )

    def _known(self, session: Session, goal: Goal, ctx: Context) -> list[str]:
        """The keywords of the goal, and of those above it, that the graph knows."""
        keywords = wanted(session, goal)
        found = self.graph(ctx).symbols_with(keywords, _LABELS) if keywords else {}
        return sorted(
            word
            for word, labels in found.items()
            if not all(is_metadata(label) for label in labels)
        )

    def _concluded(
        self, session: Session, outcome: Outcome, iteration: int, now: datetime
    ) -> Session:
        session = self._taken(session, outcome, iteration, now)
        session = decompose_stalled(session, now, self.config)
        session = give_up_stuck(session, now, self.config)
        if is_due(session.cycle, self.config):
            session, _ = reflect(session, session.cycle, now, self.config)
        return session

    def _taken(self, session: Session, outcome: Outcome, iteration: int, now: datetime) -> Session:
        """Take an outcome in, with what it leaves in memory."""
        after = apply_outcome(session, outcome, now, self.config)
        if after is session:
            return session
        decisions = [
            one.patched({"iteration": iteration}) if one.cycle == outcome.cycle else one
            for one in after.decisions
        ]
        push = _Pusher(outcome.cycle, now, self.config)
        said = f"Tool result ({outcome.tool}):\n{outcome.output}"
        relevance = 0.8 if outcome.state == "vetoed" else 0.6
        worked = outcome.state == "done"
        symbols = [symbol(outcome.goal), *outcome.known]
        after = push(after, said, "Action", relevance, symbols, outcome.tool, worked)
        return after.patched({"decisions": decisions})

    def _idle(self, session: Session, now: datetime) -> Session:
        """A cycle in which nothing of ours was decided: the goal is free for the next one."""
        goal = session.goals.get(session.at_work or "")
        if goal is None:
            return session
        return release(session, goal.id, goal.fence, now).patched({"applied": session.cycle})


class _Pusher:
    def __init__(self, cycle: int, now: datetime, config: Config) -> None:
        self._cycle = cycle
        self._now = now
        self._config = config

    def __call__(
        self,
        session: Session,
        content: str,
        kind: MemoryKind,
        relevance: float,
        symbols: Sequence[str] = (),
        tool: str | None = None,
        success: bool | None = None,
    ) -> Session:
        return memory.push(
            session,
            content=content,
            kind=kind,
            relevance=relevance,
            source_cycle=self._cycle,
            now=self._now,
            config=self._config,
            symbols=symbols,
            tool=tool,
            success=success,
        )


def _assessed(source: str, findings: Sequence[str], data: JsonObject) -> SituationAssessment:
    told = [one for one in findings if one] or ["nothing of note"]
    return SituationAssessment(source=source, findings=told, confidence=1.0, data=data)


def _starts(observations: Sequence[Observation], *, with_learned: bool = True) -> list[str]:
    """The symbols to begin with, as our observers have told them; none: there is no goal."""
    seen = {one.source: one.data for one in observations if one.type == "state"}
    goals, remembered = seen.get("goals", {}), seen.get("episodes", {})
    symbols, episodes = goals.get("symbols"), remembered.get("episodes")
    found = [one for one in symbols if isinstance(one, str)] if isinstance(symbols, list) else []
    for episode in episodes if found and with_learned and isinstance(episodes, list) else ():
        learned = episode.get("learnings") if isinstance(episode, dict) else None
        if isinstance(learned, list):
            found += [one for one in learned if isinstance(one, str)]
    return list(dict.fromkeys(found))[:STARTS]


def _summary(assessments: Sequence[SituationAssessment]) -> str:
    return " | ".join("; ".join(one.findings) for one in assessments)


def _mean(assessments: Sequence[SituationAssessment]) -> float:
    return sum(one.confidence for one in assessments) / len(assessments) if assessments else 0.0


def _early(cycle: int, tool: str, digest: str) -> str:
    return f"early:{cycle}:{tool}:{digest}"


def _owner(iteration: int) -> str:
    return f"iteration:{iteration}"


def _let_go(session: Session, now: datetime) -> Session:
    """Free the goal of the iteration before, if that did not come to its end: there is no other."""
    goal = session.goals.get(session.at_work or "")
    if goal is None or goal.owner != _owner(session.iteration):
        return session
    return release(session, goal.id, goal.fence, now)


def _profile(id: str, given: Any) -> Any:
    if isinstance(given, ToolProfile):
        return given.patched({"name": id})
    if not isinstance(given, Mapping):
        return given
    words_given = given.get("keywords", ())
    keywords = tuple(words_given) if isinstance(words_given, list) else words_given
    return {**given, "name": id, "keywords": keywords}


def _needs(goal: Goal, known: Mapping[str, ToolProfile]) -> tuple[list[Need], list[str]]:
    """What a goal asks for, by what it sounds like, and the tools outside of the graph for it."""
    outside = ("file_io", "http_fetch", "shell_exec")
    near = {tool: affinity(goal, known[tool]) for tool in outside}
    external = [tool for tool in outside if near[tool] > known[tool].threshold]
    needs: list[Need] = ["knowledge"]
    if external:
        needs.append("external")
    if affinity(goal, known["infer_rules"]) > 0.55:
        needs.append("reasoning")
    return needs, sorted(external, key=lambda tool: -near[tool])


def _state(done: ActionResult | None, *, is_vetoed: bool) -> OutcomeState | None:
    """What became of a decision; None: nothing that says anything of it."""
    if is_vetoed:
        return "vetoed"
    if done is None:
        return None
    error = done.error or ""
    if done.success:
        return "done"
    if done.waits_for:
        return "pending"
    if error.startswith(_NOT_DONE):
        return None
    return "vetoed" if _STOPPED.match(error) else "failed"


def _told(tool: str, said: str) -> str:
    """What a tool has told of the world, without what the agent has said itself."""
    if tool == "user_interact":
        return ""
    if tool != "memory_recall":
        return said
    return "\n".join(line for line in said.splitlines() if not _OF_ITSELF.match(line))


def _breakdown(rationale: str) -> str:
    at = rationale.rfind("[score=")
    return rationale[at:] if at >= 0 else ""


def _output(result: ActionResult) -> str:
    said = result.output if isinstance(result.output, str) else json.dumps(result.output)
    return result.error or said if not result.success else said


def _digest(params: JsonObject) -> str:
    canonical = json.dumps(params, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
