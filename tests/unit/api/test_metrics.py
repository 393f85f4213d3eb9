"""Metrics for Prometheus, and readiness of the deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import fakeredis
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

from boyd import Agent, Plugin
from boyd.errors import StoreUnavailable
from boyd.health.finding import Finding
from boyd.health.reader import read_health
from boyd.health.server_health import ServerHealth
from boyd.health.snapshot import HealthSnapshot
from boyd.models import Autonomy, utc_now
from boyd.models.investigation import Ending, InvestigationRequest, Usage
from boyd.models.loop import ArchiveStatus, TraceStatus
from boyd.settings.process_settings import Settings
from boyd.store import Store, WorkerInfo
from boyd.store.ended_work import announce_archive, announce_traces
from boyd.store.keys import AGENTS
from boyd.store.model_usage import MOST_COST, MOST_TOTALS, OTHERS, ROOM
from boyd.testing import TESTER, Lab, ScriptedModel
from boyd.testing.model_server import call, say, status
from boyd.text.version import VERSION
from boyd_api.http.metrics import Metrics
from boyd_api.routes.monitoring_routes import Alive, Health, Readiness, readiness
from kit import Recorder, agent, choice, chooses, fails, person, plugin, seen, sees
from reference import generate


class Mood(BaseModel):
    """The schema of a model's answer."""

    mood: int


class Away(fakeredis.FakeRedis):
    """A Redis that does not answer."""

    def __init__(self) -> None:
        server = fakeredis.FakeServer()
        server.connected = False
        super().__init__(server=server, decode_responses=True)


def samples(store: Store, *brokers: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """Every sample by name and the values of its labels."""
    body, content_type = Metrics(lambda: store, brokers).expose()
    assert content_type.startswith("text/plain")
    return parse_metrics(body)


def parse_metrics(body: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    families_found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            families_found.setdefault(sample.name, {})[labels] = sample.value
    return families_found


def only(metrics: Mapping[str, Mapping[tuple[str, ...], float]], name: str) -> float | None:
    """The sample of agent `test`, or the only one."""
    return metrics[name].get(("test",), metrics[name].get(()))


def test_an_agent_that_ran_is_counted() -> None:
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    result = [lab.run(), lab.run()][-1]
    values = samples(lab.whole)

    assert only(values, "boyd_up") == 1
    assert only(values, "boyd_broker_up") == 1
    assert only(values, "boyd_agent_iterations_total") == 2
    assert only(values, "boyd_agent_last_iteration_success") == 1
    assert only(values, "boyd_agent_last_iteration_timestamp_seconds") == pytest.approx(
        result.ended_at.timestamp(), abs=0.01
    )
    assert only(values, "boyd_agent_in_flight_seconds") == 0
    assert values["boyd_workers"] == {("worker",): 1, ("beat",): 0}
    assert values["boyd_agent_workers"] == {("test", "worker"): 1, ("test", "beat"): 0}
    assert values["boyd_versions"] == {("worker", "test"): 1}


def test_iterations_actions_and_approvals_are_counted_by_outcome() -> None:
    act = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(sees("o", seen()), chooses(choice()), act))
    lab.run()
    [item] = lab.store.approvals.page(5).pending
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()
    open = samples(lab.whole)["boyd_actions_ended_total"]
    for _ in range(2):
        lab.whole.seal(["test"])
    values = samples(lab.whole)

    assert not any(open.values())
    assert counts(values, "boyd_agent_iterations_ended_total") == {"completed": 1, "failed": 0}
    assert counts(values, "boyd_actions_ended_total") == {"succeeded": 1, "failed": 0, "unknown": 0}
    resolved = {"approved": 1, "denied": 0, "withdrawn": 0, "expired": 0}
    assert counts(values, "boyd_approvals_resolved_total") == resolved


def counts(values: Mapping[str, Mapping[tuple[str, ...], float]], name: str) -> dict[str, float]:
    """A counter by its label beside the agent."""
    return {outcome: number for (_, outcome), number in values[name].items()}


def test_an_agent_that_has_never_run_has_no_last_iteration() -> None:
    values = samples(Lab(agent()).whole)

    assert only(values, "boyd_agent_iterations_total") == 0
    assert "boyd_agent_last_iteration_success" not in values
    assert "boyd_agent_last_tick_timestamp_seconds" not in values
    assert "boyd_agent_interval_seconds" not in values


def test_queue_metrics_count_waiting_messages_by_queue() -> None:
    lab = Lab(agent(mode="manual"))
    lab.launcher.trigger("test")
    lab.client.rpush("boyd.loop.test", "message")
    values = samples(lab.whole)

    assert values["boyd_queue_messages"][("test", "loop")] == 1
    assert values["boyd_queue_messages"][("test", "act")] == 0
    assert set(values["boyd_queue_oldest_seconds"]) == {("test", "loop")}


def test_metrics_count_pending_runs_and_approvals() -> None:
    act = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(sees("o", seen()), chooses(choice()), act, mode="continuous"))
    lab.run()
    lab.submit("look")
    values = samples(lab.whole)

    assert only(values, "boyd_approvals_pending") == 1
    assert only(values, "boyd_approvals_next_deadline_seconds") == pytest.approx(3600, abs=30)
    assert only(values, "boyd_runs_pending") == 1
    assert (only(values, "boyd_runs_oldest_seconds") or 0) < 30
    assert only(values, "boyd_agent_interval_seconds") == 60


def test_an_agent_that_nobody_has_run_for_a_day_is_left_out() -> None:
    lab = Lab(agent())
    Lab(Agent("other", plugins=[plugin()]), client=lab.client)
    retire(lab)
    values = samples(lab.whole)

    assert set(values["boyd_agent_iterations_total"]) == {("other",)}
    assert {name for name, _ in values["boyd_agent_workers"]} == {"other"}
    assert {name for name, _ in values["boyd_queue_messages"]} == {"other"}


def retire(lab: Lab) -> None:
    """Let nobody have run agent `test` for two days."""
    long_ago = int(lab.client.time()[0] * 1000 - 2 * 86_400_000)
    lab.client.hset("boyd:{test}:loop", "sweptAt", long_ago)


def test_metrics_show_pauses_and_freezes() -> None:
    lab = Lab(agent())
    lab.whole.freezes.freeze("moving", "test")
    lab.store.loop_control.pause("holidays")
    values = samples(lab.whole)

    assert (only(values, "boyd_agent_frozen"), only(values, "boyd_agent_paused")) == (1, 1)


def test_metrics_show_the_failures_and_successes_of_observers() -> None:
    lab = Lab(agent(sees("good", seen()), fails("bad")))
    lab.run()
    values = samples(lab.whole)

    assert values["boyd_observer_failures"] == {("test", "p:good"): 0, ("test", "p:bad"): 1}
    assert set(values["boyd_observer_last_success_timestamp_seconds"]) == {("test", "p:good")}


def test_tokens_and_requests_are_counted_by_model_and_investigations_by_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("boyd.llm.gateway.WAITS", (0.0, 0.0, 0.0))
    with ScriptedModel([status(503), call("nothing", {}), say("No idea.")]) as model:
        llm = {"base_url": f"{model.url}/v1", "model": "small", "prices": {"input": 3, "output": 5}}
        lab = Lab(Agent("test", llm=llm))
        request = InvestigationRequest(question="Why?")
        lab.launcher.ask(request, TESTER, lab.engine.retention)
        lab.deliver()
    values = samples(lab.whole)

    assert values["boyd_model_tokens_total"] == {
        ("test", "input", "small"): 200,
        ("test", "output", "small"): 40,
    }
    assert values["boyd_model_cost_total"] == {("test", "small"): 0.0008}
    requests = {"answered": 2, "failed": 1, "refused": 0, "abandoned": 0}
    assert values["boyd_model_requests_total"] == {
        ("test", "small", o): n for o, n in requests.items()
    }
    endings = counts(values, "boyd_investigations_ended_total")
    assert set(endings) == set(get_args(Ending))
    assert {ending: n for ending, n in endings.items() if n} == {"final_answer": 1}


def test_an_investigation_that_ends_because_the_agent_lost_its_model_is_counted() -> None:
    with ScriptedModel([say("never")]) as model:
        lab = Lab(Agent("test", llm={"base_url": f"{model.url}/v1", "model": "small"}))
        lab.launcher.ask(InvestigationRequest(question="Why?"), TESTER, lab.engine.retention)
        bare = Lab(Agent("test"), client=lab.client)
        bare.dispatcher.hints.extend(lab.dispatcher.hints)
        bare.deliver()
    values = samples(bare.whole)
    kinds = [fields["kind"] for _, fields in bare.client.xrange("boyd:{test}:events")]

    assert values["boyd_investigations_ended_total"] == {("test", "error"): 1}
    assert kinds.count("investigation.ended") == 1


def test_a_model_is_counted_from_zero_before_anything_is_asked_of_it() -> None:
    llm = {"base_url": "http://127.0.0.1:9/v1", "model": "small"}
    values = samples(Lab(Agent("test", llm=llm)).whole)
    names = ("tokens_total", "requests_total", "cost_total")

    for name in (*(f"boyd_model_{name}" for name in names), "boyd_investigations_ended_total"):
        assert set(values[name].values()) == {0}


def test_absurd_usage_reported_by_a_model_server_is_capped() -> None:
    lab = Lab(agent())
    for tokens in (2**63 - 1, 5, 5):
        lab.store.model_usage.count("small", "answered", Usage(input_tokens=tokens), float(tokens))
    values = samples(lab.whole)

    assert values["boyd_model_requests_total"][("test", "small", "answered")] == 3
    assert values["boyd_model_tokens_total"][("test", "input", "small")] == MOST_TOTALS + 10
    assert values["boyd_model_cost_total"] == {("test", "small"): MOST_COST + 10}


def test_model_requests_of_plugins_are_counted() -> None:
    class Curious(Plugin):
        id = "curious"

        def on_loop_start(self, ctx: Any) -> None:
            ctx.llm.ask("Why?")
            ctx.llm.answer("How bad is it?", Mood)

    with ScriptedModel([say("Because."), call("answer", {"mood": "good"}), status(401)]) as model:
        llm = {"base_url": f"{model.url}/v1", "model": "small"}
        lab = Lab(Agent("test", plugins=[Curious()], llm=llm))
        lab.run()
    values = samples(lab.whole)

    requests = {"answered": 2, "failed": 0, "refused": 1, "abandoned": 0}
    assert values["boyd_model_requests_total"] == {
        ("test", "small", o): n for o, n in requests.items()
    }
    assert values["boyd_model_tokens_total"][("test", "input", "small")] == 200


def test_an_agent_without_a_model_has_no_metrics_of_one() -> None:
    values = samples(Lab(agent()).whole)

    assert [name for name in values if "model" in name or "investigations" in name] == []


def test_more_models_than_there_is_room_for_count_as_one() -> None:
    lab = Lab(agent())
    for number in range(200):
        lab.store.model_usage.count(f"m{number}", "answered", Usage(input_tokens=1))
    lab.store.model_usage.count("m0", "failed", Usage(input_tokens=1))
    values = samples(lab.whole)
    tokens = values["boyd_model_tokens_total"]

    assert sum(tokens.values()) == 201
    assert len(tokens) < ROOM
    assert tokens[("test", "input", OTHERS)] > 1
    assert tokens[("test", "input", "m0")] == 2


def test_findings_of_the_doctor_are_counted() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    values = samples(Store(client, "api"))

    assert values["boyd_findings"][("error",)] == 1  # no worker
    assert values["boyd_findings"][("warning",)] >= 1  # no agent


def test_a_scrape_without_redis_says_so_and_does_not_fail() -> None:
    values = samples(Store(Away(), "api"))

    assert only(values, "boyd_up") == 0
    assert {name for name in values if not name.startswith("boyd_http")} == {
        "boyd_up",
        "boyd_api_info",
    }


def test_a_scrape_before_any_redis_is_known_does_not_fail() -> None:
    def raise_unavailable() -> Store:
        raise StoreUnavailable

    assert b"boyd_up 0.0" in Metrics(raise_unavailable).expose()[0]


def test_a_broker_that_does_not_answer_takes_only_the_queues_away() -> None:
    values = samples(Lab(agent()).whole, Away())

    assert (only(values, "boyd_up"), only(values, "boyd_broker_up")) == (1, 0)
    assert "boyd_queue_messages" not in values
    assert values["boyd_findings"][("error",)] == 1


def test_requests_are_counted_by_route_and_not_by_path() -> None:
    metrics = Metrics(lambda: Store(Away(), "api"))
    metrics.count_request("GET", "/api/v0/runs/{id}", 200, 0.02)
    metrics.count_request("GET", "/api/v0/runs/{id}", 200, 0.2)
    metrics.count_request("BREW", None, 405, 0.001)
    values = parse_metrics(metrics.expose()[0])

    assert values["boyd_http_requests_total"] == {
        ("GET", "/api/v0/runs/{id}", "200"): 2,
        ("other", "none", "405"): 1,
    }
    assert values["boyd_http_request_duration_seconds_count"][("GET", "/api/v0/runs/{id}")] == 2


def test_two_apps_in_one_process_share_nothing() -> None:
    first, two = (Metrics(lambda: Store(Away(), "api")) for _ in range(2))
    first.count_request("GET", "/", 200, 0.1)

    assert b"boyd_http_requests_total{" not in two.expose()[0]


def test_openmetrics_is_served_on_request() -> None:
    lab = Lab(agent())
    metrics = Metrics(lambda: lab.whole)
    body, content_type = metrics.expose("application/openmetrics-text; version=1.0.0")

    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


# Readiness


def beat(store: Store, *agents: str) -> None:
    """Announce a beat for *agents*."""
    info = WorkerInfo(
        name="b1",
        role="beat",
        host="here",
        pid=2,
        queues=[],
        agents=list(agents),
        version=VERSION,
        started_at=utc_now(),
    )
    store.fleet.beat(info)


def test_a_deployment_is_ready_with_a_worker_for_each_agent() -> None:
    lab = Lab(agent())
    Lab(Agent("other", plugins=[plugin()]), client=lab.client)
    # Both labs call their imaginary worker the same, so the second one has taken its place.
    missing = readiness(lab.whole, Settings()).missing
    Lab(agent(), client=lab.client, hosts=["there"])

    assert missing == ["no worker is alive for agent test"]
    assert readiness(lab.whole, Settings()).to_wire() == {
        "status": "ready",
        "missing": [],
    }


def test_a_continuous_agent_needs_a_beat() -> None:
    lab = Lab(agent(mode="continuous"))
    before = readiness(lab.whole, Settings())
    beat(lab.whole, "test")

    assert before.missing == ["no beat is alive for agent test"]
    assert readiness(lab.whole, Settings()).ready


def test_a_deployment_whose_iteration_stands_still_is_not_ready() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    before = readiness(lab.whole, Settings())
    lab.client.hset("boyd:{test}:iteration", "phaseAt", 1)
    lab.client.delete("boyd:{test}:due")

    assert before.ready
    assert readiness(lab.whole, Settings()).missing == [
        "the iteration in flight of agent test has stalled"
    ]


def test_the_start_of_the_last_iteration_is_exported_during_and_after_it() -> None:
    lab = Lab(agent())
    lab.launcher.trigger("test")
    began = float(lab.client.hget("boyd:{test}:iteration", "startedAt")) / 1000
    flying = only(samples(lab.whole), "boyd_agent_last_observed_timestamp_seconds")
    lab.deliver()

    assert flying == began
    assert only(samples(lab.whole), "boyd_agent_last_observed_timestamp_seconds") == began


def test_a_deployment_without_workers_is_not_ready() -> None:
    store = Store(fakeredis.FakeRedis(decode_responses=True))

    assert readiness(store, Settings()).missing == ["no worker is alive"]


def test_a_default_agent_that_nobody_knows_is_missing() -> None:
    assert readiness(Lab(agent()).whole, Settings(agent="ops")).missing == [
        "agent ops has never been started"
    ]


def test_an_agent_that_nobody_has_run_for_a_day_is_not_missed() -> None:
    lab = Lab(agent())
    Lab(Agent("other", plugins=[plugin()]), client=lab.client)
    retire(lab)

    assert readiness(lab.whole, Settings()).ready
    assert not readiness(lab.whole, Settings(agent="test")).ready


def test_no_answer_about_health_changes_its_fields() -> None:
    fields = {
        model: [field.alias or name for name, field in model.model_fields.items()]
        for model in (Alive, Health, Readiness, Finding)
    }

    assert fields == {
        Alive: ["status", "version"],
        Health: ["status", "timestamp"],
        Readiness: ["status", "missing"],
        Finding: ["level", "subject", "what", "whatToDo", "since", "detail"],
    }


def test_a_deployment_whose_agents_cannot_be_read_is_not_ready() -> None:
    lab = Lab(agent())
    lab.client.delete(AGENTS)
    lab.client.set(AGENTS, "garbage")

    assert readiness(lab.whole, Settings()).missing == ["Redis refuses to answer"]


def test_without_redis_it_is_not_ready_and_reveals_no_address() -> None:
    assert readiness(Store(Away(), "api"), Settings()).missing == ["Redis does not answer"]


# The alerts that come with it


ROOT = Path(__file__).parents[3]
#: What a Redis says of itself; `fakeredis` says nothing.
INFO = {
    "redis_version": "7.2.4",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "maxclients": 9,
}
#: Name, type, labels and meaning of each metric, on which dashboards and alerts of users rest.
METRICS = ROOT / "tests/data/metrics.txt"
RULES = yaml.safe_load((ROOT / "deploy/prometheus/boyd-alerts.yml").read_text())


def rules() -> list[dict[str, Any]]:
    """Every rule."""
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def exposition() -> str:
    """The answer of `/metrics` with every metric there is."""
    act = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(sees("o", seen()), chooses(choice()), act, mode="continuous"))
    lab.run()
    lab.launcher.trigger("test")
    lab.client.hset("boyd:{test}:loop", "slot", 1000)
    lab.store.model_usage.count("small", "answered", Usage(input_tokens=1), 0.1)
    lab.client.hset("boyd:{test}:usage", "ended final_answer", 1)
    now = utc_now()
    announce_archive(lab.client, ArchiveStatus(name="a", at=now, copied_at=now))
    announce_traces(lab.client, TraceStatus(name="a", at=now, copied_at=now))

    def read(*arguments: Any) -> HealthSnapshot:
        return replace(read_health(*arguments), server=ServerHealth.of(INFO, {"save": "900 1"}))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("boyd_api.http.metrics.read_health", read)
        metrics = Metrics(lambda: lab.whole)
        metrics.count_request("GET", "/", 200, 0.1)
        metrics.count_observations("json", 1)
        metrics.count_refusal("json", "overloaded")
        return metrics.expose()[0].decode()


def everything() -> tuple[set[str], dict[str, set[str]]]:
    """The metrics there are, and the labels of each."""
    labels: dict[str, set[str]] = {}
    for metric in text_string_to_metric_families(exposition()):
        for sample in (point for point in metric.samples if not point.name.endswith("_created")):
            labels.setdefault(sample.name, set()).update(sample.labels)
    return set(labels), labels


def test_no_metric_changes_its_name_type_labels_or_meaning() -> None:
    families = sorted(text_string_to_metric_families(exposition()), key=lambda it: it.name)
    lines = [
        f"{family.name} {family.type} {','.join(sorted(family.samples[0].labels)) or '-'}"
        f" {family.documentation}\n"
        for family in families
        if not family.name.endswith("_created")
    ]
    assert lines == METRICS.read_text().splitlines(keepends=True)


def test_alerts_rest_on_metrics_and_labels_that_exist() -> None:
    names, labels = everything()
    for rule in rules():
        used = set(re.findall(r"\bboyd_\w+", rule["expr"]))
        assert used <= names, rule["alert"]
        labels_shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert labels_shown <= {"instance"} | {label for name in used for label in labels[name]}


def test_alerts_have_a_name_of_their_own_a_severity_and_a_summary() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]


def test_every_metric_is_in_the_reference_with_its_labels() -> None:
    _, labels = everything()
    families = generate.families()

    for name, used in labels.items():
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert set(families[family][0].split(", ")) >= used - {"le"}, name
        assert families[family][1]
