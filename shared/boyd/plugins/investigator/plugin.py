"""The plugin: an orienter that asks, and a hook that keeps a situation grave until it was told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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
from boyd.models.investigation import Investigation as Asked
from boyd.models.investigation import Profile, Wanted
from boyd.plugin import Context, Plugin, orienter
from boyd.plugins import playbooks
from boyd.plugins.investigator import question
from boyd.plugins.investigator.cases import (
    Case,
    CaseMemory,
    Failure,
    News,
    Rules,
    Sight,
    look,
    quiet,
    reading,
    settle,
    to_tell,
)
from boyd.plugins.investigator.findings import InvestigationAnswer, outcome_of
from boyd.plugins.investigator.question import fingerprint, reaching

_MEMORY = "memory"
#: Seconds that a question is kept, for another attempt when nothing of it is seen any more.
_KEEP_QUESTION = 2 * 86400.0


class Investigator(Plugin):
    """Has the model investigate what is grave, once for each episode of a situation.

    A situation is known by its fingerprint (`boyd.plugins.investigator.question`). An episode
    begins when something reaches `trigger_severity`, and ends when nothing does any more.
    """

    id = "investigation"
    needs_llm = True

    class Options(Plugin.Options):
        """What is investigated, and how; times in seconds.

        Attributes:
            trigger_severity: of the observations that are.
            tools: patterns of ids, names or plugins of what the model may use.
            max_turns: of one investigation; never more than the agent's `llm.limits.max_steps`.
            profile: how eager it is to come to an end.
            instructions: what the model is told besides.
            enable_playbooks: whether it is told the playbooks that fit.
            playbooks: the folder they are in.
            min_confidence: below it a root cause is told to nobody as the contributing factor.
            max_chars: that all observations together may have in the question.
            retry_pause: after an investigation that failed; doubled after each further failure.
            cooldown: how long an answer holds for the same situation when it has come back.
            absence: in continuous mode, after which a situation is over that nothing is seen of.
            max_running: investigations at the same time.
            max_per_episode: investigations of one episode, as its situation changes.
        """

        trigger_severity: Severity = "warning"
        tools: list[str] = Field(default=["*"])
        max_turns: int = Field(default=15, gt=0, le=1000)
        profile: Profile = "research"
        instructions: str = Field(default="", max_length=20_000)
        enable_playbooks: bool = True
        playbooks: Path | None = None
        min_confidence: Confidence = 0.0
        max_chars: int = Field(default=question.LIMIT, ge=1000, le=90_000)
        retry_pause: float = Field(default=60.0, gt=0)
        cooldown: float = Field(default=0.0, ge=0)
        absence: float = Field(default=900.0, ge=0)
        max_running: int = Field(default=3, gt=0, le=100)
        max_per_episode: int = Field(default=10, gt=0, le=100)

    options: Options

    def init(self, ctx: Context) -> None:
        """Tell of playbooks that cannot be read."""
        if self.options.enable_playbooks:
            playbooks.load(self.options.playbooks, ctx)

    @orienter()
    def investigate(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Have what is grave investigated, and tell what is known of it."""
        source = f"{self.id}:investigate"
        grave = reaching(observations, self.options.trigger_severity)
        sight = self._sight(observations, grave, ctx)
        rules = self._rules(ctx)
        memory = _read(ctx.state.get(_MEMORY))
        if not grave and memory.is_empty:
            return quiet(source, self.options.trigger_severity, memory)
        memory = self._look(memory, sight, grave, rules, ctx)
        running, news = self._follow(memory, ctx)
        memory = _change(ctx, lambda before: settle(before, sight, news, rules))
        if not grave and not to_tell(memory, sight):
            return quiet(source, self.options.trigger_severity, memory)
        return reading(source, sight, memory, running, self.options.min_confidence)

    def on_orient(self, situation: Situation) -> dict[str, Level] | None:
        """Keep up the priority of what was seen once, and is found out only now."""
        told = situation.evidence(f"{self.id}:investigate").get("priority")
        higher = LEVELS[LEVELS.index(situation.priority) + 1 :]
        return next(({"priority": level} for level in higher if level == told), None)

    def _sight(
        self, observations: list[Observation], grave: list[Observation], ctx: Context
    ) -> Sight:
        severities = [one.severity for one in grave if one.severity]
        return Sight(
            iteration=ctx.iteration or 0,
            now=ctx.now(),
            sources=frozenset(one.source for one in observations),
            fingerprint=fingerprint(grave) if grave else None,
            severity=max(severities, key=SEVERITIES.index, default="warning"),
            lasting=all(one.type in ("metric", "state") for one in grave),
            grave=frozenset(one.source for one in grave),
        )

    def _rules(self, ctx: Context) -> Rules:
        options = self.options
        return Rules(
            pause=options.retry_pause,
            cooldown=options.cooldown,
            max_running=options.max_running,
            max_per_episode=options.max_per_episode,
            # Only then observers have intervals, and may not have looked this time (L10).
            absence=options.absence if ctx.agent.mode == "continuous" else None,
        )

    def _look(
        self, memory: CaseMemory, sight: Sight, grave: list[Observation], rules: Rules, ctx: Context
    ) -> CaseMemory:
        """Remember what is seen; a question is kept before anybody counts on it."""
        wanted = look(memory, sight, rules).case(sight.fingerprint)
        if wanted is not None and wanted.began == sight.iteration:
            ctx.state.set(f"question:{wanted.name}", self._question(grave, ctx), _KEEP_QUESTION)
        return _change(ctx, lambda before: look(before, sight, rules))

    def _question(self, grave: list[Observation], ctx: Context) -> dict[str, str]:
        options = self.options
        told = playbooks.told(
            self.options.enable_playbooks, self.options.playbooks, grave, "orient", ctx
        )
        parts = [question.INSTRUCTIONS, options.instructions, told]
        return {
            "question": question.question(grave, options.max_chars),
            "title": question.title(grave),
            "instructions": "\n\n".join(part for part in parts if part),
        }

    def _follow(self, memory: CaseMemory, ctx: Context) -> tuple[dict[str, Asked], News]:
        """Begin what must be under way, and see what came of what was."""
        running: dict[str, Asked] = {}
        news: dict[str, Any] = {}
        for case in memory.cases:
            if not case.under_way:
                continue
            try:
                found = self._ask(case, ctx)
            except (QueueFull, ConfigError) as error:
                news[case.key] = Failure(str(error))
                continue
            if found.status != "ended":
                running[case.key] = found
            elif found.ending == "error":
                news[case.key] = Failure(found.detail or "no reason is known", found.id)
            else:
                news[case.key] = outcome_of(found)
        return running, news

    def _ask(self, case: Case, ctx: Context) -> Asked:
        asked = ctx.state.get(f"question:{case.name}") or {"question": question.QUESTION}
        return ctx.llm.investigate(
            case.key,
            **asked,
            tools=self.options.tools,
            profile=self.options.profile,
            limits=Wanted(max_steps=self.options.max_turns),
            answer=InvestigationAnswer,
        )


def _read(stored: Any) -> CaseMemory:
    # Perhaps another release has written it.
    return CaseMemory.model_validate(stored, extra="ignore") if stored else CaseMemory()


def _change(ctx: Context, change: Callable[[CaseMemory], CaseMemory]) -> CaseMemory:
    """Change the memory, with any number of workers."""
    changed = ctx.state.update(_MEMORY, lambda stored: change(_read(stored)).to_wire())
    return _read(changed)
