"""The plugin `likely-causes`: it ranks suspects by deviation, onset and topology."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from boyd.models import (
    EndpointReply,
    EndpointRequest,
    ExecutionEntry,
    JsonObject,
    LoopResult,
    Observation,
    Situation,
    SituationAssessment,
)
from boyd.plugin import Context, Plugin, endpoint, orienter
from boyd.plugins.likely_causes import dependencies, wording
from boyd.plugins.likely_causes.calibration import Calibration
from boyd.plugins.likely_causes.episode import FaultEpisode, deviations
from boyd.plugins.likely_causes.outcomes import (
    PickOutcome,
    Treatment,
    judge_by_treatments,
    judge_by_word,
)
from boyd.plugins.likely_causes.ranking import Ranking, rank

_EPISODE, _LAST, _NEEDS, _CALIBRATION = "episode", "last", "needs", "calibration"
_TREATMENTS, _WORD = "treatments", "word"
#: Seconds for which judged episodes and the last one are kept.
_KEEP = 400 * 86_400.0
#: The most treatments of one episode, and the most suspects in the evidence.
_MOST_TREATMENTS, _MOST_SUSPECTS = 20, 10
#: The most characters of a thing that a person names.
_MAX_NAME = 1_000


class LikelyCauses(Plugin):
    """Ranks the things that are unwell as causes of each other; decides nothing."""

    id = "likely-causes"

    class Options(Plugin.Options):
        """The plugin's options; times in seconds.

        Attributes:
            depends_on: by thing, what it needs; both may be patterns.
            names: by thing, patterns of the names that plugins give it, if these differ.
            resolution: onsets closer than this count as simultaneous.
            memory: how long a thing has to be well until its trouble is over.
        """

        depends_on: dict[str, list[str]] = Field(default_factory=dict, max_length=500)
        names: dict[str, list[str]] = Field(default_factory=dict, max_length=500)
        resolution: float = Field(default=30.0, gt=0, le=3600)
        memory: float = Field(default=300.0, gt=0, le=86_400)

        @field_validator("depends_on")
        @classmethod
        def _check(cls, patterns: dict[str, list[str]]) -> dict[str, list[str]]:
            if errors := list(dependencies.mistakes(patterns)):
                raise ValueError("; ".join(errors))
            return patterns

    options: Options

    @orienter()
    def rank(
        self, situation: Situation, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """Rank what may have caused the anomalies that all other orienters have found."""
        unwell = deviations(situation.anomalies, self._thing)
        before = FaultEpisode.read(ctx.state.get(_EPISODE))
        at = round(ctx.now().timestamp(), 1)
        episode = FaultEpisode.after(before, unwell, at, self.options.memory)
        if before and before.members and (episode is None or episode.since != before.since):
            self._close(before, ctx)
        if episode is None:
            if before:
                ctx.state.delete(_EPISODE)
            return SituationAssessment(source=f"{self.id}:rank", findings=[])
        ranking = rank(episode, self._needs(observations, episode, ctx), self.options.resolution)
        if pick := ranking.pick(episode):
            episode = episode.with_pick(pick)
        ctx.state.set(_EPISODE, episode.model_dump(mode="json"))
        return self._assess(ranking, episode, Calibration.read(ctx.state.get(_CALIBRATION)))

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Remember the dependencies that observers have reported.

        Here, because the records of iterations keep what is read before they are complete.
        """
        needs = dependencies.read_reports(result.observations, self.options.names)
        if needs:
            at = ctx.now().timestamp()
            stored = dependencies.remember(ctx.state.get(_NEEDS), needs, at)
            if stored is not None:
                ctx.state.set(_NEEDS, stored, dependencies.LIFETIME)

    def on_verdict(self, execution: ExecutionEntry, ctx: Context) -> None:
        """Note an effective action, which may tell what the cause was."""
        treatment = Treatment.of(execution)
        if treatment is None or ctx.state.get(_EPISODE) is None:
            return

        def change(stored: Any) -> list[Any]:
            others = [item for item in stored or () if item[2] != treatment.id]
            noted = treatment._replace(target=self._thing(treatment.target))
            return [*others, list(noted)][-_MOST_TREATMENTS:]

        ctx.state.update(_TREATMENTS, change)

    @endpoint("GET", "/")
    def show(self, request: EndpointRequest, ctx: Context) -> JsonObject:
        """Show how right the first suspects have been."""
        calibration = Calibration.read(ctx.state.get(_CALIBRATION))
        return {"calibration": calibration.summary()}

    @endpoint("POST", "/cause")
    def name_cause(self, request: EndpointRequest, ctx: Context) -> JsonObject | EndpointReply:
        """Name the cause of the present or last episode."""
        body = request.body
        thing = body.get("thing") if isinstance(body, dict) else None
        if not isinstance(thing, str) or not 0 < len(thing) <= _MAX_NAME:
            error = 'send {"thing": "…"}: what the cause was, also if it was none of the suspects'
            return EndpointReply(status=400, body={"error": error})
        thing = self._thing(thing)
        present = FaultEpisode.read(ctx.state.get(_EPISODE))
        if present and present.picks:
            ctx.state.set(_WORD, thing)
            return {"noted": thing, "judged": "when the episode ends"}
        last = ctx.state.get(_LAST)
        episode = FaultEpisode.read(last)
        outcome = judge_by_word(episode, thing) if episode else None
        # An episode is taken away to be judged, so that it is judged once.
        if not (episode and outcome and ctx.state.compare_and_set(_LAST, last, {}, _KEEP)):
            error = "no episode waits for its cause: it is known already, or nothing was ranked"
            return EndpointReply(status=409, body={"error": error})
        self._judge(episode, outcome, ctx)
        return {"noted": thing, "judged": "now", "suspected": outcome.main_suspect}

    def _thing(self, name: str) -> str:
        return dependencies.thing_named(name, self.options.names)

    def _needs(
        self, observations: list[Observation], episode: FaultEpisode, ctx: Context
    ) -> dependencies.Needs:
        """The dependencies of the agent file, those of earlier reports, and those of this one."""
        stored = ctx.state.get(_NEEDS) or {}
        needs = dependencies.read_reports(observations, self.options.names)
        stored |= {thing: [others, episode.at] for thing, others in needs.items()}
        return dependencies.expand(self.options.depends_on, stored, episode.things)

    def _close(self, episode: FaultEpisode, ctx: Context) -> None:
        """Judge an episode that has ended, or keep it until a person names its cause."""
        notes = ctx.state.get_many([_TREATMENTS, _WORD])
        treatments = [Treatment(*item) for item in notes.get(_TREATMENTS, ())]
        word = notes.get(_WORD)
        outcome = judge_by_word(episode, word) if word else None
        outcome = outcome or judge_by_treatments(episode, treatments)
        if outcome:
            self._judge(episode, outcome, ctx)
        ctx.state.set(_LAST, {} if outcome else episode.model_dump(mode="json"), _KEEP)
        for key in notes:
            ctx.state.delete(key)

    def _judge(self, episode: FaultEpisode, outcome: PickOutcome, ctx: Context) -> None:
        def change(stored: Any) -> JsonObject:
            after = outcome.add_to(Calibration.read(stored), episode)
            return after.model_dump(mode="json")

        ctx.state.update(_CALIBRATION, change, _KEEP)

    def _assess(
        self, ranking: Ranking, episode: FaultEpisode, calibration: Calibration
    ) -> SituationAssessment:
        suspects, pick = ranking.suspects, ranking.pick(episode)
        if pick and (doubt := calibration.doubt(pick)):
            ranking, pick = ranking._replace(doubt=doubt), None
        probability = calibration.probability(pick) if pick else None
        reasons = wording.reasons(suspects[0], suspects, episode) if pick else None
        data: JsonObject = {
            "cause": pick.name if pick else None,
            "probability": None if probability is None else round(probability, 3),
            "why": reasons,
            "doubt": ranking.doubt or None,
            "uncalibrated": calibration.reason_to_abstain() or None,
            "suspects": [
                {
                    "thing": suspect.name,
                    "score": round(suspect.score, 3),
                    "onset": episode.things[suspect.name].onset,
                    "well": episode.is_well(suspect.name),
                    "explains": [*suspect.explains],
                }
                for suspect in suspects[:_MOST_SUSPECTS]
            ],
        }
        return SituationAssessment(
            source=f"{self.id}:rank",
            findings=wording.findings(ranking, episode, probability),
            contributing_factor=f"{pick.name}: {reasons}" if pick else None,
            data=data,
        )
