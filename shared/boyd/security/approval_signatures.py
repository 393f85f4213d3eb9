"""Signs approvals: each binds one principal to exactly what that principal approved.

Write access to Redis would otherwise suffice to enter an approval, or change its action, params or
requesters. A worker with a secret or key counts only signed approvals. A signature does not tell
whether its approval was executed before: the ledger executes each once. Nor does it protect keys of
the API.

With a secret, a process that checks approvals can also sign them. With a pair of Ed25519 keys, only
the API signs, and workers check.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets

from itsdangerous import Signer
from pydantic import SecretStr

from boyd.errors import ConfigError
from boyd.models import ApprovalItem, JsonObject, Vote, VoteSignature, to_ms

#: Separates these signatures from others with the same secret.
_SALT = "boyd.approval"
#: What is signed of a vote, as a list that every release keeps. Its time is that of Redis when it
#: was counted, which is known only afterwards.
_OF_VOTE = ("by", "person", "groups", "note", "key", "claims")


def read_signer(key: SecretStr | None, secret: SecretStr | None) -> ApprovalSigner | None:
    """Return the signer of a process: with its Ed25519 key, else with its secret, if it has one.

    Raises:
        ConfigError: the key cannot be used.
    """
    if key is not None:
        return KeyPairSigner(key.get_secret_value())
    return ApprovalSigner(secret.get_secret_value()) if secret else None


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
        signature = VoteSignature(nonce=nonce, requested_by=item.requested_by, mac="")
        mac = self._mac(_dump(_content(item, vote, signature)))
        return vote.patched({"signature": signature.patched({"mac": mac})})

    def valid_votes(self, item: ApprovalItem) -> list[Vote]:
        """The approvals of *item* that were signed for it as it is, one of each principal."""
        votes = {vote.by: vote for vote in item.approvals if self._is_signed(item, vote)}
        return list(votes.values())

    def _is_signed(self, item: ApprovalItem, vote: Vote) -> bool:
        signature = vote.signature
        if signature is None or not set(signature.requested_by) <= set(item.requested_by):
            return False
        content = _content(item, vote, signature)
        # One that covers the code does not fit without it, so the older form lets nobody change it.
        return any(
            self._fits(_dump(form), signature.mac) for form in (content, _without_code(content))
        )

    def _fits(self, text: str, mac: str) -> bool:
        return hmac.compare_digest(self._mac(text), mac)

    def _mac(self, text: str) -> str:
        return self._signer.get_signature(text).decode()


class KeyPairSigner(ApprovalSigner):
    """Signs approvals with a private Ed25519 key, or only checks them with the public one."""

    def __init__(self, pem: str) -> None:
        """Read the key from its PEM text.

        Raises:
            ConfigError: it is no Ed25519 key, or the extra `signatures` is not installed.
        """
        try:
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.asymmetric import ed25519
        except ImportError:
            raise ConfigError("keys for approvals need the extra: boyd[signatures]") from None
        private = "PRIVATE KEY" in pem
        try:
            key = (
                serialization.load_pem_private_key(pem.encode(), None)
                if private
                else serialization.load_pem_public_key(pem.encode())
            )
        except (ValueError, TypeError):
            key = None
        self._private = key if isinstance(key, ed25519.Ed25519PrivateKey) else None
        public = self._private.public_key() if self._private else key
        if not isinstance(public, ed25519.Ed25519PublicKey):
            raise ConfigError("a key for approvals is no Ed25519 key in PEM without a password")
        self._public = public

    @property
    def key_id(self) -> str:
        """The fingerprint of the public key."""
        return hashlib.sha256(self._public.public_bytes_raw()).hexdigest()[:8]

    def _fits(self, text: str, mac: str) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            self._public.verify(base64.b64decode(mac, validate=True), _with_salt(text))
        except (InvalidSignature, ValueError):
            return False
        return True

    def _mac(self, text: str) -> str:
        if self._private is None:
            raise ConfigError("this process has only the public key for approvals: it cannot sign")
        return base64.b64encode(self._private.sign(_with_salt(text))).decode()


def _with_salt(text: str) -> bytes:
    return f"{_SALT}\n{text}".encode()


def _content(item: ApprovalItem, vote: Vote, signature: VoteSignature) -> JsonObject:
    """The signed content: action, parameters, code, context, requesters, principal, nonce."""
    content: JsonObject = {
        "agent": item.agent_id,
        "approval": item.id,
        "iteration": item.loop_iteration,
        "created": to_ms(item.created_at),
        "expires": to_ms(item.expires_at) if item.expires_at else None,
        "action": item.action_id,
        "params": item.params,
        "undoes": item.undoes,
        "bound_to": item.bound_to,
        "requested_by": [*signature.requested_by],
        "nonce": signature.nonce,
        "vote": {name: getattr(vote, name) for name in _OF_VOTE},
    }
    if item.plan:
        content["plan"] = [step.to_wire() for step in item.plan]
    if item.code is not None:
        content["code"] = item.code
    return content


def _without_code(content: JsonObject) -> JsonObject:
    """The content as signed by releases that left out the code."""
    return {name: value for name, value in content.items() if name != "code"}


def _dump(content: JsonObject) -> str:
    return json.dumps(content, sort_keys=True)
