"""Objects of a cluster; tests/connections has an emulated API server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.plugins.http_service import StateError
from boyd_connectors.kubernetes import Kubernetes
from boyd_connectors.kubernetes.cluster import choose, differing
from boyd_connectors.kubernetes.cluster_health import (
    is_stuck,
    pod_counts,
    pod_troubles,
    progress,
    warnings_since,
)
from plugin_kit import Rig, site

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def workload(generation: int = 2, **status: int) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status}


@pytest.mark.parametrize(
    ("thing", "complete"),
    [
        (workload(observedGeneration=2, replicas=2, updatedReplicas=2, readyReplicas=2), True),
        (workload(observedGeneration=1, replicas=2, updatedReplicas=2, readyReplicas=2), False),
        (workload(observedGeneration=2, replicas=3, updatedReplicas=2, readyReplicas=2), False),
        (workload(observedGeneration=2, replicas=2, updatedReplicas=2), False),
    ],
    ids=["all ready", "not seen yet", "an old pod is left", "none ready"],
)
def test_a_rollout_is_complete_when_all_and_only_new_pods_are_ready(
    thing: Any, complete: bool
) -> None:
    assert progress("deployment", thing)[0] is complete


def test_a_rollout_is_not_stuck_until_the_controller_has_seen_the_change() -> None:
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    for generation, stuck in ((1, False), (2, True)):
        thing = workload(observedGeneration=generation)
        thing["status"]["conditions"] = [condition]
        assert is_stuck(thing) is stuck


def test_a_daemon_set_counts_the_nodes_that_it_should_be_on() -> None:
    thing = {"status": {"desiredNumberScheduled": 3, "numberReady": 1}}
    assert pod_counts("daemonset", thing) == (3, 1)


def test_a_failing_pod_depends_on_its_node() -> None:
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "name": "web", "image": "web"}
    pod = {
        "metadata": {"namespace": "shop", "name": "web-1"},
        "spec": {"nodeName": "n1"},
        "status": {"containerStatuses": [waiting]},
    }

    [trouble] = pod_troubles([pod], NOW, 120.0)
    assert trouble.data["dependsOn"] == {"shop/web-1": ["n1"]}


def test_a_pod_is_pending_only_after_some_time() -> None:
    pod = {
        "metadata": {"name": "a", "namespace": "b", "creationTimestamp": "2026-01-05T11:59:00Z"},
        "status": {"phase": "Pending"},
    }
    assert [pod_trouble.kind for pod_trouble in pod_troubles([pod], NOW, 60)] == ["pending-pod"]
    assert list(pod_troubles([pod], NOW, 61)) == []


def test_an_event_that_goes_on_counts_by_when_it_was_last_seen() -> None:
    event = {
        "metadata": {"creationTimestamp": "2026-01-05T08:00:00Z"},
        "involvedObject": {"kind": "Node", "name": "n1"},
        "lastTimestamp": None,
        "eventTime": "2026-01-05T08:00:00.000000Z",
        "series": {"count": 9, "lastObservedTime": "2026-01-05T11:59:59.000000Z"},
    }
    [warning] = warnings_since([event, event], datetime(2026, 1, 5, 11, 59, tzinfo=UTC))
    assert warning.data["object"] == "n1"


def test_templates_are_compared_by_path_without_values() -> None:
    first = {"spec": {"containers": [{"env": [{"value": "secret"}]}], "a": 1}}
    other = {"spec": {"containers": [{"env": [{"value": "other"}]}]}}
    assert differing(first, other) == ["spec.a", "spec.containers[0].env[0].value"]


def test_a_deployment_without_an_earlier_revision_cannot_be_undone() -> None:
    with pytest.raises(StateError, match="no earlier revision"):
        choose([{"metadata": {}}], None)


@pytest.mark.parametrize("workload", ["web", "shop/pod/web", "shop/deployment/../x", "a/b/c/d"])
def test_a_workload_that_is_none_is_refused(workload: str) -> None:
    rig = Rig(Kubernetes(actions={"restart": {}}))
    with pytest.raises(ValueError, match="workload"):
        rig.act("restart", {"workload": workload})


@pytest.mark.parametrize(
    ("lost", "lists"),
    [
        ("/namespaces/private/", ["deployments", "statefulsets", "daemonsets", "pods", "events"]),
        ("/statefulsets", ["statefulsets"] * 2),
    ],
)
def test_a_list_that_cannot_be_read_hides_no_other(lost: str, lists: list[str]) -> None:
    with site() as server:

        def hold() -> None:
            path = server.requests[-1][1].partition("?")[0]
            server.status = 403 if lost in path else 200
            items = [pod()] if path.endswith("/namespaces/shop/pods") else []
            server.body = json.dumps({"items": items, "metadata": {}}).encode()

        server.hold = hold
        rig = Rig(Kubernetes(url=server.url, access={}, namespaces=["private", "shop"]))
        observations = rig.observe()

    unread = [
        observation.data
        for observation in observations
        if observation.source == "kubernetes/unreadable"
    ]
    assert [row["list"] for row in unread] == lists
    assert all("answered 403" in str(row["error"]) for row in unread)
    assert "kubernetes/pending-pod" in {observation.source for observation in observations}


def test_an_unready_workload_is_one_when_its_list_can_be_read_again() -> None:
    meta = {"name": "web", "namespace": "shop"}
    workload = {"metadata": meta, "spec": {"replicas": 2}, "status": {"readyReplicas": 1}}
    reports: list[bool] = []
    with site() as server:

        def hold() -> None:
            is_read = "/deployments" in server.requests[-1][1]
            server.status = 403 if is_read and len(reports) == 2 else 200
            body = {"items": [workload] if is_read else [], "metadata": {}}
            server.body = json.dumps(body).encode()

        server.hold = hold
        rig = Rig(Kubernetes(url=server.url, access={}, samples=2))
        for _ in range(4):
            sources = {observation.source for observation in rig.observe()}
            reports.append("kubernetes/workload" in sources)

    assert reports == [False, True, False, True]


def pod() -> dict[str, Any]:
    meta = {"name": "a", "namespace": "shop", "creationTimestamp": "2026-01-05T11:00:00Z"}
    return {"metadata": meta, "spec": {}, "status": {"phase": "Pending"}}


def test_an_unknown_action_or_namespace_is_refused() -> None:
    with pytest.raises(PluginError, match="exec"):
        Kubernetes(actions={"exec": {}})
    with pytest.raises(PluginError, match="namespaces"):
        Kubernetes(namespaces=["a/b"])
