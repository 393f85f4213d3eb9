"""The Helm chart: what it renders, as kustomize does, and the values that it takes."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import helm_kit
from boyd.settings.process_settings import Settings
from boyd.text.version import VERSION
from dashboard_kit import dashboards
from deploy_kit import DEPLOY, VARIABLES, parses

CHART = DEPLOY / "helm" / "boyd"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
FOREIGN = {"PrometheusRule", "ServiceMonitor"}
#: The values that give what the overlay `production` gives, with its components and `hosts`.
PRODUCTION: dict[str, Any] = {
    "redis": {"cidrs": ["192.0.2.10/32"]},
    "api": {"replicas": 3},
    "worker": {"replicas": 4},
    "archive": {"enabled": True},
    "hosts": {"enabled": True},
    "ingress": {"enabled": True},
    "prometheus": {"enabled": True},
}
SETS: dict[str, dict[str, Any]] = {
    "default": {},
    "production": PRODUCTION,
    "dashboards": {"grafana": {"enabled": True}},
    "traces": {"traces": {"enabled": True}},
    "own agent": {
        "agent": 'id = "shop"\n',
        "agentFiles": {"shop.py": "# {{ not a template }}\n"},
        "settings": {"BOYD_LOG_LEVEL": "debug"},
        "podAnnotations": {"example.com/owner": "shop"},
        "worker": {"secretKeys": ["model-key"]},
        "api": {
            "secretKeys": ["oidc", "github"],
            "settings": {
                "BOYD_OIDC__CLIENT_SECRET_FILE": "/run/secrets/boyd/oidc",
                "BOYD_INTAKE__SECRETS": "/run/secrets/boyd",
            },
        },
    },
    "elsewhere": {
        "agentConfigMap": "theirs",
        "image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": ["registry"]},
        "redis": {"port": 6380, "podLabels": {"app": "redis"}},
        "act": {"enabled": False},
        "worker": {"replicas": None},
        "nodeSelector": {"pool": "boyd"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "networkPolicy": {"apiOutwards": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]},
    },
    "open": {"networkPolicy": {"enabled": False}},
}
Manifest = dict[str, Any]
#: What runs Helm; the programs come with `make parts`.
runs_helm = pytest.mark.long
every_set = pytest.mark.parametrize("name", SETS)


def template(folder: Path, values: dict[str, Any]) -> Any:
    """Render the chart with those values."""
    file = folder / "values.json"
    file.write_text(json.dumps(values), "utf-8")
    return helm_kit.run("helm", "template", "boyd", CHART, "--namespace", "n", "--values", file)


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The manifests of a set of values by kind and name."""

    @cache
    def make(name: str) -> dict[str, Manifest]:
        done = template(tmp_path_factory.mktemp("helm"), SETS[name])
        assert done.returncode == 0, done.stderr
        return by_name(done.stdout)

    return make


def by_name(text: str) -> dict[str, Manifest]:
    """The manifests in a stream; no two have the same kind and name."""
    manifests_found = [document for document in yaml.safe_load_all(text) if document]
    manifests_by_name = {
        f"{document['kind']}-{document['metadata']['name']}": document
        for document in manifests_found
    }
    assert len(manifests_by_name) == len(manifests_found)
    return manifests_by_name


def workloads(manifests: dict[str, Manifest]) -> list[Manifest]:
    return [
        manifest
        for manifest in manifests.values()
        if manifest["kind"] in ("Deployment", "DaemonSet")
    ]


# What it renders


@runs_helm
@every_set
@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_every_manifest_fits_the_schema_of_kubernetes(render: Any, name: str, version: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    for manifest in render(name).values():
        if manifest["kind"] not in FOREIGN:
            schemas.validate(manifest, version, strict=True)


@runs_helm
@every_set
def test_pods_run_what_exists_and_mount_what_exists(render: Any, name: str) -> None:
    manifests = render(name)
    configs = {
        manifest["metadata"]["name"]
        for manifest in manifests.values()
        if manifest["kind"] == "ConfigMap"
    }
    for workload in workloads(manifests):
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounted = {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v}
        assert parses(container["args"])
        assert {variable["name"] for variable in container.get("env", ())} <= VARIABLES
        assert mounted <= configs | {SETS[name].get("agentConfigMap")}
    assert set(manifests["ConfigMap-boyd-settings"]["data"]) <= VARIABLES
    assert not [manifest for manifest in manifests.values() if manifest["kind"] == "Secret"]


@runs_helm
def test_with_the_values_of_production_it_makes_what_kustomize_makes(
    render: Any, tmp_path: Path
) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    overlay = tmp_path / "deploy" / "kubernetes" / "overlays" / "production"
    file = overlay / "kustomization.yaml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("# - ../../components/hosts", "- ../../components/hosts"), "utf-8")
    done = helm_kit.run("kubectl", "kustomize", overlay)
    assert done.returncode == 0, done.stderr

    kustomized = {name: plain(document) for name, document in by_name(done.stdout).items()}
    kustomized = {
        f"{document['kind']}-{document['metadata']['name']}": document
        for document in kustomized.values()
    }
    charted = {name: plain(document) for name, document in render("production").items()}
    assert set(charted) == set(kustomized)
    for name, manifest in kustomized.items():
        assert charted[name] == manifest, name


def plain(manifest: Manifest) -> Manifest:
    """A manifest without how each of both replaces pods when a ConfigMap changes."""
    # Kustomize ends the names with a hash; the chart adds an annotation.
    text = re.sub(r'"(boyd-(?:agent|settings))-[a-z0-9]{10}"', r'"\1"', json.dumps(manifest))
    copy: Manifest = json.loads(text)
    if "template" in copy.get("spec", {}):
        annotations = copy["spec"]["template"]["metadata"].pop("annotations", {})
        assert set(annotations) <= {"checksum/settings"}
        for container in copy["spec"]["template"]["spec"]["containers"]:
            assert container.pop("imagePullPolicy", "IfNotPresent") == "IfNotPresent"
    if copy["kind"] == "ConfigMap":
        copy["metadata"].pop("labels", None)
    return copy


@runs_helm
def test_pods_are_replaced_when_the_agent_or_a_setting_changes(render: Any) -> None:
    def sums(name: str) -> set[str]:
        pods = [workload["spec"]["template"]["metadata"] for workload in workloads(render(name))]
        return {pod["annotations"]["checksum/settings"] for pod in pods}

    assert len(sums("default")) == len(sums("own agent")) == 1
    assert sums("default") != sums("own agent")
    assert sums("default") == sums("dashboards")


@runs_helm
def test_an_agent_of_ones_own_comes_with_its_files(render: Any) -> None:
    manifests = render("own agent")

    assert manifests["ConfigMap-boyd-agent"]["data"] == {
        "agent.toml": 'id = "shop"\n',
        "shop.py": "# {{ not a template }}\n",
    }
    settings = manifests["ConfigMap-boyd-settings"]["data"]
    assert settings["BOYD_LOG_LEVEL"] == "debug"
    assert settings["BOYD_LOG_FORMAT"] == "json"


@runs_helm
def test_a_role_can_have_settings_and_secrets_of_its_own(render: Any) -> None:
    paths_of, variables = {}, {}
    for workload in workloads(render("own agent")):
        role, pod = workload["metadata"]["name"], workload["spec"]["template"]["spec"]
        (secret,) = [v["secret"] for v in pod["volumes"] if "secret" in v]
        paths_of[role] = {item["path"] for item in secret["items"]}
        variables[role] = {
            variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]
        }

    assert {role for role, paths in paths_of.items() if "model-key" in paths} == {"boyd-worker"}
    assert {role for role, paths in paths_of.items() if "oidc" in paths} == {"boyd-api"}
    assert variables["boyd-api"]["BOYD_OIDC__CLIENT_SECRET_FILE"] == "/run/secrets/boyd/oidc"
    assert "BOYD_OIDC__CLIENT_SECRET_FILE" not in variables["boyd-worker"]


@runs_helm
def test_every_setting_that_is_a_secret_is_refused(tmp_path: Path) -> None:
    secret = {field for field, about in Settings.model_fields.items() if "SecretStr" in str(about)}
    names = {f"BOYD_{field.upper()}" for field in secret - {"approval_public_key"}}

    assert len(names) >= 4
    for name in names:
        assert (
            f"settings.{name} is a secret" in template(tmp_path, {"settings": {name: "x"}}).stderr
        )


@runs_helm
def test_values_reach_the_manifests(render: Any) -> None:
    manifests = render("elsewhere")
    pod = manifests["Deployment-boyd-api"]["spec"]["template"]["spec"]

    assert "ConfigMap-boyd-agent" not in manifests
    assert "Deployment-boyd-act" not in manifests
    assert "PodDisruptionBudget-boyd-act" not in manifests
    # An autoscaler sets it.
    assert "replicas" not in manifests["Deployment-boyd-worker"]["spec"]
    assert pod["containers"][0]["image"] == f"registry.example/boyd@sha256:{'0' * 64}"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["nodeSelector"] == {"pool": "boyd"}
    assert pod["tolerations"] == [{"key": "pool", "operator": "Exists"}]
    (egress,) = manifests["NetworkPolicy-boyd-to-redis"]["spec"]["egress"]
    to = [{"podSelector": {"matchLabels": {"app": "redis"}}}]
    assert egress == {"ports": [{"port": 6380}], "to": to}
    (outwards,) = manifests["NetworkPolicy-boyd-api-outwards"]["spec"]["egress"]
    assert outwards == {"to": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}
    assert not [name for name in render("open") if name.startswith("NetworkPolicy")]


@runs_helm
def test_grafana_gets_every_dashboard_as_it_is(render: Any) -> None:
    config_maps = [
        manifest for name, manifest in render("dashboards").items() if name.endswith("-dashboard")
    ]
    contents = {
        Path(file).stem: json.loads(text)
        for manifest in config_maps
        for file, text in manifest["data"].items()
    }

    assert contents == dashboards()
    assert {manifest["metadata"]["labels"]["grafana_dashboard"] for manifest in config_maps} == {
        "1"
    }


# The chart itself


@runs_helm
def test_helm_finds_nothing_wrong_with_the_chart_and_packs_what_it_needs(tmp_path: Path) -> None:
    done = helm_kit.run("helm", "lint", "--strict", CHART)
    packed = helm_kit.run("helm", "package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    shutil.unpack_archive(package, tmp_path)
    files = {path.name for path in (tmp_path / "boyd" / "files").rglob("*") if path.is_file()}

    assert done.returncode == 0, done.stdout + done.stderr
    assert packed.returncode == 0, packed.stderr
    assert files == {"agent.toml", "boyd-alerts.yml", *(f"{name}.json" for name in dashboards())}


def test_the_chart_has_the_version_of_boyd_and_links_only_into_the_folder_deploy() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    links = [path for path in CHART.rglob("*") if path.is_symlink()]

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert len(links) == 2 + len(dashboards())
    for link in links:
        assert not link.readlink().is_absolute()
        assert link.resolve().is_relative_to(DEPLOY)


def test_the_schema_knows_every_value_and_no_other() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)

    def compare(values: Any, schema: Any) -> None:
        properties = schema.get("properties")
        if properties is None or schema.get("additionalProperties") is not False:
            return
        assert set(values) == set(properties) - {"global"}
        for name, value in values.items():
            compare(value, properties[name])

    compare(VALUES, SCHEMA)


@runs_helm
@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"api": {"replica": 3}}, "replica"),
        ({"api": {"replicas": 0}}, "replicas"),
        ({"worker": {"replicas": "two"}}, "replicas"),
        ({"act": {"gracePeriod": 60}}, "gracePeriod"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"secret": ""}, "secret"),
        ({"settings": {"LOG_LEVEL": "debug"}}, "LOG_LEVEL"),
        ({"settings": {"BOYD_REDIS_URL": "redis://:x@redis/0"}}, "settings.BOYD_REDIS_URL is a"),
        ({"api": {"settings": {"BOYD_OIDC__CLIENT_SECRET": "x"}}}, "BOYD_OIDC__CLIENT_SECRET_FILE"),
    ],
)
def test_wrong_values_are_refused_by_name(
    values: dict[str, Any], name: str, tmp_path: Path
) -> None:
    done = template(tmp_path, values)

    assert done.returncode != 0
    assert name in done.stderr
