"""Signed approvals: write access to Redis does not suffice to approve, or to change an approval."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from pydantic import SecretStr

from boyd.errors import ConfigError
from boyd.models import ApprovalItem, Autonomy, Vote, utc_now
from boyd.models.actor import GroupRights
from boyd.runtime import Resolver
from boyd.security.approval_signatures import ApprovalSigner, KeyPairSigner, read_signer
from boyd.store import fingerprint
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, machine, person

SECRET = "a secret with more than thirty-two characters"


PRIVATE = Ed25519PrivateKey.generate()
PRIVATE_PEM = PRIVATE.private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
PUBLIC_PEM = (
    PRIVATE.public_key()
    .public_bytes(Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)


def signer_of(text: str | None) -> ApprovalSigner | None:
    """The signer with that secret, or key in PEM."""
    if text is None:
        return None
    return KeyPairSigner(text) if "KEY" in text else ApprovalSigner(text)


def resolver_of(lab: Lab, signer: ApprovalSigner | None) -> Resolver:
    retention = lab.engine.retention
    return Resolver(lab.store, lab.dispatcher, retention, signer, rights=GroupRights())


class Guarded:
    """A lab with an agent that asks for its action, and what an attacker can do in Redis."""

    def __init__(self, signs: str | None = SECRET, checks: str | None = SECRET, **required: Any):
        self.recorder = Recorder()
        asks = Autonomy(mode="approval-required")
        parts = [chooses(choice(params={"size": 1})), self.recorder.action(autonomy=asks)]
        parts.append(Recorder().action("other"))
        self.lab = lab = Lab(agent(*parts, approvals={"required": required}))
        self.resolver = Resolver(
            lab.store, lab.dispatcher, lab.engine.retention, signer_of(signs), rights=GroupRights()
        )
        lab.engine.settings = replace(lab.engine.settings, signer=signer_of(checks))
        self.id = self.ask()

    def ask(self) -> str:
        """The approval that an iteration asks for."""
        approval_id = self.lab.run().action_results[0].waits_for
        assert approval_id is not None
        return approval_id

    def approve(self, name: str = "ann", id: str | None = None) -> None:
        """Approve, but let no worker execute it yet."""
        outcome = self.resolver.answer(id or self.id, "approved", person(name), "fine").outcome
        assert outcome.counts

    def get(self, name: str, id: str | None = None) -> str:
        value: str = self.lab.client.hget(f"boyd:{{test}}:approval:{id or self.id}", name)
        return value

    def set(self, **fields: str) -> None:
        """Write fields of the approval, as an attacker would."""
        self.lab.client.hset(f"boyd:{{test}}:approval:{self.id}", mapping=fields)

    def vote(self, name: str, **changes: Any) -> None:
        """Enter an approval that nobody gave, or change one that somebody gave."""
        vote = json.loads(self.get(f"vote:{name}") or "{}")
        vote |= {"by": name, "at": utc_now().isoformat(), **changes}
        self.set(**{f"vote:{name}": json.dumps(vote)})

    def effects(self) -> list[Any]:
        """The params of the action's calls, after workers have run."""
        self.lab.deliver()
        return self.recorder.calls

    def error(self) -> str:
        """The error of the approval's execution."""
        item = self.lab.store.approvals.get(self.id)
        assert item is not None
        assert item.result is not None
        return item.result.error or ""


def test_a_signed_approval_is_executed() -> None:
    guarded = Guarded()
    guarded.approve()

    assert guarded.effects() == [{"size": 1}]


def forge_vote(guarded: Guarded) -> None:
    guarded.lab.client.hdel(f"boyd:{{test}}:approval:{guarded.id}", "vote:ann")
    guarded.vote("boss", person=True, groups=["ops"])


def strip_signature(guarded: Guarded) -> None:
    guarded.vote("ann", signature=None)


def raise_groups(guarded: Guarded) -> None:
    guarded.vote("ann", groups=["ops", "root"])


def other_nonce(guarded: Guarded) -> None:
    signature = json.loads(guarded.get("vote:ann"))["signature"]
    guarded.vote("ann", signature={**signature, "nonce": "0" * 32})


def other_principal(guarded: Guarded) -> None:
    guarded.vote("boss", **{**json.loads(guarded.get("vote:ann")), "by": "boss"})
    guarded.lab.client.hdel(f"boyd:{{test}}:approval:{guarded.id}", "vote:ann")


@pytest.mark.parametrize(
    "attack",
    [
        forge_vote,
        strip_signature,
        raise_groups,
        other_nonce,
        other_principal,
    ],
)
@pytest.mark.parametrize("keys", [(SECRET, SECRET), (PRIVATE_PEM, PUBLIC_PEM)])
def test_nothing_is_executed_that_was_not_approved_as_it_is(
    attack: Callable[[Guarded], None], keys: tuple[str, str]
) -> None:
    guarded = Guarded(*keys)
    guarded.approve()
    attack(guarded)

    assert guarded.effects() == []
    assert "approval was altered" in guarded.error()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("params", '{"size": 1000}'),
        ("actionId", "p:other"),
        ("undoes", "loop:1"),
        ("boundTo", "investigation:1"),
        ("loopIteration", "7"),
        ("createdAt", "1700000000000"),
        ("expiresAt", "4000000000000"),
        ("agentId", "other"),
        ("code", '"p 9.9"'),
        ("id", "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_nothing_of_what_was_approved_can_be_changed_even_with_a_digest_that_fits(
    field: str, value: str
) -> None:
    guarded = Guarded()
    guarded.approve()
    guarded.set(**{field: value})
    item = guarded.lab.store.approvals.get(guarded.id)
    assert item is not None
    guarded.set(fingerprint=fingerprint(item))

    assert guarded.effects() == []
    assert "approval was altered" in guarded.error()


class OlderSigner(ApprovalSigner):
    """Signs as the releases did that left out the code."""

    def sign(self, item: ApprovalItem, vote: Vote) -> Vote:
        """The vote with a signature that does not cover the code."""
        return super().sign(item.patched({"code": None}), vote)


def test_a_signature_without_the_code_is_still_valid() -> None:
    guarded = Guarded()
    lab = guarded.lab
    guarded.resolver = Resolver(
        lab.store, lab.dispatcher, lab.engine.retention, OlderSigner(SECRET), rights=GroupRights()
    )
    assert guarded.get("code")
    guarded.approve()

    assert guarded.effects() == [{"size": 1}]


@pytest.mark.parametrize("signed_too", [False, True])
def test_a_requester_that_the_approver_saw_cannot_be_hidden(signed_too: bool) -> None:
    guarded = Guarded()
    guarded.set(requestedBy="bob")
    guarded.approve()
    signature = json.loads(guarded.get("vote:ann"))["signature"]
    if signed_too:
        guarded.vote("ann", signature={**signature, "requestedBy": []})
    guarded.set(requestedBy="carol")

    assert signature["requestedBy"] == ["bob"]
    assert guarded.effects() == []
    assert "approval was altered" in guarded.error()


def test_requesters_that_joined_later_change_nothing() -> None:
    guarded = Guarded(min_approvals=2)
    guarded.approve("ann")
    guarded.set(requestedBy="bob")
    guarded.approve("carol")

    assert guarded.effects() == [{"size": 1}]


def test_one_principal_does_not_count_twice() -> None:
    guarded = Guarded(min_approvals=2)
    guarded.approve("ann")
    guarded.set(**{"vote:ghost": guarded.get("vote:ann"), "votes": "1"})
    guarded.approve("carol")
    guarded.lab.client.hdel(f"boyd:{{test}}:approval:{guarded.id}", "vote:carol")

    assert guarded.effects() == []


def test_an_approval_is_not_worth_anything_for_another_action() -> None:
    first = Guarded()
    first.approve()
    assert first.effects() == [{"size": 1}]
    again = first.ask()
    assert again != first.id
    signed, first.id = first.get("vote:ann"), again
    first.approve("bob")
    first.lab.client.hdel(f"boyd:{{test}}:approval:{again}", "vote:bob")
    first.set(**{"vote:ann": signed})

    assert first.effects() == [{"size": 1}]  # once, for the first
    assert "approval was altered" in first.error()


@pytest.mark.parametrize("signs", [None, "another secret of thirty-two characters"])
def test_an_approval_that_was_not_signed_with_the_workers_secret_says_what_to_do(
    signs: str | None,
) -> None:
    guarded = Guarded(signs=signs)
    guarded.approve()

    assert guarded.effects() == []
    assert "give the same one to workers and API" in guarded.error()


def test_without_a_secret_the_digest_still_guards_action_and_params() -> None:
    guarded = Guarded(signs=None, checks=None)
    guarded.approve()
    guarded.set(params='{"size": 1000}')

    assert guarded.effects() == []
    assert "differ from those that were approved" in guarded.error()


def test_a_worker_without_the_secret_executes_what_others_have_signed() -> None:
    guarded = Guarded(checks=None)
    guarded.approve()

    assert guarded.effects() == [{"size": 1}]


def test_two_approvals_of_the_same_never_have_the_same_signature() -> None:
    guarded = Guarded(min_approvals=2)
    guarded.approve("ann")
    item = guarded.lab.store.approvals.get(guarded.id)
    assert item is not None
    signer = ApprovalSigner(SECRET)
    first, second = (signer.sign(item, item.approvals[0]).signature for _ in range(2))
    assert first is not None
    assert second is not None

    assert first.nonce != second.nonce
    assert first.mac != second.mac


def test_the_approval_of_a_program_is_not_turned_into_that_of_a_person() -> None:
    guarded = Guarded()
    guarded.resolver.answer(guarded.id, "approved", machine("robot"))
    guarded.vote("robot", person=True)

    assert guarded.effects() == []


def test_workers_with_the_public_key_execute_what_the_api_signs_and_cannot_sign() -> None:
    guarded = Guarded(PRIVATE_PEM, PUBLIC_PEM)
    guarded.approve()
    item = guarded.lab.store.approvals.get(guarded.id)
    assert item is not None

    assert guarded.effects() == [{"size": 1}]
    with pytest.raises(ConfigError, match="only the public key"):
        KeyPairSigner(PUBLIC_PEM).sign(item, item.approvals[0])


@pytest.mark.parametrize("signs", [SECRET, None])
def test_a_worker_with_the_public_key_takes_no_other_signature(signs: str | None) -> None:
    guarded = Guarded(signs, PUBLIC_PEM)
    guarded.approve()

    assert guarded.effects() == []
    assert "give the same one to workers and API" in guarded.error()


def test_both_halves_of_a_pair_have_the_same_fingerprint() -> None:
    private, public = KeyPairSigner(PRIVATE_PEM), KeyPairSigner(PUBLIC_PEM)

    assert private.key_id == public.key_id != ApprovalSigner(SECRET).key_id
    chosen = read_signer(SecretStr(PUBLIC_PEM), SecretStr(SECRET))
    assert chosen is not None
    assert chosen.key_id == public.key_id
    assert read_signer(None, None) is None


def test_a_key_other_than_ed25519_is_refused_without_showing_it() -> None:
    other = X25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for text in ("correct-horse", other.decode(), PRIVATE_PEM.replace("MC4", "xxx")):
        with pytest.raises(ConfigError, match="no Ed25519 key") as error:
            KeyPairSigner(text)
        assert text not in str(error.value)
