"""Plugin code changes what it is given in place, and nobody else sees it."""

from __future__ import annotations

from typing import Any

from boyd import Agent, Observation, Plugin, action, observer, orienter, strategy
from boyd.models import Decision, Situation, SituationAssessment
from boyd.plugin.plugin_boundary import own_copy
from boyd.testing import Lab
from kit import seen


class Careless(Plugin):
    """Spoils all that it gets, first among the plugins."""

    id = "careless"

    @observer()
    def look(self) -> list[Observation]:
        """Observe a value that is changed in place next."""
        return [seen("eyes", data={"n": 1, "deep": {"list": [1, 2, 3]}})]

    @orienter()
    def sort(self, observations: list[Observation]) -> SituationAssessment:
        """Spoil the observations."""
        _spoil(observations)
        return SituationAssessment(source="careless:sort", findings=["x"], data={"n": {"x": 1}})

    @strategy()
    def first(self, situation: Situation) -> Decision:
        """Never asked."""
        raise NotImplementedError

    @first.applicable_when
    def _spoils(self, situation: Situation) -> bool:
        _spoil_situation(situation)
        return False

    def on_observe(self, observations: list[Observation]) -> None:
        """Spoil the observations."""
        _spoil(observations)

    def on_orient(self, situation: Situation, observations: list[Observation]) -> None:
        """Spoil everything."""
        _spoil(observations)
        _spoil_situation(situation)

    def on_decide(self, decision: Any, situation: Situation, action: Any) -> None:
        """Spoil everything."""
        decision.params["deep"]["list"].clear()
        _spoil_situation(situation)
        action.risk, action.timeout = "critical", 0.001

    def on_before_act(self, action: Any, params: Any) -> None:
        """Spoil everything."""
        params["deep"]["list"].clear()
        action.timeout = 0.001

    def on_after_act(self, result: Any) -> None:
        """Spoil the result."""
        result.output["deep"]["list"].clear()

    def on_loop_complete(self, result: Any) -> None:
        """Spoil the result."""
        _spoil(result.observations)
        _spoil_situation(result.situation)


class Careful(Plugin):
    """Notes what it gets."""

    id = "careful"

    def __init__(self) -> None:
        super().__init__()
        self.got: dict[str, Any] = {}

    @orienter()
    def judge(self, observations: list[Observation]) -> SituationAssessment:
        """Note them."""
        self.got["orienter"] = [observation.data for observation in observations]
        return SituationAssessment(source="careful:judge", findings=[])

    @strategy()
    def choose(self, situation: Situation) -> Decision:
        """Note the evidence."""
        self.got["strategy"] = situation.evidence("careless:sort")
        params: dict[str, Any] = {"deep": {"list": [1, 2, 3]}}
        return Decision(action="careful:do", params=params, rationale="r", confidence=1.0)

    @action()
    def do(self, params: dict[str, Any]) -> dict[str, Any]:
        """Note the params, and spoil them, as its `doubt` has done before."""
        self.got["action"] = own_copy(params)
        params["deep"]["list"].append(5)
        return {"deep": {"list": [1, 2, 3]}}

    @do.doubt
    def _doubt(self, params: dict[str, Any]) -> None:
        params["deep"]["list"].append(4)

    def on_observe(self, observations: list[Observation]) -> None:
        """Note them."""
        self.got["on_observe"] = [observation.data for observation in observations]

    def on_orient(self, situation: Situation, observations: list[Observation]) -> None:
        """Note them."""
        self.got["on_orient"] = [observation.data for observation in observations]
        self.got["situation"] = situation.evidence("careless:sort")

    def on_loop_complete(self, result: Any) -> None:
        """Note it."""
        self.got["result"] = [observation.data for observation in result.observations]


def _spoil(observations: list[Any]) -> None:
    for observation in observations:
        observation.data["n"] = "spoilt"
        observation.data["deep"]["list"].clear()
    observations.clear()


def _spoil_situation(situation: Any) -> None:
    situation.evidence("careless:sort")["n"]["x"] = "spoilt"
    situation.assessments.clear()


ORIGINAL = {"n": 1, "deep": {"list": [1, 2, 3]}}


def test_changes_in_place_by_a_plugin_reach_nobody_else() -> None:
    careful = Careful()
    agent = Agent("test", plugins=[Careless(), careful])
    result = Lab(agent).run()
    got = careful.got

    assert [got[name] for name in ("on_observe", "orienter", "on_orient")] == [[ORIGINAL]] * 3
    assert got["situation"] == got["strategy"] == {"n": {"x": 1}}
    assert got["action"] == {"deep": {"list": [1, 2, 3]}}
    assert got["result"] == [ORIGINAL]
    assert [
        (changed_action.risk, changed_action.timeout)
        for changed_action in agent.host.actions.values()
    ] == [("low", 60.0)]
    assert [observation.data for observation in result.observations] == [ORIGINAL]
    assert result.problems == []


def test_the_record_has_what_was_given_to_the_plugins() -> None:
    result = Lab(Agent("test", plugins=[Careless(), Careful()])).run()

    assert result.decision is not None
    assert result.decision.params == {"deep": {"list": [1, 2, 3]}}
    assert result.situation is not None
    assert result.situation.evidence("careless:sort") == {"n": {"x": 1}}
    [acted] = result.action_results
    assert acted.output == {"deep": {"list": [1, 2, 3]}}


def test_a_copy_says_which_fields_were_set() -> None:
    observation = seen(data={"a": [1]})
    copied = own_copy(observation)

    assert copied == observation
    assert copied.model_fields_set == observation.model_fields_set
    assert copied.data["a"] is not observation.data["a"]
