"""The plugin: a hook that learns, an orienter that recalls, and endpoints that show."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from boyd.errors import BoydError, StoreError
from boyd.models import (
    ActionResult,
    Confidence,
    EndpointReply,
    EndpointRequest,
    JsonObject,
    LoopResult,
    Observation,
    Severity,
    SituationAssessment,
)
from boyd.plugin import Context, Plugin, endpoint, orienter
from boyd.plugins.historian import incidents
from boyd.plugins.historian.incidents import IncidentRecord, Story, Trial, keywords, similarity
from boyd.plugins.investigator.question import reaching

_TRIALS = "trials"
_INDEX = "index"
#: How many trials wait at the same time.
_MOST_TRIALS = 20
#: Seconds for which an incident is remembered that is not seen again.
_KEEP = 400 * 86400.0
#: How sure the orienter is that there was nothing like it, or something.
UNLIKE = 0.3
LIKE = 0.7


class Historian(Plugin):
    """Records what helped, and recalls it when the like is seen again.

    An action that succeeds is not enough: it is recorded when what it was for is gone.
    """

    id = "historian"

    class Options(Plugin.Options):
        """What is recorded and recalled; times in seconds.

        Attributes:
            min_confidence: of a decision that is recorded.
            include_high_risk: also record actions of risk high and critical.
            use_llm: have the model tell the story, if the agent has one.
            max_incidents: that are remembered; the oldest are forgotten.
            max_similar: incidents that are recalled at once.
            min_similarity: of an incident that is recalled.
            trigger_severity: of the observations that actions may be for.
            max_wait: for the situation to be gone, after which the action did not help.
            folder: where incidents are also written as playbooks.
        """

        min_confidence: Confidence = 0.7
        include_high_risk: bool = False
        use_llm: bool = True
        max_incidents: int = Field(default=200, gt=0, le=500)
        max_similar: int = Field(default=5, gt=0, le=50)
        min_similarity: Confidence = 0.3
        trigger_severity: Severity = "warning"
        max_wait: float = Field(default=3600.0, gt=0)
        folder: Path | None = None

    options: Options

    @property
    def source(self) -> str:
        """Of the assessments."""
        return f"{self.id}:historical_context"

    def playbooks(self, ctx: Context) -> list[str]:
        """The incidents on record, for whoever tells a model playbooks."""
        index = _read(ctx.state.get(_INDEX))
        return list(_texts(ctx, index).values()) if index else []

    @orienter()
    def historical_context(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """Recall incidents that are like what is seen."""
        index = _read(ctx.state.get(_INDEX))
        if not index:
            return self._says("No incident is on record", None)
        words = keywords(reaching(observations, self.options.trigger_severity))
        scored = [(similarity(words, one.keywords), one) for one in index]
        like = [pair for pair in scored if words and pair[0] >= self.options.min_similarity]
        like = sorted(like, key=lambda pair: (-pair[0], pair[1].id))[: self.options.max_similar]
        texts = _texts(ctx, [one for _, one in like])
        found = [(score, one) for score, one in like if one.id in texts]
        if not found:
            return self._says("No incident on record is like this", UNLIKE)
        similar = [{**_about(one), "similarity": round(score, 3)} for score, one in found]
        return SituationAssessment(
            source=self.source,
            findings=[_recalled(one, texts[one.id]) for _, one in found],
            confidence=LIKE,
            data={"incidents": list(similar)},
        )

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Record the trials that have helped, and remember what was tried now."""
        trials = [Trial.model_validate(one, extra="ignore") for one in _stored(ctx, _TRIALS)]
        # Only in continuous mode observers have intervals, and may not have looked (L10).
        looked = ctx.agent.mode != "continuous"
        now = incidents.sighting(result, self.options.trigger_severity) if trials else None
        gone = [one for one in trials if now and incidents.is_gone(one, now, looked)]
        # What has gone while an action waited for a person has gone without it.
        new = [one for one in gone if not one.waits and self._count(one, ctx)]
        self._remember(trials, gone, self._trial(result, ctx), ctx)
        # Last, for it takes time: what is not told by the model is recorded nevertheless.
        for one in new:
            self._narrate(one, ctx)

    def on_after_act(self, result: ActionResult, ctx: Context) -> None:
        """Learn that an action was done that had waited for a person."""
        if ctx.iteration is not None or not result.success:
            return

        def change(stored: Any) -> list[Any]:
            trials = [Trial.model_validate(one, extra="ignore") for one in stored or ()]
            waiting = [one for one in trials if one.waits and one.action == result.action]
            if len(waiting) == 1:
                done = waiting[0].patched({"waits": False, "at": ctx.now()})
                trials = [done if one is waiting[0] else one for one in trials]
            # Of several nobody knows which one it was.
            return [one.to_wire() for one in trials]

        if _stored(ctx, _TRIALS):
            ctx.state.update(_TRIALS, change, self.options.max_wait)

    @endpoint("GET", "/incidents")
    def recorded(self, request: EndpointRequest, ctx: Context) -> Any:
        """The incidents on record, the last one first."""
        limit = request.query.get("limit", "50")
        if not limit.isascii() or not limit.isdigit() or not 0 < int(limit) <= 500:
            return EndpointReply(status=400, body={"error": "limit is 1 to 500"})
        index = _read(ctx.state.get(_INDEX))
        shown = index[::-1][: int(limit)]
        texts = _texts(ctx, shown)
        found = [{**_about(one), "markdown": texts[one.id]} for one in shown if one.id in texts]
        return {"incidents": found, "total": len(index)}

    def _says(self, finding: str, confidence: float | None) -> SituationAssessment:
        return SituationAssessment(
            source=self.source, findings=[finding], confidence=confidence, data={"incidents": []}
        )

    def _trial(self, result: LoopResult, ctx: Context) -> Trial | None:
        options, decision = self.options, result.decision
        if decision is None or decision.confidence < options.min_confidence:
            return None
        risks = incidents.allowed(options.include_high_risk)
        return incidents.trial_of(result, options.trigger_severity, risks, ctx.catalog)

    def _remember(
        self, known: list[Trial], gone: list[Trial], new: Trial | None, ctx: Context
    ) -> None:
        """Keep what is still open; of two actions for the same thing, the later one."""
        oldest = ctx.now() - timedelta(seconds=self.options.max_wait)
        done = {(one.fingerprint, one.iteration) for one in gone}

        def change(stored: Any) -> list[Any]:
            trials = [Trial.model_validate(one, extra="ignore") for one in stored or ()]
            kept = [
                one
                for one in trials
                if one.at > oldest
                and (one.fingerprint, one.iteration) not in done
                and not (new and _same(one, new))
            ]
            added = [new] if new and (new.fingerprint, new.iteration) not in done else []
            return [one.to_wire() for one in [*kept, *added][-_MOST_TRIALS:]]

        if new or gone or any(one.at <= oldest for one in known):
            ctx.state.update(_TRIALS, change, self.options.max_wait)

    def _count(self, trial: Trial, ctx: Context) -> bool:
        """Put a trial that has helped on record; whether it is new there."""
        id = incidents.incident_id(ctx.agent.id, self.id, trial)
        key, before = f"incident:{id}", _read(ctx.state.get(_INDEX))
        known = ctx.state.get(key)
        text = known or self._markdown(trial, id, incidents.plain_story(trial))
        # First the incident, then the index: what is found there can be read.
        ctx.state.set(key, text, _KEEP)

        def change(stored: Any) -> list[Any]:
            index = incidents.counted(_read(stored), trial, id, self.options.max_incidents)
            return [one.to_wire() for one in index]

        after = _read(ctx.state.update(_INDEX, change, _KEEP))
        self._forget({one.id for one in before} - {one.id for one in after}, ctx)
        self._write(id, text)
        return known is None

    def _narrate(self, trial: Trial, ctx: Context) -> None:
        """Let the model tell the story of a new incident."""
        if not (self.options.use_llm and ctx.has_llm):
            return
        try:
            story = ctx.llm.answer(incidents.question(trial), Story)
        except StoreError:
            raise
        except BoydError as error:
            ctx.logger.warning("the model has not told the story of an incident: %s", error)
            return
        id = incidents.incident_id(ctx.agent.id, self.id, trial)
        plain = ctx.state.get(f"incident:{id}")
        text = self._markdown(trial, id, story)
        # It may have been forgotten meanwhile.
        if plain and ctx.state.compare_and_set(f"incident:{id}", plain, text, _KEEP):
            self._write(id, text)

    def _markdown(self, trial: Trial, id: str, story: Story) -> str:
        from boyd.llm.playbooks import to_markdown  # only where incidents are recorded

        return to_markdown(incidents.playbook(trial, id, story))

    def _forget(self, ids: Iterable[str], ctx: Context) -> None:
        for id in ids:
            ctx.state.delete(f"incident:{id}")
            if self.options.folder:
                (self.options.folder / f"{id}.md").unlink(missing_ok=True)

    def _write(self, id: str, text: str) -> None:
        """Write the playbook, whole or not at all."""
        folder = self.options.folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{id}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(folder / f"{id}.md")
        except OSError:
            with suppress(OSError):
                Path(name).unlink()
            raise


def _same(one: Trial, other: Trial) -> bool:
    """Whether *other* takes the place of *one*: it came later, for some of the same things."""
    asked_again = other.waits and not one.waits
    later = one.iteration <= other.iteration and not asked_again
    return later and bool(set(one.subjects) & set(other.subjects))


def _stored(ctx: Context, key: str) -> list[Any]:
    found: list[Any] = ctx.state.get(key) or []
    return found


def _read(stored: Any) -> list[IncidentRecord]:
    return [IncidentRecord.model_validate(one, extra="ignore") for one in stored or ()]


def _texts(ctx: Context, entries: Iterable[IncidentRecord]) -> dict[str, str]:
    keys = [f"incident:{one.id}" for one in entries]
    return {key.partition(":")[2]: text for key, text in ctx.state.get_many(keys).items()}


def _about(entry: IncidentRecord) -> JsonObject:
    return {
        "id": entry.id,
        "action": entry.action,
        "count": entry.count,
        "at": entry.at.isoformat(),
        "keywords": list(entry.keywords),
    }


def _recalled(entry: IncidentRecord, text: str) -> str:
    description, lesson = incidents.told(text, entry.id)
    times = "once" if entry.count == 1 else f"{entry.count} times"
    when = f"Seen before ({times}, last on {incidents.day(entry.at)})"
    return f"{when}: {description} Lesson: {lesson}"
