"""The template for plugin authors: one component of each kind. Copy it and replace the temperature.

It watches a temperature that something else writes into the plugin's state, finds out whether it is
too hot, and turns on a fan. Note four things:

* The object keeps no state, as the plugin lives on every worker: use `ctx.state`, which all workers
  share.
* The orienter gives the strategy typed evidence in `data`; no decision depends on the words of a
  text.
* A method takes only the arguments it needs: `cool` needs none.
* Options and params are models: invalid ones are rejected before your code runs.
"""

from __future__ import annotations

from pydantic import Field

from boyd.models import Decision, Model, Observation, Severity, Situation, SituationAssessment
from boyd.plugin import Context, Plugin, action, observer, orienter, strategy


class FanParams(Model):
    """The speed of the fan in percent."""

    speed: int = Field(ge=0, le=100)


class Example(Plugin):
    """Turns on a fan when it is too hot."""

    id = "example"

    class Options(Plugin.Options):
        """The plugin's options."""

        limit: float = Field(default=30.0, description="degrees Celsius above which the fan runs")

    options: Options

    @observer(interval=10)
    def temperature(self, ctx: Context) -> list[Observation]:
        """Observe: read the temperature."""
        degrees = ctx.state.get("degrees", 20.0)
        severity: Severity = "warning" if degrees > self.options.limit else "info"
        data = {"degrees": degrees}
        return [Observation(source=self.id, type="metric", severity=severity, data=data)]

    @orienter()
    def comfort(self, observations: list[Observation]) -> SituationAssessment:
        """Orient: find out whether it is too hot."""
        hot = any(o.source == self.id and o.severity == "warning" for o in observations)
        return SituationAssessment(
            source=f"{self.id}:comfort",
            findings=["It is too hot" if hot else "The temperature is fine"],
            confidence=0.9,
            data={"hot": hot},
        )

    @strategy()
    def cool(self) -> Decision:
        """Decide: turn the fan on."""
        return Decision(
            action=f"{self.id}:fan", params={"speed": 80}, rationale="It is hot", confidence=0.9
        )

    @cool.applicable_when
    def _hot(self, situation: Situation) -> bool:
        return situation.evidence(f"{self.id}:comfort").get("hot") is True

    @action(risk="low", idempotent=True, timeout=5)
    def fan(self, params: FanParams, ctx: Context) -> str:
        """Act: set the fan's speed."""
        ctx.state.set("speed", params.speed)
        return f"The fan runs at {params.speed} %"

    def on_loop_start(self, ctx: Context) -> None:
        """Hook: count the iterations, safely with any number of workers."""
        ctx.state.update("iterations", lambda count: (count or 0) + 1)
