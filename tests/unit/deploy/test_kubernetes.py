"""The Kubernetes manifests: what they start, how it ends, who may talk to whom."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from boyd.agent import agent_from_file
from boyd.text.queues import DEFAULT
from boyd_api.app import ALL
from deploy_kit import DEPLOY, LEAST_GRACE, ROOT, VARIABLES, kind_of, parses, queues_of
from reference import generate

KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ["small", "production"]
#: The oldest and the newest Kubernetes that the manifests are checked against.
VERSIONS = ["1.27", "1.37"]
#: Kinds that others add to Kubernetes: there is no schema for them here.
FOREIGN = {"PrometheusRule", "ServiceMonitor", "ScaledObject"}
ROUTES = {rule for routes in ALL for rule in routes.rules.values()}

Manifest = dict[str, Any]


def kustomizations() -> list[Path]:
    return sorted(DEPLOY.rglob("kustomization.yaml"))


def read(path: Path) -> list[Manifest]:
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


MANIFESTS: list[Manifest] = [
    manifest
    for path in sorted(KUBERNETES.rglob("*.yaml"))
    if path.name != "kustomization.yaml"
    for manifest in read(path)
]
WORKLOADS = [
    manifest
    for manifest in MANIFESTS
    if manifest["kind"] in ("Deployment", "DaemonSet", "StatefulSet")
]
OURS = [manifest for manifest in WORKLOADS if manifest["metadata"]["name"] != "boyd-redis"]


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


def pod(workload: Manifest) -> Any:
    return workload["spec"]["template"]["spec"]


def container(workload: Manifest) -> Any:
    (only,) = pod(workload)["containers"]
    return only


def manifest_named(kind: str, name: str) -> Manifest:
    (manifest,) = [m for m in MANIFESTS if (m["kind"], m["metadata"]["name"]) == (kind, name)]
    return manifest


def settings() -> dict[str, str]:
    """The settings that every process gets."""
    (base,) = read(KUBERNETES / "base" / "kustomization.yaml")
    (generated,) = base["configMapGenerator"]
    return dict(literal.split("=", 1) for literal in generated["literals"])


# Shape


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_every_manifest_fits_the_schema_of_kubernetes(manifest: Manifest, version: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    if manifest["kind"] in FOREIGN:
        return
    schemas.validate(json.loads(json.dumps(manifest)), version, strict=True)


@pytest.mark.parametrize("path", kustomizations(), ids=lambda p: str(p.parent.relative_to(DEPLOY)))
def test_every_kustomization_names_what_exists_and_all_of_it(path: Path) -> None:
    (kustomization,) = read(path)
    folder = path.parent
    resources = kustomization.get("resources", [])
    files = [
        name
        for generator in kustomization.get("configMapGenerator", ())
        for name in generator.get("files", ())
    ]

    for name in [*resources, *kustomization.get("components", ()), *files]:
        target = (folder / name).resolve()
        assert target.is_file() or (target / "kustomization.yaml").is_file(), name
    beside = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert beside == {name for name in resources if name.endswith(".yaml")}
    for replica in kustomization.get("replicas", ()):
        assert "replicas" in manifest_named("Deployment", replica["name"])["spec"]
    for patch in kustomization.get("patches", ()):
        target = manifest_named(patch["target"]["kind"], patch["target"]["name"])
        for step in yaml.safe_load(patch["patch"]):
            *parents, last = step["path"].strip("/").split("/")
            for parent in parents:
                target = target[parent]
            assert last in target


def test_no_two_manifests_of_an_overlay_have_the_same_name_and_none_names_a_namespace() -> None:
    assert len({name_of(m) for m in MANIFESTS if m["kind"] != "NetworkPolicy"}) == len(
        [m for m in MANIFESTS if m["kind"] != "NetworkPolicy"]
    )
    assert not [m for m in MANIFESTS if "namespace" in m["metadata"]]


def test_every_overlay_says_which_image_boyd_is() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    ours = {container(workload)["image"] for workload in OURS}

    assert ours == {"boyd"} == {compose["services"]["api"]["image"]}
    for overlay in OVERLAYS:
        (kustomization,) = read(KUBERNETES / "overlays" / overlay / "kustomization.yaml")
        (image,) = kustomization["images"]
        assert image["name"] == "boyd"
        assert image["newTag"] not in ("", "latest")
    redis = container(manifest_named("StatefulSet", "boyd-redis"))
    assert redis["image"] == compose["services"]["redis"]["image"]


# What runs


@pytest.mark.parametrize("workload", OURS, ids=name_of)
def test_every_container_runs_a_command_that_exists_and_settings_that_exist(
    workload: Manifest,
) -> None:
    boyd_container = container(workload)

    assert parses(boyd_container["args"])
    assert "command" not in boyd_container
    assert {each["name"] for each in boyd_container.get("env", ())} <= VARIABLES
    assert boyd_container["envFrom"] == [{"configMapRef": {"name": "boyd-settings"}}]
    # Or Kubernetes sets BOYD_API_PORT and the like, which are no settings.
    assert pod(workload)["enableServiceLinks"] is False


def test_the_settings_of_all_exist_and_lie_where_they_are_mounted() -> None:
    variables = settings()
    files = {name: value for name, value in variables.items() if name.endswith("_FILE")}

    assert set(variables) <= VARIABLES
    assert set(files) >= {"BOYD_REDIS_URL_FILE", "BOYD_AUDIT_KEY_FILE"}
    for workload in OURS:
        mounts = {m["name"]: m["mountPath"] for m in container(workload)["volumeMounts"]}
        (secret,) = [v["secret"] for v in pod(workload)["volumes"] if "secret" in v]
        there = {f"{mounts['secrets']}/{item['path']}" for item in secret["items"]}
        assert set(files.values()) <= there
        assert variables["BOYD_AGENTS"] == f"{mounts['agent']}/agent.toml"
    assert agent_from_file(DEPLOY / "agent" / "agent.toml").id


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_secrets_are_files_that_make_secrets_makes_and_of_ones_own_user(
    workload: Manifest, tmp_path: Path
) -> None:
    folder = tmp_path / "secrets"
    program = DEPLOY / "redis" / "make-secrets"
    subprocess.run([program, "redis://a/0", folder], check=True, capture_output=True)
    (secret,) = [v["secret"] for v in pod(workload)["volumes"] if "secret" in v]
    keys = {item["key"] for item in secret["items"]}

    assert secret["secretName"] == "boyd"
    assert keys <= {path.name for path in folder.iterdir()}
    if workload in OURS:
        kind = kind_of(container(workload)["args"])
        assert f"redis-url-{'worker' if kind == 'act' else kind}" in keys
    assert "redis-url-admin" not in keys


def test_workers_together_consume_every_usual_queue() -> None:
    queues = [queue for workload in OURS for queue in queues_of(container(workload)["args"])]
    inside = manifest_named("DaemonSet", "boyd-host")

    assert sorted(queues) == sorted(DEFAULT)
    assert queues_of(container(inside)["args"]) == ["host"]
    (host,) = [
        variable for variable in container(inside)["env"] if variable["name"] == "BOYD_WORKER__HOST"
    ]
    assert host["name"] == "BOYD_WORKER__HOST"
    assert host["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_there_are_two_of_each_that_may_fail() -> None:
    for name in ("api", "worker", "act", "beat"):
        workload = manifest_named("Deployment", f"boyd-{name}")
        assert workload["spec"]["replicas"] >= 2
        budget = manifest_named("PodDisruptionBudget", f"boyd-{name}")["spec"]
        assert budget["maxUnavailable"] == 1
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert budget["selector"]["matchLabels"].items() <= labels.items()
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
        for spread in pod(workload)["topologySpreadConstraints"]:
            assert spread["labelSelector"] == workload["spec"]["selector"]


@pytest.mark.parametrize("workload", OURS, ids=name_of)
def test_every_process_has_the_time_to_end(workload: Manifest) -> None:
    boyd_container = container(workload)
    grace = pod(workload)["terminationGracePeriodSeconds"]
    before = (
        boyd_container.get("lifecycle", {})
        .get("preStop", {})
        .get("exec", {})
        .get("command", ["", "0"])
    )

    assert grace >= int(before[1]) + LEAST_GRACE[kind_of(boyd_container["args"])]


# What is asked of it


def probes() -> Iterator[tuple[str, Any]]:
    for workload in OURS:
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            if kind in container(workload):
                yield kind, container(workload)[kind]


def test_probes_ask_paths_and_ports_that_exist() -> None:
    api = container(manifest_named("Deployment", "boyd-api"))
    (port,) = api["ports"]
    service = manifest_named("Service", "boyd-api")["spec"]["ports"][0]

    assert str(port["containerPort"]) == api["args"][api["args"].index("--port") + 1]
    assert service["targetPort"] == port["name"]
    assert len(list(probes())) == 3
    for _, probe in probes():
        assert probe["httpGet"]["path"] in ROUTES
        assert probe["httpGet"]["port"] == port["name"]


def test_no_probe_asks_for_what_is_away_for_all_copies_at_once() -> None:
    assert "/readyz" in ROUTES
    assert {probe["httpGet"]["path"] for _, probe in probes()} == {"/healthz"}


def test_the_ingress_lets_event_streams_through() -> None:
    ingress = manifest_named("Ingress", "boyd-api")
    proxy_settings = {k.partition("/")[2]: v for k, v in ingress["metadata"]["annotations"].items()}
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    service = manifest_named("Service", path["backend"]["service"]["name"])

    assert proxy_settings["proxy-buffering"] == "off"
    assert int(proxy_settings["proxy-read-timeout"]) > 60
    assert [tls["hosts"] for tls in ingress["spec"]["tls"]] == [[rule["host"]]]
    assert path["backend"]["service"]["port"]["name"] == service["spec"]["ports"][0]["name"]


def test_prometheus_gets_the_same_alerts_and_scrapes_what_exists() -> None:
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "boyd-alerts.yml").read_text("utf-8"))
    monitor = manifest_named("ServiceMonitor", "boyd-api")["spec"]
    service = manifest_named("Service", "boyd-api")
    (endpoint,) = monitor["endpoints"]

    assert manifest_named("PrometheusRule", "boyd")["spec"] == alerts
    assert endpoint["path"] in ROUTES
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    # The alerts say job="boyd".
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "boyd"


def test_keda_asks_for_metrics_and_queues_that_exist_and_is_alone() -> None:
    scaled = manifest_named("ScaledObject", "boyd-worker")["spec"]
    worker = container(manifest_named("Deployment", "boyd-worker"))
    metrics = generate.families()

    assert scaled["minReplicaCount"] >= 1
    assert not [m for m in MANIFESTS if m["kind"] == "HorizontalPodAutoscaler"]
    for trigger in scaled["triggers"]:
        query = trigger["metadata"]["query"]
        assert "|".join(queues_of(worker["args"])) in query
        assert any(name in metrics for name in query.replace("(", "{").split("{"))


def test_keda_divides_a_sum_by_the_workers_and_an_age_by_nothing() -> None:
    scaled = [m for m in MANIFESTS if m["kind"] == "ScaledObject"]
    triggers = [trigger for m in scaled for trigger in m["spec"]["triggers"]]
    kinds = {t["metadata"]["query"].partition("(")[0]: t["metricType"] for t in triggers}

    assert kinds == {"sum": "AverageValue", "max": "Value"}


# Who may do what


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_nothing_is_privileged(workload: Manifest) -> None:
    spec, boyd_container = pod(workload), container(workload)

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert boyd_container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert boyd_container["resources"]["limits"]["memory"]
    assert boyd_container["resources"]["requests"]["cpu"]


def test_the_user_is_that_of_the_image() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")

    assert {pod(workload)["securityContext"]["runAsUser"] for workload in OURS} == {10001}
    assert "USER 10001:10001" in text


def test_no_secret_is_in_the_manifests() -> None:
    assert not [m for m in MANIFESTS if m["kind"] == "Secret"]
    assert not [v for v in settings().values() if "://" in v]


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    match_labels: dict[str, str] = selector.get("matchLabels", {})
    listed = selector.get("matchExpressions", [])
    return match_labels.items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in listed
    )


def policies(workload: Manifest) -> list[Manifest]:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    return [
        m
        for m in MANIFESTS
        if m["kind"] == "NetworkPolicy" and selects(m["spec"]["podSelector"], labels)
    ]


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_nobody_is_reached_or_reaches_out_but_by_a_policy(workload: Manifest) -> None:
    manifests = policies(workload)
    name = workload["metadata"]["name"]
    inwards = [rule for p in manifests for rule in p["spec"].get("ingress", ())]
    names = {p["metadata"]["name"] for p in manifests}

    assert any(set(p["spec"]["policyTypes"]) == {"Ingress", "Egress"} for p in manifests)
    assert bool(inwards) == (name in ("boyd-api", "boyd-redis"))
    assert ("boyd-outwards" in names) == (name in ("boyd-worker", "boyd-act", "boyd-host"))
    assert ("boyd-to-redis" in names) == (workload in OURS)


# As kustomize puts it together


def render(folder: Path) -> list[Manifest]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    command = [kubectl, "kustomize", str(folder)]
    # It reads files only, and shall know of no cluster.
    alone = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.mark.long
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_renders_to_what_fits_and_refers_to_what_exists(overlay: str) -> None:
    manifests = render(KUBERNETES / "overlays" / overlay)
    schemas = pytest.importorskip("kubernetes_validate")
    configs = {m["metadata"]["name"] for m in manifests if m["kind"] == "ConfigMap"}
    for manifest in manifests:
        if manifest["kind"] not in FOREIGN:
            schemas.validate(manifest, VERSIONS[-1], strict=True)
    for workload in [m for m in manifests if m in WORKLOADS or "template" in m.get("spec", {})]:
        mounted = {v["configMap"]["name"] for v in pod(workload)["volumes"] if "configMap" in v}
        names = {e["configMapRef"]["name"] for e in container(workload).get("envFrom", ())}
        assert mounted | names <= configs
        assert "/" in container(workload)["image"] or "redis:" in container(workload)["image"]


def test_with_keda_nobody_else_says_how_many_workers(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    path = tmp_path / "deploy" / "kubernetes" / "overlays" / "production" / "kustomization.yaml"
    text = path.read_text("utf-8").replace("# - ../../components", "- ../../components")
    path.write_text(text.replace("  - { name: boyd-worker, count: 4 }\n", ""), "utf-8")
    manifests = {name_of(m): m for m in render(path.parent)}

    assert "replicas" not in manifests["Deployment-boyd-worker"]["spec"]
    assert {"ScaledObject-boyd-worker", "DaemonSet-boyd-host"} <= set(manifests)
