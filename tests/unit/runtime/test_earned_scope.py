"""A grant is limited to the class, the targets and the params of its record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autonomy_kit import ACTION, Ward, rule_of
from boyd import naming
from boyd.models import ApprovalItem, CallScope, Coverage, Gate, JsonObject, TrackRecord
from boyd.models.situation import kind_of
from kit import person

TRACKS = "boyd:{test}:track:p:do"
NO_TRIAL: JsonObject = {"holdout": 0, "require_uplift": False}
#: Earned after six effective executions without a failure.
EARLY: JsonObject = {"mode": "earned", "at_least": 0.5, "after": 5, **NO_TRIAL}


def offer_of(ward: Ward) -> ApprovalItem | None:
    """The pending offer to let the action run alone."""
    pending = ward.lab.store.approvals.page(20, history=False).pending
    return next((item for item in pending if item.action_id == naming.GRANT), None)


def decide(ward: Ward, host: str, by: int = 1, verdict: Any = True) -> Gate:
    """Let the agent decide on a host, people approve it if asked, and it be verified."""
    ward.host, ward.by, ward.verdict = host, by, False
    result = ward.lab.run()
    assert result.gate is not None
    if ward.pending:
        ward.approve()
    ward.verdict = verdict
    ward.look()
    return result.gate


def earn(ward: Ward, *calls: tuple[str, int]) -> None:
    """Let the action be effective until it is offered, and grant it."""
    for number in range(40):
        decide(ward, *calls[number % len(calls)])
        offer = offer_of(ward)
        if offer:
            ward.lab.resolver.answer(offer.id, "approved", person("ann"))
            ward.lab.deliver()
            return
    raise AssertionError("it was never offered")


def outcomes_until_offer(hosts: list[str]) -> int:
    """The effective outcomes after which an action is offered that acts on *hosts* in turn."""
    ward = Ward({**EARLY, "at_least": 0.8})
    for number in range(100):
        decide(ward, hosts[number % len(hosts)])
        if offer_of(ward):
            return number + 1
    raise AssertionError("it was never offered")


@pytest.mark.long
def test_a_fleet_earns_with_at_most_twice_the_outcomes_of_one() -> None:
    pods = [f"shop-7d9f8b6c5-x{number:02}zk" for number in range(60)]

    assert outcomes_until_offer([f"web-{number}" for number in range(60)]) <= 2 * (
        outcomes_until_offer(["web-1"])
    )
    assert outcomes_until_offer(pods) <= 2 * outcomes_until_offer(pods[:1])


def test_a_grant_is_limited_to_the_target_and_the_params_of_its_record() -> None:
    ward = Ward(EARLY)
    earn(ward, ("cache", 1))

    assert decide(ward, "cache", 1).outcome == "automatic"
    gate = decide(ward, "payments-db", 100)
    assert gate.outcome == "asked"
    assert gate.reason.endswith(
        "by ann covers only host=cache, by=1, not host=payments-db and by=100"
    )
    gate = decide(ward, "cache", 2)
    assert gate.reason.endswith("covers only host=cache, by=1, not by=2")


def test_three_targets_of_a_kind_cover_the_kind_and_their_params_a_range() -> None:
    ward = Ward(EARLY)
    earn(ward, ("web-1", 2), ("web-2", 5), ("web-3", 3))

    assert decide(ward, "web-17", 4).outcome == "automatic"
    assert decide(ward, "web-17", 6).outcome == "asked"
    assert decide(ward, "db-17", 4).outcome == "asked"


def test_an_offer_names_what_it_is_limited_to() -> None:
    ward = Ward(EARLY)
    for _ in range(6):
        decide(ward, "cache", 1)
    offer = offer_of(ward)

    assert offer is not None
    assert offer.title == "let p:do run alone: down on cache"
    assert offer.preview is not None
    assert isinstance(offer.preview.output, dict)
    assert offer.preview.output["limitedTo"] == "host=cache, by=1"
    nothing = "no case has waited: nothing shows that it is better than waiting"
    assert offer.preview.output["comparedWithWaiting"] == nothing
    assert nothing in offer.decision.rationale


def test_approvals_outside_of_a_grant_lead_to_a_wider_offer() -> None:
    ward = Ward(EARLY)
    earn(ward, ("cache", 1))
    for _ in range(6):
        assert decide(ward, "cache", 3).outcome == "asked"
    offer = offer_of(ward)

    assert offer is not None
    assert offer.params["covers"] == {
        "parameter": "host",
        "targets": ["cache"],
        "ranges": {"by": [1, 3]},
        "values": {},
    }


def test_no_target_of_a_kind_with_a_grant_is_offered_again() -> None:
    ward = Ward(EARLY)
    earn(ward, ("web-1", 1), ("web-2", 1), ("web-3", 1))
    for number in range(4, 14):
        assert decide(ward, f"web-{number}", 1).outcome == "automatic"

    assert offer_of(ward) is None


def test_a_failure_does_not_widen_what_is_covered() -> None:
    ward = Ward(EARLY)
    decide(ward, "cache", 1)
    decide(ward, "cache", 100, verdict="no effect")

    assert ward.record.covers.ranges == {"by": [1, 1]}


def test_without_anomalies_the_class_has_the_target_and_the_params() -> None:
    ward = Ward(EARLY)
    ward.reports = False
    labels = set()
    for host in ("web-1", "web-2", "db"):
        ward.host = host
        labels.add(class_label(ward))

    assert labels == {"no anomaly on web-*", "no anomaly on db"}


def class_label(ward: Ward) -> str:
    """The label of the class in which an iteration decides."""
    ward.sick = True
    gate = ward.lab.run().gate
    assert gate is not None
    assert gate.record is not None
    return gate.record.label


def grant_rows(ward: Ward, hosts: list[str]) -> None:
    """Let the action run alone on each of *hosts*, as approved offers do."""
    now = ward.lab.store.clock.now().timestamp() * 1000
    for host in hosts:
        ward.host = host
        gate = ward.lab.run().gate
        assert gate is not None
        assert gate.record is not None
        item = ward.pending
        assert item is not None
        ward.lab.resolver.answer(item.id, "denied", person("ann"))
        covers = {"parameter": "host", "targets": [host], "ranges": {"by": [1, 1]}}
        grant = {"id": host, "atLeast": 0.8, "since": now, "until": now + 1e9, "by": ["ann"]}
        row = {"label": host, "effective": 99, "grant": {**grant, "covers": covers}}
        ward.lab.client.hset(TRACKS, gate.record.situation, json.dumps(row))


def grants(ward: Ward) -> int:
    """The number of grants that are left."""
    return sum(record.grant is not None for record in ward.lab.store.track_records.all([ACTION]))


def test_harm_in_one_class_ends_all_grants_of_the_action() -> None:
    ward = Ward({**EARLY, "at_least": 0.8})
    grant_rows(ward, ["cache", "queue", "mail"])
    assert decide(ward, "cache", verdict="worse").outcome == "automatic"

    assert grants(ward) == 0
    [record] = [r for r in ward.lab.store.track_records.all([ACTION]) if r.label == "mail"]
    assert (record.withdrawn, record.effective) == (1, 0)
    assert "all grants of p:do end" in (record.ended or "")


def test_three_failures_over_all_classes_end_all_grants() -> None:
    ward = Ward({**EARLY, "at_least": 0.8})
    hosts = ["cache", "queue", "mail", "proxy"]
    grant_rows(ward, hosts)
    ran = []
    for host in hosts:
        ran.append(decide(ward, host, verdict="no effect").outcome)
        ward.look(final=True)

    # One failure in each class: none of them alone would end its grant.
    assert ran == ["automatic", "automatic", "automatic", "asked"]
    assert grants(ward) == 0


@pytest.mark.long
def test_other_classes_make_nothing_forgotten_that_counts_against_an_action() -> None:
    ward = Ward(EARLY)
    rows = {
        "a-a": {"label": "withdrawn", "withdrawn": 1},
        "a-b": {"label": "failed", "failed": 3},
        "a-c": {"label": "healed", "trial": {"waited": 2, "wellWithout": 1, "needed": 1}},
        "a-d": {"label": "offered", "offered": 5, "effective": 5},
        **{f"b-{n}": {"label": "good", "effective": n, "updated": n} for n in range(46)},
    }
    for key, row in rows.items():
        ward.lab.client.hset(TRACKS, key, json.dumps(row))
    for number in range(51):
        decide(ward, f"host{chr(97 + number // 26)}{chr(97 + number % 26)}")

    keys = set(ward.lab.client.hkeys(TRACKS))
    assert len(keys - {"*"}) <= 50
    assert {"a-a", "a-b", "a-c", "a-d"} <= keys


def test_a_class_that_finds_no_room_earns_nothing() -> None:
    ward = Ward(EARLY)
    for number in range(50):
        row = {"label": "failed", "failed": 1}
        ward.lab.client.hset(TRACKS, f"a-{number}", json.dumps(row))
    decide(ward, "cache")

    assert all(r.label == "failed" for r in ward.lab.store.track_records.all([ACTION]))


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("web-3", "web-*"),
        ("web12", "web*"),
        ("cache", "cache"),
        ("payments-db", "payments-db"),
        ("shop-7d9f8b6c5-x2vzk", "shop-*"),
        ("shop-7d9f8b6c5-bcdfg", "shop-*"),
        ("shop/web-0", "shop/web-*"),
        ("10.0.0.7", "*.*.*.*"),
        ("", ""),
    ],
)
def test_the_kind_of_a_target_has_no_numbers_and_hashes(target: str, kind: str) -> None:
    assert kind_of(target) == kind


VALUES = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6), st.text(max_size=5), st.none())


@given(st.lists(VALUES, min_size=1, max_size=5), VALUES)
def test_a_record_covers_what_was_effective_and_no_number_beyond(
    values: list[Any], other: Any
) -> None:
    numbers = [value for value in values if isinstance(value, int | float)]
    texts = [json.dumps(value) for value in values if value not in numbers]
    ranges = {"by": [min(numbers), max(numbers)]} if numbers else {}
    covers = Coverage(ranges=ranges, values={"by": texts})

    for value in values:
        assert covers.outside(CallScope.of(None, {"by": value}, [])) == []
    if isinstance(other, int | float):
        is_between = bool(numbers) and min(numbers) <= other <= max(numbers)
    else:
        is_between = json.dumps(other) in texts
    assert (covers.outside(CallScope.of(None, {"by": other}, [])) == []) == is_between


def test_a_number_too_large_for_a_float_is_a_value_like_a_text() -> None:
    scope = CallScope.of(None, {"by": 10**400}, [])

    assert Coverage().outside(scope) != []
    assert Coverage(values={"by": [str(scope.params["by"])]}).outside(scope) == []


def test_a_withdrawal_halves_the_error() -> None:
    record = TrackRecord(action=ACTION, situation="s", label="", withdrawn=2)

    assert record.error(rule_of(at_least=0.9)) == pytest.approx(0.0125)
