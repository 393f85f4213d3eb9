"""The plugin `investigation`: an orienter that lets the model investigate severe situations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from boyd.errors import ConfigError, QueueFull
from boyd.models import (
    LEVELS,
    SEVERITIES,
    Confidence,
    Level,
    Observation,
    Severity,
    Situation,
    SituationAssessment,
)
from boyd.models.investigation import Investigation, Profile, Wanted
from boyd.plugin import Context, orienter
from boyd.plugins.investigator import cases, question
from boyd.plugins.investigator.question import (
    InvestigationAnswer,
    at_least,
    fingerprint,
    outcome_of,
)
from boyd.plugins.playbook_reader import PlaybookReader

_MEMORY = "memory"
#: Seconds a question is kept for further attempts after its observations are gone.
_KEEP_QUESTION = 2 * 86400.0


class Investigator(PlaybookReader):
    """Lets the model investigate severe situations, once per episode.

    A situation is identified by its fingerprint. An episode begins when an observation reaches
    `trigger_severity`, and ends when none does.
    """

    id = "investigation"

    class Options(PlaybookReader.Options):
        """The plugin's options; times in seconds.

        Attributes:
            trigger_severity: least severity of an observation to investigate.
            tools: patterns of ids, names or plugins of tools the model may use.
            max_turns: per investigation; at most the agent's `llm.limits.max_steps`.
            profile: the limits profile of an investigation.
            min_confidence: least confidence of a root cause to report it as contributing factor.
            max_chars: of all observations together in the question.
            retry_pause: before a failed investigation is retried; doubled after each failure.
            cooldown: how long an answer is reused when the same situation returns.
            absence: in continuous mode, time without observations after which a situation is over.
            max_running: number of concurrent investigations.
            max_per_episode: number of investigations per episode, as its situation changes.
        """

        trigger_severity: Severity = "warning"
        tools: list[str] = Field(default=["*"])
        max_turns: int = Field(default=15, gt=0, le=1000)
        profile: Profile = "research"
        min_confidence: Confidence = 0.0
        max_chars: int = Field(default=question.LIMIT, ge=1000, le=90_000)
        retry_pause: float = Field(default=60.0, gt=0)
        cooldown: float = Field(default=0.0, ge=0)
        absence: float = Field(default=900.0, ge=0)
        max_running: int = Field(default=3, gt=0, le=100)
        max_per_episode: int = Field(default=10, gt=0, le=100)

    options: Options

    @orienter()
    def investigate(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Investigate severe observations, and report what is known about them."""
        source = f"{self.id}:investigate"
        grave = at_least(observations, self.options.trigger_severity)
        sight = self._sight(observations, grave, ctx)
        rules = self._rules(ctx)
        memory = _read(ctx.state.get(_MEMORY))
        if not grave and memory.is_empty:
            return cases.assess_quiet(source, self.options.trigger_severity, memory)
        memory = self._observe(memory, sight, grave, rules, ctx)
        running, news = self._follow(memory, ctx)
        memory = _change(ctx, lambda before: cases.settle(before, sight, news, rules))
        if not grave and not cases.cases_to_report(memory, sight):
            return cases.assess_quiet(source, self.options.trigger_severity, memory)
        return cases.assess_cases(source, sight, memory, running, self.options.min_confidence)

    def on_orient(self, situation: Situation) -> dict[str, Level] | None:
        """Keep the priority of a situation that ended before its outcome was known."""
        level = situation.evidence(f"{self.id}:investigate").get("priority")
        higher = LEVELS[LEVELS.index(situation.priority) + 1 :]
        return next(({"priority": candidate} for candidate in higher if candidate == level), None)

    def _sight(
        self, observations: list[Observation], grave: list[Observation], ctx: Context
    ) -> cases.Sight:
        severities = [observation.severity for observation in grave if observation.severity]
        return cases.Sight(
            iteration=ctx.iteration or 0,
            now=ctx.now(),
            sources=frozenset(observation.source for observation in observations),
            fingerprint=fingerprint(grave) if grave else None,
            severity=max(severities, key=SEVERITIES.index, default="warning"),
            lasting=all(observation.type in ("metric", "state") for observation in grave),
            grave=frozenset(observation.source for observation in grave),
        )

    def _rules(self, ctx: Context) -> cases.CaseRules:
        options = self.options
        return cases.CaseRules(
            pause=options.retry_pause,
            cooldown=options.cooldown,
            max_running=options.max_running,
            max_per_episode=options.max_per_episode,
            # In continuous mode observers have intervals, so some may not have run.
            absence=options.absence if ctx.agent.mode == "continuous" else None,
        )

    def _observe(
        self,
        memory: cases.CaseMemory,
        sight: cases.Sight,
        grave: list[Observation],
        rules: cases.CaseRules,
        ctx: Context,
    ) -> cases.CaseMemory:
        """Update the cases; a question is stored before any worker relies on it."""
        case = cases.observe(memory, sight, rules).case(sight.fingerprint)
        if case is not None and case.began == sight.iteration:
            ctx.state.set(f"question:{case.name}", self._question(grave, ctx), _KEEP_QUESTION)
        return _change(ctx, lambda before: cases.observe(before, sight, rules))

    def _question(self, grave: list[Observation], ctx: Context) -> dict[str, str]:
        options = self.options
        section = self.playbook_section(grave, "orient", ctx)
        parts = [question.INSTRUCTIONS, options.instructions, section]
        return {
            "question": question.question(grave, options.max_chars),
            "title": question.make_title(grave),
            "instructions": "\n\n".join(part for part in parts if part),
        }

    def _follow(
        self, memory: cases.CaseMemory, ctx: Context
    ) -> tuple[dict[str, Investigation], cases.News]:
        """Start or poll the investigations under way, and collect their outcomes."""
        running: dict[str, Investigation] = {}
        news: dict[str, Any] = {}
        for case in memory.cases:
            if not case.under_way:
                continue
            try:
                investigation = self._ask(case, ctx)
            except (QueueFull, ConfigError) as error:
                news[case.key] = cases.Failure(str(error))
                continue
            if investigation.status != "ended":
                running[case.key] = investigation
            elif investigation.ending == "error":
                news[case.key] = cases.Failure(
                    investigation.detail or "unknown reason", investigation.id
                )
            else:
                news[case.key] = outcome_of(investigation)
        return running, news

    def _ask(self, case: cases.Case, ctx: Context) -> Investigation:
        stored = ctx.state.get(f"question:{case.name}") or {"question": question.QUESTION}
        return ctx.llm.investigate(
            case.key,
            **stored,
            tools=self.options.tools,
            profile=self.options.profile,
            limits=Wanted(max_steps=self.options.max_turns),
            answer=InvestigationAnswer,
        )


def _read(stored: Any) -> cases.CaseMemory:
    # Another release may have written it.
    return cases.CaseMemory.model_validate(stored, extra="ignore") if stored else cases.CaseMemory()


def _change(
    ctx: Context, change: Callable[[cases.CaseMemory], cases.CaseMemory]
) -> cases.CaseMemory:
    changed = ctx.state.update(_MEMORY, lambda stored: change(_read(stored)).to_wire())
    return _read(changed)
