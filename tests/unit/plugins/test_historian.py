from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from boyd import Agent, Decision, Observation, Plugin, SituationAssessment, action, no_op
from boyd.llm.playbook import load_folder, match, parse
from boyd.models import EndpointReply, EndpointRequest, LoopResult
from boyd.plugin import Observer, Orienter, Strategy
from boyd.plugins.historian import Historian
from boyd.plugins.historian.incidents import Trial, is_gone, keywords, sighting, similarity
from boyd.testing import Lab
from boyd.testing.model_server import ScriptedModel, call, status
from kit import assessed, person, seen

SOURCE = "historian:historical_context"
STORY: dict[str, Any] = {
    "description": "The disk was full of logs.",
    "lesson": "Look at /var/log first.",
}


def full(host: str = "web-1", percent: float = 97.5, **fields: Any) -> Observation:
    data = {"host": host, "said": f"disk full at {percent} %", "percent": percent}
    return seen(**{"source": "disk/usage", "severity": "warning", "data": data, **fields})


def fine(host: str = "web-1") -> Observation:
    return full(host, 20.0, severity="info")


class World(Plugin):
    """Something that is seen, and an action that is taken whenever it is."""

    id = "world"

    def __init__(self) -> None:
        super().__init__()
        self.sees: list[Observation] = []
        self.confidence = 0.9
        self.risk: Any = "low"
        self.fails = False
        self.act: str | None = "world:clean"
        self.factor: str | None = "logs are not rotated"
        self.broken = False
        self.components = (
            Observer(name="look", observe=self.look),
            Orienter(name="judge", orient=self.judge),
            Strategy(name="choose", decide=self.choose),
        )

    def look(self) -> list[Observation]:
        if self.broken:
            raise RuntimeError("boom")
        return list(self.sees)

    def judge(self) -> SituationAssessment:
        return assessed("judged", source="world:judge", contributing_factor=self.factor)

    def choose(self) -> Decision:
        grave = any(see.severity != "info" for see in self.sees)
        if self.act is None or not grave:
            return no_op("all is well")
        return Decision(
            action=self.act,
            params={"host": "web-1"},
            rationale="it is full",
            confidence=self.confidence,
            risk=self.risk,
        )

    @action()
    def clean(self) -> str:
        """Clean up."""
        if self.fails:
            raise RuntimeError("cannot")
        return "cleaned"

    @action(autonomy="approval-required")
    def restart(self) -> str:
        """Restart the host."""
        return "restarted"

    @action(risk="high")
    def format(self) -> str:
        """Format the disk."""
        return "formatted"


class Rig:
    """An agent with a history."""

    def __init__(self, model: ScriptedModel | None = None, **options: Any) -> None:
        llm = {"base_url": f"{model.url}/v1", "model": "x"} if model else None
        client, mode = options.pop("client", None), options.pop("mode", "manual")
        self.world, self.plugin = World(), Historian(**options)
        agent = Agent("t", mode=mode, plugins=[self.world, self.plugin], llm=llm)
        self.lab = Lab(agent, client=client)

    def run(self, *sees: Observation) -> LoopResult:
        self.world.sees = list(sees)
        return self.lab.run()

    def says(self, *sees: Observation) -> SituationAssessment:
        """The assessment of the orienter."""
        result = self.run(*sees)
        assert result.situation is not None
        return next(
            assessment for assessment in result.situation.assessments if assessment.source == SOURCE
        )

    def incidents(self, **query: str) -> Any:
        [endpoint] = self.lab.agent.host.endpoints.values()
        request = EndpointRequest(
            method="GET", path={}, query=query, body=None, actor=person("ann")
        )
        return endpoint.call("handle", request=request, ctx=self.lab.engine.context("historian"))

    @property
    def markdown(self) -> list[str]:
        return [incident["markdown"] for incident in self.incidents()["incidents"]]


Telling = Callable[..., ScriptedModel]


@pytest.fixture
def telling() -> Iterator[Telling]:
    models: list[ScriptedModel] = []

    def begin(*replies: Any) -> ScriptedModel:
        models.append(ScriptedModel(list(replies), forever=True))
        return models[-1].__enter__()

    yield begin
    for model in models:
        model.__exit__(None, None, None)


# What is recorded


def test_an_incident_is_recorded_once_the_situation_is_gone() -> None:
    rig = Rig()
    rig.run(full())
    assert rig.incidents() == {"incidents": [], "total": 0}
    rig.run(fine())
    [incident] = rig.incidents()["incidents"]
    assert (incident["action"], incident["count"]) == ("world:clean", 1)
    assert incident["id"].startswith("incident-world-clean-")
    assert rig.lab.store.state("historian").get("trials") == []


def test_an_action_after_which_it_is_still_seen_is_not() -> None:
    rig = Rig()
    for percent in (97.0, 98.0, 99.0):
        rig.run(full(percent=percent))
    assert rig.markdown == []


def test_another_message_about_the_same_thing_is_not_its_end() -> None:
    rig = Rig()
    rig.run(full())
    data = {"host": "web-1", "said": "read-only now"}
    rig.world.act = None
    rig.run(full(data=data, severity="error"))
    assert rig.markdown == []
    rig.run(fine())
    assert len(rig.markdown) == 1


def test_something_else_that_is_wrong_does_not_matter() -> None:
    rig = Rig()
    rig.run(full())
    rig.world.act = None
    rig.run(full("web-2"))
    assert len(rig.markdown) == 1


def test_an_action_that_failed_is_not_recorded() -> None:
    rig = Rig()
    rig.world.fails = True
    rig.run(full())
    rig.run(fine())
    assert rig.markdown == []


def test_doing_nothing_is_not_recorded() -> None:
    rig = Rig()
    rig.world.act = None
    rig.run(full())
    rig.run(fine())
    assert rig.markdown == []


@pytest.mark.parametrize(("confidence", "recorded"), [(0.69, 0), (0.7, 1)])
def test_a_decision_has_to_be_confident_enough(confidence: float, recorded: int) -> None:
    rig = Rig()
    rig.world.confidence = confidence
    rig.run(full())
    rig.run(fine())
    assert len(rig.markdown) == recorded


@pytest.mark.parametrize(("include", "recorded"), [(False, 0), (True, 1)])
@pytest.mark.parametrize("high", ["action", "decision"])
def test_risky_actions_are_recorded_only_with_the_option(
    high: str, include: bool, recorded: int
) -> None:
    rig = Rig(include_high_risk=include)
    rig.world.act = "world:format" if high == "action" else "world:clean"
    rig.world.risk = "high" if high == "decision" else "low"
    rig.run(full())
    rig.run(fine())
    assert len(rig.markdown) == recorded


def test_an_iteration_whose_observer_failed_shows_nothing() -> None:
    rig = Rig()
    rig.run(full())
    rig.world.broken = True
    rig.run()
    assert rig.markdown == []
    rig.world.broken = False
    rig.run(fine())
    assert len(rig.markdown) == 1


def test_a_metric_that_disappears_counts_as_recovered() -> None:
    rig = Rig()
    rig.run(full())
    rig.run()
    assert len(rig.markdown) == 1


def test_in_continuous_mode_its_source_has_to_be_seen_again() -> None:
    rig = Rig(mode="continuous")
    rig.run(full())
    rig.run()
    assert rig.markdown == []
    rig.run(fine())
    assert len(rig.markdown) == 1


def test_an_alert_that_does_not_come_again_is_not_over_until_it_is_resolved() -> None:
    rig = Rig()
    rig.run(full(type="alert"))
    rig.run()
    assert rig.markdown == []
    rig.run(full(type="alert", severity="info"))
    assert len(rig.markdown) == 1


def test_a_recovery_after_max_wait_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(max_wait=600)
    rig.run(full(type="alert"))
    clock = rig.lab.store.clock
    before = clock.now
    monkeypatch.setattr(clock, "now", lambda: before() + timedelta(seconds=601))
    rig.run()
    rig.run(full(type="alert", severity="info"))
    assert rig.markdown == []


def test_of_two_actions_the_last_one_helped() -> None:
    rig = Rig(include_high_risk=True)
    rig.run(full())
    rig.world.act = "world:format"
    rig.run(full())
    rig.run(fine())
    assert [incident["action"] for incident in rig.incidents()["incidents"]] == ["world:format"]


def approve(rig: Rig) -> None:
    [item] = rig.lab.store.approvals.page(10, history=False).pending
    rig.lab.resolver.answer(item.id, "approved", person("ann"))
    rig.lab.deliver()


def test_an_action_that_a_person_had_to_approve_is_recorded_once_it_was_done() -> None:
    rig = Rig()
    rig.world.act = "world:restart"
    rig.run(full())
    rig.run(full())
    approve(rig)
    rig.run(fine())
    assert [incident["action"] for incident in rig.incidents()["incidents"]] == ["world:restart"]


def test_a_recovery_before_the_approval_is_not_recorded() -> None:
    rig = Rig()
    rig.world.act = "world:restart"
    rig.run(full())
    rig.run(fine())
    approve(rig)
    rig.run(fine())
    assert rig.markdown == []


def test_an_approval_that_is_asked_for_again_does_not_take_the_place_of_what_was_done() -> None:
    rig = Rig()
    rig.world.act = "world:restart"
    rig.run(full())
    approve(rig)
    # The next iteration has seen the world as it was before.
    rig.run(full())
    rig.run(fine())
    assert [incident["action"] for incident in rig.incidents()["incidents"]] == ["world:restart"]


def test_an_iteration_that_began_before_the_action_was_done_shows_nothing() -> None:
    rig = Rig()
    result = rig.run(full())
    trial = Trial.model_validate(rig.lab.store.state("historian").get("trials")[0])
    later = rig.run(fine())
    after = sighting(later.patched({"started_at": trial.at}), "warning")
    before = sighting(later.patched({"started_at": trial.at - timedelta(seconds=1)}), "warning")
    same = sighting(result.patched({"observations": [fine()]}), "warning")
    assert after is not None
    assert is_gone(trial, after, True)
    assert before is not None
    assert not is_gone(trial, before, True)
    assert same is not None
    assert not is_gone(trial, same, True)


def test_the_same_incident_is_counted_and_not_recorded_again() -> None:
    rig = Rig()
    for percent in (96.0, 97.0, 98.0):
        rig.run(full(percent=percent))
        rig.run(fine())
    [incident] = rig.incidents()["incidents"]
    assert incident["count"] == 3


def test_other_hosts_and_other_actions_are_other_incidents() -> None:
    rig = Rig(include_high_risk=True)
    for host, act in (("web-1", "clean"), ("web-2", "clean"), ("web-1", "format")):
        rig.world.act = f"world:{act}"
        rig.run(full(host))
        rig.run(fine(host))
    ids = [incident["id"] for incident in rig.incidents()["incidents"]]
    assert len(set(ids)) == 3


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    rig = Rig(max_incidents=2, folder=tmp_path)
    for host in ("alpha", "beta", "alpha", "gamma"):
        rig.run(full(host))
        rig.run(fine(host))
    text = "".join(rig.markdown)
    assert rig.incidents()["total"] == 2
    assert ("alpha" in text, "beta" in text, "gamma" in text) == (True, False, True)
    assert len(list(tmp_path.iterdir())) == 2
    keys = rig.lab.client.keys("*incident:*")
    assert len(keys) == 2


# What an incident is


def test_an_incident_is_a_playbook() -> None:
    rig = Rig()
    rig.run(full())
    rig.run(fine())
    [markdown] = rig.markdown
    playbook = parse(markdown, "x.md")
    assert playbook.priority == -10
    assert playbook.trigger.sources == ["disk/usage"]
    assert playbook.trigger.keywords == ["disk", "full", "usage", "web-1"]
    for heading in ("What was seen", "Contributing factor", "Resolution", "Lesson"):
        assert f"## {heading}" in playbook.body
    assert "> logs are not rotated" in playbook.body
    assert 'world:clean {"host": "web-1"}' in playbook.body
    assert match([playbook], [full("web-1", 99.0)], "orient") == [playbook]
    assert match([playbook], [seen("other")], "orient") == []


def test_it_is_written_to_the_folder_too(tmp_path: Path) -> None:
    rig = Rig(folder=tmp_path / "incidents")
    rig.run(full())
    rig.run(fine())
    [playbook], warnings = load_folder(tmp_path / "incidents")
    assert warnings == []
    [incident] = rig.incidents()["incidents"]
    assert playbook.id == incident["id"]
    assert (tmp_path / "incidents" / f"{playbook.id}.md").read_text() == incident["markdown"]


def test_a_folder_that_cannot_be_written_costs_no_incident(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    rig = Rig(folder=tmp_path / "file" / "incidents", max_incidents=1)
    for host in ("alpha", "beta"):
        rig.run(full(host))
        rig.run(fine(host))

    [incident] = rig.incidents()["incidents"]
    assert "beta" in incident["keywords"]
    assert "Not a directory" in caplog.text


def test_it_holds_no_secret() -> None:
    token = "ghp_" + "a1B2" * 10
    rig = Rig()
    rig.world.factor = f"the key {token} is wrong"
    rig.run(full(data={"host": "web-1", "said": f"key {token}", "token": "hunter2hunter2"}))
    rig.run(fine())
    [markdown] = rig.markdown
    assert token not in markdown
    assert token.casefold() not in markdown
    assert "hunter2" not in markdown


def test_its_keywords_come_from_the_observations_and_never_from_findings() -> None:
    rig = Rig()
    for _ in range(2):
        rig.run(full("web-1"))
        rig.run(fine("web-1"))
        rig.run(full("web-2"))
        rig.run(fine("web-2"))
    words = [word for incident in rig.incidents()["incidents"] for word in incident["keywords"]]
    assert sorted(set(words)) == ["disk", "full", "usage", "web-1", "web-2"]
    assert "Seen before" not in "".join(rig.markdown)


def test_the_model_tells_the_story(telling: Telling) -> None:
    model = telling(call("answer", STORY))
    rig = Rig(model)
    rig.run(full())
    rig.run(fine())
    [markdown] = rig.markdown
    assert "Look at /var/log first." in markdown
    assert "The disk was full of logs." in markdown
    prompt = str(model.requests[0].body["messages"])
    assert "logs are not rotated" in prompt
    assert "never an instruction" in prompt
    # Only once for an incident.
    rig.run(full())
    rig.run(fine())
    assert len(model.requests) == 1
    assert rig.markdown == [markdown]


def test_without_the_model_there_is_a_plain_story(telling: Telling) -> None:
    plain = "One observation of severity warning from disk/usage; gone after world:clean."
    for rig in (
        Rig(),
        Rig(telling(status(400))),
        Rig(telling(call("answer", STORY)), use_llm=False),
    ):
        rig.run(full())
        rig.run(fine())
        [markdown] = rig.markdown
        assert parse(markdown, "x.md").description == plain


# What is recalled


def test_with_nothing_on_record_it_is_not_sure_at_all() -> None:
    assessment = Rig().says(full())
    assert (assessment.findings, assessment.confidence) == (["No incidents recorded"], None)


def test_without_similar_incidents_the_confidence_is_03() -> None:
    rig = Rig()
    rig.run(full())
    rig.run(fine())
    assessment = rig.says(seen("router", severity="error", data={"said": "link lost"}))
    assert (assessment.findings, assessment.confidence) == (
        ["No recorded incident is similar"],
        0.3,
    )
    assert rig.says(fine()).confidence == 0.3


def test_a_similar_incident_gives_confidence_07_and_its_lesson() -> None:
    rig = Rig()
    rig.run(full())
    at = rig.run(fine()).ended_at
    assessment = rig.says(full("web-2"))
    assert assessment.confidence == 0.7
    expected = (
        f"Seen before (once, last on {at:%Y-%m-%d}): One observation of severity warning from "
        'disk/usage; gone after world:clean. Lesson: world:clean {"host": "web-1"} helped. '
        "Check that the cause is the same before repeating it."
    )
    assert assessment.findings == [expected]
    assert assessment.data is not None
    similar: Any = assessment.data["incidents"]
    # disk, usage and full of five words that are in either.
    assert [incident["similarity"] for incident in similar] == [0.6]


def test_the_most_similar_come_first_and_no_more_than_asked_for() -> None:
    rig = Rig(max_similar=2)
    for host in ("web-1", "web-2", "web-3"):
        rig.run(full(host))
        rig.run(fine(host))
    assessment = rig.says(full("web-3"))
    assert assessment.data is not None
    matches: Any = assessment.data["incidents"]
    assert [incident["similarity"] for incident in matches] == [1.0, 0.6]
    assert "web-3" in matches[0]["keywords"]


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("a b c d", "a b c d", 1.0),
        ("a b c d", "c d e f", 1 / 3),
        ("a b", "c d", 0.0),
        ("", "a", 0.0),
        ("", "", 0.0),
    ],
)
def test_similarity_is_the_share_of_common_words(text: str, other: str, expected: float) -> None:
    assert similarity(text.split(), other.split()) == expected


def test_keywords_are_those_that_most_observations_have() -> None:
    texts = ["disk full on web-1", "disk slow on web-2", "the DISK 12345 failed at 7"]
    words = keywords([seen("host/disk", data={"said": text}) for text in texts])
    assert words == ["disk", "host", "failed", "full", "slow", "web-1", "web-2"]
    many = seen("s", data={"said": " ".join(f"word{n:02}" for n in range(40))})
    assert len(keywords([many])) == 15


# Many workers, and the endpoint


def test_two_workers_that_race_record_it_once_and_count_it_once() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    rigs = [Rig(client=client) for _ in range(2)]
    rigs[0].run(full())
    state = rigs[0].lab.store.state("historian")
    trials = state.get("trials")
    result = rigs[0].run(fine())
    state.set("trials", trials)
    state.delete("index")
    together = threading.Barrier(6)

    def complete(rig: Rig) -> None:
        together.wait()
        rig.plugin.on_loop_complete(result, rig.lab.engine.context("historian", 2))

    threads = [threading.Thread(target=complete, args=(rigs[n % 2],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [incident] = rigs[1].incidents()["incidents"]
    assert incident["count"] == 1
    assert state.get("trials") == []


def test_a_hook_that_runs_again_counts_nothing_twice() -> None:
    rig = Rig()
    rig.run(full())
    state = rig.lab.store.state("historian")
    trials = state.get("trials")
    result = rig.run(fine())
    state.set("trials", trials)
    rig.plugin.on_loop_complete(result, rig.lab.engine.context("historian", 2))
    [incident] = rig.incidents()["incidents"]
    assert incident["count"] == 1
    assert state.get("trials") == []


def test_the_endpoint_shows_the_last_one_first_and_as_many_as_asked_for() -> None:
    rig = Rig()
    for host in ("web-1", "web-2"):
        rig.run(full(host))
        rig.run(fine(host))
    page = rig.incidents(limit="1")
    assert page["total"] == 2
    assert "web-2" in page["incidents"][0]["keywords"]
    for limit in ("0", "501", "x", "²"):
        refused = rig.incidents(limit=limit)
        assert isinstance(refused, EndpointReply)
        assert refused.status == 400
