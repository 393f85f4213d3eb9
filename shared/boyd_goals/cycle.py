"""A cycle of a session: observe and orient, begin it, apply its outcome, and collect approvals.

Each step happens once: a cycle has begun when the session names its iteration, and has ended when
`applied` names it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from boyd.errors import StoreError, StoreUnavailable
from boyd.models import (
    ActionResult,
    ApprovalItem,
    JsonObject,
    LoopResult,
    Observation,
    Situation,
    SituationAssessment,
    Triple,
    mean_confidence,
)
from boyd.plugin import ApprovalReader, Context, Graph, hook, observer, orienter
from boyd.text.tokenizer import keywords
from boyd_goals import memory
from boyd_goals.api_models import WaitingTool
from boyd_goals.criteria import words_in
from boyd_goals.goal_conditions import evaluate_condition, texts_in
from boyd_goals.goal_toolbox import GoalToolbox, digest
from boyd_goals.goal_tools import GoalTools
from boyd_goals.goal_tree import active_goals, decompose_stalled, give_up_stuck, symbol
from boyd_goals.judgement import FACTUAL, StepFinding, around, findings_in
from boyd_goals.knowledge.association import activate, find_mentions
from boyd_goals.knowledge.reasoning import is_inferred
from boyd_goals.outcome import (
    KEPT,
    DecisionOutcome,
    apply_outcome,
    begin_cycle,
    output_of,
    state_of,
    symbols_of,
)
from boyd_goals.progress import clip, condition_of, criterion_words, subject_of
from boyd_goals.psyche import is_due, reflect
from boyd_goals.scoring import Outlook
from boyd_goals.sessions import apply_answers, claim, release
from boyd_goals.state import Config, Episode, Goal, GoalSession, Psyche, Question, ToolDecision

#: The sources of the observations.
GOALS, MEMORY, EPISODES = "goals", "working-memory", "episodes"
#: The orienters.
KNOWLEDGE, ACTIVATION, EPISODIC, PRESSURE = "knowledge", "activation", "episodic", "pressure"
#: Limits of the observations.
_MAX_GOALS, _MAX_SYMBOLS, _QUERIED, _RECALLED, _MAX_STARTS = 20, 30, 5, 3, 40
#: Limits of the assessments.
_MAX_FACTS, _SHOWN, _ACTIVATED = 60, 5, 5
#: Activation starts at the goal and the symbols nearest to its words.
_SEEDS = 6
_BRIEF_CHARS = 100
_IDLE = "no goal is active"


class Orientation(GoalTools):
    """The observers and orienters; without a goal to work on, orienters report to be idle."""

    @observer(name="active_goals")
    def observe_goals(self, ctx: Context) -> list[Observation]:
        """The active goals, most important first."""
        session = self.sessions(ctx).working_session()
        if session is None:
            return []
        goal = session.goals[session.at_work or ""]
        condition = condition_of(goal)
        criteria = texts_in(condition) if condition else subject_of(goal.criteria)
        text = f"{subject_of(goal.description)} {criteria}"
        goals: list[JsonValue] = [
            {"id": active.id, "description": active.description, "priority": active.priority}
            for active in active_goals(session)[:_MAX_GOALS]
        ]
        data: JsonObject = {"goals": goals, "atWork": goal.id, "cycle": session.cycle}
        data["symbols"] = [symbol(goal.id), *find_mentions(self.graph(ctx), text, _MAX_SYMBOLS)]
        return [Observation(source=GOALS, type="state", data=data)]

    @observer(name="working_memory")
    def observe_memory(self, ctx: Context) -> list[Observation]:
        """The pressure of working memory, and its newest entries."""
        session = self.sessions(ctx).working_session()
        if session is None:
            return []
        data: JsonObject = {
            "size": len(session.memory),
            "pressure": memory.pressure(session, self.config),
            "recent": [entry.id for entry in memory.newest(session)],
        }
        return [Observation(source=MEMORY, type="state", data=data)]

    @observer(name="recalled_episodes")
    def observe_episodes(self, ctx: Context) -> list[Observation]:
        """The episodes recalled for the goals."""
        session = self.sessions(ctx).working_session()
        if session is None:
            return []
        query = [symbol(goal.id) for goal in active_goals(session)[:_QUERIED]]
        query += keywords(session.goals[session.at_work or ""].description)
        recalled = memory.recall(session.episodes, query, _RECALLED)
        data: JsonObject = {"episodes": [episode.to_wire() for episode in recalled]}
        return [Observation(source=EPISODES, type="state", data=data)]

    @orienter(name=KNOWLEDGE)
    def orient_knowledge(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """The facts about the symbols that the goal and its episodes mention."""
        symbols = _start_symbols(observations)
        if not symbols:
            return self._assess(KNOWLEDGE, [_IDLE], {})
        facts = _facts_around(symbols, self.graph(ctx))
        findings = [f"{fact.subject} {fact.predicate} {fact.object}" for fact in facts[:_SHOWN]]
        return self._assess(KNOWLEDGE, findings, {"facts": [fact.to_wire() for fact in facts]})

    @orienter(name=ACTIVATION)
    def orient_activation(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """The symbols activated by those that the goal mentions."""
        seeds = _start_symbols(observations, with_episodes=False)[:_SEEDS]
        if not seeds:
            return self._assess(ACTIVATION, [_IDLE], {})
        graph = self.graph(ctx)
        symbols = [activation.symbol for activation in activate(graph, seeds, top_k=_ACTIVATED)]
        about = graph.out_many(symbols) if symbols else {}
        outgoing: JsonObject = {name: len(facts) for name, facts in about.items()}
        return self._assess(ACTIVATION, symbols, {"symbols": [*symbols], "outgoing": outgoing})

    @orienter(name=EPISODIC)
    def orient_episodes(self, observations: list[Observation]) -> SituationAssessment:
        """The recalled episodes."""
        data = _data_of(EPISODES, observations)
        if not data:
            return self._assess(EPISODIC, [_IDLE], {})
        episodes: Any = data["episodes"]
        findings = [
            clip(" ".join(str(episode["summary"]).split()), _BRIEF_CHARS) for episode in episodes
        ]
        return self._assess(EPISODIC, findings, {"episodes": episodes})

    @orienter(name=PRESSURE)
    def orient_pressure(self, observations: list[Observation]) -> SituationAssessment:
        """The pressure of working memory."""
        data = _data_of(MEMORY, observations)
        if not data:
            return self._assess(PRESSURE, [_IDLE], {})
        pressure = data["pressure"]
        return self._assess(PRESSURE, [f"memory pressure {pressure:.2f}"], {"pressure": pressure})

    @hook()
    def on_orient(self, situation: Situation) -> dict[str, Any] | None:
        """Remove the assessments of our idle orienters."""
        everything = situation.assessments
        others = [assessment for assessment in everything if assessment.findings != [_IDLE]]
        if len(others) == len(everything):
            return None
        changes: dict[str, Any] = {"assessments": others}
        # Another plugin may have set the summary or the confidence itself.
        if situation.summary == _summary(everything):
            changes["summary"] = _summary(others) if others else Situation().summary
        if situation.confidence == mean_confidence(everything):
            changes["confidence"] = mean_confidence(others)
        return changes

    def is_oriented(self, situation: Situation) -> bool:
        """True if one of this plugin's orienters had a goal to work on."""
        own = {f"{self.id}:{name}" for name in (ACTIVATION, KNOWLEDGE, EPISODIC, PRESSURE)}
        return any(
            assessment.source in own and assessment.findings != [_IDLE]
            for assessment in situation.assessments
        )

    def outlook(self, goal: Goal, situation: Situation, psyche: Psyche | None) -> Outlook:
        """Everything the choice of a tool for the goal depends on, from the assessments."""
        names = (ACTIVATION, KNOWLEDGE, EPISODIC, PRESSURE)
        evidence: Any = {name: situation.evidence(f"{self.id}:{name}") for name in names}
        episodes = evidence[EPISODIC].get("episodes", [])
        return Outlook(
            goal=goal,
            knowledge=[
                Triple.model_validate(fact, extra="ignore")
                for fact in evidence[KNOWLEDGE].get("facts", [])
            ],
            inferred=evidence[ACTIVATION].get("symbols", []),
            outgoing=evidence[ACTIVATION].get("outgoing", {}),
            episodes=[
                Episode.model_validate(episode, strict=False, extra="ignore")
                for episode in episodes
            ],
            pressure=evidence[PRESSURE].get("pressure", 0.0),
            psyche=psyche,
        )

    def _assess(self, name: str, findings: Sequence[str], data: JsonObject) -> SituationAssessment:
        texts = [text for text in findings if text] or ["nothing notable"]
        source = f"{self.id}:{name}"
        return SituationAssessment(source=source, findings=texts, confidence=1.0, data=data)


def _data_of(source: str, observations: Sequence[Observation]) -> JsonObject:
    """The data of our own observation of *source*; empty unless a goal is worked on."""
    matching = (
        observation.data
        for observation in observations
        if (observation.source, observation.type) == (source, "state") and not observation.is_sent
    )
    return next(matching, {})


def _start_symbols(observations: Sequence[Observation], *, with_episodes: bool = True) -> list[str]:
    """The symbols that the goal mentions and, *with_episodes*, those of recalled episodes."""
    symbols: Any = _data_of(GOALS, observations).get("symbols", [])
    episodes: Any = _data_of(EPISODES, observations).get("episodes", [])
    if symbols and with_episodes:
        symbols = [*symbols, *(name for episode in episodes for name in episode["learnings"])]
    return list(dict.fromkeys(symbols))[:_MAX_STARTS]


def _facts_around(symbols: Sequence[str], graph: Graph) -> list[Triple]:
    outgoing, incoming = graph.out_many(symbols), graph.into_many(symbols)
    every = [fact for name in symbols for fact in (*outgoing[name], *incoming[name])]
    unique = {fact.place: fact for fact in every if not fact.is_metadata}
    return list(unique.values())[:_MAX_FACTS]


def _summary(assessments: Sequence[SituationAssessment]) -> str:
    return " | ".join("; ".join(assessment.findings) for assessment in assessments)


log = logging.getLogger("boyd_goals")

#: The symbols that a goal mentions around which criteria may be met.
_MENTIONED = 5


def begin(
    session: GoalSession,
    iteration: int,
    questions: Sequence[Question],
    now: datetime,
    config: Config,
    *,
    psyche: Psyche | None,
) -> GoalSession:
    """Begin a cycle with a goal for the iteration, if it can claim one."""
    if session.iteration == iteration:
        return session
    # There is one iteration at a time: free the goal of one that did not end.
    before = session.goals.get(session.at_work or "")
    if before is not None and before.owner == _owner(session.iteration):
        session = release(session, before.id, before.fence, now)
    session = apply_answers(session, questions, now, config)
    if session.psyche is None and psyche is not None:
        session = session.patched({"psyche": psyche})
    goal = None
    if session.cycle < config.max_cycles:
        session, goal = claim(session, _owner(iteration), now, config)
    if goal is not None:
        session = begin_cycle(session, now)
    return session.patched({"iteration": iteration, "at_work": goal.id if goal else None})


def is_open(session: GoalSession, iteration: int) -> bool:
    """True if the outcome of the iteration's cycle has not been applied yet."""
    return session.iteration == iteration and session.applied < session.cycle


def outcome_of(
    session: GoalSession, result: LoopResult, strategy: str, toolbox: GoalToolbox, graph: Graph
) -> DecisionOutcome | None:
    """The outcome of the cycle; None if another strategy decided or no tool was involved."""
    decision, trace = result.decision, result.trace
    goal = session.goals.get(session.at_work or "")
    if decision is None or trace is None or goal is None:
        return None
    refusal = trace.vetoed or trace.invalid
    tool = toolbox.tool_of(refusal.action if refusal else decision.action)
    if tool is None or trace.chosen != strategy:
        return None
    done = result.action_results[0] if result.action_results else None
    state = "vetoed" if trace.vetoed else state_of(done) if done else None
    if state is None:
        return None
    # Hooks may have changed the params: the goal recognizes its call by those it chose.
    choice = session.choice
    is_chosen = choice is not None and choice.tool == tool
    outcome = DecisionOutcome(
        cycle=session.cycle,
        goal=goal.id,
        fence=goal.fence,
        tool=tool,
        state=state,
        output=refusal.reason if refusal else "",
        params_digest=choice.params_digest if choice and is_chosen else digest(decision.params),
        score=choice.score if choice else None,
        iteration=result.iteration,
        approval=done.waits_for if done else None,
    )
    return outcome.patched(_fields(goal, tool, done, toolbox, graph)) if done else outcome


def _fields(
    goal: Goal, tool: str, result: ActionResult, toolbox: GoalToolbox, graph: Graph
) -> dict[str, Any]:
    """The fields of an outcome that come from the result of its action."""
    output, symbols = output_of(tool, result), symbols_of(result)
    fields = {"output": output, "symbols": symbols, "duration": result.duration / 1000}
    if not result.success:
        return fields
    mentioned = find_mentions(graph, subject_of(goal.description), _MENTIONED)
    findings = [*findings_in(tool, output), *_surroundings(mentioned, tool, symbols, graph)]
    # A person was asked when the answer has arrived.
    is_act = tool != "user_interact" and toolbox.is_act(tool, goal, output)
    fields |= {"findings": findings, "about": _subjects(goal, mentioned), "is_act": is_act}
    if condition := condition_of(goal):
        fields["condition"] = evaluate_condition(condition, tool, _body(tool, output), graph)
    return fields


def _body(tool: str, output: str) -> str:
    """The output of a tool; of a page, without its status."""
    return output.partition("\n\n")[2] if tool == "http_fetch" else output


def _subjects(goal: Goal, mentioned: Sequence[str]) -> list[list[str]]:
    """The words that the goal shares with a symbol, for each symbol that shares most with it."""
    own = set(criterion_words(goal.description))
    shared = {tuple(sorted(own & words_in(name))): None for name in mentioned}
    most = max(map(len, shared), default=0)
    return [[*group] for group in shared if len(group) == most and most]


def _surroundings(
    mentioned: Sequence[str], tool: str, symbols: Collection[str], graph: Graph
) -> list[StepFinding]:
    """The facts around each mentioned symbol that a tool for facts has named.

    Inference names only some of many: of it, these are the inferred facts around all of them.
    """
    infers = tool == "infer_rules"
    if tool not in FACTUAL or not symbols:
        return []
    centres = [name for name in mentioned if infers or name in symbols]
    if not centres:
        return []
    out, into = graph.out_many(centres), graph.into_many(centres)
    groups = ([*out[name], *into[name]] for name in centres)
    return [around(fact for fact in facts if not infers or is_inferred(fact)) for facts in groups]


def record_outcome(
    session: GoalSession, outcome: DecisionOutcome, now: datetime, config: Config
) -> GoalSession:
    """Apply an outcome and remember it."""
    after = apply_outcome(session, outcome, now, config)
    if after is session:
        return session
    note = memory.MemoryNote(
        content=f"Tool result ({outcome.tool}):\n{outcome.output}",
        kind="Action",
        relevance=0.8 if outcome.state in ("vetoed", "refused", "undone") else 0.6,
        source_cycle=outcome.cycle,
        now=now,
        symbols=[symbol(outcome.goal), *outcome.symbols],
        tool=outcome.tool,
        success=outcome.state == "done",
    )
    return memory.push(after, note, config)


def end(
    session: GoalSession, outcome: DecisionOutcome | None, now: datetime, config: Config
) -> GoalSession:
    """End the cycle: apply its outcome, split stalled goals, give up stuck ones and reflect."""
    if outcome is None:
        goal = session.goals.get(session.at_work or "")
        if goal is None:
            return session
        return release(session, goal.id, goal.fence, now).patched({"applied": session.cycle})
    session = record_outcome(session, outcome, now, config)
    session = decompose_stalled(session, now, config)
    session = give_up_stuck(session, now, config)
    if is_due(session.cycle, config):
        session = reflect(session, session.cycle, now, config)
    return session


def _owner(iteration: int) -> str:
    return f"iteration:{iteration}"


# --- Approvals -----------------------------------------------------------------------------------


def approval_outcomes(
    session: GoalSession, approvals: ApprovalReader, toolbox: GoalToolbox, graph: Graph
) -> list[DecisionOutcome]:
    """The outcomes of decisions whose approvals were resolved.

    Each resolved approval is read once, and none if no decision waits.
    """
    pending = _pending(session)
    if not pending:
        return []
    ids = {decision.approval for decision in pending if decision.approval}
    items = _read_approvals(approvals, ids - approvals.waiting(ids))
    outcomes = [
        _approval_outcome(session, decision, items[decision.approval], toolbox, graph)
        for decision in pending
        if decision.approval in items
    ]
    return [outcome for outcome in outcomes if outcome is not None]


def waiting_tools(session: GoalSession, approvals: ApprovalReader) -> list[WaitingTool]:
    """The tools that wait for an approval, oldest first."""
    pending = _pending(session)
    unanswered = approvals.waiting({decision.approval for decision in pending if decision.approval})
    return [
        WaitingTool(tool=decision.tool, goal=decision.goal, approval=decision.approval)
        for decision in pending
        if decision.approval in unanswered
    ]


def _pending(session: GoalSession) -> list[ToolDecision]:
    every = session.decisions
    return [
        decision
        for decision in every
        if decision.progress == "Pending" and decision.goal in session.goals
    ]


def _read_approvals(
    approvals: ApprovalReader, ids: set[str]
) -> dict[str | None, ApprovalItem | None]:
    """Those approvals, without any in the format of a newer release."""
    items: dict[str | None, ApprovalItem | None] = {}
    for id in sorted(ids):
        try:
            items[id] = approvals.get(id)
        except StoreUnavailable:
            raise
        except StoreError as error:
            log.warning("%s", error)
    return items


def _approval_outcome(
    session: GoalSession,
    decision: ToolDecision,
    item: ApprovalItem | None,
    toolbox: GoalToolbox,
    graph: Graph,
) -> DecisionOutcome | None:
    """The outcome of a decision after its approval, or None while the action has no result.

    It has no fence, so that the current owner of the goal keeps it.
    """
    copied = {name: getattr(decision, name) for name in (*KEPT, "score") if name != "duration"}
    outcome = DecisionOutcome(**copied, state="refused")
    # Nobody has answered: the goal may ask again.
    if item is None or item.status == "expired":
        unanswered = "nobody answered in time" if item else "the approval no longer exists"
        return outcome.patched({"state": "undone", "output": unanswered})
    if item.status not in ("pending", "approved"):
        by = f" by {item.acted_by}" if item.acted_by else ""
        note = f": {item.note}" if item.note else ""
        return outcome.patched({"output": f"{item.status}{by}{note}"})
    if item.result is None:
        return None
    state, tool = state_of(item.result), decision.tool
    if state is None:
        undone = f"approved but not executed: {output_of(tool, item.result)}"
        return outcome.patched({"state": "undone", "output": undone})
    fields = _fields(session.goals[decision.goal], tool, item.result, toolbox, graph)
    return outcome.patched({**fields, "state": state})
