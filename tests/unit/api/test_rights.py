"""Rights limit their holder by every way that starts, answers or undoes an action."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fakeredis
import pytest
from pydantic import BaseModel, ConfigDict, Field

from api_kit import Site
from assistant_kit import rpc_parts
from boyd import Agent, Perform, Plugin, Procedure, ProcedureStep, action, endpoint
from boyd.models import ActionResult, EndpointRequest
from boyd.plugin import Action
from boyd.testing import Lab
from boyd_api.app import ALL
from console_kit import Browser
from kit import plugin
from lab_redis import client_of

Way = Callable[[Site, dict[str, str], str], Any]


class Host(BaseModel):
    """Params with a target that has another name on the wire, and a default."""

    model_config = ConfigDict(populate_by_name=True)

    host: str = Field(default="db-1", alias="on")


class Fleet(Plugin):
    """Restarts and scales hosts."""

    id = "fleet"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.done: list[str] = []

    @action(target="host", concurrency=0)
    def restart(self, params: Host) -> str:
        """Restart a host."""
        self.done.append(f"restart {params.host}")
        return "restarted"

    @restart.dry_run
    def would_restart(self, params: Host) -> str:
        """Tell what would be restarted."""
        return f"would restart {params.host}"

    @restart.rollback
    def start_again(self, params: Host, result: ActionResult) -> str:
        """Start the host again."""
        self.done.append(f"undo {params.host}")
        return "undone"

    @action(target="host", concurrency=0, autonomy="approval-required")
    def scale(self, params: Host) -> str:
        """Scale a host."""
        self.done.append(f"scale {params.host}")
        return "scaled"

    @scale.dry_run
    def would_scale(self, params: Host) -> str:
        """Tell what would be scaled."""
        return f"would scale {params.host}"

    @endpoint("POST", "/restart/{host}")
    def ask(self, request: EndpointRequest) -> Perform:
        """Have a host restarted."""
        return Perform("fleet:restart", {"on": request.path["host"]})


def renewal(done: list[str]) -> Plugin:
    """A procedure with one step."""

    def work(params: dict[str, Any]) -> None:
        done.append("step")

    step = ProcedureStep(id="one", action="own:work")
    procedure = Procedure(name="renew", steps=[step], params=Host, target="host")
    return plugin(procedure, Action(name="work", execute=work), id="own")


@pytest.fixture(name="fleet")
def _fleet() -> Fleet:
    return Fleet()


@pytest.fixture(name="place")
def _place(server: Any, fleet: Fleet) -> Iterator[Site]:
    client = client_of(server)
    lab = Lab(Agent("farm", plugins=[fleet, renewal(fleet.done)]), client=client)
    site = Site(lab, server, rights={"web": ["approve fleet:scale on web-*"]}, max_wait=10)
    yield site
    site.services.stop()


def holder(site: Site, *may: str, **settings: Any) -> dict[str, str]:
    """The headers of a key that may only do that."""
    who = {"principal": "ann", "person": True, **settings}
    return site.key("read", "runs", "actions", "approvals", may=may, **who)


def waiting(site: Site, host: str) -> str:
    response = site.post("/actions/fleet:scale", {"params": {"on": host}})
    return str(response.json["approvalId"])


def execute_on(site: Site, host: str) -> str:
    response = site.post("/actions/fleet:restart", {"params": {"on": host}})
    return str(response.json["executionId"])


def stop_on(site: Site, host: str) -> str:
    """A procedure that waits for a person."""
    fields = {
        "id": "loop:1",
        "action": "own:renew",
        "target": host,
        "state": "stopped",
        "params": "{}",
        "steps": "[]",
        "at": 0,
        "startedAt": 1,
        "until": 2,
        "stoppedAt": 1,
    }
    site.lab.client.hset("boyd:{farm}:procedure:loop:1", mapping=fields)
    return "loop:1"


def approval_post(verb: str) -> Way:
    return lambda site, key, host: site.post(
        f"/approvals/{waiting(site, host)}/{verb}", headers=key
    )


def bulk_post(verb: str) -> Way:
    def send(site: Site, key: dict[str, str], host: str) -> Any:
        body = {"ids": [waiting(site, host)]}
        answer = site.post(f"/approvals/{verb}", body, headers=key)
        [result] = answer.json["results"]
        answer.status_code = 200 if result["success"] else result["problem"]["status"]
        return answer

    return send


def procedure_post(verb: str) -> Way:
    return lambda site, key, host: site.post(
        f"/procedures/{stop_on(site, host)}/{verb}", headers=key
    )


def take(name: str) -> Way:
    return lambda site, key, host: site.post(
        f"/actions/{name}", {"params": {"on": host}}, headers=key
    )


#: The ways that need a right: of each the route, the right, and how to go.
WAYS: dict[str, tuple[str, str, Way]] = {
    "execute": ("POST /actions/<action:id>", "run fleet:restart", take("fleet:restart")),
    "propose": ("POST /actions/<action:id>", "propose fleet:scale", take("fleet:scale")),
    "start a procedure": ("POST /actions/<action:id>", "run own:renew", take("own:renew")),
    "dry run": (
        "POST /actions/<action:id>/dry-run",
        "propose fleet:restart",
        take("fleet:restart/dry-run"),
    ),
    "roll back": (
        "POST /executions/<id>/rollback",
        "rollback fleet:restart",
        lambda site, key, host: site.post(
            f"/executions/{execute_on(site, host)}/rollback", headers=key
        ),
    ),
    "approve": ("POST /approvals/<id>/approve", "approve fleet:scale", approval_post("approve")),
    "deny": ("POST /approvals/<id>/deny", "approve fleet:scale", approval_post("deny")),
    "withdraw": ("POST /approvals/<id>/withdraw", "approve fleet:scale", approval_post("withdraw")),
    "preview": ("POST /approvals/<id>/preview", "approve fleet:scale", approval_post("preview")),
    "approve all": ("POST /approvals/approve", "approve fleet:scale", bulk_post("approve")),
    "deny all": ("POST /approvals/deny", "approve fleet:scale", bulk_post("deny")),
    "withdraw all": ("POST /approvals/withdraw", "approve fleet:scale", bulk_post("withdraw")),
    "cancel a procedure": (
        "POST /procedures/<id>/cancel",
        "approve own:renew",
        procedure_post("cancel"),
    ),
    "resume a procedure": (
        "POST /procedures/<id>/resume",
        "approve own:renew",
        procedure_post("resume"),
    ),
}
#: Ways whose refusal has another form, or that check less; each has a test of its own.
OTHERS = {
    "POST /executions/<id>/cancel",
    "POST /plugins/<plugin>/<rest:path>",
    "PUT /plugins/<plugin>/<rest:path>",
    "PATCH /plugins/<plugin>/<rest:path>",
    "DELETE /plugins/<plugin>/<rest:path>",
    "POST /mcp",
    "POST /investigations",
    "POST /investigations/<id>/messages",
}
#: Ways that start, answer or roll back no action of a person's choice.
UNLIMITED = {
    "what the agent decides itself": [
        *("POST /loop/trigger", "POST /intake/<format>", "POST /runs", "POST /loop/abandon"),
        *("POST /runs/<id>/cancel", "POST /runs/<id>/callback/redeliver"),
        "POST /investigations/<id>/cancel",
    ],
    "stops or starts all actions alike": [
        *("POST /pause", "POST /resume", "POST /freeze", "POST /unfreeze", "POST /freeze-all"),
        *("POST /unfreeze-all", "POST /revoke", "POST /restore", "POST /retire"),
    ],
    "administration, which could create a key without limits": [
        *("POST /keys", "DELETE /keys/<id>", "POST /holds/lift", "POST /autonomy/revoke"),
    ],
    "signs in": ["POST /login-links"],
    "says who looks after it, and answers nothing": [
        *("POST /approvals/<id>/acknowledge", "POST /approvals/<id>/release"),
        *("POST /anomalies/<id>/acknowledge", "POST /anomalies/<id>/release"),
    ],
}


def test_every_route_that_changes_something_needs_a_right_or_says_why_not() -> None:
    changing = {f"{route.method} {route.path}" for route in ALL if route.method != "GET"}
    unlimited = {route for routes in UNLIMITED.values() for route in routes}

    assert changing == {route for route, _, _ in WAYS.values()} | OTHERS | unlimited


@pytest.mark.parametrize("way", WAYS)
def test_a_right_for_the_target_lets_its_holder_go(place: Site, way: str) -> None:
    _, right, go = WAYS[way]
    answer = go(place, holder(place, f"{right} on web-*"), "web-3")

    assert answer.status_code < 300, answer.json


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("other", ["on db-*", "on web-3x", "other action", "other verb"])
def test_without_the_right_nothing_is_done(place: Site, fleet: Fleet, way: str, other: str) -> None:
    _, right, go = WAYS[way]
    verb, name = right.split()
    others = {
        "other action": f"{verb} {name}x on *",
        "other verb": f"{'rollback' if verb == 'approve' else 'approve'} {name}",
    }
    answer = go(place, holder(place, others.get(other, f"{right} {other}")), "web-3")

    assert answer.status_code == 403, answer.json
    text = answer.text
    assert f"lacks the right '{right.replace('run', 'propose')} on web-3'" in text
    assert "an administrator can create a key with it" in text
    assert place.get("/approvals").json["history"] == []
    assert not any(entry.startswith(("scale", "undo", "step")) for entry in fleet.done)


def test_without_any_rights_scopes_decide(place: Site, fleet: Fleet) -> None:
    for number, (_, _, go) in enumerate(WAYS.values()):
        key = holder(place, principal=f"ann{number}")
        assert go(place, key, "db-7").status_code < 300
    assert "restart db-7" in fleet.done


def test_with_the_right_to_propose_alone_an_action_waits_for_a_person(
    place: Site, fleet: Fleet
) -> None:
    key = holder(place, "propose fleet:restart on web-*")
    response = take("fleet:restart")(place, key, "web-3")
    item = place.get(f"/approvals/{response.json['approvalId']}").json

    assert response.status_code == 202
    assert item["reason"] == "ann lacks the right 'run fleet:restart on web-3'"
    assert fleet.done == []
    place.post(f"/approvals/{item['id']}/approve")
    assert fleet.done == ["restart web-3"]


@pytest.mark.parametrize("params", [{}, {"host": "db-1"}], ids=["default", "other name"])
def test_the_worker_knows_the_target_that_the_request_does_not_name(
    place: Site, fleet: Fleet, params: dict[str, str]
) -> None:
    key = holder(place, "run fleet:restart on web-*")
    response = place.post("/actions/fleet:restart", {"params": params}, headers=key)

    assert response.json["success"] is False
    assert "lacks the right 'propose fleet:restart on db-1'" in response.json["result"]["error"]
    assert fleet.done == []


@pytest.mark.parametrize("host", ["web-3\n", "\nweb-3", "web-3\r\nx", "wéb-3", "web-3/../db-1"])
def test_a_target_with_odd_characters_is_not_the_one_that_is_named(
    place: Site, fleet: Fleet, host: str
) -> None:
    key = holder(place, "run fleet:restart on web-3")

    assert take("fleet:restart")(place, key, host).status_code == 403
    assert fleet.done == []


def test_the_action_of_an_endpoint_needs_the_right(place: Site, fleet: Fleet) -> None:
    key = holder(place, "run fleet:restart on web-*")
    refused = place.post("/plugins/fleet/restart/db-1", headers=key).json
    done = place.post("/plugins/fleet/restart/web-1", headers=key).json

    assert "lacks the right 'propose fleet:restart on db-1'" in refused["result"]["error"]
    assert done["success"] is True
    assert fleet.done == ["restart web-1"]


def test_an_assistant_needs_the_right_to_propose(place: Site) -> None:
    key = holder(place, "propose fleet:scale on web-*", principal="robot", person=False)

    def propose(host: str) -> str:
        wish = {"action": "fleet:scale", "params": {"on": host}, "rationale": "x"}
        body, headers = rpc_parts("tools/call", name="boyd_propose_action", arguments=wish)
        return str(place.client.post("/mcp", json=body, headers={**headers, **key}).text)

    assert "lacks the right 'propose fleet:scale on db-1'" in propose("db-1")
    assert "taskId" in propose("web-1")
    assert [item["target"] for item in place.get("/approvals").json["pending"]] == ["web-1"]


def test_cancelling_a_queued_execution_needs_the_right_to_the_action(place: Site) -> None:
    place.dispatcher.held = True
    response = place.post("/actions/fleet:restart?wait=0", {"params": {"on": "web-1"}})
    path = f"/executions/{response.json['executionId']}/cancel"

    assert place.post(path, headers=holder(place, "approve *")).status_code == 403
    assert place.post(path, headers=holder(place, "propose fleet:restart")).status_code == 200


def test_groups_have_rights_in_the_settings_and_a_key_of_its_own_comes_first(place: Site) -> None:
    member = place.key("read", "approvals", principal="ann", groups=["web", "others"])
    other = place.key("read", "approvals", principal="bob", groups=["others"])
    own = place.key("approvals", principal="cid", groups=["web"], may=["approve fleet:* on db-*"])

    refused = place.post(f"/approvals/{waiting(place, 'db-1')}/approve", headers=member)
    assert refused.status_code == 403
    assert "ann in the group web lacks the right" in refused.json["detail"]
    assert "the setting rights.web" in refused.json["detail"]
    for key, host in [(member, "web-1"), (other, "db-2"), (own, "db-3")]:
        answer = place.post(f"/approvals/{waiting(place, host)}/approve", headers=key)
        assert answer.status_code == 200, answer.json


def test_a_vote_stops_counting_when_its_group_loses_the_right(place: Site, server: Any) -> None:
    member = place.key("approvals", principal="ann", groups=["web"])
    id = waiting(place, "web-1")
    place.lab.client.hset(f"boyd:{{farm}}:approval:{id}", "required", '{"minApprovals":2}')
    assert place.post(f"/approvals/{id}/approve", headers=member).status_code == 202
    later = Site(place.lab, server, rights={"web": []})
    answer = later.post(f"/approvals/{id}/approve", headers=holder(place, principal="bob"))
    later.services.stop()

    assert answer.status_code == 202
    assert [vote["by"] for vote in answer.json["approval"]["approvals"]] == ["bob"]
    [dropped] = [
        entry
        for entry in place.get("/audit").json["entries"]
        if entry["kind"] == "approval.vote-dropped"
    ]
    assert "lacks the right 'approve fleet:scale on web-1'" in dropped["note"]


def test_lists_show_what_the_reader_may_not_answer(place: Site) -> None:
    key = holder(place, "approve fleet:scale on web-*")
    ids = {host: waiting(place, host) for host in ("web-1", "db-1")}
    pending = place.get("/approvals", headers=key).json["pending"]
    lacking = {item["target"]: item.get("noRight") for item in pending}

    assert lacking["web-1"] is None
    assert "lacks the right 'approve fleet:scale on db-1'" in lacking["db-1"]
    browser = Browser(place, key)
    assert "db-1" not in browser.get("/console/").text
    assert "no right to answer" in browser.get("/console/?tab=others").text
    page = browser.get(f"/console/agents/farm/approvals/{ids['db-1']}")
    assert "lacks the right 'approve fleet:scale on db-1'" in page.text
    assert "?answer=" not in page.source
    assert "disabled" in page.source


@pytest.mark.parametrize("verb", ["approve", "deny", "withdraw"])
def test_forms_of_the_console_need_the_right(place: Site, fleet: Fleet, verb: str) -> None:
    id = waiting(place, "db-1")
    browser = Browser(place, holder(place, "approve fleet:scale on web-*"))
    unlimited = Browser(place, holder(place, principal="bob"))
    form = unlimited.get(f"/console/agents/farm/approvals/{id}?answer={verb}").form("/answer")
    csrf: dict[str, Any] = {"csrf": browser.get("/console/").form("/logout").fields["csrf"]}
    refused = browser.send(form, **csrf)
    several = browser.send(
        form.__class__("/console/answer-several", {}),
        **csrf,
        verb=verb,
        chosen=f"farm/{id}/1",
        confirmed="1",
    )

    assert "Your answer does not count" in refused.text
    assert "lacks the right" in several.text
    assert place.get(f"/approvals/{id}").json["status"] == "pending"


def explain(site: Site, *question: str, key: dict[str, str] | None = None) -> Any:
    names = ("verb", "action", "target", "principal")
    query = dict(zip(names, question, strict=False))
    return site.get("/rights", query_string=query, headers=key or {})


def test_administrators_get_the_reasons_for_each_key_of_a_principal(place: Site) -> None:
    holder(place, "approve fleet:scale on web-*")
    place.key("read", principal="ann", name="old")
    answer = explain(place, "approve", "fleet:scale", "web-3", "ann").json
    old, limited = sorted(answer["identities"], key=lambda identity: identity["allowed"])

    assert (answer["allowed"], limited["allowed"], old["allowed"]) == (True, True, False)
    assert "it lacks the scope 'approvals'" in [step["reason"] for step in old["steps"]]
    reasons = [step["reason"] for step in limited["steps"]]
    assert reasons[0] == "it has the scope 'approvals'"
    assert reasons[1].endswith("of ann may 'approve fleet:scale on web-*'")
    assert reasons[2].startswith("approvals.required admits ann: one approval, by anyone")
    refused = explain(place, "approve", "fleet:scale", "db-1", "ann").json
    assert refused["allowed"] is False


def test_without_rights_scopes_alone_decide(place: Site) -> None:
    reason = "no rights are set: scopes alone decide"

    assert reason in explain(place, "run", "fleet:restart").text


def test_others_ask_only_about_themselves(place: Site) -> None:
    key = holder(place, "approve fleet:scale on web-*")

    assert explain(place, "approve", "fleet:scale", "web-1", key=key).json["allowed"] is True
    assert explain(place, "run", "fleet:scale", "web-1", "ann", key=key).status_code == 200
    refused = explain(place, "run", "fleet:scale", "web-1", "alice", key=key)
    assert (refused.status_code, refused.json["scope"]) == (403, "admin")
    limited = place.key("admin", agents=["farm"], principal="eve")
    assert explain(place, "run", "fleet:scale", "x", "alice", key=limited).status_code == 403
    assert explain(place, "run", "fleet:scale", "x", "nobody").status_code == 404
    assert explain(place, "run", "fleet:unknown", "x").status_code == 404


def test_a_thousand_rights_cost_no_command_of_redis(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Any] = []
    execute: Any = fakeredis.FakeRedis.execute_command
    here = threading.get_ident()

    def count(self: Any, *args: Any, **options: Any) -> Any:
        if threading.get_ident() == here:
            commands.append(args[0])
        return execute(self, *args, **options)

    monkeypatch.setattr(fakeredis.FakeRedis, "execute_command", count)

    def cost(key: dict[str, str]) -> list[Any]:
        id = waiting(place, "web-1")
        commands.clear()
        assert place.post(f"/approvals/{id}/deny", headers=key).status_code == 200
        return list(commands)

    many = [f"approve fleet:scale on db-{number}" for number in range(999)]
    none, all_of_them = holder(place), holder(place, *many, "approve fleet:scale on web-*")

    def least(key: dict[str, str]) -> list[Any]:
        """Without what is read once, or once in a while."""
        return min((cost(key) for _ in range(3)), key=len)

    assert least(all_of_them) == least(none)


def test_a_key_that_is_revoked_while_it_answers_counts_before_or_not_at_all(place: Site) -> None:
    for _ in range(20):
        key = holder(place, "approve fleet:scale on web-*")
        id = waiting(place, "web-1")
        text = key["Authorization"].split("_")[1]
        place.dispatcher.held = True
        with ThreadPoolExecutor(2) as pool:
            answers = [
                pool.submit(place.post, f"/approvals/{id}/deny", headers=key),
                pool.submit(place.open, "DELETE", f"/keys/{text}"),
            ]
            denied, revoked = [answer.result(60).status_code for answer in answers]
        status = place.get(f"/approvals/{id}").json["status"]
        assert revoked == 200
        assert (denied, status) in {(200, "denied"), (401, "pending")}
        place.dispatcher.held = False
        place.post(f"/approvals/{id}/deny")
