"""The plugin `prometheus` with canned answers; tests/connections has a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import Observation
from boyd.plugins.http_service import ServiceError
from boyd_connectors.prometheus import Prometheus, WatchedQuery
from boyd_connectors.prometheus.alerts import matchers_of, parse_matchers, series_of
from plugin_kit import Rig, Site, site


@pytest.fixture
def server() -> Iterator[Site]:
    with site() as running:
        yield running


def vector(*series: tuple[dict[str, str], str]) -> dict[str, Any]:
    rows = [{"metric": labels, "value": [0, value]} for labels, value in series]
    return {"resultType": "vector", "result": rows}


def rig(server: Site, **options: Any) -> Rig:
    return Rig(Prometheus(url=server.url, alertmanager_url=server.url, **options))


def observe(rig: Rig, name: str) -> list[Observation]:
    rig.iteration = (rig.iteration or 0) + 1
    observations: list[Observation] = rig.host.observers[f"prometheus:{name}"].call(
        "observe", ctx=rig.ctx, shard=None
    )
    if name == "queries":
        observations = rig.host.observers["prometheus:queries"].call(
            "judge", observations=observations, ctx=rig.ctx
        )
    return [
        observation for observation in observations if observation.source != "prometheus/values"
    ]


def queue(**more: Any) -> WatchedQuery:
    return WatchedQuery.model_validate({"name": "queue", "expr": "q", **more})


@pytest.mark.parametrize(
    "thresholds",
    [{}, {"above": 1, "below": 2}, {"above": 5, "clear": 6}, {"below": 5, "clear": 4}],
)
def test_a_query_needs_one_threshold_and_clears_on_its_good_side(
    thresholds: dict[str, Any],
) -> None:
    with pytest.raises(PluginError, match="queries"):
        Prometheus(url="http://a", queries=[{"name": "q", "expr": "q", **thresholds}])


def test_series_with_the_same_labels_are_one_with_the_worst_value() -> None:
    data = vector(({"job": "a", "pod": "1"}, "3"), ({"job": "a", "pod": "2"}, "7"))
    [above] = series_of(queue(above=1, labels=["job"]), data)
    [below] = series_of(queue(below=1, labels=["job"]), data)
    assert (above.labels, above.value, below.value) == ({"job": "a"}, 7, 3)


def test_values_that_are_no_numbers_are_no_samples_and_infinity_is_text() -> None:
    query = queue(above=1)
    series = series_of(query, vector(({"a": "1"}, "NaN"), ({"a": "2"}, "+Inf")))
    assert [query.trouble(observation)["value"] for observation in series] == ["inf"]
    with pytest.raises(ValueError, match="gives a matrix"):
        series_of(query, {"resultType": "matrix", "result": []})


def test_a_query_without_data_is_trouble_unless_that_is_expected(server: Site) -> None:
    server.body = json.dumps({"status": "success", "data": vector()}).encode()
    query = {"name": "queue", "expr": "q", "above": 1}
    [missing, summary] = observe(rig(server, queries=[query]), "queries")
    assert missing.data == {"query": "queue", "error": "yields no data"}
    assert summary.data == {"queries": 1, "series": 0, "exceeded": 0, "omitted": 0}
    [summary] = observe(rig(server, queries=[{**query, "needs_data": False}]), "queries")
    assert summary.severity == "info"


def test_a_wrong_query_is_trouble_and_a_server_in_trouble_an_error(server: Site) -> None:
    watching = rig(server, queries=[{"name": "queue", "expr": "q(", "above": 1}])
    server.status, server.body = 400, b'{"error": "parse error"}'
    [wrong, _] = observe(watching, "queries")
    assert wrong.severity == "error"
    assert "parse error" in str(wrong.data["error"])
    server.status = 503
    with pytest.raises(ServiceError, match="answered 503"):
        observe(watching, "queries")


@pytest.mark.parametrize(
    ("more", "message"),
    [({"warnings": ["one of 2 stores is away"]}, "one of 2"), ({"isPartial": True}, "partial")],
)
def test_an_incomplete_result_is_no_good_news(
    server: Site, more: dict[str, Any], message: str
) -> None:
    answer = {"status": "success", "data": vector(({}, "0")), **more}
    server.body = json.dumps(answer).encode()
    [doubt, _] = observe(rig(server, queries=[{"name": "q", "expr": "q", "above": 1}]), "queries")
    assert message in str(doubt.data["error"])


def test_a_query_of_another_type_does_not_hide_the_others(server: Site) -> None:
    histogram = {"resultType": "vector", "result": [{"metric": {}, "histogram": [0, {}]}]}
    for data in (histogram, {"resultType": "matrix", "result": []}):
        server.body = json.dumps({"data": data}).encode()
        both = [{"name": name, "expr": name, "above": 1} for name in "ab"]
        observations = observe(rig(server, queries=both), "queries")
        assert [observation.data.get("query") for observation in observations] == ["a", "b", None]


def test_a_query_that_gets_no_answer_does_not_hide_the_others(server: Site) -> None:
    server.body = json.dumps({"data": vector(({}, "0"))}).encode()

    def hold() -> None:
        server.status = 504 if "slow" in server.requests[-1][1] else 200

    server.hold = hold
    queries = [{"name": name, "expr": name, "above": 1} for name in ("slow", "quick")]
    [lost, summary] = observe(rig(server, queries=queries), "queries")
    assert (lost.severity, lost.data["query"]) == ("error", "slow")
    assert "answered 504" in str(lost.data["error"])
    assert summary.data["series"] == 1


def test_two_queries_of_one_name_would_count_for_each_other_and_are_refused(server: Site) -> None:
    query = {"name": "q", "expr": "q", "above": 1}
    with pytest.raises(PluginError, match="a name of its own"):
        rig(server, queries=[query, query])


def test_a_target_that_is_up_does_not_hide_another_one_of_the_same_instance(server: Site) -> None:
    targets = [
        {
            "scrapePool": "web",
            "scrapeUrl": f"http://a/{health}",
            "labels": {"job": "web", "instance": "a"},
            "health": health,
            "lastError": "",
        }
        for health in ("down", "up")
    ]
    server.body = json.dumps({"data": {"activeTargets": targets}}).encode()
    [down, summary] = observe(rig(server, target_samples=1), "targets")
    assert (down.data["instance"], summary.data["down"]) == ("a", 1)


def test_only_the_first_things_are_observed_and_the_others_counted(server: Site) -> None:
    alerts = [
        {"labels": {"alertname": f"A{number}", "severity": "page"}, "annotations": {}}
        for number in range(5)
    ]
    server.body = json.dumps(alerts).encode()
    *alerts_seen, summary = observe(rig(server, max_items=2), "alerts")
    assert [
        (observation.severity, observation.data["alertname"]) for observation in alerts_seen
    ] == [
        ("critical", "A0"),
        ("critical", "A1"),
    ]
    assert summary.data == {"firing": 5, "omitted": 3}


def test_a_tool_returns_some_series_and_counts_all(server: Site) -> None:
    many = vector(*(({"n": str(number)}, "1") for number in range(60)))
    server.body = json.dumps({"status": "success", "data": many}).encode()
    result = ask(rig(server), "query")
    assert (len(result["series"]), result["count"]) == (50, 60)


def ask(asking: Rig, name: str) -> Any:
    """The result of a tool that is given a query."""
    tool = asking.host.tools[f"prometheus:{name}"]
    assert tool.params is not None
    return tool.call("run", params=tool.params.model_validate({"expr": "q"}), ctx=asking.ctx)


def test_series_of_histograms_hide_no_others(server: Site) -> None:
    several = [{"metric": {}, "histograms": [[0, {}]]}, {"metric": {}, "values": [[0, "1.5"]]}]
    data = {"resultType": "matrix", "result": several}
    server.body = json.dumps({"status": "success", "data": data}).encode()

    rows = ask(rig(server), "query_range")["series"]
    assert [row["values"] for row in rows] == ["histograms", [1.5]]
    with pytest.raises(ValueError, match="use query_range"):
        ask(rig(server), "query")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('job="b", alertname = "Down", job="b"', 'alertname="Down",job="b"'),
        (r'path="a\tb\u00e9\n"', 'path="a\tbé\\n"'),
        (r'alertname="a\"b\\c",job!~"x,y"', r'alertname="a\"b\\c",job!~"x,y"'),
    ],
)
def test_matchers_are_read_as_alertmanager_writes_them(text: str, canonical: str) -> None:
    matchers = parse_matchers(text)
    assert ",".join(map(str, matchers)) == canonical
    assert (
        matchers_of({"matchers": [observation.to_wire() for observation in matchers]}) == canonical
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Down",
        'a="1" b="2"',
        'a="1',
        r'a="\q"',
        r'a="\ud800"',
        'a=~".*"',
        'a!="x"',
        'a=""',
        'a="1";b="2"',
    ],
)
def test_matchers_that_may_silence_everything_or_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|needs|escape"):
        parse_matchers(text)


def test_a_silence_that_is_too_long_or_has_no_alertmanager_is_refused(server: Site) -> None:
    params = {"matchers": 'alertname="Down"', "duration": 7200}
    limited = rig(server, max_silence=3600, actions={"silence": {}})
    for function in ("execute", "dry_run"):
        with pytest.raises(Exception, match="the most is 3600"):
            limited.act("silence", params, function)
    alone = Rig(Prometheus(url=server.url, actions={"silence": {}}))
    with pytest.raises(Exception, match="alertmanager_url"):
        alone.act("silence", params)


def test_a_silence_is_made_once_though_its_answer_was_lost(server: Site) -> None:
    silence = {"id": "s1", "endsAt": "2026-01-05T13:00:00Z", "comment": "known [boyd ]"}
    server.body = json.dumps([silence]).encode()
    result = rig(server, actions={"silence": {}}).act("silence", {"matchers": 'alertname="Down"'})
    assert result == {"silenceId": "s1", "until": silence["endsAt"]}
    assert [method for method, *_ in server.requests] == ["GET"]
