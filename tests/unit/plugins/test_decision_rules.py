"""Rules that decide on actions by what was observed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import (
    Action,
    Agent,
    Context,
    Decision,
    LoopResult,
    Observation,
    Observer,
    Plugin,
    action,
    observer,
)
from boyd.errors import ConfigError, PluginError
from boyd.models import CallScope, SituationClass
from boyd.plugin import PluginHost
from boyd.plugins.decision_rules import MAX_MATCHES, DecisionRules
from boyd.replay.differences import judge
from boyd.replay.shadow import Shadow
from boyd.testing import Lab
from plugin_kit import Rig


class RestartParams(BaseModel):
    namespace: str
    workload: str
    grace: int = 30


class Cluster(Plugin):
    id = "kubernetes"
    components = (
        Observer(name="workloads", observe=lambda ctx: []),
        Action(name="restart", risk="medium", params=RestartParams, execute=lambda params: None),
    )


RESTART: dict[str, Any] = {
    "name": "restart-unready",
    "source": "kubernetes/workload",
    "action": "kubernetes:restart",
    "params": {"namespace": "${data.namespace}", "workload": "${data.workload}"},
}


def workload(name: str, severity: Any = "error", **data: Any) -> Observation:
    return Observation(
        source="kubernetes/workload",
        type="state",
        severity=severity,
        data={"namespace": "shop", "workload": name, **data},
    )


class RuleRig(Rig):
    """Rules beside a plugin with the action `kubernetes:restart`."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        super().__init__(DecisionRules(rules=list(rules)))
        self.host = PluginHost([self.plugin, Cluster()])

    @property
    def ctx(self) -> Any:
        return replace(super().ctx, catalog=self.host.catalog)


def decide(*observations: Observation, rules: tuple[dict[str, Any], ...] = (RESTART,)) -> Any:
    rig = RuleRig(*rules)
    return rig.decide(rig.orient(list(observations)))


def test_no_pattern_of_a_rule_fits_what_was_sent_in_the_name_of_a_plugin() -> None:
    rig = RuleRig({**RESTART, "source": "*kubernetes*"})
    forged = workload("web").patched({"source": "intake:kubernetes/workload"})
    assert rig.decide(rig.orient([forged])) is None
    other = forged.patched({"source": "kubernetes-of-others/workload"})
    assert rig.decide(rig.orient([other])) is not None


def test_a_rule_decides_on_its_action_with_values_of_the_observation() -> None:
    decision = decide(workload("web"))

    assert isinstance(decision, Decision)
    assert decision.action == "kubernetes:restart"
    assert decision.params == {"namespace": "shop", "workload": "web"}
    assert decision.rationale == "kubernetes/workload reports error for shop/web"
    assert (decision.risk, decision.confidence) == ("medium", 0.8)
    assert not decision.requires_approval


@pytest.mark.parametrize(
    ("rule", "observation"),
    [
        ({}, workload("web", "info")),
        ({"min_severity": "critical"}, workload("web", "error")),
        ({"source": "kubernetes/node"}, workload("web")),
        ({"when": "data.ready < 1"}, workload("web", ready=1)),
    ],
    ids=["not severe", "less severe than the rule wants", "another source", "its condition"],
)
def test_a_rule_passes_over_what_it_is_not_about(
    rule: dict[str, Any], observation: Observation
) -> None:
    assert decide(observation, rules=({**RESTART, **rule},)) is None


def test_the_first_rule_that_matches_decides() -> None:
    risky = {**RESTART, "name": "ask", "when": 'data.workload == "db"', "requires_approval": True}
    rules = ({**risky, "risk": "high", "rationale": "A database"}, RESTART)

    decision = decide(workload("web"), workload("db"), rules=rules)
    assert (decision.params["workload"], decision.risk) == ("db", "high")
    assert decision.requires_approval
    assert decision.rationale.startswith("A database: ")


def test_things_take_turns() -> None:
    rig = RuleRig(RESTART)
    situation = rig.orient([workload("a"), workload("b"), workload("c")])
    chosen = []
    for _ in range(4):
        rig.clock.forward(10)
        decision = rig.decide(situation)
        assert decision is not None
        chosen.append(decision.params["workload"])
    assert chosen == ["a", "b", "c", "a"]


def test_only_several_matches_need_the_state() -> None:
    rig = RuleRig(RESTART)
    rig.decide(rig.orient([workload("a")]))
    rig.clock.forward(10)
    decision = rig.decide(rig.orient([workload("a"), workload("b")]))

    assert decision is not None
    assert decision.params["workload"] == "b"


def test_the_things_in_trouble_make_the_class_of_the_situation() -> None:
    def class_of(*names: str) -> SituationClass:
        situation = RuleRig(RESTART).orient([workload(name) for name in names])
        resources = [r for a in situation.anomalies for r in a.affected_resources or ()]
        scope = CallScope.of(None, {}, resources)
        return SituationClass.of(situation, "kubernetes", scope)

    assert class_of("web").key == class_of("web").key
    assert class_of("web").key != class_of("db").key
    assert class_of("web").label == "restart-unready on shop/web"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"when": "data.nothing > 1"}, "nothing"),
        ({"params": {**RESTART["params"], "grace": "${data.grace}"}}, "there is no 'grace'"),
        ({"value": "${data.ready}", "below": 1}, "there is no 'ready'"),
        ({"value": "${data.namespace}", "below": 1}, "'shop' is no number"),
    ],
    ids=["its condition", "its params", "its value", "its value that is text"],
)
def test_a_rule_that_cannot_judge_an_observation_says_so(
    rule: dict[str, Any], message: str
) -> None:
    rig = RuleRig({**RESTART, **rule})
    situation = rig.orient([workload("web")])

    [assessment] = situation.assessments
    assert "rule restart-unready cannot judge kubernetes/workload" in assessment.findings[0]
    assert message in assessment.findings[0]
    assert rig.decide(situation) is None


@pytest.mark.parametrize(
    ("limits", "matching"),
    [
        ({"above": 3}, [4, 9.5]),
        ({"below": 3}, [1]),
        ({"below": 3, "above": 4}, [1, 9.5]),
    ],
)
def test_a_rule_matches_while_its_value_is_beyond_a_limit(
    limits: dict[str, float], matching: list[float]
) -> None:
    rig = RuleRig({**RESTART, "value": "${data.waiting}", **limits})
    values = [1, 3, 4, 9.5]
    situation = rig.orient([workload(f"w{value}", waiting=value) for value in values])

    assert [anomaly.affected_resources for anomaly in situation.anomalies] == [
        [f"shop/w{value}"] for value in matching
    ]


def test_a_storm_keeps_a_bounded_number_of_matches_and_tells_them_all() -> None:
    rig = RuleRig(RESTART)
    situation = rig.orient([workload(f"w{number}") for number in range(3 * MAX_MATCHES)])
    [assessment] = situation.assessments
    assert assessment.findings == [f"rule restart-unready: {3 * MAX_MATCHES} matches"]
    assert len(situation.anomalies) == MAX_MATCHES


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"action": "kubernetes:restrt"}, "no action 'kubernetes:restrt'; did you mean"),
        ({"params": {"name": "web"}}, "takes no parameter 'name'"),
        ({"params": {"namespace": "shop"}}, "needs the parameter 'workload'"),
    ],
)
def test_a_rule_that_does_not_fit_the_action_is_refused(rule: dict[str, Any], message: str) -> None:
    rig = RuleRig({**RESTART, **rule})
    with pytest.raises(ConfigError, match=message):
        rig.plugin.init(rig.ctx)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"params": {"workload": "the ${data.name}"}}, "a reference is the whole text"),
        ({"params": {"workload": "${env.NAME}"}}, "a reference is the whole text"),
        ({"name": "No Name"}, "name"),
        ({"when": "data.ready <"}, "when: "),
        ({"when": "souce == 'x'"}, "souce is not known; did you mean 'source'"),
        ({"above": 3}, "above and below need a value"),
        ({"value": "${data.ready}"}, "a value needs a limit"),
        ({"value": "data.ready", "above": 3}, "a reference is the whole text"),
    ],
)
def test_an_invalid_rule_is_refused(rule: dict[str, Any], message: str) -> None:
    with pytest.raises((PluginError, ConfigError), match=message):
        DecisionRules(rules=[{**RESTART, **rule}])


def test_two_rules_with_one_name_are_refused() -> None:
    with pytest.raises(PluginError, match="two components are named 'restart-unready'"):
        PluginHost([DecisionRules(rules=[RESTART, RESTART])])


def test_a_widened_rule_acts_in_more_iterations_and_a_narrower_one_in_fewer() -> None:
    class Load(Plugin):
        id = "load"

        @observer()
        def look(self, ctx: Context) -> list[Observation]:
            data: dict[str, Any] = {"load": float((ctx.iteration or 0) * 10)}
            return [Observation(source="load/a", type="metric", severity="info", data=data)]

        @action()
        def shed(self) -> None: ...

    def agent_above(limit: int) -> Agent:
        busy: dict[str, Any] = {
            "name": "busy",
            "source": "load/*",
            "min_severity": "info",
            "action": "load:shed",
        }
        rule = {**busy, "when": f"data.load > {limit}.0"}
        return Agent("test", plugins=[Load(), DecisionRules(rules=[rule])])

    def differences(limit: int) -> list[list[str]]:
        shadow = Shadow(agent_above(limit))
        return [list(judge(shadow, record).differences) for record in records]

    lab = Lab(agent_above(25))
    records = [LoopResult.from_json(lab.run().to_json()) for _ in range(4)]

    assert differences(25) == [[], [], [], []]
    assert differences(15) == [[], ["flipped", "newly automatic"], [], []]
    assert differences(35) == [[], [], ["flipped", "acts less"], []]
