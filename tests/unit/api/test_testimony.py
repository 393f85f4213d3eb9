"""Flight records as Testimony Records, which a program of somebody else checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import fakeredis
import pytest
import testimony_validate
from hypothesis import given, settings, strategies

from api_kit import Site
from boyd import Agent, Veto
from boyd.export.testimony import FlightRecord, write_testimony
from boyd.models import Autonomy, Level, LoopResult, no_op, utc_now
from boyd.models.verification import EffectVerification
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, plugin, reads, seen, sees

HOSTILE = 'a\u2028b\u0085"\\\n\x1c é _x'
AUTO, ASKS = Autonomy(), Autonomy(mode="approval-required")
#: What the validator knows of: an edit that stays within a vocabulary is the hardest to notice.
WORDS = sorted({word for words in testimony_validate.ENUMS.values() for word in words})
#: The validator has no check of the name of a scheme that it cannot recompute.
UNNOTICED = "signature"

Entry = dict[str, Any]
Edit = Callable[[list[Entry]], None]


def lab_of(server: Any, risk: Level = "low", autonomy: Autonomy = AUTO) -> Lab:
    """An agent that observes things that are hard to write down, and acts."""
    data = {"_hidden": 1, "tiny": 1e-9, "big": 2**60, "text": HOSTILE, "deep": [{"a": [None]}]}
    parts = [
        sees("cpu", seen("cpu", data=data), seen("disk")),
        reads("load", "the cpu is busy", HOSTILE),
        chooses(choice(rationale=HOSTILE, params={"_size": 1e-9})),
        Recorder(output={"_freed": 0.1}).action(risk=risk, autonomy=autonomy),
    ]
    redis = fakeredis.FakeRedis(server=server, decode_responses=True)
    return Lab(agent(*parts), client=redis)


@pytest.fixture
def site_of(server: Any) -> Iterator[Callable[..., Site]]:
    """Makes an API over such an agent."""
    made: list[Site] = []

    def make(**settings: Any) -> Site:
        made.append(Site(lab_of(server, **settings), server))
        made[-1].lab.run()
        return made[-1]

    yield make
    for site in made:
        site.services.stop()


def exported(site: Site, iteration: int | str = 1) -> str:
    """The document of an iteration."""
    answer = site.get(f"/loop/history/{iteration}/testimony")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    return str(answer.text)


def level(text: str) -> str | None:
    """What the document reaches."""
    found: str | None = testimony_validate.validate(text).level
    return found


def entries_of(text: str) -> list[Entry]:
    return [json.loads(line) for line in text.splitlines()]


def decision_of(text: str) -> Entry:
    [found] = [entry for entry in entries_of(text) if entry["type"] == "decision"]
    return found


def content(text: str, id: str) -> Any:
    """What Boyd recorded, from the entry of that id."""
    [found] = [entry for entry in entries_of(text) if entry.get("id") == id]
    return json.loads(found["content"])


def approve(site: Site, **key: Any) -> None:
    """Have somebody approve what waits."""
    [item] = site.lab.store.approvals.page(5).pending
    headers = site.key("approvals", **{"principal": "bob", "person": True, **key})
    answer = site.post(f"/approvals/{item.id}/approve", {"note": "go on"}, headers=headers)
    assert answer.status_code == 200, answer.text


def edits(entries: list[Entry]) -> Iterator[tuple[str, Edit]]:
    """Every change of one leaf, and the removal of every member and entry."""
    for number, entry in enumerate(entries):
        for path, value in _leaves(entry, ()):
            for other in _others(value):
                name = f"{number}:{'.'.join(map(str, path))} = {other!r}"
                yield name, _setting(number, path, other)
        for member in entry:
            yield f"{number}:{member} removed", _removing(number, member)
        yield f"{number} removed", _removing(number)


def _leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _leaves(one, (*path, name))
    elif isinstance(value, list) and value:
        for number, one in enumerate(value):
            yield from _leaves(one, (*path, number))
    else:
        yield path, value


def _others(value: Any) -> Iterator[Any]:
    later = "2999-01-01T00:00:00.000Z"
    known: list[Any] = ["", "x", None, 7, True, False, [], {}, later, "decision"]
    same = [f"{value} ", value.swapcase()] if isinstance(value, str) else []
    for other in (*known, *(WORDS if value in WORDS else []), *same):
        if type(other) is not type(value) or other != value:
            yield other


def _setting(number: int, path: tuple[Any, ...], other: Any) -> Edit:
    def change(entries: list[Entry]) -> None:
        place: Any = entries[number]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = other

    return change


def _removing(number: int, member: str | None = None) -> Edit:
    def remove(entries: list[Entry]) -> None:
        if member is None:
            entries.pop(number)
        else:
            entries[number].pop(member)

    return remove


def still_passes(entries: list[Entry], edit: Edit) -> bool:
    """Tell whether the validator takes the edited document for a whole one."""
    changed = deepcopy(entries)
    edit(changed)
    try:
        return level("\n".join(map(json.dumps, changed))) == "TR-4"
    except (TypeError, AttributeError, KeyError, ValueError):
        return False  # it gives up, and its command exits with an error


def test_no_field_of_a_document_can_be_changed_or_removed_unnoticed(
    site_of: Callable[..., Site],
) -> None:
    site = site_of(autonomy=ASKS)
    approve(site)
    text = exported(site)
    entries = entries_of(text)
    assert level(text) == "TR-4"
    tried = dict(edits(entries))
    unnoticed = [name for name, edit in tried.items() if still_passes(entries, edit)]

    assert len(tried) > 500
    [integrity] = [n for n, entry in enumerate(entries) if entry["type"] == "integrity"]
    # Nothing in the format binds this word; the scope, which the digest covers, repeats it.
    assert unnoticed == [f"{integrity}:scheme = {UNNOTICED!r}"]
    assert entries[0]["integrity"] == entries[integrity]["scheme"]


@settings(max_examples=60, deadline=None)
@given(data=strategies.data())
def test_a_field_with_any_other_value_breaks_the_document(data: strategies.DataObject) -> None:
    result = LoopResult(
        id="a:1",
        agent_id="a",
        iteration=1,
        trigger="beat",
        success=True,
        duration=1.0,
        started_at=utc_now(),
        ended_at=utc_now(),
        decision=no_op("calm"),
        observations=[seen("cpu", data={"load": 4})],
    )
    entries = entries_of(write_testimony(FlightRecord(result), utc_now()))
    number = data.draw(strategies.integers(0, len(entries) - 1))
    path, value = data.draw(strategies.sampled_from([*_leaves(entries[number], ())]))
    values = strategies.text() | strategies.integers() | strategies.booleans() | strategies.none()
    other = data.draw(values.filter(lambda one: one not in (value, UNNOTICED)))

    assert not still_passes(entries, _setting(number, path, other))


def test_what_the_document_holds_is_what_boyd_recorded(site_of: Callable[..., Site]) -> None:
    site = site_of(autonomy=ASKS)
    approve(site)
    text = exported(site)
    [item] = site.lab.store.approvals.page(5).history
    result = site.lab.store.history.get(1)
    assert result is not None

    assert content(text, "iteration") == result.patched({"observations": []}).to_wire()
    observed = [content(text, "seen-1"), content(text, "seen-2")]
    assert observed == [[one.to_wire()] for one in result.observations]
    assert content(text, "approval-record-1") == item.to_wire()
    assert content(text, "execution-1")["id"] == f"approval:{item.id}"
    kinds = [entry["kind"] for entry in content(text, "audit")]
    assert {"approval.pending", "approval.approved", "action.started"} <= set(kinds)
    beliefs = [entry["proposition"] for entry in entries_of(text) if entry["type"] == "belief"]
    assert f"the cpu is busy; {HOSTILE}" in beliefs


def test_a_person_who_approved_is_named_and_a_program_is_not(
    site_of: Callable[..., Site], server: Any
) -> None:
    site = site_of(autonomy=ASKS, risk="critical")
    approve(site)
    text = exported(site)
    [approval] = [entry for entry in entries_of(text) if entry["type"] == "approval"]
    decision = decision_of(text)

    assert approval["approver"] == {"id": "bob", "kind": "human"}
    assert (approval["identity_source"], approval["note"]) == ("api-key", "go on")
    assert (decision["risk_class"], decision["risk"]) == ("high", "critical")
    assert (decision["risk_source"], decision["approval"]) == ("registry", approval["id"])
    assert (decision["verdict"], decision["executed"]) == ("permitted", True)
    # The call returned: nobody has verified that it helped.
    assert decision["outcome"] == "unconfirmed"
    assert level(text) == "TR-4"

    site.lab.run()
    approve(site, principal="robot", person=False)
    text = exported(site, 2)
    assert "approval" not in decision_of(text)
    assert level(text) == "TR-2"  # a high risk that no person approved


def test_a_high_risk_that_ran_without_a_person_is_not_made_to_look_better(
    site_of: Callable[..., Site],
) -> None:
    text = exported(site_of(risk="high"))

    assert decision_of(text)["executed"] is True
    assert level(text) == "TR-2"


@pytest.mark.parametrize("verb", ["deny", "withdraw", ""])
def test_an_action_that_nobody_approved_is_a_refusal_with_its_reason(
    site_of: Callable[..., Site], verb: str
) -> None:
    site = site_of(autonomy=ASKS)
    [item] = site.lab.store.approvals.page(5).pending
    if verb == "deny":
        site.post(f"/approvals/{item.id}/deny", {"note": "not at night"})
    elif verb:
        actor = site.store.access.all()[0].actor()
        site.lab.resolver.answer(item.id, "withdrawn", actor, "over")
    text = exported(site)
    decision = decision_of(text)

    assert (decision["verdict"], decision["executed"]) == ("refused", False)
    assert decision["outcome"] == "not_attempted"
    why = {"deny": "not at night", "withdraw": "over", "": "its approval is pending"}
    assert why[verb] in decision["reason"]
    assert level(text) == "TR-4"


def test_a_veto_is_a_refusal_that_names_what_was_proposed(server: Any) -> None:
    def on_before_act() -> Veto:
        return Veto("not on Fridays")

    redis = fakeredis.FakeRedis(server=server, decode_responses=True)
    made = plugin(chooses(choice()), Recorder().action(), on_before_act=on_before_act)
    lab = Lab(Agent("test", plugins=[made]), client=redis)
    lab.run()
    site = Site(lab, server)
    text = exported(site)
    site.services.stop()

    assert decision_of(text)["verdict"] == "refused"
    assert "not on Fridays" in decision_of(text)["reason"]
    assert level(text) == "TR-4"


def test_what_came_to_no_decision_says_why() -> None:
    now = utc_now()
    result = LoopResult(
        id="a:1",
        agent_id="a",
        iteration=1,
        trigger="beat",
        success=False,
        error="abandoned: it hung",
        duration=1.0,
        started_at=now,
        ended_at=now,
    )
    text = write_testimony(FlightRecord(result, missing="the archive does not answer"), now)

    assert decision_of(text)["reason"].endswith("abandoned: it hung")
    assert entries_of(text)[-1]["missing"] == "the archive does not answer"
    assert level(text) == "TR-4"


def test_only_a_verification_confirms_the_outcome(site_of: Callable[..., Site]) -> None:
    site = site_of()
    result = site.lab.store.history.get(1)
    entry = site.lab.store.ledger.get("loop:1")
    assert result is not None
    assert entry is not None
    for verdict, outcome in (("effective", "confirmed"), ("worse", "unconfirmed")):
        seen = {"verdict": verdict, "until": utc_now()}
        verified = entry.patched({"verification": EffectVerification.model_validate(seen)})
        text = write_testimony(FlightRecord(result, executions=[verified]), utc_now())
        assert decision_of(text)["outcome"] == outcome
        assert level(text) == "TR-4"


def test_only_who_may_read_the_audit_trail_gets_the_document(site_of: Callable[..., Site]) -> None:
    site = site_of()

    answer = site.get("/loop/history/1/testimony", headers=site.key("read"))
    assert answer.status_code == 403
    assert site.get("/loop/history/9/testimony").status_code == 404
