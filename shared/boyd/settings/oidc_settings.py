"""Settings of sign-in with OpenID Connect."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from boyd.models import Scope
from boyd.settings.model import is_loopback

#: The most characters of an issuer, which is a part of the principals of its people.
_LONGEST_ISSUER = 120


def _issuer(text: str) -> str:
    """The identifier of a provider: an address, which tokens name exactly as it is given here."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be an address such as https://id.example.com/realms/ops")
    if parts.query or parts.fragment or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be without `?`, `#`, spaces and other than ASCII characters")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("must be https, as tokens would go unencrypted to another host")
    return text


class OidcSettings(BaseModel):
    """Sign-in with an OpenID Connect provider.

    Attributes:
        issuer: the provider, such as `https://id.example.com/realms/ops`; absent: none.
        client_id: Boyd's name at the provider.
        client_secret: its secret there; absent: a public client.
        name: what people call the provider: `Sign in with <name>`.
        extra_scopes: what is requested of the provider beside `openid`.
        groups_claim: the claim with the groups of a person; dots lead into objects.
        groups: the scopes of each group; people in none of them are refused.
        audience: the audience of access tokens that the API accepts; absent: it accepts none.
        allow_private: allow the provider addresses that are not public.
        timeout: seconds for one request to the provider.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    issuer: Annotated[str, Field(max_length=_LONGEST_ISSUER), AfterValidator(_issuer)] | None = None
    client_id: str | None = Field(default=None, min_length=1)
    client_secret: SecretStr | None = Field(default=None, min_length=1)
    name: str = Field(default="single sign-on", min_length=1, max_length=60)
    extra_scopes: Annotated[tuple[str, ...], NoDecode] = ("profile", "email")
    groups_claim: str = Field(default="groups", min_length=1)
    groups: dict[str, tuple[Scope, ...]] = Field(default_factory=dict)
    audience: str | None = Field(default=None, min_length=1)
    allow_private: bool = False
    timeout: float = Field(default=5.0, gt=0, le=30)

    @field_validator("extra_scopes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Split a comma-separated list, as the environment gives it."""
        return value.replace(",", " ").split() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.issuer is None:
            return self
        if self.client_id is None:
            raise ValueError("client_id is missing: register Boyd at the provider")
        if not any(self.groups.values()):
            raise ValueError(
                "groups is missing, so nobody could do anything:"
                ' set for example groups.ops = ["read", "approvals"]'
            )
        if self.audience == self.client_id:
            raise ValueError(
                "audience must differ from client_id, which is the audience of ID tokens:"
                " those prove a login, and are no permission for the API"
            )
        return self
