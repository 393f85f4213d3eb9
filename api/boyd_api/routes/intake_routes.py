"""`/intake`: messages of other systems become observations."""

from __future__ import annotations

import uuid

from flask import Response, g, request

from boyd.errors import QueueFull
from boyd.intake import (
    BadIntake,
    IntakeRequest,
    IntakeUnready,
    NotJson,
    UnknownFormat,
    parse,
    parse_declared,
)
from boyd.intake.cloudevents import BATCH, STRUCTURED
from boyd.models import Model, Observation
from boyd.settings.intake_settings import DeclaredIntake, KeyAuth
from boyd.settings.process_settings import IntakeSettings
from boyd.store import IntakeLimits
from boyd_api.http.auth import sender_principal
from boyd_api.http.problems import FULL, HttpProblem, not_found, retry_after
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import JsonResponse, Routes

routes = Routes("intake")

#: The longest name of an origin that is repeated to it.
_LONGEST_ORIGIN = 255


class Accepted(Model):
    """The number of observations accepted, and the iteration that they started, if any."""

    accepted: int
    iteration: int | None = None


@routes.post(
    "/intake/<format>",
    scope="trigger",
    answers={202: Accepted},
    problems=["malformed-json", "invalid-request"],
    inlet=True,
    consumes=["application/json", STRUCTURED, BATCH, "*/*"],
)
def take(ctx: RequestContext, format: str) -> JsonResponse:
    """Accept a message of another system, in a format or by an intake of the agent.

    All of it is accepted, or nothing.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    now = ctx.now or ctx.agent.store.clock.now()
    sent = IntakeRequest(headers.get("content-type", ""), headers, request.get_data(), now)
    declared = next((intake for intake in ctx.agent.entry.intakes if intake.name == format), None)
    if declared and not isinstance(declared.auth, KeyAuth):
        _check_sent_by(ctx, declared)
    try:
        observations = parse_declared(declared, sent) if declared else parse(format, sent)
    except UnknownFormat as error:
        raise not_found(str(error)) from None
    except NotJson as error:
        raise HttpProblem("malformed-json", f"{error}{_content_hint(sent)}") from None
    except BadIntake as error:
        raise HttpProblem("invalid-request", str(error)) from None
    except IntakeUnready as error:
        # Senders give up after 4xx, and it is not their mistake.
        raise HttpProblem("unavailable", str(error), headers=retry_after(FULL)) from None
    try:
        iteration = _accept(ctx, observations)
    except QueueFull as error:
        raise HttpProblem("overloaded", str(error), headers=retry_after(FULL)) from None
    ctx.services.metrics.count_observations(format, len(observations))
    if not observations:
        ctx.services.refusals.report_unobserved(format)
    return JsonResponse(Accepted(accepted=len(observations), iteration=iteration or None))


def _content_hint(sent: IntakeRequest) -> str:
    """Advice for a sender of forms, which GitHub is by default."""
    if sent.media_type not in ("application/x-www-form-urlencoded", "multipart/form-data"):
        return ""
    return f"; the sender sends {sent.media_type}: set its content type to application/json"


def _check_sent_by(ctx: RequestContext, intake: DeclaredIntake) -> None:
    """Refuse a key where the intake asks for something else.

    Without the name of an agent in the path a key may lead to another one than its sender was
    checked for.
    """
    agent_id = ctx.agent.entry.id
    if ctx.actor.principal != sender_principal(agent_id, intake.name):
        problem = f"the intake {intake.name!r} of agent {agent_id!r} takes no keys"
        raise HttpProblem(
            "forbidden", f"{problem}; send to /agents/{agent_id}/intake/{intake.name}"
        )


def _accept(ctx: RequestContext, observations: list[Observation]) -> int:
    """Store them, all or none; return the iteration that they started, or 0."""
    if not observations:
        return 0
    settings = ctx.services.settings.intake
    limits = IntakeLimits(settings.max_waiting, settings.max_waiting_bytes)
    return ctx.agent.launcher.intake(observations, ctx.actor, _request_id(ctx), limits)


def _request_id(ctx: RequestContext) -> str | None:
    """An id that repetitions have in common; that of a signed message is of what is signed."""
    message: str | None = g.get("message")
    if message is None:
        return ctx.repeatable_id
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"boyd\n{ctx.actor.principal}\n{message}"))


def agree(settings: IntakeSettings) -> Response:
    """Answer whether a system may send CloudEvents here, as their specification of webhooks asks.

    It is no permission: each message has to authenticate.
    """
    headers = {"Allow": "POST, OPTIONS"}
    origin = request.headers.get("WebHook-Request-Origin", "").strip()
    if 0 < len(origin) <= _LONGEST_ORIGIN and {"*", origin} & set(settings.origins):
        most = int(settings.rate * 60)
        rate_text = request.headers.get("WebHook-Request-Rate", "").strip()
        is_number = rate_text.isascii() and rate_text.isdigit() and 0 < len(rate_text) < 10
        rate = min(int(rate_text) or most, most) if is_number else most
        headers |= {"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": str(rate)}
    return Response(status=200, headers=headers)
