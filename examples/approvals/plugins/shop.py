"""A simulated shop: its version, errors and servers are the plugin's state."""

from __future__ import annotations

from pydantic import Field

from boyd import (
    Context,
    Decision,
    EndpointReply,
    EndpointRequest,
    Observation,
    Perform,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    endpoint,
    observer,
    orienter,
    strategy,
)
from boyd.models import ActionResult, ApprovalItem, Model, Severity

FIRST, CURRENT = "1.9", "2.0"
SERVERS = ("a", "b")


class Release(Model):
    """The version to release."""

    version: str = Field(min_length=1, max_length=20)


class Drain(Model):
    """The server to drain."""

    server: str = Field(pattern="^[ab]$")


class Shop(Plugin):
    """Proposes a rollback to the previous version when customers see errors."""

    id = "shop"

    class Options(Plugin.Options):
        """When to ask."""

        limit: float = Field(default=5.0, ge=0, le=100)

    options: Options

    @observer()
    def errors(self, ctx: Context) -> list[Observation]:
        """Observe the share of failed requests, in percent."""
        percent = ctx.state.get("errors", 0)
        severity: Severity = "error" if percent > self.options.limit else "info"
        data = {"percent": percent, "version": ctx.state.get("version", CURRENT)}
        return [Observation(source="shop/errors", type="metric", severity=severity, data=data)]

    @orienter()
    def judge(self, observations: list[Observation]) -> SituationAssessment:
        """Find out whether too many requests fail."""
        seen = [o.data for o in observations if o.source == "shop/errors"]
        data = seen[-1] if seen else {}
        bad = any(o.source == "shop/errors" and o.severity == "error" for o in observations)
        said = f"{data.get('percent')} % of requests fail" if bad else "The shop is fine"
        return SituationAssessment(
            source="shop:judge", findings=[said], confidence=0.9, data={"bad": bad, **data}
        )

    @strategy(withdraw_when_clear=True)
    def go_back(self, situation: Situation, ctx: Context) -> Decision:
        """Release the version before this one."""
        percent = situation.evidence("shop:judge").get("percent")
        return Decision(
            action="shop:release",
            params={"version": ctx.state.get("before", FIRST)},
            rationale=f"{percent} % of requests fail since the last release",
            confidence=0.85,
            risk="high",
        )

    @go_back.applicable_when
    def _bad(self, situation: Situation) -> bool:
        return situation.evidence("shop:judge").get("bad") is True

    @action(title="Release a version", risk="high", autonomy="approval-required", timeout=20)
    def release(self, params: Release, ctx: Context) -> dict[str, str]:
        """Let customers have a version."""
        before = ctx.state.get("version", CURRENT)
        ctx.state.set("before", before)
        ctx.state.set("version", params.version)
        ctx.state.set("errors", 0)
        return {"before": before, "now": params.version}

    @release.dry_run
    def _would_release(self, params: Release, ctx: Context) -> str:
        return f"Would go from {ctx.state.get('version', CURRENT)} to {params.version}"

    @release.rollback
    def _release_before(self, result: ActionResult, ctx: Context) -> str:
        assert isinstance(result.output, dict), "a release tells both versions"
        ctx.state.set("version", result.output["before"])
        return f"{result.output['before']} is back"

    @action(title="Drain a server", target="server", idempotent=True)
    def drain(self, params: Drain, ctx: Context) -> str:
        """Send a server no more customers."""
        ctx.state.set(f"drained:{params.server}", True)
        return f"Server {params.server} gets no customers"

    @drain.dry_run
    def _would_drain(self, params: Drain) -> str:
        return f"Would send no customers to server {params.server}"

    @drain.rollback
    def _fill(self, params: Drain, ctx: Context) -> str:
        ctx.state.delete(f"drained:{params.server}")
        return f"Server {params.server} gets customers"

    @endpoint("GET", "/status")
    def status(self, ctx: Context) -> dict[str, object]:
        """Show the version, errors and servers of the shop."""
        drained = [name for name in SERVERS if ctx.state.get(f"drained:{name}")]
        version, errors = ctx.state.get("version", CURRENT), ctx.state.get("errors", 0)
        return {"version": version, "errors": errors, "drained": drained}

    @endpoint("PUT", "/errors")
    def break_it(self, request: EndpointRequest, ctx: Context) -> EndpointReply:
        """Let requests fail, to see what happens."""
        percent = request.body.get("percent") if isinstance(request.body, dict) else None
        if not isinstance(percent, int | float) or not 0 <= percent <= 100:
            return EndpointReply(status=422, body={"error": "percent: 0 to 100"})
        ctx.state.set("errors", percent)
        return EndpointReply(body={"errors": percent})

    @endpoint("POST", "/servers/{server}/drain")
    def drain_it(self, request: EndpointRequest) -> Perform:
        """Drain a server, as the action does it."""
        return Perform("shop:drain", {"server": request.path["server"]}, "asked for at its page")

    def on_approval(self, approval: ApprovalItem, stage: str, ctx: Context) -> None:
        """Tell people; here only the log."""
        ctx.logger.warning("approval %s %s: %s", approval.id, stage, approval.decision.rationale)
