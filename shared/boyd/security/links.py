"""Links to approvals for messages: to their page, or signed so that one person can answer once.

A signed link names an approval, its version, its addressee and a deadline. It is a password for one
answer: its holder answers as the addressee. It is only offered where a mistake is bearable, and
resolving the approval uses it up.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import quote

from itsdangerous import BadData, URLSafeSerializer
from pydantic import ValidationError

from boyd.models import Actor, ApprovalItem
from boyd.models.base import Model, Timestamp

#: The longest life of a signed link; its approval may end earlier.
LIFETIME = timedelta(days=1)
#: Separates these signatures from others with the same secret.
_SALT = "boyd.approval-link"


class LinkProblem(StrEnum):
    """A reason to refuse the answer of a signed link."""

    #: Its deadline has passed.
    EXPIRED = "expired"
    #: It has answered already.
    USED = "used"
    #: Somebody else has resolved the approval, or it expired or is no longer kept.
    NOT_PENDING = "not-pending"
    #: The approval has changed since the link was sent.
    CHANGED = "changed"
    #: The approval needs a login: see `login_reason`.
    LOGIN_NEEDED = "login-needed"


class AnswerLink(Model):
    """The content of a signed link.

    Attributes:
        id: a random id, which the answer uses up.
        agent_id: the agent of the approval.
        approval_id: the approval.
        version: the version that the addressee was shown.
        to: the addressee.
        deadline: when the link ends.
    """

    id: str
    agent_id: str
    approval_id: str
    version: int
    to: Actor
    deadline: Timestamp

    def actor(self, address: str | None = None) -> Actor:
        """The addressee, who uses this link from *address*."""
        return self.to.patched({"link": self.id, "address": address})

    def problem(self, item: ApprovalItem | None, now: datetime) -> LinkProblem | None:
        """Return the reason if the link cannot answer *item* at the time *now*."""
        if item is None or item.status != "pending":
            used = item is not None and item.link == self.id
            return LinkProblem.USED if used else LinkProblem.NOT_PENDING
        if now >= self.deadline:
            return LinkProblem.EXPIRED
        if login_reason(item):
            return LinkProblem.LOGIN_NEEDED
        return LinkProblem.CHANGED if item.version != self.version else None


def login_reason(item: ApprovalItem) -> str | None:
    """Return the reason if a signed link cannot answer *item*."""
    required = item.required
    reasons = {
        "its policy does not allow signed links": required.links != "bearer",
        "its risk is high, critical or unknown": item.is_risky,
        "it cannot be undone": item.reversibility == "irreversible",
        "its code has changed since it was proposed": item.code_now is not None,
        f"it needs {required.min_approvals} approvals": required.min_approvals > 1,
        "it requires a person": required.person,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


class LinkSigner:
    """Signs links and checks signatures with one secret."""

    def __init__(self, secret: str) -> None:
        self._serializer = URLSafeSerializer(
            secret,
            salt=_SALT,
            signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
        )

    def sign(self, item: ApprovalItem, to: Actor, now: datetime) -> str:
        """The token of a new link with which *to* can answer *item*.

        Raises:
            ValueError: the approval needs a login.
        """
        if reason := login_reason(item):
            raise ValueError(f"approval {item.id} cannot have a signed link: {reason}")
        latest = now + LIFETIME
        link = AnswerLink(
            id=uuid.uuid4().hex,
            agent_id=item.agent_id,
            approval_id=item.id,
            version=item.version,
            to=to,
            deadline=min(latest, item.expires_at or latest),
        )
        token = self._serializer.dumps(link.to_wire())
        return token if isinstance(token, str) else token.decode()

    def read(self, token: str) -> AnswerLink | None:
        """Return the content of *token*, or None if its signature is wrong.

        Only `AnswerLink.problem` tells whether it can answer now.
        """
        try:
            return AnswerLink.model_validate(self._serializer.loads(token))
        except (BadData, ValidationError):
            return None


@dataclass(frozen=True)
class LinkBuilder:
    """Builds the links of one deployment.

    Attributes:
        url: the public address of the console; empty: there are no links.
        signer: signs links; without one, all links need a login.
    """

    url: str = ""
    signer: LinkSigner | None = None

    def link(self, item: ApprovalItem, to: Actor | None, now: datetime) -> str:
        """The link to *item* for *to*; empty: there is none."""
        if not self.url or item.required.links == "never":
            return ""
        if to is not None and self._may_answer(item, to):
            assert self.signer is not None
            return f"{self.url}/console/answer/{self.signer.sign(item, to, now)}"
        return f"{self.url}/console/agents/{quote(item.agent_id)}/approvals/{quote(item.id)}"

    def _may_answer(self, item: ApprovalItem, to: Actor) -> bool:
        may = item.status == "pending" and item.required.admits(to)
        own = to.principal in item.requested_by and not item.required.allow_requester
        return self.signer is not None and may and not own and login_reason(item) is None
