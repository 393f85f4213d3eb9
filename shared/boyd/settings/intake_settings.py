"""Intakes of an agent: how they read a vendor's webhook, and how its senders authenticate."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from boyd.models import Model, ObservationType, Severity
from boyd.settings.permissions import TimeZone
from boyd.settings.validation import nearest, read_toml
from boyd.text.extraction import check_expressions

#: The data files of the intakes that come with Boyd.
SHIPPED = Path(__file__).with_name("intakes")

IntakeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,100}$")]

#: A header, or the body, in what a signature covers.
PART = re.compile(r"\{([A-Za-z0-9-]+)\}")


class IntakeMapping(Model):
    """The way from a message to observations.

    Most values are JMESPath expressions over `body`, `item` and `headers`, the object of those
    headers that the field `headers` lists, by lower-case names.

    Attributes:
        known: whether it is a message of this sender at all; others are refused.
        items: what becomes an observation each.
        when: leaves out items of which it is not true.
        source: the end of the source; the intake's name is in front of it.
        type: the type of the observations.
        severity: a word for the severity.
        severities: what words mean, ignoring case, besides the usual ones.
        default_severity: the severity of items without a known word.
        title: one line for people.
        fingerprint: what an alert has in common with its repetitions and its end.
        event: an identity of this message; one of the last hour is not observed again.
        resolved: tells whether the alert has ended.
        timestamp: when it happened: a time in ISO 8601, or a number since 1970.
        timezone: the zone of times that name none.
        data: what is kept.
    """

    known: str | None = None
    items: str = "[body]"
    when: str | None = None
    headers: list[HeaderName] = Field(default_factory=list)
    source: str | None = None
    type: ObservationType = "alert"
    severity: str | None = None
    severities: dict[Annotated[str, AfterValidator(str.lower)], Severity] = Field(
        default_factory=dict
    )
    default_severity: Severity | None = None
    title: str | None = None
    fingerprint: str | None = None
    event: str | None = None
    resolved: str | None = None
    timestamp: str | None = None
    timezone: TimeZone = "UTC"
    data: str = "item"

    @property
    def expressions(self) -> dict[str, str]:
        """The expressions by field."""
        fields = ("known", "items", "when", "source", "severity", "title", "fingerprint")
        more = ("event", "resolved", "timestamp", "data")
        return {name: text for name in (*fields, *more) if (text := getattr(self, name))}


class KeyAuth(Model):
    """Senders show a key of Boyd: bearer, as the password of Basic, or in `X-API-Key`."""

    method: Literal["key"] = "key"


class BasicAuth(Model):
    """Senders show a user and a password."""

    method: Literal["basic"]
    user: str = Field(default="boyd", min_length=1, pattern="^[^:]+$")
    secret: SecretName


class HeaderAuth(Model):
    """Senders show a shared secret in a header."""

    method: Literal["header"]
    header: HeaderName
    prefix: str = ""
    secret: SecretName


class QueryAuth(Model):
    """Senders that can set no header show a shared secret in the query of the URL."""

    method: Literal["query"]
    parameter: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{1,100}$")] = "secret"
    secret: SecretName


class HmacAuth(Model):
    """Senders sign each message with a shared secret.

    Attributes:
        header: the header with the signature, or several.
        prefix: stands in front of a signature.
        signed: what is signed: text, `{body}`, and `{Header-Name}` for the value of a header.
        timestamp: the header with the time of the message, in seconds or milliseconds since 1970.
        window: how many seconds that time may differ from now.
        once: each message is unique: the same one is accepted once within a day.
        secret: the name of the secret.
    """

    method: Literal["hmac"]
    header: HeaderName
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    signed: str = "{body}"
    timestamp: HeaderName | None = None
    window: float = Field(default=300.0, gt=0, le=3600)
    once: bool = False
    secret: SecretName

    @model_validator(mode="after")
    def _check_coverage(self) -> Self:
        parts = [name.lower() for name in PART.findall(self.signed)]
        if "body" not in parts:
            raise ValueError("signed: must contain {body}")
        if self.timestamp and self.timestamp.lower() not in parts:
            raise ValueError(f"signed: must contain {{{self.timestamp}}}: anybody could change it")
        return self


class SnsAuth(Model):
    """Amazon SNS signs each message; `topics` are the ARNs of those that may send."""

    method: Literal["sns"]
    topics: list[Annotated[str, Field(pattern=r"^arn:[^:\s]+:sns:[^:\s]+:[^:\s]+:[^:\s]+$")]] = (
        Field(min_length=1)
    )


IntakeAuth = Annotated[
    KeyAuth | BasicAuth | HeaderAuth | QueryAuth | HmacAuth | SnsAuth,
    Field(discriminator="method"),
]


class DeclaredIntake(Model):
    """An intake of one agent, `/intake/<name>`.

    Attributes:
        use: a format, or one that comes with Boyd.
        mapping: how messages are read; absent: by the function of the format.
        auth: how senders authenticate.
    """

    name: IntakeName
    use: str
    mapping: IntakeMapping | None = None
    auth: IntakeAuth = KeyAuth()


class ShippedIntake(Model):
    """An intake that comes with Boyd; `use` names a format that reads it, `docs` the source."""

    title: str
    docs: str
    use: str | None = None
    mapping: dict[str, Any] | None = None
    auth: dict[str, Any] = Field(default_factory=dict)

    def declared(self, name: str) -> DeclaredIntake:
        """The intake for senders with a key."""
        return DeclaredIntake.model_validate(
            {"name": name, "use": self.use or name, "mapping": self.mapping}
        )


@cache
def shipped_intakes() -> dict[str, ShippedIntake]:
    """The intakes that come with Boyd."""
    files = sorted(SHIPPED.glob("*.toml"))
    return {file.stem: ShippedIntake.model_validate(read_toml(file)) for file in files}


def complete(intake: object) -> object:
    """Add to an intake of an agent file what comes with Boyd for that vendor."""
    if not isinstance(intake, dict):
        return intake
    use = intake.get("use") or intake.get("name")
    shipped = shipped_intakes().get(str(use))
    own, auth = intake.get("mapping") or {}, intake.get("auth")
    if shipped is None:
        if isinstance(auth, dict) and "method" not in auth:
            raise ValueError(f"auth.method is missing{nearest(str(use), shipped_intakes())}")
        return {**intake, "use": use}
    completed: dict[str, Any] = {**intake, "use": shipped.use or use}
    if shipped.mapping is not None and isinstance(own, dict):
        completed["mapping"] = {**shipped.mapping, **own}
    if isinstance(auth, dict) and auth.get("method") in (None, shipped.auth.get("method")):
        completed["auth"] = {**shipped.auth, **auth}
    return completed


def check_intakes(intakes: list[DeclaredIntake]) -> list[DeclaredIntake]:
    """Return the intakes of an agent.

    Raises:
        ValueError: two have one name, or an expression is invalid.
    """
    names = [intake.name for intake in intakes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"several are called {min(twice)!r}")
    for intake in intakes:
        for field, text in intake.mapping.expressions.items() if intake.mapping else ():
            try:
                check_expressions([text])
            except ValueError as error:
                raise ValueError(f"{intake.name}.mapping.{field}: {error}") from None
    return intakes
