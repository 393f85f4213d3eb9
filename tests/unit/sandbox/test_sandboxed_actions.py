"""Manifests of actions: sandboxes, results and violations, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from boyd import Agent, ConfigError, Sandbox
from boyd.errors import Overrun
from boyd.models import ActionResult, CallRequest, Hold, LimitViolation
from boyd.phases.action_call import ConfinedCall
from boyd.sandbox.confined_call import ConfinedAnswer
from boyd.testing import Lab
from kit import Recorder, call_result, choice, chooses, overdue, person, plugin

BOX = Sandbox(cpu=10, files=["/var/tmp/work"], network=["api.example.com:443"], violations=2)


class Host:
    """Stands for a host that makes sandboxes."""

    def __init__(self, *answers: Any, missing: str | None = None) -> None:
        self.answers = list(answers)
        self.calls: list[ConfinedCall] = []
        self.lacks = missing

    def find_limit_problem(self, sandbox: Sandbox) -> str | None:
        """The limit that it cannot enforce."""
        return self.lacks

    def call(self, sandbox: Sandbox, call: ConfinedCall, timeout: float) -> ConfinedAnswer:
        """Answer as the test says."""
        self.calls.append(call)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, ConfinedAnswer)
        return answer


def sandbox_answer(output: Any = "done", **fields: Any) -> ConfinedAnswer:
    """An answer from a sandbox."""
    result = ActionResult(action="p:do", success=True, duration=0.0, output=output)
    return ConfinedAnswer(result.to_json(), **fields)


BLOCKED = LimitViolation(
    limit="network", detail="evil.example.com:80 is not among its destinations"
)


def lab_on(host: Host, *more: Any, hooks: dict[str, Any] | None = None, **settings: Any) -> Lab:
    """A lab on *host* whose action has a sandbox."""
    action = Recorder().action(**{"sandbox": BOX, **settings})
    lab = Lab(Agent("test", plugins=[plugin(*more, action, **(hooks or {}))]))
    lab.engine.confiner = host
    return lab


# Sandboxes


def test_an_action_with_a_sandbox_is_called_in_it() -> None:
    host = Host(sandbox_answer({"freed": 3}))
    result = call_result(lab_on(host), params={"size": 1})

    assert (result.success, result.output, result.violation) == (True, {"freed": 3}, None)
    assert [(call.function, call.params) for call in host.calls] == [("execute", {"size": 1})]


def test_an_action_whose_sandbox_cannot_be_enforced_does_not_run_and_says_why() -> None:
    host = Host(missing="`bwrap` is not installed")
    lab = lab_on(host)
    result = call_result(lab)

    assert result.prevented == "unsandboxed"
    assert result.error == ("Its sandbox cannot be enforced on this host: `bwrap` is not installed")
    assert host.calls == []
    assert lab.store.executions.page(5).executions == []


def test_without_the_means_to_make_sandboxes_it_does_not_run() -> None:
    lab = lab_on(Host(sandbox_answer()))
    lab.engine.confiner = None

    assert call_result(lab).prevented == "unsandboxed"


def test_dry_run_and_rollback_are_called_in_it_too() -> None:
    host = Host(sandbox_answer())
    lab = lab_on(host, dry_run=lambda: "would", rollback=lambda: "undone")
    execution = lab.launcher.call(
        CallRequest(kind="execute", action="p:do", actor=person("ann")), None
    )
    lab.deliver()
    call_result(lab, kind="dry-run")
    call_result(lab, kind="rollback", undoes=f"call:{execution}")

    assert [call.function for call in host.calls] == ["execute", "dry_run", "rollback"]
    assert host.calls[2].result is not None
    assert host.calls[2].result.output == "done"


def test_a_verification_is_called_in_it_too() -> None:
    verdict_text = '{"verdict": "worse", "evidence": "more errors", "ends": true}'
    host = Host(sandbox_answer(), ConfinedAnswer(verdict_text))
    lab = lab_on(host, verify=lambda: None)
    result = call_result(lab)
    [name] = [job for job in lab.client.zrange("boyd:{test}:due", 0, -1) if "verify:" in job]
    overdue(lab, name)
    entry = lab.store.executions.get(name.removeprefix("verify:"))

    assert result.success
    assert entry is not None
    assert entry.verification is not None
    assert (entry.verification.verdict, entry.verification.evidence) == ("worse", "more errors")


def test_an_action_killed_in_its_sandbox_has_an_unknown_outcome() -> None:
    violation = LimitViolation(limit="cpu", detail="it was killed for its limit of cpu")
    host = Host(ConfinedAnswer(error=violation.detail, violation=violation, lost=True))
    result = call_result(lab_on(host))

    assert (result.unknown, result.violation) == (True, violation)
    assert result.error == "it was killed for its limit of cpu; it may have taken effect"


def test_one_that_takes_too_long_is_killed_and_that_is_a_violation() -> None:
    result = call_result(lab_on(Host(Overrun("took longer than 60 s"))))

    assert result.violation is not None
    assert (result.violation.limit, result.unknown) == ("time", True)


@pytest.mark.parametrize("answer", ["{}", '{"action": 1}', '"text"', "no json"])
def test_an_answer_that_is_no_result_is_a_failure(answer: str) -> None:
    result = call_result(lab_on(Host(ConfinedAnswer(answer))))

    assert (result.success, result.error) == (False, "it ran, but its answer is not a result")


def test_a_sandboxed_action_cannot_return_fields_that_boyd_sets() -> None:
    claimed = ActionResult(
        action="p:other",
        success=False,
        duration=1,
        error="Approval required",
        waits_for="1a2b3c4d",
        prevented="frozen",
    )
    result = call_result(lab_on(Host(ConfinedAnswer(claimed.to_json()))))

    assert result.action == "p:do"
    assert (result.error, result.waits_for) == ("The action says: Approval required", None)
    assert result.prevented is None


# Violations


def test_repeated_violations_suspend_the_action_on_all_targets() -> None:
    holds: list[Hold] = []
    host = Host(sandbox_answer(violation=BLOCKED))
    hooks = {"on_suspend": lambda hold: holds.append(hold)}
    lab = lab_on(host, chooses(choice(params={"name": "c"})), hooks=hooks, target="name")
    first = call_result(lab, params={"name": "a"})
    assert (first.success, first.violation) == (True, BLOCKED)
    assert lab.store.holds.all() == []
    call_result(lab, params={"name": "b"})
    for name in lab.client.zrange("boyd:{test}:due", 0, -1):
        overdue(lab, name)

    [hold] = lab.store.holds.all()
    assert (hold.kind, hold.because, hold.target) == ("suspended", "violations", "")
    assert holds[0] == hold
    refused = call_result(lab, params={"name": "d"})
    assert refused.prevented == "held"
    assert "p:do is suspended" in (refused.error or "")
    assert "went beyond its sandbox: network: evil.example.com:80" in (refused.error or "")
    decided = lab.run().decision
    assert decided is not None
    assert decided.is_no_op
    assert len(host.calls) == 2


def test_lifting_a_suspension_for_violations_resets_their_count() -> None:
    lab = lab_on(Host(sandbox_answer(violation=BLOCKED)))
    for _ in range(2):
        call_result(lab)
    assert lab.store.holds.lift("p:do", "", person("ann")) == "lifted"

    assert call_result(lab).success
    assert lab.store.holds.all() == []


def test_a_suspension_and_each_violation_are_in_the_audit_trail() -> None:
    lab = lab_on(Host(sandbox_answer(violation=BLOCKED)))
    for _ in range(2):
        call_result(lab)
    lab.store.audit_trail.seal()
    kinds = [entry.kind for entry in lab.store.audit_trail.page(50).entries]

    assert (kinds.count("action.violated"), kinds.count("action.suspended")) == (2, 1)


# Manifests


def test_the_manifest_of_an_action_has_its_sandbox_and_the_shape_of_its_output() -> None:
    class Freed(BaseModel):
        freed: int

    action = Recorder().action(sandbox=BOX, output=Freed)
    [info] = Agent("test", plugins=[plugin(action)]).catalog.actions

    assert info.sandbox == BOX
    assert info.output is not None
    assert info.output["required"] == ["freed"]


def test_the_agent_file_tightens_a_sandbox() -> None:
    ours = {"p:do": {"cpu": 5, "network": [], "memory": 500_000_000}}
    agent = Agent("test", plugins=[plugin(Recorder().action(sandbox=BOX))], sandbox=ours)
    sandbox = agent.sandbox("p:do")

    assert sandbox is not None
    assert (sandbox.cpu, sandbox.network, sandbox.memory) == (5, [], 500_000_000)
    assert sandbox.files == BOX.files


def test_the_agent_file_gives_a_sandbox_to_an_action_without_one() -> None:
    agent = Agent("test", plugins=[plugin(Recorder().action())], sandbox={"p:do": {"cpu": 5}})

    assert agent.sandbox("p:do") == Sandbox(cpu=5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu", 11),
        ("files", ["/var/tmp"]),
        ("files", ["/var/tmp/work/../other"]),
        ("network", "any"),
        ("network", ["api.example.com:443", "api.example.com:80"]),
        ("violations", 3),
        ("window", 60.0),
    ],
)
def test_the_agent_file_does_not_loosen_a_sandbox(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"sandbox.p:do.{name}"):
        Agent(
            "test",
            plugins=[plugin(Recorder().action(sandbox=BOX))],
            sandbox={"p:do": {name: value}},
        )


@pytest.mark.parametrize(
    "text",
    ["example.com", "example.com:0", "example.com:70000", "http://a:1", "*:443", "a b:1", "::1:80"],
)
def test_a_destination_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ValidationError, match="is not a destination"):
        Sandbox(network=[text])


# Output


class Freed(BaseModel):
    """The declared output of an action."""

    freed: int


@pytest.mark.parametrize("output", [{"freed": 3}, Freed(freed=3)])
def test_an_output_that_fits_is_the_result(output: Any) -> None:
    lab = Lab(Agent("test", plugins=[plugin(Recorder(output).action(output=Freed))]))

    assert call_result(lab).output == {"freed": 3}


def test_an_output_that_does_not_fit_makes_the_execution_say_so_once() -> None:
    recorder = Recorder({"freed": "a lot"})
    lab = Lab(Agent("test", plugins=[plugin(recorder.action(output=Freed, idempotent=True))]))
    result = call_result(lab)

    assert (result.success, result.output, result.prevented) == (False, None, None)
    assert result.error is not None
    assert result.error.startswith("it ran, but its output does not fit what it declares: freed:")
    assert len(recorder.calls) == 1
    assert lab.store.executions.page(5).executions[0].state == "failed"
