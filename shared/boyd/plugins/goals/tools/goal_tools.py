"""The fourteen tools, as actions (spec goals)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from boyd.models import ActionResult, Triple
from boyd.models.situation import Place
from boyd.plugin import Context, Graph, Plugin, action
from boyd.plugins.goals import memory
from boyd.plugins.goals.goal_options import GoalOptions
from boyd.plugins.goals.goal_tree import symbol
from boyd.plugins.goals.knowledge.gaps import find_gaps
from boyd.plugins.goals.knowledge.rewrite import parse, reason, triples
from boyd.plugins.goals.knowledge.rules import consequences, infer
from boyd.plugins.goals.knowledge.similarity import mentioned, similar
from boyd.plugins.goals.knowledge.vocabulary import canonical
from boyd.plugins.goals.outcome import naming
from boyd.plugins.goals.sessions import Memo, Sessions
from boyd.plugins.goals.state import GoalSession
from boyd.plugins.goals.tools.library import Library
from boyd.plugins.goals.tools.params import (
    AskParams,
    FetchParams,
    FileParams,
    GapParams,
    InferParams,
    IngestParams,
    MutateParams,
    QueryParams,
    ReasonParams,
    RecallParams,
    SearchParams,
    ShellParams,
    SimilarParams,
)
from boyd.plugins.goals.tools.questions import Questions, asked
from boyd.plugins.goals.tools.registry import GoalToolbox
from boyd.plugins.goals.tools.web import fetch
from boyd.plugins.shell import runner

#: Lines that a tool tells at most.
LINES = 50
#: From how many facts of an expression conclusions are drawn.
_REASONED = 5
#: How many symbols of a goal gaps are looked for around.
STARTS = 50
#: Bytes of a command's output that are kept.
OUTPUT = 65_536


class GoalTools(Plugin):
    """The tools of an agent with goals; `Goals` adds the rest."""

    Options = GoalOptions
    options: GoalOptions

    def __init__(self, **options: Any) -> None:
        """Check the options."""
        super().__init__(**options)
        self.config = self.options.config
        self.memo = Memo()

    def sessions(self, ctx: Context) -> Sessions:
        """The sessions of the agent."""
        return Sessions(ctx, self.graph(ctx), self.memo)

    def graph(self, ctx: Context) -> Graph:
        """The graph of facts."""
        return ctx.graph(self.options.graph, self.options.graph_of)

    @property
    def toolbox(self) -> GoalToolbox:
        """The tools; made anew, as a plugin gets its id after its options."""
        return GoalToolbox(self.id, self.options)

    @action(idempotent=True)
    def kg_query(self, params: QueryParams, ctx: Context) -> ActionResult:
        """Tell what the graph knows about a symbol."""
        graph, found = self.graph(ctx), list[Triple]()
        if params.direction in ("both", "out"):
            found += graph.out(params.symbol)
        if params.direction in ("both", "into"):
            found += graph.into(params.symbol)
        known = [one for one in found if not one.is_metadata]
        told = [_line(one) for one in known]
        return self._told("kg_query", told, "No triples found", _ends(known))

    @action(risk="medium", idempotent=True)
    def kg_mutate(self, params: MutateParams, ctx: Context) -> ActionResult:
        """Add a fact to the graph."""
        predicate = canonical(params.predicate)
        if predicate.lower().startswith("agent:"):
            raise ValueError("predicates that begin with agent: are the agent's own")
        triple = Triple(
            subject=params.subject,
            predicate=predicate,
            object=params.object,
            confidence=params.confidence,
            source=f"agent:{ctx.agent.id}",
        )
        added = self.graph(ctx).add([triple])
        told = f"{_line(triple)}{'' if added else ' was known already'}"
        return self._told("kg_mutate", [told], "", _ends([triple]))

    @action(idempotent=True)
    def memory_recall(self, params: RecallParams, ctx: Context) -> str:
        """Recall episodes about some symbols."""
        session = self.sessions(ctx).read()
        found = memory.recall(session.episodes, params.query_symbols, params.top_k)
        # A line each: so it can be told which of them speak of what was decided.
        lines = [f"{one.timestamp:%Y-%m-%d %H:%M} {' '.join(one.summary.split())}" for one in found]
        return _told(lines, "Nothing like it is remembered")

    @action(idempotent=True)
    def reason(self, params: ReasonParams, ctx: Context) -> ActionResult:
        """Simplify an expression by rules of logic, and tell what follows from facts in it."""
        found, graph = reason(params.expression), self.graph(ctx)
        steps = [f"{one.rule}: {one.before} becomes {one.after}" for one in found.steps]
        symbols, lines = list[str](), list[str]()
        for place in dict.fromkeys(triples(parse(found.expression))[:_REASONED]):
            fact = next((one for one in graph.out(place[0]) if one.place == place), None)
            if fact is None:
                lines.append(f"{_arrow(place)} is not known")
                continue
            following = consequences(graph, fact)
            symbols += _ends([fact, *(one.triple for one in following)])
            lines += [f"{_line(one.triple)}  follows by {one.rule}" for one in following]
            lines += [] if following else [f"{_arrow(place)} is known, and nothing new follows"]
        return self._told("reason", [found.expression, *steps, *lines], "", symbols)

    @action(idempotent=True)
    def similarity_search(self, params: SimilarParams, ctx: Context) -> ActionResult:
        """Find what is like a symbol."""
        found = similar(self.graph(ctx), params.symbol, params.top_k)
        symbols = [params.symbol, *(one.symbol for one in found)] if found else []
        told = [f"{one.symbol}  [{one.similarity:.3f}]" for one in found]
        return self._told("similarity_search", told, "Nothing is like it", symbols)

    @action(risk="medium", idempotent=True, timeout=120.0)
    def infer_rules(self, params: InferParams, ctx: Context) -> ActionResult:
        """Add what follows from the facts by general rules."""
        graph = self.graph(ctx)
        found = infer(
            graph, max_iterations=params.max_iterations, min_confidence=params.min_confidence
        )
        graph.add([one.triple for one in found])
        lines = [f"{_line(one.triple)}  by {one.rule}" for one in found]
        symbols = _ends(one.triple for one in found)
        return self._told("infer_rules", lines, "Nothing new follows", symbols)

    @action(idempotent=True, timeout=120.0)
    def gap_analysis(self, params: GapParams, ctx: Context) -> ActionResult:
        """Tell what is missing around a symbol."""
        sessions, graph = self.sessions(ctx), self.graph(ctx)
        goal = sessions.read().goals.get(params.goal.removeprefix("goal:"))
        starts = mentioned(graph, goal.description, STARTS) if goal else [params.goal]
        report = find_gaps(graph, starts, params.max_gaps)
        if not report.examined:
            return self._told("gap_analysis", [], "Nothing is known to look around", ())
        head = f"{counted(report.examined, 'symbol')}, {report.coverage:.0%} of them well connected"
        lines = [f"{one.severity:.2f} {one.kind}: {one.detail}" for one in report.gaps]
        symbols = [one.symbol for one in report.gaps]
        return self._told("gap_analysis", [head, *lines], "", symbols)

    @action(idempotent=True)
    def consolidate(self, ctx: Context) -> str:
        """Keep what is worth it of working memory as episodes, and free the rest."""
        kept, gone = self.consolidated(ctx)
        return f"{_entries(kept)} became episodes, {gone} were forgotten"

    def consolidated(self, ctx: Context, on_demand: bool = True) -> tuple[int, int]:
        """Consolidate; how many entries became episodes, and how many were forgotten."""
        sessions, graph = self.sessions(ctx), self.graph(ctx)
        seen = sessions.read()
        symbols = sorted({one for entry in seen.memory for one in entry.symbols})
        degrees = graph.degrees(symbols) if symbols else {}
        near = _near_goals(graph, seen)
        counts = [0, 0]

        def change(session: GoalSession) -> GoalSession:
            after, kept = memory.consolidate(
                session,
                degrees,
                session.cycle,
                ctx.now(),
                self.config,
                near=near,
                without=memory.teaching_nothing(session, degrees),
                on_demand=on_demand,
            )
            counts[:] = [len(kept), len(session.memory) - len(after.memory) - len(kept)]
            return after

        sessions.change(change, seen.id)
        return counts[0], counts[1]

    @action(risk="medium")
    def file_io(self, params: FileParams) -> str:
        """Read, write or list files below the allowed folders."""
        files = self.toolbox.files
        if params.action == "list":
            return _told(files.names(params.path), "It is empty")
        if params.action == "read":
            return files.read(params.path)
        if params.content is None:
            raise ValueError("there is no content to write")
        return f"{files.write(params.path, params.content)} bytes written to {params.path}"

    @action(risk="medium", idempotent=True, timeout=70.0)
    def http_fetch(self, params: FetchParams) -> str:
        """Fetch a page of a public address."""
        return fetch(params.url, params.timeout, self.options.allow_private).told

    @action(risk="high", autonomy="approval-required", timeout=610.0)
    def shell_exec(self, params: ShellParams) -> ActionResult:
        """Run a command line, once a person has allowed it."""
        ended = runner.run(
            params.command,
            timeout=params.timeout,
            workdir="/",
            limit=OUTPUT,
            env=runner.environment([], None),
        )
        error = f"exit code {ended.code}" if ended.code else None
        if ended.timed_out:
            error = f"timed out after {params.timeout:g} s"
        return ActionResult(
            action=self.toolbox.action_of("shell_exec"),
            success=error is None,
            duration=0.0,
            output=ended.output.text(),
            error=error,
        )

    @action(idempotent=True)
    def user_interact(self, params: AskParams, ctx: Context) -> str:
        """Ask a person; the answer comes when it comes."""
        sessions, now = self.sessions(ctx), ctx.now()
        session = sessions.at_work()
        goal = session.at_work if session else None
        question = Questions(ctx.state).ask(goal, params.question, now)
        if session is not None:
            sessions.change(lambda current: asked(current, question, now), session.id)
        return f"Asked as question {question.id}: {question.text}"

    @action(risk="medium", idempotent=True, timeout=70.0)
    def content_ingest(self, params: IngestParams, ctx: Context) -> ActionResult:
        """Take a text into the library, and what it is about into the graph."""
        given = [one for one in (params.text, params.path, params.url) if one is not None]
        if len(given) != 1:
            raise ValueError("give one of text, path and url")
        text, source = given[0], "text"
        if params.path is not None:
            text, source = self.toolbox.files.read(params.path), params.path
        elif params.url is not None:
            page = fetch(params.url, 30.0, self.options.allow_private)
            if page.status != 200:
                raise ValueError(f"{params.url} answered {page.told.splitlines()[0]}")
            text, source = page.text, params.url
        passages, about = Library(ctx.state).add(params.title, text, source)
        origin = source[:500]
        facts = [
            Triple(subject=params.title, predicate="is-a", object="document", source=origin),
            *(
                Triple(
                    subject=params.title,
                    predicate="mentions",
                    object=word,
                    confidence=0.6,
                    source=origin,
                )
                for word in about[:20]
            ),
        ]
        self.graph(ctx).add(facts)
        # Not the title: it was given, and is nothing that was found.
        told = f"{counted(passages, 'passage')}, about {', '.join(about[:10])}"
        return self._told("content_ingest", [told], "", [params.title, *about[:20]])

    @action(idempotent=True)
    def library_search(self, params: SearchParams, ctx: Context) -> ActionResult:
        """Find passages of the library."""
        found = Library(ctx.state).search(params.query, params.top_k)
        lines = [f"{one.title} ({one.number}): {one.text}" for one in found]
        return self._told("library_search", lines, "No passage fits", [one.title for one in found])

    def _told(
        self, tool: str, lines: list[str], nothing: str, symbols: Iterable[str]
    ) -> ActionResult:
        """What a tool has told, and the symbols that it has named or found."""
        return ActionResult(
            action=self.toolbox.action_of(tool),
            success=True,
            duration=0.0,
            output=_told(lines, nothing),
            metrics=naming(symbols) or None,
        )


def _near_goals(graph: Graph, session: GoalSession) -> set[str]:
    """What facts that lead away from the goals of what is remembered name (M9)."""
    named = {one for entry in session.memory for one in entry.symbols}
    goals = sorted(named & {symbol(id) for id in session.goals})
    facts = graph.out_many(goals) if goals else {}
    return {fact.object for many in facts.values() for fact in many if not fact.is_metadata}


def _line(triple: Triple) -> str:
    return f"{_arrow(triple.place)}  [{triple.confidence:.2f}]"


def _arrow(place: Place) -> str:
    subject, predicate, object_ = place
    return f'"{subject}" -> {predicate} -> "{object_}"'


def _ends(facts: Iterable[Triple]) -> list[str]:
    """What facts are about."""
    return [end for one in facts for end in (one.subject, one.object)]


def counted(number: int, noun: str) -> str:
    """A number with its noun, as in `1 passage` and `2 passages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _told(lines: list[str], nothing: str) -> str:
    if len(lines) > LINES:
        return "\n".join([*lines[:LINES], f"and {len(lines) - LINES} more"])
    return "\n".join(lines) or nothing
