"""Procedures in the API and on the pages: the plan, the state of each step, and the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from api_kit import Site
from boyd import Procedure, ProcedureStep, naming
from boyd.models import Autonomy, describe_outcome
from boyd.plugin import Action
from boyd.testing import Lab
from boyd_api.console import inbox_list
from console_kit import Browser
from kit import agent, choice, chooses, overdue, person
from lab_redis import client_of

PAGE = "/console/agents/test"


class Host(BaseModel):
    """The params of an action on a host."""

    host: str


ASKING = Autonomy(mode="approval-required")


@pytest.fixture
def effects_of_steps() -> list[str]:
    """The effects of the steps."""
    return []


@pytest.fixture
def farm(server: Any, effects_of_steps: list[str]) -> Lab:
    """An agent with a procedure whose second step loses its outcome."""

    def drain() -> None:
        effects_of_steps.append("drain")

    def restart() -> Any:
        effects_of_steps.append("restart")
        return {"action": "p:restart"}

    actions = [
        Action(name="drain", execute=drain, rollback=lambda: effects_of_steps.append("undrain")),
        Action(name="restart", execute=restart, autonomy=ASKING, dry_run=lambda: "would restart"),
    ]
    steps = [ProcedureStep(id="drain", action="p:drain"), ProcedureStep(id="ok", ask="Go on?")]
    steps.append(ProcedureStep(id="restart", action="p:restart"))
    redis = client_of(server)
    return Lab(agent(Procedure(name="renew", steps=steps), *actions), client=redis)


@pytest.fixture
def place(farm: Lab, server: Any) -> Iterator[Site]:
    """An API over it."""
    site = Site(farm, server)
    yield site
    site.services.stop()


@pytest.fixture
def ann(place: Site) -> Browser:
    """The browser of a person who may do everything."""
    return Browser(place, place.key("admin", principal="ann", person=True))


def go_on(lab: Lab) -> None:
    """Let workers do what there is to do."""
    for _ in range(8):
        for name in lab.client.zrange("boyd:{test}:due", 0, -1):
            if name.startswith(("procedure:", "approval:")):
                overdue(lab, name)


def start_procedure(place: Site) -> str:
    """Approve the procedure; it waits at its question then."""
    approval_id = place.post("/actions/p:renew").json["approvalId"]
    bob = place.key("approvals", principal="bob", person=True)
    place.post(f"/approvals/{approval_id}/approve?wait=0", headers=bob)
    go_on(place.lab)
    return f"approval:{approval_id}"


def test_the_page_of_the_approval_shows_the_plan_and_then_its_state(
    ann: Browser, place: Site
) -> None:
    approval_id = place.post("/actions/p:renew").json["approvalId"]
    response = ann.get(f"{PAGE}/approvals/{approval_id}")
    assert "3 steps, which this approval allows as they are here" in response.text
    assert "ok asks a person: Go on?" in response.text
    assert "would restart" in response.text

    id = start_procedure(place)
    response = ann.get(f"{PAGE}/approvals/{id.removeprefix('approval:')}")
    assert "step 2 of 3 (ok) waits for approval" in response.text
    assert "done drain" in response.text


def test_the_page_of_the_agent_cancels_a_procedure(
    ann: Browser, place: Site, effects_of_steps: list[str]
) -> None:
    start_procedure(place)
    page = ann.get(PAGE)
    assert "step 2 of 3 (ok) waits for approval" in page.text
    ann.send(page.form("/procedures/cancel"))
    go_on(place.lab)

    assert effects_of_steps == ["drain", "undrain"]
    assert "cancelled by ann" in ann.get(PAGE).text


def stop_by_freeze(place: Site) -> str:
    """Freeze the actions before the step after the question begins."""
    id = start_procedure(place)
    record = place.get(f"/procedures/{id}").json
    bob = place.key("approvals", principal="bob", person=True)
    place.dispatcher.held = True
    place.post(f"/approvals/{record['progress'][1]['approval']}/approve?wait=0", headers=bob)
    place.post("/freeze", {"reason": "maintenance"})
    place.dispatcher.held = False
    go_on(place.lab)
    return id


def test_a_stopped_procedure_is_resumed_from_the_page(
    ann: Browser, place: Site, effects_of_steps: list[str]
) -> None:
    id = stop_by_freeze(place)
    assert place.get("/procedures").json["procedures"][0]["state"] == "stopped"
    page = ann.get(PAGE)
    assert "stopped, step 2 of 3 (ok)" in page.text
    assert "frozen" in page.text
    assert "stopped ok asks a person: Go on?" in page.text

    place.post("/unfreeze")
    ann.send(page.form("/procedures/resume"), how="go on")
    go_on(place.lab)
    again = place.get(f"/procedures/{id}").json["progress"][1]["approval"]
    bob = place.key("approvals", principal="bob", person=True)
    place.post(f"/approvals/{again}/approve?wait=0", headers=bob)
    go_on(place.lab)
    assert place.get(f"/procedures/{id}").json["state"] == "succeeded"
    assert effects_of_steps == ["drain", "restart"]


def test_a_stop_for_the_reader_is_named_behind_many_that_others_resume(
    ann: Browser, place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = stop_by_freeze(place)
    keys, client = place.lab.store.procedures._keys, place.lab.client
    record = client.hgetall(keys.job(naming.procedure(id)))
    for number in range(60):
        copied = f"call:{number}"
        client.hset(keys.job(naming.procedure(copied)), mapping={**record, "id": copied})
        client.zadd(keys.procedures_stopped, {copied: number})
    monkeypatch.setattr(
        inbox_list, "resume_refusal", lambda _, stop: "" if stop.id == id else "not yours"
    )

    inbox = ann.get("/console/").text
    assert "test : p:renew is stopped: step ok: " in inbox
    assert "Nothing waits for you" not in inbox
    assert "p:renew is stopped (and 59 others)" in ann.get("/console/?tab=others").text
    page = ann.get(PAGE)
    assert "61 stopped procedures : resume or cancel them" in page.text
    assert page.form("/procedures/resume")
    assert "56 others are stopped, and shown here when one of these goes on" in page.text


def test_a_stopped_procedure_waits_for_a_person_on_every_page(ann: Browser, place: Site) -> None:
    id = stop_by_freeze(place)
    # So many later ones push it out of the latest.
    place.lab.client.zadd("boyd:{test}:procedures", {f"call:{n}": 2e15 + n for n in range(6)})
    reader = Browser(place, place.key("read", person=True))
    place.lab.deliver()

    assert "p:renew is stopped: step ok: " in ann.get("/console/agents").text
    assert "1 waits for a person" in ann.get("/console/agents").text
    assert "Waits for others" in reader.get("/console/agents").text
    page = ann.get(PAGE)
    assert "1 stopped procedure : resume or cancel it" in page.text
    assert "stopped, step 2 of 3 (ok) p:renew" in page.text
    assert page.form("/procedures/resume")
    inbox = ann.get("/console/").text
    assert "test : p:renew is stopped: step ok: " in inbox
    assert "Nothing waits for you" not in inbox
    assert "is stopped" in reader.get("/console/?tab=others").text
    assert "is stopped" not in reader.get("/console/").text
    assert place.get("/agents").json["agents"][0]["stoppedProcedures"] == 1

    place.post(f"/procedures/{id}/cancel")
    assert "is stopped" not in ann.get("/console/").text


def test_a_stopped_procedure_waits_for_others_where_rights_forbid_to_resume_it(
    place: Site,
) -> None:
    stop_by_freeze(place)
    place.lab.deliver()
    rights = {"principal": "cid", "person": True, "may": ["approve p:restart"]}
    limited = Browser(place, place.key("read", "approvals", **rights))
    refusal = "of cid lacks the right 'approve p:renew'; an administrator can"

    assert "is stopped" not in limited.get("/console/").text
    others = limited.get("/console/?tab=others").text
    assert "p:renew is stopped" in others
    assert refusal in others
    assert "Waits for others" in limited.get("/console/agents").text
    page = limited.get(PAGE)
    assert "1 stopped procedure for others to resume or cancel" in page.text
    assert refusal in page.text
    assert "/procedures/" not in page.source


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_an_approved_procedure_has_not_succeeded_before_its_last_step(
    ann: Browser, place: Site, verdict: str
) -> None:
    id = start_procedure(place)
    answered = ann.get("/console/answered")
    assert "execution running" in answered.text
    assert 'data-live="approval procedure"' in answered.source
    address = f"/approvals/{id.removeprefix('approval:')}"
    before = place.get(address).json
    assert before["execution"]["state"] == "running"
    where = before["execution"]["progress"]
    assert where.startswith("step 2 of 3 (ok) waits for approval")
    assert f"Execution: {where}" in ann.get(f"{PAGE}{address}").text
    read = place.lab.store.find_approval(before["id"])
    assert read is not None
    assert describe_outcome(read) == ("Approved by bob", where)

    approval = place.get(f"/procedures/{id}").json["progress"][1]["approval"]
    bob = place.key("approvals", principal="bob", person=True)
    place.post(f"/approvals/{approval}/{verdict}?wait=0", headers=bob)
    go_on(place.lab)
    over = place.get(address).json
    outcome = "succeeded" if verdict == "approve" else "failed"
    assert (over["execution"]["state"], over["result"]["success"]) == (
        outcome,
        verdict == "approve",
    )
    assert over["version"] > before["version"]
    assert f"execution {outcome}" in ann.get(f"{PAGE}{address}").text


def test_an_iteration_has_started_a_procedure_and_says_what_became_of_it(server: Any) -> None:
    steps = [ProcedureStep(id="drain", action="p:drain"), ProcedureStep(id="ok", ask="Go on?")]
    drain = Action(name="drain", execute=lambda: "drained")
    renews = chooses(choice(action="p:renew"))
    lab = Lab(agent(Procedure(name="renew", steps=steps), drain, renews), client=client_of(server))
    place = Site(lab, server)
    ann = Browser(place, place.key("admin", principal="ann", person=True))
    lab.run()
    go_on(lab)
    approval = place.get("/approvals").json["pending"][0]["id"]
    where = f"step 2 of 2 (ok) waits for approval {approval[:8]}"
    response = ann.get(f"{PAGE}/iterations/1")
    assert 'data-live="execution procedure"' in response.source
    results = response.text.partition(" Results ")[2]
    assert results.startswith(f"p:renew {where} ")
    assert "Not verified: the call returned" not in results
    assert f"p:renew: {where}" in ann.get(PAGE).text

    lab.resolver.answer(approval, "approved", person("bob"))
    go_on(lab)
    over = ann.get(f"{PAGE}/iterations/1")
    assert " Results p:renew succeeded " in over.text
    assert 'data-live=""' in over.source
    place.services.stop()


def test_the_page_of_a_target_hears_of_calls_procedures_and_verdicts(ann: Browser) -> None:
    live = ann.get("/console/target?target=web1")
    assert 'data-live="iteration approval call execution procedure"' in live.source
    past = ann.get("/console/target?target=web1&until=2026-01-01T00:00:00Z")
    assert 'data-live=""' in past.source


def test_the_api_refuses_what_cannot_be_done(place: Site) -> None:
    assert place.get("/procedures/loop:99").status_code == 404
    assert place.post("/procedures/loop:99/cancel").status_code == 404
    id = start_procedure(place)
    refused = place.post(f"/procedures/{id}/resume")
    assert (refused.status_code, refused.json["type"].rpartition("/")[2]) == (409, "not-stopped")
    reader = place.key("read", "actions")
    assert place.post(f"/procedures/{id}/cancel", headers=reader).status_code == 403
    place.post(f"/procedures/{id}/cancel", {"note": "no"})
    go_on(place.lab)
    over = place.post(f"/procedures/{id}/cancel")
    assert (over.status_code, over.json["type"].rpartition("/")[2]) == (409, "finished")
    assert place.get(f"/executions/{id}").json["progress"] == "cancelled"
    kinds = [entry["kind"] for entry in place.get("/audit?limit=50").json["entries"]]
    assert {"procedure.started", "procedure.cancelled", "procedure.compensating"} <= set(kinds)


def test_the_page_shows_how_far_a_step_is_with_its_targets(server: Any) -> None:
    def patch(params: Host) -> None:
        if params.host == "<b>3":
            raise OSError("no space left")

    steps = [
        ProcedureStep(
            id="patch",
            action="p:patch",
            params={"host": "${item}"},
            for_each=["web-1", "web-2", "<b>3", "web-4", "web-5", "web-6"],
            wave=[1, "50%"],
            at_once=1,
        )
    ]
    parts = (
        Procedure(name="all", steps=steps, autonomy=ASKING),
        Action(name="patch", execute=patch, params=Host),
    )
    lab = Lab(agent(*parts), client=client_of(server))
    site = Site(lab, server)
    try:
        ann = Browser(site, site.key("admin", principal="ann", person=True))
        bob = site.key("approvals", principal="bob", person=True)
        approval_id = site.post("/actions/p:all").json["approvalId"]
        plan = ann.get(f"{PAGE}/approvals/{approval_id}").text
        assert "for 6 targets: web-1, web-2, <b>3, web-4, web-5 …; in waves of 1, 50%" in plan
        assert "1 at once; stops at 1 failure" in plan

        site.post(f"/approvals/{approval_id}/approve?wait=0", headers=bob)
        for _ in range(12):
            for name in lab.client.zrange("boyd:{test}:due", 0, -1):
                if name.startswith(("procedure:", "approval:", "target:")):
                    overdue(lab, name)
        page = ann.get(PAGE)
        assert "3 of 6, wave 2 of 3, 1 failed" in page.text
        assert "failed <b>3 OSError: no space left" in page.text
        assert '<progress max="6" value="3"' in page.source
    finally:
        site.services.stop()
