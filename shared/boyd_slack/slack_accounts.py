"""Slack accounts and the principals that they are linked to, in Redis.

Somebody who clicks in Slack gets a link to a page of the console, signs in there, and confirms; the
page shows a code, which they type in Slack. This proves that one person has account and login: a
link that is sent to somebody else is worth nothing without the code, which can be tried once.
"""

from __future__ import annotations

import hmac
import secrets
from datetime import datetime
from typing import Self

from boyd.models import SCOPES, Actor, ApiKey, KeptModel, Model, Timestamp
from boyd.settings.process_settings import Settings
from boyd.store import Store
from boyd.store.hashes import readable, reading
from boyd.store.login_sessions import digest
from boyd.store.server.connection import translate_errors
from boyd_slack.slack_settings import slack_settings

#: Seconds for which a link, and then its code, are valid.
LINK = 600.0
#: Seconds for which an interaction is remembered: longer than its signature is accepted.
_REMEMBERED = 900.0
#: Hash: the accounts, by workspace and user.
_ACCOUNTS = "boyd:{*}:slack:accounts"
#: Strings: a Slack account that is to be linked, a confirmed one, and an interaction that was seen.
_OFFERS, _CONFIRMED, _SEEN = (f"boyd:{{*}}:slack:{kind}:" for kind in ("offer", "code", "seen"))
#: Letters and digits that look like no others.
_CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


class SlackAccount(KeptModel):
    """A Slack account; linked, with its principal.

    Attributes:
        workspace: the id of its workspace.
        user: its id there.
        name: its name in Slack, which its owner can change.
        principal: the principal; empty until it is linked.
        key: the id of the API key whose rights it has.
        identity: the identity that a provider has vouched for, if it is no key.
        confirmed_at: the last login for it.
    """

    workspace: str
    user: str
    name: str = ""
    principal: str = ""
    key: str | None = None
    identity: ApiKey | None = None
    confirmed_at: Timestamp | None = None

    @property
    def id(self) -> str:
        """Its id, as the audit trail names it."""
        return f"{self.workspace}/{self.user}"

    def link_to(self, key: ApiKey, now: datetime) -> Self:
        """A copy with the rights of *key*, whose owner signed in *now*."""
        return self.patched(
            {
                "principal": key.principal,
                "key": None if key.is_identity else key.id,
                "identity": key if key.is_identity else None,
                "confirmed_at": now,
            }
        )


class _Confirmed(Model):
    """An account whose link was confirmed, and the code that proves it."""

    account: SlackAccount
    code: str


class SlackAccounts:
    """The Slack accounts of a deployment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = store.client

    def all(self) -> list[SlackAccount]:
        """The linked accounts, by principal."""
        with translate_errors(_ACCOUNTS):
            texts = self._client.hgetall(_ACCOUNTS)
        read = [
            readable(f"Slack account {id}", SlackAccount.from_json, text)
            for id, text in texts.items()
        ]
        accounts = [account for account in read if account is not None]
        return sorted(accounts, key=lambda account: (account.principal, account.id))

    def get(self, id: str) -> SlackAccount | None:
        """A linked account."""
        with translate_errors(_ACCOUNTS):
            text = self._client.hget(_ACCOUNTS, id)
        with reading(f"Slack account {id}"):
            return SlackAccount.from_json(text) if text else None

    def offer(self, account: SlackAccount) -> str:
        """A token for the page that links *account* to the principal of a login."""
        token = secrets.token_urlsafe(24)
        self._keep(_OFFERS + digest(token), account)
        return token

    def find_offer(self, token: str) -> SlackAccount | None:
        """The account that a token was given to; None if it was used, or is too old."""
        with translate_errors():
            text = self._client.get(_OFFERS + digest(token))
        return SlackAccount.from_json(text) if text else None

    def confirm(self, token: str, key: ApiKey) -> str | None:
        """Use up a token, for the rights of *key*; the code that completes the link in Slack."""
        with translate_errors():
            text = self._client.getdel(_OFFERS + digest(token))
        if not text:
            return None
        account = SlackAccount.from_json(text).link_to(key, self._store.clock.now())
        code = "".join(secrets.choice(_CHARACTERS) for _ in range(8))
        self._keep(_CONFIRMED + digest(token), _Confirmed(account=account, code=code))
        return code

    def complete(self, token_digest: str, account: SlackAccount, code: str) -> SlackAccount | None:
        """Link *account* with the code of the page; None if it is wrong, which uses it up."""
        with translate_errors():
            text = self._client.getdel(_CONFIRMED + token_digest)
        confirmed = _Confirmed.from_json(text) if text else None
        typed = "".join(code.upper().split()).replace("-", "")
        if confirmed is None or confirmed.account.id != account.id:
            return None
        if not hmac.compare_digest(confirmed.code.encode(), typed.encode()):
            return None
        self._write(confirmed.account, "slack.linked")
        return confirmed.account

    def renew(self, account: SlackAccount, key: ApiKey) -> None:
        """Give a linked account the rights of a later login of its principal."""
        self._write(account.link_to(key, self._store.clock.now()), "slack.renewed")

    def unlink(self, account: SlackAccount, by: Actor) -> bool:
        """Remove a linked account; False when it is not linked."""
        with translate_errors(_ACCOUNTS):
            removed = self._client.hdel(_ACCOUNTS, account.id)
        if removed:
            self._note("slack.unlinked", account, by)
        return bool(removed)

    def is_first(self, message: str) -> bool:
        """Check, and remember, that an interaction was not seen before."""
        with translate_errors():
            lifetime = int(_REMEMBERED * 1000)
            return bool(self._client.set(_SEEN + message, "", nx=True, px=lifetime))

    def identity(self, account: SlackAccount, settings: Settings) -> ApiKey | None:
        """The identity of an account with its rights of now; None if it has none any more.

        A key counts as long as it exists. A person of an identity provider has the groups of the
        last login, which must not be too long ago, and the scopes that these groups have now.
        """
        now = self._store.clock.now()
        key = self._store.api_keys.get(account.key) if account.key else account.identity
        if key is None or (key.expires_at is not None and key.expires_at <= now):
            return None
        if not key.is_identity:
            return key if key.principal == account.principal else None
        granted = {scope for name in key.groups for scope in settings.oidc.groups.get(name, ())}
        age = (now - account.confirmed_at).total_seconds() if account.confirmed_at else None
        if not granted or age is None or age > slack_settings(settings).login_age:
            return None
        return key.patched({"scopes": [scope for scope in SCOPES if scope in granted]})

    def _keep(self, name: str, value: Model) -> None:
        with translate_errors():
            self._client.set(name, value.to_json(), px=int(LINK * 1000))

    def _write(self, account: SlackAccount, kind: str) -> None:
        with translate_errors(_ACCOUNTS):
            self._client.hset(_ACCOUNTS, account.id, account.to_json())
        by = Actor(principal=account.principal, key=account.key, address=f"slack:{account.id}")
        self._note(kind, account, by)

    def _note(self, kind: str, account: SlackAccount, by: Actor) -> None:
        self._store.audit_trail.append(
            kind, by, account=account.id, slackName=account.name, principal=account.principal
        )
