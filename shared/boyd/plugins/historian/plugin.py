"""The plugin `historian`: it records actions that helped and recalls them in similar situations."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from boyd.errors import BoydError, StoreError
from boyd.models import (
    LEVELS,
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
from boyd.plugins.investigator.question import at_least

_TRIALS, _INDEX = "trials", "index"
#: The most open trials.
_MOST_TRIALS = 20
#: Seconds an incident is kept after its last occurrence.
_KEEP = 400 * 86400.0
#: The confidence of an assessment without and with a similar incident.
UNLIKE, LIKE = 0.3, 0.7


class Historian(Plugin):
    """Records actions that helped, and recalls them in similar situations.

    Success of an action is not enough: its subject must be gone afterwards.
    """

    id = "historian"

    class Options(Plugin.Options):
        """The plugin's options; times in seconds.

        Attributes:
            min_confidence: least confidence of a decision to record.
            include_high_risk: also record actions of risk high and critical.
            use_llm: let the model write the summary, if the agent has one.
            max_incidents: number of incidents to keep.
            max_similar: number of incidents to recall at once.
            min_similarity: least similarity of an incident to recall.
            trigger_severity: least severity of the observations that an action may respond to.
            max_wait: time after which an action with no visible effect did not help.
            folder: a folder to also write incidents to, as playbooks.
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

    def playbooks(self, ctx: Context) -> list[str]:
        """The recorded incidents as playbooks for models."""
        index = _read(ctx.state.get(_INDEX))
        return list(_texts(ctx, index).values()) if index else []

    @orienter()
    def historical_context(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """Recall incidents similar to the current observations."""
        index = _read(ctx.state.get(_INDEX))
        if not index:
            return self._assess(["No incidents recorded"], None)
        words = keywords(at_least(observations, self.options.trigger_severity))
        scored = [(similarity(words, incident.keywords), incident) for incident in index]
        like = [pair for pair in scored if words and pair[0] >= self.options.min_similarity]
        like = sorted(like, key=lambda pair: (-pair[0], pair[1].id))[: self.options.max_similar]
        texts = _texts(ctx, [incident for _, incident in like])
        readable = [(score, incident) for score, incident in like if incident.id in texts]
        if not readable:
            return self._assess(["No recorded incident is similar"], UNLIKE)
        similar = [
            {**_describe(incident), "similarity": round(score, 3)} for score, incident in readable
        ]
        findings = [_finding(incident, texts[incident.id]) for _, incident in readable]
        return self._assess(findings, LIKE, similar)

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Record the trials that have helped, and start a trial for this iteration."""
        trials = _trials(ctx.state.get(_TRIALS))
        # In continuous mode observers have intervals, so some may not have run.
        looked = ctx.agent.mode != "continuous"
        sighting = incidents.sighting(result, self.options.trigger_severity) if trials else None
        past = [
            trial for trial in trials if sighting and incidents.is_gone(trial, sighting, looked)
        ]
        # A situation that ended while its action waited for approval ended without it.
        new = [trial for trial in past if not trial.waits and self._record(trial, ctx)]
        self._remember(trials, past, self._trial(result, ctx), ctx)
        # Last, as it takes time; the incident is recorded even if the model fails.
        for trial in new:
            self._narrate(trial, ctx)

    def on_after_act(self, result: ActionResult, ctx: Context) -> None:
        """Note that an action ran after its approval."""
        if ctx.iteration is not None or not result.success:
            return

        def change(stored: Any) -> list[Any]:
            trials = _trials(stored)
            waiting = [trial for trial in trials if trial.waits and trial.action == result.action]
            if len(waiting) == 1:
                done = waiting[0].patched({"waits": False, "at": ctx.now()})
                trials = [done if trial is waiting[0] else trial for trial in trials]
            # Of several waiting trials, it is unknown which one ran.
            return [trial.to_wire() for trial in trials]

        if ctx.state.get(_TRIALS):
            ctx.state.update(_TRIALS, change, self.options.max_wait)

    @endpoint("GET", "/incidents")
    def recorded(self, request: EndpointRequest, ctx: Context) -> Any:
        """List the recorded incidents, newest first."""
        limit = request.query.get("limit", "50")
        if not limit.isascii() or not limit.isdigit() or not 0 < int(limit) <= 500:
            return EndpointReply(status=400, body={"error": "limit must be a number from 1 to 500"})
        index = _read(ctx.state.get(_INDEX))
        latest = index[::-1][: int(limit)]
        texts = _texts(ctx, latest)
        entries = [
            {**_describe(incident), "markdown": texts[incident.id]}
            for incident in latest
            if incident.id in texts
        ]
        return {"incidents": entries, "total": len(index)}

    def _assess(
        self, findings: list[str], confidence: float | None, similar: Sequence[JsonObject] = ()
    ) -> SituationAssessment:
        data: JsonObject = {"incidents": [*similar]}
        source = f"{self.id}:historical_context"
        return SituationAssessment(
            source=source, findings=findings, confidence=confidence, data=data
        )

    def _trial(self, result: LoopResult, ctx: Context) -> Trial | None:
        options, decision = self.options, result.decision
        if decision is None or decision.confidence < options.min_confidence:
            return None
        risks = LEVELS if options.include_high_risk else LEVELS[: LEVELS.index("high")]
        return incidents.trial_of(result, options.trigger_severity, risks, ctx.catalog)

    def _remember(
        self, trials_before: list[Trial], past: list[Trial], new: Trial | None, ctx: Context
    ) -> None:
        """Keep open trials; a later action for the same subjects replaces an earlier one."""
        oldest = ctx.now() - timedelta(seconds=self.options.max_wait)
        done = {(trial.fingerprint, trial.iteration) for trial in past}

        def change(stored: Any) -> list[Any]:
            recent = [trial for trial in _trials(stored) if trial.at > oldest]
            others = [trial for trial in recent if not (new and _same(trial, new))]
            trials = [*others, new] if new else others
            left = [trial for trial in trials if (trial.fingerprint, trial.iteration) not in done]
            return [trial.to_wire() for trial in left[-_MOST_TRIALS:]]

        if new or past or any(trial.at <= oldest for trial in trials_before):
            ctx.state.update(_TRIALS, change, self.options.max_wait)

    def _record(self, trial: Trial, ctx: Context) -> bool:
        """Record a trial that has helped; returns whether its incident is new."""
        id = incidents.incident_id(ctx.agent.id, self.id, trial)
        key, before = f"incident:{id}", _read(ctx.state.get(_INDEX))
        stored_text = ctx.state.get(key)
        text = stored_text or incidents.markdown(trial, id, incidents.plain_story(trial))
        # The incident before the index, so that every entry there can be read.
        ctx.state.set(key, text, _KEEP)

        def change(stored: Any) -> list[Any]:
            index = incidents.add_incident(_read(stored), trial, id, self.options.max_incidents)
            return [incident.to_wire() for incident in index]

        after = _read(ctx.state.update(_INDEX, change, _KEEP))
        for dropped in {incident.id for incident in before} - {incident.id for incident in after}:
            ctx.state.delete(f"incident:{dropped}")
            self._write(dropped, None, ctx)
        self._write(id, text, ctx)
        return stored_text is None

    def _narrate(self, trial: Trial, ctx: Context) -> None:
        """Let the model summarize a new incident."""
        if not (self.options.use_llm and ctx.has_llm):
            return
        try:
            story = ctx.llm.answer(incidents.summary_prompt(trial), Story)
        except StoreError:
            raise
        except BoydError as error:
            ctx.logger.warning("the model failed to summarize an incident: %s", error)
            return
        id = incidents.incident_id(ctx.agent.id, self.id, trial)
        plain = ctx.state.get(f"incident:{id}")
        text = incidents.markdown(trial, id, story)
        # It may have been dropped in the meantime.
        if plain and ctx.state.compare_and_set(f"incident:{id}", plain, text, _KEEP):
            self._write(id, text, ctx)

    def _write(self, id: str, text: str | None, ctx: Context) -> None:
        """Write the playbook to the folder, or without *text* remove it; it is in the state."""
        try:
            if self.options.folder:
                _replace(self.options.folder, id, text)
        except OSError as error:
            ctx.logger.warning("incident %s: the folder is not up to date: %s", id, error)


def _replace(folder: Path, id: str, text: str | None) -> None:
    """Replace a playbook atomically."""
    if text is None:
        (folder / f"{id}.md").unlink(missing_ok=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{id}-{uuid.uuid4().hex}"
    try:
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(folder / f"{id}.md")
    finally:
        draft.unlink(missing_ok=True)


def _same(earlier: Trial, other: Trial) -> bool:
    """True if *other* replaces *earlier*: it is later and shares a subject."""
    asked_again = other.waits and not earlier.waits
    later = earlier.iteration <= other.iteration and not asked_again
    return later and bool(set(earlier.subjects) & set(other.subjects))


def _trials(stored: Any) -> list[Trial]:
    return [Trial.model_validate(trial, extra="ignore") for trial in stored or ()]


def _read(stored: Any) -> list[IncidentRecord]:
    return [IncidentRecord.model_validate(record, extra="ignore") for record in stored or ()]


def _texts(ctx: Context, entries: Iterable[IncidentRecord]) -> dict[str, str]:
    keys = [f"incident:{entry.id}" for entry in entries]
    return {key.partition(":")[2]: text for key, text in ctx.state.get_many(keys).items()}


def _describe(entry: IncidentRecord) -> JsonObject:
    return {**entry.model_dump(exclude={"iteration"}), "at": entry.at.isoformat()}


def _finding(entry: IncidentRecord, text: str) -> str:
    description, lesson = incidents.read_summary(text, entry.id)
    times = "once" if entry.count == 1 else f"{entry.count} times"
    return f"Seen before ({times}, last on {entry.at:%Y-%m-%d}): {description} Lesson: {lesson}"
