"""The base of the plugin `goals`: its options, and its fourteen tools as actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from boyd.models import ActionResult, Place, Triple
from boyd.plugin import Context, Graph, Plugin, action
from boyd.plugins.shell import runner
from boyd.text.formatting import counted
from boyd_goals import goal_toolbox, memory
from boyd_goals.api_models import NewGoal
from boyd_goals.goal_toolbox import ForeignTool, GoalToolbox
from boyd_goals.goal_tree import symbol
from boyd_goals.judgement import is_knowledge
from boyd_goals.knowledge.association import find_gaps, find_mentions, similar
from boyd_goals.knowledge.reasoning import consequences, infer, parse, reason, triples
from boyd_goals.knowledge.turtle import GOAL, MENTIONS, canonical
from boyd_goals.library import Library, fetch
from boyd_goals.outcome import symbol_metrics
from boyd_goals.progress import subject_of
from boyd_goals.psyche import HEAVIEST, LIGHTEST, new_psyche
from boyd_goals.sessions import Questions, SessionCache, Sessions, note_question
from boyd_goals.state import (
    Archetype,
    Config,
    GoalSession,
    GoalThresholds,
    Psyche,
    ShadowPattern,
)
from boyd_goals.tool_profiles import ToolProfile

#: The most lines of a tool's output.
LINES = 50
#: The most facts of an expression to draw conclusions from.
_REASONED = 5
#: The most symbols of a goal to search for gaps around, and to look up.
STARTS, QUERIED = 50, 3
#: Bytes kept of a command's output.
OUTPUT = 65_536

_Weight = Annotated[float, Field(ge=LIGHTEST, le=HEAVIEST)]


class GoalOptions(Plugin.Options, GoalThresholds):
    """The plugin's options, with those of `GoalThresholds`.

    Attributes:
        graph: name of the graph of facts.
        graph_of: the agent that owns the graph; this one if absent.
        judge_with_model: let the agent's model, if it has one, judge whether a goal is reached.
        with_psyche: give the agent preferences and a shadow that forbids some actions.
        roots: folders in which files may be read and written; without them, no file may.
        allow_private: allow fetching addresses that are not public.
        tools: profiles of other plugins' actions, by action id.
        goals: goals that each session is given once.
        archetypes: initial weights of the psyche's archetypes.
        shadow: patterns the shadow forbids or advises against, besides the default ones.
    """

    graph: str = Field(default="facts", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    graph_of: str | None = None
    judge_with_model: bool = True
    with_psyche: bool = True
    roots: list[Path] = Field(default_factory=list)
    allow_private: bool = False
    tools: dict[str, ForeignTool] = Field(default_factory=dict)
    goals: list[NewGoal] = Field(default_factory=list)
    archetypes: dict[Archetype, _Weight] = Field(default_factory=dict)
    shadow: list[ShadowPattern] = Field(default_factory=list)

    @field_validator("tools", mode="before")
    @classmethod
    def _name_tools(cls, tools: Any) -> Any:
        """Name each tool after its key."""
        if not isinstance(tools, Mapping):
            return tools
        return {
            id: {**dict(profile), "name": id}
            if isinstance(profile, Mapping | ToolProfile)
            else profile
            for id, profile in tools.items()
        }

    @field_validator("shadow", mode="before")
    @classmethod
    def _matching(cls, shadow: Any) -> Any:
        """Reject patterns that could never match."""
        for pattern in shadow if isinstance(shadow, list) else []:
            if isinstance(pattern, Mapping) and not ({"danger", "triggers"} & pattern.keys()):
                raise ValueError("a pattern needs triggers or a danger")
        return shadow

    @model_validator(mode="after")
    def _frees_memory(self) -> Self:
        if self.consolidate_down_to > self.consolidate_above:
            raise ValueError("consolidate_down_to is greater than consolidate_above")
        return self

    @property
    def psyche(self) -> Psyche | None:
        """The initial psyche, whose shadow never changes."""
        return new_psyche(self.archetypes, self.shadow) if self.with_psyche else None

    @property
    def config(self) -> Config:
        """The limits and thresholds, with defaults for those that are not options."""
        return Config(**{name: getattr(self, name) for name in GoalThresholds.model_fields})


class GoalTools(Plugin):
    """The tools of an agent with goals; `Goals` adds the rest."""

    Options = GoalOptions
    options: GoalOptions

    def __init__(self, **options: Any) -> None:
        """Check the options."""
        super().__init__(**options)
        self.config = self.options.config
        self.cache = SessionCache()

    def sessions(self, ctx: Context) -> Sessions:
        """The sessions of the agent."""
        return Sessions(ctx, self.graph(ctx), self.cache)

    def graph(self, ctx: Context) -> Graph:
        """The graph of facts."""
        return ctx.graph(self.options.graph, self.options.graph_of)

    @property
    def toolbox(self) -> GoalToolbox:
        """The tools; created on each access, as a plugin gets its id after its options."""
        return GoalToolbox(self.id, self.options.tools, self.options.roots)

    @action(concurrency=0, idempotent=True)
    def kg_query(self, params: goal_toolbox.QueryParams, ctx: Context) -> ActionResult:
        """List what the graph knows about a symbol or, for a goal, about what it mentions."""
        graph, symbols = self.graph(ctx), self._starts(params.symbol, QUERIED, ctx)
        out = graph.out_many(symbols) if symbols and params.direction != "into" else {}
        into = graph.into_many(symbols) if symbols and params.direction != "out" else {}
        facts = (fact for name in symbols for fact in (*out.get(name, []), *into.get(name, [])))
        knowledge = list({fact.place: fact for fact in facts if is_knowledge(fact)}.values())
        return _result([_line(fact) for fact in knowledge], _ends(knowledge), "No triples found")

    @action(concurrency=0, risk="medium", idempotent=True)
    def kg_mutate(self, params: goal_toolbox.MutateParams, ctx: Context) -> ActionResult:
        """Add a fact to the graph."""
        predicate = canonical(params.predicate)
        if predicate.lower().startswith("agent:"):
            raise ValueError("predicates that begin with agent: are the agent's own")
        source = f"agent:{ctx.agent.id}"
        triple = Triple(**{**dict(params), "predicate": predicate, "source": source})
        added = self.graph(ctx).add([triple])
        return _result([f"{_line(triple)}{'' if added else ' was already known'}"], _ends([triple]))

    @action(concurrency=0, idempotent=True)
    def memory_recall(self, params: goal_toolbox.RecallParams, ctx: Context) -> str:
        """Recall episodes about some symbols."""
        session = self.sessions(ctx).read()
        episodes = memory.recall(session.episodes, params.query_symbols, params.top_k)
        # One line each, so that lines about decisions can be left out.
        lines = [
            f"{episode.timestamp:%Y-%m-%d %H:%M} {' '.join(episode.summary.split())}"
            for episode in episodes
        ]
        return _join(lines, "No similar episode found")

    @action(concurrency=0, idempotent=True)
    def reason(self, params: goal_toolbox.ReasonParams, ctx: Context) -> ActionResult:
        """Simplify an expression by rules of logic, and list what follows from the facts in it."""
        result, graph = reason(params.expression), self.graph(ctx)
        steps = [f"{step.rule}: {step.before} becomes {step.after}" for step in result.steps]
        symbols, lines = list[str](), list[str]()
        for place in dict.fromkeys(triples(parse(result.expression))[:_REASONED]):
            fact = next(
                (candidate for candidate in graph.out(place[0]) if candidate.place == place), None
            )
            if fact is None:
                lines.append(f"{_arrow(place)} is not known")
                continue
            following = consequences(graph, fact)
            symbols += _ends([fact, *(inference.triple for inference in following)])
            lines += [
                f"{_line(inference.triple)}  follows by {inference.rule}" for inference in following
            ]
            lines += [] if following else [f"{_arrow(place)} is known, and nothing new follows"]
        return _result([result.expression, *steps, *lines], symbols)

    @action(concurrency=0, idempotent=True)
    def similarity_search(self, params: goal_toolbox.SimilarParams, ctx: Context) -> ActionResult:
        """Find symbols that are similar to another one."""
        matches = similar(self.graph(ctx), params.symbol, params.top_k)
        symbols = [params.symbol, *(match.symbol for match in matches)] if matches else []
        lines = [f"{match.symbol}  [{match.similarity:.3f}]" for match in matches]
        return _result(lines, symbols, "No similar symbol found")

    @action(concurrency=0, risk="medium", idempotent=True, timeout=120.0)
    def infer_rules(self, params: goal_toolbox.InferParams, ctx: Context) -> ActionResult:
        """Add the facts that follow from known ones by general rules."""
        graph = self.graph(ctx)
        inferences = infer(graph, **dict(params))
        graph.add([inference.triple for inference in inferences])
        lines = [f"{_line(inference.triple)}  by {inference.rule}" for inference in inferences]
        return _result(
            lines, _ends(inference.triple for inference in inferences), "Nothing new follows"
        )

    @action(concurrency=0, idempotent=True, timeout=120.0)
    def gap_analysis(self, params: goal_toolbox.GapParams, ctx: Context) -> ActionResult:
        """Find out what is missing around a symbol."""
        starts = self._starts(params.goal, STARTS, ctx)
        report = find_gaps(self.graph(ctx), starts, params.max_gaps)
        if not report.examined:
            return _result([], (), "Nothing is known about it")
        examined = counted(report.examined, "symbol")
        head = f"{examined}, {report.coverage:.0%} of them well connected"
        lines = [f"{gap.severity:.2f} {gap.kind}: {gap.detail}" for gap in report.gaps]
        return _result([head, *lines], [gap.symbol for gap in report.gaps])

    def _starts(self, name: str, most: int, ctx: Context) -> list[str]:
        """The symbol of that name; for a goal, those it mentions."""
        if not name.startswith(GOAL):
            return [name]
        goal = self.sessions(ctx).read().goals.get(name.removeprefix(GOAL))
        text = subject_of(goal.description) if goal else ""
        return find_mentions(self.graph(ctx), text, most)

    @action(concurrency=0, idempotent=True)
    def consolidate(self, ctx: Context) -> str:
        """Free working memory, and keep its valuable entries as episodes."""
        episodes, forgotten = self.consolidate_memory(ctx)
        return (
            f"{counted(episodes, 'entry', 'entries')} became episodes, {forgotten} were forgotten"
        )

    def consolidate_memory(self, ctx: Context, on_demand: bool = True) -> tuple[int, int]:
        """Consolidate; returns the numbers of new episodes and of forgotten entries."""
        sessions, graph = self.sessions(ctx), self.graph(ctx)
        before = sessions.read()
        symbols = sorted({name for entry in before.memory for name in entry.symbols})
        degrees = graph.degrees(symbols) if symbols else {}
        near = _near_goals(graph, before)
        counts = (0, 0)

        def change(session: GoalSession) -> GoalSession:
            nonlocal counts
            after, episodes = memory.consolidate(
                session,
                degrees,
                session.cycle,
                ctx.now(),
                self.config,
                near=near,
                without=memory.uninformative_entries(session, degrees),
                on_demand=on_demand,
            )
            counts = (len(episodes), len(session.memory) - len(after.memory) - len(episodes))
            return after

        sessions.change(change, before.id)
        return counts

    @action(concurrency=0, risk="medium")
    def file_io(self, params: goal_toolbox.FileParams) -> str:
        """Read, write or list files below the allowed folders."""
        files = self.toolbox.files
        if params.action == "list":
            return _join(files.names(params.path), "The folder is empty")
        if params.action == "read":
            return files.read(params.path)
        if params.content is None:
            raise ValueError("content is missing")
        return f"{files.write(params.path, params.content)} bytes written to {params.path}"

    @action(concurrency=0, risk="medium", idempotent=True, timeout=70.0)
    def http_fetch(self, params: goal_toolbox.FetchParams) -> str:
        """Fetch a page of a public address."""
        return fetch(params.url, params.timeout, self.options.allow_private).full_text

    @action(
        concurrency=0,
        risk="high",
        reversibility="irreversible",
        autonomy="approval-required",
        timeout=610.0,
    )
    def shell_exec(self, params: goal_toolbox.ShellParams) -> ActionResult:
        """Run a command line, once a person has allowed it."""
        env = runner.environment([], None)
        result = runner.run(
            params.command, timeout=params.timeout, workdir="/", limit=OUTPUT, env=env
        )
        error = f"exit code {result.code}" if result.code else None
        if result.timed_out:
            error = f"timed out after {params.timeout:g} s"
        output = result.output.text()
        return ActionResult(
            action="", success=error is None, duration=0.0, output=output, error=error
        )

    @action(concurrency=0, idempotent=True)
    def user_interact(self, params: goal_toolbox.AskParams, ctx: Context) -> str:
        """Ask a person; the answer arrives later."""
        sessions, now = self.sessions(ctx), ctx.now()
        session = sessions.working_session()
        goal = session.at_work if session else None
        question = Questions(ctx.state).ask(goal, params.question, now)
        if session is not None:
            sessions.change(lambda current: note_question(current, question, now), session.id)
        return f"Asked as question {question.id}: {question.text}"

    @action(concurrency=0, risk="medium", idempotent=True, timeout=70.0)
    def content_ingest(self, params: goal_toolbox.IngestParams, ctx: Context) -> ActionResult:
        """Add a text to the library, and its subjects to the graph."""
        if [params.text, params.path, params.url].count(None) != 2:
            raise ValueError("give exactly one of text, path and url")
        text, source = params.text or "", "text"
        if params.path is not None:
            text, source = self.toolbox.files.read(params.path), params.path
        elif params.url is not None:
            page = fetch(params.url, 30.0, self.options.allow_private)
            if page.status != 200:
                raise ValueError(f"{params.url} answered {page.full_text.splitlines()[0]}")
            text, source = page.text, params.url
        passages, about = Library(ctx.state).add(params.title, text, source)
        fact = partial(Triple, subject=params.title, source=source[:500])
        mentions = [fact(predicate=MENTIONS, object=topic, confidence=0.6) for topic in about[:20]]
        self.graph(ctx).add([fact(predicate="is-a", object="document"), *mentions])
        # Without the title, which was given and not found.
        line = f"{counted(passages, 'passage')}, about {', '.join(about[:10])}"
        return _result([line], [params.title, *about[:20]])

    @action(concurrency=0, idempotent=True)
    def library_search(self, params: goal_toolbox.SearchParams, ctx: Context) -> ActionResult:
        """Find passages of the library."""
        passages = Library(ctx.state).search(params.query, params.top_k)
        # One line each, so that a passage can be told from the next one.
        lines = [
            f"{passage.title} ({passage.number}): {' '.join(passage.text.split())}"
            for passage in passages
        ]
        return _result(lines, [passage.title for passage in passages], "No passage found")


def _result(lines: list[str], symbols: Iterable[str], nothing: str = "") -> ActionResult:
    """The lines of a tool, and the symbols it has named or found; Boyd adds the action's id."""
    metrics = symbol_metrics(symbols) or None
    output = _join(lines, nothing)
    return ActionResult(action="", success=True, duration=0.0, output=output, metrics=metrics)


def _near_goals(graph: Graph, session: GoalSession) -> set[str]:
    """The objects of facts about the goals in memory."""
    names = {name for entry in session.memory for name in entry.symbols}
    goals = sorted(names & {symbol(id) for id in session.goals})
    facts = graph.out_many(goals) if goals else {}
    return {fact.object for many in facts.values() for fact in many if not fact.is_metadata}


def _line(triple: Triple) -> str:
    return f"{_arrow(triple.place)}  [{triple.confidence:.2f}]"


def _arrow(place: Place) -> str:
    subject, predicate, object_ = place
    return f'"{subject}" -> {predicate} -> "{object_}"'


def _ends(facts: Iterable[Triple]) -> list[str]:
    """The subjects and objects of facts."""
    return [end for fact in facts for end in (fact.subject, fact.object)]


def _join(lines: list[str], nothing: str) -> str:
    if len(lines) > LINES:
        return "\n".join([*lines[:LINES], f"and {len(lines) - LINES} more"])
    return "\n".join(lines) or nothing
