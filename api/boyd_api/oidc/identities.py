"""Identities: the principal, name, groups and scopes that follow from a provider's claims."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from boyd.errors import BoydError
from boyd.models import SCOPES, ApiKey, utc_now
from boyd.settings.oidc_settings import OidcSettings

#: The most characters of a principal, a name and the name of a group.
_PRINCIPAL = 200
_NAME = 100
_GROUP = 200
#: The most groups that are kept.
_GROUPS = 500
#: Claims with a readable name, the best one first.
_NAMES = ("name", "preferred_username", "email")


class ProviderUnavailable(BoydError):
    """The identity provider does not answer."""


class TokenRefused(BoydError):
    """A token of the provider is not valid here."""


class NoScopes(BoydError):
    """No group of this person has any scope here."""


def principal_of(issuer: str, subject: str) -> str:
    """The principal: issuer and subject, which never change; a long subject by its digest.

    An issuer contains no `#`, and a quoted subject no `:`, so no two subjects have the same one.
    """
    principal = f"{issuer}#{quote(subject, safe='@+')}"
    if len(principal) <= _PRINCIPAL:
        return principal
    return f"{issuer}#sha256:{hashlib.sha256(subject.encode()).hexdigest()}"


def identify(
    settings: OidcSettings,
    claims: Mapping[str, Any],
    *,
    person: bool,
    expires_at: datetime | None = None,
) -> ApiKey:
    """The identity that checked *claims* describe.

    Raises:
        NoScopes: none of its groups has any scope.
    """
    assert settings.issuer is not None, "claims come from a provider"
    principal = principal_of(settings.issuer, claims["sub"])
    name, groups = readable_name(claims), groups_of(claims, settings.groups_claim)
    granted = {scope for group in groups for scope in settings.groups.get(group, ())}
    if not granted:
        having = f"the groups {', '.join(groups[:20])}" if groups else "no groups"
        raise NoScopes(
            f"{settings.name} names {name or principal} with {having} in its claim"
            f" {settings.groups_claim!r}, and none of them has any scope here;"
            " an administrator can add one to the setting oidc.groups"
        )
    return ApiKey(
        id=f"oidc-{hashlib.sha256(principal.encode()).hexdigest()[:16]}",
        name=name or principal,
        principal=principal,
        person=person,
        scopes=[scope for scope in SCOPES if scope in granted],
        groups=groups,
        hash="",
        created_at=utc_now(),
        created_by=settings.issuer,
        expires_at=expires_at,
    )


def readable_name(claims: Mapping[str, Any]) -> str:
    """The name in the claims on one line, without what makes it look like another; or empty."""
    values = (claims.get(claim) for claim in _NAMES)
    text = next((value for value in values if isinstance(value, str) and value.strip()), "")
    plain = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(plain.split())[:_NAME]


def groups_of(claims: Mapping[str, Any], claim: str) -> list[str]:
    """The groups in a claim, such as `groups` or `realm_access.roles`."""
    value: Any = claims.get(claim)
    if value is None:
        value = claims
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [name for name in listed if isinstance(name, str) and 0 < len(name) <= _GROUP]
    return list(dict.fromkeys(texts))[:_GROUPS]
