"""Senders to intakes that ask for something else than a key of Boyd."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from flask import request

from boyd.errors import ConfigError
from boyd.intake.sender_checks import SenderRefused, check_sender, read_secrets
from boyd.intake.sns import SnsUnavailable
from boyd.models import ApiKey, utc_now
from boyd.settings.intake_settings import DeclaredIntake, KeyAuth, SnsAuth
from boyd_api.http.problems import HttpProblem, retry_after
from boyd_api.http.services import Services

#: Seconds after which to send a message again whose sender could not be checked.
_RETRY = 10
#: The scheme that a refusal asks for.
_CHALLENGES = {"basic": "Basic", "header": "Secret", "query": "Secret"}
_CHALLENGES |= {"hmac": "Signature", "sns": "Signature"}


@dataclass(frozen=True)
class Sender:
    """A sender that was checked.

    Attributes:
        identity: what it may do: send to this intake of this agent.
        message: an id of the message, if the same one must not be taken twice.
    """

    identity: ApiKey
    message: str | None


def checked_sender(services: Services) -> Sender | None:
    """Check the sender of the request; None if it has to show a key.

    Raises `HttpProblem` if it does not prove who it is, or that cannot be told now.
    """
    parts = request.view_args or {}
    found = services.intake(parts.get("agentId"), parts.get("format", ""))
    if found is None or isinstance(found[1].auth, KeyAuth):
        return None
    agent_id, intake = found
    try:
        message = _check(services, intake)
    except SenderRefused as error:
        challenge = {"WWW-Authenticate": f'{_CHALLENGES[intake.auth.method]} realm="boyd"'}
        raise HttpProblem("unauthenticated", str(error), headers=challenge) from None
    except (SnsUnavailable, ConfigError) as error:
        raise HttpProblem("unavailable", str(error), headers=retry_after(_RETRY)) from None
    return Sender(_identity(agent_id, intake.name), message)


def _check(services: Services, intake: DeclaredIntake) -> str | None:
    """Check the sender by the method of the intake; an id of the message, if it has one."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    auth = intake.auth
    if isinstance(auth, SnsAuth):
        return services.sns.check(auth, request.get_data())
    assert not isinstance(auth, KeyAuth), "keys are checked elsewhere"
    secrets = read_secrets(services.settings.intake.secrets, auth.secret)
    query = request.args.to_dict(flat=False)
    return check_sender(auth, secrets, headers, request.get_data, time.time(), query)


def sender_principal(agent_id: str, name: str) -> str:
    """The principal of the senders to an intake that checks them itself."""
    return f"intake:{agent_id}/{name}"


def _identity(agent_id: str, name: str) -> ApiKey:
    principal = sender_principal(agent_id, name)
    digest = hashlib.sha256(principal.encode()).hexdigest()[:16]
    return ApiKey(
        id=f"intake-{digest}",
        name=name,
        principal=principal,
        scopes=["trigger"],
        agents=[agent_id],
        hash="",
        created_at=utc_now(),
        created_by=principal,
    )
