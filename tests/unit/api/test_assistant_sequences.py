"""No sequence of messages of an assistant resolves an approval, unfreezes or touches a key."""

from __future__ import annotations

import json
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from api_kit import Site, make_desk
from assistant_kit import rpc_parts
from boyd.models import SCOPES

pytestmark = pytest.mark.long

TOOLS = [
    *("boyd_status", "boyd_history", "boyd_explain_iteration", "boyd_actions_list"),
    *("boyd_runs_submit", "boyd_runs_list", "boyd_runs_show", "boyd_investigate"),
    *("boyd_approvals_list", "boyd_approvals_show", "boyd_propose_action", "boyd_task_show"),
    # What somebody might guess.
    *("boyd_approve", "boyd_approvals_approve", "boyd_approvals_answer", "boyd_deny"),
    *("boyd_unfreeze", "boyd_resume", "boyd_restore", "boyd_keys_create", "boyd_keys_revoke"),
]
METHODS = [
    *("initialize", "ping", "server/discover", "tools/list", "tools/call", "prompts/get"),
    *("resources/read", "resources/list", "tasks/get", "tasks/update", "tasks/cancel"),
    *("tasks/approve", "tasks/result", "approvals/approve", "approvals/deny", "keys/create"),
    *("control/unfreeze", "elicitation/create", "notifications/elicitation/complete"),
    *("completion/complete", "logging/setLevel", "sampling/createMessage"),
]
PROPOSAL = {"agent": "desk", "action": "desk:write", "rationale": "r"}
ANSWERS = st.sampled_from(
    [
        {"action": "accept"},
        {"action": "accept", "content": {"approve": True, "verdict": "approved"}},
        {"action": "decline"},
        {"action": "cancel"},
        {"decision": "approved", "note": "by ann", "actedBy": "ann"},
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=9)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


class Conversation(RuleBasedStateMachine):
    """Assistants with keys of every scope, one of a person, and one limited to another agent."""

    @initialize()
    def begin(self) -> None:
        lab, self.plugin = make_desk(server := fakeredis.FakeServer())
        self.site = Site(lab, server, rate=10_000, burst=10_000)
        lab.whole.fleet.register(lab.engine.entry().patched({"model": "x"}))
        self.keys = [
            self.site.key("read", *({scope} - {"read"}), principal=f"with-{scope}")
            for scope in SCOPES
        ]
        self.keys += [
            self.site.key(*SCOPES, principal="all"),
            self.site.key(*SCOPES, principal="ann", person=True),
            self.site.key("admin", principal="elsewhere", agents=["other"]),
        ]
        self.ids = [self.site.waiting(f"news {n}") for n in range(2)]
        self.tasks = [(self.keys[0], "proposal:desk:00000000-0000-0000-0000-000000000000")]
        # The desk may act, so that whatever runs alone is seen; another agent is frozen.
        lab.whole.fleet.register(lab.engine.entry().patched({"id": "icebox"}))
        self.site.post("/agents/icebox/freeze", {"reason": "too hot"})
        self.known = self._keys()

    def _keys(self) -> Any:
        return [(key.id, key.scopes, key.person) for key in self.site.store.api_keys.all()]

    def _names(self) -> st.SearchStrategy[str]:
        tasks = [name for _, name in self.tasks]
        return st.sampled_from([*self.ids, *tasks, "desk", "desk:write", "desk:publish"])

    def _send(
        self, data: Any, body: bytes, headers: dict[str, str], owner: dict[str, str] | None = None
    ) -> None:
        key = owner or data.draw(st.sampled_from(self.keys))
        more = data.draw(st.sampled_from([{}, {"Idempotency-Key": "k"}, {"If-Match": '"1"'}]))
        kind = {"Content-Type": "application/json"}
        answer = self.site.client.post(
            "/mcp", data=body, headers={**kind, **headers, **key, **more}
        )
        assert answer.status_code != 500, answer.text
        task = ((answer.json or {}).get("result") or {}).get("taskId")
        if task:
            self.tasks.append((key, task))

    @rule(data=st.data(), tool=st.sampled_from(TOOLS))
    def call(self, data: Any, tool: str) -> None:
        """Call a tool, also one that only a guess would name."""
        values = {
            "agent": data.draw(st.sampled_from(["desk", "icebox"])),
            "id": data.draw(self._names()),
            "task": data.draw(self._names()),
            "action": data.draw(st.sampled_from(["desk:write", "desk:publish", "desk:tear"])),
            "params": {"text": data.draw(st.sampled_from(["x", "news 0"]))},
            "rationale": "because",
            "title": "t",
            "description": "d",
            "question": "why?",
        }
        names = data.draw(st.sets(st.sampled_from(sorted(values))))
        body, headers = rpc_parts(
            "tools/call", name=tool, arguments={name: values[name] for name in names}
        )
        self._send(data, json.dumps(body).encode(), headers)

    @rule(data=st.data())
    def propose(self, data: Any) -> None:
        """Propose what would run alone."""
        proposal = {**PROPOSAL, "params": {"text": "x"}}
        body, headers = rpc_parts("tools/call", name="boyd_propose_action", arguments=proposal)
        self._send(data, json.dumps(body).encode(), headers)

    @rule(data=st.data(), verb=st.sampled_from(["get", "update", "cancel"]))
    def task(self, data: Any, verb: str) -> None:
        """Ask for a task, answer what it asks for, or cancel it."""
        answers = {id: data.draw(ANSWERS) for id in self.ids}
        answers[data.draw(self._names())] = data.draw(ANSWERS)
        owner, name = data.draw(st.sampled_from(self.tasks))
        body, headers = rpc_parts(f"tasks/{verb}", taskId=name, inputResponses=answers)
        other = data.draw(st.sampled_from([owner, None]))
        self._send(data, json.dumps(body).encode(), headers, other)

    @rule(data=st.data(), method=st.sampled_from(METHODS), params=JSON, modern=st.booleans())
    def guess(self, data: Any, method: str, params: Any, modern: bool) -> None:
        """Send any method with any parameters, by either revision."""
        body, headers = rpc_parts(method, id=data.draw(self._names()), value=params)
        if not modern:
            body, headers = {**body, "params": params}, {}
        self._send(data, json.dumps(body).encode(), headers)

    @rule(data=st.data(), answer=ANSWERS)
    def respond(self, data: Any, answer: Any) -> None:
        """Send what would be the response to a request of the server."""
        body = {"jsonrpc": "2.0", "id": data.draw(self._names()), "result": answer}
        self._send(data, json.dumps(body).encode(), {})

    @rule(data=st.data(), field=st.sampled_from(["jsonrpc", "id", "method", "params"]), to=JSON)
    def mutate(self, data: Any, field: str, to: Any) -> None:
        """Send a proposal of which one part is anything, or of which a part is missing."""
        proposal = {**PROPOSAL, "params": {"text": "x"}}
        body, headers = rpc_parts("tools/call", name="boyd_propose_action", arguments=proposal)
        text = json.dumps({**body, field: to}).encode()
        cut = data.draw(st.integers(0, len(text)) | st.none())
        self._send(data, text[:cut], headers)

    @invariant()
    def nothing_was_decided(self) -> None:
        if not hasattr(self, "site"):
            return
        page = self.site.lab.store.approvals.page(500, None, True)
        assert {item.id for item in page.pending} >= set(self.ids)
        assert page.history == []
        assert self.site.store.agent("icebox").loop_control.status().frozen == "too hot (by alice)"
        assert self._keys() == self.known
        assert self.plugin.done == []

    def teardown(self) -> None:
        if hasattr(self, "site"):
            self.site.services.stop()


Conversation.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


TestConversation = Conversation.TestCase
