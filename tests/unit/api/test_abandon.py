"""`POST /loop/abandon` ends what is in flight, for those who may."""

from __future__ import annotations

from api_kit import Site


def start_iteration(site: Site) -> int:
    """Start an iteration that no worker takes further."""
    number = site.lab.launcher.trigger("test").iteration
    site.lab.step()
    return number


def test_an_iteration_in_flight_is_abandoned_with_the_reason_and_who_gave_it(site: Site) -> None:
    number = start_iteration(site)
    answer = site.post("/loop/abandon", {"reason": "it hangs"})
    past = site.get(f"/loop/history/{number}").json

    assert answer.status_code == 200
    assert answer.json["iteration"] == number
    assert past["success"] is False
    assert past["error"] == answer.json["error"]
    assert past["error"].startswith("abandoned: it hangs (by ")


def test_a_request_that_comes_again_with_its_key_is_answered_as_before(site: Site) -> None:
    start_iteration(site)
    key = {**site.admin, "Idempotency-Key": "abandon-1"}
    first = site.post("/loop/abandon", headers=key)
    again = site.post("/loop/abandon", headers=key)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json == again.json


def test_only_the_iteration_in_flight_can_be_abandoned(site: Site) -> None:
    idle = site.post("/loop/abandon")
    number = start_iteration(site)
    other = site.post("/loop/abandon", {"iteration": number + 1})

    assert (idle.status_code, other.status_code) == (409, 409)
    assert idle.json["detail"] == "no iteration is in flight"
    assert site.get("/loop/status").json["iteration"] == number


def test_the_trigger_scope_does_not_permit_abandoning(site: Site) -> None:
    number = start_iteration(site)
    answer = site.post("/loop/abandon", headers=site.key("trigger"))

    assert answer.status_code == 403
    assert site.get("/loop/status").json["iteration"] == number
