"""Secrets in the params of actions: who may use which, and where their values do not go."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import pytest
from pydantic import BaseModel, Field, StringConstraints

from boyd import (
    ActionResult,
    Agent,
    ConfigError,
    Plugin,
    Procedure,
    ProcedureStep,
    Secret,
    StepAction,
)
from boyd.errors import SecretUnavailable
from boyd.models import Autonomy, CallRequest, Sandbox
from boyd.phases.action_call import ConfinedCall
from boyd.plugin import Action, Observer, Strategy
from boyd.plugins.decision_rules import DecisionRules
from boyd.sandbox.confined_call import ConfinedAnswer
from boyd.settings.secret_references import read_secret
from boyd.testing import Lab
from boyd.testing.lab import UnconfinedActions
from kit import (
    call_result,
    choice,
    chooses,
    everything,
    machine,
    overdue,
    person,
    plugin,
    seen,
    sees,
)
from secret_kit import Keeper, keep_secrets

VALUE = "pä\"ss/w'rd\\of+the horse & more"
REFERENCE = "secret://keeper/db#password"
OTHER = "secret://keeper/other"
BOB, ANN = machine("bob"), person("ann")


class Login(BaseModel):
    """The params of the actions of these tests."""

    host: str
    password: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    message: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    headers: dict[str, str] = {}


@pytest.fixture(autouse=True)
def keeper() -> Iterator[Keeper]:
    with keep_secrets({"db": {"password": VALUE}, "other": "the-other-secret"}) as keeper:
        yield keeper


class Host:
    """An action that logs in, and remembers what it got."""

    def __init__(self) -> None:
        self.params: list[Login] = []
        self.answer: Any = "done"

    def action(self, name: str = "login", **settings: Any) -> Action:
        def execute(params: Login) -> Any:
            self.params.append(params)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return Action(name=name, execute=execute, **{"target": "host", **settings})


RULE = {"references": [REFERENCE], "actions": ["p:login"], "params": ["password"]}


def lab_for(host: Host, *parts: Any, secrets: list[dict[str, Any]] | None = None, **kw: Any) -> Lab:
    action = kw.pop("action", None) or host.action()
    plugins = [plugin(action, *parts), *kw.pop("plugins", [])]
    return Lab(Agent("test", plugins=plugins, secrets=secrets or [], **kw))


def call(lab: Lab, action: str = "p:login", **params: Any) -> ActionResult:
    """Have a client execute an action."""
    return call_result(lab, action=action, params=params, actor=BOB)


def follow(lab: Lab, started: ActionResult) -> None:
    """Let a procedure take its steps."""
    for _ in range(3):
        overdue(lab, f"procedure:{started.procedure}")


def dump_redis(lab: Lab) -> str:
    """All that Redis holds."""
    return "\n".join(everything(lab))


def test_a_rule_of_the_settings_lets_a_client_use_a_secret() -> None:
    host = Host()
    lab = lab_for(host, secrets=[RULE])

    assert call(lab, host="db-1", password=REFERENCE).success
    assert host.params[0].password == VALUE
    assert VALUE not in dump_redis(lab)
    assert REFERENCE in dump_redis(lab)


@pytest.mark.parametrize(
    ("rule", "params"),
    [
        (None, {"password": REFERENCE}),
        ({**RULE, "references": ["secret://keeper/x*"]}, {"password": REFERENCE}),
        ({**RULE, "actions": ["p:other"]}, {"password": REFERENCE}),
        ({**RULE, "targets": ["web-*"]}, {"password": REFERENCE}),
        (RULE, {"message": REFERENCE}),
        (RULE, {"message": f"  {REFERENCE}"}),
        (RULE, {"headers": {"password": REFERENCE}}),
        (RULE, {"password": OTHER}),
        (RULE, {"password": "secret://keeper/../db"}),
        ({**RULE, "references": ["*"]}, {"password": "secret://Keeper"}),
    ],
)
def test_a_reference_that_no_rule_permits_is_refused_before_anything_is_read(
    rule: dict[str, Any] | None, params: dict[str, Any], keeper: Keeper
) -> None:
    host = Host()
    lab = lab_for(host, secrets=[rule] if rule else None)
    result = call(lab, host="db-1", **params)

    assert (result.prevented, host.params, keeper.reads) == ("refused", [], 0)
    assert "Not executed" in (result.error or "")


def test_a_rule_names_nested_params_by_their_path() -> None:
    host = Host()
    lab = lab_for(host, secrets=[{**RULE, "params": ["headers.*"]}])

    assert call(lab, host="db-1", headers={"token": REFERENCE}).success
    assert host.params[0].headers == {"token": VALUE}


def test_nobody_is_asked_about_what_would_be_refused() -> None:
    lab = lab_for(Host(), action=Host().action(autonomy=Autonomy(mode="approval-required")))

    assert call(lab, host="db-1", password=REFERENCE).prevented == "refused"
    assert lab.store.approvals.page(10).pending == []


def rules(**params: Any) -> Plugin:
    """The plugin `rules` with one rule on `test`."""
    rule = {"name": "login", "source": "test", "action": "p:login", "params": params}
    return DecisionRules(rules=[rule])


def observes(**data: Any) -> Any:
    return sees("look", seen(severity="critical", data=data))


def test_a_rule_of_the_agent_file_uses_the_secret_that_it_names() -> None:
    host = Host()
    own = rules(host="${data.host}", password=REFERENCE)
    lab = lab_for(host, observes(host="db-1"), plugins=[own])
    [result] = lab.run().action_results

    assert result.success
    assert host.params[0].password == VALUE
    assert VALUE not in dump_redis(lab)


def test_a_client_cannot_use_what_a_rule_of_the_agent_file_names(keeper: Keeper) -> None:
    host = Host()
    lab = lab_for(host, plugins=[rules(host="db-1", password=REFERENCE)])

    assert call(lab, host="db-1", password=REFERENCE).prevented == "refused"
    assert keeper.reads == 0


@pytest.mark.parametrize("text", [REFERENCE, OTHER, f" {REFERENCE}"])
def test_an_observation_cannot_bring_a_reference_into_a_rule(text: str, keeper: Keeper) -> None:
    host = Host()
    own = rules(host="db-1", password=REFERENCE, message="${data.text}")
    lab = lab_for(host, observes(text=text), plugins=[own])
    [result] = lab.run().action_results

    assert (result.prevented, keeper.reads) == ("refused", 0)


def test_another_strategy_cannot_use_what_a_rule_names(keeper: Keeper) -> None:
    host = Host()
    decision = choice("p:login", params={"host": "evil", "password": REFERENCE})
    own = rules(host="${data.host}", password=REFERENCE)
    lab = lab_for(host, chooses(decision), observes(host="db-1"), plugins=[own])
    [result] = lab.run().action_results

    assert (result.prevented, keeper.reads) == ("refused", 0)


def test_a_strategy_of_a_plugin_declares_what_it_takes_from_the_agent_file() -> None:
    host = Host()
    params: dict[str, Any] = {"host": "db-1", "password": REFERENCE}
    template = StepAction(action="p:login", params=params)
    own = Strategy(
        name="own", decide=lambda: choice("p:login", params=params), templates=(template,)
    )
    [result] = lab_for(host, own).run().action_results

    assert result.success


def test_an_approved_action_of_a_rule_uses_its_secret() -> None:
    host = Host()
    own = rules(host="${data.host}", password=REFERENCE)
    action = host.action(
        autonomy=Autonomy(mode="approval-required"), dry_run=lambda params: params.password
    )
    lab = lab_for(host, observes(host="db-1"), plugins=[own], action=action)
    lab.run()
    [item] = lab.store.approvals.page(10).pending
    assert item.params["password"] == REFERENCE
    assert item.preview is not None
    assert item.preview.output == REFERENCE
    lab.resolver.answer(item.id, "approved", ANN)
    lab.deliver()

    assert host.params[0].password == VALUE
    assert VALUE not in dump_redis(lab)


def test_a_step_of_a_procedure_uses_its_secret_but_none_of_its_caller() -> None:
    host = Host()

    class Where(BaseModel):
        host: str
        text: str = ""

    step = ProcedureStep(
        id="login",
        action="p:login",
        params={"host": "${params.host}", "message": "${params.text}", "password": REFERENCE},
    )
    procedure = Procedure(name="renew", params=Where, steps=[step])
    lab = lab_for(host, procedure)
    follow(lab, call(lab, "p:renew", host="db-1"))
    assert host.params[0].password == VALUE

    assert call(lab, "p:renew", host="db-1", text=OTHER).prevented == "refused"
    follow(lab, call(lab, "p:renew", host="db-1", text=f" {OTHER}"))
    assert len(host.params) == 1


def test_rollback_and_verification_get_the_secret_too() -> None:
    host = Host()
    seen_by: list[tuple[str, str]] = []

    def rollback(params: Login) -> None:
        seen_by.append(("rollback", params.password))

    def verify(params: Login) -> bool:
        seen_by.append(("verify", params.password))
        return True

    action = host.action(rollback=rollback, verify=verify)
    lab = lab_for(host, action=action, secrets=[RULE])
    call(lab, host="db-1", password=REFERENCE)
    [entry] = lab.store.executions.page().executions
    overdue(lab, f"verify:{entry.id}")
    undo = CallRequest(kind="rollback", action="p:login", actor=BOB, undoes=entry.id)
    lab.launcher.call(undo, None)
    lab.deliver()

    assert ("verify", VALUE) in seen_by
    assert ("rollback", VALUE) in seen_by
    assert VALUE not in dump_redis(lab)


def test_a_provider_that_is_down_prevents_the_action_before_its_claim(keeper: Keeper) -> None:
    keeper.secrets["db"] = SecretUnavailable("the server is sealed")
    host = Host()
    lab = lab_for(host, secrets=[RULE])
    result = call(lab, host="db-1", password=REFERENCE)

    assert result.prevented == "unresolved"
    assert result.error == f"Not executed: {REFERENCE} could not be read: the server is sealed"
    assert (host.params, lab.store.executions.page().executions) == ([], [])


def test_a_rotated_secret_counts_in_the_next_execution(keeper: Keeper) -> None:
    host = Host()
    lab = lab_for(host, secrets=[RULE])
    call(lab, host="db-1", password=REFERENCE)
    keeper.secrets["db"] = {"password": "the-rotated-one"}
    call(lab, host="db-1", password=REFERENCE)

    assert [params.password for params in host.params] == [VALUE, "the-rotated-one"]


def test_a_value_that_the_params_do_not_accept_is_refused_without_quoting_it(
    keeper: Keeper,
) -> None:
    class Short(BaseModel):
        host: str
        password: str = Field(max_length=30)

    keeper.secrets["db"] = {"password": "x" * 31}
    action = Action(name="login", params=Short, execute=lambda params: None)
    result = call(lab_for(Host(), action=action, secrets=[RULE]), host="a", password=REFERENCE)

    assert result.success is False
    assert "x" * 31 not in (result.error or "")


ENCODED = [
    *(VALUE, VALUE[: len(VALUE) // 2 + 3], VALUE[len(VALUE) // 2 - 3 :], repr(VALUE)),
    *(json.dumps(VALUE), json.dumps(json.dumps(VALUE)), quote(VALUE), VALUE.encode().hex()),
    base64.b64encode(f"user:{VALUE}".encode()).decode(),
    str({"password": VALUE}),
    repr(VALUE.encode()),
]


@pytest.mark.parametrize("text", ENCODED)
def test_results_and_errors_of_an_action_are_masked_in_all_forms(text: str) -> None:
    core = text[len(text) // 2 - 4 : len(text) // 2 + 4]
    for answer in (text, {"nested": [{text: text}]}, RuntimeError(f"login failed: {text}")):
        host = Host()
        host.answer = answer
        lab = lab_for(host, secrets=[RULE])
        result = call(lab, host="db-1", password=REFERENCE)

        assert core not in result.to_json()
        assert core not in dump_redis(lab)
        assert "[redacted]" in result.to_json()


def test_an_observation_cannot_show_a_secret_of_an_option() -> None:
    def observe() -> list[Any]:
        return [seen(data={"answer": f"401 for {read_secret(REFERENCE)}"})]

    lab = Lab(Agent("test", plugins=[plugin(Observer(name="look", observe=observe))]))
    lab.run()

    assert VALUE not in dump_redis(lab)
    assert json.dumps(VALUE)[1:-1] not in dump_redis(lab)


def test_a_confined_action_gets_the_secrets_of_its_call_and_its_options() -> None:
    host = Host()
    calls: list[ConfinedCall] = []

    class Kept(Plugin):
        id = "p"

        class Options(Plugin.Options):
            token: Secret
            rest: str = ""

        components = (host.action(sandbox=Sandbox(cpu=5)),)

    lab = Lab(Agent("test", plugins=[Kept(token=OTHER)], secrets=[RULE]))

    class Spy(UnconfinedActions):
        def call(self, sandbox: Sandbox, call: ConfinedCall, timeout: float) -> ConfinedAnswer:
            calls.append(call)
            return super().call(sandbox, call, timeout)

    lab.engine.confiner = Spy(lab.engine)
    result = call(lab, host="db-1", password=REFERENCE)

    assert result.success
    assert calls[0].params["password"] == VALUE
    assert calls[0].secrets == {OTHER: "the-other-secret"}
    assert VALUE not in dump_redis(lab)


def test_a_text_in_the_agent_file_that_only_looks_like_a_reference_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no reference to a secret"):
        lab_for(Host(), plugins=[rules(host="db-1", password="secret://Keeper/db")])


def test_references_without_a_provider_are_named() -> None:
    own = rules(host="db-1", password="secret://missing/db")
    agent = Agent("test", plugins=[plugin(Host().action()), own])

    [problem] = agent.secrets.problems()
    assert "secret://missing/db: there is no provider 'missing'" in problem
