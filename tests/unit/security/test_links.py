"""Links in messages: to the page of an approval, or signed so that one person answers once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from boyd.errors import ConfigError
from boyd.models import Actor, ApprovalItem, ApprovalPolicy, Autonomy, Decision, utc_now
from boyd.security.links import (
    LIFETIME,
    AnswerLink,
    LinkBuilder,
    LinkProblem,
    LinkSigner,
    login_reason,
)
from boyd.settings.process_settings import Settings, load_settings
from boyd.store import ItemAnswer
from boyd.testing import Lab
from boyd_cli.commands.up_command import _children
from kit import Recorder, agent, choice, chooses, person

SECRET = "a secret with more than thirty-two characters"
SIGNER = LinkSigner(SECRET)
JANE = Actor(principal="mail:jane@example.com", person=True, groups=["ops"])
BEARER = {"links": "bearer"}


def lab_with(recorder: Recorder | None = None, **required: Any) -> Lab:
    """A lab whose agent has proposed its action under that policy."""
    action = (recorder or Recorder()).action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(chooses(choice()), action, approvals={"required": {**BEARER, **required}}))
    lab.run()
    return lab


def pending(lab: Lab) -> ApprovalItem:
    """The only item that waits."""
    [item] = lab.store.approvals.page(50).pending
    return item


def link_to(lab: Lab, to: Actor = JANE) -> AnswerLink:
    """A link that *to* was sent."""
    link = SIGNER.read(SIGNER.sign(pending(lab), to, utc_now()))
    assert link is not None
    return link


def problem(lab: Lab, link: AnswerLink, later: timedelta = timedelta()) -> LinkProblem | None:
    """The problem that keeps the link from answering."""
    return link.problem(lab.store.approvals.get(link.approval_id), utc_now() + later)


def test_a_link_approves_as_its_addressee_and_the_audit_names_both() -> None:
    recorder = Recorder()
    lab = lab_with(recorder)
    link = link_to(lab)
    assert problem(lab, link) is None
    done = lab.resolver.answer_link(link, "approved", "from the train", "192.0.2.7")
    lab.deliver()
    assert done.outcome == "approved"
    assert done.item is not None
    assert (done.item.acted_by, done.item.note) == ("mail:jane@example.com", "from the train")
    assert done.item.link == link.id
    assert len(recorder.calls) == 1

    lab.store.audit_trail.seal()
    [entry] = [e for e in lab.store.audit_trail.page(20).entries if e.kind == "approval.approved"]
    assert (entry.who, entry.address) == ("mail:jane@example.com", "192.0.2.7")
    assert entry.what["link"] == link.id


@pytest.mark.parametrize("first", ["approved", "denied"])
def test_a_link_answers_once_and_then_tells_what_happened(first: Any) -> None:
    recorder = Recorder()
    lab = lab_with(recorder)
    link = link_to(lab)
    lab.resolver.answer_link(link, first)
    for verdict in ("approved", "denied"):
        again = lab.resolver.answer_link(link, verdict)
        assert again.outcome == "not-pending"
        assert again.item is not None
        assert (again.item.status, again.item.acted_by) == (first, "mail:jane@example.com")
    lab.deliver()
    assert problem(lab, link) == LinkProblem.USED
    assert len(recorder.calls) == (1 if first == "approved" else 0)


def test_a_link_that_somebody_was_faster_than_tells_who() -> None:
    lab = lab_with()
    link = link_to(lab)
    lab.resolver.answer(link.approval_id, "denied", person("bob"))
    resolution = lab.resolver.answer_link(link, "approved")
    assert problem(lab, link) == LinkProblem.NOT_PENDING
    assert resolution.outcome == "not-pending"
    assert resolution.item is not None
    assert resolution.item.acted_by == "bob"


def test_a_link_is_for_the_version_that_was_shown() -> None:
    lab = lab_with()
    link = link_to(lab)
    lab.client.hincrby(f"boyd:{{test}}:approval:{link.approval_id}", "version", 1)
    assert problem(lab, link) == LinkProblem.CHANGED
    assert lab.resolver.answer_link(link, "approved").outcome == "changed"
    assert pending(lab).status == "pending"


def test_a_link_ends_with_its_deadline_even_between_the_check_and_the_answer() -> None:
    lab = lab_with()
    expired_link = link_to(lab).patched({"deadline": utc_now() - timedelta(seconds=1)})
    assert problem(lab, expired_link) == LinkProblem.EXPIRED
    assert lab.resolver.answer_link(expired_link, "approved").outcome == "link-refused"
    answer = ItemAnswer("approved", expired_link.actor(), link_until=expired_link.deadline)
    resolution = lab.store.approvals.resolve(
        expired_link.approval_id, answer, ApprovalPolicy(), lab.engine.retention
    )
    assert resolution.outcome == "link-refused"
    assert pending(lab).status == "pending"


@pytest.mark.parametrize(("ttl", "days"), [(600, 0), (7 * 86400, 1), (0, 1)])
def test_a_link_lives_as_long_as_its_approval_and_a_day_at_most(ttl: int, days: int) -> None:
    action = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(chooses(choice()), action, approvals={"required": BEARER, "ttl": ttl}))
    lab.run()
    link, item = link_to(lab), pending(lab)
    if days:
        assert timedelta() <= utc_now() + LIFETIME - link.deadline < timedelta(minutes=1)
    else:
        assert link.deadline == item.expires_at


@pytest.mark.parametrize(
    "changes",
    [
        {"risk": "high"},
        {"risk": "critical"},
        {"risk": None},
        {"decision": Decision(action="p:do", rationale="x", confidence=1.0, risk="high")},
        {"required": ApprovalPolicy(links="bearer", min_approvals=2)},
        {"required": ApprovalPolicy(links="bearer", person=True)},
        {"required": ApprovalPolicy(links="login")},
        {"required": ApprovalPolicy(links="never")},
        {"code_now": "shop 2"},
    ],
)
def test_a_risky_approval_needs_a_login_instead_of_a_signed_link(
    changes: dict[str, object],
) -> None:
    lab = lab_with()
    link, item = link_to(lab), pending(lab).patched(changes)
    assert login_reason(item)
    with pytest.raises(ValueError, match="cannot have a signed link"):
        SIGNER.sign(item, JANE, utc_now())
    assert link.problem(item, utc_now()) == LinkProblem.LOGIN_NEEDED


def test_a_link_made_before_its_approval_became_grave_is_refused() -> None:
    lab = lab_with()
    link = link_to(lab)
    lab.client.hset(f"boyd:{{test}}:approval:{link.approval_id}", "risk", "critical")
    assert lab.resolver.answer_link(link, "denied").outcome == "link-refused"


def test_a_link_gives_no_right_that_its_addressee_lacks() -> None:
    lab = lab_with(groups=["dba"])
    for verdict in ("approved", "denied"):
        resolution = lab.resolver.answer_link(link_to(lab), verdict)
        assert resolution.outcome == "not-an-approver"
    noted = lab_with(require_note=True)
    assert noted.resolver.answer_link(link_to(noted), "approved").outcome == "note-required"


def with_another_signature(token: str) -> str:
    """That token with the first letter of its signature changed.

    Not the last one: it holds unused bits, so that two letters may mean the same signature.
    """
    signed, _, signature = token.rpartition(".")
    return f"{signed}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"


@pytest.mark.parametrize("alter", [with_another_signature, lambda t: "x" + t, lambda t: ""])
def test_an_altered_or_foreign_token_is_no_link(alter: Any) -> None:
    token = SIGNER.sign(pending(lab_with()), JANE, utc_now())
    assert SIGNER.read(token) is not None
    assert SIGNER.read(alter(token)) is None
    assert LinkSigner("another secret of thirty-two letters").read(token) is None


def test_messages_link_to_the_page_or_to_a_signed_link() -> None:
    item = pending(lab_with())
    links = LinkBuilder("https://boyd.example.com", SIGNER)
    page = f"https://boyd.example.com/console/agents/test/approvals/{item.id}"
    signed = links.link(item, JANE, utc_now())
    assert signed.startswith("https://boyd.example.com/console/answer/")
    assert SIGNER.read(signed.rpartition("/")[2]) is not None

    never = item.patched({"required": ApprovalPolicy(links="never")})
    login = item.patched({"required": ApprovalPolicy(links="bearer", person=True)})
    others = item.patched({"required": ApprovalPolicy(links="bearer", groups=["dba"])})
    own = item.patched({"requested_by": [JANE.principal]})
    assert links.link(never, JANE, utc_now()) == ""
    assert links.link(item, None, utc_now()) == page
    for other in (login, others, own, item.patched({"status": "denied"})):
        assert links.link(other, JANE, utc_now()) == page
    assert LinkBuilder("https://boyd.example.com").link(item, JANE, utc_now()) == page
    assert LinkBuilder("", SIGNER).link(item, JANE, utc_now()) == ""


# The settings


def test_the_approval_secret_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOYD_APPROVAL_SECRET", SECRET)
    settings = load_settings()
    assert settings.approval_secret == SecretStr(SECRET)
    assert SECRET not in f"{settings!r} {settings.model_dump_json()}"
    monkeypatch.setenv("BOYD_APPROVAL_SECRET", "hunter2")
    with pytest.raises(ConfigError, match="approval_secret") as error:
        load_settings()
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("https://Boyd.example.com/", "https://boyd.example.com"),
        ("http://[::1]:8700", "http://[::1]:8700"),
        ("https://boyd.example.com/console", None),
        ("https://ann@boyd.example.com", None),
        ("boyd.example.com", None),
        ("javascript://x", None),
    ],
)
def test_the_public_address_is_an_origin(url: str, read: str | None) -> None:
    if read is None:
        with pytest.raises(ConfigError, match=r"api\.url"):
            load_settings({"api": {"url": url}})
    else:
        assert load_settings({"api": {"url": url}}).api.url == read


def test_boyd_up_makes_the_secret_once_and_keeps_it_private(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, agents=("agent.toml",), redis_url="redis://x")
    environments = [_children(settings)[0][0].env or {} for _ in range(2)]
    file = Path(environments[0]["BOYD_APPROVAL_SECRET_FILE"])
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_text().strip()) >= 32
    assert environments[0] == environments[1]
    assert environments[0]["BOYD_API__URL"] == "http://127.0.0.1:8700"
