"""`/intake`: what other systems send, as observations that wake the loop."""

from __future__ import annotations

from flask import request

from boyd.intake import BadIntake, IntakeRequest, NotJson, UnknownFormat, parse
from boyd.intake.cloudevents import BATCH, STRUCTURED
from boyd.models import Model, Observation
from boyd.store import Room
from boyd_api.problems import FULL, Problem, retry_after
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("intake")


class Accepted(Model):
    """How many observations were taken, and the iteration that they started, if they did."""

    accepted: int
    iteration: int | None = None


@routes.post(
    "/intake/<format>",
    scope="trigger",
    answers={202: Accepted},
    problems=["malformed-json", "invalid-request"],
    idempotent=True,
    inlet=True,
    consumes=["application/json", STRUCTURED, BATCH, "*/*"],
)
def take(ask: Ask, format: str) -> Answer:
    """Hand over what another system tells: `alertmanager`, `cloudevents`, `json`, or your own.

    All of it is taken, or nothing.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    sent = IntakeRequest(headers.get("content-type", ""), headers, request.get_data())
    try:
        observations = parse(format, sent)
    except UnknownFormat as error:
        raise not_found(str(error)) from None
    except NotJson as error:
        raise Problem("malformed-json", str(error)) from None
    except BadIntake as error:
        raise Problem("invalid-request", str(error)) from None
    begun = _handed_over(ask, observations)
    if begun < 0:
        detail = "too many observations wait already; none of these was taken"
        raise Problem("overloaded", detail, headers=retry_after(FULL))
    ask.services.metrics.taken(format, len(observations))
    return Answer(Accepted(accepted=len(observations), iteration=begun or None))


def _handed_over(ask: Ask, observations: list[Observation]) -> int:
    if not observations:
        return 0
    limits = ask.services.settings.intake
    room = Room(limits.max_waiting, limits.max_waiting_bytes)
    return ask.agent.launcher.intake(observations, ask.actor, ask.repeatable_id, room)
