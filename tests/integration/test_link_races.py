"""One signed link used by many at once, beside other answers: one outcome, on a real Redis."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from boyd.models import Actor, ApprovalPolicy, Decision, Proposal, utc_now
from boyd.models.actor import GroupRights
from boyd.runtime import Resolver
from boyd.runtime.approvals import enqueue_approval
from boyd.security.links import LinkSigner
from boyd.store import Resolution, Store
from boyd.testing.lab import ManualDispatcher
from harness import patient_client

pytestmark = [pytest.mark.real]

CALLERS = 50
SIGNER = LinkSigner("a secret with more than thirty-two characters")
JANE = Actor(principal="mail:jane@example.com")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_fifty_uses_of_a_link_and_other_answers_have_one_outcome(redis_url: str, seed: int) -> None:
    store = Store(patient_client(redis_url)).agent("race")
    decision = Decision(action="p:do", params={"n": seed}, rationale="a race", confidence=1.0)
    proposal = Proposal(
        decision=decision,
        action_id="p:do",
        params={"n": seed},
        loop_iteration=0,
        risk="low",
        required=ApprovalPolicy(links="bearer"),
    )
    item = enqueue_approval(store, proposal)
    link = SIGNER.read(SIGNER.sign(item, JANE, utc_now()))
    assert link is not None
    ready = Barrier(CALLERS)

    def answer(number: int) -> tuple[str, str, Resolution]:
        dice = random.Random(seed * 1000 + number)
        resolver = Resolver(
            Store(patient_client(redis_url)).agent("race"),
            ManualDispatcher(),
            store.retention(),
            rights=GroupRights(),
        )
        verdict = dice.choice(["approved", "denied"])
        ready.wait()
        if number % 2:
            return "link", verdict, resolver.answer_link(link, verdict)  # type: ignore[arg-type]
        by = Actor(principal=f"caller{number}")
        return by.principal, verdict, resolver.answer(item.id, verdict, by)  # type: ignore[arg-type]

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(answer, range(CALLERS)))
    [(who, verdict, _)] = [winner for winner in answers if winner[2].counts]
    approval = store.approvals.get(item.id)
    assert approval is not None
    assert approval.status == verdict
    assert approval.acted_by == (JANE.principal if who == "link" else who)
    assert approval.link == (link.id if who == "link" else None)
    for _, _, resolution in answers:
        assert resolution.item is not None
        assert resolution.counts or (resolution.outcome, resolution.item.acted_by) == (
            "not-pending",
            approval.acted_by,
        )
    entries = store.audit_trail
    entries.seal()
    kinds = [
        entry.kind for entry in entries.page(100).entries if entry.what.get("approval") == item.id
    ]
    assert sorted(kinds) == sorted(["approval.pending", f"approval.{verdict}"])
