"""Signs approvals: each binds one principal to exactly what that principal approved.

Whoever can write to Redis could otherwise enter an approval, or change its action, parameters or
requesters. A worker with the secret counts only signed approvals. A signature does not tell whether
its approval was executed before: the ledger executes each once. Nor does it protect API keys.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets

from itsdangerous import Signer

from boyd.models import ApprovalItem, Vote, VoteSignature, to_ms

#: Separates these signatures from others with the same secret.
_SALT = "boyd.approval"
#: What is signed of a vote, as a list that every release keeps. Its time is that of Redis when it
#: was counted, which is known only afterwards.
_OF_VOTE = ("by", "person", "groups", "note", "key", "claims")


class ApprovalSigner:
    """Signs approvals and checks signatures with one secret."""

    def __init__(self, secret: str) -> None:
        self._signer = Signer(
            secret, salt=_SALT, key_derivation="hmac", digest_method=hashlib.sha256
        )

    @property
    def key_id(self) -> str:
        """The fingerprint of the secret; equal ones have the same."""
        return self._mac("boyd approval secret")[:8]

    def sign(self, item: ApprovalItem, vote: Vote) -> Vote:
        """The approval *vote* of *item* with a signature."""
        nonce = secrets.token_hex(16)
        seen = VoteSignature(nonce=nonce, requested_by=item.requested_by, mac="")
        mac = self._mac(_content(item, vote, seen))
        return vote.patched({"signature": seen.patched({"mac": mac})})

    def signed(self, item: ApprovalItem) -> list[Vote]:
        """The approvals of *item* that were signed for it as it is, one of each principal."""
        found = {vote.by: vote for vote in item.approvals if self._is_signed(item, vote)}
        return list(found.values())

    def _is_signed(self, item: ApprovalItem, vote: Vote) -> bool:
        seen = vote.signature
        if seen is None or not set(seen.requested_by) <= set(item.requested_by):
            return False
        return hmac.compare_digest(self._mac(_content(item, vote, seen)), seen.mac)

    def _mac(self, text: str) -> str:
        return self._signer.get_signature(text).decode()


def _content(item: ApprovalItem, vote: Vote, seen: VoteSignature) -> str:
    """Action, parameters, context, requesters, principal and nonce, the same for the same ones."""
    content = {
        "agent": item.agent_id,
        "approval": item.id,
        "iteration": item.loop_iteration,
        "created": to_ms(item.created_at),
        "expires": to_ms(item.expires_at) if item.expires_at else None,
        "action": item.action_id,
        "params": item.params,
        "undoes": item.undoes,
        "bound_to": item.bound_to,
        "requested_by": seen.requested_by,
        "nonce": seen.nonce,
        "vote": {name: getattr(vote, name) for name in _OF_VOTE},
    }
    if item.plan:
        content["plan"] = [one.to_wire() for one in item.plan]
    return json.dumps(content, sort_keys=True)
