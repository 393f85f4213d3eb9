"""The plugin `kubernetes` with an emulated API server, which validates by the published schemas."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

import kubernetes_emulator
from boyd.plugins.http_service import ServiceError, StateError
from boyd_connectors.kubernetes import Kubernetes
from connection_kit import UpAgent
from harness import free_port, wait_until
from plugin_kit import Rig, data_by_kind

pytestmark = [pytest.mark.real, pytest.mark.long]

WEB, POD = "shop/deployment/web", "shop/web-h1-a"
ACTIONS = ("restart", "scale", "rollout_undo", "cordon", "uncordon", "delete_pod")


class EmulatedCluster:
    """An API server that can be killed, and keeps its objects."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Start it with the objects that it had."""
        command = [sys.executable, kubernetes_emulator.__file__, str(self._port)]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen([*command, str(self._folder / "objects")], stderr=log)
        wait_until(self._answers)

    def kill(self) -> None:
        """Kill it."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def put(self, resource: str, thing: Any) -> None:
        """Have it hold an object."""
        answer = requests.post(f"{self.url}/emulator/{resource}", json=thing, timeout=30)
        assert answer.ok, (self._folder / "log").read_text()

    def hold(self) -> None:
        """Have it give no answer to changes any more."""
        requests.post(f"{self.url}/emulator/hold", json={}, timeout=30)

    def get(self, path: str) -> Any:
        """An object."""
        headers = {"Authorization": "Bearer reader"}
        return requests.get(f"{self.url}{path}", headers=headers, timeout=30).json()

    def deployment(self) -> Any:
        """The deployment `web`."""
        return self.get("/apis/apps/v1/namespaces/shop/deployments/web")

    def _answers(self) -> bool:
        try:
            return bool(self.get("/api/v1/nodes"))
        except requests.RequestException:
            return False


def template(image: str) -> dict[str, Any]:
    env = [{"name": "PASSWORD", "value": f"secret of {image}"}]
    container = {"name": "web", "image": image, "env": env}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def deployment(image: str, generation: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "d1", "generation": generation},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(image),
        },
    }


def pod(name: str, **status: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h1", "uid": "r1"}
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"containers": [{"name": "web", "image": "shop/web:1"}]},
        "status": status,
    }


def node(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": [*conditions]}}


def fill(cluster: EmulatedCluster) -> None:
    for generation, image in enumerate(["shop/web:1", "shop/web:2"], start=1):
        cluster.put("deployments", deployment(image, generation))
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    cluster.put(
        "nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": [ready]}}
    )
    cluster.put("pods", pod("web-h1-a", phase="Running"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCluster]:
    cluster = EmulatedCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.kill()


@pytest.fixture
def cluster(running: EmulatedCluster) -> EmulatedCluster:
    fill(running)
    return running


@pytest.fixture
def rig(cluster: EmulatedCluster, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("READER", "reader")
    monkeypatch.setenv("WRITER", "writer")
    rig = Rig(
        Kubernetes(
            url=cluster.url,
            access={"token": {"env": "READER"}},
            namespaces=["shop"],
            samples=1,
            timeout=30,
            actions={name: {"token": {"env": "WRITER"}} for name in ACTIONS},
        )
    )
    rig.clock.time = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
    return rig


def test_healthy_objects_are_only_counted(rig: Rig) -> None:
    assert data_by_kind(rig.observe()) == {
        "workloads": [{"workloads": 1, "unready": 0, "omitted": 0}],
        "pods": [{"pods": 1, "omitted": 0}],
        "nodes": [{"nodes": 1, "cordoned": 0, "omitted": 0}],
        "events": [{"warnings": 0, "omitted": 0}],
    }


def test_each_kind_of_trouble_is_observed(cluster: EmulatedCluster, rig: Rig) -> None:
    bad = deployment("shop/web:2", 2)
    bad["status"] = {"observedGeneration": 2, "replicas": 2, "readyReplicas": 1}
    cluster.put("deployments", bad)
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    last_state = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    container = {"name": "web", "image": "shop/web:1", "imageID": "", "restartCount": 9}
    states = {"ready": False, "state": waiting, "lastState": last_state}
    cluster.put("pods", pod("web-h1-a", phase="Running", containerStatuses=[container | states]))
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }
    cluster.put("pods", pod("web-h1-b", phase="Pending", conditions=[unschedulable]))
    pressure = [{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "True"}]
    cluster.put(
        "nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": pressure}}
    )
    for number, time in enumerate(["2026-01-05T11:59:00Z", "2026-01-05T09:00:00Z"]):
        cluster.put(
            "events",
            {
                "metadata": {"name": f"e{number}", "namespace": "shop"},
                "involvedObject": {"kind": "Pod", "namespace": "shop", "name": f"p{number}"},
                "type": "Warning",
                "reason": "BackOff",
                "lastTimestamp": time,
            },
        )

    troubles = data_by_kind(rig.observe())
    assert troubles["workload"] == [{"workload": WEB, "desired": 2, "ready": 1, "reason": ""}]
    [failing] = troubles["failing-pod"]
    assert (failing["pod"], failing["exitCode"], failing["ended"]) == (POD, 137, "OOMKilled")
    [pending] = troubles["pending-pod"]
    assert pending["reason"] == "Unschedulable: 0/1 nodes are available"
    assert [row["condition"] for row in troubles["node"]] == ["Ready", "DiskPressure"]
    assert [row["object"] for row in troubles["event"]] == ["shop/p0"]


def test_a_long_list_is_read_page_by_page(
    cluster: EmulatedCluster, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boyd_connectors.kubernetes import cluster as pages

    monkeypatch.setattr(pages, "PAGE", 2)
    for letter in "abcde":
        cluster.put("pods", pod(f"web-h1-{letter}", phase="Running"))
    assert data_by_kind(rig.observe())["pods"] == [{"pods": 5, "omitted": 0}]
    monkeypatch.setattr(pages, "MAX_PAGES", 2)
    with pytest.raises(ServiceError, match="more than 4 pods: name fewer `namespaces`"):
        data_by_kind(rig.observe())


def test_a_restart_changes_the_template_and_is_effective_once_it_is_rolled_out(
    cluster: EmulatedCluster, rig: Rig
) -> None:
    params = {"workload": WEB}
    before = cluster.deployment()
    assert rig.act("restart", params, "dry_run")["replaces"].startswith("2 pods")
    assert cluster.deployment() == before
    # All pods are ready, and yet nothing was restarted: its answer may have been lost before.
    assert rig.verify("restart", params).verdict == "no effect"
    output = rig.act("restart", params)
    assert rig.verify("restart", params, output).verdict == "effective"
    assert cluster.deployment()["metadata"]["generation"] == before["metadata"]["generation"] + 1

    stuck = deployment("shop/web:3", 9)
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    stuck["metadata"]["annotations"] = cluster.deployment()["metadata"]["annotations"]
    stuck["status"] = {"observedGeneration": 9, "conditions": [condition]}
    cluster.put("deployments", stuck)
    assert rig.verify("restart", params).verdict == "worse"


def test_a_deployment_is_scaled_and_scaled_back_unless_others_have_scaled_it(
    cluster: EmulatedCluster, rig: Rig
) -> None:
    params = {"workload": WEB, "replicas": 3}
    assert "+replicas: 3" in rig.act("scale", params, "dry_run")["difference"]
    assert cluster.deployment()["spec"]["replicas"] == 2
    output = rig.act("scale", params)
    assert rig.verify("scale", params, output).verdict == "effective"
    rig.roll_back("scale", params, output)
    assert cluster.deployment()["spec"]["replicas"] == 2
    with pytest.raises(StateError, match="has 2 replicas by now, not 3"):
        rig.roll_back("scale", params, output)
    for function in ("dry_run", "execute"):
        with pytest.raises(StateError, match="the most is 50"):
            rig.act("scale", {**params, "replicas": 51}, function)


def test_a_deployment_changed_since_the_approval_is_not_touched(
    cluster: EmulatedCluster, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale, undone = {"workload": WEB, "replicas": 3}, {"workload": WEB}
    previews = {
        name: rig.act(name, request, "dry_run")
        for name, request in (("scale", scale), ("rollout_undo", undone))
    }
    meanwhile = cluster.deployment()
    meanwhile["spec"] |= {"replicas": 10, "template": template("shop/web:3")}
    meanwhile["metadata"]["generation"] += 1
    cluster.put("deployments", meanwhile)
    for name, arguments in (("scale", scale), ("rollout_undo", undone)):
        monkeypatch.setattr(
            "boyd_connectors.kubernetes.plugin.approval_preview",
            lambda ctx, name=name: previews[name],
        )
        with pytest.raises(StateError, match="has changed since it was approved: before was"):
            rig.act(name, arguments)
    assert cluster.deployment()["spec"] == meanwhile["spec"]


def test_a_number_above_the_limit_is_put_back(cluster: EmulatedCluster, rig: Rig) -> None:
    many = cluster.deployment()
    many["spec"]["replicas"] = 60
    cluster.put("deployments", many)
    params = {"workload": WEB, "replicas": 10}
    rig.roll_back("scale", params, rig.act("scale", params))
    assert cluster.deployment()["spec"]["replicas"] == 60


def test_a_stuck_rollout_is_observed_though_the_old_pods_are_ready(
    cluster: EmulatedCluster, rig: Rig
) -> None:
    stuck = deployment("shop/web:2", 2)
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    stuck["status"] = {"observedGeneration": 2, "readyReplicas": 2, "conditions": [condition]}
    cluster.put("deployments", stuck)
    [workload] = data_by_kind(rig.observe())["workload"]
    assert workload["reason"] == "Progressing: ProgressDeadlineExceeded"


def test_a_rollout_is_undone_and_redone_and_no_value_is_shown(
    cluster: EmulatedCluster, rig: Rig
) -> None:
    params = {"workload": WEB}
    assert rig.verify("rollout_undo", params).verdict == "no effect"
    result = rig.act("rollout_undo", params, "dry_run")
    assert "+web: shop/web:1" in result["difference"]
    assert "spec.containers[0].env[0].value" in result["differs in"]
    output = rig.act("rollout_undo", params)
    assert cluster.deployment()["spec"]["template"] == template("shop/web:1")
    assert rig.verify("rollout_undo", params, output).verdict == "effective"
    assert "secret of" not in str((result, output))
    rig.roll_back("rollout_undo", params, output)
    assert cluster.deployment()["spec"]["template"] == template("shop/web:2")
    with pytest.raises(StateError, match="no revision 77; known"):
        rig.act("rollout_undo", {**params, "revision": 77})


def test_a_node_is_cordoned_and_back(cluster: EmulatedCluster, rig: Rig) -> None:
    params = {"node": "n1"}
    assert "+unschedulable: true" in rig.act("cordon", params, "dry_run")["difference"]
    output = rig.act("cordon", params)
    assert rig.verify("cordon", params).verdict == "effective"
    with pytest.raises(StateError, match="cordoned already"):
        rig.act("cordon", params, "dry_run")
    rig.roll_back("cordon", params, output)
    assert rig.verify("uncordon", params).verdict == "effective"
    with pytest.raises(StateError, match="not cordoned already"):
        rig.act("uncordon", params)


def test_a_pod_is_deleted_only_if_something_replaces_it(cluster: EmulatedCluster, rig: Rig) -> None:
    bare = pod("bare", phase="Running")
    del bare["metadata"]["ownerReferences"]
    cluster.put("pods", bare)
    with pytest.raises(StateError, match="no controller"):
        rig.act("delete_pod", {"pod": "shop/bare"}, "dry_run")
    assert rig.act("delete_pod", {"pod": POD}, "dry_run")["replacedBy"] == "replicaset/web-h1"
    # Without the answer of the deletion, it may be another pod of that name.
    assert rig.verify("delete_pod", {"pod": POD}).verdict == "cannot tell"
    output = rig.act("delete_pod", {"pod": POD})
    assert rig.verify("delete_pod", {"pod": POD}, output).verdict == "effective"


def test_an_action_needs_its_credentials_and_a_namespace_of_the_options(
    cluster: EmulatedCluster, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRITER", "reader")
    with pytest.raises(ServiceError, match="403"):
        rig.act("cordon", {"node": "n1"}, "dry_run")
    with pytest.raises(StateError, match="not among the option"):
        rig.act("restart", {"workload": "other/deployment/web"})


def test_a_deployment_changed_during_the_action_is_not_touched(
    cluster: EmulatedCluster, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boyd_connectors.kubernetes.cluster import Cluster

    read = Cluster.read

    def overtake(self: Cluster, path: str, **query: Any) -> Any:
        body_read = read(self, path, **query)
        if path.endswith("/web"):
            cluster.put(
                "deployments", {**body_read, "metadata": {**body_read["metadata"], "labels": {}}}
            )
        return body_read

    monkeypatch.setattr(Cluster, "read", overtake)
    for name in ("restart", "rollout_undo"):
        with pytest.raises(StateError, match="it has changed, so nothing was done"):
            rig.act(name, {"workload": WEB})


def test_an_agent_scales_verifies_and_undoes_and_tells_the_truth_when_the_server_dies(
    running: EmulatedCluster, tmp_path: Path
) -> None:
    fill(running)
    text = AGENT.format(url=running.url)
    with UpAgent(tmp_path, text, READER="reader", WRITER="writer") as agent:
        params = {"workload": WEB, "replicas": 3}
        item, scaled = agent.perform("kubernetes:scale", **params)
        assert "+replicas: 3" in item["preview"]["output"]["difference"]
        assert agent.verified(scaled)["verdict"] == "effective"
        assert agent.undo(scaled)["state"] == "succeeded"
        assert running.deployment()["spec"]["replicas"] == 2

        called = agent.ask("POST", "/actions/kubernetes:scale?wait=60", {"params": params})
        more = running.deployment()
        more["spec"]["replicas"] = 7
        running.put("deployments", more)
        agent.ask("POST", f"/approvals/{called['approvalId']}/approve?wait=60", {})
        late = agent.ask("GET", f"/executions/approval:{called['approvalId']}")
        assert "before was 2, and is 7" in late["result"]["error"]

        called = agent.ask("POST", "/actions/kubernetes:cordon?wait=60", {"params": {"node": "n1"}})
        running.hold()
        agent.ask("POST", f"/approvals/{called['approvalId']}/approve?wait=0", {})
        wait_until(lambda: running.get("/api/v1/nodes/n1")["spec"].get("unschedulable"))
        running.kill()
        lost = {"id": f"approval:{called['approvalId']}"}
        wait_until(lambda: agent.ask("GET", f"/executions/{lost['id']}")["state"] == "unknown")
        assert "cannot be reached" in agent.observer_error("kubernetes:nodes")
        running.start()
        assert agent.verified(lost)["verdict"] == "effective"
        assert agent.observed("kubernetes/nodes")["cordoned"] == 1


AGENT = """
id = "connected"
mode = "continuous"
loop_interval = 1
[[plugins]]
use = "kubernetes"
[plugins.options]
url = "{url}"
interval = 1
timeout = 30
access = {{ token = {{ env = "READER" }} }}
[plugins.options.actions]
scale = {{ token = {{ env = "WRITER" }} }}
cordon = {{ token = {{ env = "WRITER" }} }}
"""
