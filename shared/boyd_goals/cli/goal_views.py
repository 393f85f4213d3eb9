"""Prints goals, cycles, memories and facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from boyd.models import Observation
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.output import label, prose, sentence, whole
from boyd_cli.views import iteration_view

if TYPE_CHECKING:
    from boyd_goals import api_models, state
    from boyd_goals.cli.goals_client import Cycle, GoalsClient

#: Statuses in the order of `counts`.
STATUSES = ("Active", "Suspended", "Completed", "Failed")
#: Lines shown of an entry of memory.
_LINES = 3


class WaitingToolView:
    """Prints pending questions and approvals once, with the command that answers them."""

    def __init__(self, answer: str = "") -> None:
        """*answer* is the command for questions; default: the one of the shell."""
        self._answer = answer
        self._shown: set[str] = set()

    def tell(
        self, questions: Sequence[state.Question], approvals: Sequence[tuple[str, str]]
    ) -> None:
        """Print new items."""
        for line in self.lines(questions, approvals):
            output.say(f"  {line}")

    def lines(
        self, questions: Sequence[state.Question], approvals: Sequence[tuple[str, str]]
    ) -> Iterable[str]:
        """A line for each new item."""
        for action, approval in approvals:
            if self._is_new(approval):
                command = output.to_type(f"approvals approve {output.short(approval)}")
                yield output.one_line(f"{action} waits for an approval: {command}")
        for question in questions:
            if self._is_new(f"question {question.id}"):
                command = self._answer or output.to_type("questions answer {} TEXT")
                text = output.one_line(question.text)
                yield f"asks: {text}  {command.format(output.one_line(question.id))}"

    def _is_new(self, name: str) -> bool:
        new = name not in self._shown
        self._shown.add(name)
        return new


def show_cycle(cycle: Cycle) -> None:
    """Print all phases of a cycle."""
    output.say(_headline(cycle))
    result, decision = cycle.result, cycle.decision
    lines = cycle_detail(decision)
    output.print_pairs(
        ("Observe", ", ".join(map(_observation_text, result.observations)) or "nothing"),
        ("Orient", result.situation.summary if result.situation else "nothing"),
        ("Decide", _decision_text(cycle)),
        ("Act", "; ".join(map(iteration_view.action_outcome, result.action_results)) or "nothing"),
        ("Result", _result_text(cycle, lines)),
    )
    for line in lines[1:]:
        output.say(f"           {line}".rstrip())
    if _answer(cycle):
        output.say(f"  Answer   {output.one_line(_answer(cycle))}")


def _observation_text(observation: Observation) -> str:
    """An observation in a few words; for the plugin's own, the number of items."""
    data = observation.data
    value: object
    if observation.source == "goals" and isinstance(value := data.get("goals"), list):
        return counted(len(value), "active goal")
    if observation.source == "episodes" and isinstance(value := data.get("episodes"), list):
        return counted(len(value), "recalled memory", "recalled memories")
    if observation.source == "working-memory" and isinstance(value := data.get("size"), int):
        return f"{counted(value, 'entry', 'entries')} in working memory"
    return observation.source


def show_step(cycle: Cycle) -> None:
    """Print a cycle in a few lines: goal, choice with scores, result."""
    output.say(_headline(cycle))
    lines = cycle_detail(cycle.decision)
    for text in (_decision_text(cycle), _result_text(cycle, lines)):
        output.say(f"  {output.one_line(text)}")
    if _answer(cycle):
        output.say(f"  Answer: {output.one_line(_answer(cycle))}")


def _answer(cycle: Cycle) -> str:
    """The result of the goal, if this cycle has completed it."""
    goal = cycle.goal
    return _in_one_line(goal.result or "") if goal and goal.status == "Completed" else ""


def _in_one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def cycle_detail(decision: state.ToolDecision | None) -> list[str]:
    """The findings of a tool, line by line."""
    return output.clean(decision.detail).strip().splitlines() if decision else []


def _headline(cycle: Cycle) -> str:
    if cycle.decision is None:
        return f"no cycle, iteration {cycle.result.iteration}"
    goal = cycle.goal
    name = f"{goal.description} ({goal.id})" if goal else cycle.decision.goal
    return output.one_line(f"cycle {cycle.decision.cycle}: {name}")


def _decision_text(cycle: Cycle) -> str:
    if cycle.decision is not None:
        return f"{cycle.decision.tool} {cycle.decision.breakdown}"
    chosen = cycle.result.decision
    return f"{chosen.action}: {chosen.rationale}" if chosen else "nothing"


def _result_text(cycle: Cycle, lines: Sequence[str]) -> str:
    """Progress, a new status of the goal, and the first line of the findings."""
    if not cycle.result.success:
        return f"failed: {cycle.result.error or 'no reason given'}"
    if cycle.decision is None:
        session = cycle.session
        spent = session.active and session.cycle >= session.max_cycles
        reason = f": the session has used all its {session.max_cycles} cycles" if spent else ""
        return f"nothing was done{reason}"
    text = _progress(cycle.decision)
    if cycle.goal is not None and cycle.goal.status not in ("Active", cycle.decision.progress):
        text += f", the goal is {cycle.goal.status}"
    return f"{text}: {lines[0]}" if lines else text


def _progress(decision: state.ToolDecision) -> str:
    """The progress of a decision, and the keywords it has found."""
    by = f" by {', '.join(decision.found)}" if decision.found else ""
    return f"{decision.progress or 'not done'}{by}"


def counts(session: api_models.SessionState | state.SessionSummary) -> str:
    """The number of goals by status, as in `2 active, 1 completed`."""
    by_status = [(name, session.goals.get(name, 0)) for name in STATUSES]
    return ", ".join(f"{number} {name.lower()}" for name, number in by_status if number) or "none"


def show_session(session: api_models.SessionState) -> None:
    """Print a summary of a session."""
    memory = session.memory
    output.print_pairs(
        ("session", session.id),
        ("cycle", f"{session.cycle} of at most {session.max_cycles}"),
        ("goals", counts(session)),
        ("memory", f"{memory.size} of {memory.capacity} entries"),
        ("episodes", str(session.episodes)),
        ("facts", str(session.graph.facts)),
    )


#: Questions must be read in full before they are answered.
GOALS = (
    *(whole("id"), label("status", least=10), whole("priority", drop=2)),
    *(whole("cycles", drop=3), label("parent", drop=1), sentence("goal")),
)
FACTS = (
    *(label("subject"), label("predicate"), label("object")),
    *(whole("confidence", drop=2), label("source", drop=1)),
)
QUESTIONS = (
    *(whole("id"), whole("asked"), label("goal", drop=1)),
    *(prose("question"), prose("answer")),
)


def show_goals(goals: Sequence[state.Goal]) -> None:
    """Print goals, one per line."""
    if not goals:
        output.say("No goals found.")
        return
    rows = [
        [
            *(goal.id, _status(goal), str(goal.priority), str(goal.cycles_worked)),
            *(goal.parent or "", goal.description),
        ]
        for goal in goals
    ]
    output.print_table(GOALS, rows)


def _status(goal: state.Goal) -> str:
    asks = goal.question is not None and goal.status == "Active"
    held = ["stalled" if goal.stalled else "", "waits for an answer" if asks else ""]
    return ", ".join([goal.status, *filter(None, held)])


def show_id(goal: state.Goal) -> None:
    """Print the id of a goal."""
    output.say(output.one_line(goal.id))


def show_standing(goal: state.Goal) -> None:
    """Print the status of a goal."""
    output.say(output.one_line(f"goal {goal.id} is {goal.status}: {goal.description}"))


def show_priority(goal: state.Goal) -> None:
    """Print the priority of a goal."""
    output.say(output.one_line(f"goal {goal.id} has priority {goal.priority}"))


def show_goal(client: GoalsClient, goal: state.Goal) -> None:
    """Print everything about a goal."""
    output.say(output.one_line(f"{goal.description}: {_status(goal)}"))
    criteria = "" if goal.criteria == goal.description else goal.criteria
    used = sorted(goal.used.items(), key=lambda item: -item[1])
    now = client.api.agent.now()
    still = goal.cycles_worked - goal.last_progress_cycle
    cycles = f"{goal.cycles_worked}, the last {still} without progress"
    cycles += f"; stalls after {goal.stall_threshold}"
    output.print_pairs(
        ("id", goal.id),
        ("reason", goal.reason or ""),
        ("criteria", criteria),
        ("result", _in_one_line(goal.result or "")),
        *_evidence(goal),
        ("found", ", ".join(goal.matched)),
        ("priority", str(goal.priority)),
        ("cycles", cycles if goal.cycles_worked else "0"),
        ("tools", ", ".join(f"{tool} ({times})" for tool, times in used)),
        ("failed plans", str(goal.failed_plans or "")),
        ("parent", goal.parent or ""),
        ("children", ", ".join(goal.children)),
        ("question", goal.question or ""),
        ("added", output.age(goal.created_at, now)),
        ("changed", output.age(goal.updated_at, now)),
    )


def _evidence(goal: state.Goal) -> Iterable[tuple[str, str]]:
    """The steps that have fulfilled criteria, with the fact or passage."""
    for evidence in goal.evidence:
        step = f"{evidence.criterion}, by {evidence.tool} in cycle {evidence.cycle}"
        yield "fulfilled", f"{step}: {_in_one_line(evidence.text)}" if evidence.text else step


def show_why(explanation: api_models.GoalExplanation) -> None:
    """Print the decisions for a goal, with dates and scores."""
    goal = explanation.goal
    output.say(output.one_line(f"{goal.description}: {_status(goal)}"))
    output.print_pairs(
        ("reason", goal.reason or ""),
        ("result", _in_one_line(goal.result or "")),
        *_evidence(goal),
        ("parent", _goal_text(explanation.parent) if explanation.parent else ""),
        ("children", ", ".join(map(_goal_text, explanation.children))),
        ("plan", _plan(explanation.plan) if explanation.plan else ""),
    )
    if not explanation.decisions:
        output.say("  No decisions yet.")
    for decision in explanation.decisions:
        where = f"cycle {decision.cycle}, {output.date(decision.at)}, {decision.tool}"
        output.say(f"  {output.one_line(f'{where}: {_progress(decision)}')}")
        output.say(f"    {output.one_line(decision.breakdown)}")
        for line in cycle_detail(decision)[:1]:
            output.say(f"    {output.one_line(line)}")
        if decision.problem:
            problem = f"the criteria cannot be evaluated: {decision.problem}"
            output.say(f"    {output.one_line(problem)}")


def _goal_text(goal: state.Goal) -> str:
    return f"{goal.id} {goal.description} ({goal.status})"


def _plan(plan: state.ToolPlan) -> str:
    steps = " → ".join(f"{step.tool} ({step.status})" for step in plan.steps)
    attempt = f", attempt {plan.attempt + 1}" if plan.attempt else ""
    reason = f": {plan.reason}" if plan.reason else ""
    return f"{steps}, {plan.status}{attempt}{reason}"


def show_episodes(episodes: Sequence[state.Episode]) -> None:
    """Print memories."""
    if not episodes:
        output.say("No memories found.")
    for episode in episodes:
        output.say(f"{output.date(episode.timestamp)}  {output.one_line(episode.summary)}")
        output.print_pairs(
            ("id", episode.id),
            ("goal", episode.goal or ""),
            ("learned", ", ".join(episode.learnings)),
            ("tools", ", ".join(episode.tools)),
            ("relevance", f"{episode.relevance:.2f}"),
        )


def show_memory(entries: Sequence[state.MemoryEntry]) -> None:
    """Print working memory."""
    if not entries:
        output.say("Working memory is empty.")
    for entry in entries:
        where = f"cycle {entry.source_cycle}, {entry.kind}, relevance {entry.relevance:.2f}"
        output.say(f"{entry.id}  {where}, consulted {counted(entry.reference_count, 'time')}")
        lines = [line for line in output.clean(entry.content).splitlines() if line.strip()]
        for line in lines[:_LINES]:
            output.say(f"  {line}")
        if len(lines) > _LINES:
            output.say(f"  … {counted(len(lines) - _LINES, 'more line')}")


def show_psyche(psyche_state: api_models.PsycheState) -> None:
    """Print the agent's preferences, and the actions its shadow forbids."""
    from boyd_goals.psyche import ARCHETYPES, archetype_bonus

    psyche = psyche_state.psyche
    if psyche is None:
        output.say("The agent has no psyche (`with_psyche = false`).")
        return
    rows = []
    for archetype, weight in psyche.weights.items():
        tools = ", ".join(tool for tool, owner in ARCHETYPES.items() if owner == archetype)
        rows.append([archetype, f"{weight:.2f}", f"{archetype_bonus(weight):+.3f}", tools])
    output.print_table(["archetype", "weight", "bonus", "tools"], rows)
    output.say()
    for pattern in psyche.shadow:
        effect = "forbids" if pattern.veto else f"discourages ({pattern.severity:.1f})"
        matches = [f"{trigger!r}" for trigger in pattern.triggers]
        matches += [f"anything {pattern.danger}"] if pattern.danger else []
        text = f"the shadow {effect} {', '.join(matches)}: {pattern.explanation or pattern.name}"
        output.say(output.one_line(text))
    met = counted(psyche.shadow_encounters, "encounter")
    output.say(f"{met} with the shadow, individuation {psyche.individuation:.2f}")


def show_sessions(client: GoalsClient, sessions: Sequence[state.SessionSummary]) -> None:
    """Print sessions, one per line."""
    now = client.api.agent.now()
    rows = [
        [
            *(
                f"{session.id} (now)" if session.current else session.id,
                output.age(session.created_at, now),
            ),
            *(
                output.age(session.updated_at, now),
                str(session.cycle),
                str(session.episodes),
                counts(session),
            ),
        ]
        for session in sessions
    ]
    output.print_table(["session", "begun", "changed", "cycles", "episodes", "goals"], rows)
    if len(sessions) > 1:
        output.say(f"{output.to_type('agent reopen SESSION')} reopens an older one.")


def show_consolidated(result: api_models.Consolidated) -> None:
    """Print the result of consolidating working memory."""
    summary = f"{result.consolidated} kept as memories, {result.forgotten} forgotten"
    output.say(f"{summary}; working memory is {result.pressure:.0%} full")


def show_surroundings(surroundings: api_models.Surroundings) -> None:
    """Print the facts about a symbol, outgoing ones first."""
    if not surroundings.out and not surroundings.into:
        output.say(f"Nothing is known about {output.one_line(surroundings.symbol)}.")
        if surroundings.alike:
            output.say("Similar symbols:")
        for symbol in surroundings.alike:
            output.say(f"  {output.one_line(symbol)}")
        return
    facts = [*surroundings.out, *surroundings.into]
    output.print_table(
        FACTS, [[*fact.place, f"{fact.confidence:.2f}", fact.source or ""] for fact in facts]
    )


def show_questions(client: GoalsClient, questions: Sequence[state.Question]) -> None:
    """Print the questions of the agent."""
    if not questions:
        output.say("No questions found.")
        return
    now = client.api.agent.now()
    rows = []
    for question in questions:
        age = output.short_age(question.asked_at, now) if question.asked_at else ""
        by = f" ({question.answered_by})" if question.answered_by else ""
        answer = f"{question.answer}{by}" if question.answer is not None else ""
        rows.append([question.id, age, question.goal or "", question.text, answer])
    columns = 5 if any(question.answer is not None for question in questions) else 4
    output.print_table(QUESTIONS[:columns], [row[:columns] for row in rows])


def show_answered(question: state.Question) -> None:
    """Print that a question is answered."""
    output.say(f"question {output.one_line(question.id)} is answered")
