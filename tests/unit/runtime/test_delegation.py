"""A policy says what an agent lets other agents do with it."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from api_kit import Site
from boyd import Agent
from boyd.errors import NotDelegated
from boyd.models import Triple
from boyd.testing import Lab
from kit import Recorder, plugin
from lab_redis import client_of

FACT = Triple(subject="web", predicate="is-a", object="server")


def pair(**delegation: Any) -> tuple[Lab, Lab]:
    """Labs of the agents `owner`, which delegates that, and `other`, in one deployment."""
    owner = Lab(Agent("owner", plugins=[plugin()], delegation=delegation))
    other = Lab(Agent("other", plugins=[plugin()]), client=owner.client)
    return owner, other


def refusals(lab: Lab) -> list[tuple[str, str]]:
    """The refused agents and operations, from the audit trail of the lab's agent."""
    lab.store.audit_trail.seal()
    entries = lab.store.audit_trail.page(50).entries
    return [(e.who or "", e.what["of"]) for e in entries if e.kind == "delegation.refused"]


def test_by_default_no_other_agent_sees_a_graph() -> None:
    owner, other = pair()
    ctx = other.engine.context("p")

    with pytest.raises(NotDelegated, match=r"'other' in `read_graph` of the table \[delegation\]"):
        ctx.graph(of="owner")
    assert refusals(owner) == [("agent:other", "read_graph")]
    assert ctx.graph().size() == 0
    assert owner.engine.context("p").graph(of="owner").size() == 0


def test_a_refusal_that_repeats_is_in_the_audit_once() -> None:
    owner, other = pair()
    for _ in range(3):
        with pytest.raises(NotDelegated):
            other.engine.context("p").graph(of="owner")

    assert len(refusals(owner)) == 1


def test_read_access_to_a_graph_does_not_permit_changes() -> None:
    owner, other = pair(read_graph=["other"])
    owner.engine.context("p").graph().add([FACT])
    graph = other.engine.context("p").graph(of="owner")

    assert graph.out("web") == [FACT]
    with pytest.raises(NotDelegated, match="write_graph"):
        graph.add([FACT])
    with pytest.raises(NotDelegated, match="write_graph"):
        graph.remove("web", "is-a", "server")
    assert graph.size() == 1


def test_write_access_to_a_graph_permits_reading() -> None:
    owner, other = pair(write_graph=["other"])
    graph = other.engine.context("p").graph(of="owner")
    graph.add([FACT])

    assert owner.engine.context("p").graph().out("web") == [FACT]
    assert graph.remove("web", "is-a", "server")


def test_a_revoked_agent_loses_what_others_delegate() -> None:
    _, other = pair(write_graph=["other"])
    other.whole.freezes.revoke("other", "stolen key")

    with pytest.raises(NotDelegated, match="'other' to act is revoked: stolen key"):
        other.engine.context("p").graph(of="owner")


def test_an_agent_that_nobody_has_registered_delegates_nothing() -> None:
    _, other = pair()

    with pytest.raises(NotDelegated):
        other.engine.context("p").graph(of="unknown")
    assert other.client.keys("boyd:{unknown}:*") == []


def site(**delegation: Any) -> tuple[Site, Recorder]:
    """An API over the agent `owner`, and what its action was called with."""
    recorder, server = Recorder(), fakeredis.FakeServer()
    client = client_of(server)
    agent = Agent("owner", plugins=[plugin(recorder.action())], delegation=delegation)
    return Site(Lab(agent, client=client), server), recorder


REQUESTS = {
    "runs": ("/agents/owner/runs", {"title": "a", "description": "b"}),
    "trigger": ("/agents/owner/loop/trigger", {}),
    "actions": ("/agents/owner/actions/p:do", {"params": {}}),
}


@pytest.mark.parametrize(
    ("scope", "field"), [("runs", "runs"), ("trigger", "runs"), ("actions", "actions")]
)
def test_the_api_lets_an_agent_do_only_what_is_delegated(scope: Any, field: str) -> None:
    path, body = REQUESTS[scope]
    closed, recorder = site()
    refused = closed.post(path, body, headers=closed.key(scope, principal="agent:other"))
    assert refused.status_code == 403
    assert f"'other' in `{field}`" in refused.json["detail"]
    assert refusals(closed.lab) == [("agent:other", field)]
    assert recorder.calls == []

    opened, _ = site(**{field: ["other"]})
    done = opened.post(path, body, headers=opened.key(scope, principal="agent:other"))
    assert done.status_code < 300


def test_an_endpoint_that_only_reads_runs_code_of_the_agent_and_has_to_be_delegated() -> None:
    desk, _ = site()
    path = "/agents/owner/plugins/p/graph"
    refused = desk.get(path, headers=desk.key("read", principal="agent:other"))

    assert refused.status_code == 403
    assert desk.get(path, headers=desk.key("read", principal="ann")).status_code == 404


def test_an_agent_reaches_itself_and_people_reach_all() -> None:
    desk, _ = site()
    for principal in ("agent:owner", "ann"):
        headers = desk.key("runs", principal=principal)
        assert desk.post(*REQUESTS["runs"], headers=headers).status_code == 201


@pytest.mark.parametrize("who", ["agent:other", "agent:owner"])
@pytest.mark.parametrize("path", ["/agents/owner/restore", "/freeze-all", "/keys"])
def test_no_agent_administers_others_or_itself(path: str, who: str) -> None:
    desk, _ = site(runs=["other"], actions=["other"])
    headers = desk.key("admin", principal=who)
    body = {"name": "k", "principal": "p", "scopes": ["read"]} if path == "/keys" else {}
    refused = desk.post(path, body, headers=headers)

    assert refused.status_code == 403
    assert "no agent may use the scope 'admin'" in refused.json["detail"]


def test_an_agent_has_no_console() -> None:
    from console_kit import Browser

    desk, _ = site()
    browser = Browser(desk, desk.key("admin", principal="agent:other"))

    assert browser.get("/console/agents/owner").status == 403
